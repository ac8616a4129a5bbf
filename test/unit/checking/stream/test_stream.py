"""A stream against its KTIR: nothing is found in what the compiler makes, and what differs is named."""

from __future__ import annotations

import ast
import re
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from combinations import each_once

from ktir.assembly import parse_module
from ktir.checking.stream import compare
from ktir.checking.stream.alignment import Alignment
from ktir.checking.stream.compare import check_launch, check_package, check_stream, read_expected
from ktir.checking.stream.expected import Expected
from ktir.checking.stream.order import order_faults
from ktir.context import context
from ktir.emulator.machine.control.control import control
from ktir.isa.program import Program, Source, Word
from ktir.isa.units import Unit
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import Package, PackageError, read
from ktir.package.schema import SCHEMA
from ktir.target import DATASHEET
from ktir.tools.ktir_objdump import main

INPUTS = Path(__file__).parents[3] / "lit" / "lowering" / "inductor"


@cache
def package(name: str, cores: int = 32) -> Package:
    with context(), ir.Location.unknown():
        return read(compile_logical(parse_module((INPUTS / f"{name}.mlir").read_text(), name), cores=cores))


@cache
def wanted(name: str, cores: int = 32) -> Expected:
    with context(), ir.Location.unknown():
        return read_expected(package(name, cores).files["allocated.ktir.mlir"].decode(), DATASHEET)


@pytest.mark.parametrize(("name", "cores"), each_once([p.stem for p in sorted(INPUTS.glob("*.mlir"))], [32, 3]))
def test_nothing_is_found_in_a_compiled_stream(name: str, cores: int) -> None:
    made = package(name, cores)
    assert check_package(made, control(made.program, DATASHEET)) == []
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(made.launch_spec.to_json())) == []


def messages(name: str, changed: Program, cores: int = 32) -> str:
    """All that is found in a changed program, on the trace of the unchanged one: some changes would not pass the other checks."""
    return "\n".join(map(str, check_stream(changed, control(package(name, cores).program, DATASHEET), wanted(name, cores), DATASHEET)))


def words(program: Program, unit: Unit, op: str) -> list[tuple[list[Word], int]]:
    return [(k.units[unit], i) for k in program.kernels for i, w in enumerate(k.units[unit]) if w.op == op]


def with_operand(name: str, unit: Unit, op: str, number: int = 0, **operands: Any) -> Program:
    """The program with other operands of one of its words."""
    p = deepcopy(package(name).program)
    at, i = words(p, unit, op)[number]
    at[i] = replace(at[i], operands={**at[i].operands, **operands})
    return p


@pytest.mark.parametrize(
    ("name", "unit", "op", "operands", "message"),
    [
        ("softmax", Unit.SFP, "v2", {"kind": "add"}, r"the body computes .*add\(.*instead of .*sub\("),
        ("softmax", Unit.SFP, "vred", {"kind": "add"}, r"the body computes tree add\(accumulate max.* instead of tree max"),
        ("softmax", Unit.SFP, "vmask", {"lanes": 9}, r"lane < 9 instead of lane < 10"),
        ("linear_relu", Unit.SFP, "vconst", {"value": 0x3F800000}, r"the body computes .*select\(.*, 1, .* instead of .*select\(.*, 0, "),
        ("linear_relu", Unit.SFP, "v1", {"round": False}, r"the body computes select\(.* instead of f16\(select"),
        ("linear_relu", Unit.PT, "mm", {"rows": 9}, r"'mm' multiplies 9 rows, but KTIR \d per corelet"),
        ("softmax", Unit.SFP, "rep", {"groups": 3}, r"'rep' computes 3 groups of \d sticks, but KTIR 1"),
        ("softmax", Unit.MNIL, "loop", {"trips": 7}, r"'loop' has 7 trips of level 0, but KTIR"),
    ],
)
def test_words_that_differ(name: str, unit: Unit, op: str, operands: dict[str, Any], message: str) -> None:
    if not words(package(name).program, unit, op):
        pytest.fail(f"{name} has no {op}")
    assert re.search(message, messages(name, with_operand(name, unit, op, **operands)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": 128}, r"descriptor \d+ touches element .* at core 0, .*but KTIR"),
        ({"arg": 0}, r"is on argument 0, but KTIR on argument 1"),
        ({"bounds": ()}, r"has 64 live lanes at core \d+, .*but KTIR 0"),
    ],
)
def test_addresses_that_differ(change: dict[str, Any], message: str) -> None:
    p = deepcopy(package("softmax").program)
    (at, i), *_ = words(p, Unit.MNIS, "move")
    kernel = p.kernels[0]
    kernel.descriptors.append(replace(kernel.descriptors[at[i]["dst"]], **change))
    at[i] = replace(at[i], operands={**at[i].operands, "dst": len(kernel.descriptors) - 1})
    assert re.search(message, messages("softmax", p))


@pytest.mark.parametrize(("name", "cores"), [("softmax", 32), ("softmax", 3), ("attention", 3)])
def test_pads_that_differ(name: str, cores: int) -> None:
    """Of every load that clips anything, whole entries too, and on some cores or in some trips alone."""
    p = package(name, cores).program
    loads = [(k, w["src"]) for k in p.kernels for w in k.units[Unit.MNIL] if w.op == "move" and w["group"] is None]
    clipped = [(k, number) for k, number in loads if k.descriptors[number].bounds]
    assert clipped
    for kernel, number in clipped:
        changed = deepcopy(p)
        descriptors = changed.kernels[p.kernels.index(kernel)].descriptors
        descriptors[number] = replace(descriptors[number], pad="-inf")
        assert f"descriptor {number} pads with -inf, but KTIR with zero" in messages(name, changed, cores)


def test_loops_and_buffers_that_differ() -> None:
    p = deepcopy(package("linear_relu", 2).program)
    kernel = p.kernels[0]
    (at, i), *_ = [(ws, i) for ws, i in words(p, Unit.MNIL, "move") if kernel.descriptors[ws[i]["src"]].level_step[1]]
    number = at[i]["src"]
    before = kernel.descriptors[number]
    kernel.descriptors[number] = replace(before, level_step=(0, 128, *before.level_step[2:]))
    assert re.search(r"touches element 64 at core 0, entry 0, .*i1 = 1, but KTIR 4096", messages("linear_relu", p, 2))
    kernel.descriptors[number] = before
    number = at[i]["dst"]
    kernel.descriptors[number] = replace(kernel.descriptors[number], rotate_step=16384)
    assert re.search(r"touches element (\d+) at core 0, entry 0, .*i1 = 1, but KTIR (?!\1)", messages("linear_relu", p, 2))


def test_words_that_are_missing_or_name_another_op() -> None:
    p = deepcopy(package("linear_relu").program)
    (at, i), *_ = words(p, Unit.LXSU, "pull")
    gone = at.pop(i)
    assert "a loop is missing here, around what 'linalg.generic' at" in messages("linear_relu", p)
    at[i:i] = [gone, gone]
    assert "stands where KTIR has no op that needs it" in messages("linear_relu", p)
    del at[i]
    at[i] = replace(gone, source=1)
    assert "'pull' stands where the words for 'linalg.generic' at" in messages("linear_relu", p)


def test_equal_bodies_may_be_written_otherwise() -> None:
    """Registers, the place of constants, and roundings of what is on the f16 grid say nothing."""
    p = deepcopy(package("softmax").program)
    (at, i), *_ = words(p, Unit.SFP, "vmask")
    assert at[i - 1].op == "vin"
    register = 11
    at[i - 1] = replace(at[i - 1], operands={**at[i - 1].operands, "dst": register})
    at[i] = replace(at[i], operands={**at[i].operands, "src": register})
    assert messages("softmax", p) == ""


def test_arguments_kernels_and_launch_spec() -> None:
    p = deepcopy(package("softmax").program)
    p.arguments[0] = replace(p.arguments[0], role="input_output")
    assert "arguments are not those of KTIR's entry function" in messages("softmax", p)
    p = deepcopy(package("softmax").program)
    p.kernels *= 2
    assert "but KTIR calls 'forward_kernel0' on 29 cores" in messages("softmax", p)
    spec = package("softmax").launch_spec
    host = spec.args[0].host
    assert host is not None
    changed = replace(spec, args=(replace(spec.args[0], host=replace(host, offset=1)), *spec.args[1:]))
    assert [str(p.message) for p in check_launch(changed, wanted("softmax"))] == ["the launch spec gives another host than KTIR"]


def test_lx_in_another_order() -> None:
    program = package("softmax").program
    alignment = Alignment(program, 0, wanted("softmax").kernels[0])
    trace = control(program, DATASHEET)
    assert order_faults([alignment], trace, DATASHEET) == []
    alignment.found = [replace(one, first=-one.first) for one in alignment.found]
    (problem,) = order_faults([alignment], trace, DATASHEET)
    assert "of LX in another order than KTIR" in problem.message


def test_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = deepcopy(package("linear_relu"))
    made.write(tmp_path)
    assert main([str(tmp_path), "--check"]) == 0
    made.program = with_operand("linear_relu", Unit.SFP, "vconst", value=0x3F800000)
    made.program.sources = package("linear_relu").program.sources
    made.write(tmp_path)
    assert main([str(tmp_path), "--verify"]) == 0
    assert main([str(tmp_path), "--check"]) == 1
    error = capsys.readouterr().err
    assert re.search(
        r"linear_relu:38:11: error: kernel 'forward_kernel0', unit SFP, word \d+ \(rep\): the body computes .*, 1, .* instead of ", error
    )
    (tmp_path / "program.bin").rename(tmp_path / "alone")
    assert main([str(tmp_path / "alone"), "--check"]) == 1


def test_it_has_its_own_facts() -> None:
    """What the lowering takes for granted, the check must find out itself."""
    for file in Path(compare.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not module.startswith("ktir.lowering"), file
            assert module not in ("ktir.isa.functions", "ktir.dialects.vector_kinds"), file


def test_a_package_without_ktir() -> None:
    made = deepcopy(package("softmax"))
    made.files = {}
    with pytest.raises(PackageError, match="nothing to compare the program with"):
        check_package(made, control(made.program, DATASHEET))


def test_debug_data() -> None:
    p = deepcopy(package("softmax").program)
    p.sources[1] = Source("ktdp.store", p.sources[1].location)
    assert "stands where the words for" in messages("softmax", p)
