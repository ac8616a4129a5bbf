"""Which sticks of LX hold something that is still needed, and when: what a drawing of the scratchpad shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.access import Access
from ktir.isa.program import Program, own_nodes
from ktir.target import LANES


@dataclass(frozen=True)
class Life:
    """Sticks [first, last] of one core from the cycle at which they are written to their last read, in cycles from the program's start.
    `op` and `location` are those of the KTIR op that wrote them."""

    first: int
    last: int
    begin: int
    end: int
    op: str
    location: str
    sticks: int
    """How many of them it is; where it has gaps, fewer than lie between the first and the last."""
    nodes: str = ""
    """Nodes of PyTorch's graph that the op belongs to, separated by commas."""


def lives(program: Program, trace: Trace, core: int = 0) -> list[Life]:
    """All lives on `core`, in the order of their writes, both corelets together."""
    written = np.full(max(trace.lx_sticks, 1), -1)
    spans: list[tuple[int, int, int]] = []
    times: list[list[int]] = []
    writers: list[Event] = []
    starts = trace.starts
    for e in trace.events:
        access = e.instruction.lx
        if access is None or core >= trace.kernels[e.kernel].kernel.cores:
            continue
        sticks = sticks_of(access, e, core)
        if not sticks.size:
            continue
        begin, end = starts[e.kernel] + e.begin, starts[e.kernel] + e.end
        if e.instruction.writes_lx:
            written[sticks] = len(spans)
            spans.append((int(sticks.min()), int(sticks.max()), len(sticks)))
            times.append([begin, end])
            writers.append(e)
        else:
            for life in np.unique(written[sticks]):
                if life >= 0:
                    times[life][1] = max(times[life][1], end)
    nodes = own_nodes(program.sources)
    sources = [program.source_of(e.instruction.word) for e in writers]
    return [Life(a, b, t[0], t[1], s.op, s.location, n, nodes[s]) for (a, b, n), t, s in zip(spans, times, sources, strict=True)]


def sticks_of(access: Access, e: Event, core: int) -> np.ndarray:
    """Every stick that the access touches on a core: of entries with live lanes, of pairs of sticks those that have some."""
    found = []
    for corelet in range(2) if e.unit.per_corelet else range(1):
        rows, lanes = access.sticks(e.counters, corelet), access.lanes(e.counters, corelet)
        first = rows[min(core, len(rows) - 1)]
        live = np.full(len(first), LANES) if lanes is None else lanes[min(core, len(lanes) - 1)]
        found += [first[live > half * (LANES // access.width)] + half for half in range(access.width)]
    return np.unique(np.concatenate(found))


def needed(found: Sequence[Life]) -> tuple[np.ndarray, np.ndarray]:
    """From which cycle on how many sticks are still needed; before the first cycle, and after the last one, none."""
    changes: dict[int, int] = {}
    for life in found:
        changes[life.begin] = changes.get(life.begin, 0) + life.sticks
        changes[life.end] = changes.get(life.end, 0) - life.sticks
    times = np.array(sorted(changes), np.int64)
    return times, np.cumsum([changes[int(t)] for t in times], dtype=np.int64)
