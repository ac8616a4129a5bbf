"""Sums of a matmul that all of their readers round first are rounded once, behind the matmul.

Columns that are heads are split, and heads into halves for a rotation: each part is read by ops of its own, which do not all read the same
elements, so that they share no scalar (`shared`). What crosses kernels is then the rounded number, of half the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ktir.dialects.structured import Generic, clone_ops, elementwise, generic
from ktir.mlir import arith, func, ir, is_a, linalg, names, tensor
from ktir.passes.flat.memory.windows import shape

_VIEWS = names(tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractSliceOp)


class _Reading(NamedTuple):
    """An operand of an op, behind some views of the sums."""

    op: ir.Operation
    operand: int
    views: tuple[ir.Operation, ...]


def round_once(function: func.FuncOp) -> None:
    """Give the matmuls of `function` whose sums are read through views an op that rounds them, if that is what all readers do first.

    Scores of an attention, which has a matmul for each head, are the business of its softmax, which takes them block by block.
    """
    generics = [Generic(op.operation) for op in function.regions[0].blocks[0].operations if is_a(op, linalg.GenericOp)]
    for matmul in [g for g in generics if (contraction := g.contraction) is not None and not contraction.batch]:
        _round(matmul.op.results[0])


def _round(sums: ir.Value) -> None:
    readings = list(_readings(sums, ()))
    types = {_rounded_to(reading) for reading in readings}
    if len(types) != 1 or None in types or not any(reading.views for reading in readings):
        return
    (element,) = types
    assert element is not None
    made = dict[ir.Operation, ir.Value]()
    with ir.InsertionPoint.after(sums.owner.operation), sums.owner.location:
        whole = elementwise([sums], tensor.EmptyOp(list(shape(sums)), element).result, lambda x: arith.TruncFOp(element, x[0]).result)
    by_op = dict[ir.Operation, list[_Reading]]()
    for reading in readings:
        by_op.setdefault(reading.op, []).append(reading)
    for op, some in by_op.items():
        _read(op, {reading.operand: _seen(whole, reading.views, made) for reading in some})
    for view in reversed([*_views(sums)]):  # also those that nothing reads
        view.erase()


def _views(value: ir.Value) -> Iterator[ir.Operation]:
    """All views of a value, each in front of those of its own."""
    for use in value.uses:
        if (op := use.owner.operation).name in _VIEWS and use.operand_number == 0:
            yield op
            yield from _views(op.results[0])


def _readings(value: ir.Value, views: tuple[ir.Operation, ...]) -> Iterator[_Reading]:
    """All that is read of a value, one after the other."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in _VIEWS and use.operand_number == 0:
            yield from _readings(op.results[0], (*views, op))
        else:
            yield _Reading(op, use.operand_number, views)


def _rounded_to(reading: _Reading) -> ir.Type | None:
    """The type that an op rounds all it reads to; None if it does something else with it."""
    if not is_a(reading.op, linalg.GenericOp) or reading.operand >= len(Generic(reading.op).inputs):
        return None
    rounding = _roundings(reading.op, reading.operand)
    types = {op.results[0].type for op in rounding if is_a(op, arith.TruncFOp)}
    return next(iter(types)) if len(types) == 1 and all(is_a(op, arith.TruncFOp) for op in rounding) else None


def _roundings(op: ir.Operation, operand: int) -> list[ir.Operation]:
    return [use.owner.operation for use in Generic(op).body.arguments[operand].uses]


def _seen(whole: ir.Value, views: tuple[ir.Operation, ...], made: dict[ir.Operation, ir.Value]) -> ir.Value:
    """The same views of the rounded tensor."""
    for view in views:
        if view not in made:
            type_ = ir.RankedTensorType.get(list(shape(view.results[0])), ir.RankedTensorType(whole.type).element_type)
            with ir.InsertionPoint(view), view.location:
                copy = ir.Operation.create(
                    view.name, [type_], [whole, *list(view.operands)[1:]], {a: view.attributes[a] for a in view.attributes}
                )
            made[view] = copy.results[0]
        whole = made[view]
    return whole


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
