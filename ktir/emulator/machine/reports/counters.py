"""Counters of a Chrome trace: bandwidth of memory, use of the ring, of PT and SFP, entries in FIFOs, bytes of LX that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.reports.events import counter
from ktir.emulator.machine.reports.occupancy import lives, needed
from ktir.emulator.machine.trace.journal import Journal
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.program import Program
from ktir.isa.units import Unit
from ktir.target import STICK_BYTES, Target

_BINS = 200
"""Values of a counter within a kernel; each is one of that part of the time: a mean, or of FIFOs the most."""

Array = NDArray[Any]


def counters(program: Program, trace: Trace, target: Target, process: int) -> Iterator[dict[str, Any]]:
    """The events of all counters. trace: with journals."""
    assert trace.journals is not None
    us, starts = 1.0 / target.clock_ghz / 1000, trace.starts
    for statistics, journal, start in zip(trace.statistics, trace.journals, starts, strict=False):
        edges = np.unique(np.linspace(0, max(statistics.cycles, 1), min(_BINS, max(statistics.cycles, 1)) + 1).astype(np.int64))
        for name, values in _of_kernel(journal, target, edges):
            yield from _changes(name, process, (start + edges[:-1]) * us, values)
            yield counter(name, process, (start + edges[-1]) * us, 0)
    total = starts[-1]
    edges = np.unique(np.linspace(0, max(total, 1), min(_BINS * len(trace.statistics), max(total, 1)) + 1).astype(np.int64))
    times, sticks = needed(lives(program, trace))
    at = np.concatenate(([0], sticks))[np.searchsorted(times, edges, side="right")]
    yield from _changes("LX of core 0 (KiB)", process, edges * us, at * STICK_BYTES / 1024)


def _of_kernel(journal: Journal, target: Target, edges: Array) -> Iterator[tuple[str, Array]]:
    width = np.diff(edges)
    memory, ring = journal.memory, journal.ring
    if memory:
        spans = [(t.begin, t.end) for t in memory]
        yield "DRAM (GB/s)", shares(spans, [t.nbytes for t in memory], edges) / width * target.clock_ghz
    if ring:
        spans = [(t.begin, t.end) for t in ring]
        yield "ring busy (%)", 100 * shares(spans, [t.end - t.begin for t in ring], edges) / width
    for unit in (Unit.PT, Unit.SFP):
        spans = [(s.begin, s.end) for s in journal.segments if s.unit is unit and not s.cause]
        if spans:
            yield f"{unit.name} busy (%)", 100 * shares(spans, [end - begin for begin, end in spans], edges) / width
    for fifo, moved in sorted(journal.fills.items()):
        yield f"FIFO {fifo} (entries)", _most(moved, edges)


def shares(spans: Sequence[tuple[int, int]], amounts: Sequence[float], edges: Array) -> Array:
    """How much of amounts, each spread over its span, falls between neighbouring edges; spans follow one another."""
    order = sorted(range(len(spans)), key=spans.__getitem__)
    times = np.array([spans[k] for k in order], float).reshape(-1)
    sums = np.cumsum([amounts[k] for k in order], dtype=float)
    return np.diff(np.interp(edges, times, np.stack([np.concatenate(([0], sums[:-1])), sums], 1).reshape(-1), left=0, right=sums[-1]))


def _most(moved: Sequence[tuple[Array, int]], edges: Array) -> Array:
    """The most entries that are in a FIFO between neighbouring edges."""
    times = np.concatenate([t for t, _ in moved])
    changes = np.concatenate([np.full(len(t), change) for t, change in moved])
    order = np.lexsort((changes, times))  # one that goes makes room for one that comes
    times, level = times[order], np.concatenate(([0], np.cumsum(changes[order])))
    at = np.searchsorted(times, edges, side="left")
    padded = np.append(level, 0)
    return np.array([padded[a : b + 1].max() for a, b in pairwise(at)])


def _changes(name: str, process: int, times: Array, values: Array) -> Iterator[dict[str, Any]]:
    """A counter where it changes."""
    values = np.round(values, 4)
    kept = np.concatenate(([True], np.diff(values) != 0))
    for us, value in zip(times[kept], values[kept], strict=True):
        yield counter(name, process, float(us), float(value))
