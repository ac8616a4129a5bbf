"""What is decided for a function before anything of it is built: which dims lie in the stick, which rows are one, which pads are zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ktir.analysis.flat import Node, read
from ktir.mlir import func, ir
from ktir.passes.layouts.buffers import Buffers
from ktir.passes.layouts.physical_items import zero_pads
from ktir.passes.layouts.row_merging import RowMerging
from ktir.passes.layouts.stick_roles import StickRoles


@dataclass(frozen=True, eq=False)
class LayoutPlan:
    """The forms of a function's tensors."""

    nodes: Sequence[Node]
    buffers: Buffers
    roles: StickRoles
    rows: RowMerging
    zero_pads: set[ir.Value]
    """Values whose pad lanes must be zero."""
    in_place: set[int]
    """Arguments that are read and written as the host packs them."""


def layout_plan(source: func.FuncOp) -> LayoutPlan:
    """The forms of a flat function's tensors."""
    nodes = read(source)
    buffers = Buffers(source, nodes)
    roles = StickRoles(source, nodes, buffers)
    rows = RowMerging(roles)
    in_place = {a for a in range(len(buffers.attributes)) if buffers.is_in_place(a) and _has_one_form(nodes, roles, rows, a)}
    return LayoutPlan(nodes, buffers, roles, rows, zero_pads(roles), in_place)


def _has_one_form(nodes: Sequence[Node], roles: StickRoles, rows: RowMerging, argument: int) -> bool:
    """Whether all accesses of a buffer that is read and written see it in one physical form, so that the host can pack it."""
    forms = set()
    for node in nodes:
        if node.memory is None or node.memory.argument != argument:
            continue
        if node.kind == "gather":  # by its indices, in rows, whatever form its result has
            return False
        users = [(node, 0)] if node.kind == "store" else roles.users[node.result]
        forms |= {(use.stick, use.groups) for use in (rows.use(*user) for user in users)}
    dims = [d for group in (next(iter(forms))[1] if len(forms) == 1 else ()) for d in group]
    return len(forms) == 1 and dims == sorted(dims) and min(dims, default=0) >= 0
