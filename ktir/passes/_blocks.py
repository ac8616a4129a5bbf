"""Blocks of a tiled kernel: what is loaded, computed and stored for R rows of a core's share at one position of the batch axes.

A tensor is [sticks, R, lanes] there, or [sticks, 1, lanes] where all rows read the same.
"""

from __future__ import annotations

from typing import NamedTuple

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic
from ktir.mlir import ir, linalg, tensor
from ktir.passes._axes import row_loops
from ktir.passes._tile_plan import TilePlan
from ktir.passes._tile_views import IndirectWindow, Place, Window, window
from ktir.target import LANES


class Part(NamedTuple):
    """Consecutive sticks of a tensor."""

    first: int | ir.Value
    count: int


class Blocks:
    """Builds the ops of a block at the insertion point, and keeps what has been built."""

    def __init__(self, plan: TilePlan) -> None:
        self.plan = plan
        self.mapping: dict[ir.Value, ir.Value] = {}
        """A value of the divided kernel -> its block."""
        self.position: dict[int, ir.Value] = {}
        """Batch axis that is a loop -> its counter, where the loop is open."""
        self.row: int | ir.Value = 0
        """First row of the block; 0 outside of the loop over blocks."""
        self.keyed: set[ir.Value] = set()
        """Tensors that are seen in parts: of their sticks, `keys`."""
        self.keys: Part | None = None

    # Memory

    def place(self, value: ir.Value) -> Place:
        """Where a block of a loaded or stored value lies."""
        plan = self.plan
        axes = plan.axes_of(value)
        batches = {d: self.position.get(a) for d, a in enumerate(axes) if a is not None and a != plan.axes.row}
        if value in plan.second_operands:
            return Place(batches, len(axes) - 2, LANES)
        row = axes.index(plan.axes.row) if plan.axes.row in axes else None
        return Place(batches, row, plan.block_rows if plan.has_rows(value) else 1)

    def window(self, access: ir.Operation, value: ir.Value) -> Window | IndirectWindow:
        """The memory behind a load or store of `value` at the batch position."""
        return window(tile_of(access), self.place(value), self.mapping)

    def load(self, op: ir.Operation) -> None:
        """Load the block."""
        value = op.results[0]
        type_ = ir.RankedTensorType(value.type)
        rows = self.place(value).rows
        first, sticks = self._sticks(value)
        tile = self.window(op, value).tile(first, self.row if rows > 1 else 0, [sticks, rows, type_.shape[-1]])
        self.mapping[value] = ktdp.load(tile, type_.element_type)

    def _sticks(self, value: ir.Value) -> Part:
        """Which sticks of a tensor a block has."""
        if self.keys is not None and value in self.keyed:
            return self.keys
        return Part(0, ir.RankedTensorType(value.type).shape[0])

    def store(self, op: ir.Operation) -> None:
        """Store the block."""
        value = op.operands[0]
        shape = list(ir.RankedTensorType(self.mapping[value].type).shape)
        tile = self.window(op, value).tile(self._sticks(value).first, self.row if shape[1] > 1 else 0, shape)
        ktdp.store(self.mapping[value], tile)
        if "ktir.ordered" in op.attributes:
            stored = list(ir.InsertionPoint.current.block.operations)[-1].operation
            stored.attributes["ktir.ordered"] = op.attributes["ktir.ordered"]

    # Compute ops

    def init(self, init: ir.Value) -> ir.Value:
        """What an op on a block accumulates into or overwrites."""
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        empty = tensor.EmptyOp([type_.shape[0], self.plan.block_rows, type_.shape[-1]], type_.element_type).result
        if op.name == "tensor.empty":
            return empty
        return linalg.fill(op.operands[0].owner.clone().results[0], outs=[empty])

    def rebuilt(self, g: Generic, inputs: list[ir.Value], init: ir.Value) -> ir.Value:
        """The same op on blocks: of its row loops, one over the block's rows is left."""
        rows = row_loops(g)
        others = [loop for loop in range(len(g.iterators)) if loop not in rows]
        at = 1 if g.is_pointwise else 0
        number = {loop: i + (i >= at) for i, loop in enumerate(others)}
        maps = []
        for i, operand in enumerate([*inputs, init]):
            first, last = (g.loop_of(i, d) for d in (0, len(g.maps[i].results) - 1))
            row = at if ir.RankedTensorType(operand.type).shape[1] > 1 else None
            maps.append(affine_map(len(others) + 1, [_numbered(number, first), row, _numbered(number, last)]))
        iterators = [g.iterators[loop] for loop in others]
        iterators.insert(at, "parallel")

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            for op in g.body_ops:
                clone_ops([op], mapping)
                if op.name == "linalg.index":
                    _renumber(op, mapping[op.results[0]].owner, number)
            return mapping.get(g.yielded, g.yielded)

        return generic(inputs, init, maps, iterators, body, loc=g.op.location)


def tile_of(op: ir.Operation) -> ir.Operation:
    """The access tile of a load or store."""
    return op.operands[0 if op.name == "ktdp.load" else 1].owner.operation


def part(value: ir.Value, first: list[ir.Value], shape: list[int]) -> ir.Value:
    """The slice of `shape` that starts at `first` in the leading dims."""
    result = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
    starts = [ir.ShapedType.get_dynamic_stride_or_offset()] * len(first) + [0] * (len(shape) - len(first))
    return tensor.ExtractSliceOp(result, value, first, [], [], starts, shape, [1] * len(shape)).result


def stick(value: ir.Value, number: ir.Value) -> ir.Value:
    """One stick of a block, all its rows."""
    return part(value, [number], [1, *list(ir.RankedTensorType(value.type).shape)[1:]])


def insert_stick(block: ir.Value, whole: ir.Value, number: ir.Value) -> ir.Value:
    """`whole` with one stick replaced."""
    shape = list(ir.RankedTensorType(block.type).shape)
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    return tensor.InsertSliceOp(block, whole, [number], [], [], [dynamic, 0, 0], shape, [1, 1, 1]).result


def _numbered(number: dict[int, int], loop: int | None) -> int | None:
    return None if loop is None else number[loop]


def _renumber(old: ir.Operation, new: ir.Operation, number: dict[int, int]) -> None:
    """Adapt a `linalg.index` to the loops that are left."""
    loop = ir.IntegerAttr(old.attributes["dim"]).value
    if loop not in number:
        raise Unsupported(
            f"'linalg.index' op expects a loop over sticks or lanes, but got loop {loop}, one over rows", location_text(old.location)
        )
    new.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number[loop])
