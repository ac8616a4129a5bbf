"""Lifetimes of tensors in the scratchpad."""

from __future__ import annotations

import numpy as np

from ktir import lang
from ktir.analysis.calls import functions_of, is_kernel
from ktir.analysis.partial_sums import contribution
from ktir.assembly import parse_module
from ktir.context import context
from ktir.dialects import ktdp
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir, is_a, operations
from ktir.passes.scratchpad.buffer_plan import BufferPlan
from ktir.target import DATASHEET


@lang.kernel
def twice(x, y):
    y[lang.tile_id()] = lang.shift(lang.shift(x[lang.tile_id()] * 2))


def test_what_is_sent_lives_until_all_has_arrived() -> None:
    """Cores send and receive at the same time: what arrives may not take the place of what is sent."""
    x = np.zeros((4, 64), np.float32)
    found: list[tuple[int, int]] = []

    def observe(name: str, module: ir.Module) -> None:
        if name != "tiled":
            return
        (kernel,) = (f for f in functions_of(module).values() if is_kernel(f))
        plan = BufferPlan(kernel, DATASHEET, ())
        for op in operations(kernel):
            if is_a(op, ktdp.InterTileConsumeOp):
                sent = plan.buffers[plan.root(contribution(op.operands[0].owner))]
                found.append((sent.end, plan.buffers[plan.root(op.results[0])].start))

    with context(), ir.Location.unknown():
        compile_logical(parse_module(twice[4].ktir(x, x)), observe=observe)
    assert len(found) == 2
    assert all(end > start for end, start in found)
