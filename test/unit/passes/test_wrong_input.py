"""Passes on input that is not theirs: an error that says what was expected, and an untouched module."""

from __future__ import annotations

from pathlib import Path

import pytest

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import STAGES
from ktir.pipeline import run_pipeline

PROGRAM = (Path(__file__).parents[2] / "lit" / "lowering" / "inductor" / "linear_relu.mlir").read_text()
LEVEL = {"logical": "logical", **{stage.name: stage.level for stage in STAGES}}
"""The level that each pass leaves. All passes of a level take it in any state, but that kernels are formed once."""
PASSES = [*(stage.name for stage in STAGES if stage.name.startswith("ktir-")), "convert-ktir-to-spyre"]


@pytest.fixture(scope="module")
def levels() -> dict[str, str]:
    """Text after each pass, by the pass's name."""
    found: dict[str, str] = {}
    with context(), ir.Location.unknown():
        compile_logical(parse_module(PROGRAM), observe=lambda name, m: found.__setitem__(name, print_module(m)))
    return found


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_takes_its_own_level_only(levels: dict[str, str], name: str) -> None:
    before = {p: q for p, q in zip(PASSES, ["logical", *PASSES], strict=False)}[name]
    for origin, text in levels.items():
        if origin == before or (LEVEL[origin] == LEVEL[before] and LEVEL[before] != "laid-out"):
            continue
        if name == "ktir-split-bodies" and LEVEL[origin] == "laid-out":
            continue  # it takes either level
        with context(), ir.Location.unknown():
            module = parse_module(text, "in.mlir")
            with pytest.raises(KtirError, match="expects a module"):
                run_pipeline(module, name)
            assert print_module(module) == text, f"{name} on the result of {origin} changed the module"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("access_tile_order = #map, ", "access_tile_order = affine_map<(d0, d1) -> (d1, d0)>, ", "tile of the whole view|tile"),
        ('ktir.role = "input"', 'my.role = "input"', "expects an attribute 'ktir.role'"),
        ('ktir.role = "input"', 'ktir.other = "input"', "unknown attribute 'ktir.other' of argument #0"),
    ],
)
def test_foreign_forms_are_refused(old: str, new: str, message: str) -> None:
    assert old in PROGRAM
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match=message):
        compile_logical(parse_module(PROGRAM.replace(old, new), "in.mlir"))


def test_an_empty_function_is_refused() -> None:
    text = 'module attributes {ktir.level = "logical"} {\n  func.func @f() {\n    return\n  }\n}'
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match="computes nothing"):
        compile_logical(parse_module(text, "in.mlir"))
