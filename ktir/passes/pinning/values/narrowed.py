"""Integers of an author in the 32 bits of the device: narrower ones wrap around in their own width, ops on indices and on i64 are taken
where what they give is known to fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ktir.diagnostics import refused
from ktir.dialects.op_facts import SIGNED_CASTS, UNSIGNED_CASTS
from ktir.mlir import arith, i32_type, ir, is_a, names
from ktir.passes.flat.integers.integers import BARE, OF_WIDTH, WRAPS
from ktir.passes.flat.integers.intervals import FLAG, I32, RING, SIGNED, UNSIGNED, Interval, all_of, bounded, join, unsigned, width_of
from ktir.passes.pinning.values.elements import Apply, Element, Kind, Leaf, Number, chosen, combined, compared, integer

_CASTS = names(arith.IndexCastOp, arith.IndexCastUIOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp)


def held_as(type_: ir.Type) -> ir.Type:
    """What an element is on the device: a narrower integer has 32 bits, but a truth value is one. Of a wider one the values decide."""
    return i32_type() if _is_small(type_) else type_


def in_memory(element: Element) -> Element:
    """What is stored: of a truth value 0 or 1."""
    return chosen(element, integer(1), integer(0)) if str(element.type) == "i1" else element


def from_memory(element: Element, type_: ir.Type) -> Element:
    """What is loaded as a type of the author's."""
    return compared(arith.CmpIPredicate.ne, element, integer(0)) if str(type_) == "i1" else element


def _is_small(type_: ir.Type) -> bool:
    return 1 < (width_of(type_) or 0) < 32


def is_wide(type_: ir.Type) -> bool:
    """Whether a scalar type has integers that the device has not."""
    return (width_of(type_) or 0) > 32


def applied(type_: ir.Type, op: ir.Operation, operands: tuple[Element, ...]) -> Element:
    """A scalar op on these; a number, where it only reads the bits of one. Raises Unsupported for integers that do not fit."""
    first = operands[0]
    if is_a(op, arith.BitcastOp) and isinstance(first, Number) and isinstance(first.value, ir.IntegerAttr):
        width = ir.IntegerType(first.type).width
        number = np.array(first.value.value & ((1 << width) - 1), f"u{width // 8}").view(f"f{width // 8}").item()
        if str(type_) == f"f{width}" and number == number:  # an attribute does not keep which NaN it is
            return Number(type_, ir.FloatAttr.get(type_, number))
    types = [_scalar(v.type) for v in op.operands]
    if _is_small(type_) or any(map(_is_small, types)):
        return _of_small(type_, types, op, operands)
    if is_wide(type_) or any(map(is_wide, types)):
        return _narrowed(type_, types, op, operands)
    return Apply(type_, op, operands)


def _of_small(result: ir.Type, types: Sequence[ir.Type], op: ir.Operation, operands: tuple[Element, ...]) -> Element:
    """What an op gives that has to do with integers of less than 32 bits, which are held with their sign."""
    widths, width = [width_of(t) or 32 for t in types], width_of(result) or 32
    if op.name in OF_WIDTH:
        raise refused(op, f"computes on i{min(*widths, width)}, which the device holds in 32 bits; the nearest supported form is on i32")
    if op.name in (*SIGNED_CASTS, *UNSIGNED_CASTS):
        (value,), (before,), unsigned = operands, widths, op.name in UNSIGNED_CASTS
        if before == 1:
            return Apply(i32_type(), Kind((arith.ExtUIOp if unsigned else arith.ExtSIOp).OPERATION_NAME, {}, op.location), operands)
        if width == 1:
            return compared(arith.CmpIPredicate.ne, combined(arith.AndIOp, value, integer(1)), integer(0))
        if before < 32 and unsigned:
            return _bare(value, before)
        return wrapped(value, width) if width < min(before, 32) else value
    if op.name in BARE:
        operands = tuple(_bare(v, w) if 1 < w < 32 else v for v, w in zip(operands, widths, strict=True))
    found = Apply(held_as(result), op, operands)
    return wrapped(found, width) if op.name in WRAPS else found


def wrapped(element: Element, width: int) -> Element:
    """The low bits as a signed number; all of 32 and of one."""
    count = integer(32 - width)
    return element if width in (1, 32) else combined(arith.ShRSIOp, combined(arith.ShLIOp, element, count), count)


def _bare(element: Element, width: int) -> Element:
    """The low bits as a number without sign."""
    return combined(arith.AndIOp, element, integer((1 << width) - 1))


def literal(type_: ir.Type, value: ir.Attribute, op: ir.Operation) -> Number:
    """A number of the text. Raises Unsupported, which names `op`."""
    if not (_is_small(type_) or is_wide(type_)):
        return Number(type_, value)
    held = ir.IntegerAttr(value).value
    if not I32.low <= held <= I32.high:
        raise refused(op, f"has the number {held}, which does not fit into 32 bits, the integers of the device")
    return Number(i32_type(), ir.IntegerAttr.get(i32_type(), held))


def _scalar(type_: ir.Type) -> ir.Type:
    return ir.RankedTensorType(type_).element_type if isinstance(type_, ir.RankedTensorType) else type_


def _narrowed(result: ir.Type, types: Sequence[ir.Type], op: ir.Operation, operands: tuple[Element, ...]) -> Element:
    """What an op of these types gives, of which some are wide; those are i32 here."""
    type_ = i32_type() if is_wide(result) else result
    truths = [str(t) == "i1" for t in types]
    if op.name in _CASTS and not any(truths) and str(type_) == "i32":
        if is_a(op, arith.ExtUIOp, arith.IndexCastUIOp) and interval(operands[0]).low < 0:
            raise refused(op, "reads integers without sign that may be negative in 32 bits, which is not pinned yet")
        return operands[0]  # what is cut off is known to be 0, or its sign
    found = Apply(type_, op, operands)
    if is_wide(result) and not (is_a(op, arith.SelectOp) or any(truths)):
        found_ = _exact(op, [interval(o) for o in operands])
        if found_ is None or not found_.within(I32):
            raise refused(op, f"gives an '{result}' that is not known to fit into 32 bits, the integers of the device")
    return found


def interval(element: Element, exact: bool = False) -> Interval:
    """The integers that an element may be; `exact`: that its last op gives before it wraps around."""
    if isinstance(element, Number):
        n = ir.IntegerAttr(element.value).value if isinstance(element.value, ir.IntegerAttr) else int(element.value.value)
        return Interval(n, n)
    if isinstance(element, Leaf):
        bounds = getattr(element.source, "bounds", None)
        return Interval(*bounds) if bounds else all_of(element.type)
    if not isinstance(element, Apply) or str(element.type) == "i1":
        return FLAG
    parts = [interval(o) if width_of(o.type) is not None else all_of(o.type) for o in element.operands]
    if element.op.name == arith.SelectOp.OPERATION_NAME:
        return join(parts[1:]) or all_of(element.type)
    found = _exact(element.op, parts)
    return all_of(element.type) if found is None else found if exact else bounded(found, element.type)


def _exact(op: ir.Operation | Kind, parts: list[Interval]) -> Interval | None:
    """What an op gives in integers without end; None for one that is not known."""
    name = op.name
    if name == arith.ExtUIOp.OPERATION_NAME and parts[0].low >= 0:
        return parts[0]
    if name in RING or name in SIGNED:
        return {**RING, **SIGNED}[name](*parts)
    if name in UNSIGNED and all(p.low >= 0 for p in parts):
        return UNSIGNED[name](*(unsigned(p, 32) for p in parts))
    return None
