"""Operators on integers that 32 bits do not hold: what reads a tensor leaves it as it is. The oracle is torch on the host."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from ktir.device.operators.fallback import FallbackWarning

LARGE = 1 << 40
X = torch.tensor([LARGE + 5, -LARGE - 3, 7, (1 << 63) - 1, -(1 << 63), 1 << 31])


@pytest.fixture(autouse=True)
def _falls_back() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        yield


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool], ids=str)
def test_low_bits_are_not_the_number(dtype: torch.dtype) -> None:
    """A conversion to fewer bits, which takes the low ones, and then a program that wants all of the number."""
    x = X.to("spyre")
    assert torch.equal(x.to(dtype).cpu(), X.to(dtype))
    assert torch.equal((x + 1).cpu(), X + 1)
    assert torch.equal((x > 9).cpu(), X > 9)
    assert torch.equal(x.cpu(), X)


def test_low_bits_of_numbers_that_fit_are_the_numbers(on_chip: None, settled: None) -> None:
    x = torch.arange(-70, 70)
    ours = x.to("spyre")
    before = torch.spyre.memory_allocated()  # type: ignore[attr-defined]
    assert torch.equal(ours.to(torch.int8).cpu(), x.to(torch.int8))
    assert torch.equal((ours + 1).cpu(), x + 1)
    assert torch.spyre.memory_allocated() <= before  # type: ignore[attr-defined]  # there is one form, in place of the bytes


@pytest.mark.parametrize(
    "number", [1 << 31, -(1 << 31) - 1, (1 << 63) - 1, *(pytest.param(n, marks=pytest.mark.long) for n in (LARGE + 5, -(1 << 63)))]
)
def test_numbers_beyond_32_bits(number: int) -> None:
    """What is known of a comparison for numbers of 32 bits is not known of others."""
    x = torch.cat([X, torch.tensor([LARGE, 1 << 31, 3])])
    ours = x.to("spyre")
    for compare in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge, torch.isin):
        assert torch.equal(compare(ours, number).cpu(), compare(x, number))
    assert torch.equal(ours.clamp(max=number).cpu(), x.clamp(max=number))
    assert torch.equal(torch.where(ours > number, 1, 2).cpu(), torch.where(x > number, 1, 2))
    assert torch.equal(ours.cpu(), x)
