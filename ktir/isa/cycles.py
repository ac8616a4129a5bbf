"""What one execution of a vector op, and the ring, cost in cycles; the emulator and the cost model agree on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ktir.isa.instructions import Does
from ktir.isa.kinds import KINDS
from ktir.isa.program import Word
from ktir.target import Target

_FREE = (Does.TAKE, Does.GIVE, Does.CONSTANT)


def op_cycles(word: Word, target: Target) -> int:
    """Cycles of one execution of a REP body's op."""
    if word.does in _FREE:
        return 0
    if word.does is Does.REDUCE:
        return target.sfp_lane_reduction_cycles
    return kind_cycles(word["kind"], target) if word.does is Does.FUNCTION else 1


def kind_cycles(kind: str, target: Target) -> int:
    """Cycles of one stick of an operation."""
    return {"simple": 1, "transcendental": target.sfp_transcendental_cycles, "long": target.sfp_long_cycles}[KINDS[kind].cost]


def ring_route(sources: Sequence[int], stops: int) -> tuple[int, int]:
    """Entries that cross the busiest link of a ring of `stops` stops, and the hops of the longest way, where core c gets one entry of core
    `sources[c]`.

    Entries go the shorter way, clockwise if both are equal; one that passes a stop may drop a copy there.
    """
    reach: dict[tuple[int, int], int] = {}
    for core, source in enumerate(sources):
        clockwise = (core - int(source)) % stops
        way, hops = (1, clockwise) if clockwise <= stops - clockwise else (-1, stops - clockwise)
        if hops:
            reach[int(source), way] = max(reach.get((int(source), way), 0), hops)
    links = Counter(((source + way * hop) % stops, way) for (source, way), hops in reach.items() for hop in range(hops))
    return max(links.values(), default=1), max(reach.values(), default=0)
