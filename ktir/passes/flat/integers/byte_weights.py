"""Weights of one byte stay that in memory where matmuls alone read them: what is computed of them becomes part of the matmul's body.

A second operand that is a conversion of what an argument holds, element for element, is exact in both floats of 16 bits. So the matmul
reads the bytes, and each block is converted on its way to the array. Likewise one that is dequantised: scales, zero points and whatever
else it is computed of, numbers that are the same along the sum, are operands of the matmul too, and each block is computed on its way,
rounded as the program rounds it. What else is done to bytes is done to wider elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ktir.analysis.flat import shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, generic, sum_of_made, sum_of_products
from ktir.mlir import arith, func, ir, is_a, linalg
from ktir.passes.flat.integers.made_of_bytes import conversion_of, made_of_bytes
from ktir.target import LANES, is_byte, is_half


@dataclass(frozen=True)
class _Use:
    """A matmul that reads what is made of bytes as its operand `number`."""

    matmul: Generic
    number: int
    made: Generic
    bytes: int
    """Which input of `made` the bytes are."""

    @property
    def converts(self) -> bool:
        """Whether the bytes are only widened, which is exact."""
        return conversion_of(self.made.op) is not None


def weights_in_bytes(function: func.FuncOp) -> None:
    """Let matmuls of a function read bytes, in place."""
    for exchanges in (False, True):  # a matmul has one such operand: the second one, unless only the first one can be it
        for argument in function.regions[0].blocks[0].arguments:
            uses = _uses(argument) or []
            if exchanges or all(use.number == 1 for use in uses):
                for use in uses:
                    _read_bytes(use)


def _uses(argument: ir.Value) -> list[_Use] | None:
    """All that is done to an argument, if it is matmuls of what is made of its bytes; else None."""
    found: list[_Use] = []
    for load in _loads(argument):
        if load is None or not is_byte(element_of(load)):
            return None
        for use in load.uses:
            made = made_of_bytes(use.owner.operation, use.operand_number)
            readers = [] if made is None else [_use(u, made, use.operand_number) for u in made.op.results[0].uses]
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


def _use(use: ir.OpOperand, made: Generic, number: int) -> _Use | None:
    """The matmul that reads a matrix of whole pairs of rows; None if none does."""
    op = use.owner.operation
    if not is_a(op, linalg.GenericOp):
        return None
    g, second = Generic(op), use.operand_number
    if g.contraction is None or second > 1 or len(g.inputs) != 2 or g.inputs[0] == g.inputs[1]:
        return None
    found = _Use(g, second, made, number)
    exchanged = [g.maps[1 - second], g.maps[second]]
    a, b, c = ({ir.AffineDimExpr(e).position for e in m.results} for m in (*exchanged, g.maps[2]))
    columns, reduced = b & c - a, [i for i, kind in enumerate(g.iterators) if kind == "reduction"]
    extents = dict(zip((ir.AffineDimExpr(e).position for e in g.maps[second].results), shape_of(g.inputs[second]), strict=True))
    if len(columns) != 1 or not set(reduced) <= extents.keys() or not is_half(element_of(g.inputs[1 - second])):
        return None
    if found.converts:
        even = [loop for loop in (*columns, *reduced) if loop in extents and extents[loop] % 2 == 0]
        return found if len(reduced) == 1 and even else None
    # of numbers beyond the sum, which are 0, it may not make what is not finite; and they are the same for all lanes of a stick along it
    walked = {loop for i in range(len(made.inputs)) if i != number for loop in _loops(found, i)}
    return found if extents[reduced[-1]] % LANES == 0 and reduced[-1] not in walked else None


def _loops(use: _Use, number: int) -> list[int]:
    """The loops of a matmul that walk an input of what makes its operand."""
    made = use.made
    place = {ir.AffineDimExpr(e).position: use.matmul.maps[use.number].results[d] for d, e in enumerate(made.maps[-1].results)}
    return [ir.AffineDimExpr(place[ir.AffineDimExpr(e).position]).position for e in made.maps[number].results]


def _read_bytes(use: _Use) -> None:
    g, made = use.matmul, use.made
    order = [use.bytes, *(i for i in range(len(made.inputs)) if i != use.bytes)]
    walks = [ir.AffineMap.get(len(g.iterators), 0, [ir.AffineDimExpr.get(loop) for loop in _loops(use, i)]) for i in order]

    def make(scalars: Sequence[ir.Value]) -> ir.Value:
        given = dict(zip(order, scalars, strict=True))
        return made.copy_body([given[i] for i in range(len(order))] + [scalars[0]])

    with ir.InsertionPoint(g.op), g.op.location:
        operands = [g.inputs[1 - use.number], *(made.inputs[i] for i in order)]
        maps = [g.maps[1 - use.number], *walks, g.maps[2]]
        body = sum_of_products if use.converts else sum_of_made(make)
        value = generic(operands, g.init, maps, g.iterators, body, loc=g.op.location)
    g.op.results[0].replace_all_uses_with(value)
    g.op.erase()
    if not list(made.op.results[0].uses):
        made.op.erase()
