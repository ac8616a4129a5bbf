"""Tensors that stay in the scratchpad from kernel to kernel: how the IR says so.

A kernel's attribute `ktir.residents` lists what lies in the scratchpad while it runs, its own accesses or not; the largest gap between
them is room for the kernel's own tensors. A view of a resident has the attribute `ktir.resident`, memory space `ct_local` and an address
that is a number. What an author of a kernel keeps at addresses of his own is there as residents too.
"""

from __future__ import annotations

from itertools import pairwise

from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.mlir import ir, is_a

RESIDENTS = "ktir.residents"
"""Attribute of kernels."""
RESIDENT = "ktir.resident"
"""Attribute of views."""
EXCHANGE = "ktir.exchange"
"""Attribute of kernels that only move residents from core to core."""


def residents_of(kernel: ir.Operation) -> list[kt.ResidentAttr]:
    """What stays in the scratchpad while a kernel runs."""
    return [kt.ResidentAttr(a) for a in ir.ArrayAttr(kernel.attributes[RESIDENTS])] if RESIDENTS in kernel.attributes else []


def room_of(kernel: ir.Operation, lx_bytes: int) -> tuple[int, int]:
    """The bytes, from one to another, that a kernel may use for its own tensors: the largest gap between what stays."""
    kept = sorted((r.address, r.address + r.bytes) for r in residents_of(kernel))
    gaps = [(end, begin) for (_, end), (begin, _) in pairwise([(0, 0), *kept, (lx_bytes, lx_bytes)])]
    return max(gaps, key=lambda gap: gap[1] - gap[0])


def resident_of(view: ir.Operation) -> kt.ResidentAttr | None:
    """The resident that a view shows, if it shows one."""
    return kt.ResidentAttr(view.attributes[RESIDENT]) if RESIDENT in view.attributes else None


def resident_behind(access: ir.Operation) -> kt.ResidentAttr | None:
    """The resident that a load or store accesses, if it accesses one."""
    tile = access.operands[-1].owner.operation
    return resident_of(tile.operands[0].owner.operation) if is_a(tile, ktdp.ConstructAccessTileOp) else None
