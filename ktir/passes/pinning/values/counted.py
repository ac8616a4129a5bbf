"""Numbers that count as data: what an index is, on a tile and in a trip, and positions along a dim, are read from memory of 0, 1, 2, …"""

from __future__ import annotations

from collections.abc import Sequence

from ktir.analysis.points import Numbers, Points
from ktir.dialects.structured import index_sum
from ktir.mlir import arith, func, i32_type, ir
from ktir.passes.pinning.values.elements import Element, Leaf, combined, integer
from ktir.passes.pinning.values.places import Dim, Place, Row, Size
from ktir.passes.pinning.values.tensors import Loaded, place_here

MOST = 1 << 22
"""Integers in that memory."""


class Integers:
    """Gives a kernel such memory, with as many elements as it needs: an argument that is added when something is read from it."""

    def __init__(self, function: func.FuncOp, points: Points) -> None:
        """At the insertion point, which is the start of the kernel."""
        self.function, self.points, self.anchor = function, points, place_here()
        self.argument: ir.Value | None = None
        self.elements = 0
        self._positions: dict[int, Loaded] = {}

    def positions(self, extent: int, dim: int, op: ir.Operation) -> Leaf:
        """Where an element is along `dim` of a value."""
        if extent not in self._positions:
            place = Counted(op, self, 0, [Dim(extent, 1, 0)], extent)
            self._positions[extent] = Loaded(place, self.anchor, (0, extent - 1), is_position=True)
        return Leaf(i32_type(), self._positions[extent], (dim,))

    def same(self, numbers: Numbers) -> Element | None:
        """A number that is the same wherever the text runs; None if there are several."""
        same = self.points.same(numbers)
        return None if same is None or not -(2**31) <= same < 2**31 else integer(same)

    def number(self, value: ir.Value, low: int, high: int, op: ir.Operation) -> Element | None:
        """An index of the kernel from `low` to `high`, at the insertion point; None if there are too many. `op` reads it."""
        if high - low >= MOST or not -(2**31) <= low <= high < 2**31:
            return None
        if not isinstance(value.type, ir.IndexType):
            value = arith.IndexCastOp(ir.IndexType.get(), value).result
        place = Counted(op, self, index_sum(value, -low), [], high - low + 1)
        found = Leaf(i32_type(), Loaded(place, place_here(), (0, high - low)), ())
        return combined(arith.AddIOp, found, integer(low))

    def base(self, elements: int) -> ir.Value:
        """The argument, with at least so many elements."""
        self.elements = max(self.elements, elements)
        if self.argument is None:
            block = self.function.regions[0].blocks[0]
            self.argument = block.add_argument(ir.IndexType.get(), self.function.location)
            types = ir.FunctionType.get([a.type for a in block.arguments], [])
            self.function.operation.attributes["function_type"] = ir.TypeAttr.get(types)
        return self.argument


class Counted(Place):
    """Integers of that memory from `first` on, as far as `elements`: those along a dim, or a single one."""

    def __init__(self, op: ir.Operation, integers: Integers, first: Size, dims: list[Dim], elements: int) -> None:
        self.op, self.points, self.guard, self.live, self.element = op, integers.points, None, integers.points.live, i32_type()
        self.integers, self.first, self.dims, self.elements = integers, first, dims, elements

    def tile(self, stick: int | None, rows: Sequence[Row], multiple: int) -> ir.Value:
        self.base: ir.Value = index_sum(self.integers.base(self.elements), self.first)
        return super().tile(stick, rows, multiple)
