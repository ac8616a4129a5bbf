"""Reductions, scans and sorts over zeros of either sign, infinities and NaN; wrap-around of integers; dims of size 0; what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import ktir
import ktir.lowering.inductor  # registers the backends

OPTIONS: dict[str, Any] = {"engine": "ktir", "fallback": "error"}

Model = Callable[..., tuple[torch.Tensor, ...]]


def compiled(model: Model) -> Model:
    torch._dynamo.reset()
    return torch.compile(model, backend="ktir", dynamic=False, fullgraph=True, options=OPTIONS)


def same(actual: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], tolerance: float = 0) -> None:
    for place, (a, e) in enumerate(zip(actual, expected, strict=True)):
        torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda text, place=place: f"{place}: {text}")


def of_floats(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *a.max(1), *a.min(1), *a.cummax(1), *a.cummin(1), *torch.sort(a, dim=1, stable=True),
        *torch.sort(a, dim=1, descending=True, stable=True), a.amax(1), a.amin(1), a.argmax(1), a.argmin(1), a.argmax(), a.any(1), a.all(1),
        a.prod(1), a.sum(1), a.mean(1), a.nansum(1), a.count_nonzero(1), a.cumsum(1), a.cumprod(1), a.topk(2, 1).values, a.median(1).values,
        a.logsumexp(1), a.softmax(1), a.var(1),
    )  # fmt: skip


def of_integers(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *a.max(1), *a.min(1), *torch.sort(a, dim=1, stable=True), a.argmax(1), a.argmin(1), a.any(1), a.all(1), a.sum(1),
        a.sum(1, dtype=a.dtype), a.prod(1), a.prod(1, dtype=a.dtype), a.cumsum(1), a.cumsum(1, dtype=a.dtype), a.cumprod(1), a + a, a * a,
    )  # fmt: skip


def values(numbers: list[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(st.sampled_from(numbers), min_size=5, max_size=5), min_size=3, max_size=3)


FLOATS = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.001, 7.0, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)], ids=str)
def test_floats(dtype: torch.dtype, tolerance: float) -> None:
    model = compiled(of_floats)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(values(FLOATS))
    def check(rows: list[list[float]]) -> None:
        a = torch.tensor(rows).to(dtype)
        same(model(a), of_floats(a), tolerance)

    check()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64], ids=str)
def test_integers_wrap_around(dtype: torch.dtype) -> None:
    model, about = compiled(of_integers), torch.iinfo(dtype)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(values([0, 1, -1, 2, 3, about.max, about.min]))
    def check(rows: list[list[int]]) -> None:
        a = torch.tensor(rows, dtype=dtype)
        same(model(a), of_integers(a))

    check()


def of_nothing(a: torch.Tensor, b: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """a: [0, 3], b: [3, 4], i: [0]."""
    t = a.t()
    return (
        a + 1, a @ b, t @ a, t @ a + 1, b.t() @ t, torch.bmm(t[None], a[None]), b.__rmatmul__(a), torch.addmm(b[0], a, b),
        torch.mv(t, t[0]), torch.dot(t[0], t[0]), a.sum(), a.sum(0), a.sum(1), a.mean(0), a.prod(0), a.any(0), a.all(0), a.var(0),
        *torch.std_mean(a, 0), a.softmax(0), a.softmax(1), a.logsumexp(0), a.cumsum(0), a.cumsum(1), *a.sort(0), *a.sort(1),
        *a.topk(2, 1), *b.topk(0, 1), torch.cat([a, b.t()[:, :3]]), torch.nn.functional.pad(a, (1, 1, 1, 1), value=2.0), b[i],
        b.index_put((i,), b[i]), a.reshape(3, 0) * 2, a.flip(0), *torch.std_mean(b[0, 0]), *torch.std_mean(b[:, :1], 1),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_dims_of_size_zero_and_one(dtype: torch.dtype) -> None:
    inputs = torch.zeros(0, 3, dtype=dtype), torch.arange(12.0).reshape(3, 4).to(dtype), torch.zeros(0, dtype=torch.int64)
    same(compiled(of_nothing)(*inputs), of_nothing(*inputs), 1e-3)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floats_of_one_byte(dtype: torch.dtype) -> None:
    """Every float16, as such a float and back."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.float16).view(256, 256)
    same(compiled(lambda a: (a.to(dtype).float(), a.to(dtype).half()))(every), (every.to(dtype).float(), every.to(dtype).half()))


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "frexp": (torch.frexp, "'frexp' op"),
    "rand": (lambda a: torch.rand(3) + a[0], "'aten.rand.default' op"),
    "randint": (lambda a: torch.randint(0, 5, (3,)), "'aten.randint.low' op"),
    "randperm": (lambda a: torch.randperm(5), "'aten.randperm.default' op"),
    "normal": (lambda a: torch.normal(a, 1.0), "'prims.normal.default' op"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(Exception, match=message):
        compiled(function)(torch.ones(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_whole_quotients(dtype: torch.dtype) -> None:
    """Bit for bit as eager, which rounds a quotient of halves before it is made whole, unless the divisor is one number."""
    torch.manual_seed(0)
    y = (torch.randn(3000) * torch.tensor([0.1, 1, 100]).repeat(1000)).to(dtype)
    x = (y.float() * torch.randint(-3000, 3000, (3000,))).to(dtype)
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 65504.0, 1e-7, 0.1]).to(dtype)
    p, q = (t.flatten() for t in torch.meshgrid(special, special, indexing="ij"))

    def model(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = [x // y, x // 0.1, 3.0 // y]
        for mode in ("trunc", "floor"):
            results += [torch.div(x, d, rounding_mode=mode) for d in (y, 0.1, y[:1], y[5])]
        return tuple(results)

    run = compiled(model)
    for a, b in ((x, y), (torch.cat([p, x])[:3000], torch.cat([q, y])[:3000])):
        for mine, theirs in zip(run(a, b), model(a, b), strict=True):
            assert torch.equal(mine.nan_to_num(7), theirs.nan_to_num(7))
            assert torch.equal(torch.signbit(mine[~mine.isnan()]), torch.signbit(theirs[~theirs.isnan()]))


@pytest.mark.parametrize("value", [1, 0.25, 4.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_overflow_of_products(dtype: torch.dtype, value: float) -> None:
    """Where the steps of `addcmul` and `lerp` overflow is as in eager."""
    large = torch.full((4,), torch.finfo(dtype).max / 2, dtype=dtype)
    small = torch.tensor([1.0, 2.0, 0.25, 8.0], dtype=dtype)
    weight = torch.tensor([0.0, 0.3, 0.6, 1.0]).to(dtype)

    def model(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.addcmul(-a, a, b, value=value), torch.lerp(-a * 2, a * 2, 0.3), torch.lerp(-a * 2, a * 2, w)

    same(compiled(model)(large, small, weight), model(large, small, weight), 1e-6)


def test_overflow_of_quotients() -> None:
    """As in eager, in the graph of ATen's operators; Dynamo itself has another order for `addcdiv` with a value."""
    from torch.fx.experimental.proxy_tensor import make_fx

    large = torch.full((4,), torch.finfo(torch.float32).max / 2)
    small = torch.tensor([1.0, 0.5, 0.25, 8.0])

    def adding(value: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        return lambda a, b: torch.addcdiv(-a, a, b, value=value)

    for value in (1, 0.25, 4.0):
        model = adding(value)
        with torch.no_grad():
            run = ktir.standalone_compile(make_fx(model)(large, small), [large, small], options=OPTIONS)
            found = run(large, small)
        same(tuple(found) if isinstance(found, (tuple, list)) else (found,), (model(large, small),))


def of_zero_and_one(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What is a constant, or the operand itself, for ordinary numbers alone."""
    zeros, ones = torch.zeros_like(a), torch.ones_like(a)
    return (
        a * 0, a.mul(0).add(a), 0 / a, a * zeros, zeros * a, a * False, a * ones, a / ones, a + 0, a + zeros, zeros + a, a - 0, a - -zeros,
        a - a, a / a, a**0, a**1, torch.where(a > 0, a, a * 0), torch.dropout(a, 1.0, True), torch.nn.functional.softshrink(a).abs(),
        (a * 0).amax(),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_no_product_with_zero_is_taken_for_zero(dtype: torch.dtype) -> None:
    a = torch.tensor(FLOATS, dtype=dtype)
    for mine, theirs in zip(compiled(of_zero_and_one)(a), of_zero_and_one(a), strict=True):
        same((mine,), (theirs,))
        assert torch.equal(torch.signbit(mine[~mine.isnan()]), torch.signbit(theirs[~theirs.isnan()]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_numbers_that_the_type_does_not_hold(dtype: torch.dtype, on_chip: None) -> None:
    """Beside a limit that is NaN PyTorch does not look at the other one; a factor of `xlogy` beyond the type is infinite."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.clamp(1e39, math.nan), x.clamp(math.nan, 1.0), torch.xlogy(x.abs(), 1e39), torch.xlogy(1e39, x.abs())

    torch._dynamo.reset()
    x = torch.tensor([1.0, -2.0, math.nan, 0.0, 3.0, math.inf], dtype=dtype)
    for a, b in zip(torch.compile(f, backend="spyre", options={"fallback": "error"})(x), f(x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
