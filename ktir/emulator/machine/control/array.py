"""PT in the control run: weights, multiplications, and the rows of sums that it holds."""

from __future__ import annotations

from ktir.arithmetic.pairs import INTEGERS
from ktir.emulator.machine.checks.state import KernelState, UnitState
from ktir.emulator.machine.control.kernel_streams import Blocked, Streams
from ktir.emulator.machine.control.stream import Stream
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.program.decode import Instruction
from ktir.emulator.machine.trace.trace import Event
from ktir.isa.cycles import array_cycles
from ktir.isa.instructions import Does
from ktir.isa.resources import Resource


class Array:
    """The systolic array of one kernel."""

    def __init__(self, state: KernelState, streams: Streams) -> None:
        self.state = state
        self.streams = streams
        self.weights = False
        """Whether it has weights."""
        self.accumulated = 0
        """Rows of sums that it holds."""
        self.whole = False
        """Whether these are in i32."""

    def run(self, u: UnitState, x: Instruction) -> Blocked:
        """LDW, MM and PTO. As PUSH and PULL do, PTO enters the trace when it starts, LDW and MM when they end."""
        event = self.state.event(u, x)
        self._check(x, event)
        drains = x.does is Does.DRAIN
        if drains:
            u.work(self.state.cost(Resource.PT, self.state.target.pt_fill_cycles), Resource.PT)
            self.state.fifos[x.fifo].announced += x.count
            self.state.emit(event)
        cycles = array_cycles(x.word, self.state.decoded.over_ring, self.state.target)
        plan = self.streams.plan("push" if drains else "pop", x.count, cycles, x.fifo, Resource.PT)
        yield from self.streams.run(u, Stream(plan, u.time, u.chain, u.clock, journal=u.journal))
        event.end = u.time
        if not drains:
            self.state.emit(event)
        if x.does is Does.WEIGHTS:
            self.weights = True
        else:
            self.accumulated = 0 if drains else x.count
            self.whole = not drains and x.word["half"] in INTEGERS

    def _check(self, x: Instruction, event: Event) -> None:
        """The accumulator protocol."""
        wrong = ""
        if x.does is Does.MULTIPLY and not self.weights:
            wrong = "multiplies before any LDW"
        elif x.does is not Does.WEIGHTS and (self.accumulated or x.count) != x.count:
            wrong = f"has {x.count} rows, but the accumulators hold sums of {self.accumulated}"
        elif x.does is Does.MULTIPLY and self.accumulated and (x.word["half"] in INTEGERS) != self.whole:
            wrong = f"multiplies {x.word['half']}, but the accumulators hold sums in {'i32' if self.whole else 'f32'}"
        elif x.does is Does.DRAIN and not self.accumulated:
            wrong = "drains, but no MM has run since the last PTO"
        if wrong:
            raise self.state.fault(faults.AccumulatorFault, f"{self.state.site(event)} {wrong}", event)
