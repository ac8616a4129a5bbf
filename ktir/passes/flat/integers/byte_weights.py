"""Weights of one byte stay that in memory where matmuls alone read them: the conversion becomes part of the matmul's body.

A second operand that is a conversion of what an argument holds, element for element, is exact in both floats of 16 bits. So the matmul
reads the bytes, and each block is converted on its way to the array. What else is done to bytes is done to wider elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ktir.analysis.flat import shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, generic, sum_of_products
from ktir.mlir import arith, func, i32_type, ir, is_a, linalg, names
from ktir.target import is_byte, is_half

_CONVERSIONS = names(arith.ExtFOp, arith.SIToFPOp, arith.TruncFOp)
_WIDENINGS = names(arith.ExtSIOp)


@dataclass(frozen=True)
class _Use:
    """A matmul that reads a conversion as its operand `number`."""

    matmul: Generic
    number: int
    conversion: Generic


def weights_in_bytes(function: func.FuncOp) -> None:
    """Let matmuls of a function read bytes, in place."""
    for exchanges in (False, True):  # a matmul has one such operand: the second one, unless only the first one can be it
        for argument in function.regions[0].blocks[0].arguments:
            uses = _uses(argument) or []
            if exchanges or all(use.number == 1 for use in uses):
                for use in uses:
                    _read_bytes(use)


def _uses(argument: ir.Value) -> list[_Use] | None:
    """All that is done to an argument, if it is matmuls of conversions of its bytes; else None."""
    found: list[_Use] = []
    for load in _loads(argument):
        if load is None or not is_byte(element_of(load)):
            return None
        for use in load.uses:
            conversion = conversion_of(use.owner.operation)
            readers = [] if conversion is None else [_use(u, conversion) for u in conversion.op.results[0].uses]
            if not readers or None in readers:
                return None
            found += [reader for reader in readers if reader is not None]
    return found


def _loads(address: ir.Value) -> Iterator[ir.Value | None]:
    """What is loaded directly from an address; None for anything else that is done with it, as for memory that is read backwards, which is
    brought into order element by element."""
    for use in address.uses:
        op = use.owner.operation
        if is_a(op, ktdp.ConstructMemoryViewOp) and min(ir.DenseI64ArrayAttr(op.attributes["static_strides"]), default=0) < 0:
            yield None
        elif is_a(op, arith.AddIOp, ktdp.ConstructMemoryViewOp, ktdp.ConstructAccessTileOp):
            yield from _loads(op.results[0])
        else:
            yield op.results[0] if is_a(op, ktdp.LoadOp) else None


def conversion_of(op: ir.Operation) -> Generic | None:
    """An op as one that makes a float of 16 bits of each byte, or an i32; None for another one."""
    if not is_a(op, linalg.GenericOp) or len(op.results) != 1:
        return None
    made = element_of(op.results[0])
    if not is_half(made) and made != i32_type():
        return None
    g, conversions = Generic(op), _CONVERSIONS if is_half(made) else _WIDENINGS
    chain, value = [o.name for o in g.body_ops], g.yielded
    while value != g.body.arguments[0]:
        if isinstance(value.owner, ir.Block) or value.owner.name not in conversions:
            return None
        value = value.owner.operands[0]
    one_to_one = all(isinstance(e, ir.AffineDimExpr) for m in g.maps for e in m.results) and len(g.maps[0].results) == len(g.iterators)
    return g if g.is_pointwise and len(g.inputs) == 1 and len(chain) <= 2 and one_to_one else None


def _use(use: ir.OpOperand, conversion: Generic) -> _Use | None:
    """The matmul that reads a conversion as a matrix of whole pairs of rows; None if none does."""
    op = use.owner.operation
    if not is_a(op, linalg.GenericOp):
        return None
    g = Generic(op)
    number = use.operand_number
    if g.contraction is None or number > 1 or g.inputs[0] == g.inputs[1] or not is_half(element_of(g.inputs[1 - number])):
        return None
    exchanged = [g.maps[1 - number], g.maps[number]]
    a, b, c = ({ir.AffineDimExpr(e).position for e in m.results} for m in (*exchanged, g.maps[2]))
    columns, reduced = b & c - a, [i for i, kind in enumerate(g.iterators) if kind == "reduction"]
    extents = dict(zip((ir.AffineDimExpr(e).position for e in g.maps[number].results), shape_of(g.inputs[number]), strict=True))
    even = [loop for loop in (*columns, *reduced) if loop in extents and extents[loop] % 2 == 0]
    return _Use(g, number, conversion) if len(columns) == len(reduced) == 1 and even else None


def _read_bytes(use: _Use) -> None:
    g, conversion = use.matmul, use.conversion
    along = conversion.maps[1].results  # loops of the conversion along the dims of what it makes
    place = {ir.AffineDimExpr(e).position: g.maps[use.number].results[d] for d, e in enumerate(along)}
    walk = ir.AffineMap.get(len(g.iterators), 0, [place[ir.AffineDimExpr(e).position] for e in conversion.maps[0].results])
    with ir.InsertionPoint(g.op), g.op.location:
        operands, maps = [g.inputs[1 - use.number], conversion.inputs[0]], [g.maps[1 - use.number], walk, g.maps[2]]
        value = generic(operands, g.init, maps, g.iterators, sum_of_products, loc=g.op.location)
    g.op.results[0].replace_all_uses_with(value)
    g.op.erase()
    if not list(conversion.op.results[0].uses):
        conversion.op.erase()
