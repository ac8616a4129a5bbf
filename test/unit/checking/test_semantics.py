"""`--check-semantics`: passes that change values are found, with the place and the store."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ktir.mlir import ir, operations
from ktir.passes.general.ktir_canonicalize import CanonicalizePass
from ktir.passes.layouts import physical_ops
from ktir.tools import ktir_opt

TESTS = Path(__file__).parents[2] / "lit"
ADD = TESTS / "tools" / "Inputs" / "add.mlir"

TWO = """
#box = affine_set<(d0) : (d0 >= 0, -d0 + 7 >= 0)>
#id = affine_map<(d0) -> (d0)>
#hbm = #ktdp.memory_space<global>
func.func @twice(%x: index, %n: index) {
  %c2 = arith.constant 2.0 : f32
  %v = ktdp.construct_memory_view %x, sizes: [8], strides: [1] {coordinate_set = #box, memory_space = #hbm} : memref<8xf32>
  %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<8xf32> -> !ktdp.access_tile<8xindex>
  %a = ktdp.load %t : <8xindex> -> tensor<8xf32>
  %s = tensor.splat %c2 : tensor<8xf32>
  %b = arith.mulf %a, %s : tensor<8xf32>
  ktdp.store %b, %t : tensor<8xf32>, <8xindex>
  return
}
func.func @at_an_address() {
  %here = arith.constant 32 : index
  %c2 = arith.constant 3.0 : f32
  %v = ktdp.construct_memory_view %here, sizes: [8], strides: [1] {coordinate_set = #box, memory_space = #hbm} : memref<8xf32>
  %t = ktdp.construct_access_tile %v[0] {access_tile_order = #id, access_tile_set = #box} : memref<8xf32> -> !ktdp.access_tile<8xindex>
  %a = ktdp.load %t : <8xindex> -> tensor<8xf32>
  %s = tensor.splat %c2 : tensor<8xf32>
  %b = arith.mulf %a, %s : tensor<8xf32>
  ktdp.store %b, %t : tensor<8xf32>, <8xindex>
  return
}
"""


def break_pass(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Makes `ktir-canonicalize` do `change` to the module."""
    monkeypatch.setattr(CanonicalizePass, "run", lambda self, module: change(module))


def subtract(module: ir.Module) -> None:
    """The first addition becomes a subtraction."""
    for op in operations(module):
        if op.name == "arith.addf":
            with ir.InsertionPoint(op):
                new = ir.Operation.create("arith.subf", results=[op.results[0].type], operands=list(op.operands), loc=op.location)
            op.results[0].replace_all_uses_with(new.results[0])
            op.erase()
            return


def test_a_wrong_pass_on_a_kernel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    break_pass(monkeypatch, subtract)
    words = [str(ADD), "--cse", "--ktir-canonicalize", "--canonicalize", "-o", str(tmp_path / "out")]
    assert ktir_opt.main(words) == 0
    assert ktir_opt.main([*words, "--check-semantics"]) == 1
    said = capsys.readouterr().err
    assert "add.mlir:17:3: error: pass 'ktir-canonicalize' changes values of 'add': out[0:4, 0:64] differs: 256 of 256 elements" in said
    assert "note: out[0, 0] expected " in said
    assert "add.mlir:17:3: note: out[0, 0] was written by this 'ktdp.store' op" in said


def test_equal_inputs_hide_the_change(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Inputs of the user's are taken: with zeros, a sum is a difference."""
    break_pass(monkeypatch, subtract)
    file = tmp_path / "inputs.npz"
    np.savez(file, y=np.zeros((4, 64), np.float16))
    words = [str(ADD), "--ktir-canonicalize", "-o", str(tmp_path / "out")]
    assert ktir_opt.main([*words, f"--check-semantics={file}"]) == 0
    np.savez(file, other=np.zeros(4))
    assert ktir_opt.main([*words, f"--check-semantics={file}"]) == 1
    assert "no function has an argument 'other' (there are out, x, y)" in capsys.readouterr().err


def test_a_pass_after_which_the_program_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def collide(module: ir.Module) -> None:
        """All tiles write the row of tile 0."""
        tile = [op for op in operations(module) if op.name == "ktdp.construct_access_tile"][-1]
        zero = next(op for op in operations(module) if op.name == "arith.constant")
        tile.operands[1] = zero.results[0]

    break_pass(monkeypatch, collide)
    assert ktir_opt.main([str(ADD), "--ktir-canonicalize", "--check-semantics", "-o", str(tmp_path / "out")]) == 1
    assert "17:3: error: 'add' does not run any more after pass 'ktir-canonicalize': 'ktdp.store' op" in capsys.readouterr().err


def test_all_functions_are_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def double(constant: str) -> Any:
        def change(module: ir.Module) -> None:
            for op in operations(module):
                if op.name == "arith.constant" and str(op.attributes["value"]).startswith(constant):
                    op.attributes["value"] = ir.FloatAttr.get(ir.F32Type.get(), 4.0)

        return change

    source = tmp_path / "two.mlir"
    source.write_text(TWO)
    words = [str(source), "--ktir-canonicalize", "--check-semantics", "-o", str(tmp_path / "out")]
    assert ktir_opt.main([*words, "--canonicalize"]) == 0
    break_pass(monkeypatch, double("2.0"))
    assert ktir_opt.main(words) == 1
    assert "changes values of 'twice': x[0:8] differs" in capsys.readouterr().err
    break_pass(monkeypatch, double("3.0"))
    assert ktir_opt.main(words) == 1
    said = capsys.readouterr().err
    assert "changes values of 'at_an_address': global:32[0:8] differs" in said
    assert "two.mlir:23:3: note: global:32[0] was written by this 'ktdp.store' op" in said


def test_a_wrong_pass_between_levels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Masks switched off: pads reach a sum. The pass may change rounding, but not this much."""
    monkeypatch.setattr(physical_ops, "masked", lambda value, *_: value)
    source = TESTS / "lowering" / "inductor" / "softmax.mlir"
    words = [
        str(source),
        "--ktir-break-views",
        "--ktir-assign-layouts",
        "--ktir-split-bodies",
        "--check-semantics",
        "-o",
        str(tmp_path / "out"),
    ]
    assert ktir_opt.main(words) == 1
    said = capsys.readouterr().err
    assert "error: pass 'ktir-assign-layouts' changes values of 'forward': buf3[0:57, 0:10] differs" in said
    assert "; the first one may by " in said
    assert "note: buf3[0, 0] was written by this 'ktdp.store' op" in said
