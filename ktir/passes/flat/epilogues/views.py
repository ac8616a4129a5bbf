"""Who reads a value, be it through views of it, and the same views of another value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ktir.dialects.structured import elementwise, maps_of
from ktir.mlir import ir, is_a, linalg, tensor
from ktir.passes.flat.memory.windows import moved_dims, shape


class Reading(NamedTuple):
    """An operand of an op, behind some views of the value: reshapes, slices, transpositions."""

    op: ir.Operation
    operand: int
    views: tuple[ir.Operation, ...]


def is_transposition(op: ir.Operation) -> bool:
    """Whether an op puts dims in another order, and nothing else."""
    return (dims := moved_dims(op)) is not None and None not in dims


def readings(value: ir.Value, views: tuple[ir.Operation, ...] = ()) -> Iterator[Reading]:
    """All that is read of a value, one after the other."""
    for use in value.uses:
        op = use.owner.operation
        if _is_view(op, use.operand_number):
            yield from readings(op.results[0], (*views, op))
        else:
            yield Reading(op, use.operand_number, views)


def _is_view(op: ir.Operation, operand: int) -> bool:
    """Whether an op is a view of that operand."""
    return operand == 0 and (is_a(op, tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractSliceOp) or is_transposition(op))


def by_op(found: Iterable[Reading]) -> dict[ir.Operation, list[Reading]]:
    """What each op reads."""
    ops: dict[ir.Operation, list[Reading]] = {}
    for reading in found:
        ops.setdefault(reading.op, []).append(reading)
    return ops


def seen(whole: ir.Value, views: tuple[ir.Operation, ...], made: dict[ir.Operation, ir.Value]) -> ir.Value:
    """The same views of the tensor `whole`; those that are `made` already are taken from there."""
    for view in views:
        if view not in made:
            with ir.InsertionPoint(view), view.location:
                made[view] = _same_view(view, whole)
        whole = made[view]
    return whole


def _same_view(view: ir.Operation, of: ir.Value) -> ir.Value:
    element, sizes = ir.RankedTensorType(of.type).element_type, list(shape(view.results[0]))
    if is_a(view, linalg.GenericOp):
        read, written = ([ir.AffineDimExpr(e).position for e in m.results] for m in maps_of(view))
        return elementwise([of], tensor.EmptyOp(sizes, element).result, walks=[[written.index(loop) for loop in read]])
    attributes = {name: view.attributes[name] for name in view.attributes}
    type_ = ir.RankedTensorType.get(sizes, element)
    return ir.Operation.create(view.name, [type_], [of, *list(view.operands)[1:]], attributes).results[0]


def erase_views(value: ir.Value) -> None:
    """Erase the views of a value, which nothing reads any more."""
    for use in list(value.uses):
        if _is_view(op := use.owner.operation, use.operand_number):
            erase_views(op.results[0])
            op.erase()
