"""Bodies of ops on whole tensors: an author's scalars written anew, positions as those of the whole, and what is known beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, exp2, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.points import CASTS, Numbers, is_index
from ktir.arithmetic.integers import PREDICATES
from ktir.diagnostics import refused
from ktir.dialects.structured import constant, index_constant
from ktir.mlir import arith, ir, is_a, linalg, math, named
from ktir.passes.lifting.axes import Axes, Axis
from ktir.passes.lifting.forms import Form, element_type, splat
from ktir.passes.lifting.values import Decided, Number, Position, Value, Whole

Range = tuple[Numbers, Numbers]


@dataclass(frozen=True)
class Scope:
    """The loops of an op on whole tensors."""

    axes: Axes
    loops: Mapping[int, int]
    """The loop of each loop of the author's that has several positions."""
    along: Mapping[int, Axis]
    """The axis of the author's loops."""
    hidden: Mapping[Axis, int]
    """The loops of axes that no loop of the author's walks."""

    def inside(self, outer: Form, operand: int, inner: Form) -> Scope:
        """The same by the loops of an op that made an operand."""
        pairs = [(i, o) for i, o in zip(inner.walks[-1], outer.walks[operand], strict=True) if i is not None and o in self.loops]
        return replace(
            self, loops={i: self.loops[o] for i, o in pairs if o is not None}, along={i: self.along[o] for i, o in pairs if o is not None}
        )

    def at(self, axis: Axis) -> Numbers:
        """The number of an axis's block at each point."""
        return self.axes.deep(axis.at) if axis.at is not None else np.zeros((1,) * self.axes.points.live.ndim, np.int64)

    def position(self, p: Position, op: ir.Operation) -> ir.Value:
        """A position of tiles as one of the whole, at the insertion point. Raises Unsupported."""
        reach = self.axes.reach()
        rest = self.axes.deep(p.base)
        terms = {self.loops[loop]: step for loop, step in p.steps.items() if loop in self.loops and step}
        for loop, step in p.steps.items():
            if loop in self.along:
                rest = rest - step * self.along[loop].block * self.at(self.along[loop])
        numbers = np.broadcast_to(rest, reach.shape)[reach]
        hidden = list(self.hidden)
        columns = [np.broadcast_to(self.at(a), reach.shape)[reach] for a in hidden]
        found = np.linalg.lstsq(np.stack([*columns, np.ones_like(numbers)], 1).astype(float), numbers.astype(float), rcond=None)[0]
        *steps, first = (round(float(n)) for n in found)
        if (sum((s * c for s, c in zip(steps, columns, strict=True)), first + 0 * numbers) != numbers).any():
            raise refused(op, "reads a position that depends on the tile otherwise than its elements do")
        terms |= {self.hidden[a]: s for a, s in zip(hidden, steps, strict=True) if s}
        total = None
        for loop, step in terms.items():
            own = linalg.IndexOp(loop).result
            own = own if step == 1 else arith.MulIOp(own, index_constant(step)).result
            total = own if total is None else arith.AddIOp(total, own).result
        if total is None or first:
            total = index_constant(first) if total is None else arith.AddIOp(total, index_constant(first)).result
        return total

    def ranges(self, where: Axis | int | None) -> tuple[NDArray[np.bool_], dict[int, Range]]:
        """Points, and there the first and last position of the author's loops: inside of the whole, beyond the end of an axis, or in the
        trips of a loop that tiles do not make."""
        live = self.axes.reach() if where is None else self.axes.points.live if isinstance(where, Axis) else self.axes.skipped(where)
        found: dict[int, Range] = {}
        for loop, axis in self.along.items():
            end = np.minimum(axis.block, axis.extent - axis.block * self.at(axis))
            found[loop] = (np.zeros_like(end), end - 1)
            if axis is where:
                found[loop] = (end, np.full_like(end, axis.block - 1))
                live = live & np.broadcast_to(end < axis.block, live.shape)
        return live, found


class Body:
    """The body of one op of the author's, read or written anew."""

    def __init__(self, form: Form, given: Sequence[Value | None], scope: Scope, scalars: dict[ir.Value, ir.Value] | None = None) -> None:
        self.form, self.given, self.scope = form, given, scope
        self.scalars = {} if scalars is None else scalars

    def _inner(self, operand: int, made: Decided) -> Body:
        return Body(made.form, made.given, self.scope.inside(self.form, operand, made.form))

    # Written

    def emit(self, value: ir.Value) -> ir.Value:
        """Write what the body computes at the insertion point."""
        if value not in self.scalars:
            self.scalars[value] = self._emitted(value)
        return self.scalars[value]

    def _emitted(self, value: ir.Value) -> ir.Value:
        type_ = element_type(value)
        if is_index(type_):
            p = position(self.form, self.given, value, self.scope.axes)
            if p is not None:
                number = self.scope.position(p, self.form.op)
                return number if isinstance(type_, ir.IndexType) else arith.IndexCastOp(type_, number).result
            if is_truth(type_) and (known := self._known(value, None)) is not None:
                return constant(type_, known)
        operand = self.form.operand_of(value)
        if operand is not None:
            made = self.given[operand]
            if isinstance(made, Decided):
                return self._inner(operand, made).emit(made.form.yielded)
            if isinstance(made, Number):
                return arith.ConstantOp(type_, made.attribute).result
            raise refused(self.form.op, "reads a value of another kind as data")
        owner = value.owner
        if isinstance(owner, ir.Block) or not self.form.has(owner.operation):
            raise refused(self.form.op, "reads a value of another kind as data")
        if is_a(owner, arith.ConstantOp):
            return arith.ConstantOp(type_, splat(owner.operation)).result
        attributes = {name: owner.attributes[name] for name in owner.attributes}
        operands = [self.emit(v) for v in owner.operands]
        return ir.Operation.create(owner.name, results=[type_], operands=operands, attributes=attributes).results[0]

    # Known

    def _known(self, value: ir.Value, where: Axis | int | None) -> bool | None:
        """What a truth value is at all elements; None: several, or it depends on memory."""
        live, ranges = self.scope.ranges(where)
        found = np.broadcast_to(self._decided(value, ranges), live.shape)[live]
        return bool(found[0]) if found.size and (found == found[0]).all() and found[0] >= 0 else None

    def _decided(self, value: ir.Value, ranges: Mapping[int, Range]) -> NDArray[np.int8]:
        """What a truth value is at each point, on all elements of these ranges; -1: not known."""
        unknown = np.full((1,) * self.scope.axes.points.live.ndim, -1, np.int8)
        operand = self.form.operand_of(value)
        if operand is not None:
            made = self.given[operand]
            if isinstance(made, Number):
                return unknown * 0 + np.int8(bool(getattr(made.attribute, "value", False)))
            if not isinstance(made, Decided):
                return unknown
            pairs = zip(made.form.walks[-1], self.form.walks[operand], strict=True)
            own = {i: ranges[o] for i, o in pairs if i is not None and o is not None and o in ranges}
            return self._inner(operand, made)._decided(made.form.yielded, own)
        owner = value.owner
        if isinstance(owner, ir.Block) or not self.form.has(owner.operation):
            return unknown
        if is_a(owner, arith.ConstantOp):
            return unknown * 0 + np.int8(bool(getattr(splat(owner.operation), "value", False)))
        if is_a(owner, arith.CmpIOp):
            return self._compared(owner.operation, ranges, unknown)
        if is_a(owner, arith.AndIOp, arith.OrIOp):
            a, b = (self._decided(v, ranges) for v in owner.operands)
            ends = np.int8(is_a(owner, arith.OrIOp))  # one of them decides
            return np.where((a == ends) | (b == ends), ends, np.where((a < 0) | (b < 0), np.int8(-1), a))
        return unknown

    def _compared(self, op: ir.Operation, ranges: Mapping[int, Range], unknown: NDArray[np.int8]) -> NDArray[np.int8]:
        a, b = (position(self.form, self.given, v, self.scope.axes) for v in op.operands)
        sides = _PREDICATES.get(PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value])
        if a is None or b is None or sides is None:
            return unknown
        low = high = self.scope.axes.deep(a.base) - self.scope.axes.deep(b.base)
        for loop in {**a.steps, **b.steps}:
            step = a.steps.get(loop, 0) - b.steps.get(loop, 0)
            if step and loop in ranges:
                ends = [step * n for n in ranges[loop]]
                low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        always, never = (side(low, high) for side in sides)
        return np.where(always, np.int8(1), np.where(never, np.int8(0), np.int8(-1)))

    def outside(self, value: ir.Value, where: Axis | int) -> float | None:
        """What a scalar is beyond the end of an axis, or in trips that a tile does not make; None: not known."""
        operand = self.form.operand_of(value)
        if operand is not None:
            made = self.given[operand]
            if isinstance(made, Number):
                return _float(made.attribute)
            if isinstance(made, Whole):
                return made.outside.get(where)
            known = self._known(value, where) if isinstance(made, Decided) and is_truth(element_type(value)) else None
            return None if known is None else float(known)
        owner = value.owner
        if isinstance(owner, ir.Block) or not self.form.has(owner.operation):
            return None
        if is_a(owner, arith.ConstantOp):
            return _float(splat(owner.operation))
        if is_truth(element_type(value)):
            known = self._known(value, where)
            return None if known is None else float(known)
        operands = [self.outside(v, where) for v in owner.operands]
        if is_a(owner, arith.SelectOp):
            return None if operands[0] is None else operands[1 if operands[0] else 2]
        if not isinstance(where, Axis) and is_a(owner, arith.MulFOp) and 0.0 in operands:
            return 0.0  # of what the author does not read, which is taken to be finite
        return _float_of(owner.name, operands)


def position(form: Form, given: Sequence[Value | None], value: ir.Value, axes: Axes) -> Position | None:
    """A scalar of a body as a position by the loops of its op; None for what is none."""
    points, type_ = axes.points, element_type(value)
    if not is_index(type_) or is_truth(type_):
        return None
    operand = form.operand_of(value)
    if operand is not None:
        made = given[operand]
        if isinstance(made, Number):
            return Position(points.number(int(getattr(made.attribute, "value", 0))), {})
        if not isinstance(made, Position):
            return None
        walk = form.walks[operand]
        return Position(made.base, {loop: s for d, s in made.steps.items() if (loop := walk[d]) is not None})
    owner = value.owner
    if isinstance(owner, ir.Block) or not form.has(owner.operation):
        return Position(points(value), {})
    if is_a(owner, linalg.IndexOp):
        return Position(points.number(0), {ir.IntegerAttr(owner.attributes["dim"]).value: 1})
    if is_a(owner, arith.ConstantOp):
        return Position(points.number(int(getattr(splat(owner.operation), "value", 0))), {})
    if owner.name not in CASTS and not is_a(owner, arith.AddIOp, arith.SubIOp, arith.MulIOp):
        return None
    parts = [position(form, given, v, axes) for v in owner.operands]
    own = [p for p in parts if p is not None]
    return _joined(owner.operation, own, axes) if len(own) == len(parts) else None


def _joined(op: ir.Operation, parts: Sequence[Position], axes: Axes) -> Position | None:
    if len(parts) == 1:
        return parts[0]
    a, b = parts
    if is_a(op, arith.MulIOp):
        a, b = (a, b) if a.steps else (b, a)
        number = axes.points.same(axes.deep(b.base), axes.reach())
        if b.steps or number is None:
            return None
        return Position(axes.deep(a.base) * number, {loop: s * number for loop, s in a.steps.items()})
    sign = -1 if is_a(op, arith.SubIOp) else 1
    steps = {loop: a.steps.get(loop, 0) + sign * b.steps.get(loop, 0) for loop in {**a.steps, **b.steps}}
    return Position(axes.deep(a.base) + sign * axes.deep(b.base), steps)


def is_truth(type_: ir.Type) -> bool:
    """Whether a type is that of truth values."""
    return isinstance(type_, ir.IntegerType) and type_.width == 1


_PREDICATES: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "slt": (lambda low, high: high < 0, lambda low, high: low >= 0),
    "sle": (lambda low, high: high <= 0, lambda low, high: low > 0),
    "sgt": (lambda low, high: low > 0, lambda low, high: high <= 0),
    "sge": (lambda low, high: low >= 0, lambda low, high: high < 0),
    "eq": (lambda low, high: (low == 0) & (high == 0), lambda low, high: (low > 0) | (high < 0)),
    "ne": (lambda low, high: (low > 0) | (high < 0), lambda low, high: (low == 0) & (high == 0)),
}
"""Of two integers whose difference lies in a range: whether they always compare so, and whether never."""


def _float(attribute: ir.Attribute) -> float | None:
    held = getattr(attribute, "value", None)
    return float(held) if isinstance(held, int | float) else None


def _lowest(a: float | None, b: float | None) -> float | None:
    """What is left of minus infinity: a sum with anything finite."""
    return -inf if -inf in (a, b) and inf not in (a, b) else None if a is None or b is None else a + b


def _strict(function: Callable[..., float]) -> Callable[..., float | None]:
    return lambda *given: None if None in given else function(*given)


_FUNCTIONS: Mapping[str, Callable[..., float | None]] = named(
    {
        arith.ExtFOp: lambda a: a,
        arith.TruncFOp: lambda a: a if a in (0.0, inf, -inf) else None,
        arith.NegFOp: _strict(lambda a: -a),
        math.AbsFOp: _strict(lambda a: abs(a)),
        arith.AddFOp: _lowest,
        arith.SubFOp: lambda a, b: _lowest(a, None if b is None else -b),
        arith.AddIOp: _strict(lambda a, b: a + b),
        arith.SubIOp: _strict(lambda a, b: a - b),
        arith.MulFOp: _strict(lambda a, b: a * b),
        arith.MulIOp: _strict(lambda a, b: a * b),
        math.ExpOp: lambda a: exp(a) if a in (0.0, -inf) else None,
        math.Exp2Op: lambda a: exp2(a) if a in (0.0, -inf) else None,
    }
)
"""What an op makes of numbers, exactly; None: not known."""


def _float_of(name: str, operands: Sequence[float | None]) -> float | None:
    found = _FUNCTIONS[name](*operands) if name in _FUNCTIONS else None
    return None if found is None or found != found else found
