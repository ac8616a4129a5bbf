"""Loops of an author that stay, and those whose trips are written out: the executor's bits, and the words of the stream."""

from __future__ import annotations

import numpy as np
from pinned import equal, loops

from ktir import lang


@lang.kernel
def by_heads(x, y):
    """Blocks of two dims, dealt so that a tile goes from one head to the next in the midst of its trips."""
    for head, rows in lang.blocks(x.shape[:2], (1, 8)):
        y[head.start, rows] = x[head.start, rows] * 2


@lang.kernel
def in_slots(x, y):
    """Two slots of the scratchpad in turns, by a remainder that is written as a difference."""
    slots = lang.buffer((2, 64), np.float16, address=0)
    for i in lang.range(6):
        slots[i % 2] = x[i, 0, :64]
        y[i, 0, :64] = slots[i % 2] + 1


def test_trips_that_no_address_generator_follows_are_written_out() -> None:
    arrays = [np.random.default_rng(0).standard_normal((6, 40, 70)).astype(np.float16), np.zeros((6, 40, 70), np.float16)]
    assert loops(equal(by_heads[4].ktir(*arrays), arrays)) == set()
    assert loops(equal(by_heads[5].ktir(*arrays), arrays)) == {(6,)}  # a head for each trip
    assert loops(equal(in_slots[1].ktir(*arrays), arrays)) == set()
