"""Integer divisions that have no quotient: a finding where live data divides, as in the KTIR executor.

The tape only notices that some lane had none. Lanes that a bound clips divide pads, which is no fault; which lanes are `Dead` follows from
the program alone, so it is worked out once, and only for a program that was noticed. Programs whose divisors are constants are not looked
at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.memory.transfer import transfer
from ktir.emulator.machine.program.body import Body, Node
from ktir.emulator.machine.program.faults import DivisionFault
from ktir.emulator.machine.program.of_lanes import F32, all_lanes
from ktir.emulator.machine.step.divisions import DIVISIONS, missing
from ktir.emulator.machine.step.step import Step
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.access import Access
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import Does
from ktir.isa.program import Program
from ktir.target import LANES

_DEAD = integer_lane(1)
_Place = tuple[int, int, int]
"""A division: number of its event, corelet, and which one it is of those of the event."""


class Quotients:
    """Judges the divisions of a program at a launch in which some lane had no quotient."""

    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        self.program, self.trace, self.corelets = program, trace, corelets
        self._dead: dict[_Place, NDArray[np.bool_]] | None = None

    def check(self, arguments: Sequence[F32]) -> None:
        """Raise a DivisionFault for a division of live integers without a quotient. `arguments` are left as they are."""
        if self._dead is None:
            dead = _Dead(self.program, self.trace, self.corelets)
            dead.run([np.zeros_like(a) for a in arguments])
            self._dead = dead.found
        step = Step(self.program, self.trace, self.corelets)
        numbers, seen = {id(e): i for i, e in enumerate(self.trace.events)}, Counter[tuple[int, int]]()

        def look(event: Event, corelet: int, kind: str, operands: Sequence[F32]) -> None:
            if kind in DIVISIONS:
                zero, over = missing(kind, operands[0], operands[1])
                at = numbers[id(event)], corelet
                dead = self._dead.get((*at, seen[at])) if self._dead else None
                seen[at] += 1
                bad = zero if over is None else zero | over
                if dead is not None:
                    bad = bad & ~dead
                if bad.any():
                    _report(self.trace, event, corelet, kind, zero, bad)

        step.observe = look
        step.run([a.copy() for a in arguments])


class _Dead(Step):
    """The program on flags: which lanes come from positions that a bound clips. A result is dead where an operand is; of what is reduced,
    where all of it is, since what is reduced is masked or padded with what changes nothing. What no rule says is alive.
    """

    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        super().__init__(program, trace, corelets, _DEAD)
        self.found: dict[_Place, NDArray[np.bool_]] = {}
        self._numbers = {id(e): i for i, e in enumerate(trace.events)}

    def _pad(self, access: Access) -> np.float32:
        return _DEAD

    def _event(self, e: Event, k: int) -> None:
        x = e.instruction
        if x.does is Does.FILL and x.lx:
            self._write_lx(x.lx, e.counters, k, np.zeros((1, 1, LANES), np.float32))
        elif x.does is Does.MULTIPLY:
            row = self._queue("A", k).pop(x.count).min(-1, keepdims=True)
            self.sums[k] = all_lanes(np.minimum(self.sums[k][..., :1], row) if k in self.sums else row)
        else:
            super()._event(e, k)

    def _read_memory(self, e: Event) -> F32:
        t = transfer(e.instruction, e.counters)
        if t.indices is None:
            return super()._read_memory(e)
        return np.where(t.live[..., None] > np.arange(LANES), np.float32(0), _DEAD)

    def _write_memory(self, e: Event, values: F32) -> None:
        if transfer(e.instruction, e.counters).indices is None:
            super()._write_memory(e, values)

    def _rep(self, e: Event, body: Body, k: int) -> None:
        if e.steps is None and body.regular:
            super()._rep(e, body, k)
            return
        first, last = e.steps or (0, body.groups * body.sticks)
        for fifo in body.pops:
            total = body.total(body.pops, fifo)
            self._queue(fifo, k).pop(int(total[last] - total[first]))
        for fifo in body.pushes:
            total = body.total(body.pushes, fifo)
            self._queue(fifo, k).push(np.zeros((self.cores, int(total[last] - total[first]), LANES), np.float32))

    def _results(self, e: Event, body: Body, k: int, inputs: Sequence[F32]) -> list[F32]:
        dead: list[NDArray[np.bool_]] = []
        divisions = 0
        for node in body.nodes:
            dead.append(_dead(body, node, [dead[n] for n in node.operands], inputs))
            if node.kind == "function" and node.data[0] in DIVISIONS:
                self.found[self._numbers[id(e)], k, divisions] = dead[-1]
                divisions += 1
        return [np.where(dead[n], _DEAD, np.float32(0)) for n in body.results]


def _dead(body: Body, node: Node, x: Sequence[NDArray[np.bool_]], inputs: Sequence[F32]) -> NDArray[np.bool_]:
    match node.kind:
        case "in":
            return inputs[node.data] != 0
        case "function":
            if node.data[0] == "select":
                return x[0] | (x[1] & x[2])
            return np.logical_or.reduce(np.broadcast_arrays(*x))
        case "mask":
            return x[0] & body.live(node.data[0])
        case "accumulate":
            return np.logical_and.reduce(x[0], axis=-2, keepdims=True)
        case "lanes":  # each lane of the result may come from any
            return np.logical_and.reduce(x[0], axis=-1, keepdims=True)
        case "last":
            return x[0][..., -1:, :]
        case "const" | "live":
            return np.zeros((1, 1, 1), np.bool_)
    raise AssertionError(node.kind)


def _report(trace: Trace, event: Event, corelet: int, kind: str, zero: NDArray[np.bool_], bad: NDArray[np.bool_]) -> None:
    site = trace.kernels[event.kernel].site(event.unit, event.instruction.index, corelet, event.loops)
    at = np.argwhere(bad)[0]
    core = f" on core {int(at[0])}" if bad.ndim > 1 and bad.shape[0] > 1 else ""
    by_zero = bool(np.broadcast_to(zero, bad.shape)[tuple(at)])
    what = "divides by zero" if by_zero else f"divides {-(2**31)} by -1, which i32 cannot hold,"
    raise DivisionFault(f"{site} {what} in '{kind}'{core}", site)
