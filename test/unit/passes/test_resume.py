"""A module goes on from wherever it is: from each stage to the same program, with its level stated or not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from logical_programs import Logical

from ktir.assembly import parse_module, print_module
from ktir.checking.staged import host_parameters, run_at_stage
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects.module_level import Level
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import STAGES, ToAllocated
from ktir.pipeline import run_pipeline

STATED = re.compile(r',? ?ktir\.level = "[a-z-]+"')


def program() -> Logical:
    """A matmul, a softmax of its rows, and a sum with a row: two kernels with loops."""
    p = Logical()
    x = p.matmul(p.input(20, 70), p.input(70, 100))
    p.output(p.combine("arith.addf", x, p.input(100), "f16"))
    p.output(p.row_sum(x))
    return p


@pytest.fixture(scope="module")
def stages() -> dict[str, str]:
    """The text after each stage, and at the start."""
    found: dict[str, str] = {}
    with context(), ir.Location.unknown():
        module = parse_module(program().text(), "program.mlir")
        found["logical"] = print_module(module, debuginfo=True)
        run_pipeline(
            module, str(ToAllocated(cores=4)), after_each=lambda step, m: found.update({step.name: print_module(m, debuginfo=True)})
        )
    return found


def resumed(text: str) -> str:
    with context(), ir.Location.unknown():
        module = parse_module(text, "program.mlir")
        run_pipeline(module, str(ToAllocated(cores=4)))
        return print_module(module, debuginfo=True)


@pytest.mark.parametrize("stage", ["logical", *(s.name for s in STAGES)])
def test_from_each_stage(stage: str, stages: dict[str, str]) -> None:
    """The same program in the end, which is what a module without its level is found to be, too."""
    wanted = stages["ktir-allocate-scratchpad"]
    assert resumed(stages[stage]) == wanted
    with context(), ir.Location.unknown():
        module = parse_module(STATED.sub("", stages[stage], count=1), "program.mlir")
        assert Level.of(module) is None
        run_pipeline(module, "ktir-state-level")
        found, stated = Level.of(module), Level.of(parse_module(stages[stage]))
        assert found == stated or (found is Level.LOGICAL and stated is Level.FLAT)  # what is flat is logical too


@pytest.mark.parametrize("stage", ["ktir-assign-layouts", "ktir-tile", "ktir-allocate-scratchpad"])
def test_run_from_there(stage: str, stages: dict[str, str]) -> None:
    """The arrays of the caller are those of the logical program; the stream has the bits of the program that was never printed."""
    arrays = program().arrays()
    wanted = [a.copy() for a in arrays]
    with context(), ir.Location.unknown():
        run_at_stage(parse_module(stages["logical"]), wanted, stage="logical", engine="spyre", cores=4)
        module = parse_module(stages[stage])
        assert [p.shape for p in host_parameters(module) or ()] == [a.shape for a in arrays]
        run_at_stage(module, arrays, stage="logical", engine="spyre", cores=4)
        with pytest.raises(KtirError, match="stage 'flat' comes before level 'allocated', at which the module is"):
            run_at_stage(module, arrays, stage="flat", engine="ktir")
    assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays, wanted, strict=True))


def test_arguments_that_say_nothing() -> None:
    """Names, roles and types of a logical program are found in what it does."""
    text = STATED.sub("", program().text())
    bare = re.sub(r"(%\w+: index) \{ktir[^}]*\}", r"\1", text)
    assert "ktir.role" not in bare
    arrays = program().arrays()
    wanted = [a.copy() for a in arrays]
    with context(), ir.Location.unknown():
        for source, given in ((text, wanted), (bare, arrays)):
            run_at_stage(parse_module(source, "program.mlir"), given, stage="logical", engine="spyre", cores=4)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, wanted, strict=True))


@pytest.mark.parametrize(
    ("text", "message", "location"),
    [
        ("module {\n}", "'builtin.module' op expects a function", "m.mlir:1:1"),
        ("func.func @f(%x: i32) {\n  return\n}", "expects argument #0 to be a base address of type 'index', but got 'i32'", "m.mlir:1:1"),
        (
            "func.func @f() {\n  %c = arith.constant dense<1> : tensor<4xi32>\n"
            "  %t = tensor.cast %c : tensor<4xi32> to tensor<?xi32>\n  return\n}",
            "'tensor.cast' op is no part of the logical level",
            "m.mlir:3:8",
        ),
    ],
)
def test_refused_before_any_pass(text: str, message: str, location: str) -> None:
    with context(), ir.Location.unknown():
        module = parse_module(text, "m.mlir")
        before = print_module(module)
        with pytest.raises(KtirError, match=re.escape(message)) as error:
            compile_logical(module)
        assert error.value.location == location
        assert re.sub(r'ktir\.target = "[^"]*"', "", print_module(module)).split("attributes")[0] == before.split("attributes")[0]
