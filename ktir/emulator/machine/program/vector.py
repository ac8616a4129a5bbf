"""Values of a REP body: for all groups and sticks at once, or stick by stick for bodies and parts that need their order.

Arrays end in the axes (groups, sticks, lanes); an axis on which a value does not depend may have length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.emulator.machine.program.body import Body, registers_read
from ktir.emulator.machine.program.of_lanes import OF_LANES
from ktir.isa.functions import FUNCTIONS, integer_lane, is_integer_reduction, reduce_integers, reduction_identity
from ktir.isa.instructions import Does
from ktir.isa.program import Word

F32 = NDArray[np.float32]


def accumulate(kind: str, x: F32, sticks: int) -> F32:
    """VACC over the axis of sticks, which stays with length 1."""
    if x.shape[-2] != sticks:
        x = np.broadcast_to(x, (*x.shape[:-2], sticks, x.shape[-1]))
    if is_integer_reduction(kind):
        return reduce_integers(kind, x, -2)
    total = numerics.reduce_sticks(kind, x, -2)[..., None, :]
    return total + np.float32(0) if kind == "add" else total  # it starts from +0, which a sum of zeros alone shows


def live_mask(live: NDArray[np.bool_]) -> F32:
    """Booleans as a mask."""
    return live.astype(np.int32).view(np.float32)


Observe = Callable[[str, Sequence[F32]], None]
"""Sees every operation on lanes before it is computed: its kind and operands."""


def evaluate(body: Body, inputs: Sequence[F32], observe: Observe | None = None) -> list[F32]:
    """What each VOUT pushes, given what each VIN pops: [.., groups, sticks or 1, lanes]. For regular bodies."""
    values: list[F32] = []
    with numerics.quiet():
        for node in body.nodes:
            x = [values[k] for k in node.operands]
            if observe is not None and node.kind == "function":
                observe(node.data[0], x)
            values.append(_node(body, node.kind, node.data, x, inputs))
    return [values[k] for k in body.results]


def _node(body: Body, kind: str, data: Any, x: list[F32], inputs: Sequence[F32]) -> F32:
    match kind:
        case "in":
            return inputs[data]
        case "const":
            return np.full((1, 1, 1), data)
        case "function":
            name, half = data
            y = FUNCTIONS[name](*x)
            return numerics.round_to(half, y, y) if half else y
        case "mask":
            lanes, fill = data
            return np.where(body.live(lanes), x[0], fill)
        case "live":
            return live_mask(body.live(data))[None]
        case "accumulate":
            return accumulate(data, x[0], body.sticks)
        case "lanes":
            return OF_LANES[data.does].compute(data, x[0])
    return x[0][..., -1:, :]  # last


class InOrder:
    """A body run stick by stick: `registers` live as long as this object. Arrays have no axis of sticks."""

    def __init__(self, body: Body, observe: Observe | None = None) -> None:
        self.body = body
        self.observe = observe
        self.registers: dict[int, F32] = {}

    def __reduce__(self) -> tuple[type[InOrder], tuple[Body]]:
        return InOrder, (self.body,)  # what registers hold is of the last launch

    def stick(self, stick: int, pop: Callable[[str], F32], push: Callable[[str, F32], None]) -> None:
        """One stick of a group; `pop` gives the next entry of a FIFO, `push` takes one."""
        r = self.registers
        if stick == 0:
            self._begin_group()
        with numerics.quiet():
            for i, w in enumerate(self.body.words):
                if not self.body.runs(i, stick):
                    continue
                if w.does is Does.GIVE:
                    push(w["fifo"], r[w["src"]])
                else:
                    r[w["dst"]] = pop(w["fifo"]) if w.does is Does.TAKE else self._value(w, stick)

    def _value(self, w: Word, stick: int) -> F32:
        """What a word computes."""
        x = [self.registers[k] for k in registers_read(w)]
        if w.does in OF_LANES:
            return OF_LANES[w.does].compute(w, x[0])
        match w.does:
            case Does.CONSTANT:
                return np.full((1, 1), integer_lane(w["value"]))
            case Does.LIVE:
                return live_mask(self.body.live(w["lanes"])[stick, None])
            case Does.MASK:
                return np.where(self.body.live(w["lanes"])[stick], x[0], integer_lane(w["fill"]))
            case Does.ACCUMULATE:
                return FUNCTIONS[w["kind"]](self.registers[w["dst"]], x[0])
            case Does.FUNCTION:
                if self.observe is not None:
                    self.observe(w["kind"], x)
                y = FUNCTIONS[w["kind"]](*x)
                return numerics.round_to(w["half"], y, y) if w["round"] else y
        raise AssertionError(w.op)

    def _begin_group(self) -> None:
        for w in self.body.words:
            if w.does is Does.ACCUMULATE:
                self.registers[w["dst"]] = np.full((1, 1), reduction_identity(w["kind"]), np.float32)


def run_steps(state: InOrder, first: int, last: int, pop: Callable[[str], F32], push: Callable[[str, F32], None]) -> None:
    """Run the steps (sticks of all groups, in order) `first` to `last` - 1 of a REP, with its state in `state`."""
    for i in range(first, last):
        state.stick(i % state.body.sticks, pop, push)


def run_groups(body: Body, popped: dict[str, F32], observe: Observe | None = None) -> dict[str, F32]:
    """Run a whole REP stick by stick, all groups at once. Per FIFO: entries [.., groups, entries of a group, lanes] -> the same."""
    state = InOrder(body, observe)
    taken = dict.fromkeys(popped, 0)
    pushed: dict[str, list[F32]] = {}

    def pop(fifo: str) -> F32:
        taken[fifo] += 1
        return popped[fifo][..., taken[fifo] - 1, :]

    for stick in range(body.sticks):
        state.stick(stick, pop, lambda fifo, x: pushed.setdefault(fifo, []).append(x))
    return {fifo: np.stack(np.broadcast_arrays(*entries), -2) for fifo, entries in pushed.items()}
