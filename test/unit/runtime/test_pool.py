"""The pool of a card's addresses against a map of granules: nothing overlaps, nothing is lost, and there is room wherever there is room."""

from __future__ import annotations

import random

import pytest

from ktir.runtime.memory.pool import Pool, rounded

GRANULE = 128
SEGMENTS, GRANULES = 7, 1500  # the oracle: one byte per granule
SIZES = (1, 1, 2, 3, 5, 8, 13, 40, 100, 333, 700, 1499, 1500, 1501)
"""Of ranges, in granules, up to what no segment has."""


def walk(seed: int, steps: int) -> tuple[int, int]:
    """Random takes and gives, more of either by turns; how many found room, and how many did not."""
    rng = random.Random(seed)
    pool = Pool([(s * GRANULES * GRANULE, GRANULES * GRANULE) for s in range(SEGMENTS)])
    taken, live, room, none = bytearray(SEGMENTS * GRANULES), [], 0, 0
    for step in range(steps):
        filling = 0.3 + 0.4 * (step // 5000 % 2)
        if live and rng.random() > filling:
            k = rng.randrange(len(live))
            live[k], live[-1] = live[-1], live[k]
            address, size = live.pop()
            pool.give(address, size)
            taken[address // GRANULE : (address + size) // GRANULE] = bytes(size // GRANULE)
            continue
        granules = rng.choice(SIZES)
        address = pool.take(granules * GRANULE)
        if address is None:
            hole = bytes(granules)
            assert all(taken.find(hole, s * GRANULES, (s + 1) * GRANULES) < 0 for s in range(SEGMENTS))
            none += 1
            continue
        first = address // GRANULE
        assert address % GRANULE == 0
        assert first // GRANULES == (first + granules - 1) // GRANULES, "crosses a segment"
        assert taken.count(0, first, first + granules) == granules, "overlaps"
        taken[first : first + granules] = b"x" * granules
        live.append((address, granules * GRANULE))
        room += 1
        if step % 1000 == 0:
            assert pool.used == taken.count(b"x") * GRANULE
            assert sum(size for _, size in pool.holes) == taken.count(0) * GRANULE
    for address, size in live:
        pool.give(address, size)
    assert (pool.used, pool.largest, len(pool.holes)) == (0, GRANULES * GRANULE, SEGMENTS)
    return room, none


@pytest.mark.parametrize("steps", [30_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_takes_and_gives(steps: int) -> None:
    room, none = walk(1, steps)
    assert room > steps / 3
    assert none > steps / 50


def test_best_fit() -> None:
    pool = Pool([(0, 1000 * GRANULE)])
    parts = [pool.take(n * GRANULE) for n in (10, 1, 4, 1, 6, 1)]
    assert parts == [k * GRANULE for k in (0, 10, 11, 15, 16, 22)]
    for address, granules in ((0, 10), (11, 4), (16, 6)):
        pool.give(address * GRANULE, granules * GRANULE)
    assert pool.take(5 * GRANULE) == 16 * GRANULE


@pytest.mark.parametrize(("nbytes", "size"), [(0, 128), (1, 128), (128, 128), (129, 256), (1 << 34, 1 << 34)])
def test_whole_granules(nbytes: int, size: int) -> None:
    assert rounded(nbytes) == size
