"""Random sums of products are exact on the chip, in whatever order the dims of their factors lie."""

from __future__ import annotations

import warnings

import pytest
import torch
from campaign.contractions import product

from ktir.runtime import metrics


def wrong(seed: int) -> tuple[str, bool]:
    """What is wrong with one, and whether the chip ran it alone."""
    drawn = product(seed)
    torch._dynamo.reset()
    with warnings.catch_warnings(), metrics.counted() as launches, torch.no_grad():
        warnings.simplefilter("ignore")
        got = torch.compile(drawn.function, backend="spyre", dynamic=False)(*drawn.operands)
    ran, same = launches(), torch.equal(got, drawn.exact().to(got.dtype))
    return "" if same else drawn.text, not ran.executor and not ran.torch


@pytest.mark.parametrize(("first", "count"), [(10, 6), *(pytest.param(n, 50, marks=pytest.mark.long) for n in range(0, 300, 50))])
def test_products(first: int, count: int) -> None:
    found = [wrong(seed) for seed in range(first, first + count)]
    assert not [text for text, _ in found if text]
    assert 2 * sum(alone for _, alone in found) >= count
