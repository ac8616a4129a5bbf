"""The cost model ranks kernels, and divisions of one kernel, as the emulator does."""

from __future__ import annotations

from statistics import median

import pytest
from cost_correlation import Measured, measure, of_divisions, rank_correlation
from cost_kernels import BYTES, cases

from ktir.target import DATASHEET, PRESETS, Target

BOUND = 0.95


def measured(step: int, target: Target = DATASHEET) -> list[Measured]:
    """Every so many of the kernels."""
    return [m for case in list(cases())[::step] for m in measure(case, target)]


def correlation(found: list[Measured]) -> float:
    return rank_correlation([m.planned for m in found], [m.cycles for m in found])


def test_prices_of_some() -> None:
    found = measured(5)
    assert len(found) > 15
    assert correlation(found) >= BOUND
    assert 0.95 < median(m.ratio for m in found) < 1.05, "in cycles, not in order alone"


@pytest.mark.parametrize(("name", "most"), [("16 heads 33x100x32", 4200), ("8 heads 1x700x64", 11_200)])
def test_attention_is_divided_by_the_price_of_all_its_ops(name: str, most: int) -> None:
    """By that of its matmuls and of how much it moves, these took 8,729 and 13,376 cycles."""
    (case,) = (c for c in cases() if c.name == name)
    (found,) = measure(case, DATASHEET)
    assert found.cycles < most
    assert found.ratio == pytest.approx(1, abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize("target", list(PRESETS.values()), ids=list(PRESETS))
def test_rank_correlation_of_all(target: Target) -> None:
    found = measured(1, target)
    assert len(found) >= 150
    assert correlation(found) >= BOUND
    assert max(of_divisions(found).values()) < 0.15
    if target == DATASHEET:
        assert correlation(found) >= 0.99
        assert all(1 / 1.5 < m.ratio < 1.5 for m in found)


@pytest.mark.parametrize("weights", [w for w in BYTES if w != "f8E5M2"])
def test_what_widening_takes(weights: str) -> None:
    """Where the array waits for it most of the time: 2, 16 and 64 rows of a core, with all weights or some."""
    found = [m for c in cases() if c.name == f"64x512x512 {weights}" for m in measure(c, DATASHEET)]
    assert len(found) == 3
    for m in found:
        assert (m.planned, m.priced) == (pytest.approx(m.cycles, rel=0.1), pytest.approx(m.cycles, rel=0.06)), m


@pytest.mark.parametrize("target", list(PRESETS.values()), ids=list(PRESETS))
def test_blocks_of_few_rows_share_no_granules(target: Target) -> None:
    """A tensor that is stored across its sticks: two rows at once fill an eighth of what memory moves for them."""
    (case,) = (c for c in cases() if (c.kind, c.name) == ("relayout", "256x256"))
    found = list(measure(case, target))
    assert len(found) == 3
    assert all(m.ratio == pytest.approx(1, abs=0.2) for m in found)


def test_spearman() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 90]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.8660254)
