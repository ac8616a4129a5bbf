"""What a softmax over blocks of keys takes: rows and keys of a block that fit the scratchpad."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ktir.cost.tiles import ROW_BUFFERS, WEIGHT_BUFFERS
from ktir.diagnostics import Unsupported
from ktir.dialects.structured import Generic
from ktir.mlir import func, ir
from ktir.passes._levels import tensor_bytes
from ktir.passes._softmax import Softmax, softmax_of
from ktir.passes._tile_plan import BLOCK_BYTES, TilePlan, even
from ktir.target import DATASHEET, LANES

_ENTRY = {"f16": 2 * LANES, "f32": 4 * LANES, "i32": 4 * LANES}


class KeyedPlan(TilePlan):
    """The facts of a kernel whose softmax runs over blocks of keys; `sticks` of them, chosen with the rows."""

    def __init__(self, source: func.FuncOp, softmax: Softmax, rows: int, lx_bytes: int) -> None:
        self.softmax = softmax
        self.sticks = 1
        super().__init__(source, rows, lx_bytes)

    def _decide(self, wanted: int, budget: int) -> int:
        s = self.softmax
        along = {*s.keyed, *(p.contraction.op.results[0] for p in s.products)}
        self.fused = {v: op for v, op in self.fused.items() if v not in along}
        self.sticks = min(4, s.columns // LANES) or 1
        per_row = self._per_row()
        rows = min((budget - self._fixed()) // per_row // 2 * 2, 2 * DATASHEET.pt_accumulator_rows, even(self.share))
        chosen = min(rows, even(wanted)) if wanted else even(-(-self.share // -(-self.share // rows)))
        self.used = self._fixed() + chosen * per_row
        return chosen

    def _per_row(self) -> int:
        """Bytes of the scratchpad per row of a block."""
        s = self.softmax
        streams = sum(self._bytes(op.results[0]) for op in s.before if op.name == "ktdp.load" and self.has_rows(op.results[0]))
        others = sum(self._bytes(op.results[0]) for op in s.before if op.name == "linalg.generic")
        products = sum(self._bytes(p.contraction.op.results[0]) for p in s.products)
        columns = self._bytes(s.most.op.results[0]) * 2 + _ENTRY["f32"] * (1 + 2 * len(s.sums))
        after = sum(self._bytes(op.results[0]) for op in s.after if op.name == "linalg.generic") + products
        keys = max(self._per_stick(s.inside) + 2 * _ENTRY["f32"] + _ENTRY["f16"], self._per_stick(s.again)) * self.sticks
        return ROW_BUFFERS * streams + others + products + columns + max(after, keys)

    def _per_stick(self, ops: Iterable[ir.Operation]) -> int:
        found = 0
        for op in ops:
            if op.name == "ktdp.load" and self.has_rows(op.results[0]):
                found += ROW_BUFFERS * self._bytes(op.results[0]) // self.softmax.sticks
            elif op.name == "linalg.generic" and not Generic(op).is_contraction:
                found += self._bytes(op.results[0]) // self.softmax.sticks
        return found

    def _fixed(self) -> int:
        loads = [op for op in self.ops if op.name == "ktdp.load"]
        vectors = [v for op in loads if not self.has_rows(v := op.results[0]) and v not in self.second_operands]
        keyed = sum(self._bytes(v) // self.softmax.sticks * self.sticks for v in vectors if v in self.softmax.keyed)
        others = sum(self._bytes(v) for v in vectors if v not in self.softmax.keyed)
        return ROW_BUFFERS * (keyed + others) + len(self.second_operands) * WEIGHT_BUFFERS * BLOCK_BYTES

    @staticmethod
    def _bytes(value: ir.Value) -> int:
        """Bytes of a tensor per row."""
        return tensor_bytes(value) // prod(list(ir.RankedTensorType(value.type).shape)[1:-1])


def plan_of(source: func.FuncOp, rows: int, lx_bytes: int, online: str) -> TilePlan:
    """The plan of a kernel; `online` says when a softmax runs over blocks of keys: `auto`, `always` or `never`."""
    ops = [o.operation for o in source.regions[0].blocks[0].operations]
    softmax = None if online == "never" else softmax_of(ops)
    if softmax is None:
        return TilePlan(source, rows, lx_bytes)
    if online == "always":
        return KeyedPlan(source, softmax, rows, lx_bytes)
    try:
        return TilePlan(source, rows, lx_bytes)
    except Unsupported:
        return KeyedPlan(source, softmax, rows, lx_bytes)
