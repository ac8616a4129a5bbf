"""Contractions inside of a loop over keys: scores of a block of keys, and products of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ktir.analysis.axes import k_in_stick, second_operand_source
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.mlir import arith, ir, linalg, scf, tensor
from ktir.passes.tiling.blocks import Blocks, Part, insert_stick, part, stick, tile_of
from ktir.passes.tiling.contractions import multiply
from ktir.passes.tiling.online_plan import KeyedPlan
from ktir.passes.tiling.tile_views import IndirectWindow, Window, index_constant, window
from ktir.target import LANES

Finish = Callable[[ir.Value, ir.Value, ir.Value], ir.Value]
"""What becomes of an output stick: from the finished accumulator, the result so far and the stick's number in the block."""


class KeyProducts:
    """Builds the contractions along keys. Second operands stream by in blocks of 64x64, or are slices of one that is in LX as a whole."""

    def __init__(self, plan: KeyedPlan, blocks: Blocks) -> None:
        self.plan = plan
        self.blocks = blocks
        self.resident: dict[ir.Operation, ir.Value] = {}
        """Contraction -> its second operand, where that is in LX."""

    def takes(self, value: ir.Value) -> bool:
        """Whether a load is of a second operand of a contraction along the keys."""
        g = self.plan.second_operands.get(value)
        return g is not None and (g.op.results[0] in self.plan.softmax.keyed or g.inputs[0] in self.plan.softmax.keyed)

    def load_resident(self, value: ir.Value, depth: int) -> None:
        """Load a second operand as a whole, if it is kept and belongs into the innermost one of `depth` open batch loops."""
        g = self.plan.second_operands[value]
        if g.op not in self.plan.kept or self.plan.resident_depth(g) != depth:
            return
        shape = list(ir.RankedTensorType(second_operand_source(g).type).shape)
        tile = self._memory(g, "").tile(0, 0, [shape[0], -(-shape[-2] // LANES) * LANES, LANES])
        self.resident[g.op] = ktdp.load(tile, ir.F16Type.get())

    def build(self, g: Generic, first: ir.Value, columns: Part, steps: Part, whole: ir.Value, finish: Finish) -> ir.Value:
        """`first` times the second operand, of which `columns` are wanted and `steps` are the sticks of the reduced loop, into `whole`."""
        resident = self.resident.get(g.op)
        memory = None if resident is not None else self._memory(g, self._inside(g, columns, steps))
        rows = self.plan.block_rows
        zero, one, f32 = index_constant(0), index_constant(1), ir.F32Type.get()
        outer = scf.ForOp(zero, index_constant(columns.count), one, [whole])
        with ir.InsertionPoint(outer.body):
            n = outer.induction_variable
            empty = tensor.EmptyOp([1, rows, LANES], f32).result
            cleared = linalg.fill(arith.ConstantOp(f32, ir.FloatAttr.get(f32, 0.0)).result, outs=[empty])
            inner = scf.ForOp(zero, index_constant(steps.count), one, [cleared])
            with ir.InsertionPoint(inner.body):
                k = inner.induction_variable
                at = [_moved(columns.first, n), _moved(steps.first, k)]
                sticks, block = at[::-1] if k_in_stick(g) else at
                row = arith.MulIOp(block, index_constant(LANES)).result
                if memory is None:
                    assert resident is not None
                    second = part(resident, [sticks, row], [1, LANES, LANES])
                else:
                    second = ktdp.load(memory.tile(sticks, row, [1, LANES, LANES]), ir.F16Type.get())
                scf.YieldOp([multiply(g, stick(first, k), second, inner.inner_iter_args[0])])
            so_far = outer.inner_iter_args[0]
            scf.YieldOp([insert_stick(finish(inner.results[0], so_far, n), so_far, n)])
        return outer.results[0]

    def _inside(self, g: Generic, columns: Part, steps: Part) -> str:
        """Where a part of the keys that a counter moves ends inside of the second operand: its `rows` or its `lanes`."""
        if not isinstance(columns.first, int):
            return "rows" if k_in_stick(g) else "lanes"
        if not isinstance(steps.first, int):
            return "lanes" if k_in_stick(g) else "rows"
        return ""

    def _memory(self, g: Generic, inside: str) -> Window | IndirectWindow:
        source = second_operand_source(g)
        place = replace(self.blocks.place(source), inside=inside)
        return window(tile_of(source.owner.operation), place, self.blocks.mapping)


def _moved(first: int | ir.Value, by: ir.Value) -> ir.Value:
    if isinstance(first, int):
        return by if first == 0 else arith.AddIOp(by, index_constant(first)).result
    return arith.AddIOp(first, by).result
