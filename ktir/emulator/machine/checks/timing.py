"""What instructions cost, in cycles of the target's clock. Every time is an integer, so no result depends on an order of additions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil

from ktir.isa.cycles import turnaround_cycles
from ktir.isa.resources import ONE, Chain, Resource
from ktir.isa.units import Unit
from ktir.target import STICK_BYTES, Target


def multicast_cycles(sticks: int, members: float, target: Target) -> int:
    """Delivery of `sticks` sticks to each of `members` cores of a group over the ring."""
    return ceil(sticks * STICK_BYTES * target.multicast_slowdown(members) / target.ring_bytes_per_cycle)


Span = tuple[int, int]
"""Cycles [begin, end)."""


@dataclass
class Request:
    """A unit's claim from cycle `time` on, of which it knows the chain: on the memory channel for bytes that are read and written, all
    cores together, and on the ring for `ring` cycles. When it is granted `start` is set, and `cycles`, for which it occupies the longer one
    of the two.
    """

    unit: Unit
    time: int
    chain: Chain
    read: int = 0
    written: int = 0
    ring: int = 0
    start: int | None = None
    cycles: int = 0
    memory: int = 0
    """Of these, those of the memory channel."""

    @property
    def slower(self) -> Resource:
        """The one that occupies the unit."""
        return Resource.RING if self.ring > self.memory else Resource.MEMORY


@dataclass
class SharedChannels:
    """The chip's one memory channel and its ring: first come first served by time, then by unit id, whatever order the emulator serves
    units in. What needs both waits for both.

    A request is granted when no unit can advance without it. Whatever is requested later then follows from a granted request, so it
    cannot be earlier.
    """

    target: Target
    free: Collection[Resource] = ()
    """What takes no time."""
    contended: bool = True
    """False: each unit has a channel and a ring of its own, and turning around costs nothing. No order matters then."""
    memory_free: int = 0
    ring_free: int = 0
    memory_chain: Chain = field(default_factory=lambda: ONE[Resource.MEMORY] * 0)
    ring_chain: Chain = field(default_factory=lambda: ONE[Resource.RING] * 0)
    """What these times consist of."""
    memory_load: int = 0
    ring_load: int = 0
    """For how long they were busy."""
    read: int = 0
    written: int = 0
    """Bytes so far."""
    pending: list[Request] = field(default_factory=list)
    memory_spans: list[Span] = field(default_factory=list)
    ring_spans: list[Span] = field(default_factory=list)
    """When they were busy, in order."""

    def request(self, unit: Unit, time: int, chain: Chain, *, read: int = 0, written: int = 0, ring: int = 0) -> Request:
        """Ask for what is not 0."""
        r = Request(unit, time, chain, read, written, ring)
        self.pending.append(r)
        return r

    def grant(self) -> bool:
        """Grant the earliest request; False if there is none."""
        if not self.pending:
            return False
        r = min(self.pending, key=lambda r: (r.time, r.unit))
        self.pending.remove(r)
        moved = self._memory_cycles(r.read, r.written)
        r.start = r.time
        if self.contended and moved and self.memory_free > r.start:
            r.start, r.chain = self.memory_free, self.memory_chain
        if self.contended and r.ring and self.ring_free > r.start:
            r.start, r.chain = self.ring_free, self.ring_chain
        r.cycles, r.memory = max(moved, r.ring), moved
        if moved:
            self.memory_free, self.memory_chain = r.start + moved, r.chain + ONE[Resource.MEMORY] * moved
            self.memory_load += moved
            self.memory_spans.append((r.start, r.start + moved))
        if r.ring:
            self.ring_free, self.ring_chain = r.start + r.ring, r.chain + ONE[Resource.RING] * r.ring
            self.ring_load += r.ring
            self.ring_spans.append((r.start, r.start + r.ring))
        return True

    def _memory_cycles(self, read: int, written: int) -> int:
        """Bytes at the channel's rate, and what turning around costs: as much as the smaller one of reads and writes grows by."""
        if Resource.MEMORY in self.free:
            return 0
        before = ceil(turnaround_cycles(self.read, self.written, self.target))
        self.read += read
        self.written += written
        turned = ceil(turnaround_cycles(self.read, self.written, self.target)) - before
        return ceil((read + written) / self.target.dram_bytes_per_cycle) + turned * self.contended
