"""Rotating buffers: a block's slot is free of the blocks that are still in flight, and turns come in the order of the trips."""

from __future__ import annotations

import itertools
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from ktir.passes.scratchpad.rotation import rotation

TRIPS = st.lists(st.integers(1, 9), min_size=1, max_size=4).filter(lambda trips: prod(trips) > 1)


@given(TRIPS, st.integers(2, 8))
def test_blocks_in_flight_have_slots_of_their_own(trips: list[int], most: int) -> None:
    found = rotation(trips, most)
    assert 2 <= found.slots <= most
    places = []
    for counters in itertools.product(*map(range, trips)):
        turn = sum(counters[number] for number in found.loops) % found.turns
        places.append(turn * found.group + sum(counters[number] * slots for number, slots in found.inside))
    assert set(places) == set(range(found.slots))
    for t, place in enumerate(places):
        assert place not in places[t + 1 : t + found.slots]
        assert place == places[(t + found.slots) % len(places)] or t + found.slots >= len(places)


def test_short_inner_loops_lie_side_by_side() -> None:
    assert rotation([9, 1, 4, 2], 8).slots == 8
    assert rotation([5, 3], 8).slots == 6
    assert rotation([2, 9], 8) == (8, (0, 1), 1, ())
