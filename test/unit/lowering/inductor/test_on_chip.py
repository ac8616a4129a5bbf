"""Operators on the emulated chip, without any fallback, at sizes that are no multiples of anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from chip import only_on_chip
from combinations import each_once
from torch._inductor.utils import fresh_cache

from ktir import config
from ktir.diagnostics import remarks
from ktir.lowering.inductor.backend import spyre

SIZES = [pytest.param(1, marks=pytest.mark.long), 7, pytest.param(64, marks=pytest.mark.long), 100]
ALL = [torch.float16, torch.float32, torch.int32, pytest.param(torch.int64, marks=pytest.mark.long)]


def on_chip(f: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """What `f` gives, compiled; an error if the chip's compiler refuses anything."""
    torch._dynamo.reset()
    with config.patch(fallback="error", engine="spyre"), torch.no_grad(), only_on_chip():
        return torch.compile(f, backend=spyre, fullgraph=True, dynamic=False)(*(x.clone() for x in inputs))


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g).to(dtype)
    return torch.randint(-1000, 1000, shape, generator=g).to(dtype)


def distinct(rows: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    g = torch.Generator().manual_seed(n)
    return torch.stack([torch.randperm(n, generator=g) for _ in range(rows)]).to(dtype)


def same(f: Callable[..., Any], *inputs: torch.Tensor) -> None:
    expected, found = f(*inputs), on_chip(f, *inputs)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (expected, found)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("dtype", "n"), each_once(ALL, SIZES))
def test_moves_and_orders(dtype: torch.dtype, n: int) -> None:
    """Sorts, top-k, argmax, gathers, scatters, embeddings, transposes: no element changes."""
    xs = [distinct(2, n, dtype) for _ in range(6)]
    index = torch.randint(0, n, (2, n), generator=torch.Generator().manual_seed(1))

    def each(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, *more: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Side by side in one graph, of operands of their own."""
        e, i, f, j, s, w, k = more
        orders = (*torch.sort(a, stable=True), *torch.topk(b, min(5, n)), torch.argmax(c, -1), (d.t() + 1).contiguous())
        return *orders, torch.gather(e, 1, i), torch.scatter(f, 1, j, s), torch.nn.functional.embedding(k, w)

    same(each, *xs[:5], index, xs[5], distinct(2, n, torch.int64), drawn((2, n), dtype), drawn((n, 33), dtype), index[:, :3].clone())


def test_orders_of_numbers_without_sign_and_products_of_small_ones() -> None:
    numbers = drawn((3, 70), torch.int32)
    few = numbers[:, :5] % 7 - 3

    def each(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
        orders = *torch.sort(a, dim=-1, stable=True), *torch.sort(b, dim=0, stable=True, descending=True), *torch.sort(c, stable=True)
        return *orders, a.topk(3)[0], c.prod(1), c.prod(), d.prod(1), d.cumsum(1).prod(0)

    same(each, numbers.to(torch.uint8), numbers.to(torch.uint16), numbers > 100, few)


@pytest.mark.parametrize(("dtype", "n"), each_once(ALL, SIZES))
def test_scans(dtype: torch.dtype, n: int) -> None:
    """Along the last dim and the first one."""
    for x, dim in ((drawn((3, n), dtype), -1), (drawn((n, 3), dtype), 0)):
        exact = x.double().cumsum(dim)
        found = on_chip(lambda t, dim=dim: torch.cumsum(t, dim), x)
        if not dtype.is_floating_point:
            assert torch.equal(found, x.cumsum(dim))
            continue
        bound = x.double().abs().cumsum(dim) * (2.0**-11 if dtype == torch.float16 else n * 2.0**-24) + 1e-7
        assert ((found.double() - exact).abs() <= bound * 1.01).all()


@pytest.mark.long
@pytest.mark.parametrize("dtype", ALL)
def test_large_ones(dtype: torch.dtype) -> None:
    """1000 elements; the largest 128 of 4096."""
    x = distinct(1, 1000, dtype)
    same(lambda t: tuple(torch.sort(t, stable=True)), x)
    wide = distinct(1, 4096, torch.int32)
    values = (wide // 2 - 1024).to(dtype) if dtype == torch.float16 else wide.to(dtype)
    found, expected = on_chip(lambda t: torch.topk(t, 128), values), torch.topk(values, 128)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(values.gather(1, found[1]), expected[0])


def test_what_a_sort_refuses() -> None:
    """Ranks are found by comparing all pairs: where these are too many the number is named, and how many there may be."""
    with pytest.raises(Exception, match=r"compares 67108864 pairs, which is not supported; the most supported are 16777216"):
        on_chip(lambda t: torch.sort(t), drawn((8192,), torch.float32))


def test_long_scans() -> None:
    """Each of 5000 elements goes over those before it: more pairs than a sort may have."""
    same(lambda t: t.cumsum(0), torch.arange(5000, dtype=torch.float32) % 7)


# Matmuls of f32


def bound(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Of machine order: each product is rounded, then one rounding per addition on the way of an element: sticks, six levels of lanes."""
    sticks = -(-a.shape[-1] // 64)
    return (a.double().abs() @ b.double().abs()) * ((sticks + 8) * 2.0**-24) + 1e-30


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 70, 9), (1, 64, 64), (3, 200, 65), (33, 7, 100)])
def test_f32_matmul(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = drawn((m, k), torch.float32), drawn((k, n), torch.float32, 1)
    found = on_chip(torch.mm, a, b) if m * k * n > 1 else on_chip(lambda x, y: (x @ y) + 0, a, b)
    assert ((found.double() - a.double() @ b.double()).abs() <= bound(a, b)).all()


def test_batched_f32_matmuls() -> None:
    a, b = drawn((3, 5, 70), torch.float32), drawn((3, 70, 9), torch.float32, 1)
    assert ((on_chip(torch.bmm, a, b).double() - a.double() @ b.double()).abs() <= bound(a, b)).all()
    w, c = drawn((9, 70), torch.float32, 2), drawn((9,), torch.float32, 3)
    found = on_chip(lambda x, w, c: torch.nn.functional.linear(x, w, c).relu(), a, w, c)
    exact = (a.double() @ w.double().t() + c.double()).relu()
    assert ((found.double() - exact).abs() <= bound(a, w.t()) + exact.abs() * 2.0**-23).all()


def test_a_remark_says_where_f32_matmuls_run() -> None:
    with fresh_cache(), remarks() as found:  # what torch has kept is not compiled, and says nothing
        on_chip(lambda x, y: torch.relu(x @ y), drawn((6, 71), torch.float32), drawn((71, 10), torch.float32))
    (told,) = [r for r in found if "vector unit" in r.message]
    assert told.kind == "missed"
    assert "matmul of f32 operands" in told.message
    assert "test_on_chip.py" in (told.location or "")
    with fresh_cache(), remarks() as found:
        on_chip(lambda x, y: torch.relu(x @ y), drawn((6, 71), torch.float16), drawn((71, 10), torch.float16))
    assert not [r for r in found if "vector unit" in r.message]


def test_a_roll_beside_a_product() -> None:
    """What is looked up begins at a stick that the core's place and a variable give together."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        squares, numbers = x * x, torch.arange(16, dtype=torch.float16)
        return squares, torch.roll(torch.hypot(squares, squares), 7, 1), torch.dot(numbers, numbers)

    x = drawn((193, 16), torch.float16)
    for expected, found in zip(f(x), on_chip(f, x), strict=True):
        torch.testing.assert_close(found, expected)
