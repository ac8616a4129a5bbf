"""Integer divisions that have no quotient: a finding where live data divides, as in the KTIR executor.

The tape only notices lanes that had none. Lanes that a bound clips divide pads, which is no fault; which lanes are `_Dead` is worked out
only for a program that was noticed, and once, unless selects by data decide it. From then on a launch whose noticed lanes are all dead
costs a comparison. Programs whose divisors are constants are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.memory.transfer import transfer
from ktir.emulator.machine.program.body import Body, Node
from ktir.emulator.machine.program.faults import DivisionFault
from ktir.emulator.machine.program.of_lanes import F32, all_lanes
from ktir.emulator.machine.step.divisions import DIVISIONS, Noticed, missing
from ktir.emulator.machine.step.step import Step
from ktir.emulator.machine.trace.trace import Event, Place, Trace
from ktir.isa.access import Access
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import Does
from ktir.isa.program import Program
from ktir.target import LANES

_DEAD = integer_lane(1)
_Place = tuple[int, int, int]
"""A division or select: number of its event, corelet, and which one it is of those of the event."""


@dataclass
class _Division:
    """One in which a lane has no quotient: where it stands, and which lanes (`zero`: those divided by zero)."""

    place: _Place
    event: Event
    kind: str
    zero: NDArray[np.bool_]
    bad: NDArray[np.bool_]


class Quotients:
    """Judges the divisions of a program at a launch in which some lane had no quotient."""

    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        self.program, self.trace, self.corelets = program, trace, corelets
        self._numbers = {e.place: i for i, e in enumerate(trace.events)}
        self._dead: _Dead | None = None

    def check(self, arguments: Sequence[F32], noticed: Sequence[Noticed] | None) -> None:
        """Raise a DivisionFault for a division of live integers without a quotient. `arguments` are left as they are; `noticed` are the
        lanes without one, None if that is not known.
        """
        if noticed is not None and all(map(self._is_clipped, noticed)):
            return
        divisions, chosen = self._run(arguments)
        if not divisions:
            return
        if self._dead is None or self._dead.undecided:
            self._dead = _Dead(self.program, self.trace, self.corelets, self._numbers, chosen)
            self._dead.run([np.zeros_like(a) for a in arguments])
        for found in divisions:
            dead = self._dead.found.get(found.place)
            bad = found.bad if dead is None else found.bad & ~dead
            if bad.any():
                _report(self.trace, found, bad)

    def _is_clipped(self, noticed: Noticed) -> bool:
        """Whether it is known that all of these lanes are dead, whatever the data."""
        if self._dead is None or self._dead.undecided:
            return False
        event = noticed.event
        body = event.instruction.body
        assert body is not None
        shape = self.trace.kernels[event.kernel].kernel.cores, body.groups, body.sticks, LANES
        found = [self._dead.found.get((self._numbers[event.place], k, noticed.number), np.False_) for k in range(self.corelets)]
        dead = np.stack([np.broadcast_to(lanes, shape) for lanes in found], 1)
        return not (noticed.bad & ~dead[noticed.block]).any()

    def _run(self, arguments: Sequence[F32]) -> tuple[list[_Division], dict[_Place, NDArray[np.bool_]]]:
        """Divisions without a quotient, and what selects of regular bodies choose: True for their second operand."""
        divisions: list[_Division] = []
        chosen: dict[_Place, NDArray[np.bool_]] = {}
        seen = Counter[tuple[int, int, bool]]()

        def look(event: Event, corelet: int, kind: str, operands: Sequence[F32]) -> None:
            if kind not in (*DIVISIONS, "select"):
                return
            at = self._numbers[event.place], corelet
            place = (*at, seen[*at, kind == "select"])
            seen[*at, kind == "select"] += 1
            if kind != "select":
                zero, bad = missing(kind, operands[0], operands[1])
                if bad.any():
                    divisions.append(_Division(place, event, kind, zero, bad))
            elif _in_one_go(event):
                chosen[place] = operands[0].view(np.int32) != 0

        step = Step(self.program, self.trace, self.corelets)
        step.observe = look
        step.run([a.copy() for a in arguments])
        return divisions, chosen


def _in_one_go(event: Event) -> bool:
    """Whether the body of a REP is computed for all groups and sticks at once."""
    body = event.instruction.body
    return event.steps is None and body is not None and body.regular


class _Dead(Step):
    """The program on flags: which lanes come from positions that a bound clips. A result is dead where an operand is; that of a select,
    where what it has `chosen` is; of what is reduced, where all of it is, since what is reduced is masked or padded with what changes
    nothing. What no rule says is alive.
    """

    def __init__(
        self, program: Program, trace: Trace, corelets: int, numbers: Mapping[Place, int], chosen: Mapping[_Place, NDArray[np.bool_]]
    ) -> None:
        super().__init__(program, trace, corelets, _DEAD)
        self.found: dict[_Place, NDArray[np.bool_]] = {}
        self.undecided = False
        """Whether a select between a dead and a live lane decided something: data may decide otherwise at another launch."""
        self._numbers, self._chosen = numbers, chosen

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
        if _in_one_go(e):
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
        at, divisions, selects = (self._numbers[e.place], k), 0, 0
        for node in body.nodes:
            x = [dead[n] for n in node.operands]
            name = node.data[0] if node.kind == "function" else ""
            if name == "select":
                by_data = body.nodes[node.operands[0]].kind not in ("live", "const")
                dead.append(self._select(x, self._chosen[*at, selects], by_data))
                selects += 1
            else:
                dead.append(_dead(body, node, x, inputs))
            if name in DIVISIONS:
                self.found[*at, divisions] = dead[-1]
                divisions += 1
        return [np.where(dead[n], _DEAD, np.float32(0)) for n in body.results]

    def _select(self, x: Sequence[NDArray[np.bool_]], chosen: NDArray[np.bool_], by_data: bool) -> NDArray[np.bool_]:
        condition, first, second = x
        self.undecided |= by_data and bool((~condition & (first ^ second)).any())
        return condition | np.where(chosen, first, second)


def _dead(body: Body, node: Node, x: Sequence[NDArray[np.bool_]], inputs: Sequence[F32]) -> NDArray[np.bool_]:
    match node.kind:
        case "in":
            return inputs[node.data] != 0
        case "function":
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


def _report(trace: Trace, found: _Division, bad: NDArray[np.bool_]) -> None:
    event = found.event
    site = trace.kernels[event.kernel].site(event.unit, event.instruction.index, found.place[1], event.loops)
    at = np.argwhere(bad)[0]
    core = f" on core {int(at[0])}" if bad.ndim > 1 and bad.shape[0] > 1 else ""
    by_zero = bool(np.broadcast_to(found.zero, bad.shape)[tuple(at)])
    what = "divides by zero" if by_zero else f"divides {-(2**31)} by -1, which i32 cannot hold,"
    raise DivisionFault(f"{site} {what} in '{found.kind}'{core}", site)
