"""What `make test` takes of a product of parameters."""

from __future__ import annotations

import pytest
from combinations import each_once


@pytest.mark.parametrize("sizes", [(1,), (3, 2), (2, 3), (4, 2), (4, 4), (1, 5), (5, 3, 2), (6, 4, 3)])
def test_each_value_is_taken_and_every_combination_is_there(sizes: tuple[int, ...]) -> None:
    sets = each_once(*(range(n) for n in sizes))
    quick = [p.values for p in sets if not p.marks]
    assert len({p.values for p in sets}) == len(sets)
    assert len(quick) == max(sizes)
    for axis, n in enumerate(sizes):
        assert {values[axis] for values in quick} == set(range(n))
        assert {p.values[axis] for p in sets} == set(range(n))


def test_pairs_vary() -> None:
    """Where one axis is a multiple of another one, a value does not meet the same values alone."""
    quick = [p.values for p in each_once(range(4), "ab") if not p.marks]
    assert quick == [(0, "a"), (1, "b"), (2, "b"), (3, "a")]


def test_long_values_stay_long() -> None:
    sets = each_once([1, pytest.param(2, marks=pytest.mark.long)], "ab")
    assert [p.values for p in sets if not p.marks] == [(1, "a"), (1, "b")]
