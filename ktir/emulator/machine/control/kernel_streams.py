"""Streams of one kernel's words: their plans, kept, and how a unit runs one to its end and books what it lost."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ktir.emulator.machine.checks.state import KernelState, UnitState
from ktir.emulator.machine.checks.timing import Request
from ktir.emulator.machine.control import stream
from ktir.emulator.machine.control.stream import Plan, Stream
from ktir.emulator.machine.program.body import Body
from ktir.emulator.machine.program.decode import Instruction
from ktir.emulator.machine.trace.journal import Journal, Traffic
from ktir.isa.resources import Resource
from ktir.isa.units import FIFOS, Unit

Blocked = Generator[None, None, None]


class Streams:
    """Streams of the words of one kernel."""

    def __init__(self, state: KernelState) -> None:
        self.state = state
        self._plans: dict[tuple[str, int, float], Plan] = {}

    def plan(self, kind: str, steps: int, cycles: float, fifo: str, resource: Resource) -> Plan:
        """The plan of a word that pops or pushes alike in every step, which takes cycles of a resource."""
        key = (kind + fifo, steps, cycles)
        if key not in self._plans:
            pops, pushes = ((fifo,), ()) if kind == "pop" else ((), (fifo,))
            self._plans[key] = stream.uniform(steps, self.state.cost(resource, cycles), resource, pops, pushes)
        return self._plans[key]

    def plan_of_body(self, index: int, body: Body) -> Plan:
        """The plan of the REP that is word `index`."""
        key = ("rep", index, 0)
        if key not in self._plans:
            latency = self.state.cost(Resource.HANDOVER, self.state.target.sfp_latency)
            self._plans[key] = stream.of_body(body, latency, free=Resource.SFP in self.state.free)
        return self._plans[key]

    def account(self, u: UnitState, words: Sequence[Instruction], streams: Sequence[Stream], start: int) -> None:
        """Book what words did since `start`. Concurrent streams share the unit's time: what is lost is what the one that waited longest
        waited for, as far as the others did not work meanwhile.
        """
        work = sum(s.work for s in streams)
        u.statistics.busy += work
        left = lost = u.time - start - work
        worst = max(streams, key=lambda s: sum(s.stalls.values()))
        booked: list[tuple[str, int]] = []
        for cause, cycles in worst.stalls.items():
            booked.append((cause, min(cycles, left)))
            left -= booked[-1][1]
            u.statistics.lose(*booked[-1])
        if u.journal is not None:
            assert sum(cycles for _, cycles in booked) == lost
            self._note(u.journal, u, words, streams, start, booked)

    def _note(
        self,
        journal: Journal,
        u: UnitState,
        words: Sequence[Instruction],
        streams: Sequence[Stream],
        start: int,
        booked: list[tuple[str, int]],
    ) -> None:
        """Put that into the journal. In which order concurrent streams share the unit is not modelled: waits come first, then stream
        after stream.
        """
        for s in streams:
            for flows, pushed in ((s.plan.pops, False), (s.plan.pushes, True)):
                for flow in flows:
                    journal.passage(flow.fifo, u.unit, flow.through(s.plan.steps), start, s.time, pushed=pushed)
        if len(streams) == 1:
            journal.stream(u.unit, words[0], start, u.time, streams[0].gaps)
            return
        at = start
        for cause, cycles in booked:
            journal.segment(u.unit, u.at, at, at + cycles, cause)
            at += cycles
        for x, s in zip(words, streams, strict=True):
            journal.segment(u.unit, x, at, at + s.work)
            at += s.work

    def waits(self, streams: Sequence[Stream], unit: Unit) -> tuple[str, Unit]:
        """What the first of streams that cannot go on waits for, and the unit that has to bring it; `unit` if it waits for the trace."""
        for s in streams:
            for state, fifo in s.lacking(self.state.fifos) if not s.finished else ():
                f = FIFOS[fifo]
                on = f.producer if state == "empty" else f.consumer
                return f"{'entries in' if state == 'empty' else 'room in'} FIFO {fifo}", on
        return "its producer", unit

    def run(self, u: UnitState, s: Stream) -> Blocked:
        """Run a single stream to its end."""
        start = u.time
        u.waits = lambda: self.waits([s], u.unit)
        while not s.finished:
            if s.advance(self.state.fifos):
                self.state.progress += 1
            else:
                yield
        u.time, u.chain, u.clock = s.time, s.chain, s.clock
        assert u.at is not None
        self.account(u, [u.at], [s], start)

    def claim(self, u: UnitState, what: str, **needs: int) -> Generator[None, None, Request]:
        """Wait for what all units share; the claim says for how many cycles it is the unit's from then on."""
        request = self.state.shared.request(u.unit, u.time, u.chain, **needs)
        u.waits = lambda: (f"the {'memory channel' if what == 'memory' else what}", u.unit)
        while request.start is None:
            yield
        u.lose(what, request.start, request.chain)
        if u.journal is not None:
            if request.memory:
                u.journal.memory.append(Traffic(u.unit, u.time, u.time + request.memory, request.read + request.written, u.at))
            if request.ring:
                u.journal.ring.append(Traffic(u.unit, u.time, u.time + request.ring, 0, u.at))
        return request
