"""Kernels whose ops work on each stick by itself: where rows are too long for the scratchpad, it holds some of their sticks at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ktir.dialects.structured import Generic
from ktir.mlir import ir
from ktir.passes.tiling.tile_views import direct


class StickLocal(NamedTuple):
    """Sticks of a row, and the tensors that have all of them."""

    sticks: int
    values: frozenset[ir.Value]


def stick_local(ops: Sequence[ir.Operation]) -> StickLocal | None:
    """What a kernel has of a row, if all that it does with one stick concerns no other one; None if not, or if there is one stick."""
    made = [op.results[0] for op in ops if op.name in ("ktdp.load", "linalg.generic", "linalg.fill", "tensor.empty")]
    sticks = max((_sticks(v) for v in made), default=1)
    generics = [Generic(op) for op in ops if op.name == "linalg.generic"]
    tiles = [op.operands[-1].owner.operation for op in ops if op.name in ("ktdp.load", "ktdp.store")]
    if sticks == 1 or not all(map(direct, tiles)) or not all(_is_local(g, sticks) for g in generics):
        return None
    return StickLocal(sticks, frozenset(v for v in made if _sticks(v) == sticks))


def _sticks(value: ir.Value) -> int:
    return ir.RankedTensorType(value.type).shape[0]


def _is_local(g: Generic, sticks: int) -> bool:
    """Whether an op computes each stick from the same stick of its operands, and from columns; or columns from columns."""
    if not g.is_pointwise or any(op.name == "linalg.index" for op in g.body_ops):
        return False
    result = len(g.inputs)
    if _sticks(g.op.results[0]) == 1:
        return all(_sticks(v) == 1 for v in g.inputs)
    same = [g.loop_of(i, 0) == g.loop_of(result, 0) if _sticks(v) == sticks else _sticks(v) == 1 for i, v in enumerate(g.inputs)]
    return _sticks(g.op.results[0]) == sticks and all(same)
