"""Contractions of a tiled kernel: loops over output sticks and over K that carries one f32 accumulator block.

Each trip multiplies one 64x64 block of the second operand, which streams by or is a slice of one that stays in LX. What alone reads the
result is computed on the finished accumulator.
"""

from __future__ import annotations

from collections.abc import Sequence

from ktir.analysis.axes import k_in_stick, second_operand_source
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic
from ktir.mlir import arith, ir, linalg, scf, tensor
from ktir.passes.tiling.blocks import Blocks, insert_part, insert_stick, part, stick
from ktir.passes.tiling.contraction_plan import blocks_of, by_stick
from ktir.passes.tiling.tile_views import IndirectWindow, Window, index_constant
from ktir.target import LANES


class Contractions:
    """Builds the contractions of a kernel on its blocks."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.plan = blocks.plan
        self.residents = {r.contraction: r for r in self.plan.residents}
        self.resident: dict[ir.Operation, ir.Value] = {}
        """Contraction -> its second operand, where that is in LX as a whole."""

    def load_resident(self, value: ir.Value, depth: int) -> None:
        """Load a second operand that stays, if it belongs into the innermost one of `depth` open batch loops."""
        g = self.plan.second_operands[value]
        resident = self.residents.get(g.op)
        if resident is not None and not resident.filled and self.plan.resident_depth(g) == depth:
            self.resident[g.op] = ktdp.load(self._second_operand(g).tile(0, 0, self._whole_shape(value)), ir.F16Type.get())

    @staticmethod
    def _whole_shape(value: ir.Value) -> list[int]:
        shape = list(ir.RankedTensorType(value.type).shape)
        return [shape[0], blocks_of(shape[-2]) * LANES, LANES]

    def build(self, g: Generic) -> None:
        """One contraction, with what is fused into it."""
        plan = self.plan
        result = g.op.results[0]
        consumer = plan.fused.get(result)
        target = result if consumer is None else consumer.results[0]
        if consumer is not None:
            self._load_operands(Generic(consumer))
        element = ir.RankedTensorType(target.type).element_type
        sticks = ir.RankedTensorType(result.type).shape[0]
        weights = self._weights(g)
        stores = plan.stored.get(target, [])
        sliced = bool(stores) and by_stick(stores)
        carried = [] if sliced else [tensor.EmptyOp([sticks, plan.block_rows, LANES], element).result]
        outer = scf.ForOp(index_constant(0), index_constant(sticks), index_constant(1), [*carried, *weights.carried])
        with ir.InsertionPoint(outer.body):
            n = outer.induction_variable
            weights.carried = list(outer.inner_iter_args)[len(carried) :]
            accumulator = self._sum(g, weights, n)
            finished = self._epilogue(consumer, result, accumulator, n, element)
            for store in stores if sliced else ():
                with store.location:
                    self.blocks.store_stick(store, finished, n)
            scf.YieldOp([*(insert_stick(finished, whole, n) for whole in list(outer.inner_iter_args)[: len(carried)]), *weights.carried])
        if not sliced:
            self.blocks.mapping[target] = outer.results[0]
            for store in stores:
                with store.location:
                    self.blocks.store(store)
        if weights.carried:
            self.resident[g.op] = outer.results[len(carried)]

    def _sum(self, g: Generic, weights: _Weights, n: ir.Value) -> ir.Value:
        """The loop over K for one stick of columns; its accumulator. Weights that are kept are carried through."""
        f32 = ir.F32Type.get()
        rows = g.inputs[0]
        steps = ir.RankedTensorType(rows.type).shape[0]
        empty = tensor.EmptyOp([1, self.plan.block_rows, LANES], f32).result
        cleared = linalg.fill(arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result, outs=[empty])
        loop = scf.ForOp(index_constant(0), index_constant(steps), index_constant(1), [cleared, *weights.carried])
        with ir.InsertionPoint(loop.body):
            k = loop.induction_variable
            a = self.blocks.load_stick(rows.owner.operation, k) if rows in self.plan.streamed else stick(self.blocks.mapping[rows], k)
            weights.carried = list(loop.inner_iter_args)[1:]
            b = weights.block(*((k, n) if k_in_stick(g) else (n, k)))
            scf.YieldOp([multiply(g, a, b, loop.inner_iter_args[0]), *weights.carried])
        weights.carried = list(loop.results)[1:]
        return loop.results[0]

    def _weights(self, g: Generic) -> _Weights:
        """Where the blocks of a contraction's second operand come from."""
        resident = self.residents.get(g.op)
        if g.op in self.resident:
            return _Weights(self.resident[g.op], None)
        if resident is None:
            return _Weights(None, self._second_operand(g))
        empty = tensor.EmptyOp(self._whole_shape(second_operand_source(g)), ir.F16Type.get()).result
        return _Weights(None, self._second_operand(g), [empty])

    def _load_operands(self, g: Generic) -> None:
        """Load what an op that is computed ahead of its place reads."""
        for value in g.inputs:
            if value not in self.blocks.mapping and value.owner.name == "ktdp.load":
                with value.owner.location:
                    self.blocks.load(value.owner.operation)

    def _second_operand(self, g: Generic) -> Window | IndirectWindow:
        """The memory of a second operand at the batch position; rows beyond the tensor are clipped."""
        source = second_operand_source(g)
        return self.blocks.window(source.owner.operation, source)

    def _epilogue(self, consumer: ir.Operation | None, accumulator: ir.Value, value: ir.Value, n: ir.Value, element: ir.Type) -> ir.Value:
        """What becomes of a finished accumulator block: the fused consumer, or a copy."""
        init = tensor.EmptyOp([1, self.plan.block_rows, LANES], element).result
        if consumer is None:
            identity = affine_map(3, [0, 1, 2])
            return generic([value], init, [identity] * 2, ["parallel"] * 3, lambda a: a[0], loc=ir.Location.current)
        g = Generic(consumer)
        inputs = []
        for i, operand in enumerate(g.inputs):
            if operand == accumulator:
                inputs.append(value)
            elif g.loop_of(i, 0) is None:
                inputs.append(self.blocks.mapping[operand])
            else:
                inputs.append(stick(self.blocks.mapping[operand], n))
        return self.blocks.rebuilt(g, inputs, init)


class _Weights:
    """The blocks of a second operand: slices of one that stays, or loaded one by one. What is loaded is kept in the tensor that `carried`
    holds, if any."""

    def __init__(self, resident: ir.Value | None, window: Window | IndirectWindow | None, carried: Sequence[ir.Value] = ()) -> None:
        self.resident, self.window = resident, window
        self.carried = list(carried)

    def block(self, first: ir.Value, number: ir.Value) -> ir.Value:
        """The block of 64 rows `number` in stick `first`."""
        row = arith.MulIOp(number, index_constant(LANES)).result
        shape = [1, LANES, LANES]
        if self.window is None:
            assert self.resident is not None
            return part(self.resident, [first, row], shape)
        block = ktdp.load(self.window.tile(first, row, shape), ir.F16Type.get())
        if not self.carried:
            return block
        self.carried = [insert_part(block, self.carried[0], [first, row])]
        return part(self.carried[0], [first, row], shape)


def multiply(g: Generic, a: ir.Value, b: ir.Value, accumulator: ir.Value) -> ir.Value:
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
