"""Divided -> tiled KTIR: blocks of rows that fit the scratchpad, and the loops of matmuls.

A kernel becomes a loop per batch axis, one position per trip, and inside them one over blocks of R rows of the core's share, with the same
trip counts on every core. There a tensor is [sticks, R, lanes], or [sticks, 1, lanes] where all rows read the same. A load stands at the
outermost loop on whose counter it depends. A contraction becomes a loop over output sticks and inside it a loop over K that carries one f32
accumulator block; each trip multiplies one 64x64 block of the second operand, which streams by or is a slice of one that stays in LX.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic
from ktir.mlir import arith, func, ir, linalg, scf, tensor
from ktir.passes._axes import SECOND_OPERAND, k_in_stick, row_loops, second_operand_source
from ktir.passes._levels import require_level, set_level
from ktir.passes._tile_plan import TilePlan, is_stored_fill
from ktir.passes._tile_views import IndirectWindow, Place, Window, direct, index_constant, is_block, window
from ktir.pipeline import Pass
from ktir.target import DATASHEET, LANES


@dataclass(frozen=True)
class TilePass(Pass):
    """Tile each kernel over its rows; `rows` fixes the block size (even), 0 chooses the largest that fits `lx_bytes`.

    Expects: the divided level. Guarantees: the tiled level; working sets fit the scratchpad budget.
    """

    name: ClassVar[str] = "ktir-tile"
    description: ClassVar[str] = "divided -> tiled: row blocks that fit LX, matmul loops"
    rows: int = 0
    lx_bytes: int = DATASHEET.lx_planned_bytes

    def run(self, module: ir.Module) -> None:
        """Rewrite each kernel of the module."""
        require_level(module, self.name, "divided")
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.work" in op.attributes:
                _Tiler(op, self).tile()
        set_level(module, "tiled")


_LAID_ASIDE = (
    *SECOND_OPERAND,
    "func.return",
    "ktdp.construct_access_tile",
    "ktdp.construct_indirect_access_tile",
    "tensor.empty",
    "linalg.fill",
)
"""Ops that are built where what they are for is built."""


class _Tiler:
    def __init__(self, source: func.FuncOp, options: TilePass) -> None:
        self.source = source
        self.options = options
        self.plan = TilePlan(source, options.rows, options.lx_bytes)
        self.ops = self.plan.ops
        self.block_rows = self.plan.block_rows
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.position: dict[int, ir.Value] = {}
        """Batch axis that is a loop -> its counter, where the loop is open."""
        self.row: int | ir.Value = 0
        """First row of the block; 0 outside of the loop over blocks."""
        self.resident: dict[ir.Operation, ir.Value] = {}
        """Contraction -> its second operand, where that stays in LX."""

    def tile(self) -> None:
        source = self.source
        old = source.regions[0].blocks[0]
        name = source.name.value
        for resident in self.plan.residents:
            self.options.remark(
                "passed",
                f"second operand stays in LX, {resident.bytes} bytes: saves loading {resident.saved} bytes again",
                resident.contraction.location,
            )
        with ir.InsertionPoint(source), source.location:
            function = func.FuncOp(name + "_tiled", ([a.type for a in old.arguments], []))
        block = function.add_entry_block([source.location] * len(old.arguments))
        for attribute in ("grid", "ktir.work", "ktir.rows"):
            function.attributes[attribute] = source.attributes[attribute]
        self.mapping.update(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), source.location:
            self._prologue()
            self._nest(list(self.plan.loops.items()), 0)
            func.ReturnOp([])
        source.operation.erase()
        function.attributes["sym_name"] = ir.StringAttr.get(name)

    # The loop nest

    def _prologue(self) -> None:
        """Clone addresses and the views that are used as they are; load what no loop changes."""
        used = self._block_views()
        for op in self.ops:
            if op.name == "ktdp.construct_memory_view":
                if op.results[0] in used:
                    clone_ops([op], self.mapping)
            elif op.name == "ktdp.load":
                self._load_at(op, 0)
            elif op.name == "linalg.fill" and is_stored_fill(op):
                with op.location:
                    self.mapping[op.results[0]] = self._init(op.results[0])
            elif op.name not in (*_LAID_ASIDE, "ktdp.store", "linalg.generic"):
                clone_ops([op], self.mapping)

    def _block_views(self) -> set[ir.Value]:
        """Views of the divided level that are views of blocks as they stand."""
        found = set()
        for op in self.ops:
            if op.name in ("ktdp.load", "ktdp.store") and direct(tile := _tile_of(op)):
                view = tile.operands[0]
                value = op.results[0] if op.name == "ktdp.load" else op.operands[0]
                if is_block(view.owner.opview, self._place(value)):
                    found.add(view)
        return found

    def _nest(self, loops: list[tuple[int, int]], depth: int) -> None:
        """The loops over `loops`, and inside them that over blocks of rows; `depth` loops are open."""
        axis, trips, step = (*loops[0], 1) if loops else (None, self.plan.share, self.block_rows)
        loop = scf.ForOp(*(index_constant(v) for v in (0, trips, step)))
        with ir.InsertionPoint(loop.body):
            if axis is None:
                self.row = loop.induction_variable
                for op in self.ops:
                    with op.location:
                        self._op(op)
            else:
                self.position[axis] = loop.induction_variable
                for op in self.ops:
                    if op.name == "ktdp.load":
                        self._load_at(op, depth + 1)
                self._nest(loops[1:], depth + 1)
            scf.YieldOp([])

    def _op(self, op: ir.Operation) -> None:
        if op.name == "ktdp.load":
            if op.results[0] not in self.plan.second_operands and op.results[0] not in self.mapping:
                self._load(op)
        elif op.name == "ktdp.store":
            self._store(op)
        elif op.name == "linalg.generic" and op not in self.plan.fused.values():
            g = Generic(op)
            if g.is_contraction:
                self._contraction(g)
            else:
                inputs = [self.mapping[v] for v in g.inputs]
                self.mapping[op.results[0]] = self._rebuilt(g, inputs, self._init(g.init))

    # Memory

    def _place(self, value: ir.Value) -> Place:
        """Where a block of a loaded or stored value lies."""
        plan = self.plan
        axes = plan.axes_of(value)
        batches = {d: self.position.get(a) for d, a in enumerate(axes) if a is not None and a != plan.axes.row}
        if value in plan.second_operands:
            return Place(batches, len(axes) - 2, LANES)
        row = axes.index(plan.axes.row) if plan.axes.row in axes else None
        return Place(batches, row, self.block_rows if plan.has_rows(value) else 1)

    def _load_at(self, op: ir.Operation, depth: int) -> None:
        """Load a value if it belongs into the innermost one of `depth` open batch loops."""
        value = op.results[0]
        contraction = self.plan.second_operands.get(value)
        with op.location:
            if contraction is None:
                if self.plan.depth(value, self.plan.trips(self.block_rows)) == depth:
                    self._load(op)
            elif any(r.contraction == contraction.op for r in self.plan.residents) and self.plan.resident_depth(contraction) == depth:
                sticks = ir.RankedTensorType(value.type).shape[0]
                rows = _blocks(ir.RankedTensorType(value.type).shape[-2]) * LANES
                tile = self._second_operand(contraction).tile(0, 0, [sticks, rows, LANES])
                self.resident[contraction.op] = ktdp.load(tile, ir.F16Type.get())

    def _load(self, op: ir.Operation) -> None:
        value = op.results[0]
        type_ = ir.RankedTensorType(value.type)
        place = self._place(value)
        tile = window(_tile_of(op), place, self.mapping).tile(
            0, self.row if place.rows > 1 else 0, [type_.shape[0], place.rows, type_.shape[-1]]
        )
        self.mapping[value] = ktdp.load(tile, type_.element_type)

    def _store(self, op: ir.Operation) -> None:
        value = op.operands[0]
        shape = list(ir.RankedTensorType(self.mapping[value].type).shape)
        tile = window(_tile_of(op), self._place(value), self.mapping).tile(0, self.row if shape[1] > 1 else 0, shape)
        ktdp.store(self.mapping[value], tile)
        if "ktir.ordered" in op.attributes:
            stored = list(ir.InsertionPoint.current.block.operations)[-1].operation
            stored.attributes["ktir.ordered"] = op.attributes["ktir.ordered"]

    # Compute ops

    def _init(self, init: ir.Value) -> ir.Value:
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        empty = tensor.EmptyOp([type_.shape[0], self.block_rows, type_.shape[-1]], type_.element_type).result
        if op.name == "tensor.empty":
            return empty
        return linalg.fill(op.operands[0].owner.clone().results[0], outs=[empty])

    def _rebuilt(self, g: Generic, inputs: list[ir.Value], init: ir.Value) -> ir.Value:
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

    # Contractions

    def _contraction(self, g: Generic) -> None:
        result = g.op.results[0]
        consumer = self.plan.fused.get(result)
        target = result if consumer is None else consumer.results[0]
        if consumer is not None:
            self._load_operands(Generic(consumer))
        sticks = ir.RankedTensorType(result.type).shape[0]
        steps = ir.RankedTensorType(g.inputs[0].type).shape[0]
        element = ir.RankedTensorType(target.type).element_type
        resident = self.resident.get(g.op)
        streamed = self._second_operand(g) if resident is None else None
        zero, one = index_constant(0), index_constant(1)
        whole = tensor.EmptyOp([sticks, self.block_rows, LANES], element).result
        outer = scf.ForOp(zero, index_constant(sticks), one, [whole])
        with ir.InsertionPoint(outer.body):
            n = outer.induction_variable
            f32 = ir.F32Type.get()
            empty = tensor.EmptyOp([1, self.block_rows, LANES], f32).result
            cleared = linalg.fill(arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result, outs=[empty])
            inner = scf.ForOp(zero, index_constant(steps), one, [cleared])
            with ir.InsertionPoint(inner.body):
                k = inner.induction_variable
                a = self._slice(self.mapping[g.inputs[0]], k)
                stick, block = (k, n) if k_in_stick(g) else (n, k)
                row = arith.MulIOp(block, index_constant(LANES)).result
                if streamed is None:
                    assert resident is not None
                    b = _part(resident, [stick, row], [1, LANES, LANES])
                else:
                    b = ktdp.load(streamed.tile(stick, row, [1, LANES, LANES]), ir.F16Type.get())
                scf.YieldOp([_multiply(g, a, b, inner.inner_iter_args[0])])
            block = self._epilogue(consumer, result, inner.results[0], n, element)
            scf.YieldOp([self._insert(block, outer.inner_iter_args[0], n)])
        self.mapping[target] = outer.results[0]

    def _load_operands(self, g: Generic) -> None:
        """Load what an op that is computed ahead of its place reads."""
        for value in g.inputs:
            if value not in self.mapping and value.owner.name == "ktdp.load":
                with value.owner.location:
                    self._load(value.owner.operation)

    def _second_operand(self, g: Generic) -> Window | IndirectWindow:
        """The memory of a second operand at the batch position; rows beyond the tensor are clipped."""
        source = second_operand_source(g)
        return window(_tile_of(source.owner.operation), self._place(source), self.mapping)

    def _slice(self, value: ir.Value, stick: ir.Value) -> ir.Value:
        return _part(value, [stick], [1, *list(ir.RankedTensorType(value.type).shape)[1:]])

    def _insert(self, block: ir.Value, whole: ir.Value, stick: ir.Value) -> ir.Value:
        shape = list(ir.RankedTensorType(block.type).shape)
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        return tensor.InsertSliceOp(block, whole, [stick], [], [], [dynamic, 0, 0], shape, [1, 1, 1]).result

    def _epilogue(self, consumer: ir.Operation | None, accumulator: ir.Value, value: ir.Value, n: ir.Value, element: ir.Type) -> ir.Value:
        """What becomes of a finished accumulator block: the fused consumer, or a copy."""
        init = tensor.EmptyOp([1, self.block_rows, LANES], element).result
        if consumer is None:
            identity = affine_map(3, [0, 1, 2])
            return generic([value], init, [identity] * 2, ["parallel"] * 3, lambda a: a[0], loc=ir.Location.current)
        g = Generic(consumer)
        inputs = []
        for i, operand in enumerate(g.inputs):
            if operand == accumulator:
                inputs.append(value)
            elif g.loop_of(i, 0) is None:
                inputs.append(self.mapping[operand])
            else:
                inputs.append(self._slice(self.mapping[operand], n))
        return self._rebuilt(g, inputs, init)


def _tile_of(op: ir.Operation) -> ir.Operation:
    """The access tile of a load or store."""
    return op.operands[0 if op.name == "ktdp.load" else 1].owner.operation


def _blocks(rows: int) -> int:
    return -(-rows // LANES)


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


def _part(value: ir.Value, first: list[ir.Value], shape: list[int]) -> ir.Value:
    """The slice of `shape` that starts at `first` in the leading dims."""
    result = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
    starts = [ir.ShapedType.get_dynamic_stride_or_offset()] * len(first) + [0] * (len(shape) - len(first))
    return tensor.ExtractSliceOp(result, value, first, [], [], starts, shape, [1] * len(shape)).result


def _multiply(g: Generic, a: ir.Value, b: ir.Value, accumulator: ir.Value) -> ir.Value:
    """One block: accumulator[0, m, j] += sum over i of a[0, m, i] * b[0, i, j] (b[0, j, i] where K lies in b's stick)."""
    transposed = k_in_stick(g)
    maps = [
        affine_map(3, [None, 0, 2]),
        affine_map(3, [None, 1, 2] if transposed else [None, 2, 1]),
        affine_map(3, [None, 0, 1]),
    ]

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = dict(zip(g.body.arguments, arguments, strict=True))
        clone_ops(g.body_ops, mapping)
        return mapping[g.yielded]

    return generic([a, b], accumulator, maps, ["parallel", "parallel", "reduction"], body, loc=g.op.location)
