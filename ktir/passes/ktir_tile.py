"""Divided -> tiled KTIR: blocks of rows that fit the scratchpad, and the loops of matmuls.

A kernel becomes one loop over blocks of R rows of the core's share, the same trip count on every core. A contraction becomes a loop
over output sticks and inside it a loop over K that carries one f32 accumulator block; each trip multiplies one 64x64 block of the
second operand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.cost.tiles import WEIGHT_BUFFERS
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic, rebuild
from ktir.mlir import arith, func, ir, linalg, scf, tensor
from ktir.passes._axes import second_operand_source
from ktir.passes._levels import require_level, set_level, tensor_bytes
from ktir.passes.ktir_divide_work import is_shared
from ktir.pipeline import Pass
from ktir.target import DATASHEET, LANES, STICK_BYTES


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


def _even(n: int) -> int:
    return n + n % 2


class _Tiler:
    def __init__(self, source: func.FuncOp, options: TilePass) -> None:
        self.source = source
        self.options = options
        self.ops = [o.operation for o in source.regions[0].blocks[0].operations]
        self.share = kt.WorkAttr(source.attributes["ktir.work"]).tile[1]
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.fused = self._fused_consumers()
        self.block_rows = self._block_rows()

    def _fused_consumers(self) -> dict[ir.Value, ir.Operation]:
        """Contraction results that a single pointwise op consumes: it becomes the epilogue of the loop over output sticks.

        A body that knows its position (a mask) is left out: inside the loop it would see a block, not the tensor. So is an op with an
        operand that does not exist yet at the contraction.
        """
        fused = {}
        position = {op: i for i, op in enumerate(self.ops)}
        for op in self.ops:
            if op.name != "linalg.generic" or not Generic(op).is_contraction:
                continue
            uses = list(op.results[0].uses)
            if len(uses) != 1 or uses[0].owner.name != "linalg.generic":
                continue
            g = Generic(uses[0].owner.operation)
            ready = all(v == op.results[0] or position[v.owner.operation] < position[op] or is_shared(v.owner.operation) for v in g.inputs)
            if ready and g.is_pointwise and not any(o.name == "linalg.index" for o in g.body_ops):
                fused[op.results[0]] = g.op
        return fused

    def _block_rows(self) -> int:
        """The largest even block of rows whose live tensors, two of each streamed one, fit the budget."""
        position = {op: i for i, op in enumerate(self.ops)}
        fixed, always, ranges = 0, 0, []
        for op in self.ops:
            if op.name not in ("ktdp.load", "linalg.generic"):
                continue
            value = op.results[0]
            if op.name == "ktdp.load" and is_shared(op):
                weights = any(u.owner.name in ("tensor.pad", "tensor.expand_shape") for u in value.uses)
                fixed += 0 if weights else tensor_bytes(value)
                continue
            if op.name == "linalg.generic" and Generic(op).is_contraction:
                fixed += WEIGHT_BUFFERS * LANES * STICK_BYTES
                if value in self.fused:
                    continue
            per_row = tensor_bytes(value) // self.share
            if op.name == "ktdp.load":
                always += 2 * per_row
            else:
                last = max((position[u.owner.operation] for u in value.uses), default=position[op])
                ranges.append((position[op], last, per_row))
        peak = max((sum(b for s, e, b in ranges if s <= p <= e) for p in range(len(self.ops))), default=0) + always
        limit = 2 * DATASHEET.pt_accumulator_rows
        most = (self.options.lx_bytes - fixed) // max(peak, 1) // 2 * 2
        if most < 2:
            raise Unsupported(
                f"kernel needs {2 * peak + fixed} bytes of scratchpad for two rows, but {self.options.lx_bytes} are available; "
                "the nearest supported form has narrower rows",
                location_text(self.source.location),
            )
        most = min(most, limit)
        if self.options.rows:
            return min(most, _even(self.options.rows))
        trips = -(-self.share // most)
        return _even(-(-self.share // trips))

    def tile(self) -> None:
        source = self.source
        old = source.regions[0].blocks[0]
        name = source.name.value
        with ir.InsertionPoint(source), source.location:
            function = func.FuncOp(name + "_tiled", ([a.type for a in old.arguments], []))
        block = function.add_entry_block([source.location] * len(old.arguments))
        for attribute in ("grid", "ktir.work", "ktir.rows"):
            function.attributes[attribute] = source.attributes[attribute]
        self.mapping.update(zip(old.arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block), source.location:
            inside = self._prologue()
            lower, upper, step = (self._index(v) for v in (0, self.share, self.block_rows))
            loop = scf.ForOp(lower, upper, step)
            self.row = loop.induction_variable
            with ir.InsertionPoint(loop.body):
                for op in inside:
                    with op.location:
                        self._op(op)
                scf.YieldOp([])
            func.ReturnOp([])
        source.operation.erase()
        function.attributes["sym_name"] = ir.StringAttr.get(name)

    @staticmethod
    def _index(value: int) -> ir.Value:
        return arith.ConstantOp(ir.IndexType.get(), value).result

    def _prologue(self) -> list[ir.Operation]:
        """Clone what does not depend on the block; returns the ops of the loop body."""
        inside = []
        fused = {op for op in self.fused.values()}
        for op in self.ops:
            shared = op.name == "ktdp.load" and is_shared(op)
            if op.name in ("tensor.pad", "tensor.expand_shape", "func.return", "ktdp.construct_access_tile"):
                continue
            if shared:
                if not any(u.owner.name in ("tensor.pad", "tensor.expand_shape") for u in op.results[0].uses):
                    with op.location:
                        tile = op.operands[0].owner.opview
                        whole = ktdp.construct_access_tile(self.mapping[tile.base], [0, 0, 0], list(tile.shape))
                        element = ir.RankedTensorType(op.results[0].type).element_type
                        self.mapping[op.results[0]] = ktdp.load(whole, element)
            elif op.name in ("ktdp.load", "ktdp.store", "linalg.generic"):
                if op not in fused:
                    inside.append(op)
            elif op.name not in ("tensor.empty", "linalg.fill"):
                clone_ops([op], self.mapping)
        return inside

    def _op(self, op: ir.Operation) -> None:
        if op.name == "ktdp.load":
            element = ir.RankedTensorType(op.results[0].type).element_type
            self.mapping[op.results[0]] = ktdp.load(self._rows_tile(op.operands[0]), element)
        elif op.name == "ktdp.store":
            ktdp.store(self.mapping[op.operands[0]], self._rows_tile(op.operands[1]))
        else:
            g = Generic(op)
            if g.is_contraction:
                self._contraction(g)
            else:
                inputs = [self.mapping[v] for v in g.inputs]
                self.mapping[op.results[0]] = rebuild(g, inputs, self._init(g.init))

    def _rows_tile(self, tile: ir.Value) -> ir.Value:
        old = tile.owner.opview
        sticks, _, lanes = old.shape
        return ktdp.construct_access_tile(self.mapping[old.base], [0, self.row, 0], [sticks, self.block_rows, lanes])

    def _init(self, init: ir.Value) -> ir.Value:
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        sticks, _, lanes = type_.shape
        empty = tensor.EmptyOp([sticks, self.block_rows, lanes], type_.element_type).result
        if op.name == "tensor.empty":
            return empty
        return linalg.fill(op.operands[0].owner.clone().results[0], outs=[empty])

    # Contractions

    def _contraction(self, g: Generic) -> None:
        result = g.op.results[0]
        consumer = self.fused.get(result)
        target = result if consumer is None else consumer.results[0]
        sticks = ir.RankedTensorType(result.type).shape[0]
        steps = ir.RankedTensorType(g.inputs[0].type).shape[0]
        element = ir.RankedTensorType(target.type).element_type
        blocks = self._second_operand(g)
        zero, one = self._index(0), self._index(1)
        whole = tensor.EmptyOp([sticks, self.block_rows, LANES], element).result
        outer = scf.ForOp(zero, self._index(sticks), one, [whole])
        with ir.InsertionPoint(outer.body):
            n = outer.induction_variable
            f32 = ir.F32Type.get()
            empty = tensor.EmptyOp([1, self.block_rows, LANES], f32).result
            cleared = linalg.fill(arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result, outs=[empty])
            inner = scf.ForOp(zero, self._index(steps), one, [cleared])
            with ir.InsertionPoint(inner.body):
                k = inner.induction_variable
                a = self._slice(self.mapping[g.inputs[0]], k)
                b = ktdp.load(blocks(n, k), ir.F16Type.get())
                scf.YieldOp([_multiply(g, a, b, inner.inner_iter_args[0])])
            block = self._epilogue(consumer, result, inner.results[0], n, element)
            scf.YieldOp([self._insert(block, outer.inner_iter_args[0], n)])
        self.mapping[target] = outer.results[0]

    def _second_operand(self, g: Generic):
        """A function (n, k) -> access tile of one 64x64 block; rows beyond the tensor are masked."""
        source = second_operand_source(g)
        view = source.owner.opview.tile.owner.opview.base.owner.opview
        sizes = [s if isinstance(s, int) else self.mapping[s] for s in view.sizes]
        strides = list(view.strides)
        transposed = g.loop_of(1, 0) == g.iterators.index("reduction")
        base = self.mapping[view.offset]
        rows = sizes[1]
        if isinstance(rows, int) and rows % LANES:
            sizes[1] = self._index(rows)
        masked = ktdp.construct_memory_view(base, sizes, strides, view.element_type)

        def tile(n: ir.Value, k: ir.Value) -> ir.Value:
            stick, row = (k, n) if transposed else (n, k)
            first = arith.MulIOp(row, self._index(LANES)).result
            return ktdp.construct_access_tile(masked, [stick, first, 0], [1, LANES, LANES])

        return tile

    def _slice(self, value: ir.Value, stick: ir.Value) -> ir.Value:
        type_ = ir.RankedTensorType(value.type)
        shape = [1, *list(type_.shape)[1:]]
        result = ir.RankedTensorType.get(shape, type_.element_type)
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        return tensor.ExtractSliceOp(result, value, [stick], [], [], [dynamic, 0, 0], shape, [1, 1, 1]).result

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
        return rebuild(g, inputs, init)


def _multiply(g: Generic, a: ir.Value, b: ir.Value, accumulator: ir.Value) -> ir.Value:
    """One block: accumulator[0, m, j] += sum over i of a[0, m, i] * b[0, i, j] (b[0, j, i] where K lies in b's stick)."""
    transposed = g.loop_of(1, 0) == g.iterators.index("reduction")
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
