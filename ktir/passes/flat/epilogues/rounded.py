"""Sums of a matmul that all of their readers round first are rounded once, behind the matmul.

Columns that are heads are split, and heads into halves for a rotation, or heads become columns again: each part is read by ops of its own,
which do not all read the same elements, so that they share no scalar (`shared`). What crosses kernels is then the rounded number, of half
the bytes.
"""

from __future__ import annotations

from ktir.dialects.structured import Generic, clone_ops, elementwise, generic
from ktir.mlir import arith, func, ir, is_a, linalg, tensor
from ktir.passes.flat.epilogues.views import Reading, by_op, erase_views, is_transposition, readings, seen
from ktir.passes.flat.memory.windows import shape


def round_once(function: func.FuncOp) -> None:
    """Give the matmuls of `function` whose sums are read through views an op that rounds them, if that is what all readers do first.

    Scores of an attention, which has a matmul for each head and does not put its dims in another order, are the business of its softmax,
    which takes them block by block.
    """
    generics = [Generic(op.operation) for op in function.regions[0].blocks[0].operations if is_a(op, linalg.GenericOp)]
    for g, contraction in [(g, g.contraction) for g in generics]:
        if contraction is not None:
            _round(g.op.results[0], transposed=bool(contraction.batch))


def _round(sums: ir.Value, *, transposed: bool) -> None:
    """`transposed`: only where dims are put in another order."""
    found = list(readings(sums))
    types = {_rounded_to(reading) for reading in found}
    views = [view for reading in found for view in reading.views]
    if len(types) != 1 or None in types or not (any(map(is_transposition, views)) if transposed else views):
        return
    (element,) = types
    assert element is not None
    made = dict[ir.Operation, ir.Value]()
    with ir.InsertionPoint.after(sums.owner.operation), sums.owner.location:
        whole = elementwise([sums], tensor.EmptyOp(list(shape(sums)), element).result, lambda x: arith.TruncFOp(element, x[0]).result)
    for op, some in by_op(found).items():
        _read(op, {reading.operand: seen(whole, reading.views, made) for reading in some})
    erase_views(sums)


def _rounded_to(reading: Reading) -> ir.Type | None:
    """The type that an op rounds all it reads to; None if it does something else with it."""
    if not is_a(reading.op, linalg.GenericOp) or reading.operand >= len(Generic(reading.op).inputs):
        return None
    rounding = _roundings(reading.op, reading.operand)
    types = {op.results[0].type for op in rounding if is_a(op, arith.TruncFOp)}
    return next(iter(types)) if len(types) == 1 and all(is_a(op, arith.TruncFOp) for op in rounding) else None


def _roundings(op: ir.Operation, operand: int) -> list[ir.Operation]:
    return [use.owner.operation for use in Generic(op).body.arguments[operand].uses]


def _read(op: ir.Operation, rounded: dict[int, ir.Value]) -> None:
    """Let an op read rounded operands."""
    g = Generic(op)
    gone = {rounding: i for i in rounded for rounding in _roundings(op, i)}

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = dict(zip(g.body.arguments, arguments, strict=True))
        mapping |= {rounding.results[0]: arguments[i] for rounding, i in gone.items()}
        clone_ops([inner for inner in g.body_ops if inner not in gone], mapping)
        return mapping[g.yielded]

    with ir.InsertionPoint(op), op.location:
        inputs = [rounded.get(i, value) for i, value in enumerate(g.inputs)]
        result = generic(inputs, g.init, g.maps, g.iterators, body, loc=op.location)
    op.results[0].replace_all_uses_with(result)
    op.erase()
