"""What an op of the vector unit, an entry of the matrix array, memory channel and ring cost; emulator and cost model agree on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ktir.isa.instructions import Does
from ktir.isa.kinds import KINDS
from ktir.isa.program import Kernel, Word
from ktir.target import LANES, PAIRS, STICK_BYTES, Target

_FREE = (Does.TAKE, Does.GIVE, Does.CONSTANT)
MOVES = (*_FREE, Does.MASK, Does.LIVE)
"""What the vector unit does that is no operation on numbers."""


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


def array_cycles(word: Word, over_ring: bool, target: Target) -> float:
    """Cycles of one entry of an `ldw`, an `mm` or a `pto`.

    A program gives rows to all corelets. In a kernel that adds up sums over the ring (`over_ring`, of `adds_over_ring`) so many do all of
    them as do that on the chip.
    """
    if word.does is Does.WEIGHTS:
        return target.pt_weight_cycles / LANES
    rows = target.corelets / target.partial_sum_corelets if over_ring else 1
    return rows * (target.pt_row_cycles / target.pt_efficiency if word.does is Does.MULTIPLY else 1)


def adds_over_ring(kernel: Kernel) -> bool:
    """Whether a kernel multiplies, and sends entries of 4 bytes, which then are sums or parts of them."""
    words = [w for unit in kernel.units.values() for w in unit]
    sent = [kernel.descriptors[w["src"]].element_bytes for w in words if w.does is Does.SEND]
    return 4 in sent and any(w.does is Does.MULTIPLY for w in words)


def turnaround_cycles(read: float, written: float, target: Target) -> float:
    """What the memory channel loses by changing between reading and writing, where so many bytes are read and written."""
    return target.dram_turnaround * min(read, written)


def ring_cycles(sticks: int, target: Target) -> float:
    """Cycles for which an entry of 1 or 2 sticks occupies a link of the ring: entries of f32 and i32 take the ring of partial sums."""
    return sticks * STICK_BYTES / (target.ring_bytes_per_cycle if sticks == 1 else target.partial_sum_bytes_per_cycle)


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


def lane_products(word: Word) -> int:
    """What an MM multiplies on one corelet, in lanes: each is one multiplication, or `per_lane`."""
    return word["rows"] * LANES * LANES


def per_lane(word: Word) -> int:
    """Multiplications of a lane of an MM, whose time they share: both of a pair."""
    return 2 if word["half"] in PAIRS else 1
