"""Lifetimes of tensors in the scratchpad."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ktir
from ktir import lang
from ktir.analysis.calls import functions_of, is_kernel
from ktir.analysis.partial_sums import contribution
from ktir.assembly import parse_module
from ktir.context import context
from ktir.dialects import ktdp
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir, is_a, operations
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.passes.scratchpad.buffer_plan import BufferPlan
from ktir.pipeline import run_pipeline
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


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ gate) * (x @ up)


@pytest.mark.parametrize("lx_bytes", [1_400_000, 1_000_000, 600_000])
def test_streams_without_room_lose_half_of_their_slots(lx_bytes: int) -> None:
    """512 rows of a core come stick by stick for both matmuls: 1 MiB in eight slots each, and half a MiB in four."""
    text = ktir.capture(gated, torch.zeros(1024, 4096).half(), *(torch.zeros(4096, 7168).half() for _ in range(2)))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated().text("ktir-tile"))
        run_pipeline(module, f"ktir-allocate-scratchpad{{lx-bytes={lx_bytes}}}")
        used = int(re.findall(r"ktir.lx_bytes = (\d+)", str(module))[0])
        slots = [int(n) for n in re.findall(r"rotate<(\d+)", str(module))]
    assert lx_bytes // 2 < used <= lx_bytes
    assert len(slots) == 4, "none has a single slot"
    assert min(slots) >= lx_bytes // 300_000
