"""How well a program uses LX, by the published formulas: peak, average, fragmentation and reuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.reports.occupancy import Life, lives
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.program import Program
from ktir.target import STICK_BYTES, Target

Spans = NDArray[np.int64]


@dataclass(frozen=True)
class ScratchpadUse:
    """Shares of what programs may use of a core's LX, over nodes: each run of an op that writes LX, with all that is needed while it lasts.

    `peak` and `average`: the most, and the mean over nodes, of the bytes in use. `fragmentation`: free bytes outside of the largest free
    block, as a share of all free ones, at the node where that is most. `reuse`: bytes written where something else was before, as a share
    of all written.
    """

    peak: float
    average: float
    fragmentation: float
    reuse: float
    nodes: int


def scratchpad_use(program: Program, trace: Trace, target: Target, core: int = 0) -> ScratchpadUse:
    """Of a core's LX."""
    limit = target.lx_planned_bytes // STICK_BYTES
    found = lives(program, trace, core)
    if not found:
        return ScratchpadUse(0.0, 0.0, 0.0, 0.0, 0)
    used, fragmented = [], []
    for begin, end in _nodes(found):
        taken = np.zeros(limit, bool)
        for life in found:
            if life.begin < end and begin < life.end:
                taken[life.first : life.last + 1] = True
        used.append(int(taken.sum()))
        fragmented.append(_fragmentation(taken))
    return ScratchpadUse(max(used) / limit, sum(used) / len(used) / limit, max(fragmented), _reuse(found, limit), len(used))


def _nodes(found: Sequence[Life]) -> list[tuple[int, int]]:
    """When ops run: from the first to the last cycle in which lives of one op begin, as long as no other op's begin in between."""
    nodes: list[tuple[int, int]] = []
    before = None
    for life in sorted(found, key=lambda v: v.begin):
        writer = life.op, life.location
        if writer == before:
            nodes[-1] = nodes[-1][0], life.begin + 1
        else:
            nodes.append((life.begin, life.begin + 1))
        before = writer
    return nodes


def _fragmentation(taken: NDArray[np.bool_]) -> float:
    edges = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True])).astype(np.int8)))
    blocks = np.diff(edges)[::2]
    return float(1 - blocks.max() / blocks.sum()) if len(blocks) else 0.0


def _reuse(found: Sequence[Life], limit: int) -> float:
    before = np.zeros(max(limit, max(v.last for v in found) + 1), bool)
    again = total = 0
    for life in found:
        again += int(before[life.first : life.last + 1].sum())
        total += life.last - life.first + 1
        before[life.first : life.last + 1] = True
    return again / total
