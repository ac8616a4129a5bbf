"""Tensors that a loop carries from trip to trip: each lies in one form, in one buffer that every trip updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from ktir.diagnostics import refused
from ktir.dialects.structured import Generic, elementwise, fill
from ktir.mlir import arith, ir, is_a, linalg, tensor
from ktir.passes.pinning.values.elements import Leaf, Number, Value
from ktir.passes.pinning.values.rows import physical_shape
from ktir.passes.pinning.values.tensors import Made, choose_stick, pointwise, whole_dims

_MOST_FORMS = 16


def forms(op: ir.Operation, inits: Sequence[Value]) -> Iterator[tuple[int | None, ...]]:
    """Which dim of each carried tensor might lie in its sticks, the likeliest first: the last; none, of one number per row; any other."""
    each = []
    for init in inits:
        walked = [d for d, n in enumerate(init.shape) if n != 1]
        first = choose_stick(init, walked[-1] if walked else None)
        others = [None, *reversed(walked)] if len(walked) < 2 else [*reversed(walked), None]
        each.append([first, *(d for d in others if d != first)])
    for number, found in enumerate(product(*each)):
        if number == _MOST_FORMS:
            return
        yield found


def begun(init: Value, stick: int | None, op: ir.Operation) -> ir.Value:
    """The buffer that a loop begins with: nobody else's."""
    shape = _buffer(init.shape, stick)
    if isinstance(init.element, Number):
        return fill(arith.ConstantOp(init.type, init.element.value).result, tensor.EmptyOp(shape, init.type).result)
    return _copy(pointwise(init, stick, op), shape)


def _buffer(shape: Sequence[int], stick: int | None) -> list[int]:
    """The shape of what a loop updates in place: at least two rows, since of a single one a corelet would still read what the other one has
    written."""
    sticks, rows, lanes = physical_shape(shape, stick)
    return [sticks, max(2, rows), lanes]


def carried(argument: ir.Value, shape: tuple[int, ...], stick: int | None) -> Value:
    """What a trip, or what comes after the loop, finds."""
    type_ = ir.RankedTensorType(argument.type).element_type
    return Value(shape, Leaf(type_, Made(argument, shape, stick), tuple(range(len(shape)))))


def yielded(value: Value, argument: ir.Value, stick: int | None, op: ir.Operation) -> ir.Value:
    """What a trip leaves for the next one, at the end of its body: computed where the old value lies if nobody reads that any more."""
    made, shape = pointwise(value, stick, op), _buffer(value.shape, stick)
    owner, block = made.owner, argument.owner
    fits = list(ir.RankedTensorType(made.type).shape) == shape and not list(made.uses)
    here = is_a(owner, linalg.GenericOp) and owner.operation.block == block and Generic(owner).is_pointwise
    if fits and here and all(_before(u.owner, owner, block) for u in argument.uses):
        return made
    return _copy(made, shape)


def _before(user: ir.Operation | ir.OpView, op: ir.Operation | ir.OpView, block: ir.Block) -> bool:
    """Whether `user`, perhaps in a loop of the block, does not come behind `op`."""
    inner = user.operation
    while inner.block != block:
        inner = inner.parent.operation
    order = [o.operation for o in block.operations]
    return order.index(inner) <= order.index(op.operation)


def _copy(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    row = 1 if type_.shape[1] == shape[1] else None
    return elementwise([value], tensor.EmptyOp(list(shape), type_.element_type).result, walks=[[0, row, 2]])


def begins(op: ir.Operation, values: Sequence[Value | None]) -> list[Value]:
    """What an author's loop begins with. Raises Unsupported for what is no tensor with content."""
    for value, operand in zip(values, list(op.operands)[3:], strict=True):
        if value is None or not isinstance(operand.type, ir.RankedTensorType):
            raise refused(op, f"carries '{operand.type}' without content, or what is no tensor, which is not pinned yet")
    return [whole_dims(given, v, op) for given, v in zip(list(op.operands)[3:], values, strict=True) if v is not None]
