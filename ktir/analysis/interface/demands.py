"""What the values in a buffer must be less than, so that the indices which a program computes from them are in range.

Found backwards, from the memory of indices to what it is loaded from: through `ktir.materialize`, shape ops, bodies and arithmetic whose
other operand is known. Values in buffers are taken as not negative, so of a wrap (`x < 0 ? x + size : x`) the side counts that keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ktir.arithmetic.integers import PREDICATES
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.mlir import arith, ir, is_a, linalg, named, names, tensor

__all__ = ["Range", "demands"]

Range = tuple[int, int]
Known = Callable[[ir.Value], Range | None]
Demand = tuple[ir.Value, int]


def demands(index: ir.Value, below: int, number: Known) -> Iterator[Demand]:
    """Views and tiles whose values decide `index`, memory of indices or a number, each with what they must be less than so that `index`
    is less than `below`. `number`: the interval of a value, where it is known. What cannot be followed is left out."""
    todo = [(index, below)]
    seen: set[Demand] = set()
    while todo:
        value, below = demand = todo.pop()
        if demand in seen or below <= 0:
            continue
        seen.add(demand)
        owner = value.owner
        if isinstance(owner, ir.Block):
            body = owner.owner
            if is_a(body, linalg.GenericOp):
                todo.append((body.operands[ir.BlockArgument(value).arg_number], below))
            else:
                yield demand
        elif is_a(owner, ktdp.LoadOp):
            yield owner.operands[0], below
        elif owner.name.startswith("ktdp."):
            yield demand
        else:
            todo += _of_operands(ir.OpResult(value), below, number)


def _of_operands(result: ir.OpResult, below: int, number: Known) -> Sequence[Demand]:
    op = result.owner.operation
    if op.name in _SAME:
        return [(v, below) for v in list(op.operands)[: _SAME[op.name]]]
    if is_a(op, kt.SortOp):  # a result has the values of the operand in its place, in another order
        return [(op.operands[result.result_number], below)]
    if is_a(op, linalg.GenericOp):
        block = op.regions[0].blocks[0]
        return [(block.operations[len(block.operations) - 1].operands[result.result_number], below)]
    if is_a(op, arith.SelectOp):
        return [(v, below) for v in _sides(op, number)]
    if op.name not in _BINARY:
        return []
    found = []
    for value, other in (op.operands, reversed(op.operands)):
        known = number(other)
        needed = None if known is None or number(value) is not None else _BINARY[op.name](below, known)
        if needed is not None:
            found.append((value, needed))
        if op.name not in _COMMUTATIVE:
            break
    return found


def _sides(op: ir.Operation, number: Known) -> list[ir.Value]:
    """The sides of a select that hold values which are not negative: a wrap changes only those that are."""
    condition, true, false = op.operands
    compared = condition.owner
    if not isinstance(compared, ir.Block) and is_a(compared, arith.CmpIOp) and number(compared.operands[1]) == (0, 0):
        predicate = PREDICATES[ir.IntegerAttr(compared.attributes["predicate"]).value]
        if predicate == "slt" and compared.operands[0] == false:
            return [false]
        if predicate == "sge" and compared.operands[0] == true:
            return [true]
    return [true, false]


_SAME: dict[str, int | None] = named(
    {
        kt.MaterializeOp: 1,
        arith.ExtSIOp: 1,
        arith.ExtUIOp: 1,
        arith.IndexCastOp: 1,
        arith.IndexCastUIOp: 1,
        arith.TruncIOp: 1,
        linalg.BroadcastOp: 1,
        linalg.TransposeOp: 1,
        tensor.CollapseShapeOp: 1,
        tensor.ConcatOp: None,
        tensor.ExpandShapeOp: 1,
        tensor.ExtractSliceOp: 1,
        tensor.InsertSliceOp: 2,
        tensor.PadOp: 1,
    }
)
"""Op -> how many of its operands are what its result has the values of; None: all."""

_COMMUTATIVE = names(arith.AddIOp, arith.MulIOp, arith.MinSIOp, arith.MinUIOp, arith.MaxSIOp, arith.MaxUIOp)

_BINARY: dict[str, Callable[[int, Range], int | None]] = named(
    {
        arith.AddIOp: lambda below, other: below - other[1],
        arith.SubIOp: lambda below, other: below + other[0],
        arith.MulIOp: lambda below, other: -(-below // other[1]) if other[1] > 0 else None,
        arith.DivSIOp: lambda below, other: below * other[0] if other[0] > 0 else None,
        arith.DivUIOp: lambda below, other: below * other[0] if other[0] > 0 else None,
        arith.FloorDivSIOp: lambda below, other: below * other[0] if other[0] > 0 else None,
        arith.MinSIOp: lambda below, other: below if other[1] >= below else None,
        arith.MinUIOp: lambda below, other: below if other[1] >= below else None,
        arith.MaxSIOp: lambda below, other: below,
        arith.MaxUIOp: lambda below, other: below,
        arith.RemSIOp: lambda below, other: below if other[1] > below else None,
        arith.RemUIOp: lambda below, other: below if other[1] > below else None,
    }
)
"""Op -> what its first operand must be less than, from that of the result and the interval of the second; None: nothing follows."""
