"""Streams of one kernel's words: their plans, kept, and how a unit runs one to its end and books what it lost."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ktir.emulator.machine.checks.state import KernelState, UnitState
from ktir.emulator.machine.control import stream
from ktir.emulator.machine.control.stream import Plan, Stream
from ktir.emulator.machine.program.body import Body
from ktir.isa.units import FIFOS, Unit

Blocked = Generator[None, None, None]


class Streams:
    """Streams of the words of one kernel."""

    def __init__(self, state: KernelState) -> None:
        self.state = state
        self._plans: dict[tuple[str, int, float], Plan] = {}

    def plan(self, kind: str, steps: int, cycles: float, fifo: str) -> Plan:
        """The plan of a word that pops or pushes alike in every step."""
        key = (kind + fifo, steps, cycles)
        if key not in self._plans:
            pops, pushes = ((fifo,), ()) if kind == "pop" else ((), (fifo,))
            self._plans[key] = stream.uniform(steps, cycles, pops, pushes)
        return self._plans[key]

    def plan_of_body(self, index: int, body: Body, latency: int) -> Plan:
        """The plan of the REP that is word `index`."""
        key = ("rep", index, 0)
        if key not in self._plans:
            self._plans[key] = stream.of_body(body, latency)
        return self._plans[key]

    def account(self, u: UnitState, streams: Sequence[Stream], lost: int) -> None:
        """Book the cycles that a word lost; concurrent streams may each have waited, the longest of them counts."""
        worst = max(streams, key=lambda s: sum(s.stalls.values()))
        for cause, cycles in worst.stalls.items():
            u.statistics.lose(cause, min(cycles, lost))

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
        u.time, u.clock = s.time, s.clock
        u.statistics.busy += s.work
        self.account(u, [s], u.time - start - s.work)

    def claim(self, u: UnitState, what: str, **needs: int) -> Generator[None, None, tuple[int, int]]:
        """Wait for what all units share; from when on and for how many cycles it is the unit's."""
        request = self.state.shared.request(u.unit, u.time, **needs)
        u.waits = lambda: (f"the {'memory channel' if what == 'memory' else what}", u.unit)
        while request.start is None:
            yield
        u.statistics.lose(what, request.start - u.time)
        return request.start, request.cycles
