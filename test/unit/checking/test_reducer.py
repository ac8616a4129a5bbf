"""Reduction of modules: what each kind of edit does, and that results are valid, interesting and the same each time."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from ktir.assembly import parse_module, print_module
from ktir.checking.edits import EDITS, smaller_numbers
from ktir.checking.reducer import Interest, Reducer
from ktir.context import context
from ktir.diagnostics import KtirError, verify
from ktir.mlir import ir, operations
from ktir.tools import ktir_reduce

LIT = Path(__file__).parents[2] / "lit"
SOFTMAX = LIT / "lowering" / "inductor" / "softmax.mlir"

LOOP = """
func.func private @other(%x: index) { return }
func.func @f(%a: index, %n: index, %unused: index) attributes {ktir.note = "x"} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c1 = arith.constant 1 : index
  %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %n) -> (index) {
    %next = arith.muli %acc, %i : index
    scf.yield %next : index
  }
  func.call @other(%sum) : (index) -> ()
  %flag = arith.cmpi eq, %sum, %a : index
  scf.if %flag {
    func.call @other(%a) : (index) -> ()
  }
  return
}
"""


def reduced(text: str, command: str, **options: Any) -> tuple[str, Interest]:
    interest = Interest(command, **options)
    return Reducer(text, interest, print_module, lambda module, text: None).run(), interest


def applied(name: str, text: str, number: int = 0) -> str:
    """The text after edit `name` of its target `number`."""
    edit = next(e for e in EDITS if e.name == name)
    with context(), ir.Location.unknown():
        copy = parse_module(text).operation.clone().operation
        ops: list[ir.Operation | None] = list(operations(copy))
        assert edit.apply(ops, edit.targets(operations(copy))[number])
        verify(copy)
        return print_module(copy)


def test_each_kind_of_edit() -> None:
    assert "@other" not in applied("functions", LOOP)
    assert "@f" not in applied("functions", LOOP, 1)
    loop = applied("bodies in place of loops and conditions", LOOP)
    assert "scf.for" not in loop
    assert "arith.muli %arg1, %c0" in loop
    assert "scf.if" not in applied("bodies in place of loops and conditions", LOOP, 1)
    assert "@f(%arg0: index, %arg1: index)" in applied("unused arguments", LOOP, 1)
    assert "call @other()" in applied("unused arguments", LOOP)
    assert "ktir.note" not in applied("attributes", LOOP, 1)
    assert "private" not in applied("attributes", LOOP)
    assert "arith.constant 4" in applied("constants", LOOP, 2)
    assert "arith.muli" not in applied("operands in place of ops", LOOP, 2)
    assert "arith.constant false" in applied("constants in place of ops", LOOP)
    grid = "func.func @f() attributes {grid = [4, 6]} { return }"
    assert [re.findall(r"grid = \[(.*?)\]", applied("grids", grid, i)) for i in range(4)] == [["1, 6"], ["2, 6"], ["4, 1"], ["4, 3"]]


def test_inputs_that_a_body_does_not_read() -> None:
    text = """
#id = affine_map<(d0) -> (d0)>
func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%a : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %s = arith.addf %y, %z : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
    small = applied("unused inputs", text, 1)
    assert "ins(%arg1 : tensor<4xf32>) outs(%arg0 : tensor<4xf32>)" in small
    assert "indexing_maps = [#map, #map]," in small


def test_extents_change_everywhere() -> None:
    text = SOFTMAX.read_text()
    versions = smaller_numbers(text)
    valid = []
    with context(), ir.Location.unknown():
        for version in versions:
            try:
                parse_module(version)
                valid.append(version)
            except KtirError:
                continue
    assert any("tensor<1x10xf16>" in v and "sizes: [1, 10]" in v and "57" not in v.partition("module")[2] for v in valid)


def test_what_is_left_is_what_the_test_needs() -> None:
    text = SOFTMAX.read_text()
    small, interest = reduced(text, "grep -q math.exp")
    assert small.count("\n") <= 15
    assert "math.exp" in small
    assert "ktdp." not in small
    assert interest.runs < 100
    with context(), ir.Location.unknown():
        parse_module(small)
    assert reduced(text, "grep -q math.exp")[0] == small


def test_the_test_is_a_shell_command() -> None:
    small, _ = reduced(LOOP, "test $(grep -c other {}) -ge 2 && echo found", status=None, match=re.compile("^found$", re.M))
    assert small.count("other") == 2
    assert "scf" not in small


def test_not_interesting() -> None:
    with pytest.raises(
        KtirError, match="not interesting: the test does not end as it must, with status 3 and with output that matches 'x'"
    ):
        reduced(LOOP, "true", status=3, match=re.compile("x"))


def test_a_run_that_takes_too_long_is_not_interesting() -> None:
    begin = time.monotonic()
    with pytest.raises(KtirError, match="not interesting"):
        reduced(LOOP, "sleep 60; true", timeout=0.2)
    assert time.monotonic() - begin < 10


def test_the_number_of_tries_is_limited() -> None:
    small, interest = reduced(LOOP, "grep -q muli", tries=4)
    assert interest.runs == 4
    assert "muli" in small


def test_what_does_not_parse_is_reduced_by_lines() -> None:
    text = LOOP + "\n\nthis is no KTIR\n\nand more"
    reducer = Reducer(text, Interest("grep -q 'no KTIR'"), print_module, lambda module, text: None)
    assert reducer.run().strip() == "this is no KTIR"
    assert "no valid module" in reducer.note
    reducer = Reducer(LOOP, Interest("grep -q 'func.call @other(%sum)'"), print_module, lambda module, text: None)
    assert reducer.run().strip() == "func.call @other(%sum) : (index) -> ()"
    assert "not interesting as it is printed" in reducer.note


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected one input file"),
        (("a", "b"), "expected one input file, but got a, b"),
        (("a",), "--test=COMMAND"),
        (("a", "--test=true", "--exit=x"), "expected a number or any"),
        (("a", "--test=true", "--match=("), "'--match=('"),
        (("a", "--test=true", "--timeout=0"), "expected more than 0 seconds"),
        (("a", "--test=true", "--tires=3"), "unknown command line argument '--tires'"),
        (("/nowhere.mlir", "--test=true"), "cannot open input file '/nowhere.mlir'"),
        ((str(SOFTMAX), "--test=true", "-o", "/nowhere/x"), "cannot open output file '/nowhere/x'"),
    ],
)
def test_bad_command_lines(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ktir_reduce.main(words) == 1
    assert message in capsys.readouterr().err


def test_the_driver_keeps_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.mlir", tmp_path / "out.mlir"
    source.write_text(LOOP)
    assert ktir_reduce.main([str(source), "--test=grep -q scf.for", "-o", str(out), "--quiet"]) == 0
    assert "scf.for %i = " in out.read_text()
    assert capsys.readouterr().err == ""
