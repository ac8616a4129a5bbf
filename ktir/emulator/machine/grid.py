"""Element types of FIFO entries: what is stored in f16 sticks, or enters PT, must lie on the f16 grid.

An entry lies on the grid if it comes from an f16 stick, or if the last operation on it rounded it or cannot leave the grid. The check does
not look at values: it follows the words of the trace.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.program.body import Body, Port, registers_read
from ktir.emulator.machine.program.faults import MachineFinding, TypeFault
from ktir.emulator.machine.program.of_lanes import OF_LANES
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import Does
from ktir.isa.program import Program, Word

Flags = NDArray[np.bool_]

_STAYS = ("mov", "neg", "abs", "floor", "ceil", "trunc", "round", "roundeven", "copysign", "select")
_STAYS += ("max", "min", "maxnum", "minnum", "addh")
"""Operations that give f16 values for f16 values."""


def check_grid(program: Program, trace: Trace) -> None:
    """Raise a TypeFault for the first word that takes f32 values for f16."""
    kernel, walk = -1, _Walk(trace)
    for event in trace.events:
        if event.kernel != kernel:
            kernel, walk = event.kernel, _Walk(trace)
        walk.event(event)


class _Runs:
    """A FIFO as runs of entries with the same flag."""

    def __init__(self) -> None:
        self.runs: deque[tuple[int, bool]] = deque()

    def push(self, count: int, flag: bool) -> None:
        if count:
            self.runs.append((count, flag))

    def pop(self, count: int) -> list[tuple[int, bool]]:
        got = []
        while count:
            n, flag = self.runs.popleft()
            if n > count:
                self.runs.appendleft((n - count, flag))
                n = count
            got.append((n, flag))
            count -= n
        return got


class _Walk:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.fifos: dict[str, _Runs] = {}
        self.known: dict[tuple[int, tuple[bool, ...]], list[bool]] = {}

    def fifo(self, name: str) -> _Runs:
        return self.fifos.setdefault(name, _Runs())

    def event(self, e: Event) -> None:
        x = e.instruction
        match x.does:
            case Does.PUSH | Does.SEND:
                assert x.lx
                self.fifo(x.fifo).push(x.count, x.lx.width == 1)
            case Does.PULL | Does.RECEIVE:
                assert x.lx
                if not all(flag for _, flag in self.fifo(x.fifo).pop(x.count)) and x.lx.width == 1:
                    raise self.fault(e, f"stores f32 values of FIFO {x.fifo} in f16 sticks; no operation has rounded them")
            case Does.WEIGHTS | Does.MULTIPLY:
                if not all(flag for _, flag in self.fifo(x.fifo).pop(x.count)):
                    raise self.fault(e, f"takes f32 entries from FIFO {x.fifo}, but PT multiplies f16 values")
            case Does.DRAIN:
                self.fifo(x.fifo).push(x.count, False)
            case Does.FILL:
                assert x.lx
                if x.lx.width == 1 and not on_grid(x.value):
                    raise self.fault(e, f"fills f16 sticks with {float(x.value)!r}, which is no f16 value")
            case Does.REPEAT:
                assert x.body
                self.rep(x.body, e.steps)
            case Does.MOVE:
                pass  # elements go as they are
            case _:
                raise AssertionError(e.op)

    def fault(self, e: Event, message: str) -> MachineFinding:
        site = self.trace.kernels[e.kernel].site(e.unit, e.instruction.index, None, e.loops)
        return TypeFault(f"{site} {message}", site)

    def rep(self, body: Body, steps: tuple[int, int] | None) -> None:
        flags = [True] * len(body.inputs)
        for name in body.pops:
            order = _order(body, name, body.pops, body.inputs, steps)
            runs = self.fifo(name).pop(len(order))
            if not all(flag for _, flag in runs):
                bad = order[~np.repeat([f for _, f in runs], [n for n, _ in runs])]
                for i in set(bad.tolist()):
                    flags[i] = False
        key = (id(body), tuple(flags))
        if key not in self.known:
            self.known[key] = output_flags(body, flags)
        out = self.known[key]
        for name in body.pushes:
            each = np.array(out)[_order(body, name, body.pushes, body.outputs, steps)]
            cuts = np.flatnonzero(np.diff(each)) + 1
            for part in np.split(each, cuts) if len(each) else ():
                self.fifo(name).push(len(part), bool(part[0]))


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


def on_grid(value: float | np.float32) -> bool:
    """Whether an f16 can hold the value; NaN and infinities count as f16."""
    with np.errstate(over="ignore"):
        return bool(np.isnan(value) or np.float32(np.float16(value)) == np.float32(value))


def output_flags(body: Body, inputs: list[bool]) -> list[bool]:
    """Whether what each VOUT pushes lies on the grid, given the same of each VIN."""
    flags: dict[int, bool] = {}
    out = [True] * len(body.outputs)
    for stick in (0, 0, body.sticks - 1):  # twice: what a stick leaves for the next can only lose the grid once
        for i, w in enumerate(body.words):
            if not body.runs(i, stick):
                continue
            sources = [flags.get(r, True) for r in registers_read(w)]
            if w.does is Does.GIVE:
                out[body.ports[i]] &= sources[0]
            else:
                flags[w["dst"]] = inputs[body.ports[i]] if w.does is Does.TAKE else _stays(w, sources)
    return out


def _stays(w: Word, sources: list[bool]) -> bool:
    """Whether what a word computes lies on the grid, given the same of what it reads."""
    if w.does in OF_LANES:
        return sources[0] and OF_LANES[w.does].keeps_f16(w)
    match w.does:
        case Does.CONSTANT:
            return on_grid(integer_lane(w["value"]))
        case Does.LIVE:
            return False
        case Does.MASK:
            return sources[0] and on_grid(integer_lane(w["fill"]))
        case Does.ACCUMULATE:
            return sources[0] and w["kind"] in _STAYS
        case Does.FUNCTION:
            return w["round"] or (all(sources[w["kind"] == "select" :]) and w["kind"] in _STAYS)
    raise AssertionError(w.op)
