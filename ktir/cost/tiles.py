"""How a core's share of a matmul is cut into blocks that fit its scratchpad."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ktir.target import LANES, STICK_BYTES

ROW_BUFFERS = 2
"""Blocks of rows in flight: one is worked on while the next one is loaded."""

WEIGHT_BUFFERS = 8
"""Blocks of 64x64 weights in flight, at most: a block takes PT fewer cycles than memory takes to answer, so one ahead is not enough."""

MOST_BLOCKS = 8
"""Blocks after which the first load and the last store, which nothing hides, no longer matter."""

BLOCK_ENTRIES = 32
"""Entries of a block that take about as long as what a trip costs beside them."""

_BLOCK = LANES * STICK_BYTES
_CHUNK = 4
"""Sticks of the reduced loop in the smallest chunk: shorter ones would spend their time in adding up."""


class Tiles(NamedTuple):
    """`rows` per block (even), `trips` over blocks, `chunks` of the reduced loop; how often each operand is read; bytes of scratchpad."""

    rows: int
    trips: int
    chunks: int
    row_reads: int
    weight_reads: int
    lx_bytes: int


@lru_cache(maxsize=4096)
def matmul_tiles(rows: int, n: int, k: int, first: int, second: int, lx_bytes: int, most: int) -> Tiles | None:
    """The blocks with the least traffic for `rows` rows, `n` sticks of columns and `k` sticks of the reduced loop.

    A block has at most `most` rows and takes at most `lx_bytes` of scratchpad; None if not even two rows fit. `first` and `second` weigh
    the operands: their bytes on the whole chip. Weights stream by once per block of rows. A block holds its rows over the whole reduced
    loop; or, if that is too much, f32 sums of some columns to which chunks of the reduced loop add, so that the rows are read once per such
    group of columns.
    """
    budget = lx_bytes - WEIGHT_BUFFERS * _BLOCK
    best: Tiles | None = None
    trips = -(-rows // most)
    while True:
        block = -(-rows // trips)
        block += block % 2
        tiles = _whole(block, trips, n, k, budget) or _summed(block, trips, n, k, budget)
        if tiles is not None and (best is None or _traffic(tiles, first, second) < _traffic(best, first, second)):
            best = tiles
        if block == 2 or (tiles is not None and tiles.row_reads == 1):
            break  # smaller blocks would only read the weights more often
        trips = max(trips + 1, -(-rows // (block - 2)), trips + trips // 8)
    return best


def _traffic(tiles: Tiles, first: int, second: int) -> int:
    return first * tiles.row_reads + second * tiles.weight_reads


def _whole(block: int, trips: int, n: int, k: int, budget: int) -> Tiles | None:
    """The block's rows stay, over the whole reduced loop; the result leaves column stick by column stick."""
    buffers = ROW_BUFFERS if trips > 1 else 1
    used = block * (buffers * k + 2) * STICK_BYTES
    if used > budget:
        return None
    if used + k * n * _BLOCK <= budget:
        return Tiles(block, trips, 1, 1, 1, used + k * n * _BLOCK)
    return Tiles(block, trips, 1, 1, trips, used + WEIGHT_BUFFERS * _BLOCK)


def _summed(block: int, trips: int, n: int, k: int, budget: int) -> Tiles | None:
    """Sums of a group of columns stay."""
    chunk = min(k, _CHUNK)
    columns = min(n, (budget // (block * STICK_BYTES) - 2 * chunk) // 2)
    if columns < 1:
        return None
    groups = -(-n // columns)
    columns = -(-n // groups)
    chunk = min(k, (budget // (block * STICK_BYTES) - 2 * columns) // 2)
    return Tiles(block, trips, -(-k // chunk), groups, trips, block * 2 * (columns + chunk) * STICK_BYTES + WEIGHT_BUFFERS * _BLOCK)
