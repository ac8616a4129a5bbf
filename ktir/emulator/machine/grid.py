"""Element types of FIFO entries: what is stored in sticks of floats of 16 bits, or enters PT, must lie on the grid of these.

An entry lies on a grid if it comes from such a stick, or if the last operation on it rounded it or cannot leave the grid. The check does
not look at values: it follows the words of the trace. A *grid* here is a set of formats, a bit for each of `SIXTEEN`: those that hold a
value.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from operator import and_

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.numerics import IN_BYTES, round_to
from ktir.emulator.machine.program.body import Body, Port, registers_read
from ktir.emulator.machine.program.faults import MachineFinding, TypeFault
from ktir.emulator.machine.program.of_lanes import OF_LANES, kept_by
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import Does
from ktir.isa.kinds import KINDS
from ktir.isa.program import Program, Word
from ktir.target import HALVES, SIXTEEN

OF_ALL = (1 << len(SIXTEEN)) - 1
"""What lies on every grid."""


def _of(*halves: str) -> int:
    return sum(1 << SIXTEEN.index(half) for half in halves)


def check_grid(program: Program, trace: Trace) -> None:
    """Raise a TypeFault for the first word that takes values for floats of 16 bits that they are not."""
    kernel, walk = -1, _Walk(trace)
    for event in trace.events:
        if event.kernel != kernel:
            kernel, walk = event.kernel, _Walk(trace)
        walk.event(event)


class _Runs:
    """A FIFO as runs of entries of the same grid."""

    def __init__(self) -> None:
        self.runs: deque[tuple[int, int]] = deque()

    def push(self, count: int, grid: int) -> None:
        if count:
            self.runs.append((count, grid))

    def pop(self, count: int) -> list[tuple[int, int]]:
        got = []
        while count:
            n, grid = self.runs.popleft()
            if n > count:
                self.runs.appendleft((n - count, grid))
                n = count
            got.append((n, grid))
            count -= n
        return got

    def holds(self, count: int, half: str) -> bool:
        """Whether all of the next entries, which are popped, are floats of this format."""
        return all(grid & _of(half) for _, grid in self.pop(count))


class _Unopened(Exception):
    """A byte is taken out of what is no pair of its format."""


class _Walk:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.fifos: dict[str, _Runs] = {}
        self.known: dict[tuple[int, tuple[int, ...]], list[int]] = {}

    def fifo(self, name: str) -> _Runs:
        return self.fifos.setdefault(name, _Runs())

    def event(self, e: Event) -> None:
        x = e.instruction
        match x.does:
            case Does.PUSH | Does.SEND:
                assert x.lx
                self.fifo(x.fifo).push(x.count, _of(x.lx.descriptor.half) if x.lx.width == 1 else 0)
            case Does.PULL | Does.RECEIVE:
                assert x.lx
                half = x.lx.descriptor.half
                if not self.fifo(x.fifo).holds(x.count, half) and x.lx.width == 1:
                    raise self.fault(e, f"stores f32 values of FIFO {x.fifo} in {half} sticks; no operation has rounded them")
            case Does.WEIGHTS | Does.MULTIPLY:
                half = x.word["half"]
                if not self.fifo(x.fifo).holds(x.count, half):
                    raise self.fault(e, f"takes f32 entries from FIFO {x.fifo}, but PT multiplies {half} values")
            case Does.DRAIN:
                self.fifo(x.fifo).push(x.count, 0)
            case Does.FILL:
                assert x.lx
                half = x.lx.descriptor.half
                if x.lx.width == 1 and not grid_of(x.value) & _of(half):
                    raise self.fault(e, f"fills {half} sticks with {float(x.value)!r}, which is no {half} value")
            case Does.REPEAT:
                assert x.body
                try:
                    self.rep(x.body, e.steps)
                except _Unopened as error:
                    raise self.fault(e, str(error)) from None
            case Does.MOVE:
                pass  # elements go as they are
            case _:
                raise AssertionError(e.op)

    def fault(self, e: Event, message: str) -> MachineFinding:
        site = self.trace.kernels[e.kernel].site(e.unit, e.instruction.index, None, e.loops)
        return TypeFault(f"{site} {message}", site)

    def rep(self, body: Body, steps: tuple[int, int] | None) -> None:
        grids = [OF_ALL] * len(body.inputs)
        for name in body.pops:
            order, at = _order(body, name, body.pops, body.inputs, steps), 0
            for count, grid in self.fifo(name).pop(len(order)):
                if grid != OF_ALL:
                    for i in set(order[at : at + count].tolist()):
                        grids[i] &= grid
                at += count
        key = (id(body), tuple(grids))
        if key not in self.known:
            self.known[key] = output_grids(body, grids)
        out = self.known[key]
        for name in body.pushes:
            each = np.array(out)[_order(body, name, body.pushes, body.outputs, steps)]
            cuts = np.flatnonzero(np.diff(each)) + 1
            for part in np.split(each, cuts) if len(each) else ():
                self.fifo(name).push(len(part), int(part[0]))


def _order(
    body: Body, name: str, flow: dict[str, NDArray[np.int64]], ports: list[Port], steps: tuple[int, int] | None
) -> NDArray[np.int64]:
    """The port of each entry that a REP, or the steps of a part of it, moves through a FIFO."""
    one = np.zeros(body.per_group(flow, name), np.int64)
    for i, p in enumerate(ports):
        if p.fifo == name:
            one[p.span] = i
    every = np.tile(one, body.groups)
    if steps is None:
        return every
    total = body.total(flow, name)
    return every[total[steps[0]] : total[steps[1]]]


def grid_of(value: float | np.float32) -> int:
    """The formats that hold a value; NaN and infinities count."""
    number = np.full(1, value, np.float32)
    return sum(_of(half) for half in HALVES if np.isnan(number) or round_to(half, number) == number)


def output_grids(body: Body, inputs: list[int]) -> list[int]:
    """The grid of what each VOUT pushes, given that of each VIN."""
    grids: dict[int, int] = {}
    out = [OF_ALL] * len(body.outputs)
    for stick in (0, 0, body.sticks - 1):  # twice: what a stick leaves for the next can only lose the grid once
        for i, w in enumerate(body.words):
            if not body.runs(i, stick):
                continue
            sources = [grids.get(r, OF_ALL) for r in registers_read(w)]
            if w.does is Does.GIVE:
                out[body.ports[i]] &= sources[0]
            else:
                grids[w["dst"]] = inputs[body.ports[i]] if w.does is Does.TAKE else _grid(w, sources)
    return out


def _grid(w: Word, sources: list[int]) -> int:
    """The grid of what a word computes, given that of what it reads."""
    if w.does in OF_LANES:
        return sources[0] & _of(*OF_LANES[w.does].keeps(w))
    match w.does:
        case Does.CONSTANT:
            return grid_of(integer_lane(w["value"]))
        case Does.LIVE:
            return 0
        case Does.MASK:
            return sources[0] & grid_of(integer_lane(w["fill"]))
        case Does.ACCUMULATE:
            return sources[0] & _of(*kept_by(w["kind"]))
        case Does.FUNCTION if pair := KINDS[w["kind"]].opens:
            if not sources[0] & _of(pair):
                raise _Unopened(f"takes a byte by '{w['kind']}' out of entries that are no {pair}")
            return _of(*HALVES) if KINDS[w["kind"]].gives == "f" else 0
        case Does.FUNCTION if pair := KINDS[w["kind"]].makes:
            return _of(pair)
        case Does.FUNCTION if w["kind"] in IN_BYTES:
            return _of(*HALVES)
        case Does.FUNCTION:
            return _of(w["half"]) if w["round"] else reduce(and_, sources[w["kind"] == "select" :]) & _of(*kept_by(w["kind"]))
    raise AssertionError(w.op)
