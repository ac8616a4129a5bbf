"""State of the control run: what a kernel's units, FIFOs and channels have come to, and the trace so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from ktir.emulator.machine.checks.fifo import FifoQueue
from ktir.emulator.machine.checks.timing import SharedChannels
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.program.decode import UNITS, DecodedKernel, Instruction
from ktir.emulator.machine.trace.clocks import MNIL, Clock
from ktir.emulator.machine.trace.journal import Journal
from ktir.emulator.machine.trace.tokens import Channels
from ktir.emulator.machine.trace.trace import Event, KernelStatistics, Trace, UnitStatistics
from ktir.isa.descriptor import LEVELS
from ktir.isa.resources import ONE, Chain, Resource
from ktir.isa.units import FIFOS, Unit
from ktir.target import Target

Cycles = TypeVar("Cycles", int, float)


class UnitState:
    """One unit (both instances of a corelet unit): where it is, its clocks, and why it does not advance."""

    def __init__(self, unit: Unit, clock: Clock, time: int, journal: Journal | None = None) -> None:
        self.unit = unit
        self.journal = journal
        self.clock = clock.copy()
        self.time = time
        self.chain = ONE[Resource.LAUNCH] * time
        """What the time consists of."""
        self.landed = 0
        """Cycle at which the last asynchronous transfer has landed."""
        self.landed_chain = ONE[Resource.LAUNCH] * 0
        self.heard = int(clock[MNIL])
        """The last load of MNIL that has landed for sure: a unit that was told so, or the end of a kernel, says it."""
        self.counters = [0] * LEVELS
        self.levels: list[int] = []
        self.at: Instruction | None = None
        self.waits: Callable[[], tuple[str, Unit]] = lambda: ("nothing", unit)
        """What it waits for and the unit that can provide it; asked only in a deadlock."""
        self.statistics = UnitStatistics()

    def work(self, cycles: int, resource: Resource) -> None:
        """Be busy with the word for cycles that a resource takes."""
        if self.journal is not None:
            self.journal.segment(self.unit, self.at, self.time, self.time + cycles)
        self.statistics.busy += cycles
        self.time += cycles
        self.chain = self.chain + ONE[resource] * cycles

    def lose(self, cause: str, until: int, chain: Chain) -> None:
        """Wait until a cycle, of which `chain` is known, if it is still to come."""
        if until > self.time:
            if self.journal is not None:
                self.journal.segment(self.unit, self.at, self.time, until, cause)
            self.statistics.lose(cause, until - self.time)
            self.time, self.chain = until, chain

    def land(self, cycles: int) -> None:
        """A transfer lands so many cycles from now."""
        if self.time + cycles > self.landed:
            self.landed, self.landed_chain = self.time + cycles, self.chain + ONE[Resource.LATENCY] * cycles

    @property
    def done(self) -> tuple[int, Chain]:
        """When all that it has begun is done."""
        return (self.time, self.chain) if self.time >= self.landed else (self.landed, self.landed_chain)


@dataclass
class Early:
    """A load that may take place ahead of its kernel, in the trace as number `number`. `landed`: when it has, if it began then, and what
    that consists of, from the start of the kernel; else it takes its time in its place."""

    event: Event
    number: int
    landed: int | None = None
    chain: Chain = field(default_factory=lambda: ONE[Resource.LAUNCH] * 0)


class KernelState:
    """One kernel. Both corelets run alike, so one instance of each unit and FIFO stands for both."""

    def __init__(
        self, decoded: DecodedKernel, target: Target, trace: Trace, clock: Clock, free: Collection[Resource] = (), contended: bool = True
    ) -> None:
        self.decoded = decoded
        self.target = target
        self.free = free
        """What takes no time in this run."""
        self.trace = trace
        self.journal = None if trace.journals is None else Journal()
        self.units = {u: UnitState(u, clock, self.cost(Resource.LAUNCH, target.launch_cycles), self.journal) for u in UNITS}
        self.fifos = {name: FifoQueue(name, target.fifo_entries, f.crosses) for name, f in FIFOS.items()}
        self.channels = Channels()
        self.shared = SharedChannels(target, free, contended)
        self.statistics = KernelStatistics(decoded.kernel.name, decoded.kernel.cores)
        self.early: dict[int, deque[Early]] = {}
        """Word of MNIL -> its loads that may be ahead of the kernel and whose place is still to come."""
        self.progress = 0
        """Grows whenever any unit advances."""

    def cost(self, resource: Resource, cycles: Cycles) -> Cycles:
        """Cycles of a resource, 0 where it is free."""
        return cycles * (resource not in self.free)

    def event(self, u: UnitState, x: Instruction) -> Event:
        """The execution of `x` that begins now; not in the trace yet."""
        return Event(self.decoded.index, u.unit, x, tuple(u.counters), tuple(u.levels), u.time)

    def emit(self, event: Event) -> int:
        """Append to the trace; returns the event's number."""
        self.trace.events.append(event)
        return len(self.trace.events) - 1

    def site(self, event: Event, corelet: int | None = None) -> faults.Site:
        """The place of an event of this or an earlier kernel, for messages."""
        decoded = self.trace.kernels[event.kernel]
        return decoded.site(event.unit, event.instruction.index, corelet, event.loops)

    def fault(self, kind: type[faults.MachineFinding], message: str, event: Event | None) -> faults.MachineFinding:
        """A finding at an event."""
        return kind(message, self.site(event) if event else None)

    def last(self, unit: Unit) -> Event | None:
        """The last event of a unit in this kernel."""
        return next((e for e in reversed(self.trace.events) if e.kernel == self.decoded.index and e.unit is unit), None)
