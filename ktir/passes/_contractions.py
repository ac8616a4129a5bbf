"""Contractions of a tiled kernel: loops over output sticks and over K that carries one f32 accumulator block.

Each trip multiplies one 64x64 block of the second operand, which streams by or is a slice of one that stays in LX. What alone reads the
result is computed on the finished accumulator.
"""

from __future__ import annotations

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic
from ktir.mlir import arith, ir, linalg, scf, tensor
from ktir.passes._axes import k_in_stick, second_operand_source
from ktir.passes._blocks import Blocks, insert_stick, part, stick
from ktir.passes._tile_plan import blocks_of
from ktir.passes._tile_views import IndirectWindow, Window, index_constant
from ktir.target import LANES


class Contractions:
    """Builds the contractions of a kernel on its blocks."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.plan = blocks.plan
        self.resident: dict[ir.Operation, ir.Value] = {}
        """Contraction -> its second operand, where that stays in LX."""

    def load_resident(self, value: ir.Value, depth: int) -> None:
        """Load a second operand that stays, if it belongs into the innermost one of `depth` open batch loops."""
        g = self.plan.second_operands[value]
        if any(r.contraction == g.op for r in self.plan.residents) and self.plan.resident_depth(g) == depth:
            shape = list(ir.RankedTensorType(value.type).shape)
            tile = self._second_operand(g).tile(0, 0, [shape[0], blocks_of(shape[-2]) * LANES, LANES])
            self.resident[g.op] = ktdp.load(tile, ir.F16Type.get())

    def build(self, g: Generic) -> None:
        """One contraction, with what is fused into it."""
        blocks = self.blocks
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
        whole = tensor.EmptyOp([sticks, self.plan.block_rows, LANES], element).result
        outer = scf.ForOp(zero, index_constant(sticks), one, [whole])
        with ir.InsertionPoint(outer.body):
            n = outer.induction_variable
            f32 = ir.F32Type.get()
            empty = tensor.EmptyOp([1, self.plan.block_rows, LANES], f32).result
            cleared = linalg.fill(arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result, outs=[empty])
            inner = scf.ForOp(zero, index_constant(steps), one, [cleared])
            with ir.InsertionPoint(inner.body):
                k = inner.induction_variable
                a = stick(blocks.mapping[g.inputs[0]], k)
                first, block = (k, n) if k_in_stick(g) else (n, k)
                row = arith.MulIOp(block, index_constant(LANES)).result
                if streamed is None:
                    assert resident is not None
                    b = part(resident, [first, row], [1, LANES, LANES])
                else:
                    b = ktdp.load(streamed.tile(first, row, [1, LANES, LANES]), ir.F16Type.get())
                scf.YieldOp([multiply(g, a, b, inner.inner_iter_args[0])])
            finished = self._epilogue(consumer, result, inner.results[0], n, element)
            scf.YieldOp([insert_stick(finished, outer.inner_iter_args[0], n)])
        blocks.mapping[target] = outer.results[0]

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
