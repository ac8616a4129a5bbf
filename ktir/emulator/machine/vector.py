"""Values of a REP body: for all groups and sticks at once, or pass by pass for bodies and parts that need their order.

Arrays end in the axes (groups, sticks, lanes); an axis on which a value does not depend may have length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir import numerics
from ktir.target import LANES

from .body import END, STICK, Body

F32 = NDArray[np.float32]
Registers = dict[int, F32]


def all_lanes(x: F32) -> F32:
    """`x` with 64 lanes."""
    return x if x.shape[-1] == LANES else np.broadcast_to(x, (*x.shape[:-1], LANES))


def tree(kind: str, x: F32) -> F32:
    """VRED: the reduction of the 64 lanes, as one lane."""
    return numerics.lane_tree(kind, all_lanes(x) if kind == "add" else x)


def accumulate(kind: str, x: F32, sticks: int) -> F32:
    """VACC over the axis of sticks, which stays with length 1."""
    if x.shape[-2] != sticks:
        x = np.broadcast_to(x, (*x.shape[:-2], sticks, x.shape[-1]))
    return numerics.reduce_sticks(kind, x, -2)[..., None, :]


def evaluate(body: Body, inputs: Sequence[F32]) -> list[F32]:
    """What each VOUT pushes, given what each VIN pops: [.., groups, sticks or 1, lanes]. For bodies that carry nothing between sticks."""
    values: list[F32] = []
    with numerics.quiet():
        for node in body.nodes:
            x = [values[k] for k in node.operands]
            values.append(_node(body, node.kind, node.data, x, inputs))
    return [values[k] for k in body.results]


def _node(body: Body, kind: str, data: Any, x: list[F32], inputs: Sequence[F32]) -> F32:
    match kind:
        case "in":
            return inputs[data]
        case "const":
            return np.full((1, 1, 1), data)
        case "unary" | "binary":
            name, rounded = data
            y = numerics.PLAIN[name](*x)
            return numerics.round_f16(y, y) if rounded else y
        case "mask":
            lanes, fill = data
            return np.where(body.group_mask(lanes), fill, x[0])
        case "accumulate":
            return accumulate(data, x[0], body.sticks)
        case "tree":
            return tree(data, x[0])
    return x[0][..., -1:, :]  # last


class Passes:
    """A body run pass by pass: `registers` live as long as this object. Arrays have no axis of sticks."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.registers: Registers = {}
        self._fresh: set[int] = set()

    def begin_group(self) -> None:
        """Reset the accumulators."""
        for w in self.body.words:
            if w.op == "vacc":
                self.registers[w["dst"]] = np.full((1, 1), numerics.IDENTITY[w["kind"]], np.float32)
                self._fresh.add(w["dst"])

    def run(self, phase: int, stick: int, pop: Callable[[int], F32], push: Callable[[int, F32], None]) -> None:
        """One pass; `pop` gives the entry of a VIN, `push` takes that of a VOUT (indices of the body's ports)."""
        r = self.registers
        with numerics.quiet():
            for i, w in enumerate(self.body.words):
                if not self.body.passes(i, phase):
                    continue
                if w.op == "vin":
                    r[w["dst"]] = pop(self.body.ports[i])
                elif w.op == "vconst":
                    r[w["dst"]] = np.full((1, 1), w["value"], np.float32)
                elif w.op == "vout":
                    push(self.body.ports[i], r[w["src"]])
                elif w.op == "vred":
                    r[w["dst"]] = tree(w["kind"], r[w["src"]])
                elif w.op == "vmask":
                    dead = np.arange(stick * LANES, (stick + 1) * LANES) >= w["lanes"]
                    r[w["dst"]] = np.where(dead, np.float32(w["fill"]), r[w["src"]])
                elif w.op == "vacc":
                    self._accumulate(w["dst"], w["kind"], r[w["src"]])
                else:
                    y = numerics.PLAIN[w["kind"]](*(r[w[f]] for f in ("src", "src2") if f in w.operands))
                    r[w["dst"]] = numerics.round_f16(y, y) if w["round"] else y

    def _accumulate(self, acc: int, kind: str, x: F32) -> None:
        if acc in self._fresh:
            self._fresh.discard(acc)
            self.registers[acc] = x
        else:
            self.registers[acc] = numerics.PLAIN[kind](self.registers[acc], x)


def run_steps(passes: Passes, first: int, last: int, pop: Callable[[int], F32], push: Callable[[int, F32], None]) -> None:
    """Run the steps `first` to `last` - 1 of a REP one by one, with its state in `passes`."""
    body = passes.body
    phases = body.step_phases().tolist()
    for i in range(first, last):
        at = i % len(phases)
        phase = phases[at]
        if at == 0:
            passes.begin_group()
        passes.run(phase, at - phases.index(STICK) if phase == STICK else 0, pop, push)


def run_groups(body: Body, inputs: Sequence[F32]) -> list[F32]:
    """As `evaluate`, stick after stick for all groups at once: for bodies that carry values from one stick to the next."""
    outputs: list[list[F32]] = [[] for _ in body.outputs]
    passes = Passes(body)
    passes.begin_group()
    for phase in range(END + 1):
        for stick in range(body.sticks if phase == STICK else 1):
            passes.run(
                phase,
                stick,
                lambda k, s=stick: inputs[k][..., min(s, inputs[k].shape[-2] - 1), :],
                lambda k, x: outputs[k].append(x),
            )
    return [np.stack(np.broadcast_arrays(*column), -2) for column in outputs]
