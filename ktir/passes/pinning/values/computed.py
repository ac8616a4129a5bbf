"""Access tiles whose place data decides: what an element of their table is, and the tile that looks it up there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from ktir.analysis.points import Points
from ktir.analysis.scalars.sets import dims_of, tile_boxes
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.dialects.structured import index_sum
from ktir.mlir import arith, i32_type, ir, is_a
from ktir.passes.flat.integers.intervals import I32
from ktir.passes.pinning.values.elements import Element, Leaf, Value, chosen, combined, compared, integer
from ktir.passes.pinning.values.indirect import LookedUp, is_linear, linear
from ktir.passes.pinning.values.narrowed import interval
from ktir.passes.pinning.values.places import Dim, Place, Size, built, times
from ktir.passes.pinning.values.tensors import Loaded, place_here
from ktir.passes.pinning.values.views import View, alone


@dataclass(frozen=True)
class Scope:
    """What a tile is read in: the indices of the new kernel, those that data decides, and where views begin."""

    points: Points
    mapping: Mapping[ir.Value, ir.Value]
    data: Callable[[ir.Value], Element]
    is_data: Callable[[ir.Value], bool]
    base: Callable[[View], ir.Value]
    positions: Callable[[int, int], Element]
    """Where an element is along a dim of some positions."""
    guard: ir.Value | None


class Strided(Place):
    """Memory from `base` on, by strides."""

    def __init__(self, tile: ir.Operation, scope: Scope, base: ir.Value, dims: Sequence[Dim], element: ir.Type) -> None:
        self.op, self.points, self.guard, self.live, self.element = tile, scope.points, scope.guard, scope.points.live, element
        self.base, self.dims = base, list(dims)


@dataclass(frozen=True)
class _Subscript:
    """What a dim of the base is read at: `first`, an element, is known to be right up to `reach` positions on."""

    size: int
    stride: int
    first: Element
    reach: int


class ComputedPlace:
    """What a tile is on of which data decides the place."""

    def __init__(self, tile: ir.Operation, scope: Scope) -> None:
        self.tile, self.scope = tile, scope
        opview, self.direct = tile.opview, is_a(tile, ktdp.ConstructAccessTileOp)
        self.view = alone(tile.operands[0] if self.direct else opview.base, tile, scope.points)
        if self.view.masked or self.view.local or not all(isinstance(n, int) for n in self.view.sizes):
            what = "has a place that data decides in a view that is masked, dynamic or in the scratchpad"
            raise refused(tile, f"{what}, which is not pinned yet; the nearest supported form lies inside of a view of known sizes")
        self.order: Sequence[int] = opview.order
        self.start: Size = 0
        self.subscripts: list[_Subscript] = []
        if self.direct:
            box = tile_boxes(tile)
            if box.parts != [box.whole]:
                raise refused(tile, "has a set that is not a box at a place that data decides, which is not pinned yet")
            self.extents, lows = box.extents, box.corner
            self.strides = list(self.view.strides)
            self._indices: list[ir.Value] = list(opview.index_operands)
            subscripts = [(expression, low, None) for expression, low in zip(opview.base_map.results, lows, strict=True)]
            reach = [{d: 1} for d in range(len(lows))]
        else:
            box = affine.set_box(opview.attributes["variables_space_set"])
            if box is None:
                raise refused(tile, "has variables whose set is no box of numbers, which is not pinned yet")
            self.lows, self.extents = box[0], tuple(box[1])
            self._indices = list(opview.captured)
            self.strides = [0] * len(self.extents)
            subscripts = [(m, 0, view) for m, view in opview.subscripts]
            reach = [{} if v is not None or not self._is_even(m) else self._steps(m) for m, v in opview.subscripts]
            for d, steps in enumerate(reach):
                for v, factor in steps.items():
                    self.strides[v] += factor * self.view.strides[d]
        for d, (what, low, view) in enumerate(subscripts):
            self._read(d, what, low, view, reach[d])

    def _read(self, dim: int, what: ir.AffineExpr | ir.AffineMap, low: int, view: ir.Value | None, steps: Mapping[int, int]) -> None:
        size, stride = int(self.view.sizes[dim]), self.view.strides[dim]
        if view is not None:
            self.subscripts.append(_Subscript(size, stride, self._looked_up(what, view), 0))
            return
        expression = what.results[0] if isinstance(what, ir.AffineMap) else what
        given = [self.scope.mapping.get(v) for v in self._indices]
        read = [self._indices[k] for k in dims_of(expression) if k < len(self._indices)]
        even = self.direct or self._is_even(what)
        if even and not any(self.scope.is_data(v) for v in read):
            first = built(expression, [*(0 if v is None else v for v in given), *([] if self.direct else self.lows)], self.tile)
            self.start = index_sum(self.start, times(index_sum(first, low), stride))
            return
        if any(factor < 0 for factor in steps.values()):
            raise refused(self.tile, "walks backwards from a place that data decides, which is not pinned yet")
        operands = [self.scope.data(v) if v in read else integer(0) for v in self._indices]
        if not self.direct:
            operands += [integer(low) if even else self._variable(v) for v, low in enumerate(self.lows)]
        first_ = combined(arith.AddIOp, self._element(expression, operands), integer(low)) if low else self._element(expression, operands)
        reach = sum(factor * (self.extents[v] - 1) for v, factor in steps.items())
        self.subscripts.append(_Subscript(size, stride, first_, reach))

    def _is_even(self, subscript: ir.AffineMap) -> bool:
        return is_linear(subscript.results[0], len(self._indices), self.extents)

    def _steps(self, subscript: ir.AffineMap) -> dict[int, int]:
        return linear(subscript.results[0], len(self._indices), self.extents, self.tile)

    def _variable(self, v: int) -> Element:
        """A variable of the tile, by its position."""
        return combined(arith.AddIOp, self.scope.positions(self.extents[v], v), integer(self.lows[v]))

    def _looked_up(self, subscript: ir.AffineMap, view: ir.Value) -> Leaf:
        """What a table of the author's has, by the variables of the tile."""
        memory = alone(view, self.tile, self.scope.points)
        read = [self._indices[k] for e in subscript.results for k in dims_of(e) if k < len(self._indices)]
        if memory.masked or memory.local or any(self.scope.is_data(v) for v in read):
            what = "looks up in a table that is masked or in the scratchpad, or at a place in it that data decides"
            raise refused(self.tile, f"{what}, which is not pinned yet")
        steps, start = [0] * len(self.extents), memory.shift
        first: Size = start
        given = [self.scope.mapping.get(v) or 0 for v in self._indices]
        for expression, stride in zip(subscript.results, memory.strides, strict=True):
            first = index_sum(first, times(built(expression, [*given, *self.lows], self.tile), stride))
            for v, factor in linear(expression, len(self._indices), self.extents, self.tile).items():
                steps[v] += factor * stride
        walked = [v for v, step in enumerate(steps) if step]
        base: ir.Value = index_sum(self.scope.base(memory), first)
        place = Strided(self.tile, self.scope, base, [Dim(self.extents[v], steps[v], 0) for v in walked], i32_type())
        return Leaf(i32_type(), Loaded(place, place_here()), tuple(walked))

    def _element(self, expression: ir.AffineExpr, operands: Sequence[Element]) -> Element:
        """An affine expression of elements. Raises Unsupported where 32 bits might not hold it."""
        if isinstance(expression, ir.AffineDimExpr):
            return operands[ir.AffineDimExpr(expression).position]
        if isinstance(expression, ir.AffineConstantExpr):
            return integer(expression.value)
        binary = ir.AffineBinaryExpr(expression)
        a, b = self._element(binary.lhs, operands), self._element(binary.rhs, operands)
        kinds = {
            ir.AffineAddExpr: arith.AddIOp, ir.AffineMulExpr: arith.MulIOp, ir.AffineFloorDivExpr: arith.FloorDivSIOp,
            ir.AffineModExpr: arith.RemUIOp,
        }  # fmt: skip
        kind = next((op for each, op in kinds.items() if isinstance(expression, each)), None)
        found = None if kind is None else combined(kind, a, b)
        negative = kind is arith.RemUIOp and interval(a).low < 0
        if found is None or negative or not interval(found, exact=True).within(I32):
            what = "has a subscript that is computed from data and not known to fit into 32 bits, the integers of the device"
            raise refused(self.tile, f"{what}; the nearest supported form computes it in tensors of i32")
        return found

    # The table

    @property
    def unit(self) -> int:
        """The distance of two places."""
        return gcd(*(abs(s.stride) for s in self.subscripts)) or 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the table: what it has of each variable."""
        walked = {d for s in self.subscripts for leaf in s.first.leaves() for d in leaf.walk}
        return tuple(n if v in walked else 1 for v, n in enumerate(self.extents))

    def value(self, alive: Element | None) -> Value:
        """The places; one that is none where a subscript lies outside, so that looking it up stops the run, and any in trips that are not
        made."""
        place: Element = integer(0)
        for s in self.subscripts:
            place = combined(arith.AddIOp, place, combined(arith.MulIOp, s.first, integer(s.stride // self.unit)))
        for s in self.subscripts:
            place = chosen(compared(arith.CmpIPredicate.ult, s.first, integer(s.size - s.reach)), place, integer(-1))
        return Value(self.shape, place if alive is None else chosen(alive, place, integer(0)))

    def looked_up(self, table: ir.Value) -> LookedUp:
        """What is loaded or stored, with the places at `table`."""
        shape = self.shape
        found = LookedUp(self.tile, self.scope.points, self.scope.guard, self.view, self.order, self.extents)
        found.base = index_sum(self.scope.base(self.view), index_sum(self.start, self.view.shift))
        found.table = table
        positions = sum((s.size - s.reach - 1) * s.stride // self.unit for s in self.subscripts) + 1
        found.looked_dim = (positions, self.unit)
        found.dims = [Dim(self.extents[v], self.strides[v], 0) for v in self.order]
        found.steps = [prod(shape[v + 1 :]) if shape[v] != 1 else 0 for v in self.order]
        return found

    def row(self, table: ir.Value, guard: ir.Value | None) -> Strided:
        """Where the places are stored, on some tiles."""
        shape, scope = self.shape, replace(self.scope, guard=guard)
        return Strided(self.tile, scope, table, [Dim(n, prod(shape[v + 1 :]), 0) for v, n in enumerate(shape)], i32_type())
