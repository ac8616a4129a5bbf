"""How a core's share of a matmul is cut into blocks that fit its scratchpad.

A block of rows is multiplied with one stick of columns after the other, along the whole reduced loop. Its rows are loaded as a whole, the
next block's meanwhile; or stick by stick as they are needed, again for each stick of columns, which takes little scratchpad however long
rows are; or the reduced loop is cut into parts, one after the other, and the sums of all sticks of columns stay meanwhile. Weights stream
by in blocks of 64x64, again for each block of rows; or the first block of rows leaves them in the scratchpad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ktir.cost.estimate import half, kernel_start, multiply_cycles, widening_waits
from ktir.target import LANES, STICK_BYTES, Target

ROW_BUFFERS = 2
"""Blocks of rows in flight, at least: one is worked on while the next one is loaded."""

MOST_BUFFERS = 8
"""Blocks of rows in flight, at most."""

ROW_STICKS = 8
"""Sticks of a block of rows in flight, where they are loaded one by one."""

WEIGHT_BUFFERS = 8
"""Blocks of 64x64 weights in flight, at most: a block takes PT fewer cycles than memory takes to answer, so one ahead is not enough."""

MOST_BLOCKS = 8
"""Blocks after which the first load and the last store, which nothing hides, no longer matter."""

BLOCK_ENTRIES = 32
"""Entries of a block that take about as long as what a trip costs beside them."""

BLOCK_BYTES = LANES * STICK_BYTES
"""A block of weights."""

_RESULT_STICKS = 2
"""Sticks of the result of a block in flight."""

SUM_STICKS = 2
"""Sticks of scratchpad that a row's sums of a stick of columns take, in f32."""

PART_BUFFERS = ROW_BUFFERS + 1
"""Parts of the reduced loop of a block in flight: the last one, in which results leave, is loaded apart."""

_FEWEST_PART_STICKS = 4
"""Sticks of a part of the reduced loop, at least: the sums are drained after each."""

STORED_ROWS = 32
"""Rows of a finished stick that are stored at a time, at most: what is loaded meanwhile does not wait for all of them."""

_STORED_STEP = 8
"""Rows that are stored at a time are some of these."""

_CUT_STEP = 16
"""Rows of a cut block are some of these, so that what each corelet has of it can be stored so."""

_CUT_SAVES = 0.005
"""The share of a kernel's cycles that a cut has to save, since its blocks are words of their own."""

_MORE_TRIPS = (1, 1.25, 1.5, 2, 3, 4, 6)
"""More and smaller blocks than fit are tried: the first one comes sooner, and the last one is gone sooner."""


def stream_buffers(block_bytes: int, answers: int, target: Target) -> int:
    """Blocks of a stream in flight: as many as the memory channel moves while it answers, `answers` times for one block."""
    return min(ROW_BUFFERS + int(answers * target.dram_latency * target.dram_bytes_per_cycle // block_bytes), MOST_BUFFERS)


def overlapping_rows(share: int, outer: int, sticks: int) -> int:
    """Rows of a block with which loads, compute and stores of successive blocks overlap, of a share of rows at `outer` batch positions, in
    `sticks` sticks each: a few trips of all loops together, of which each moves enough to pay for itself.

    On the emulated machine two blocks are always better than one, and more than `MOST_BLOCKS` gain nothing.
    """
    trips = min(max(outer * share * sticks // BLOCK_ENTRIES, 2), MOST_BLOCKS)
    rows = -(-share // max(-(-trips // outer), 1))
    return rows + rows % 2


class Share(NamedTuple):
    """A core's part of a matmul: rows, sticks of columns and of the reduced loop, and the cycles that memory takes for each operand once,
    all cores together. `others`: for what else the kernel reads. `widening`: cycles in which a block of weights is widened. `alone`:
    nothing else is multiplied, and the result is stored as it is finished."""

    rows: int
    n: int
    k: int
    first: float
    second: float
    result: float
    others: float = 0.0
    widening: float = 0.0
    alone: bool = False


class Tiles(NamedTuple):
    """Blocks of `rows` rows (an even number), `trips` of them. `streamed`: rows come stick by stick. `kept`: weights are loaded once.
    `k_parts`: parts of the reduced loop, between which the sums of all columns stay."""

    rows: int
    trips: int
    streamed: bool
    kept: bool
    lx_bytes: int
    k_parts: int = 1

    def row_reads(self, n: int) -> int:
        """How often a core with `n` sticks of columns reads its rows."""
        return n if self.streamed else 1

    @property
    def weight_reads(self) -> int:
        """How often a core reads its weights."""
        return 1 if self.kept else self.trips


def one_walk(shares: Sequence[Share], *, streamed: bool) -> Share:
    """The parts of matmuls that are computed one after the other for each stick of columns, as that of one matmul along all their sums;
    rows that are not streamed are loaded once."""
    first = sum(s.first for s in shares) if streamed else shares[-1].first
    k, second = sum(s.k for s in shares), sum(s.second for s in shares)
    return shares[-1]._replace(k=k, first=first, second=second, widening=sum(s.widening * s.k for s in shares) / k)


def block_cycles(rows: int, n: int, k: int, target: Target, widening: float = 0.0) -> float:
    """PT: a block of rows with all weights, which are widened first, and its results drained."""
    own = half(rows, target.corelets)
    return multiply_cycles(own, n * k, target) + n * (target.pt_fill_cycles + own) + widening_waits(own, n, k, widening, target)


def part_cycles(rows: int, n: int, k_parts: int, target: Target) -> float:
    """PT: what it waits where the reduced loop of a block of rows is cut into parts: the vector unit adds the sums of each to those so far,
    which LXLU brings before the next weights."""
    added = SUM_STICKS * half(rows, target.corelets) + target.sfp_latency + target.signal_cycles
    return (k_parts - 1) * n * (target.pt_fill_cycles + added + target.pt_weight_cycles)


def part_count(rows: int, n: int, k: int, room: int) -> int:
    """The fewest equal parts of a reduced loop of `k` sticks such that `PART_BUFFERS` of them fit `room` sticks of scratchpad beside the
    sums of `rows` rows in `n` sticks of columns; 0 if none do."""
    left = room // rows - SUM_STICKS * n - _RESULT_STICKS
    fits = (parts for parts in range(2, k // _FEWEST_PART_STICKS + 1) if k % parts == 0 and PART_BUFFERS * (k // parts) <= left)
    return next(fits, 0)


def waits(share: Share, trips: int, streamed: bool, kept: bool, block: float, target: Target, k_parts: int = 1) -> float:
    """Cycles in which PT waits for memory although it is the slower one: until the first rows are there, for weights that all come while
    the first block is worked on (`block` cycles), and until the last results are gone; or what it takes to have less of these."""
    own = share.first / trips
    lead, more = (own / share.k, own * share.n) if streamed else (own / k_parts, own if trips > 1 else 0.0)
    late = max(0.0, share.second + more - block) if kept else 0.0
    rows = last_rows(share, share.rows // trips, trips, streamed, kept, target)
    end = share.result / (trips * share.n)
    if rows:
        end = end * rows[-1] / sum(rows) + block_cycles(0, share.n, share.k, target, share.widening)
    return lead + late + end


def stored_rows(share: Share, trips: int, streamed: bool, kept: bool) -> int:
    """Rows of a finished stick that are stored at a time: such that there are as many stores as loads. The memory channel serves both in
    turn, so that loads wait long for a few large stores, and a block waits for many small ones.
    """
    loads = trips * (share.n * share.k if streamed else 1) + share.n * share.k * (1 if kept else trips)
    return min(max(share.n * share.rows // loads // _STORED_STEP, 1) * _STORED_STEP, STORED_ROWS)


def last_rows(share: Share, rows: int, trips: int, streamed: bool, kept: bool, target: Target) -> tuple[int, ...]:
    """Rows of the blocks that the last block is cut into where that saves something, empty where it does not.

    What the last block leaves is stored when nothing is left to be computed. A small block behind it leaves less, and while it is worked on
    memory stores what the large one has left: it is the one in which both take as long.
    """
    if not streamed or share.n * rows * trips == 0 or rows * trips != share.rows:
        return ()
    n, k, of_row = share.n, share.k, share.result / share.rows
    memory = share.first * n / share.rows + of_row * (n - 1) / n - of_row / n  # of a row more in the small block
    fixed = of_row * rows / n + (0.0 if kept else share.second)
    least, most = (block_cycles(i, n, k, target, share.widening) for i in (0, rows))
    compute = (most - least) / rows
    if compute <= memory:
        return ()
    last = max(round((fixed - least) / (compute - memory) / _CUT_STEP), 1) * _CUT_STEP
    if last > rows // 2:
        return ()
    saved = of_row * (rows - last) / n - least
    return (rows - last, last) if saved > _CUT_SAVES * trips * most else ()


def tile_cycles(share: Share, rows: int, trips: int, streamed: bool, kept: bool, target: Target, k_parts: int = 1) -> float:
    """Cycles of a share that is cut so. A block is charged what the first one waits for answers, though others may hide it."""
    block = block_cycles(rows, share.n, share.k, target, share.widening) + part_cycles(rows, share.n, k_parts, target)
    memory = share.first * (share.n if streamed else 1) + share.second * (1 if kept else trips) + share.result + share.others
    return max(trips * block + waits(share, trips, streamed, kept, block, target, k_parts), memory) + trips * kernel_start(target)


@lru_cache(maxsize=16384)
def matmul_tiles(share: Share, target: Target) -> Tiles | None:
    """The fastest blocks for a share; None if not even two rows fit the scratchpad."""
    best: tuple[float, Tiles] | None = None
    n, k = share.n, share.k
    whole = share.rows + share.rows % 2
    most = min(2 * target.pt_accumulator_rows, whole)
    fewest = -(-whole // most)
    least = max(
        fewest * block_cycles(-(-whole // fewest), n, k, target, share.widening), share.first + share.second + share.result + share.others
    ) + fewest * kernel_start(target)
    for streamed in (False, True):
        own = ROW_STICKS if streamed else k
        several = _RESULT_STICKS + (own if streamed else own * ROW_BUFFERS)
        for kept in (False, True):
            held = (k * n if kept else WEIGHT_BUFFERS) * BLOCK_BYTES
            room = (target.lx_planned_bytes - held) // STICK_BYTES
            rows = whole if whole == most and whole * (_RESULT_STICKS + own) <= room else min(most, room // several // 2 * 2)
            if rows < 2 or (kept and rows == whole):  # a single block reads weights once anyway
                continue
            fewest = -(-share.rows // rows)
            for trips in sorted({int(fewest * factor) for factor in _MORE_TRIPS}):
                rows = -(-share.rows // trips)
                rows += rows % 2
                cycles = tile_cycles(share, rows, trips, streamed, kept, target)
                if best is None or cycles < best[0]:
                    sticks = _RESULT_STICKS + own if trips == 1 else several
                    best = cycles, Tiles(rows, trips, streamed, kept, held + rows * sticks * STICK_BYTES)
                if cycles <= 1.002 * least:
                    return best[1]
    for found in _in_parts(share, most, target) if share.alone else ():
        if best is None or found[0] < best[0]:
            best = found
    return None if best is None else best[1]


def _in_parts(share: Share, most: int, target: Target) -> Iterator[tuple[float, Tiles]]:
    """Blocks of at most `most` rows along parts of the reduced loop, with what they take."""
    held = WEIGHT_BUFFERS * BLOCK_BYTES
    room = (target.lx_planned_bytes - held) // STICK_BYTES
    for trips in sorted({int(-(-share.rows // most) * factor) for factor in _MORE_TRIPS}):
        rows = -(-share.rows // trips)
        rows += rows % 2
        if parts := part_count(rows, share.n, share.k, room):
            sticks = PART_BUFFERS * share.k // parts + SUM_STICKS * share.n + _RESULT_STICKS
            cycles = tile_cycles(share, rows, trips, False, False, target, parts)
            yield cycles, Tiles(rows, trips, False, False, held + rows * sticks * STICK_BYTES, parts)
