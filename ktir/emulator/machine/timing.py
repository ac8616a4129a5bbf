"""What instructions cost, in cycles of the target's clock. Every time is an integer, so no result depends on an order of additions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from ktir.isa.units import Unit
from ktir.target import STICK_BYTES, Target


def transfer_cycles(moved: int, target: Target) -> int:
    """Occupation of the memory channel by a transfer of `moved` bytes, summed over the cores."""
    return ceil(moved / target.dram_bytes_per_cycle)


def multicast_cycles(sticks: int, members: float, target: Target) -> int:
    """Delivery of `sticks` sticks to each of `members` cores of a group over the ring."""
    return ceil(sticks * STICK_BYTES * target.multicast_slowdown(members) / target.ring_bytes_per_cycle)


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


@dataclass
class Request:
    """A unit's claim on the memory channel from cycle `time` on; `start` is set when it is granted."""

    unit: Unit
    time: int
    cycles: int
    start: int | None = None


@dataclass
class MemoryChannel:
    """The chip's one memory channel: first come first served by time, then by unit id, whatever order the emulator serves units in.

    A request is granted when no unit can advance without it. Whatever is requested later then follows from a granted request, so it
    cannot be earlier.
    """

    free: int = 0
    pending: list[Request] = field(default_factory=list)

    def request(self, unit: Unit, time: int, cycles: int) -> Request:
        """Ask for the channel."""
        r = Request(unit, time, cycles)
        self.pending.append(r)
        return r

    def grant(self) -> bool:
        """Grant the earliest request; False if there is none."""
        if not self.pending:
            return False
        r = min(self.pending, key=lambda r: (r.time, r.unit))
        self.pending.remove(r)
        r.start = max(r.time, self.free)
        self.free = r.start + r.cycles
        return True
