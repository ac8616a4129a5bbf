"""What is printed at a level is read again, whatever the types of a program's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ktir
from ktir.tools import ktir_explain, ktir_opt, ktir_run

ROOT = Path(__file__).parents[3]
TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float32)


@pytest.mark.parametrize("stage", ["logical", "flat", "laid-out", "allocated"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_level_is_read_again(dtype: torch.dtype, stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = torch.ones(9, 3).half(), torch.tensor([1, 0, 1]).to(dtype)
    (tmp_path / "f.mlir").write_text(ktir.capture(lambda x, y: x * y.to(torch.float16), x, y, stage=stage))
    assert ktir_opt.main([str(tmp_path / "f.mlir"), "-o", str(tmp_path / "g.mlir")]) == 0, capsys.readouterr().err


def test_a_kernel_by_hand_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ktir.tools import ktir_compile

    assert ktir_compile.main([str(ROOT / "examples" / "add.mlir"), "-o", str(tmp_path / "add")]) == 0
    assert ktir_explain.main([str(tmp_path / "add")]) == 0, capsys.readouterr().err
    assert "grid: 4 of 32 cores; as its author divides it" in capsys.readouterr().out


def test_a_limit_that_is_no_number_of_elements(capsys: pytest.CaptureFixture[str]) -> None:
    assert ktir_opt.main([str(ROOT / "examples" / "add.mlir"), f"--mlir-elide-elementsattrs-if-larger={10**20}"]) != 0
    assert "expected a number below 2**63" in capsys.readouterr().err


DIVIDED = """\
#box1 = affine_set<(d0) : ({set}d0 >= 0, -d0 >= 0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id1 = affine_map<(d0) -> (d0)>
func.func @main(%x: index, %i: index, %y: index) {{
  %v = ktdp.construct_memory_view %x, sizes: [4], strides: [1]
      {{coordinate_set = #box4, memory_space = #ktdp.memory_space<global>}} : memref<4xf16>
  %w = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {{coordinate_set = #box4, memory_space = #ktdp.memory_space<global>}} : memref<4xf16>
  %t = ktdp.construct_access_tile %v[{index}]
      {{access_tile_order = #id1, access_tile_set = #box1}} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %u = ktdp.construct_access_tile %w[0]
      {{access_tile_order = #id1, access_tile_set = #box1}} : memref<4xf16> -> !ktdp.access_tile<1xindex>
  %a = ktdp.load %t : <1xindex> -> tensor<1xf16>
  ktdp.store %a, %u : tensor<1xf16>, <1xindex>
  return
}}
"""


@pytest.mark.parametrize("engine", ["ktir", "spyre"])
@pytest.mark.parametrize(
    ("index", "constraint", "by"),
    [("%i mod 0", "", 0), ("%i floordiv 0", "", 0), ("%i ceildiv (1 - 1)", "", 0), ("%i mod -2", "", -2),
     ("1 + (%i floordiv -3) * 2", "", -3),
     ("%i", "d0 mod 0 >= 0, ", 0), ("%i mod 3", "", None), ("%i ceildiv 10", "", None)],
)  # fmt: skip
def test_divisors_are_positive(
    index: str, constraint: str, by: int | None, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "f.mlir").write_text(DIVIDED.format(index=index, set=constraint))
    status = ktir_run.main([str(file), "--random", "0", "--arg", "i=2", f"--engine={engine}"])
    said = capsys.readouterr().err
    assert (status == 0) == (by is None), said
    if by is not None:
        assert f"'ktdp.construct_access_tile' op divides by {by} in affine_" in said
        assert f"{file}:9:8: error: " in said or f"{file}:11:8: error: " in said


SIZED = """\
#boxn = affine_set<(d0)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0)>
#box = affine_set<(d0) : (d0 >= 0, -d0 + {last} >= 0)>
#box4 = affine_set<(d0) : (d0 >= 0, -d0 + 3 >= 0)>
#id = affine_map<(d0) -> (d0)>
func.func @f(%x: index, %y: index) {{
  %n = arith.constant {size} : index
  %v = ktdp.construct_memory_view %x, sizes: [%n], strides: [1]
      {{coordinate_set = #boxn, masked, memory_space = #ktdp.memory_space<global>}} : memref<?xf16>
  %w = ktdp.construct_memory_view %y, sizes: [4], strides: [1]
      {{coordinate_set = #box4, memory_space = #ktdp.memory_space<global>}} : memref<4xf16>
  %t = ktdp.construct_access_tile %v[0] {{access_tile_order = #id, access_tile_set = #box}} : memref<?xf16> -> !ktdp.access_tile<4xindex>
  %u = ktdp.construct_access_tile %w[0] {{access_tile_order = #id, access_tile_set = #box4}} : memref<4xf16> -> !ktdp.access_tile<4xindex>
  %a = ktdp.load %t : <4xindex> -> tensor<4xf16>
  ktdp.store %a, %u : tensor<4xf16>, <4xindex>
  return
}}
"""


@pytest.mark.parametrize("size", [-(2**63), -5, 0])
def test_a_masked_view_of_less_than_no_rows_has_none(size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "f.mlir").write_text(SIZED.format(size=size, last=3))
    assert ktir_run.main([str(file), "--random", "0"]) == 0
    assert "y: f16[4] = [0 0 0 0]" in capsys.readouterr().out


def test_a_set_of_more_than_64_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "f.mlir").write_text(SIZED.format(size=4, last=2**63 - 1))
    assert ktir_run.main([str(file), "--random", "0"]) != 0
    assert f"{file}:11:8: error: 'ktdp.construct_access_tile' op expects a tile of shape [9223372036854775808]" in capsys.readouterr().err
