"""One kernel of an author as a function without a grid: what all its tiles do together, on whole tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import prod

import numpy as np

from ktir.analysis.points import Points, is_index
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.structured import moved_by
from ktir.mlir import arith, func, ir, is_a, linalg, scf, tensor
from ktir.passes.lifting.axes import Access, Axes, Axis
from ktir.passes.lifting.forms import element_type, form_of, shape_of, splat
from ktir.passes.lifting.structured_ops import aligned
from ktir.passes.lifting.trips import TripOps
from ktir.passes.lifting.values import Carried, Decided, Number, Position, Total, Value, Whole

_VIEWS = (ktdp.ConstructMemoryViewOp, ktdp.ConstructDistributedMemoryViewOp, ktdp.ConstructAccessTileOp, ktdp.GetComputeTileIdOp)


class Lifter:
    """Writes the body of the function at the insertion point."""

    def __init__(self, source: func.FuncOp, arguments: Mapping[ir.Value, ir.Value], given: Mapping[int, float]) -> None:
        body = source.regions[0].blocks[0]
        self.points = Points(source.operation, {i: int(n) for i, n in given.items() if is_index(body.arguments[i].type)})
        self.axes = Axes(self.points)
        self.ops = TripOps(self.axes)
        self.arguments = arguments
        self.values: dict[ir.Value, Value] = {}
        self.loaded: list[Access] = []
        self.stored: list[Access] = []
        for i, number in given.items():
            type_ = body.arguments[i].type
            if not is_index(type_):
                self.values[body.arguments[i]] = Number(ir.FloatAttr.get(type_, number))

    def block(self, block: ir.Block) -> None:
        """Write the ops of a block."""
        for view in block.operations:
            with view.operation.location:
                self._op(view.operation)

    def _op(self, op: ir.Operation) -> None:
        if is_a(op, *_VIEWS, func.ReturnOp, scf.YieldOp, tensor.EmptyOp):
            pass
        elif is_a(op, ktdp.LoadOp):
            self.values[op.results[0]] = self._loaded(op)
        elif is_a(op, ktdp.StoreOp):
            self._stored(op)
        elif is_a(op, scf.ForOp):
            self._loop(op)
        elif is_a(op, scf.IfOp):
            self._branches(op)
        elif op.results and all(is_index(r.type) for r in op.results):
            pass  # known at every point
        else:
            self._tensor(op)

    def _tensor(self, op: ir.Operation) -> None:
        (result,) = op.results if len(op.results) == 1 else (None,)
        if result is None:
            raise refused(op, "is not lifted")
        if is_a(op, arith.ConstantOp):
            self.values[result] = Number(splat(op))
        elif is_a(op, tensor.FromElementsOp) and len(op.operands) == 1:  # pyright: ignore[reportAttributeAccessIssue]
            self.values[result] = self._value(op.operands[0], op)
        elif is_a(op, linalg.FillOp, tensor.SplatOp):
            filled = self._value(op.operands[0], op)
            if not isinstance(filled, Number | Position):
                raise refused(op, "fills a tensor with a value that is no number")
            self.values[result] = filled
        elif is_a(op, tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractOp):
            self.values[result] = self._reshaped(op)
        else:
            form = form_of(op)
            if form is None:
                raise refused(op, "is not lifted")
            self.values[result] = self.ops.write(form, [self.values.get(v) for v in form.operands])

    def _value(self, value: ir.Value, op: ir.Operation) -> Value:
        if value not in self.values and is_index(value.type):
            return Position(self.points(value), {})
        if value not in self.values:
            raise refused(op, "reads a tensor without content")
        return self.values[value]

    def _reshaped(self, op: ir.Operation) -> Value:
        """Dims of one position come and go."""
        value = self._value(op.operands[0], op)
        if isinstance(value, Number):
            return value
        if isinstance(value, Position) and not value.steps:
            return value
        before, after = shape_of(op.operands[0]), shape_of(op.results[0])
        if not isinstance(value, Whole) or [n for n in before if n != 1] != [n for n in after if n != 1]:
            raise refused(op, "joins or splits dims, which is not lifted")
        rest = iter([d for d, n in zip(value.dims, before, strict=True) if n != 1])
        return Whole(value.value, value.axes, tuple(next(rest) if n != 1 else None for n in after), value.outside)

    # Memory

    def _loaded(self, op: ir.Operation) -> Whole:
        access = self.axes.access(op.operands[0].owner.operation)
        for other in self.stored:
            if not other.is_apart(access):
                raise refused(op, "reads memory that the kernel has written")
        self.loaded.append(access)
        view, axes = self._view(access)
        shape = [a.extent for a in axes] or [1]
        tile = ktdp.construct_access_tile(view, [0] * len(shape), shape)
        value = ktdp.load(tile, access.element)
        return Whole(value, tuple(axes) or (self.axes.whole(1),), _dims(access, axes), {a: 0.0 for a in axes if a.is_short})

    def _view(self, access: Access) -> tuple[ir.Value, list[Axis]]:
        """The whole of what all points access, and its axes in the order of memory."""
        dims = [d for d in access.dims if d.axis.extent > 1]
        base = moved_by(self.arguments[access.argument], access.start)
        sizes, strides = [d.axis.extent for d in dims] or [1], [d.stride for d in dims] or [1]
        return ktdp.construct_memory_view(base, sizes, strides, access.element), [d.axis for d in dims]

    def _stored(self, op: ir.Operation) -> None:
        if self.axes.carrying:
            raise refused(op, "stores inside of a loop that carries values")
        tile = op.operands[1].owner.operation
        access = self.axes.access(tile)
        self.axes.check_store(access, tile)
        for other in self.loaded:
            if not (other.is_apart(access) or other.same_elements(access)):
                raise refused(op, "writes memory that other tiles read")
        for other in self.stored:
            if not (other.is_apart(access) or other.same_elements(access)):
                raise refused(op, "writes memory that is written elsewhere, too")
        self.stored.append(access)
        axes = [d.axis for d in access.dims if d.axis.extent > 1]
        value = aligned(op, self._value(op.operands[0], op), axes, _dims(access, axes), element_type(op.operands[0]))
        view, _ = self._view(access)
        ktdp.store(value, ktdp.construct_access_tile(view, [0] * max(len(axes), 1), [a.extent for a in axes] or [1]))

    # Control

    def _loop(self, op: ir.Operation) -> None:
        points = self.points
        lower, upper, step = (points(v) for v in list(op.operands)[:3])
        each = points.same(step)
        if each is None or each <= 0:
            raise refused(op, "expects the same positive step on every tile")
        trips = np.broadcast_to(np.maximum(0, -(-(upper - lower) // each)), points.live.shape)
        most = int(trips[points.live].max(initial=0))
        inits = [self._value(v, op) for v in list(op.operands)[3:]]
        self.values.update(zip(op.results, inits, strict=True))
        if most == 0:
            return
        body, depth = op.regions[0].blocks[0], points.live.ndim
        once = bool((trips[points.live] == 1).all())  # nothing goes on
        counter, *carried = body.arguments
        for k, (argument, init) in enumerate(zip(carried, inits, strict=True)):
            if not isinstance(init, Number | Whole) or (isinstance(init, Whole) and init.relative is not None):
                raise refused(op, "begins with what another loop carries")
            self.values[argument] = init if once else Carried(k, depth, init)
        outer = points.live
        counters = points.counters(lower, each, most, op)
        live = np.logical_and(outer[..., None], trips[..., None] > np.arange(most))
        with points.loop(counter, counters, live):
            with self.axes.carried(depth, outer) if inits and not once else nullcontext():
                self.block(body)
        ends = list(list(body.operations)[-1].operands)
        left = [self._value(end, op) for end in ends] if once else self._left(op, carried, ends)
        if any(isinstance(value, Position | Decided) for value in left):
            raise refused(op, "carries positions")
        self.values.update(zip(op.results, left, strict=True))

    def _left(self, op: ir.Operation, carried: Sequence[ir.Value], ends: Sequence[ir.Value]) -> list[Value]:
        """What the last trip of a loop leaves."""
        found: list[Value] = []
        tops = [self.values.get(end) for end in ends]
        for argument, end in zip(carried, ends, strict=True):
            own, value = self.values[argument], self._value(end, op)
            assert isinstance(own, Carried)
            if value == own:
                found.append(own.init)
            elif isinstance(value, Total) and value.carried == own and (value.top is None or value.top in tops):
                found.append(value.whole)
            else:
                raise refused(op, "carries from trip to trip what is no sum, product or extreme over the trips, nor an online softmax")
        return found

    def _branches(self, op: ir.Operation) -> None:
        if len(op.results):
            raise refused(op, "gives values, which is not lifted")
        holds = np.broadcast_to(self.points(op.operands[0]) != 0, self.points.live.shape)
        for region, taken in zip(op.regions, (holds, ~holds), strict=True):
            if len(region.blocks) and taken[self.points.live].any():
                with self.points.branch(taken):
                    self.block(region.blocks[0])

    @property
    def tiles(self) -> int:
        """Tiles of the author's grid."""
        return prod(self.points.kernel.grid)


def _dims(access: Access, axes: Sequence[Axis]) -> tuple[int | None, ...]:
    """The dim of a whole tensor of each dim of a tile."""
    places = iter(range(len(axes)))
    of_memory = [next(places) if d.axis.extent > 1 else None for d in access.dims]
    return tuple(None if access.dims[d].axis.block == 1 else of_memory[d] for d in access.order)
