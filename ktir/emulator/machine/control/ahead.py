"""Loads ahead of a kernel: what MNIL may load while the kernel before still computes.

In the trace they come first in their kernel, and they are checked there against all that the kernel before does, whether they are in time
or not. In time is what can begin before that kernel ends: its own transfers go first, loads ahead take what it leaves of the memory
channel and the ring. What is not in time is loaded in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ktir.emulator.machine.checks.checks import Checks
from ktir.emulator.machine.checks.state import Early, KernelState
from ktir.emulator.machine.checks.timing import Span, multicast_cycles
from ktir.emulator.machine.trace.clocks import MNIL, Clock
from ktir.emulator.machine.trace.trace import Event
from ktir.isa.ahead import runs_ahead
from ktir.isa.resources import ONE, Resource
from ktir.isa.units import Unit


@dataclass(frozen=True)
class Before:
    """The kernel before, as MNIL leaves it: what MNIL has seen, the last load that has landed for sure, the cycle at which it is done,
    and when the memory channel and the ring are in use from then on. Cycles count from the start of the kernel that comes."""

    clock: Clock
    heard: int
    time: int
    memory: Sequence[Span] = ()
    ring: Sequence[Span] = ()

    @classmethod
    def of(cls, state: KernelState) -> Before:
        """What a kernel leaves."""
        u, cycles = state.units[Unit.MNIL], state.statistics.cycles
        spans = [[(b - cycles, e - cycles) for b, e in s if e > u.time] for s in (state.shared.memory_spans, state.shared.ring_spans)]
        return cls(u.clock, u.heard, u.time - cycles, *spans)


def load_ahead(state: KernelState, checks: Checks, before: Before) -> None:
    """Put the loads that may be ahead of a kernel into the trace, check them, and begin those that are in time."""
    runs = runs_ahead(state.decoded.kernel.units.get(Unit.MNIL, []))
    if not runs:
        return
    by_index = {x.index: x for x in state.decoded.units[Unit.MNIL]}
    clock, timing = before.clock.copy(), _Timing(state, before)
    for run in runs:
        x = by_index[run.index]
        assert x.ddr
        assert x.lx
        event = Event(state.decoded.index, Unit.MNIL, x, run.counters, run.levels)
        moved = checks.transfer(event, x)
        number = state.emit(event)
        clock[MNIL] += 1
        checks.read_memory(event, number, x, moved, clock)
        checks.write_lx(event, number, x.lx, clock[None])
        early = Early(event, number)
        state.early.setdefault(x.index, deque()).append(early)
        ring = 0 if x.leaders is None else multicast_cycles(x.ddr.entries * x.ddr.width, x.ddr.cores / moved.readers, state.target)
        timing.begin(early, moved.bytes, moved.fragments, ring, state.target.dram_latency * (1 + (x.idx is not None)))
    timing.end()


class _Timing:
    """MNIL before its kernel begins: loads begin one after the other as long as it has not."""

    def __init__(self, state: KernelState, before: Before) -> None:
        self.state = state
        self.before = before
        self.time = before.time + state.cost(Resource.LAUNCH, state.target.launch_cycles)
        self.late = self.time >= 0
        self.slower = Resource.MEMORY

    def begin(self, early: Early, nbytes: int, fragments: int, ring: int, latency: int) -> None:
        """Begin a load if it is in time, and all before it were."""
        state, shared = self.state, self.state.shared
        ring = state.cost(Resource.RING, ring)
        memory = state.cost(Resource.MEMORY, ceil(nbytes / state.target.dram_bytes_per_cycle))
        spans = [s for s, used in ((self.before.memory, memory), (self.before.ring, ring)) if used] if shared.contended else []
        begin = _free_from(_union(spans), self.time)
        if self.late or begin >= 0:
            self.late = True
            return
        shared.read += nbytes
        cycles = max(memory, ring)
        end = max(_after(_union(spans), begin, cycles), begin + state.cost(Resource.LX, fragments))
        state.statistics.lead = max(state.statistics.lead, -begin)
        state.statistics.dram_ahead += nbytes * min(-begin, end - begin) // max(end - begin, 1)
        self.slower = Resource.LX if end - begin < fragments else Resource.RING if ring > memory else Resource.MEMORY
        self.time = end
        u = state.units[Unit.MNIL]
        if state.journal is not None:
            state.journal.segment(Unit.MNIL, early.event.instruction, begin, end)
        early.event.begin, landed = begin, end + state.cost(Resource.LATENCY, latency)
        early.event.end = early.landed = landed
        early.chain = ONE[self.slower] * max(end, 0) + ONE[Resource.LATENCY] * (landed - max(end, 0))
        if end > 0:
            chain = ONE[self.slower] * end
            if memory:
                shared.memory_free, shared.memory_chain = end, chain
                shared.memory_load += end
            if ring:
                shared.ring_free, shared.ring_chain = end, chain
                shared.ring_load += end
            u.statistics.busy += end

    def end(self) -> None:
        """Begin the kernel."""
        u = self.state.units[Unit.MNIL]
        if self.time > u.time:
            u.time, u.chain = self.time, ONE[self.slower] * self.time


def _union(spans: Sequence[Sequence[Span]]) -> list[Span]:
    """Spans of several resources as ones of all of them."""
    out: list[Span] = []
    for begin, end in sorted(s for one in spans for s in one):
        if out and begin <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((begin, end))
    return out


def _free_from(busy: Sequence[Span], time: int) -> int:
    """The first cycle from `time` on that is free."""
    at = bisect_right(busy, (time, 2**62)) - 1
    return max(busy[at][1], time) if at >= 0 else time


def _after(busy: Sequence[Span], time: int, cycles: int) -> int:
    """When so many free cycles have passed since `time`."""
    for begin, end in busy:
        if end <= time:
            continue
        if begin - time >= cycles:
            break
        cycles -= max(begin - time, 0)
        time = max(end, time)
    return time + cycles
