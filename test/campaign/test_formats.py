"""Random chains of conversions between number formats have eager's bits, wherever their data let them run."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from campaign.formats import chain

from ktir.runtime import metrics


def differing(seed: int) -> tuple[str, bool]:
    """What is wrong with a chain, and whether the chip ran it alone. Which NaN a conversion gives is open."""
    drawn = chain(seed)
    f: Any = drawn.function()
    want = f(drawn.argument.clone())
    torch._dynamo.reset()
    with warnings.catch_warnings(), metrics.counted() as launches, torch.no_grad():
        warnings.simplefilter("ignore")
        got = torch.compile(f, backend="spyre", dynamic=False)(drawn.argument.clone())
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        whole = not b.dtype.is_floating_point
        same = a == b if whole else (a.double() == b.double()) & (a.double().signbit() == b.double().signbit()) | a.isnan() & b.isnan()
        if a.dtype != b.dtype or a.shape != b.shape or not same.all():
            return f"{drawn.text}result {k}: {a.dtype}, {a[~same][:4].tolist()}, but eager has {b.dtype}, {b[~same][:4].tolist()}", False
    ran = launches()
    return "", not ran.executor and not ran.torch


@pytest.mark.parametrize(("first", "count"), [(26, 3), *(pytest.param(n, 50, marks=pytest.mark.long) for n in range(0, 600, 50))])
def test_chains(first: int, count: int) -> None:
    found = [differing(seed) for seed in range(first, first + count)]
    assert not [text for text, _ in found if text]
    assert 2 * sum(alone for _, alone in found) >= count
