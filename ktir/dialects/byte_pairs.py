"""Laid-out ops that make pairs of numbers of one byte: of the sticks 2s and 2s + 1 of a tensor the stick s of the result, lane by lane.

An op is a pointwise `linalg.generic` that reads its only tensor twice, by the maps (2 s, rows.., l) and (2 s + 1, rows.., l). So its
operands are no columns though no loop alone walks their sticks.
"""

from __future__ import annotations

from ktir.dialects.structured import Generic, affine_map, element_of, generic
from ktir.mlir import arith, ir
from ktir.target import is_two

MAKE_PAIR = "vector.from_elements"
"""What makes a pair of two numbers of one byte."""


def paired(value: ir.Value, init: ir.Value) -> ir.Value:
    """An op at the insertion point that makes the pairs `init` of the sticks of floats."""
    loops = ir.RankedTensorType(init.type).rank
    others = [ir.AffineDimExpr.get(d) for d in range(1, loops)]
    maps = [ir.AffineMap.get(loops, 0, [_stick(number), *others]) for number in (0, 1)]
    element = ir.VectorType(element_of(init)).element_type

    def body(scalars: list[ir.Value]) -> ir.Value:
        narrow = arith.FPToSIOp if isinstance(element, ir.IntegerType) else arith.TruncFOp
        bytes_ = [narrow(element, x).result for x in scalars[:2]]
        return ir.Operation.create(MAKE_PAIR, [element_of(init)], bytes_).results[0]

    iterators = ["parallel"] * loops
    return generic([value, value], init, [*maps, affine_map(loops, range(loops))], iterators, body, loc=ir.Location.current)


def _stick(number: int) -> ir.AffineExpr:
    """Where the first or the second one of each two sticks is read."""
    first = ir.AffineExpr.get_mul(ir.AffineDimExpr.get(0), ir.AffineConstantExpr.get(2))
    return ir.AffineExpr.get_add(first, ir.AffineConstantExpr.get(number)) if number else first


def makes_pairs(g: Generic) -> bool:
    """Whether an op makes pairs of two sticks each."""
    return len(g.inputs) == 2 and is_two(g.yielded.type) and all(g.maps[number].results[0] == _stick(number) for number in (0, 1))


def stick_of_pair(g: Generic, operand: int) -> int | None:
    """Which one of the two sticks of a pair an operand of an op is; None where it is none of them."""
    return operand if makes_pairs(g) and operand < 2 else None
