"""The fixture `on_chip` and what stands behind it: a test that claims the chip fails without it."""

from __future__ import annotations

import pytest
from chip import only_on_chip

from ktir.runtime import metrics


@pytest.mark.parametrize(
    ("elsewhere", "why"),
    [
        ({}, "no program ran on the chip"),
        ({"executor": 1}, "no program ran on the chip"),
        ({"chip": 1, "executor": 1}, "ran on the executor"),
        ({"chip": 1, "torch": 2}, r"ran in PyTorch: Launches\(chip=1, executor=0, torch=2\)"),
    ],
)
def test_without_the_chip(elsewhere: dict[str, int], why: str) -> None:
    with pytest.raises(AssertionError, match=why), only_on_chip():
        metrics.count(**elsewhere)


@pytest.mark.usefixtures("on_chip")
def test_on_the_chip() -> None:
    metrics.count(chip=1)


@pytest.mark.xfail(strict=True, raises=AssertionError)
def test_the_fixture_fails_the_test_itself(on_chip: None) -> None:
    metrics.count(chip=1, executor=1)
