"""Random linear layers with quantised operands are right within their roundings, and run on the chip."""

from __future__ import annotations

import warnings

import pytest
import torch
from campaign.quantized import layer

from ktir.runtime import metrics


def wrong(seed: int) -> tuple[str, bool]:
    """What is wrong with a layer, and whether the chip ran it alone."""
    drawn = layer(seed)
    torch._dynamo.reset()
    with warnings.catch_warnings(), metrics.counted() as launches, torch.no_grad():
        warnings.simplefilter("ignore")
        got = torch.compile(drawn.function, backend="spyre", dynamic=False)(*drawn.tensors)
    ran = launches()
    found = drawn.judged(got)
    return found and f"{seed}: {found}", not ran.executor and not ran.torch


@pytest.mark.parametrize(("first", "count"), [(0, 4), *(pytest.param(n, 50, marks=pytest.mark.long) for n in range(0, 300, 50))])
def test_layers(first: int, count: int) -> None:
    found = [wrong(seed) for seed in range(first, first + count)]
    assert not [text for text, _ in found if text]
    assert 2 * sum(alone for _, alone in found) >= count
