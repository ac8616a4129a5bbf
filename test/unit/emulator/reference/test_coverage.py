"""Every op of every dialect of KTIR is executed, or stands here with the reason why it is not."""

from __future__ import annotations

import importlib

import pytest

from ktir.context import context
from ktir.diagnostics import Unsupported
from ktir.dialects._foundation.base import Operation
from ktir.emulator.reference import execute
from ktir.emulator.reference.compile.compiler import TERMINATORS
from ktir.emulator.reference.compile.registry import executable_ops, scalar_reader
from ktir.mlir import ext
from ktir.registry import dialect_class, dialect_names

UPSTREAM = ("arith", "math", "linalg", "tensor", "scf", "memref", "func")
OURS_ELSEWHERE = ("spyre",)
"""The instruction dialect: its programs run on the instruction emulator."""

STRUCTURE = {"func.func"}
"""What `compile_module` takes apart itself."""
BODY_ONLY = {"linalg.index"}
"""Executed in the bodies of linalg ops, the one place where they can stand."""
NOT_EXECUTED = {
    # KTIR allocates nothing: memory is what views name, at addresses that the caller or the program gives.
    "memref.alloc",
    "memref.alloca",
    "memref.alloca_scope",
    "memref.alloca_scope.return",
    "memref.dealloc",
    "memref.realloc",
    "memref.global",
    "memref.get_global",
    # There are no atomics: tiles exchange values by the inter-tile ops.
    "memref.atomic_rmw",
    "memref.generic_atomic_rmw",
    "memref.atomic_yield",
    # Transfers are loads and stores; a view has no tags.
    "memref.dma_start",
    "memref.dma_wait",
    # Views are made by ktdp.construct_memory_view: of another element type or shape at the same address.
    "memref.view",
    "memref.reshape",
    "memref.extract_aligned_pointer_as_index",
    # A promise to an optimiser about memory that KTIR's views do not give.
    "memref.distinct_objects",
    # Functions are called by name: a program is known as a whole.
    "func.call_indirect",
    "func.constant",
}


def upstream(dialect: str) -> set[str]:
    module = importlib.import_module(f"{ext.__package__}._{dialect}_ops_gen")
    return {c.OPERATION_NAME for c in vars(module).values() if isinstance(c, type) and hasattr(c, "OPERATION_NAME")}


def ours() -> set[str]:
    def ops(base: type) -> set[type]:
        return {base}.union(*(ops(c) for c in base.__subclasses__()))

    with context():
        names = {name: dialect_class(name) for name in dialect_names()}
        found = {getattr(o, "OPERATION_NAME", "") for o in ops(Operation)}
    return {o for o in found if o.split(".")[0] in names and o.split(".")[0] not in OURS_ELSEWHERE}


def test_every_op_is_executed_or_listed():
    known = ours().union(*(upstream(d) for d in UPSTREAM))
    assert len(known) > 300
    assert {"ktdp.load", "spyreop.exp", "arith.addf", "linalg.conv_2d", "scf.while"} <= known
    executed = executable_ops() | set(TERMINATORS) | STRUCTURE | BODY_ONLY
    assert known - executed == NOT_EXECUTED & known


def test_the_lists_are_minimal():
    """What is listed exists, and is not executed after all."""
    known = ours().union(*(upstream(d) for d in UPSTREAM))
    assert known >= NOT_EXECUTED | STRUCTURE | BODY_ONLY
    assert not (NOT_EXECUTED | BODY_ONLY | STRUCTURE) & executable_ops()
    assert all(scalar_reader(name) is not None for name in BODY_ONLY)


def test_what_is_not_executed_is_refused_with_its_place():
    text = "func.func @f() {\n  %m = memref.alloc() : memref<4xf16>\n  return\n}\n"
    with pytest.raises(Unsupported, match=r"<text>:2:8: error: 'memref.alloc' op has no executor"):
        execute(text)
