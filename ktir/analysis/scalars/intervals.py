"""What values of a program lie between, where its positions do: scalar ops on bounds.

Bounds are arrays, so that many parts of a tensor are looked at in one go. Of a float that is not known nothing is known, but that it is a
number: minus infinity added to it is minus infinity. Whoever uses that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.mlir import arith, ir, is_a, named

Array = NDArray[Any]


class Bounds(NamedTuple):
    """The least and the greatest value, both of them possible or beyond what is."""

    low: Array
    high: Array

    @staticmethod
    def of(value: float) -> Bounds:
        """Those of a number, or of a truth."""
        return Bounds(np.asarray(+value), np.asarray(+value))

    @property
    def lowest(self) -> Array:
        """Where the value is minus infinity for sure."""
        return np.asarray(self.high == -np.inf)


_I32 = 2**31


def unknown(type_: ir.Type) -> Bounds:
    """Of a scalar of which nothing is known."""
    if isinstance(type_, ir.IntegerType) and type_.width == 1:
        return Bounds(np.asarray(0), np.asarray(1))
    if isinstance(type_, ir.IntegerType | ir.IndexType):
        return Bounds(np.asarray(-(2**62)), np.asarray(2**62))
    return Bounds(np.asarray(-np.inf), np.asarray(np.inf))


def scalar(op: ir.Operation, operands: Sequence[Bounds]) -> Bounds:
    """The bounds of what a scalar op makes."""
    type_ = op.results[0].type
    if is_a(op, arith.ConstantOp):
        attribute = op.attributes["value"]
        known = isinstance(attribute, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr)
        return Bounds.of(attribute.value) if known else unknown(type_)
    found = None
    if is_a(op, arith.CmpIOp):
        found = _compared(ir.IntegerAttr(op.attributes["predicate"]).value, *operands)
    elif is_a(op, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp):
        found = _resized(op, *operands)
    elif op.name in _RULES:
        found = _RULES[op.name](*operands)
    if found is None:
        return unknown(type_)
    return _in_range(found, type_) if isinstance(type_, ir.IntegerType) and type_.width > 1 else found


def _resized(op: ir.Operation, a: Bounds) -> Bounds | None:
    """An integer in another width: the same number, but for a truth that is widened with a sign, or a negative one without."""
    truth = ir.IntegerType(op.operands[0].type).width == 1
    narrow = ir.IntegerType(op.results[0].type).width == 1
    if (truth and is_a(op, arith.ExtSIOp)) or ((narrow or is_a(op, arith.ExtUIOp)) and a.low.min() < 0) or (narrow and a.high.max() > 1):
        return None
    return a


def _in_range(found: Bounds, type_: ir.IntegerType) -> Bounds:
    """Integers, if none can leave its type: nothing wraps."""
    most = 2 ** (type_.width - 1)
    inside = (found.low >= -most) & (found.high < most)
    nothing = unknown(type_)
    return Bounds(np.where(inside, found.low, nothing.low), np.where(inside, found.high, nothing.high))


_UNSIGNED = {
    arith.CmpIPredicate.ult: arith.CmpIPredicate.slt,
    arith.CmpIPredicate.ule: arith.CmpIPredicate.sle,
    arith.CmpIPredicate.ugt: arith.CmpIPredicate.sgt,
    arith.CmpIPredicate.uge: arith.CmpIPredicate.sge,
}
"""Comparisons without a sign, and what is the same of numbers that have none."""


def _compared(predicate: int, a: Bounds, b: Bounds) -> Bounds | None:
    p = arith.CmpIPredicate(predicate)
    if p in _UNSIGNED and min(a.low.min(), b.low.min()) >= 0:
        p = _UNSIGNED[p]
    if p in (arith.CmpIPredicate.eq, arith.CmpIPredicate.ne):
        apart = (a.high < b.low) | (b.high < a.low)
        same = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
        true, false = (same, apart) if p == arith.CmpIPredicate.eq else (apart, same)
    elif p in (arith.CmpIPredicate.slt, arith.CmpIPredicate.sge):
        true, false = a.high < b.low, a.low >= b.high
    elif p in (arith.CmpIPredicate.sgt, arith.CmpIPredicate.sle):
        true, false = a.low > b.high, a.high <= b.low
    else:
        return None
    if p in (arith.CmpIPredicate.sge, arith.CmpIPredicate.sle):
        true, false = false, true
    return Bounds(true.astype(int), (~false).astype(int))


def _chosen(condition: Bounds, a: Bounds, b: Bounds) -> Bounds:
    first, second = condition.low > 0, condition.high < 1
    low = np.where(first, a.low, np.where(second, b.low, np.minimum(a.low, b.low)))
    return Bounds(low, np.where(first, a.high, np.where(second, b.high, np.maximum(a.high, b.high))))


def _added(a: Bounds, b: Bounds) -> Bounds:
    with np.errstate(invalid="ignore"):
        low, high = a.low + b.low, a.high + b.high
    nothing = a.lowest | b.lowest
    return Bounds(np.where(nothing | np.isnan(low), -np.inf, low), np.where(nothing, -np.inf, high))


def _lowered(a: Bounds, b: Bounds) -> Bounds:
    return _added(a, Bounds(-b.high, -b.low))


def _scaled(a: Bounds, b: Bounds) -> Bounds | None:
    """Minus infinity times a positive number."""
    for x, y in ((a, b), (b, a)):
        if x.low.ndim == 0 and x.low == x.high and 0 < x.low < np.inf:
            return Bounds(y.low * x.low, y.high * x.low)
    return None


def _multiplied(a: Bounds, b: Bounds) -> Bounds:
    corners = [x * y for x in a for y in b]
    return Bounds(np.minimum.reduce(corners), np.maximum.reduce(corners))


def _both(a: Bounds, b: Bounds) -> Bounds | None:
    return Bounds(np.minimum(a.low, b.low), np.minimum(a.high, b.high)) if _are_truths(a, b) else None


def _either(a: Bounds, b: Bounds) -> Bounds | None:
    return Bounds(np.maximum(a.low, b.low), np.maximum(a.high, b.high)) if _are_truths(a, b) else None


def _other(a: Bounds, b: Bounds) -> Bounds | None:
    """Of two truths exactly one."""
    if not _are_truths(a, b):
        return None
    known = (a.low == a.high) & (b.low == b.high)
    return Bounds(np.where(known, a.low ^ b.low, 0), np.where(known, a.low ^ b.low, 1))


def _are_truths(*values: Bounds) -> bool:
    return all(v.low.min() >= 0 and v.high.max() <= 1 for v in values)


def _same(a: Bounds) -> Bounds:
    return a


_RULES: Mapping[str, Callable[..., Bounds | None]] = named(
    {
        arith.AddIOp: lambda a, b: Bounds(a.low + b.low, a.high + b.high),
        arith.SubIOp: lambda a, b: Bounds(a.low - b.high, a.high - b.low),
        arith.MulIOp: _multiplied,
        arith.AndIOp: _both,
        arith.OrIOp: _either,
        arith.XOrIOp: _other,
        arith.SelectOp: _chosen,
        arith.AddFOp: _added,
        arith.SubFOp: _lowered,
        arith.MulFOp: _scaled,
        arith.MaximumFOp: lambda a, b: Bounds(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
        arith.MinimumFOp: lambda a, b: Bounds(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
        arith.ExtFOp: _same,
        arith.TruncFOp: _same,
        arith.IndexCastOp: _same,
    }
)
