"""What instructions cost, in cycles of the target's clock. Every time is an integer, so no result depends on an order of additions."""

from __future__ import annotations

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
