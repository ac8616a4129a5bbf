"""Loops of an author: as they are where every tile makes as many trips, written out where trips differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.points import Numbers, Points, is_index
from ktir.analysis.scalars.sets import dims_of, tile_boxes
from ktir.diagnostics import KtirError, Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, ir, is_a, scf
from ktir.passes.pinning.carried import begins, begun, carried, forms, yielded
from ktir.passes.pinning.tables import Table, Tables
from ktir.passes.pinning.values.counted import Integers
from ktir.passes.pinning.values.elements import Element, Leaf, Value, chosen, compared, integer, number, true
from ktir.passes.pinning.values.tensors import Shared, place_here, whole_dims
from ktir.passes.pinning.values.views import begins_before, is_distributed, split_dims, trips_inside

MOST_COPIES = 64
"""Trips or turns that are written out one after the other."""

Subscript = tuple[int, Numbers, int, Numbers]
"""Of an access: the dim of the view, the first position in it, how many, and the size of the dim."""


class Writer(Protocol):
    """What writes the bodies of loops."""

    points: Points
    mapping: dict[ir.Value, ir.Value]
    values: dict[ir.Value, Value]
    guard: ir.Value | None
    tables: Tables
    wanted: Sequence[Table] | None
    trips: list[tuple[ir.Value, int]]
    alive: Element | None
    integers: Integers
    written: int

    def block(self, block: ir.Block) -> None:
        """Write the ops of a block at the insertion point."""

    def value(self, value: ir.Value, op: ir.Operation) -> Value:
        """What a tensor is; raises Unsupported, which names `op`."""
        ...

    def counted(self, value: ir.Value, op: ir.Operation) -> Element:
        """What an index is as data; raises Unsupported, which names `op`."""
        ...


def write_loop(writer: Writer, op: ir.Operation) -> None:
    """Write a loop at the insertion point, and note what it leaves."""
    points = writer.points
    if any(writer.tables.is_data(v) for v in (op.operands[0], op.operands[2])):
        raise refused(op, "begins at, or steps by, a number that is read from memory, which is not pinned yet")
    lower, step = points(op.operands[0]), points(op.operands[2])
    each = points.same(step)
    if each is None or each <= 0:
        raise refused(op, "expects the same positive step on every tile")
    if writer.tables.is_data(op.operands[1]):
        upper = lower + each * _most_trips(op, points, writer.tables, lower, each)
    else:
        upper = points(op.operands[1])
    trips = np.broadcast_to(np.maximum(0, -(-(upper - lower) // each)), points.live.shape)
    running = trips[points.live]
    inits = [] if writer.wanted is not None else begins(op, [writer.values.get(v) for v in list(op.operands)[3:]])
    writer.values.update(zip(op.results, inits, strict=False))
    if not running.size or running.max() == 0:
        return
    least, most = int(running.min()), int(running.max())
    least = 0 if _decides(writer, op, lower, each, most) else min(least, _inside_views(writer, op, lower, each, most))
    if most - least > MOST_COPIES:
        raise refused(op, f"has up to {most - least} trips that only some tiles make or that branch, more than {MOST_COPIES}")
    if least:
        counters, live = points.counters(lower, each, least, op), trips[..., None] >= least
        _alike(writer, op, (least, most), counters, live, inits)
    outer = writer.guard
    for k in range(least, most):
        values, truth = [writer.values[r] for r in op.results] if inits else [], None
        if (running <= k).any():
            left = _left(writer, op, k)
            writer.guard, truth = both(outer, left), holds(writer.integers, left, op)
        ends = _trip(writer, op, (index_constant(k), most), lower[..., None] + each * k, trips[..., None] > k, values)
        if truth is not None:
            ends = _kept(truth, ends, values)
        writer.values.update(zip(op.results, ends, strict=False))
        writer.guard = outer


def _alike(
    writer: Writer, op: ir.Operation, trips: tuple[int, int], counters: Numbers, live: NDArray[np.bool_], inits: list[Value]
) -> None:
    """A loop of the first trips, of all that there are, which are the same on all tiles; of what it carries the forms are tried until one
    suits all ops."""
    refusals: list[tuple[int, Unsupported]] = []
    """Of each form how many ops were written before one did not suit, and why not."""
    for sticks in forms(op, inits):
        begin = writer.written
        try:
            starts = [begun(init, stick, op) for init, stick in zip(inits, sticks, strict=True)]
            loop = scf.ForOp(index_constant(0), index_constant(trips[0]), index_constant(1), starts)
        except Unsupported as error:
            refusals.append((0, error))
            continue
        arguments, guard = list(loop.inner_iter_args), writer.guard
        try:
            with ir.InsertionPoint(loop.body):
                given = [carried(a, v.shape, s) for a, v, s in zip(arguments, inits, sticks, strict=True)]
                left = _trip(writer, op, (loop.induction_variable, trips[1]), counters, live, given)
                ends = zip(left, arguments, sticks, strict=True)
                scf.YieldOp([yielded(v, a, s, op) for v, a, s in ends])
        except Unsupported as error:
            if not inits:
                raise
            refusals.append((writer.written - begin, error))
            writer.guard, writer.written = guard, begin
            loop.operation.erase()
            continue
        results = zip(op.results, loop.results, inits, sticks, strict=False)
        writer.values.update({old: carried(new, v.shape, s) for old, new, v, s in results})
        return
    raise max(refusals, key=lambda r: r[0])[1]


def _trip(
    writer: Writer, op: ir.Operation, trip: tuple[ir.Value, int], counters: Numbers, live: NDArray[np.bool_], given: Sequence[Value]
) -> list[Value]:
    """The body, as one trip of so many of the loop; what it leaves, which is what there was where data says that the author does not make
    it."""
    body, points = op.regions[0].blocks[0], writer.points
    begin, by = writer.mapping[op.operands[0]], writer.mapping[op.operands[2]]
    writer.mapping[body.arguments[0]] = arith.AddIOp(begin, arith.MulIOp(_like(by, trip[0]), by).result).result
    writer.values.update(zip(list(body.arguments)[1:], given, strict=False))
    shape = np.broadcast_shapes((*points.live.shape, 1), counters.shape)
    with points.loop(body.arguments[0], counters, np.broadcast_to(points.live[..., None] & live, shape)):
        outer, some = writer.alive, writer.tables.is_data(op.operands[1])
        writer.trips.append(trip)
        try:
            if some:
                writer.alive = _made(writer, op)
            writer.block(body)
            ends = list(body.operations)[-1].operands if given else []
            left = [whole_dims(v, writer.value(v, op), op) for v in ends]
            if some and writer.alive is not None:
                left = _kept(writer.alive, left, given)
        finally:
            writer.alive = outer
            writer.trips.pop()
    return left


def _kept(truth: Element, new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    """What a trip leaves: nothing new where it is not made."""
    return [Value(v.shape, chosen(truth, v.element, o.element)) for v, o in zip(new, old, strict=True)]


def holds(integers: Integers, truth: ir.Value, op: ir.Operation) -> Element:
    """Whether an index is 1 and not 0, as data."""
    found = integers.number(truth, 0, 1, op)
    assert found is not None
    return compared(arith.CmpIPredicate.ne, found, integer(0))


def _made(writer: Writer, op: ir.Operation) -> Element:
    """Whether the author makes a trip of a loop that ends where data says: one number that is read again and again."""
    counter = writer.counted(op.regions[0].blocks[0].arguments[0], op)
    truth = compared(arith.CmpIPredicate.slt, counter, writer.counted(op.operands[1], op))
    if writer.alive is not None:
        truth = chosen(writer.alive, truth, writer.alive)
    shared = Shared(Value((), number(truth)), place_here(), op)
    return true(Leaf(ir.F32Type.get(), shared, ()))


_MOST_TRIPS = 1 << 12


def _most_trips(op: ir.Operation, points: Points, tables: Tables, lower: Numbers, step: int) -> int:
    """Trips that a loop makes at the most which ends where data says: beyond them a load would lie outside of its view. Raises
    Unsupported."""
    body = op.regions[0].blocks[0]
    counters = points.counters(lower, step, _MOST_TRIPS, op)
    inner = np.ones((*points.live.shape, _MOST_TRIPS), bool)
    inner[..., -1] = False
    with points.loop(body.arguments[0], counters, np.broadcast_to(points.live[..., None], inner.shape)):
        for _, first, extent, size in _read(body, points, tables):
            inner &= (first >= 0) & (first + extent <= size)
    found = inner.argmin(-1)
    same = points.same(found)
    if same is None or same == _MOST_TRIPS - 1:
        what = "makes a number of trips that is read from memory, and no load in it says how many there are at the most, or not the same"
        raise refused(op, f"{what} number on all tiles; the nearest supported form loads from a view of as many rows, at the trip's")
    return same


def _read(block: ir.Block, points: Points, tables: Tables) -> Iterator[Subscript]:
    """What `subscripts` says of the loads that a block makes whatever happens, of loops in it in their first trip."""
    for view in block.operations:
        op = view.operation
        if is_a(op, ktdp.LoadOp) and not isinstance(op.operands[0].owner, ir.Block):
            yield from subscripts(op.operands[0].owner.operation, points, tables)
        elif is_a(op, scf.ForOp) and not any(tables.is_data(v) for v in list(op.operands)[:2]):
            lower, upper = points(op.operands[0]), points(op.operands[1])
            if (np.broadcast_to(upper - lower, points.live.shape)[points.live] > 0).all():
                body = op.regions[0].blocks[0]
                with points.loop(body.arguments[0], lower[..., None], points.live[..., None]):
                    for d, first, extent, size in _read(body, points, tables):
                        yield d, first[..., 0], extent, size[..., 0]


def subscripts(tile: ir.Operation, points: Points, tables: Tables) -> Iterator[Subscript]:
    """The subscripts of a tile, or of its tables, that are known before the kernel starts."""
    view = tile.opview
    if is_a(tile, ktdp.ConstructAccessTileOp):
        box = tile_boxes(tile)
        for part in box.parts:
            for d, (expression, low, (first, extent)) in enumerate(zip(view.base_map.results, box.corner, part, strict=True)):
                yield from _position(tile.operands[0], d, expression, list(view.index_operands), low + first, extent, points, tables)
    elif is_a(tile, ktdp.ConstructIndirectAccessTileOp) and (box := affine.set_box(tile.attributes["variables_space_set"])) is not None:
        for ends in (box[0], [low + n - 1 for low, n in zip(*box, strict=True)]):
            operands = [*view.captured, *(points.number(n) for n in ends)]
            for m, memory in view.subscripts:
                for d, expression in enumerate(m.results if memory is not None else ()):
                    yield from _position(memory, d, expression, operands, 0, 1, points, tables)


def check_inside(op: ir.Operation, tile: ir.Operation, points: Points, tables: Tables) -> None:
    """Raise KtirError where the tile that an op accesses lies outside of its view in a dim that does not clip: as the executor does."""
    for dim, first, extent, size in subscripts(tile, points, tables):
        at, end = (np.broadcast_to(n, points.live.shape)[points.live] for n in (first, size))
        beyond = (at < 0) | (at + extent > end)
        if beyond.any():
            k = int(beyond.argmax())
            what = f"{'writes' if is_a(op, ktdp.StoreOp) else 'reads'} coordinates {at[k]} to {at[k] + extent - 1} in dim {dim}"
            raise KtirError(f"'{op.name}' op {what} of a view of size {end[k]}", location_text(op.location))


def _position(
    memory: ir.Value, dim: int, expression: ir.AffineExpr, operands: list[Any], low: int, extent: int, points: Points, tables: Tables
) -> Iterator[Subscript]:
    view = memory.owner
    read = [operands[k] for k in dims_of(expression)]
    known = not any(isinstance(v, ir.Value) and tables.is_data(v) for v in read)
    if known and is_a(view, ktdp.ConstructMemoryViewOp) and not view.opview.clips(dim):
        yield dim, points.affine(expression, operands) + low, extent, points.number(view.opview.sizes[dim])


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
    counters = points.counters(lower, step, trips, op)
    live = np.broadcast_to(points.live[..., None], (*points.live.shape, trips))
    if trips > 1 and any(_walks_parts(inner, body.arguments[0], points) for inner in inside(body)):
        return True
    with points.loop(body.arguments[0], counters, live):
        return any(
            is_a(inner, scf.IfOp) and _reads(inner.operands[0], body.arguments[0]) and not _steady(points(inner.operands[0]))
            for inner in inside(body)
        ) or (
            trips <= MOST_COPIES
            and any(begins_before(inner, points) or (trips > 2 and _jumps(inner, writer, live)) for inner in inside(body))
        )


def _inside_views(writer: Writer, op: ir.Operation, lower: Numbers, step: int, trips: int) -> int:
    """How many trips are alike: those behind them, a few, hang over views in a way that takes a trip of its own."""
    body, points = op.regions[0].blocks[0], writer.points
    live = np.broadcast_to(points.live[..., None], (*points.live.shape, trips))
    with points.loop(body.arguments[0], points.counters(lower, step, trips, op), live):
        found = min((trips_inside(inner, points, trips) for inner in inside(body)), default=trips)
    return found if trips - found <= MOST_COPIES else trips


def _walks_parts(tile: ir.Operation, counter: ir.Value, points: Points) -> bool:
    """Whether trips may access other parts of a distributed view."""
    if not is_a(tile, ktdp.ConstructAccessTileOp) or not is_distributed(tile):
        return False
    operands = tile.opview.index_operands
    moving = {k for k, v in enumerate(operands) if _reads(v, counter)}
    return any(moving & dims_of(tile.opview.base_map.results[d]) for d in split_dims(tile.operands[0].owner.operation, points))


def _jumps(op: ir.Operation, writer: Writer, live: NDArray[np.bool_]) -> bool:
    """Whether an op divides what counts a loop's trips, and an address is computed from what it gives: a number that no steps of one size
    give, and no turns between slots, which no address generator follows."""
    points = writer.points
    if not is_a(op, *_DIVIDES) or not is_index(op.results[0].type) or not _addresses(op.results[0]):
        return False
    try:
        found, counted, by = points(op.results[0]), points(op.operands[0]), points(op.operands[1])
    except Unsupported:  # it counts an inner loop's, or is data
        return False
    if found.shape[-1] == 1 or _is_line(found, live):
        return False
    size = points.same(by)
    turns = is_a(op, arith.RemUIOp, arith.RemSIOp) and size is not None and _is_line(counted, live)
    return not turns or bool((np.diff(counted, axis=-1) % size != 1).any() or found[..., 0].any())


def _is_line(found: Numbers, live: NDArray[np.bool_]) -> bool:
    """Whether a number steps by the same from trip to trip, wherever it is needed."""
    steps = np.diff(np.broadcast_to(found, live.shape), axis=-1)[live[..., 1:]]
    return not steps.size or bool((steps == steps[0]).all())


def _addresses(value: ir.Value) -> bool:
    """Whether an access tile or a view is made from a value."""
    users = [use.owner.operation for use in value.uses]
    made = (ktdp.ConstructAccessTileOp, ktdp.ConstructIndirectAccessTileOp, ktdp.ConstructMemoryViewOp)
    return any(is_a(op, *made) or (op.name.startswith("arith.") and any(_addresses(r) for r in op.results)) for op in users)


_DIVIDES = (arith.DivUIOp, arith.DivSIOp, arith.FloorDivSIOp, arith.CeilDivSIOp, arith.CeilDivUIOp, arith.RemUIOp, arith.RemSIOp)


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
