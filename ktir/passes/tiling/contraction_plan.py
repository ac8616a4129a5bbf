"""What `ktir-tile` decides for the matmuls of a kernel: what is fused into their loops, which second operands stay in the scratchpad.

Without batch loops a matmul's first operand may be loaded stick by stick, and its weights may stay from the first block of rows on; which
of these forms is the fastest is the cost model's word (`ktir.cost.tiles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import tensor_bytes
from ktir.analysis.attributes.residents import resident_behind
from ktir.cost.estimate import delivery_cycles
from ktir.cost.tiles import BLOCK_BYTES, Share, tile_cycles
from ktir.dialects.structured import Generic
from ktir.mlir import func, ir
from ktir.passes.tiling.tile_views import direct
from ktir.target import LANES, Target


@dataclass(frozen=True)
class Resident:
    """A second operand that stays in LX: its bytes, and the bytes that are not loaded again for that. `filled`: by the first block of rows,
    block by block; else it is loaded as a whole before."""

    contraction: ir.Operation
    bytes: int
    saved: int
    filled: bool = False


def blocks_of(rows: int) -> int:
    """Blocks of 64 rows that hold `rows`."""
    return -(-rows // LANES)


def second_operand_bytes(g: Generic) -> int:
    """Bytes of a contraction's second operand at one batch position, in whole blocks."""
    _, n, k = _extents(g)
    return k * n * BLOCK_BYTES


def _extents(g: Generic) -> tuple[int, int, int]:
    """Rows of the core's share, sticks of columns, sticks of the reduced loop."""
    n, *rows, _ = ir.RankedTensorType(g.op.results[0].type).shape
    return rows[-1], n, ir.RankedTensorType(g.inputs[0].type).shape[0]


def fused_consumers(ops: Sequence[ir.Operation], contractions: Sequence[Generic]) -> dict[ir.Value, ir.Operation]:
    """Contraction results that a single pointwise op consumes: it becomes the epilogue of the loop over output sticks.

    Only one that reads element for element what it computes: the vector unit takes sums from PT as they come, and cannot spread a column,
    a row or a scalar. A body that knows its position (a mask) is left out: inside the loop it would see a block, not the tensor. So is an
    op with an operand that does not exist yet at the contraction.
    """
    fused = {}
    position = {op: i for i, op in enumerate(ops)}
    for contraction in contractions:
        result = contraction.op.results[0]
        uses = list(result.uses)
        if len(uses) != 1 or uses[0].owner.name != "linalg.generic":
            continue
        g = Generic(uses[0].owner.operation)
        ready = all(v == result or v.owner.name == "ktdp.load" or position[v.owner] < position[contraction.op] for v in g.inputs)
        same = g.is_pointwise and g.maps[uses[0].operand_number] == g.maps[-1]
        if ready and same and not any(o.name == "linalg.index" for o in g.body_ops):
            fused[result] = g.op
    return fused


def stored_at_once(
    ops: Sequence[ir.Operation], contractions: Sequence[Generic], fused: Mapping[ir.Value, ir.Operation]
) -> dict[ir.Value, list[ir.Operation]]:
    """Results of contractions (with what is fused into them) that are only stored: their stores, which need not wait for other ops.

    Not where the kernel reads the same memory: what an op in place reads must be read before.
    """
    read = {argument_of(op) for op in ops if op.name == "ktdp.load"}
    found = {}
    for g in contractions:
        result = g.op.results[0]
        target = fused[result].results[0] if result in fused else result
        stores = [u.owner.operation for u in target.uses]
        if stores and all(op.name == "ktdp.store" and (at := argument_of(op)) is not None and at not in read for op in stores):
            found[target] = stores
    return found


def by_stick(stores: Iterable[ir.Operation]) -> bool:
    """Whether stores follow each finished stick: not through indices, which would be read again."""
    return all(direct(op.operands[1].owner) for op in stores)


def argument_of(access: ir.Operation) -> ir.Value | None:
    """The argument of the kernel that a load or store touches; None for what stays in the scratchpad."""
    return None if resident_behind(access) is not None else _base(access.operands[-1].owner.operands[0].owner.opview.offset)


def _base(offset: ir.Value) -> ir.Value | None:
    if isinstance(offset.owner, ir.Block):
        return offset
    if offset.owner.name != "arith.addi":
        return None
    return next((found for v in offset.owner.operands if (found := _base(v)) is not None), None)


def streamable(ops: Sequence[ir.Operation], contractions: Sequence[Generic]) -> set[ir.Value]:
    """First operands that may be loaded stick by stick: only contractions read them, and the kernel does not write that memory."""
    written = {None, *(argument_of(op) for op in ops if op.name == "ktdp.store")}
    own = {g.op for g in contractions}
    return {
        v
        for v in {g.inputs[0] for g in contractions if g.inputs[0].owner.name == "ktdp.load"}
        if argument_of(v.owner.operation) not in written and all(u.owner.operation in own and u.operand_number == 0 for u in v.uses)
    }


def shares(source: func.FuncOp, contractions: Iterable[Generic], target: Target) -> dict[ir.Operation, Share]:
    """Per contraction of a kernel without batch loops what the cost model has to know of a core's part."""
    work = KernelFunction(source).work
    columns, rows = work.column_parts, list(work.row_parts)
    parts = prod(rows)
    rate = target.dram_bytes_per_cycle
    found = {}
    for g in contractions:
        first = tensor_bytes(g.inputs[0])
        second = second_operand_bytes(g)
        loaded = g.inputs[0].owner.name == "ktdp.load" and resident_behind(g.inputs[0].owner.operation) is None
        (use, *_) = list(g.op.results[0].uses)
        result = tensor_bytes(use.owner.results[0] if len(use.owner.results) else g.op.results[0])
        found[g.op] = Share(
            *_extents(g),
            max(first * parts / rate, delivery_cycles(first, columns, target)) if loaded else 0.0,
            max(second * columns / rate, delivery_cycles(second, parts, target)),
            result * parts * columns / rate,
        )
    return found


def share_cycles(share: Share, rows: int, streamed: bool, kept: bool, target: Target) -> float:
    """Cycles of a contraction in blocks of `rows` rows."""
    return tile_cycles(share, rows, -(-share.rows // rows), streamed, kept, target)
