"""Access tiles of an author that look one dim up in memory, as views of sticks: rows are gathered or scattered, lanes never are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from itertools import pairwise
from math import prod

from ktir.analysis.points import Points
from ktir.analysis.scalars.sets import dims_of
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.dialects.structured import index_constant, index_sum
from ktir.mlir import arith, i32_type, ir
from ktir.passes.pinning.values.places import MOST_PIECES, Dim, Place, Row, Size, built, held, sticks, times
from ktir.passes.pinning.values.views import View, Window, alone
from ktir.target import LANES


class LookedUp(Place):
    """What a tile is on of which one dim is looked up: `looked_dim` has its positions and the distance between them. The table is read at
    `table`, and on by `steps` along the tile's dims."""

    base: ir.Value
    table: ir.Value
    looked_dim: tuple[int, int]
    steps: list[int]

    def __init__(
        self, tile: ir.Operation, points: Points, guard: ir.Value | None, view: View, order: Sequence[int], extents: Sequence[int]
    ) -> None:
        """`order`: the variable, or the dim of the base, along each dim of the tile; `extents`: positions of each variable."""
        self.op, self.points, self.guard, self.live, self.view, self.element = tile, points, guard, points.live, view, held(view.element)
        self.order, self.extents = order, extents

    @property
    def looked_up(self) -> tuple[int, ...]:
        """The dims along which the table is read on."""
        return tuple(d for d, (dim, step) in enumerate(zip(self.dims, self.steps, strict=True)) if step and dim.extent != 1)

    def pieces(self) -> list[tuple[Place, Window]]:
        """It, or its positions along the table one by one where rows have other dims besides, each with what it is of the variables."""
        order = self.order
        whole = {v: (0, n) for v, n in enumerate(self.extents)}
        found = self.looked_up
        others = [d for d, dim in enumerate(self.dims) if d not in found and dim.extent != 1]
        if not found or (len(others) <= 1 and all(not self.dims[d].stride for d in found)):
            return [(self, tuple(whole.values()))]
        (at, *more) = found
        count = self.dims[at].extent
        if more or count > MOST_PIECES:
            what = f"looks rows of several dims up, along more than one dim or {MOST_PIECES} positions"
            raise refused(self.op, f"{what}, which is not pinned yet")
        return [(self.narrowed(at, k, 1), tuple((whole | {order[at]: (k, 1)}).values())) for k in range(count)]

    def narrowed(self, dim: int, first: int, extent: int) -> Place:
        found, whole = copy(self), self.dims[dim]
        found.base = index_sum(self.base, first * whole.stride)
        found.table = index_sum(self.table, first * self.steps[dim])
        found.dims = list(self.dims)
        found.dims[dim] = Dim(extent, whole.stride, 0)
        return found

    def tile(self, stick: int | None, rows: Sequence[Row], multiple: int) -> ir.Value:
        found, size_of, strides = self.looked_up, *self.looked_dim
        if stick in found:
            raise refused(self.op, "looks up the dim that lies in the sticks, which no instruction does")
        column = self.dims[stick] if stick is not None else None
        walked = [r for r in rows if r.extent != 1]
        at = [next((d for d, dim in enumerate(self.dims) if dim is r.dim), None) for r in walked]
        if found and set(found) != set(at):
            raise refused(self.op, "looks up other dims than those that are its rows, which is not pinned yet")
        distances = [0 if d is None else self.steps[d] if found else self.dims[d].stride for d in at]
        for (outer, _), (inner, row) in pairwise(zip(distances, walked, strict=True)):
            if outer != inner * row.extent:
                raise refused(self.op, "has rows along two dims that are no one dim in memory, which is not pinned yet")
        distance = distances[-1] if distances else LANES
        count = prod(r.extent for r in rows)
        moved = -(-count // multiple) * multiple if multiple > 2 or count > 1 else count
        size: Size = count
        listed: Size = 1
        if self.guard is not None and not found and multiple > 1:  # a load of one place takes some row where it has none
            listed, size = self.guard, index_constant(count) if moved != count else count
        elif self.guard is not None:
            size = arith.MulIOp(self.guard, index_constant(count)).result
        elif moved != count:
            size = index_constant(count)
        lane, extent = (1, 1) if column is None else (column.stride, column.extent)
        table = ktdp.construct_memory_view(self.table, [size if found else listed], [distance if found else 1], i32_type())
        sizes: list[Size] = [sticks(extent), *([] if found else [size]), size_of, LANES]
        attributes: dict[str, ir.Attribute] = {}
        if extent % LANES:
            clipped = affine.clipped([n if isinstance(n, int) else None for n in sizes], 0, extent - 1)
            attributes = {"coordinate_set": clipped, "masked": ir.UnitAttr.get()}
        steps = [LANES * lane, *([] if found else [distance]), strides, lane]
        memory = ktdp.construct_memory_view(self.base, sizes, steps, self.element, attributes=attributes)
        d0, d1, d2 = (ir.AffineExpr.get_dim(d) for d in range(3))
        zero = ir.AffineExpr.get_constant(0)
        subscripts = [d0, (table, [d1]), d2] if found else [d0, d1, (table, [zero]), d2]
        return ktdp.construct_indirect_access_tile(memory, subscripts, [sticks(extent), moved, LANES])


class IndirectPlace(LookedUp):
    """What an indirect access tile of one look-up is on, with the author's table."""

    def __init__(
        self,
        tile: ir.Operation,
        points: Points,
        base: Callable[[View], ir.Value],
        index: Callable[[ir.Value], ir.Value],
        guard: ir.Value | None,
    ) -> None:
        """`base`: where a view begins."""
        op = tile.opview
        box = affine.set_box(op.attributes["variables_space_set"])
        if box is None:
            raise refused(tile, "has variables whose set is no box of numbers, which is not pinned yet")
        super().__init__(tile, points, guard, alone(op.base, tile, points), op.order, box[1])
        self.lows, self.captured = box[0], [index(v) for v in op.captured]
        looked_up = [(dim, m, view) for dim, (m, view) in enumerate(op.subscripts) if view is not None]
        if len(looked_up) != 1:
            what = f"looks {len(looked_up)} dims up, but an instruction looks up one"
            raise refused(tile, f"{what}; the nearest supported form has a table of places in the base as one dim")
        ((dim, subscript, view),) = looked_up
        memory = alone(view, tile, points)
        if memory.masked or memory.local or self.view.masked or self.view.local or not isinstance(self.view.sizes[dim], int):
            raise refused(tile, "looks up in a view that is masked or in the scratchpad, or has it as its table, which is not pinned yet")
        direct = [(m.results[0], self.view.strides[d]) for d, (m, v) in enumerate(op.subscripts) if v is None]
        start, strides = self._walk(direct)
        first, steps = self._walk(list(zip(subscript.results, memory.strides, strict=True)))
        self.base = index_sum(base(self.view), index_sum(start, self.view.shift))
        self.table = index_sum(base(memory), index_sum(first, memory.shift))
        self.looked_dim = (int(self.view.sizes[dim]), self.view.strides[dim])
        self.dims = [Dim(self.extents[v], strides[v], 0) for v in op.order]
        self.steps = [steps[v] for v in op.order]

    def _walk(self, subscripts: Sequence[tuple[ir.AffineExpr, int]]) -> tuple[Size, list[int]]:
        """Of a sum of subscripts times strides: where it begins, and how it steps along each variable."""
        start: Size = 0
        strides = [0] * len(self.extents)
        for expression, stride in subscripts:
            start = index_sum(start, times(built(expression, [*self.captured, *self.lows], self.op), stride))
            for v, factor in linear(expression, len(self.captured), self.extents, self.op).items():
                strides[v] += factor * stride
        return start, strides


def is_linear(expression: ir.AffineExpr, captured: int, extents: Sequence[int]) -> bool:
    """Whether a subscript steps evenly along each variable."""
    if not isinstance(expression, ir.AffineBinaryExpr):
        return True
    binary = ir.AffineBinaryExpr(expression)
    if isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        return all(is_linear(e, captured, extents) for e in (binary.lhs, binary.rhs))
    return not any(d >= captured and extents[d - captured] != 1 for d in dims_of(expression))


def linear(expression: ir.AffineExpr, captured: int, extents: Sequence[int], op: ir.Operation) -> dict[int, int]:
    """How a subscript, whose first dims are `captured`, steps along each variable of several positions. Raises Unsupported where it is not
    linear."""
    if isinstance(expression, ir.AffineDimExpr):
        v = ir.AffineDimExpr(expression).position - captured
        return {v: 1} if v >= 0 and extents[v] != 1 else {}
    if isinstance(expression, ir.AffineConstantExpr):
        return {}
    binary = ir.AffineBinaryExpr(expression)
    left, right = (linear(e, captured, extents, op) for e in (binary.lhs, binary.rhs))
    if isinstance(expression, ir.AffineAddExpr):
        return {v: left.get(v, 0) + right.get(v, 0) for v in left | right}
    if isinstance(expression, ir.AffineMulExpr) and isinstance(binary.rhs, ir.AffineConstantExpr):
        return {v: n * ir.AffineConstantExpr(binary.rhs).value for v, n in left.items()}
    if left or right:
        raise refused(op, "has a subscript that is not linear in its variables, which is not pinned yet")
    return {}
