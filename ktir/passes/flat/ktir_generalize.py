"""Logical KTIR: named matmuls, transposes, broadcasts and reductions become `linalg.generic`, the one form that layouts are assigned to.

Upstream's `linalg-generalize-named-ops` would also rewrite fills, which the passes know by name, and gives bodies no location.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.dialects.module_level import Level
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic, maps_of
from ktir.mlir import ir, is_a, linalg, named, operations
from ktir.pipeline import Pass

_CONTRACTIONS: dict[str, tuple[tuple[int, ...], ...]] = named(
    {
        linalg.MatmulOp: ((0, 2), (2, 1), (0, 1)),
        linalg.BatchMatmulOp: ((0, 1, 3), (0, 3, 2), (0, 1, 2)),
    }
)
"""Loops of each dim of the operands; the last loop is reduced."""


@dataclass(frozen=True)
class GeneralizePass(Pass):
    """Write named structured ops out as `linalg.generic`; fills stay.

    Expects and guarantees: the logical level; values do not change, but for the last places of f32 matmuls.
    """

    name: ClassVar[str] = "ktir-generalize"
    description: ClassVar[str] = "logical: named matmuls, transposes and broadcasts as generics"
    tolerance: ClassVar[float] = 2.0**-10  # products of f32 are rounded each, not as sums of blocks, and what they make may become f16

    def allowed(self, module: ir.Module) -> float:
        """The tolerance where there is a matmul of f32; else nothing."""
        wide = (is_a(op, linalg.GenericOp) and Generic(op).is_wide_matmul for op in operations(module))
        return self.tolerance if any(wide) else 0.0

    def run(self, module: ir.Module) -> None:
        """Rewrite every named op of the module."""
        require_level(module, self.name, Level.LOGICAL)
        for op in operations(module):
            maps = _maps(op)
            if maps is not None:
                with ir.InsertionPoint(op), op.location:
                    result = _generic(op, *maps)
                op.results[0].replace_all_uses_with(result)
                op.erase()


def _maps(op: ir.Operation) -> tuple[list[ir.AffineMap], list[str]] | None:
    """Indexing maps and iterators of a named op; None for all other ops."""
    if op.name not in _CONTRACTIONS and not is_a(op, linalg.TransposeOp, linalg.BroadcastOp):
        return None
    rank = ir.RankedTensorType(op.results[0].type).rank
    if op.name in _CONTRACTIONS:
        usual = [affine_map(rank + 1, dims) for dims in _CONTRACTIONS[op.name]]
        return maps_of(op) if "indexing_maps" in op.attributes else usual, ["parallel"] * rank + ["reduction"]
    if is_a(op, linalg.TransposeOp):
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        return [affine_map(rank, [order.index(d) for d in range(rank)]), ir.AffineMap.get_identity(rank)], ["parallel"] * rank
    added = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    kept = [d for d in range(rank) if d not in added]
    return [affine_map(rank, kept), ir.AffineMap.get_identity(rank)], ["parallel"] * rank


def _generic(op: ir.Operation, maps: Sequence[ir.AffineMap], iterators: Sequence[str]) -> ir.Value:
    *inputs, init = op.operands
    block = op.regions[0].blocks[0]

    def body(arguments: list[ir.Value]) -> ir.Value:
        *ops, end = (o.operation for o in block.operations)
        mapping = dict(zip(block.arguments, arguments, strict=True))
        clone_ops(ops, mapping)
        for source in ops:
            for result in source.results:
                mapping[result].owner.location = op.location
        return mapping[end.operands[0]]

    return generic(inputs, init, maps, iterators, body, loc=op.location)
