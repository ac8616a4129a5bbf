"""Programs whose functions nest: values at every level, one plan per function, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nested_programs import host_arrays, nested

from ktir.analysis.calls import functions_of, is_kernel
from ktir.assembly import parse_module, print_module
from ktir.checking import check_levels
from ktir.checking.levels import BIT_EXACT_FROM
from ktir.context import context
from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import func, ir
from ktir.pipeline import run_pipeline

LIT = Path(__file__).parents[2] / "lit"
MIXED = (LIT / "passes" / "flat" / "ktir_separate_calls.mlir").read_text()


def captured(name: str) -> str:
    return (LIT / "lowering" / "inductor" / f"{name}.mlir").read_text()


LONG = [pytest.param(name, cores, marks=pytest.mark.long) for name in ("softmax", "mixed") for cores in (1, 32)]


@pytest.mark.parametrize(("name", "cores"), [("softmax", 3), ("layer_norm", 1), ("layer_norm", 32), ("mixed", 3), *LONG])
def test_levels_agree(name: str, cores: int) -> None:
    text = MIXED if name == "mixed" else nested(captured(name), 3)
    results = check_levels(text, host_arrays(text), cores=cores)
    names = [r.name for r in results]
    assert names[-2:] == ["tape", "step"]
    assert all(r.exact for r in results[names.index(BIT_EXACT_FROM) + 1 :])


def test_values_are_those_of_the_calls_one_by_one() -> None:
    """A nested program against its function, called from outside: each rounds to f16 in between."""
    one = captured("rms_norm")
    three = nested(one, 3, "arg1_1")
    x, *weights, y = host_arrays(three)
    for weight in weights:
        x = check_levels(one, [weight, x, y], cores=3)[-1].arrays[2]
    np.testing.assert_array_equal(check_levels(three, host_arrays(three), cores=3)[-1].arrays[-1], x)


def compiled(text: str, cores: int = 32) -> ir.Module:
    module = parse_module(text)
    run_pipeline(module, pipeline(cores, verify=True))
    return module


@pytest.mark.parametrize("count", [1, 2, 32])
def test_each_function_is_compiled_once(count: int) -> None:
    with context(), ir.Location.unknown():
        module = compiled(nested(captured("rms_norm"), count, "arg1_1"))
        kernels = [f for f in functions_of(module).values() if is_kernel(f)]
        assert len(kernels) == 1
        program = lower_program(module)
        assert len(program.kernels) == count
        assert len({id(kernel.units) for kernel in program.kernels}) == 1
        assert len({kernel.descriptors[0].arg for kernel in program.kernels}) == count


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


LOOP = """%zero = arith.constant 0 : index
%one = arith.constant 1 : index
scf.for %i = %zero to %one step %one {
func.call @turn(%arg3, %arg5) : (index, index) -> ()
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("call @turn(%arg3, %arg5)", "call @turn(%arg3, %arg3)", "gives '@turn' the same memory as arguments #0 and #1"),
        ("call @turn(%arg3, %arg5)", "call @main(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6)", "is recursive: '@main' calls '@main'"),
        ("call @turn(%arg3, %arg5) : (index, index) -> ()", LOOP, "stands in a loop or has results"),
        ("func.func @turn(", "func.func @turn(%n: index {ktir.name = \"n\"}) { return }\nfunc.func @other(", "operand"),
    ],
    ids=["alias", "recursion", "loop", "signature"],
)  # fmt: skip
def test_refused(old: str, new: str, message: str) -> None:
    text = edited(MIXED, old, new)
    if message.startswith("is recursive"):
        text = text.replace("%arg6) : (index, index) -> ()", "%arg6) : (index, index, index, index, index, index, index) -> ()")
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=message):
        run_pipeline(parse_module(text), pipeline(3))


def test_memory_seen_from_several_places() -> None:
    """What is written in one call and read from another element on in the next one has no layout of its own."""
    start = MIXED.index("call @turn(")
    text = (
        MIXED[:start]
        + "%k = arith.constant 64 : index\n%o = arith.addi %arg3, %k : index\n"
        + MIXED[start:].replace("@turn(%arg3", "@turn(%o", 1)
    )
    with context(), ir.Location.unknown(), pytest.raises(Unsupported, match="from element 0 and from element 64 on in two calls"):
        run_pipeline(parse_module(text), pipeline(3))


def test_round_trip() -> None:
    """The allocated level of a nested program is text like any other."""
    with context(), ir.Location.unknown():
        text = print_module(compiled(MIXED, 3))
        assert print_module(parse_module(text)) == text
        assert sum(isinstance(op, func.FuncOp) for op in parse_module(text).body.operations) == 7 + 5
