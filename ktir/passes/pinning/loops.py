"""Loops of an author: as they are where every tile makes as many trips, written out where trips differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.points import Numbers, Points
from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, ir, is_a, scf
from ktir.passes.pinning.carried import begins, begun, carried, forms, yielded
from ktir.passes.pinning.values.elements import Value, whole_dims
from ktir.passes.pinning.values.views import dims_of, is_distributed, split_dims

MOST_COPIES = 64
"""Trips or turns that are written out one after the other."""


class Writer(Protocol):
    """What writes the bodies of loops."""

    points: Points
    mapping: dict[ir.Value, ir.Value]
    values: dict[ir.Value, Value]
    guard: ir.Value | None

    def block(self, block: ir.Block) -> None:
        """Write the ops of a block at the insertion point."""

    def value(self, value: ir.Value, op: ir.Operation) -> Value:
        """What a tensor is; raises Unsupported, which names `op`."""
        ...


def write_loop(writer: Writer, op: ir.Operation) -> None:
    """Write a loop at the insertion point, and note what it leaves."""
    points = writer.points
    lower, upper, step = (points(v) for v in list(op.operands)[:3])
    each = points.same(step)
    if each is None or each <= 0:
        raise refused(op, "expects the same positive step on every tile")
    trips = np.broadcast_to(np.maximum(0, -(-(upper - lower) // each)), points.live.shape)
    running = trips[points.live]
    inits = begins(op, [writer.values.get(v) for v in list(op.operands)[3:]])
    writer.values.update(zip(op.results, inits, strict=True))
    if not running.size or running.max() == 0:
        return
    least, most = int(running.min()), int(running.max())
    if _decides(writer, op, lower, each, most):
        least = 0
    if most - least > MOST_COPIES:
        raise refused(op, f"has up to {most - least} trips that only some tiles make or that branch, more than {MOST_COPIES}")
    if inits and (running != most).any():
        raise refused(op, "carries tensors through trips that only some tiles make, which is not pinned yet")
    if least:
        counters, live = lower[..., None] + each * np.arange(least), trips[..., None] >= least
        _alike(writer, op, least, counters, live, inits)
    outer = writer.guard
    for k in range(least, most):
        if (running <= k).any():
            writer.guard = both(outer, _left(writer, op, k))
        values = [writer.values[r] for r in op.results]
        _trip(writer, op, index_constant(k), lower[..., None] + each * k, trips[..., None] > k, values)
        writer.values.update(zip(op.results, _ends(writer, op), strict=True))
        writer.guard = outer


def _alike(writer: Writer, op: ir.Operation, trips: int, counters: Numbers, live: NDArray[np.bool_], inits: list[Value]) -> None:
    """A loop whose trips are the same on all tiles; of what it carries the forms are tried until one suits all ops."""
    refusal: Unsupported | None = None
    for sticks in forms(op, inits):
        try:
            starts = [begun(init, stick, op) for init, stick in zip(inits, sticks, strict=True)]
            loop = scf.ForOp(index_constant(0), index_constant(trips), index_constant(1), starts)
        except Unsupported as error:
            refusal = refusal or error
            continue
        arguments, guard = list(loop.inner_iter_args), writer.guard
        try:
            with ir.InsertionPoint(loop.body):
                given = [carried(a, v.shape, s) for a, v, s in zip(arguments, inits, sticks, strict=True)]
                _trip(writer, op, loop.induction_variable, counters, live, given)
                ends = zip(_ends(writer, op), arguments, sticks, strict=True)
                scf.YieldOp([yielded(v, a, s, op) for v, a, s in ends])
        except Unsupported as error:
            if not inits:
                raise
            refusal, writer.guard = refusal or error, guard
            loop.operation.erase()
            continue
        results = zip(op.results, loop.results, inits, sticks, strict=True)
        writer.values.update({old: carried(new, v.shape, s) for old, new, v, s in results})
        return
    assert refusal is not None
    raise refusal


def _ends(writer: Writer, op: ir.Operation) -> list[Value]:
    """What the trip that was written last leaves."""
    return [whole_dims(v, writer.value(v, op), op) for v in list(op.regions[0].blocks[0].operations)[-1].operands]


def _trip(writer: Writer, op: ir.Operation, number: ir.Value, counters: Numbers, live: NDArray[np.bool_], given: Sequence[Value]) -> None:
    """The body, as trip `number` of the loop."""
    body, points = op.regions[0].blocks[0], writer.points
    begin, by = writer.mapping[op.operands[0]], writer.mapping[op.operands[2]]
    writer.mapping[body.arguments[0]] = arith.AddIOp(begin, arith.MulIOp(_like(by, number), by).result).result
    writer.values.update(zip(list(body.arguments)[1:], given, strict=True))
    shape = np.broadcast_shapes((*points.live.shape, 1), counters.shape)
    with points.loop(body.arguments[0], counters, np.broadcast_to(points.live[..., None] & live, shape)):
        writer.block(body)


def _left(writer: Writer, op: ir.Operation, k: int) -> ir.Value:
    """1 where a loop has a trip k."""
    begin, upper, by = (writer.mapping[v] for v in list(op.operands)[:3])
    at = arith.AddIOp(begin, arith.MulIOp(by, _number(by.type, k)).result).result
    left = arith.SubIOp(upper, arith.MinSIOp(at, upper).result).result
    if not isinstance(left.type, ir.IndexType):
        left = arith.IndexCastOp(ir.IndexType.get(), left).result
    return arith.MinSIOp(left, index_constant(1)).result


def _decides(writer: Writer, op: ir.Operation, lower: Numbers, step: int, trips: int) -> bool:
    """Whether a branch in a loop is taken in some of its trips only."""
    body, points = op.regions[0].blocks[0], writer.points
    counters = lower[..., None] + step * np.arange(trips)
    live = np.broadcast_to(points.live[..., None], (*points.live.shape, trips))
    if trips > 1 and any(_walks_parts(inner, body.arguments[0], points) for inner in inside(body)):
        return True
    with points.loop(body.arguments[0], counters, live):
        return any(
            is_a(inner, scf.IfOp) and _reads(inner.operands[0], body.arguments[0]) and not _steady(points(inner.operands[0]))
            for inner in inside(body)
        )


def _walks_parts(tile: ir.Operation, counter: ir.Value, points: Points) -> bool:
    """Whether trips may access other parts of a distributed view."""
    if not is_a(tile, ktdp.ConstructAccessTileOp) or not is_distributed(tile):
        return False
    operands = tile.opview.index_operands
    moving = {k for k, v in enumerate(operands) if _reads(v, counter)}
    return any(moving & dims_of(tile.opview.base_map.results[d]) for d in split_dims(tile.operands[0].owner.operation, points))


def _steady(found: Numbers) -> bool:
    return found.shape[-1] == 1 or bool((found == found[..., :1]).all())


def inside(block: ir.Block) -> list[ir.Operation]:
    found = []
    for view in block.operations:
        found.append(view.operation)
        for region in view.operation.regions:
            for inner in region.blocks:
                found += inside(inner)
    return found


def _reads(value: ir.Value, counter: ir.Value) -> bool:
    """Whether a value is computed from a counter."""
    if value == counter:
        return True
    return not isinstance(value.owner, ir.Block) and any(_reads(v, counter) for v in value.owner.operands)


def both(a: ir.Value | None, b: ir.Value) -> ir.Value:
    return b if a is None else arith.MulIOp(a, b).result


def _like(value: ir.Value, number: ir.Value) -> ir.Value:
    """A number of the type of another one."""
    return number if number.type == value.type else arith.IndexCastOp(value.type, number).result


def _number(type_: ir.Type, value: int) -> ir.Value:
    return arith.ConstantOp(type_, ir.IntegerAttr.get(type_, value)).result
