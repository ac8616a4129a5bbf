"""How much of a language model's intermediate values never sees global memory."""

from __future__ import annotations

from math import prod

import pytest
import torch
from models.families import EVEN, build
from models.runs import Prompt, make_cache, step_of

import ktir
from ktir.analysis.attributes.residents import resident_of
from ktir.assembly import parse_module
from ktir.context import context
from ktir.mlir import func, ir, operations
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

BYTES = {"f16": 2, "f32": 4, "i32": 4, "i64": 8, "i8": 1, "i1": 1}


def llama(length: int) -> str:
    """Logical KTIR of the prefill of the tiny two-layer Llama."""
    model = build("llama31", EVEN, torch.float16)
    ids = torch.randint(3, 90, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return ktir.capture(step_of(model), ids, torch.arange(length).expand(1, -1), make_cache(model, Prompt(length=length, batch=1)))


def read_by_an_op(value: ir.Value) -> bool:
    """Whether a linalg op reads a value, as it is or through shape ops."""
    users = [use.owner.operation for use in value.uses]
    return any(user.name.startswith("linalg.") or (user.name.startswith("tensor.") and read_by_an_op(user.results[0])) for user in users)


def place_of(tile: ir.Value) -> ir.Operation:
    return tile.owner.operands[0].owner.operation


def stored_to_global_memory(module: ir.Module) -> set[str]:
    """Locations of the ops whose results an allocated program stores to global memory."""
    stores = [op for op in operations(module) if op.name == "ktdp.store"]
    found = set()
    for op in stores:
        if place_of(op.operands[1]).opview.memory_space == "global":
            buffer = place_of(op.operands[0].owner.operands[0])
            written = [store for store in stores if same_place(place_of(store.operands[1]), buffer)]
            found |= {str(store.operands[0].owner.location) for store in written}
    return found


def same_place(view: ir.Operation, other: ir.Operation) -> bool:
    """Whether two views are one buffer, or show one tensor that stays in LX between kernels."""
    kept = [resident for v in (view, other) if (resident := resident_of(v)) is not None]
    return view == other or (len(kept) == 2 and kept[0] == kept[1])


@pytest.mark.turn
def test_llama_keeps_its_values_out_of_global_memory() -> None:
    """At least 80 % of the bytes of its values between ops at sequence 128, and the peak within LX.

    Values between ops: results of the linalg ops of the logical level (but fills, which are constants) that another op reads, as they are
    or through shape ops. One is kept out if the allocated program stores no result of that op to global memory; inside of a kernel it lies
    in LX or an accumulator.
    """
    with context(), ir.Location.unknown():
        module = parse_module(llama(128), "llama")
        run_pipeline(module, "cse")
        sizes: dict[str, int] = {}
        for op in operations(module):
            if (
                op.name.startswith("linalg.")
                and op.name not in ("linalg.fill", "linalg.yield", "linalg.index")
                and read_by_an_op(op.results[0])
            ):
                type_ = ir.RankedTensorType(op.results[0].type)
                sizes[str(op.location)] = prod(type_.shape) * BYTES[str(type_.element_type)]
        run_pipeline(module, ToAllocated().text())
        computed = {str(op.location) for op in operations(module) if op.name == "linalg.generic"}
        outside = stored_to_global_memory(module)
        kernels = [op for op in module.body.operations if isinstance(op, func.FuncOp) and "ktir.lx_bytes" in op.attributes]
        assert all(ir.IntegerAttr(k.attributes["ktir.lx_bytes"]).value <= DATASHEET.lx_planned_bytes for k in kernels)
    assert sum(sizes.values()) > 1_000_000
    assert sum(size for place, size in sizes.items() if place in computed) > 0.95 * sum(sizes.values()), "locations name the ops"
    kept = sum(size for place, size in sizes.items() if place not in outside)
    assert kept >= 0.8 * sum(sizes.values()), f"{kept} of {sum(sizes.values())} bytes, {kept / sum(sizes.values()):.1%}"
