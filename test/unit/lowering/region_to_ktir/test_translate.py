"""Indices from data that no address depends on are checked, and give what they gave."""

from __future__ import annotations

import pytest
import torch

from ktir import config
from ktir.diagnostics import KtirError

ONE, COPIES = torch.arange(70.0).reshape(1, 70), torch.arange(70.0).reshape(1, 70).expand(3, 70)


def looked_up(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of an argument, and of values of the graph."""
    y = x + 1
    return x[i], torch.nn.functional.embedding(i % 1, x), y[i] * 2, x[:, i.abs()[:1]], y.scatter_add(0, (i % 1)[:1, None], x[:1, :1] + 1)


@pytest.mark.parametrize("x", [ONE, COPIES, ONE.half()], ids=["one", "copies", "half"])
def test_inside(x: torch.Tensor) -> None:
    torch._dynamo.reset()
    i = torch.tensor([0, -1])
    with config.patch(fallback="error"), torch.no_grad():
        for found, wanted in zip(torch.compile(looked_up, backend="spyre")(x, i), looked_up(x, i), strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("place", [3, -4])
@pytest.mark.parametrize("x", [ONE, COPIES, ONE[0, :1], COPIES.relu()[:1]], ids=["one", "copies", "element", "value"])
def test_outside(x: torch.Tensor, place: int) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, i: (x[i], x.square()[i + 0]), backend="spyre")
    with torch.no_grad():
        found = compiled(x, torch.tensor([0, 0]))
        assert torch.equal(found[0], x[[0, 0]])
        with pytest.raises((IndexError, KtirError)):
            compiled(x, torch.tensor([0, place]))
