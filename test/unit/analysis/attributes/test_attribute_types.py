"""Attributes of another kind than ours are refused at their op, by every pass and by the check of a level: no internal error."""

from __future__ import annotations

import re
from functools import cache

import pytest
from logical_programs import linear

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline

LAST = {"flat": "ktir-plan", "laid-out": "ktir-form-kernels", "divided": "ktir-divide-work", "allocated": "ktir-allocate-scratchpad"}
NEXT = {"flat": "ktir-plan", "laid-out": "ktir-divide-work", "divided": "ktir-tile", "allocated": "convert-ktir-to-spyre"}
GRID = r"grid = \[\d+\]"
HOST = r"#ktir.host_view<arg = 0, offset = 0, size = \[[^\]]*\]"
FAULTS = [
    ("flat", r'ktir\.level = "flat"', "ktir.level = 5", "'ktir.level' to be one of logical"),
    ("flat", r'ktir\.name = "[^"]*"', "ktir.name = 3", "'ktir.name' of argument #0 to be a string"),
    ("flat", r"ktir\.type = tensor<[^>]*>", "ktir.type = i32", "'ktir.type' of argument #0 to be a tensor type"),
    ("laid-out", r'ktir\.name = "[^"]*", ', "", "argument #0 to have an attribute 'ktir.name'"),
    ("laid-out", HOST, "#ktir.host_view<arg = 0, offset = 0, size = [1, 2]", "the host view of argument #0 to have as many elements"),
    ("laid-out", r"ktir\.layout = #ktir.layout<[^>]*>", "ktir.layout = 3", "'ktir.layout' of argument #0 to be a #ktir.layout"),
    ("laid-out", r"ktir\.rows = array<i64: [^>]*>", "ktir.rows = 4 : i64", "'ktir.rows' to be an array<i64>"),
    *(("divided", GRID, f"grid = {grid}", "'grid' to be an array of one to three positive integers")
      for grid in ("3 : i64", '["a"]', "[]", "[0]", "[1, 2, 3, 4]", "[2.0]", "array<i64: 3>")),
    ("divided", r"ktir\.rows = array<i64: [^>]*>(, )?", "", "'ktir.rows'"),
    ("divided", r"ktir\.rows = array<i64: [^>]*>", "ktir.rows = array<i64: 7, 9, 11>", "'ktir.work' to divide sticks and rows"),
    ("divided", r"ktir\.work = #ktir.work<[^>]*>", "ktir.work = 3", "'ktir.work' to be a #ktir.work"),
    ("allocated", r"ktir\.lx_bytes = \d+ : i64", 'ktir.lx_bytes = "a"', "'ktir.lx_bytes' to be an integer"),
]  # fmt: skip


@cache
def text_at(level: str) -> str:
    with context(), ir.Location.unknown():
        module = parse_module(linear(57, 64, 100).text())
        run_pipeline(module, ToAllocated(verify=False, steps=0).text(LAST[level]))
        return print_module(module)


@pytest.mark.parametrize(("level", "pattern", "given", "message"), FAULTS)
def test_an_attribute_of_another_kind(level: str, pattern: str, given: str, message: str) -> None:
    text, count = re.subn(pattern, given, text_at(level), count=1)
    assert count
    for pipeline in (NEXT[level], f"ktir-verify-level{{level={level}}}"):
        with context(), ir.Location.unknown(), pytest.raises(KtirError, match=re.escape(message)) as found:
            run_pipeline(parse_module(text), pipeline)
        assert "failed:" not in str(found.value)


def test_a_plan_is_made_on_what_another_one_has_in_the_stick() -> None:
    with context(), ir.Location.unknown():
        module = parse_module(text_at("flat"))
        run_pipeline(module, "ktir-plan")
        sticks = [re.findall(r"ktir\.stick = array<[^>]*>", text) for text in (text_at("flat"), print_module(module))]
    assert sticks[0] == sticks[1] != []
