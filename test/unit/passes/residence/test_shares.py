"""Whether divisions agree on a tensor, and which tensors stay: against plain models."""

from __future__ import annotations

import random
from itertools import permutations, product

import numpy as np
import pytest

from ktir.passes.residence.pool_accesses import Footprint
from ktir.passes.residence.resident_choice import Candidate, Choice, Stay, choose, first_fit
from ktir.passes.residence.shares import Deal, Disagreement, dealt, share_of, traffic_saved


def rows_of(sticks: int, rows: int, cores: int) -> Footprint:
    """[sticks, rows] in memory, rows dealt to cores; the last one may have fewer."""
    share = -(-rows // cores)
    first = np.arange(cores) * share
    live = np.stack([np.full(cores, sticks), np.clip(rows - first, 0, share)], 1)
    return Footprint(first, (rows, 1), live)


def columns_of(sticks: int, rows: int, cores: int) -> Footprint:
    share = -(-sticks // cores)
    first = np.arange(cores) * share
    return Footprint(first * rows, (rows, 1), np.stack([np.clip(sticks - first, 0, share), np.full(cores, rows)], 1))


@pytest.mark.parametrize(("sticks", "rows", "cores"), [(1, 1, 1), (2, 5, 3), (3, 65, 32), (4, 8, 8), (1, 7, 3)])
def test_equal_slices_stay(sticks: int, rows: int, cores: int) -> None:
    written = rows_of(sticks, rows, cores)
    share = share_of([(0, written)], [(1, written)])
    own = -(-rows // cores)
    assert share.entries == sticks * own + (sticks * (own % 2) if own > 1 else 0)
    assert share.walks[0] == share.walks[1]
    places = {s * share.walks[0].strides[0] + r * share.walks[0].strides[1] for s in range(sticks) for r in range(own)}
    assert len(places) == sticks * own


def test_other_slices_disagree() -> None:
    with pytest.raises(Disagreement, match=r"slices disagree: \d+ of the 32 entries"):
        share_of([(0, rows_of(4, 8, 4))], [(1, columns_of(4, 8, 4))])


def test_divisions_are_compared_before_anything_is_built() -> None:
    """[sticks, heads, rows] on six cores: three parts of rows, the last one smaller, the fastest; two of heads."""
    rows, heads = Deal(3, 3), Deal(2, 2, below=3)
    written = dealt((2, 4, 7), (Deal(), heads, rows), 6)
    assert written.live.tolist() == [[2, 2, 3], [2, 2, 3], [2, 2, 1]] * 2
    assert written.start.tolist() == [0, 3, 6, 14, 17, 20]
    assert traffic_saved([(0, written)], [(1, written), (2, written)]) == 3 * 2 * 4 * 7
    other_way_round = dealt((2, 4, 7), (Deal(), Deal(2, 2), Deal(3, 3, below=2)), 6)
    assert traffic_saved([(0, written)], [(1, other_way_round)]) == 0
    assert dealt((3, 8), (Deal(), Deal(4, 2)), 4).start.tolist() == rows_of(3, 8, 4).start.tolist()


def test_more_cores_disagree() -> None:
    with pytest.raises(Disagreement, match="slices disagree"):
        share_of([(0, rows_of(2, 8, 4))], [(1, rows_of(2, 8, 8))])


def test_subset_stays_in_the_writers_strides() -> None:
    """A core reads one stick of what it has written, at the same place on every core."""
    written = rows_of(3, 8, 4)
    second = Footprint(written.start + 8, (8, 1), np.stack([np.full(4, 1), written.live[:, 1]], 1))
    share = share_of([(0, written)], [(1, second)])
    assert share.walks[1].first == share.walks[0].strides[0]


def test_merged_dims_are_one_walk() -> None:
    """Rows that one kernel divides as heads by positions are whole heads in another."""
    heads = Footprint(np.arange(2) * 8, (4, 1), np.array([[2, 4], [2, 4]]))
    rows = Footprint(np.arange(2) * 8, (1,), np.array([[8], [8]]))
    share = share_of([(0, heads)], [(1, rows)])
    assert (share.entries, share.walks[1].strides) == (8, (1,))


def test_what_is_written_twice_or_not_at_all() -> None:
    whole = Footprint(np.zeros(1, np.int64), (1,), np.array([[4]]))
    half = Footprint(np.zeros(1, np.int64), (1,), np.array([[2]]))
    with pytest.raises(Disagreement, match="written twice"):
        share_of([(0, whole), (1, half)], [(2, whole)])
    with pytest.raises(Disagreement, match="nothing has written"):
        share_of([(0, half)], [(1, whole)])
    with pytest.raises(Disagreement, match="written after it was read"):
        share_of([(1, whole)], [(1, whole)])


def candidates(seed: int, count: int) -> list[Candidate]:
    draw = random.Random(seed)
    made = []
    for key in range(count):
        first = draw.randrange(5)
        last = draw.randint(first, 5)
        stays = [Stay(256 * draw.randint(1, 6), first, last)]
        if key % 3 == 2:  # it changes its place
            stays.append(Stay(256 * draw.randint(1, 3), last, draw.randint(last, 5)))
        made.append(Candidate(key, tuple(stays), 256 * draw.randint(1, 20)))
    return made


def check_places(choice: Choice, free: list[int]) -> None:
    placed = [(stay, depth) for c, depths in choice.depths.items() for stay, depth in zip(c.stays, depths, strict=True)]
    for i, (stay, depth) in enumerate(placed):
        assert stay.bytes <= depth <= min(free[stay.first : stay.last + 1])
        for other, beside in placed[:i]:
            assert not stay.meets(other) or depth <= beside - other.bytes or beside <= depth - stay.bytes
    assert choice.saved == sum(c.saved for c in choice.depths)


@pytest.mark.parametrize("seed", range(20))
def test_choice_is_legal_repeatable_and_no_worse_than_first_fit(seed: int) -> None:
    found, free = candidates(seed, 6), [1024, 2048, 1536, 512 * (seed % 4), 2048, 1024]
    choice = choose(found, free)
    check_places(choice, free)
    assert choice == choose(found, free)
    orders = [first_fit(order, free).saved for order in permutations(found)]
    assert first_fit(sorted(found, key=lambda c: -c.density), free).saved <= choice.saved == max(orders)


def test_nothing_fits() -> None:
    assert choose(candidates(0, 3), [0] * 6).depths == {}


def test_entries_of_all_cores_are_counted_once() -> None:
    """Cores with the same part, parts that overlap or interleave, walks that meet an entry twice, cores without a part: against sets."""
    choose = random.Random(5)
    for _ in range(400):
        cores, dims = choose.randint(1, 5), choose.randint(1, 3)
        strides = tuple(choose.choice([0, 1, 2, 4, 6, 24, 1000]) for _ in range(dims))
        starts = np.array([choose.choice([0, 0, 3, 24, 48, 5000]) for _ in range(cores)])
        live = np.array([[choose.randint(0, 4) for _ in range(dims)] for _ in range(cores)])
        wanted = set()
        for start, extents in zip(starts.tolist(), live.tolist(), strict=True):
            wanted |= {start + sum(i * s for i, s in zip(at, strides, strict=True)) for at in product(*map(range, extents))}
        footprint = Footprint(starts, strides, live)
        assert footprint.touched().tolist() == sorted(wanted)
        assert footprint.entry_count() == len(wanted)
