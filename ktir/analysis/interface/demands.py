"""What the values in a buffer must be less than, so that the indices which a program computes from them are in range.

Found backwards, from the memory of indices to what it is loaded from: through `ktir.materialize`, shape ops, bodies and arithmetic whose
other operand is known. Values in buffers are taken as not negative, so of a wrap (`x < 0 ? x + size : x`) the side counts that keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ktir.arithmetic.integers import PREDICATES
from ktir.mlir import ir

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
            if body.name == "linalg.generic":
                todo.append((body.operands[ir.BlockArgument(value).arg_number], below))
            else:
                yield demand
        elif owner.name == "ktdp.load":
            yield owner.operands[0], below
        elif owner.name.startswith("ktdp."):
            yield demand
        else:
            todo += _of_operands(ir.OpResult(value), below, number)


def _of_operands(result: ir.OpResult, below: int, number: Known) -> Sequence[Demand]:
    op = result.owner.operation
    if op.name in _SAME:
        return [(v, below) for v in list(op.operands)[: _SAME[op.name]]]
    if op.name == "ktir.sort":  # a result has the values of the operand in its place, in another order
        return [(op.operands[result.result_number], below)]
    if op.name == "linalg.generic":
        block = op.regions[0].blocks[0]
        return [(block.operations[len(block.operations) - 1].operands[result.result_number], below)]
    if op.name == "arith.select":
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
    if not isinstance(compared, ir.Block) and compared.name == "arith.cmpi" and number(compared.operands[1]) == (0, 0):
        predicate = PREDICATES[ir.IntegerAttr(compared.attributes["predicate"]).value]
        if predicate == "slt" and compared.operands[0] == false:
            return [false]
        if predicate == "sge" and compared.operands[0] == true:
            return [true]
    return [true, false]


_SAME = {
    "ktir.materialize": 1,
    "arith.extsi": 1,
    "arith.extui": 1,
    "arith.index_cast": 1,
    "arith.index_castui": 1,
    "arith.trunci": 1,
    "linalg.broadcast": 1,
    "linalg.transpose": 1,
    "tensor.collapse_shape": 1,
    "tensor.concat": None,
    "tensor.expand_shape": 1,
    "tensor.extract_slice": 1,
    "tensor.insert_slice": 2,
    "tensor.pad": 1,
}
"""Op -> how many of its operands are what its result has the values of; None: all."""

_COMMUTATIVE = ("arith.addi", "arith.muli", "arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui")

_BINARY: dict[str, Callable[[int, Range], int | None]] = {
    "arith.addi": lambda below, other: below - other[1],
    "arith.subi": lambda below, other: below + other[0],
    "arith.muli": lambda below, other: -(-below // other[1]) if other[1] > 0 else None,
    "arith.divsi": lambda below, other: below * other[0] if other[0] > 0 else None,
    "arith.divui": lambda below, other: below * other[0] if other[0] > 0 else None,
    "arith.floordivsi": lambda below, other: below * other[0] if other[0] > 0 else None,
    "arith.minsi": lambda below, other: below if other[1] >= below else None,
    "arith.minui": lambda below, other: below if other[1] >= below else None,
    "arith.maxsi": lambda below, other: below,
    "arith.maxui": lambda below, other: below,
    "arith.remsi": lambda below, other: below if other[1] > below else None,
    "arith.remui": lambda below, other: below if other[1] > below else None,
}
"""Op -> what its first operand must be less than, from that of the result and the interval of the second; None: nothing follows."""
