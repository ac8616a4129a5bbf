"""Vector registers of one REP body: a linear scan over its ops.

Start values and constants must survive until the group's last stick, so they take registers that no value of a stick has had, from the
high end. Values of a stick are released after their last use, and so are start values that only others of the start read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import is_folded, keeps_lane
from ktir.lowering.ktir_to_spyre.lane_masks import is_index_arithmetic
from ktir.mlir import arith, ir, is_a
from ktir.target import DATASHEET, Target


def _passing(g: Generic, alias: Callable[[ir.Value], ir.Value], started: Iterable[ir.Value]) -> set[ir.Value]:
    """Start values that no stick reads; `started` are the arguments that are read at the start."""
    once, read = set(started), {alias(g.yielded)}
    if not g.is_pointwise:
        read.add(alias(g.mapped))
    for op in g.body_ops:
        if is_a(op, arith.ConstantOp) or keeps_lane(op) or is_folded(op) or is_index_arithmetic(op):
            continue
        operands = [alias(v) for v in op.operands]
        if all(v in once or is_a(v.owner, arith.ConstantOp) for v in operands):
            once.add(op.results[0])
        else:
            read.update(operands)
    return once - read


def _more_registers(count: int) -> str:
    usual = DATASHEET.vector_registers
    return f", or a target with up to {usual} registers" if count < usual else ""


class Registers:
    """Which register holds which scalar; `alias` gives the scalar whose lanes another one shares."""

    def __init__(self, g: Generic, alias: Callable[[ir.Value], ir.Value], started: Iterable[ir.Value], target: Target) -> None:
        self.count = target.vector_registers
        self._location = g.op.location
        self.free = list(range(self.count))
        self.of: dict[ir.Value, int] = {}
        self.part: dict[ir.Value, str] = {}
        self._passing = _passing(g, alias, started)
        self._touched: set[int] = set()
        self._brief: list[int] = []
        self._expires: dict[int, list[ir.Value]] = {}
        self._last: dict[ir.Value, int] = {}
        for i, op in enumerate(g.body_ops):
            for operand in op.operands:
                self._last[alias(operand)] = i
        after = len(g.body_ops) + 1
        self._last[alias(g.yielded)] = after
        if not g.is_pointwise:
            self._last[alias(g.mapped)] = after

    def define(self, value: ir.Value, part: str) -> int:
        """A register for a new value; raises Unsupported if there is none."""
        brief = part == "each" or value in self._passing
        fits = self.free if brief else [r for r in self.free if r not in self._touched]
        if not fits:
            raise self.too_few()
        register = max(fits) if part == "start" else fits[0]
        self.free.remove(register)
        if part == "each":
            self._touched.add(register)
        self.of[value] = register
        self.part[value] = part
        if brief and value in self._last:
            self._expires.setdefault(self._last[value], []).append(value)
        return register

    def brief(self) -> int:
        """A register for the current op only."""
        if not self.free:
            raise self.too_few()
        register = self.free.pop(0)
        self._touched.add(register)
        self._brief.append(register)
        return register

    def release(self, number: int) -> None:
        """Body op `number` is done."""
        for value in self._expires.pop(number, []):
            of_stick = self.part[value] == "each"  # others give it back at the high end, which values of a stick take last
            self.free.insert(0 if of_stick else len(self.free), self.of[value])
        self.free[:0] = self._brief
        self._brief = []

    def too_few(self) -> Unsupported:
        """The body needs more registers than there are."""
        return Unsupported(
            f"'linalg.generic' op needs more than {self.count} vector registers, as many as its target has; the nearest supported form is "
            "two ops with a tensor between them" + _more_registers(self.count),
            location_text(self._location),
        )
