"""Access tiles of an author as views of sticks: one dim in the lanes, the others are rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np

from ktir.analysis.points import Numbers, Points
from ktir.analysis.scalars.sets import Span, tile_boxes
from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.dialects.structured import index_constant, index_sum
from ktir.mlir import arith, i32_type, ir
from ktir.passes.pinning.values.views import MOST_PIECES as MOST_PIECES
from ktir.passes.pinning.values.views import View, Window
from ktir.target import LANES

Size = int | ir.Value


@dataclass(frozen=True)
class Dim:
    """A dim of an access tile: `first` is its place in the view, beyond whose `size` a masked view clips."""

    extent: int
    stride: int
    first: Size
    size: Size | None = None
    room: Numbers | None = None
    """What is left of the size at each point; None where the tile never hangs over."""


@dataclass(frozen=True)
class Row:
    """A dim that is walked by rows: one of the tile, or one that it lacks."""

    extent: int
    dim: Dim | None


def even(rows: int) -> int:
    """Rows of a buffer: a block is halved over two corelets, but for a single row."""
    return rows if rows == 1 else rows + rows % 2


def held(element: ir.Type) -> ir.Type:
    """What the device has of an element type of the author's: integers in 32 bits, of i64 where a launch checks that they fit."""
    return i32_type() if isinstance(element, ir.IntegerType) else element


def sticks(extent: int) -> int:
    """Sticks of a dim."""
    return -(-extent // LANES)


def times(a: Size, b: int) -> Size:
    if isinstance(a, int):
        return a * b
    return a if b == 1 else arith.MulIOp(a, index_constant(b)).result


class Place:
    """What lies of an access tile in one view, where it stands: all values are of the new kernel."""

    @property
    def looked_up(self) -> tuple[int, ...]:
        """The dims whose positions are read from a table."""
        return ()

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks: those looked up, and those that are cut inside of a stick, elsewhere at each point."""
        return tuple(d for d, dim in enumerate(self.dims) if d in self.looked_up or not self._cut_alike(dim))

    def _cut_alike(self, dim: Dim) -> bool:
        """Whether a dim is cut at one place, or lies in whole sticks of its view."""
        if dim.room is None or self.points.same(dim.room, self.live) is not None:
            return True
        return isinstance(dim.size, int) and not dim.extent % LANES and not isinstance(dim.first, int)

    def __init__(
        self,
        tile: ir.Operation,
        view: View,
        window: Window,
        points: Points,
        base: ir.Value,
        index: Callable[[ir.Value], ir.Value],
        guard: ir.Value | None,
    ) -> None:
        """`base`: where the view begins."""
        self.op, self.guard, self.points, self.element, self.view, self.window = tile, guard, points, held(view.element), view, window
        self.live = points.live  # what is loaded may be asked for in a branch, where less is live
        operands = tile.opview.index_operands
        moved = {v: index(v) for v in operands}
        self.base: ir.Value = index_sum(base, view.shift)
        dims: list[Dim] = []
        lows = zip(tile.opview.base_map.results, tile_boxes(tile).corner, window, view.sizes, view.strides, strict=True)
        for expression, low, (start, extent), size, stride in lows:
            first = index_sum(built(expression, [moved[v] for v in operands], tile), low + start)
            room = None
            if view.masked:
                at = points.affine(expression, operands) + low + start
                room = points.number(size) - at
                if (np.broadcast_to(at, points.live.shape)[points.live] < 0).any():  # one position, which lies behind the view instead
                    end = index_constant(size) if isinstance(size, int) else index(size)
                    first = arith.MinUIOp(first if isinstance(first, ir.Value) else index_constant(first), end).result
                    room = np.where(at < 0, 0, room)
            if room is not None and (np.broadcast_to(room, points.live.shape)[points.live] >= extent).all():
                room = None
            dims.append(Dim(extent, stride, first, None if room is None else size if isinstance(size, int) else index(size), room))
        self.dims = [dims[d] for d in tile.opview.order]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(d.extent for d in self.dims)

    def starts(self, everywhere: bool = False) -> Numbers:
        """The elements at which it begins, of an address that is a number, wherever its text runs, or on all tiles."""
        tile = self.op.opview
        found = self.points(self.view.value) + self.view.shift
        lows = zip(tile.base_map.results, tile_boxes(self.op).corner, self.window, self.view.strides, strict=True)
        for expression, low, (start, _), stride in lows:
            found = found + (self.points.affine(expression, tile.index_operands) + low + start) * stride
        live = self.points.live | everywhere
        return np.unique(np.broadcast_to(found, live.shape)[live])

    def narrowed(self, dim: int, first: int, extent: int) -> Place:
        """Some positions of it along a dim, at the insertion point."""
        found, whole = copy(self), self.dims[dim]
        room = None if whole.room is None else whole.room - first
        found.dims = list(self.dims)
        found.dims[dim] = Dim(extent, whole.stride, index_sum(whole.first, first), whole.size, room)
        return found

    @property
    def splits(self) -> bool:
        """Whether its last dim can be two."""
        return type(self) is Place and self.dims[-1].room is None

    def split(self, dim: int, inner: int) -> Place:
        """The same, where a dim has become two, the second one of `inner` positions, at the insertion point."""
        found, whole = copy(self), self.dims[dim]
        found.base = index_sum(self.base, times(whole.first, whole.stride))
        found.dims = list(self.dims)
        found.dims[dim : dim + 1] = [Dim(whole.extent // inner, whole.stride * inner, 0), Dim(inner, whole.stride, 0)]
        return found

    def row_tile(self, stick: int | None, rows: Sequence[int]) -> ir.Value:
        """The access tile of a store whose rows are these dims of it."""
        return self.tile(stick, [Row(self.dims[d].extent, self.dims[d]) for d in rows], 1)

    def distance(self, rows: Sequence[Row]) -> int | None:
        """How far rows are apart in one walk; None where no one walk reaches all of them."""
        try:
            return self.merged(rows)[1]
        except Unsupported:
            return None

    def tile(self, stick: int | None, rows: Sequence[Row], multiple: int) -> ir.Value:
        """The access tile [sticks, rows, 64] at the insertion point, with rows up to a multiple: a store moves those that there are (1), a
        load one more to make them even (2), where they are several."""
        count = prod(r.extent for r in rows)
        outer, stride = self.merged(rows)
        column = self.dims[stick] if stick is not None else None
        moved = count if multiple == 1 else even(count) if multiple == 2 else -(-count // multiple) * multiple
        bound = self._bound(outer, stride, count) if multiple <= 2 else None
        base: Size = self.base
        for dim in self.dims:
            if dim is not column and dim is not outer and dim is not bound:
                base = index_sum(base, times(dim.first, dim.stride))
        at: list[Size] = [0, 0, 0]
        size: Size = count
        if bound is not None and bound.size is not None:
            apart = bound.stride // stride
            size, at[1] = index_sum(times(bound.size, apart), count - apart), times(bound.first, apart)
            if isinstance(size, ir.Value):
                size = arith.MaxSIOp(size, index_constant(0)).result
            base = base if outer is None else index_sum(base, times(outer.first, outer.stride))
        elif outer is not None:
            inner = count // outer.extent
            if outer.size is not None and multiple > 2 and moved != count:  # what lies behind the tile is none of it
                base = index_sum(base, times(outer.first, outer.stride))
                size = times(_positions(outer), inner)
            elif outer.size is None:
                base = index_sum(base, times(outer.first, outer.stride))
            else:
                size, at[1] = times(outer.size, inner), times(outer.first, inner)
        whole, last = 1, 0
        if column is not None:
            base, whole, last, at[0] = self._columns(column, base)
        guards = [] if self.guard is None else [self.guard]
        guards += [_positions(dim) for dim in self._clipped_positions if dim is not outer and dim is not bound]
        if guards:
            for guard in guards:
                size = arith.MulIOp(guard, size if isinstance(size, ir.Value) else index_constant(size)).result
        elif isinstance(size, int) and (moved != count or bound is not None or (outer is not None and outer.size is not None)):
            size = index_constant(size)
        lane = 1 if column is None else column.stride
        sizes = [whole, size, LANES]
        attributes: dict[str, ir.Attribute] = {}
        if (last + 1) % LANES or (last + 1) // LANES < whole:
            extents = [n if isinstance(n, int) else None for n in sizes]
            attributes = {"coordinate_set": affine.clipped(extents, 0, last), "masked": ir.UnitAttr.get()}
        assert isinstance(base, ir.Value)
        view = ktdp.construct_memory_view(base, sizes, [LANES * lane, stride, lane], self.element, attributes=attributes)
        shape = [sticks(column.extent) if column is not None else 1, moved, LANES]
        return ktdp.construct_access_tile(view, at, shape)

    def _bound(self, outer: Dim | None, stride: int, count: int) -> Dim | None:
        """A dim of one position that may not be there: its positions are so many rows of one view, beyond which they are clipped."""
        if outer is not None and outer.size is not None:
            return None
        fits = (d for d in self._clipped_positions if 0 < count * stride <= d.stride and not d.stride % stride)
        return next((d for d in fits if d is not outer), None)

    @property
    def _clipped_positions(self) -> list[Dim]:
        """The dims of one position, which may not be there."""
        return [d for d in self.dims if d.extent == 1 and d.room is not None]

    def _columns(self, column: Dim, base: Size) -> tuple[Size, int, int, Size]:
        """Of the dim in the lanes: the base, the sticks of the view, its last lane, and the first stick of the tile."""
        if column.room is None:
            return index_sum(base, times(column.first, column.stride)), sticks(column.extent), column.extent - 1, 0
        same = self.points.same(column.room, self.live)
        if same is not None:
            live = max(0, min(same, column.extent))
            return index_sum(base, times(column.first, column.stride)), sticks(column.extent), live - 1, 0
        first = None if isinstance(column.first, int) else column.first
        if not isinstance(column.size, int) or first is None or not self._cut_alike(column):
            raise refused(self.op, f"is cut inside of its sticks elsewhere on each tile; the nearest supported form begins at multiples of "
                          f"{LANES} in a view of a size that is a number")  # fmt: skip
        return base, sticks(column.size), column.size - 1, arith.DivUIOp(first, index_constant(LANES)).result

    def merged(self, rows: Sequence[Row]) -> tuple[Dim | None, int]:
        """The outermost row dim, which a masked view may clip, and the distance of rows. Raises Unsupported where they have several."""
        walked = [r for r in rows if r.extent != 1]
        for inner in walked[1:]:
            if inner.dim is not None and inner.dim.room is not None:
                raise refused(self.op, "is clipped along a dim that is neither its outermost one nor in its sticks, which is not pinned")
        for outer, inner in pairwise(walked):
            if _stride(outer) != _stride(inner) * inner.extent:
                raise refused(self.op, "has rows along two dims that are no one dim in memory, which is not pinned yet")
        clipped = self._clipped_positions
        if len(clipped) == 1 and not walked:
            return clipped[0], clipped[0].stride
        return (walked[0].dim, _stride(walked[-1])) if walked else (None, LANES)


def is_cut(parts: Sequence[Span], extent: int) -> bool:
    """Whether some of these parts of a dim begin or end inside of a stick, but for the end of all."""
    return any(first % LANES or (n % LANES and first + n != extent) for first, n in parts)


def placed(
    place: Place, dim: int, first: int, shape: Sequence[int], stick: int | None, rows: Sequence[tuple[int, int | None]]
) -> Iterator[tuple[list[int], Place]]:
    """What is moved of a part, which lies from `first` on along `dim`, and where each piece begins in the tensor of all: at a stick, or at
    a row, where the positions of what `rows` has outside of `dim` are pieces of their own. Raises Unsupported for too many."""
    if dim == stick:
        yield [first // LANES, 0, 0], place
        return
    at = [d for _, d in rows].index(dim) if any(d == dim for _, d in rows) else 0
    outer, inner = rows[:at], prod(n for n, _ in rows[at + 1 :])
    if prod(n for n, _ in outer) > MOST_PIECES:
        raise refused(place.op, f"has parts along a dim inside of more than {MOST_PIECES} rows, which is not pinned yet")
    for number, index in enumerate(product(*(range(n) for n, _ in outer))):
        piece = place
        for (_, d), k in zip(outer, index, strict=True):
            piece = piece if d is None else piece.narrowed(d, k, 1)
        yield [0, (number * shape[dim] + first) * inner, 0], piece


def _positions(dim: Dim) -> ir.Value:
    """How many positions of a dim lie in its view."""
    size, first = (index_constant(n) if isinstance(n, int) else n for n in (dim.size or 0, dim.first))
    left = arith.MaxSIOp(arith.SubIOp(size, first).result, index_constant(0)).result
    return arith.MinSIOp(left, index_constant(dim.extent)).result


def _stride(row: Row) -> int:
    return 0 if row.dim is None else row.dim.stride


def built(expression: ir.AffineExpr, operands: Sequence[Size], op: ir.Operation) -> Size:
    """An affine expression as index arithmetic, at the insertion point."""
    if isinstance(expression, ir.AffineDimExpr):
        return operands[ir.AffineDimExpr(expression).position]
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    binary = ir.AffineBinaryExpr(expression)
    a, b = built(binary.lhs, operands, op), built(binary.rhs, operands, op)
    if isinstance(expression, ir.AffineAddExpr):
        return index_sum(a, b)
    if isinstance(expression, ir.AffineMulExpr) and isinstance(a, int):
        return times(b, a)
    if isinstance(expression, ir.AffineMulExpr) and isinstance(b, int):
        return times(a, b)
    for kind, build in (
        (ir.AffineFloorDivExpr, arith.FloorDivSIOp),
        (ir.AffineCeilDivExpr, arith.CeilDivSIOp),
        (ir.AffineModExpr, arith.RemUIOp),
    ):
        if isinstance(expression, kind) and isinstance(b, int):
            return build(a if isinstance(a, ir.Value) else index_constant(a), index_constant(b)).result
    raise refused(op, "has a subscript that is neither linear nor divided by a number")
