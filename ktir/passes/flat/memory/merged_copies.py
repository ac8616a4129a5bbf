"""Copies into memory that calls share, of what is loaded and whose dims are then merged: each is stored with its dims as they were."""

from __future__ import annotations

from math import prod

from ktir.analysis.calls import argument_attributes, text_attribute
from ktir.analysis.flat import memory_of
from ktir.dialects import ktdp
from ktir.mlir import func, ir, is_a, tensor
from ktir.roles import Role


def store_unmerged(function: func.FuncOp) -> None:
    """So nothing moves between load and store, and the copy may be left to the host."""
    roles = [text_attribute(a, "ktir.role") for a in argument_attributes(function)]
    for op in [op.operation for op in function.regions[0].blocks[0].operations]:
        merge = op.operands[0].owner if is_a(op, ktdp.StoreOp) else None
        if merge is None or not is_a(merge, tensor.CollapseShapeOp) or not is_a(merge.operands[0].owner, ktdp.LoadOp):
            continue
        tile = op.operands[1].owner
        view = tile.operands[0].owner if is_a(tile, ktdp.ConstructAccessTileOp) and all(i == 0 for i in tile.opview.indices) else None
        if view is None or not is_a(view, ktdp.ConstructMemoryViewOp) or len(view.operands) != 1:
            continue
        memory = memory_of(view.results[0])
        kept = ir.RankedTensorType(merge.operands[0].type)
        whole = list(memory.sizes) == list(ir.RankedTensorType(op.operands[0].type).shape)
        if not whole or len(memory.strides) != len(memory.sizes) or roles[memory.argument] != Role.SHARED:
            continue
        strides = []
        for dims, stride in zip(merge.opview.reassociation, memory.strides, strict=True):
            sizes = [kept.shape[ir.IntegerAttr(d).value] for d in ir.ArrayAttr(dims)]
            strides += [stride * prod(sizes[k + 1 :]) for k in range(len(sizes))]
        with ir.InsertionPoint(op), op.location:
            seen = ktdp.construct_memory_view(view.operands[0], list(kept.shape), strides, kept.element_type)
            ktdp.store(merge.operands[0], ktdp.construct_access_tile(seen, [0] * kept.rank, list(kept.shape)))
        op.erase()
        if not list(merge.results[0].uses):
            merge.operation.erase()
