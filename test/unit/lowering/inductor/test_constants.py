"""What depends on no input and is hard for the chip is a constant of its program; what is cheap stays a computation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ktir.lowering.inductor.graph.constants import fold

OPTIONS: dict[str, Any] = {"fallback": "error"}
"""On the chip or not at all."""


def _buckets(x: torch.Tensor) -> torch.Tensor:
    """Biases by distance, far ones on a logarithmic scale: the logarithm of 0 becomes an integer that nobody reads."""
    places = torch.arange(11)
    distance = (places[None] - places[:, None]).abs()
    far = 4 + (torch.log(distance.float() / 4) * 3).long()
    return x[torch.where(distance < 4, distance, far.clamp(max=15))]


def _rolled(x: torch.Tensor) -> torch.Tensor:
    """Windows of a picture that is shifted, as a Swin block has them."""
    return torch.roll(x, (-2, -2), (1, 2)).reshape(3, 2, 4, 2, 4, 5).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 5) * 2


@pytest.mark.parametrize(("function", "shape"), [(_buckets, (16, 20)), (_rolled, (3, 8, 8, 5))])
def test_on_the_chip(function: Any, shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()
    torch.testing.assert_close(torch.compile(function, backend="ktir", options=OPTIONS)(x), function(x), rtol=0, atol=0)


def test_what_the_host_has_no_kernel_for(on_chip: None) -> None:
    """Attention multiplies matrices of 16 bits to f32, which PyTorch does on other devices only."""

    def attention(x: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros_like(x)
        return x + torch.nn.functional.scaled_dot_product_attention(zeros, zeros, zeros)

    torch._dynamo.reset()
    x = torch.randn(2, 7, 2, 12).half()
    assert torch.equal(torch.compile(attention, backend="spyre")(x), x)


def _folded(function: Any, *inputs: torch.Tensor) -> tuple[fx.GraphModule, list[str]]:
    gm = make_fx(function, tracing_mode="fake")(*inputs)
    fold(gm)
    return gm, [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def test_only_what_is_hard() -> None:
    x = torch.ones(7, 7)
    _, left = _folded(lambda x: torch.where(torch.arange(7)[:, None] >= torch.arange(7), x, 0.0), x)
    assert "aten.arange.default" in left
    gm, left = _folded(lambda x: x * (torch.arange(7).double() * 0.1), x)
    assert left == ["aten.view.default", "aten.mul.Tensor"]
    torch.testing.assert_close(gm(x), x * (torch.arange(7).double() * 0.1), rtol=0, atol=0)


def test_never_random_never_of_inputs() -> None:
    _, left = _folded(lambda x: x + torch.rand(7).log() + (x.float() * 3).long() + (torch.arange(7) % 3), torch.ones(7))
    assert {"aten.rand.default", "aten.log.default", "aten._to_copy.default"} <= set(left)
    assert "aten.remainder.Scalar" not in left


def test_a_rounded_result_may_be_a_tensor(on_chip: None) -> None:
    """The probabilities of equal scores are all alike, and no number."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        alike = torch.softmax(torch.zeros((255, 1), dtype=torch.float16)[198:242], -2)
        return torch.amin(alike, (0,), keepdim=True), x * alike

    torch._dynamo.reset()
    x = torch.randn(44, 5).half()
    options: dict[str, Any] = {"fallback": "error"}
    for ours, eagers in zip(torch.compile(function, backend="spyre", options=options)(x), function(x), strict=True):
        assert torch.equal(ours, eagers)
