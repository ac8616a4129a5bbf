"""Index arithmetic of bodies: the one question that it may ask is whether a lane lies before the end of the row."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.arithmetic.integers import PREDICATES
from ktir.mlir import arith, ir, is_a, linalg, names
from ktir.target import LANES

_INDEX_OPS = names(linalg.IndexOp, arith.AddIOp, arith.SubIOp, arith.MulIOp, arith.CmpIOp, arith.ConstantOp)


def is_index_arithmetic(op: ir.Operation) -> bool:
    """Whether an op computes with positions; such ops become part of a mask."""
    return op.name in _INDEX_OPS and all(isinstance(v.type, ir.IndexType) for v in (list(op.operands) or op.results))


@dataclass(frozen=True)
class LaneMasks:
    """Reads `64 * stick + lane < limit` in a body with these loops; `sticks` is the extent of the stick loop."""

    stick_loop: int
    lane_loop: int
    sticks: int

    def limit(self, condition: ir.Value) -> int | None:
        """How many lanes of a row a condition holds for, from the first on; None if it is no such condition."""
        compare = condition.owner
        if not is_a(compare, arith.CmpIOp) or not is_index_arithmetic(compare):
            return None
        predicate = PREDICATES[ir.IntegerAttr(compare.attributes["predicate"]).value]
        if predicate not in ("ult", "slt", "ule", "sle"):
            return None
        left, right = (self._affine(v) for v in compare.operands)
        if left is None or right is None or set(right) != {-1}:
            return None
        per_stick, per_lane = left.get(self.stick_loop, 0), left.get(self.lane_loop, 0)
        others = set(left) - {self.stick_loop, self.lane_loop, -1}
        if per_lane != 1 or (per_stick != LANES and self.sticks > 1) or any(left[k] for k in others):
            return None
        return max(0, right[-1] - left.get(-1, 0) + (predicate in ("ule", "sle")))

    def _affine(self, value: ir.Value) -> dict[int, int] | None:
        """Coefficient per loop; that of -1 is the constant."""
        op = value.owner
        if isinstance(op, ir.Block):
            return None
        if is_a(op, linalg.IndexOp):
            return {ir.IntegerAttr(op.attributes["dim"]).value: 1}
        if is_a(op, arith.ConstantOp):
            return {-1: ir.IntegerAttr(op.attributes["value"]).value}
        if not is_a(op, arith.AddIOp, arith.SubIOp, arith.MulIOp):
            return None
        a, b = (self._affine(v) for v in op.operands)
        if a is None or b is None:
            return None
        if is_a(op, arith.MulIOp):
            if set(a) == {-1}:
                a, b = b, a
            return {k: n * b[-1] for k, n in a.items()} if set(b) == {-1} else None
        sign = 1 if is_a(op, arith.AddIOp) else -1
        return {k: a.get(k, 0) + sign * b.get(k, 0) for k in (*a, *b)}
