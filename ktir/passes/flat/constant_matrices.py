"""A constant as the second operand of a matmul lies in memory: the array takes its weights from where they were loaded or computed."""

from __future__ import annotations

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.layout import LANES
from ktir.mlir import func, ir, is_a, linalg
from ktir.passes.flat.memory.new_arguments import NewArguments
from ktir.passes.flat.memory.windows import Window, shape


def constant_matrices_to_memory(function: func.FuncOp, arguments: NewArguments) -> None:
    """Store each fill that is the second operand of a contraction to a pool, and load it for that; the loops are in order by now."""
    loaded: dict[ir.Value, ir.Value] = {}
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if not is_a(op, linalg.GenericOp) or Generic(op).contraction is None:
            continue
        matrix = op.operands[1]
        if is_a(matrix.owner, linalg.FillOp):
            if matrix not in loaded:
                loaded[matrix] = _through_memory(matrix, arguments)
            op.operands[1] = loaded[matrix]


def _through_memory(matrix: ir.Value, arguments: NewArguments) -> ir.Value:
    fill, sizes, element = matrix.owner.operation, shape(matrix), ir.RankedTensorType(matrix.type).element_type
    base = arguments.add("pool", sizes, element, fill.location)
    with ir.InsertionPoint.after(fill), fill.location:
        view = ktdp.construct_memory_view(base, sizes, Window.dense(sizes, LANES).strides, element)
        tile = ktdp.construct_access_tile(view, [0] * len(sizes), sizes)
        ktdp.store(matrix, tile)
        return ktdp.load(tile, element)
