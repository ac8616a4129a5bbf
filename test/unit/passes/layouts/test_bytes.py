"""What choices of layouts take floats of one byte to move."""

from __future__ import annotations

import torch

import ktir
from ktir.analysis.flat import read
from ktir.analysis.items import Store
from ktir.assembly import parse_module
from ktir.context import context
from ktir.mlir import func, ir, is_a, operations
from ktir.passes.layouts.buffers import Buffers
from ktir.passes.layouts.physical_items import PhysicalItems
from ktir.passes.layouts.stick_roles import StickRoles
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


def test_the_planner_knows_bytes() -> None:
    """What it says that accesses move, and how many pieces the scratchpad takes: entries of 64 lanes, or lanes."""

    def step(cache: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        cache[3:5] = row.to(cache.dtype)
        return cache.half() * 2

    cache, row = torch.zeros(64, 256), torch.zeros(2, 256).half()
    moved: dict[torch.dtype, list[tuple[int, int]]] = {}
    for dtype in (torch.float16, torch.float8_e4m3fn):
        with context(), ir.Location.unknown():
            module = parse_module(str(ktir.capture(step, cache.to(dtype), row)))
            run_pipeline(module, "builtin.module(ktir-separate-calls,cse,ktir-generalize,ktir-break-views)")
            (function,) = (op.opview for op in operations(module) if is_a(op, func.FuncOp))
            nodes = read(function)
            items = PhysicalItems(StickRoles(function, nodes, Buffers(function, nodes)), DATASHEET)
            loads = {t for item in items.items for t in item.sources if t.loaded and t.pieces}
            moved[dtype] = sorted((x.moved, x.pieces) for x in [*loads, *(i for i in items.items if isinstance(i, Store))] if x.pieces)
    assert moved[torch.float16] == [(2 * 512, 8), (2 * 64 * 256, 256)]
    assert moved[torch.float8_e4m3fn] == [(512, 8), (64 * 256, 256)]
