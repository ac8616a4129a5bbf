"""The control run: everything about a program that does not depend on values, once per program.

Units are generators that yield when they are blocked. Since every FIFO and token channel has one writer and one reader, the order in which
units are served changes neither the verdict nor the trace's meaning nor, with the memory channel arbitrated by time, any cycle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from ktir.isa.descriptor import LEVELS
from ktir.isa.program import Program
from ktir.isa.units import FIFOS, Unit
from ktir.target import DATASHEET, STICK_BYTES, Target

from . import faults, stream
from .access import Access
from .clocks import MNIL, MNIS, WIDTH, Clock, both_corelets, component, party
from .conflicts import WORDING, Conflict
from .decode import UNITS, DecodedKernel, Instruction
from .fifo import FifoQueue
from .memory import ArgumentShadow
from .shadow import LxShadow
from .stream import Plan, Stream
from .timing import MemoryChannel, Request, multicast_cycles, transfer_cycles
from .tokens import Channels
from .touch import Touch, Toucher, lx_classes
from .trace import Event, KernelStatistics, Trace, UnitStatistics

MAX_WORDS = 4_000_000
"""Words that one kernel may execute, over all units; more is taken for a runaway loop."""

Blocked = Generator[None, None, None]


def control(program: Program, target: Target = DATASHEET, *, seed: int | None = None, checks: bool = True) -> Trace:
    """Run the control plane of `program`. Raises a MachineFinding for the first fault.

    seed: serve the units in random order (for tests). checks: False leaves out the shadows, for timing alone.
    """
    return Control(program, target, seed, checks).run()


class Control:
    """State that outlives a kernel: LX, arguments, the trace."""

    def __init__(self, program: Program, target: Target, seed: int | None, checks: bool) -> None:
        self.program = program
        self.target = target
        self.order = None if seed is None else random.Random(seed)
        self.checks = checks
        kernels = [DecodedKernel(program, k, target) for k in range(len(program.kernels))]
        self.classes = lx_classes([(k.kernel, k.accesses, _trips(k)) for k in kernels])
        self.lx_sticks = target.lx_bytes // STICK_BYTES
        self.lx = LxShadow(max(self.classes, default=0) + 1, self.lx_sticks)
        self.arguments = [ArgumentShadow(a) for a in program.arguments]
        self.trace = Trace(kernels, self.classes)

    def run(self) -> Trace:
        """Run all kernels in order."""
        clock = np.zeros(WIDTH, np.int64)
        for decoded in self.trace.kernels:
            run = KernelRun(self, decoded, clock)
            run.run()
            clock = both_corelets(np.maximum.reduce([u.clock for u in run.units.values()]))
        if self.trace.statistics:
            self.trace.statistics[-1].dead_writes += int(np.count_nonzero(self.lx.unread))
        return self.trace


def _trips(decoded: DecodedKernel) -> list[int]:
    """Per level the highest trip count of any loop of the kernel."""
    out = [0] * LEVELS
    for instructions in decoded.units.values():
        for x in instructions:
            if x.op == "loop":
                out[x.level] = max(out[x.level], x.trips)
    return out


class UnitState:
    """One unit (both instances of a corelet unit): where it is, its clocks, and why it does not advance."""

    def __init__(self, unit: Unit, clock: Clock) -> None:
        self.unit = unit
        self.clock = clock.copy()
        self.time = 0
        self.landed = 0
        """Cycle at which the last asynchronous transfer has landed."""
        self.counters = [0] * LEVELS
        self.levels: list[int] = []
        self.at: Instruction | None = None
        self.waits: Callable[[], tuple[str, Unit]] = lambda: ("nothing", unit)
        self.statistics = UnitStatistics()


class KernelRun:
    """One kernel: units, FIFOs, channels, the memory channel."""

    def __init__(self, control: Control, decoded: DecodedKernel, clock: Clock) -> None:
        self.control = control
        self.decoded = decoded
        self.target = control.target
        self.trace = control.trace
        self.corelets = control.target.corelets
        self.units = {u: UnitState(u, clock) for u in UNITS}
        self.fifos = {name: FifoQueue(name, self.target.fifo_entries) for name in FIFOS}
        self.channels = Channels()
        self.memory = MemoryChannel()
        self.statistics = KernelStatistics(decoded.kernel.name, decoded.kernel.cores)
        self.progress = 0
        self.executed = 0
        self.weights = False
        self.accumulated = 0
        self.rep: tuple[UnitState, Instruction, Stream, int] | None = None
        """The REP in progress, and up to which step the trace holds it."""
        self._touchers: dict[tuple[int, bool, tuple[int, ...] | None], Toucher] = {}
        self._plans: dict[tuple[str, int, int], Plan] = {}
        cores = decoded.kernel.cores
        self._classes = {c: core for core, c in reversed(list(enumerate(control.classes[:cores])))}
        """Class -> its first core."""

    def run(self) -> None:
        """Run the kernel to its end."""
        written = {x.ddr.descriptor.arg for x in self.decoded.units[Unit.MNIS] if x.op == "xst" and x.ddr}
        for i, argument in enumerate(self.control.arguments):
            argument.barrier(i in written)
        before = self.control.lx.dead_writes
        live = {u: self._program(self.units[u]) for u in UNITS if self.decoded.units[u]}
        while live:
            seen = self.progress
            order = list(live)
            if self.control.order:
                self.control.order.shuffle(order)
            for u in order:
                try:
                    next(live[u])
                except StopIteration:
                    del live[u]
                    self.progress += 1
            if live and self.progress == seen and not self.memory.grant() and not self._split_rep():
                self._deadlock(list(live))
        self._finish()
        self.statistics.dead_writes = self.control.lx.dead_writes - before

    def _finish(self) -> None:
        self._early_reads()
        if self.accumulated:
            raise self._fault(faults.AccumulatorFault, "the kernel ends with sums that PTO has not drained", self._last(Unit.PT))
        for f in self.fifos.values():
            if f.fill:
                unit = FIFOS[f.name].producer
                message = f"{_entries(f.fill)} left in FIFO {f.name} at the end of the kernel, pushed by {unit.name}"
                raise self._fault(faults.FifoFault, message, self._last(unit))
        declared = {(c.sender, c.receiver, c.token): c.leftover for c in self.decoded.kernel.channels}
        for key in {**declared, **self.channels}:
            left = len(self.channels[key].posts) if key in self.channels else 0
            if left != declared.get(key, 0):
                sender, receiver, token = key
                message = (
                    f"channel {sender.name} -> {receiver.name}, token {token} ends with {left} tokens, "
                    f"but the kernel declares {declared.get(key, 0)}"
                )
                raise self._fault(faults.TokenFault, message, self._last(sender))
        s = self.statistics
        s.cycles = max(max(u.time, u.landed) for u in self.units.values())
        for u in self.units.values():
            u.statistics.end = u.time
        s.units = {u.unit: u.statistics for u in self.units.values()}
        s.fifo_entries = {f.name: f.pushed for f in self.fifos.values() if f.pushed}
        s.tokens = {k: (c.posted, c.most) for k, c in self.channels.items()}
        self.trace.statistics.append(s)

    # Faults

    def _last(self, unit: Unit) -> Event | None:
        return next((e for e in reversed(self.trace.events) if e.kernel == self.decoded.index and e.unit is unit), None)

    def _site(self, event: Event, corelet: int | None = None) -> faults.Site:
        decoded = self.trace.kernels[event.kernel]
        return decoded.site(event.unit, event.instruction.index, corelet, event.loops)

    def _fault(self, kind: type[faults.MachineFinding], message: str, event: Event | None) -> faults.MachineFinding:
        return kind(message, self._site(event) if event else None)

    def _conflict(self, event: Event, where: str, found: Conflict) -> NoReturn:
        """Raise the finding that a conflict amounts to."""
        if found.kind == "early":
            reader = self.trace.events[found.event]
            me = self._site(reader, found.corelet if reader.unit.per_corelet else None)
            writer = self._site(event)
            text = f"RAW hazard: {me} reads {where} stick {found.stick}, not ordered after {writer} writes it"
            raise faults.RawHazard(text, me, writer)
        site = self._site(event, found.corelet if event.unit.per_corelet else None)
        other = None
        if found.event >= 0:
            earlier = self.trace.events[found.event]
            other = self._site(earlier, party(found.other)[1] if found.other >= 0 else None)
        kind, text = WORDING[found.kind]
        message = text.format(me=site, other=other or "another word", stick=f"{where} stick {found.stick}")
        raise kind(message, site, other)

    def _early_reads(self) -> None:
        """Reads of LX that nothing has written: no write has come to make them a race."""
        for early in self.control.lx.early:
            reader = self.trace.events[early.conflict.event]
            self._conflict(reader, "LX", replace(early.conflict, event=-1))

    def _deadlock(self, blocked: Sequence[Unit]) -> NoReturn:
        self._early_reads()
        waits = {u: self.units[u].waits() for u in blocked}
        parts = []
        for u, (what, on) in waits.items():
            at = self.units[u].at
            place = f"word {at.index} '{at.op}'" if at else "its start"
            state = f"{on.name}" if on in waits else f"{on.name}, which has halted"
            parts.append(f"{u.name} at {place} waits for {what} ({state})")
        ring = _cycle(waits)
        head = f"deadlock of {' -> '.join(u.name for u in ring)}" if ring else "deadlock"
        first = self.units[(ring or list(blocked))[0]]
        event = self._event(first, first.at) if first.at else None
        error = faults.Deadlock(f"{head}: {'; '.join(parts)}", self._site(event) if event else None)
        error.waits = waits
        raise error

    # Units

    def _program(self, u: UnitState) -> Blocked:
        instructions = self.decoded.units[u.unit]
        trips: list[int] = []
        k = 0
        while True:
            x = instructions[k]
            u.at = x
            self.executed += 1
            if self.executed > MAX_WORDS:
                raise self._fault(faults.IllegalProgram, f"the kernel executes more than {MAX_WORDS} words", self._event(u, x))
            if x.op == "halt":
                return
            if x.op == "loop":
                if not x.trips:
                    k = x.end
                    continue
                u.counters[x.level] = 0
                u.levels.append(x.level)
                trips.append(x.trips)
            elif x.op == "endl":
                u.counters[x.level] += 1
                if u.counters[x.level] < trips[-1]:
                    k = x.end + 1
                    continue
                u.counters[x.level] = 0
                u.levels.pop()
                trips.pop()
            else:
                u.statistics.words += 1
                yield from self._word(u, x)
                self.progress += 1
            k = k + 1 if x.op in ("loop", "endl") else x.end

    def _word(self, u: UnitState, x: Instruction) -> Blocked:
        match x.op:
            case "wait":
                return self._wait(u, x)
            case "sig":
                return self._sig(u, x)
            case "xld" | "xldm" | "xst":
                return self._transfer(u, x)
            case "fill":
                return self._fill(u, x)
            case "push" | "pusht" | "pull" | "par":
                return self._move(u, x.streams or [x])
            case "rep":
                return self._rep(u, x)
        return self._array(u, x)

    def _event(self, u: UnitState, x: Instruction) -> Event:
        return Event(self.decoded.index, u.unit, x, tuple(u.counters), tuple(u.levels), u.time)

    def _emit(self, event: Event) -> int:
        """Append to the trace; returns the event's number."""
        self.trace.events.append(event)
        return len(self.trace.events) - 1

    # Tokens

    def _wait(self, u: UnitState, x: Instruction) -> Blocked:
        channel = self.channels[x.peer, u.unit, x.token]
        u.waits = lambda: (f"{x.count} of token {x.token} from {x.peer.name}, which has posted {channel.posted}", x.peer)
        while len(channel.posts) < x.count:
            yield
        before = u.time
        for _ in range(x.count):
            time, clock = channel.posts.popleft()
            u.time = max(u.time, time)
            u.clock = np.maximum(u.clock, clock)
        u.statistics.lose(f"token {x.peer.name}", u.time - before)

    def _sig(self, u: UnitState, x: Instruction) -> Blocked:
        visible = max(u.time, u.landed) + self.target.signal_cycles
        if not self.channels[u.unit, x.peer, x.token].post(x.count, visible, u.clock.copy()):
            message = f"channel {u.unit.name} -> {x.peer.name}, token {x.token} overflows"
            raise self._fault(faults.TokenFault, message, self._event(u, x))
        yield from ()

    # Transfers

    def _toucher(self, access: Access, per_corelet: bool, leaders: tuple[int, ...] | None = None) -> Toucher:
        key = (access.index, per_corelet, leaders)
        if key not in self._touchers:
            if access.descriptor.space == "lx":
                rows = list(self._classes)
                owners = [self._classes[c] for c in rows]
                made = Toucher(access, owners, rows, self.control.lx_sticks, self.corelets if per_corelet else 1)
            else:
                cores = leaders or range(access.cores)
                made = Toucher(access, cores, [0] * len(cores), 0, 1)
            self._touchers[key] = made
        return self._touchers[key]

    def _transfer(self, u: UnitState, x: Instruction) -> Blocked:
        assert x.ddr
        assert x.lx
        loads = x.op != "xst"
        leaders = None if x.leaders is None else tuple(np.unique(x.leaders).tolist())
        touch, low, high = self._toucher(x.ddr, False, leaders).touch(tuple(u.counters))
        event = self._event(u, x)
        argument = self.control.arguments[x.ddr.descriptor.arg or 0]
        if low < 0 or high >= argument.sticks:
            name = self.control.program.arguments[x.ddr.descriptor.arg or 0].name
            self._range(event, f"sticks {low} to {high}", f"argument '{name}' of {argument.sticks} sticks")
        sticks = touch.cells.size
        cycles = transfer_cycles(sticks, self.target)
        took = cycles
        if leaders is not None:
            self._check_members(event, x)
            members = x.ddr.cores / len(leaders)
            took = max(took, multicast_cycles(x.ddr.entries * x.ddr.width, members, self.target))
        start = u.time
        if cycles:
            request: Request = self.memory.request(u.unit, u.time, cycles)
            u.waits = lambda: ("the memory channel", u.unit)
            while request.start is None:
                yield
            start = request.start
        u.statistics.lose("memory", start - u.time)
        u.statistics.busy += took
        u.time = start + took
        u.landed = max(u.landed, u.time + (self.target.dram_latency if loads else 0))
        event.begin, event.end = start, u.landed
        if loads:
            self.statistics.dram_read += sticks * STICK_BYTES
        else:
            self.statistics.dram_written += sticks * STICK_BYTES
        u.clock[MNIL if loads else MNIS] += 1
        number = self._emit(event)
        if self.control.checks:
            where = f"argument '{self.control.program.arguments[x.ddr.descriptor.arg or 0].name}'"
            if loads:
                argument.read(touch, u.clock, number, lambda c: self._conflict(event, where, c))
            else:
                self._injective(event, x.ddr, self._toucher(x.ddr, False), touch)
                argument.write(touch, u.clock, number, lambda c: self._conflict(event, where, c))
        if loads:
            self._write_lx(event, number, x.lx, u.clock[None], MNIL)
        else:
            self._read_lx(event, number, x.lx, u.clock, int(u.clock[MNIS]), MNIS)

    def _fill(self, u: UnitState, x: Instruction) -> Blocked:
        assert x.lx
        cycles = x.lx.entries * x.lx.width
        event = self._event(u, x)
        u.time += cycles
        u.statistics.busy += cycles
        u.clock[MNIL] += 1
        event.end = u.time
        self._write_lx(event, self._emit(event), x.lx, u.clock[None], MNIL)
        yield from ()

    def _check_members(self, event: Event, x: Instruction) -> None:
        """Every member of a group must describe what its leader reads."""
        assert x.ddr
        cores = np.arange(x.ddr.cores)
        rows = [x.ddr.table] if x.ddr.table is not None else []
        rows += [c.limit for c in x.ddr.clips if len(c.limit) > 1]
        for row in rows:
            other = row != row[x.leaders]
            if other.any():
                core = int(cores[other][0])
                message = f"core {core} and its leader {int(x.leaders[core])} describe different reads"
                raise self._fault(faults.MulticastFault, message, event)

    # LX

    def _range(self, event: Event, what: str, whole: str) -> NoReturn:
        raise self._fault(faults.OutOfRange, f"{self._site(event)} accesses {what} of {whole}", event)

    def _injective(self, event: Event, access: Access, toucher: Toucher, touch: Touch) -> None:
        if toucher.visits_twice(touch):
            message = f"{self._site(event)} writes through descriptor {access.index}, which visits a stick twice"
            raise self._fault(faults.IllegalProgram, message, event)

    def _read_lx(self, event: Event, number: int, access: Access, clock: Clock, stamp: int, comp: int) -> None:
        """Check and record a read. A core unit's entries share one stamp, a stream's have stamps from `stamp` on."""
        touch, low, high = self._toucher(access, event.unit.per_corelet).touch(event.counters)
        self._check_lx(event, low, high)
        if self.control.checks:
            if not event.unit.per_corelet:
                touch.entry = np.zeros_like(touch.entry)
            self.control.lx.read(touch, clock, stamp, comp, number, lambda c: self._conflict(event, "LX", c))

    def _write_lx(self, event: Event, number: int, access: Access, rows: Clock, comp: int) -> None:
        toucher = self._toucher(access, event.unit.per_corelet)
        touch, low, high = toucher.touch(event.counters)
        self._check_lx(event, low, high)
        self._injective(event, access, toucher, touch)
        if self.control.checks:
            self.control.lx.write(touch, rows, comp, number, lambda c: self._conflict(event, "LX", c))

    def _check_lx(self, event: Event, low: int, high: int) -> None:
        if low < 0 or high >= self.control.lx_sticks:
            self._range(event, f"sticks {low} to {high}", f"LX, which has {self.control.lx_sticks}")
        self.trace.lx_sticks = max(self.trace.lx_sticks, high + 1)

    # Streams

    def _plan(self, kind: str, steps: int, cycles: int, fifo: str) -> Plan:
        key = (kind + fifo, steps, cycles)
        if key not in self._plans:
            pops, pushes = ((fifo,), ()) if kind == "pop" else ((), (fifo,))
            self._plans[key] = stream.uniform(steps, cycles, pops, pushes)
        return self._plans[key]

    def _move(self, u: UnitState, words: Sequence[Instruction]) -> Blocked:
        """PUSH, PUSHT and PULL words, concurrently if there are several.

        A PUSH enters the trace when it starts: all that it reads is there by then, and it may end after words that consume its first
        entries. A PULL enters when it ends, which waits for the trace to hold the producers of its entries.
        """
        start = u.time
        running: list[tuple[Instruction, Stream, Event]] = []
        for x in words:
            assert x.lx
            pulls = x.op == "pull"
            event = self._event(u, x)
            plan = self._plan("pop" if pulls else "push", x.count, x.lx.width, x.fifo)
            s = Stream(plan, u.time, u.clock, component(x.fifo), keep=pulls)
            if not pulls:
                self.fifos[x.fifo].announced += x.count
                self._read_lx(event, self._emit(event), x.lx, u.clock, int(u.clock[s.component]) + 1, s.component)
            running.append((x, s, event))
        streams = [s for _, s, _ in running]
        u.waits = lambda: self._stream_waits([s for _, s, _ in running], u.unit)
        while running:
            for one in list(running):
                if one[1].advance(self.fifos):
                    self.progress += 1
                if one[1].finished and self._end_move(u, *one):
                    running.remove(one)
                    self.progress += 1
            if running:
                yield
        work = sum(int(s.plan.work[-1]) for s in streams)
        end = max(s.time for s in streams)
        u.time = max(end, start + work)  # the streams share one port
        u.clock = np.maximum.reduce([s.clock for s in streams])
        u.statistics.busy += work
        self._account(u, streams, u.time - start - work)

    def _end_move(self, u: UnitState, x: Instruction, s: Stream, event: Event) -> bool:
        """Finish a stream; False if the trace does not hold the producers of its entries yet."""
        fifo = self.fifos[x.fifo]
        if x.op == "pull":
            assert x.lx
            if fifo.announced < fifo.popped:
                return False
            number = self._emit(event)
            self._write_lx(event, number, x.lx, np.concatenate(s.rows), s.component)
        event.end = s.time
        return True

    def _account(self, u: UnitState, streams: Sequence[Stream], lost: int) -> None:
        """Book the cycles that a word lost; concurrent streams may each have waited, the longest of them counts."""
        worst = max(streams, key=lambda s: sum(s.stalls.values()))
        for cause, cycles in worst.stalls.items():
            u.statistics.lose(cause, min(cycles, lost))

    def _stream_waits(self, streams: Sequence[Stream], unit: Unit) -> tuple[str, Unit]:
        for s in streams:
            for state, fifo in s.lacking(self.fifos) if not s.finished else ():
                f = FIFOS[fifo]
                on = f.producer if state == "empty" else f.consumer
                what = "entries in" if state == "empty" else "room in"
                return f"{what} FIFO {fifo}", on
        return "its producer", unit

    def _array(self, u: UnitState, x: Instruction) -> Blocked:
        """LDW, MM and PTO."""
        event = self._event(u, x)
        if x.op == "mm" and not self.weights:
            raise self._fault(faults.AccumulatorFault, f"{self._site(event)} multiplies before any LDW", event)
        if x.op != "ldw" and (self.accumulated or x.count) != x.count:
            message = f"{self._site(event)} has {x.count} rows, but the accumulators hold sums of {self.accumulated}"
            raise self._fault(faults.AccumulatorFault, message, event)
        if x.op == "pto":
            if not self.accumulated:
                raise self._fault(faults.AccumulatorFault, f"{self._site(event)} drains, but no MM has run since the last PTO", event)
            u.time += self.target.pt_fill_cycles
            u.statistics.busy += self.target.pt_fill_cycles
            self.accumulated = 0
            self.fifos[x.fifo].announced += x.count
            self._emit(event)
        cycles = self.target.pt_row_cycles if x.op == "mm" else 1
        s = Stream(self._plan("push" if x.op == "pto" else "pop", x.count, cycles, x.fifo), u.time, u.clock)
        yield from self._stream(u, s)
        event.end = u.time
        if x.op == "pto":
            return
        self._emit(event)
        if x.op == "ldw":
            self.weights = True
        else:
            self.accumulated = x.count

    def _stream(self, u: UnitState, s: Stream) -> Blocked:
        start = u.time
        u.waits = lambda: self._stream_waits([s], u.unit)
        while not s.finished:
            if s.advance(self.fifos):
                self.progress += 1
            else:
                yield
        u.time, u.clock = s.time, s.clock
        u.statistics.busy += int(s.plan.work[-1])
        self._account(u, [s], u.time - start - int(s.plan.work[-1]))

    # SFP

    def _rep(self, u: UnitState, x: Instruction) -> Blocked:
        assert x.body
        key = ("rep", x.index, 0)
        if key not in self._plans:
            self._plans[key] = stream.of_body(x.body, self.target.sfp_latency)
        s = Stream(self._plans[key], u.time, u.clock)
        self.rep = (u, x, s, 0)
        yield from self._stream(u, s)
        self._emit_rep()
        self.rep = None

    def _emit_rep(self) -> None:
        """Put the steps taken since the last time into the trace."""
        assert self.rep
        u, x, s, first = self.rep
        whole = first == 0 and s.finished
        event = self._event(u, x)
        event.end = s.time
        event.steps = None if whole else (first, s.done)
        self._emit(event)
        for flow in s.plan.pushes:
            self.fifos[flow.fifo].announced += flow.through(s.done) - flow.through(first)
        self.rep = (u, x, s, s.done)

    def _split_rep(self) -> bool:
        """Break a circle: a REP that waits for a word that waits for the REP's own entries in the trace is recorded in parts."""
        if self.rep is None or self.rep[2].done == self.rep[3]:
            return False
        if all(f.announced >= f.popped for f in self.fifos.values()):
            return False
        self._emit_rep()
        return True


def _entries(n: int) -> str:
    return f"{n} entry is" if n == 1 else f"{n} entries are"


def _cycle(waits: dict[Unit, tuple[str, Unit]]) -> list[Unit]:
    """Units that wait for each other in a ring, empty if there is none."""
    for start in waits:
        path = [start]
        while (following := waits[path[-1]][1]) in waits:
            if following in path:
                return path[path.index(following) :]
            path.append(following)
    return []
