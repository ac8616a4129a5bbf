"""Results at the edges of the floating-point types as eager PyTorch has them, with the signs of zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from ktir.isa.units import Unit
from ktir.runtime.executable import recorded

INF, NAN = float("inf"), float("nan")
NUMBERS = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 6e-8, -6e-8, 65504.0, -65504.0, 2.5)
"""Subnormals of float16 among them."""


def same_bits(f: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """NaNs are equal to each other."""
    torch._dynamo.reset()
    want = f(*inputs)
    got = torch.compile(f, backend="spyre", dynamic=False)(*inputs)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        equal = (g == w) & (torch.signbit(g) == torch.signbit(w)) | torch.isnan(g) & torch.isnan(w)
        assert equal.all(), (g[~equal], w[~equal])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_clamp_keeps_the_zero_that_it_is_given(dtype: torch.dtype, on_chip: None) -> None:
    def clamps(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            functional.relu(x), x.clamp(0, 1), x.clamp(min=0), x.clamp(min=-0.0), x.clamp(max=0), x.clamp(max=-0.0), functional.relu6(x),
            functional.hardtanh(x, -0.0, 1), functional.threshold(x, 0, 0.0), x.clamp(min=NAN),
        )  # fmt: skip

    same_bits(clamps, torch.tensor(NUMBERS * 6, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_clamp_between_numbers_is_an_instruction_per_limit(dtype: torch.dtype, on_chip: None) -> None:
    def clamps(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.clamp(-1, 2.5), functional.hardtanh(x), x.clamp(min=1e-45), x.clamp(-INF, INF), x.clamp(2, 1), x.clamp(max=-1.0)

    x = torch.tensor(NUMBERS * 6, dtype=dtype)
    same_bits(clamps, x)
    torch._dynamo.reset()
    with recorded() as launches:
        torch.compile(lambda x: x.clamp(-1, 2.5), backend="spyre")(x)
    words = [w for kernel in launches[0].machine.program.kernels for w in kernel.units[Unit.SFP] if w.op in ("v1", "v2", "v3")]
    assert [w.operands["kind"] for w in words] == ["max", "min"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_equal_zeros_and_products_with_an_integer_zero(dtype: torch.dtype, on_chip: None) -> None:
    def two(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.fmax(a, b), torch.fmin(a, b), torch.sub(a, b, alpha=0), torch.rsub(a, b, alpha=0), torch.add(a, b, alpha=0)

    x = torch.tensor(NUMBERS, dtype=dtype)
    same_bits(two, x.repeat_interleave(len(x)), x.repeat(len(x)))


@pytest.mark.parametrize("beta", [1, 0, -1])
def test_a_product_that_blas_leaves_out_is_not_seen(beta: int, on_chip: None) -> None:
    def added(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        blas = torch.addmm(x, a, b, alpha=0, beta=beta), torch.addbmm(x, a[None], b[None], alpha=0, beta=beta)
        batched = (torch.baddbmm(x[None, :k, :k], a[None, :k, :k], b[None, :k, :k], alpha=0, beta=beta) for k in (4, 12))
        return *blas, torch.addmv(x[0], a, b[0], alpha=0, beta=beta), *batched

    x = torch.tensor([0.0, -0.0, INF, 1.0, NAN, 2.0]).repeat(12, 2)
    same_bits(added, x, torch.full((12, 12), NAN), torch.full((12, 12), INF))


def test_a_layer_norm_without_bias_has_no_negative_zero(on_chip: None) -> None:
    def norms(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return functional.layer_norm(x, (1,), w), functional.layer_norm(x, (1,))

    same_bits(norms, torch.tensor([[0.0], [-0.0]] * 5), torch.tensor([-4.0]))


def test_what_is_no_edge_stays_on_the_chip(on_chip: None) -> None:
    def others(x: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.std(-1), x.var(0), torch.rsub(x, 2, alpha=3), torch.sub(x, a, alpha=2), torch.addmv(a, x, a, alpha=2), x.clamp(a)

    x, a = torch.randn(70, 70).half(), torch.randn(70).half()
    torch._dynamo.reset()
    for got, want in zip(torch.compile(others, backend="spyre")(x, a), others(x, a), strict=True):
        torch.testing.assert_close(got, want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("scale", [3e37, 1e-30, 1e-38])
def test_squares_of_a_deviation_are_in_range(scale: float, on_chip: None) -> None:
    def spreads(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.std(-1), x.std(0, keepdim=True), x.std((0, 1), correction=0), x.var(-1), x.var(0), x.std(-1, correction=300)

    x = torch.randn(9, 193, generator=torch.Generator().manual_seed(0)) * scale
    x[3, 5], x[5, 7], x[6] = INF, NAN, 0
    torch._dynamo.reset()
    for got, want in zip(torch.compile(spreads, backend="spyre")(x), spreads(x.double()), strict=True):
        torch.testing.assert_close(got, want.float(), rtol=1e-5, atol=0, equal_nan=True)


def test_factors_of_integer_products_are_integers(on_chip: None) -> None:
    def added(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batched = (torch.baddbmm(x[None], a[None], b[None], alpha=c, beta=2.7) for c in (0.6, 3.9))
        return torch.addbmm(x, a[None], b[None], beta=0.6, alpha=0.2), *batched

    x = torch.arange(-32, 32).reshape(8, 8)
    same_bits(added, x, x + 1, x + 2)
