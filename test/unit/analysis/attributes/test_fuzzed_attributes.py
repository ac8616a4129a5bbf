"""Attributes of any kind at any place: the tools that read KTIR take them or refuse them; nothing is an internal error."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logical_programs import linear

from ktir.analysis.attributes.table import TABLE
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import STAGES, ToAllocated
from ktir.pipeline import run_pipeline
from ktir.tools import ktir_compile, ktir_opt, ktir_run

NEXT = {None: "ktir-separate-calls", "ktir-plan": "ktir-assign-layouts", "ktir-assign-layouts": "ktir-form-kernels",
        "ktir-form-kernels": "ktir-divide-work", "ktir-divide-work": "ktir-keep-resident", "ktir-keep-resident": "ktir-tile",
        "ktir-tile": "ktir-allocate-scratchpad", "ktir-allocate-scratchpad": "convert-ktir-to-spyre"}  # fmt: skip
"""What runs on the result of which pass; the logical program has none."""

LAYOUTS = [
    f"#ktir.layout<size = {size}, device = {device}, strides = {strides}, dtype = {dtype}>"
    for size, device, strides in (("[57, 64]", "[1, 57, 64]", "[64, 64, 1]"), ("[]", "[64]", "[1]"), ("[0]", "[0, 64]", "[0, -7]"))
    for dtype in ("f16", "i32", "f64", "!ktdp.access_tile<4xindex>")
]
VALUES = [
    "unit", "true", "0 : i64", "1 : i64", "-1 : i64", "3 : i8", "9223372036854775807 : i64", "2 : index", "1.5 : f64",
    "0x7FC00000 : f32", '""', '"x"', '"input"', '"pool"', '"iota"', '"shared"', '"logical"', '"laid-out"', '"divided"', '"tiled"',
    '"allocated"', '"spyre"', "@f", "[]", "[1]", "[4, 2]", "[1, 1, 1, 1]", "[[1]]", "[unit]", "{}", "{a = 1}", "[{}]",
    "[{columns = 1}]", "[{columns = 1, work = 3}]", "{columns = 2}",
    "{columns = 4, work = #ktir.work<splits = [2, 2, 1], tile = [1, 29, 64]>, sums = 2, depth_share = 9}",
    "[{columns = 1, work = #ktir.work<splits = [1, 1], tile = [1, 57]>}]", "{f = [{low = -1, high = 5, bits = 99}]}",
    "array<i64>", "array<i64: 57>", "array<i64: -1>", "array<i64: 2, 3, 5>", "array<i64: 9223372036854775807>", "array<i32: 57>",
    "dense<1> : tensor<2xi64>", "i32", "tensor<57x64xf16>", "tensor<57x64xf32>", "tensor<?xf16>", "tensor<0xf16>", "tensor<f16>",
    "memref<4xf16>", "loc(unknown)", 'loc("x":1:1)', '[loc("x")]', "[tensor<57x64xf16>]", "[f16]",
    "affine_map<(d0) -> (d0)>", "affine_set<(d0) : (d0 >= 0)>",
    "#ktir.work<splits = [1, 29, 1], tile = [1, 2, 64]>", "#ktir.work<splits = [], tile = []>",
    "#ktir.work<splits = [7], tile = [1]>", "#ktir.work<[1], 2 : i64>", '#ktir.work<"a", "b">', "#ktir.acc<PT>",
    '#ktir.acc<"ALU">', "#ktir.rotate<nbuf = 2, stride = 8192>", "#ktir.resident<name = pool0, address = 0, bytes = 256>",
    "[#ktir.resident<name = a, address = 1999999, bytes = 9>]",
    "#ktir.host_view<arg = 0, offset = 0, size = [57, 64], strides = [64, 1]>",
    "#ktir.host_view<arg = 9, offset = 7, size = [], strides = []>",
    *LAYOUTS,
]  # fmt: skip
NUMBERS = ["0", "1", "2", "3", "-1", "-2", "29", "57", "58", "64", "100", "128", "4294967296", "9223372036854775807"]
NAMES = [*TABLE, "ktir.wrok", "ktir.", "gird", "other.name"]


@cache
def text_after(name: str | None) -> str:
    """The program after a pass."""
    with context(), ir.Location.unknown():
        module = parse_module(linear(57, 64, 100).text())
        if name is not None:
            assert any(stage.name == name for stage in STAGES)
            run_pipeline(module, ToAllocated(verify=False, steps=0).text(name))
        return print_module(module)


def places(text: str) -> list[tuple[int, int, str]]:
    """Where an attribute may be written: start and end of what it replaces, and what it is written as."""
    found = [(m.start(), m.end(), "{}") for m in re.finditer(r'(?:ktir\.\w+|grid) = (?:"[^"]*"|[#\w.]*<[^>]*>|\[[^]]*\]|[^ ,}]+)', text)]
    found += [(m.end(), m.end(), "{}, ") for m in re.finditer(r"attributes \{|: index \{|(?:sizes|strides|order)[^\n]*\{(?=\w)", text)]
    found += [(m.end(), m.end(), " attributes {{{}}}") for m in re.finditer(r"func.func[^\n]*\)(?= \{\n)|^module(?= \{)", text)]
    return found


def run(text: str, following: str) -> list[str]:
    """What the three tools say of a program."""
    said = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.mlir"
        source.write_text(text)
        for main, more in (
            (ktir_opt.main, [f"--{following}", "-o", f"{folder}/out.mlir"]),
            (ktir_run.main, ["--random=1", "--quiet"]),
            (ktir_compile.main, ["-o", f"{folder}/package"]),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
                status = main([str(source), *more])
            assert status in (0, 1, 2)
            said.append(err.getvalue())
    return said


def changed(text: str, choose: Callable[[Sequence[Any]], Any]) -> str:
    """The text with an attribute exchanged or added, or with another number or word in one."""
    start, end, form = choose(places(text))
    own = re.match(r"[\w.]+(?= = )", text[start:end])
    inside = [(start + m.start(), start + m.end()) for m in re.finditer(r"(?<=[ \[<])-?\d+\b(?!:)", text[start:end])]
    if inside and choose(range(4)):
        first, last = choose(inside)
        return text[:first] + choose(NUMBERS) + text[last:]
    key = own.group() if own and choose(range(4)) else choose(NAMES)
    return text[:start] + form.format(f"{key} = {choose(VALUES)}") + text[end:]


@st.composite
def programs(draw: st.DrawFn) -> tuple[str, str]:
    """A program with one or two attributes changed, and the pass that takes it."""
    name = draw(st.sampled_from(list(NEXT)))
    text = text_after(name)
    for _ in range(draw(st.integers(1, 2))):
        text = changed(text, lambda items: draw(st.sampled_from(items)))
    return text, NEXT[name]


def check(program: tuple[str, str]) -> None:
    for said in run(*program):
        assert not re.search("internal error|failed in |Traceback", said), f"{said}\n{program[1]}\n{program[0]}"


QUIET = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example], database=None
)


@given(programs())
@settings(QUIET, max_examples=examples(200))
def test_no_attribute_is_an_internal_error(program: tuple[str, str]) -> None:
    check(program)


@pytest.mark.long
@given(programs())
@settings(QUIET, max_examples=2000, derandomize=False)
def test_no_attribute_of_many_is_an_internal_error(program: tuple[str, str]) -> None:
    check(program)
