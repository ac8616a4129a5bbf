"""What each word does in the control run: tokens, transfers, streams. One generator per execution; it yields while it is blocked."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil

import numpy as np

from ktir.emulator.machine.checks.checks import Checks, Moved
from ktir.emulator.machine.checks.state import Early, KernelState, UnitState
from ktir.emulator.machine.checks.timing import multicast_cycles
from ktir.emulator.machine.control import stream
from ktir.emulator.machine.control.array import Array
from ktir.emulator.machine.control.kernel_streams import Blocked, Streams
from ktir.emulator.machine.control.stream import Stream
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.program.decode import Instruction
from ktir.emulator.machine.trace.clocks import MNIL, MNIS, component
from ktir.emulator.machine.trace.trace import Event
from ktir.isa.cycles import ring_cycles, ring_route
from ktir.isa.instructions import Does
from ktir.isa.resources import ONE, Resource

NO_LOAD = 2**62
"""For LXSU, whose order after a load is that of its clock."""


class Words:
    """The words of one kernel."""

    def __init__(self, state: KernelState, checks: Checks) -> None:
        self.state = state
        self.checks = checks
        self.target = state.target
        self.rep: tuple[UnitState, Instruction, Stream, int, int] | None = None
        """The REP in progress, up to which step the trace has it, and the cycle in which that was done."""
        self.streams = Streams(state)
        self.array = Array(state, self.streams)
        self._sent: deque[Instruction] = deque()
        """Words that have sent entries over the ring that no word has taken."""

    def run(self, u: UnitState, x: Instruction) -> Blocked:
        """Execute a word."""
        match x.does:
            case Does.WAIT:
                return self._wait(u, x)
            case Does.SIGNAL:
                return self._sig(u, x)
            case Does.MOVE:
                return self._transfer(u, x)
            case Does.FILL:
                return self._fill(u, x)
            case Does.SEND:
                return self._send(u, x)
            case Does.RECEIVE:
                return self._receive(u, x)
            case Does.PUSH | Does.PULL | Does.TOGETHER:
                return self._move(u, x.streams or [x])
            case Does.REPEAT:
                return self._rep(u, x)
            case Does.WEIGHTS | Does.MULTIPLY | Does.DRAIN:
                return self.array.run(u, x)
        raise AssertionError(x.op)

    # Tokens

    def _wait(self, u: UnitState, x: Instruction) -> Blocked:
        channel = self.state.channels[x.peer, u.unit, x.token]
        u.waits = lambda: (f"{x.count} of token {x.token} from {x.peer.name}, which has posted {channel.posted}", x.peer)
        while len(channel.posts) < x.count:
            yield
        visible, chain = u.time, u.chain
        for _ in range(x.count):
            time, sent, clock = channel.posts.popleft()
            if time > visible:
                visible, chain = time, sent
            u.clock = np.maximum(u.clock, clock)
            u.heard = max(u.heard, int(clock[MNIL]))
        u.lose(f"token {x.peer.name}", visible, chain)
        if u.journal is not None:
            u.journal.takes.setdefault(channel.key, []).extend([u.time] * x.count)

    def _sig(self, u: UnitState, x: Instruction) -> Blocked:
        posted, chain = u.done
        way = self.state.cost(Resource.HANDOVER, self.target.signal_cycles)
        if u.journal is not None:
            u.journal.posts.setdefault((u.unit, x.peer, x.token), []).extend([posted] * x.count)
        chain = chain + ONE[Resource.HANDOVER] * way
        if not self.state.channels[u.unit, x.peer, x.token].post(x.count, posted + way, chain, u.clock.copy()):
            message = f"channel {u.unit.name} -> {x.peer.name}, token {x.token} overflows"
            raise self.state.fault(faults.TokenFault, message, self.state.event(u, x))
        yield from ()

    # Transfers

    def _transfer(self, u: UnitState, x: Instruction) -> Blocked:
        assert x.ddr
        assert x.lx
        loads = x.loads
        early = self.state.early[x.index].popleft() if loads and self.state.early.get(x.index) else None
        event = self.state.event(u, x) if early is None else early.event
        moved = self.checks.transfer(event, x)
        if early is not None and early.landed is not None:
            self._landed(u, early, moved)
            return
        read = moved.bytes if loads else moved.index_bytes
        ring = 0 if x.leaders is None else multicast_cycles(x.ddr.entries * x.ddr.width, x.ddr.cores / moved.readers, self.target)
        fragments = self.state.cost(Resource.LX, moved.fragments)
        cycles, slower = 0, Resource.LX
        if moved.bytes or ring:
            claim = yield from self.streams.claim(
                u, "memory", read=read, written=moved.bytes - read, ring=self.state.cost(Resource.RING, ring)
            )
            cycles, slower = claim.cycles, claim.slower
        event.begin = u.time
        u.work(max(cycles, fragments), slower if cycles >= fragments else Resource.LX)
        latency = self.state.cost(Resource.LATENCY, self.target.dram_latency * (loads + (x.idx is not None)))
        if u.journal is not None and latency:
            u.journal.landing.append((u.unit, x, u.time, u.time + latency))
        u.land(latency)
        event.end = u.landed
        if early is not None:
            self._in_place(u, early, moved)
            return
        number = self.state.emit(event)
        u.clock[MNIL if loads else MNIS] += 1
        if loads:
            self.state.statistics.dram_read += moved.bytes
            self.checks.read_memory(event, number, x, moved, u.clock)
            self.checks.write_lx(event, number, x.lx, u.clock[None])
        else:
            self.state.statistics.dram_read += moved.index_bytes
            self.state.statistics.dram_written += moved.bytes - moved.index_bytes
            self.checks.write_memory(event, number, x, moved, u.clock)
            self.checks.read_lx(event, number, x.lx, u.clock, int(u.clock[MNIS]), MNIS)

    def _landed(self, u: UnitState, early: Early, moved: Moved) -> None:
        """The place of a load that has begun ahead of the kernel."""
        assert early.landed is not None
        if early.landed > u.landed:
            u.landed, u.landed_chain = early.landed, early.chain
        self._in_place(u, early, moved)

    def _in_place(self, u: UnitState, early: Early, moved: Moved) -> None:
        """A load that may be ahead of the kernel is, for all that follows, one that was made here."""
        x = early.event.instruction
        assert x.lx
        u.clock[MNIL] += 1
        self.state.statistics.dram_read += moved.bytes
        self.checks.read_memory(early.event, early.number, x, moved, u.clock, early=True)
        self.checks.confirm_lx(early.event, early.number, x.lx, u.clock)

    def _fill(self, u: UnitState, x: Instruction) -> Blocked:
        assert x.lx
        event = self.state.event(u, x)
        u.work(self.state.cost(Resource.LX, x.lx.entries * x.lx.width), Resource.LX)
        u.clock[MNIL] += 1
        event.end = u.time
        self.checks.write_lx(event, self.state.emit(event), x.lx, u.clock[None], landed=u.heard)
        yield from ()

    # Streams

    def _move(self, u: UnitState, words: Sequence[Instruction]) -> Blocked:
        """PUSH and PULL words, concurrently if there are several.

        A PUSH enters the trace when it starts: all that it reads is there by then, and it may end after words that consume its first
        entries. A PULL enters when it ends, which waits for the trace to hold the producers of its entries.
        """
        start = u.time
        running: list[tuple[Instruction, Stream, Event]] = []
        for x in words:
            assert x.lx
            pulls = x.does is Does.PULL
            event = self.state.event(u, x)
            plan = self.streams.plan("pop" if pulls else "push", x.count, x.lx.width, x.fifo, Resource.LX)
            s = Stream(plan, u.time, u.chain, u.clock, component(x.fifo), keep=pulls, journal=u.journal)
            if not pulls:
                self.state.fifos[x.fifo].announced += x.count
                self.checks.read_lx(event, self.state.emit(event), x.lx, u.clock, int(u.clock[s.component]) + 1, s.component)
            running.append((x, s, event))
        streams = [s for _, s, _ in running]
        u.waits = lambda: self.streams.waits([s for _, s, _ in running], u.unit)
        while running:
            for one in list(running):
                if one[1].advance(self.state.fifos):
                    self.state.progress += 1
                if one[1].finished and self._end_move(*one):
                    running.remove(one)
                    self.state.progress += 1
            if running:
                yield
        last = max(streams, key=lambda s: s.time)
        at_once = sum(s.work for s in streams)
        if last.time >= start + at_once:
            u.time, u.chain = last.time, last.chain
        else:  # the streams share one port
            u.time, u.chain = start + at_once, u.chain + ONE[Resource.LX] * at_once
        u.clock = np.maximum.reduce([s.clock for s in streams])
        self.streams.account(u, words, streams, start)

    def _end_move(self, x: Instruction, s: Stream, event: Event) -> bool:
        """Finish a stream; False if the trace does not hold the producers of its entries yet."""
        fifo = self.state.fifos[x.fifo]
        if x.does is Does.PULL:
            assert x.lx
            if fifo.announced < fifo.popped:
                return False
            rows = np.concatenate(s.rows)
            self.checks.write_lx(event, self.state.emit(event), x.lx, rows, s.component, landed=NO_LOAD)
        event.end = s.time
        return True

    # Ring

    def _send(self, u: UnitState, x: Instruction) -> Blocked:
        """As a PUSH it enters the trace when it starts. Every core sends at once; an entry occupies the busiest link of the ring."""
        assert x.lx
        load, hops = ring_route(x.leaders, self.target.cores)
        cycles = self.state.cost(Resource.RING, ring_cycles(x.lx.width, self.target) * load)
        yield from self.streams.claim(u, "ring", ring=ceil(x.count * cycles))
        event = self.state.event(u, x)
        clock = u.clock.copy()
        clock[MNIS] += 1
        self.state.fifos[x.fifo].announced += x.count
        self._sent.append(x)
        self.checks.read_lx(event, self.state.emit(event), x.lx, clock, int(clock[MNIS]), MNIS)
        way = self.state.cost(Resource.RING, hops)
        plan = stream.uniform(x.count, cycles, Resource.RING, pushes=[x.fifo], latency=way)
        yield from self.streams.run(u, Stream(plan, u.time, u.chain, clock, journal=u.journal))
        u.clock, event.end = clock, u.time

    def _receive(self, u: UnitState, x: Instruction) -> Blocked:
        """As a PULL it enters the trace when it ends."""
        assert x.lx
        event = self.state.event(u, x)
        clock = u.clock.copy()
        plan = self.streams.plan("pop", x.count, x.lx.width, x.fifo, Resource.LX)
        yield from self.streams.run(u, Stream(plan, u.time, u.chain, clock, journal=u.journal))
        sent = self._sent.popleft()
        if sent.count != x.count or (sent.leaders != x.leaders).any():
            message = f"{self.state.site(event)} takes other entries than MNIS '{sent.op}' (word {sent.index}) sends"
            raise self.state.fault(faults.FifoFault, message, event)
        clock[MNIL] += 1
        u.clock, event.end = clock, u.time
        self.checks.write_lx(event, self.state.emit(event), x.lx, clock[None], landed=u.heard)

    # SFP

    def _rep(self, u: UnitState, x: Instruction) -> Blocked:
        assert x.body
        s = Stream(self.streams.plan_of_body(x.index, x.body), u.time, u.chain, u.clock, journal=u.journal)
        self.rep = (u, x, s, 0, u.time)
        yield from self.streams.run(u, s)
        self._emit_rep(u, x, s, *self.rep[3:])
        self.rep = None

    def _emit_rep(self, u: UnitState, x: Instruction, s: Stream, first: int, begin: int) -> None:
        """Put the steps from `first` on that have been taken since cycle `begin` into the trace."""
        event = self.state.event(u, x)
        event.begin, event.end = begin, s.time
        event.steps = None if first == 0 and s.finished else (first, s.done)
        self.state.emit(event)
        for flow in s.plan.pushes:
            self.state.fifos[flow.fifo].announced += flow.through(s.done) - flow.through(first)
        self.rep = (u, x, s, s.done, s.time)

    def split_rep(self) -> bool:
        """Break a circle: a REP that waits for a word that waits for the REP's own entries in the trace is recorded in parts."""
        if self.rep is None or self.rep[2].done == self.rep[3]:
            return False
        if all(f.announced >= f.popped for f in self.state.fifos.values()):
            return False
        self._emit_rep(*self.rep)
        return True
