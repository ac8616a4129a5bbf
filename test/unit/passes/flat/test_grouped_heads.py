"""Attention whose heads share keys in groups, of one sequence and of several."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from chip import only_on_chip
from chip_cycles import cycles_of
from torch.nn import functional as F

SHAPES = [
    (1, 8, 2, 70, 70, 64),
    (2, 8, 2, 70, 70, 64),
    (3, 6, 2, 33, 130, 64),
    (2, 4, 1, 65, 65, 128),
    (4, 8, 4, 1, 200, 64),
    (2, 4, 4, 20, 90, 64),
]
"""Sequences, heads, groups, queries, keys, and what a head has of each."""


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def hidden(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """By a mask that each sequence has of its own; each query sees itself."""
    i, j, shortest = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2]), torch.arange(q.shape[0]).view(-1, 1, 1, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j >= i - 3 - shortest), enable_gqa=True)


@pytest.mark.parametrize("f", [causal, hidden])
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape: tuple[int, ...], f: Callable[..., torch.Tensor]) -> None:
    """As near to float64 as PyTorch in float16 comes, but for the rounding of weights and results: half a unit each of numbers below 4."""
    n, heads, groups, queries, keys, size = shape
    torch.manual_seed(sum(shape))
    q, k, v = (torch.randn(n, h, rows, size).half() for h, rows in ((heads, queries), (groups, keys), (groups, keys)))
    exact, eager = f(q.double(), k.double(), v.double()), f(q, k, v)
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip():
        found = torch.compile(f, backend="ktir", options={"engine": "spyre"})(q, k, v)
    assert ((found.double() - exact).abs() <= (eager.double() - exact).abs().max() + 2.0**-10).all()


def test_several_sequences_take_as_many_times_as_long() -> None:
    """Scores stay in the scratchpad: in memory they would be four times as much to move as all else, and take as long as the rest."""
    one = cycles_of(causal, (1, 32, 128, 128), (1, 8, 128, 128), (1, 8, 128, 128))
    four = cycles_of(causal, (4, 32, 128, 128), (4, 8, 128, 128), (4, 8, 128, 128))
    assert four < 4.2 * one
