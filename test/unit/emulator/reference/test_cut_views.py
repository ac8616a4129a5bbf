"""Views that are cut at a lane, against NumPy: loads and stores, direct and indirect, per tile, with checks of what is read and written."""

from __future__ import annotations

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import ktir
from ktir.diagnostics import KtirError
from ktir.emulator.reference.arguments import Scratch

LANES = 64


def _view(name: str, argument: str, rows: int, columns: int, pitch: int) -> str:
    sticks = -(-columns // LANES)
    box = f"d0 >= 0, -d0 + {sticks - 1} >= 0, d1 >= 0, -d1 + {rows - 1} >= 0, d2 >= 0, -d2 + 63 >= 0"
    cut = f"affine_set<(d0, d1, d2) : ({box}, -64 * d0 - d2 + {columns - 1} >= 0)>"
    return (
        f"%{name} = ktdp.construct_memory_view %{argument}, sizes: [{sticks}, {rows}, 64], strides: [64, {pitch}, 1] "
        f"{{coordinate_set = {cut}, masked, memory_space = #ktdp.memory_space<global>}} : memref<{sticks}x{rows}x64xf16>"
    )


def _direct(name: str, view: str, rows: int, sticks: int, part: tuple[int, int, int], first: str) -> str:
    s, r, lanes = part
    box = f"d0 >= 0, -d0 + {s - 1} >= 0, d1 >= 0, -d1 + {r - 1} >= 0, d2 >= 0, -d2 + {lanes - 1} >= 0"
    return (
        f"%{name} = ktdp.construct_access_tile %{view}[{first}] {{access_tile_order = #id, access_tile_set = affine_set<(d0, d1, d2) : "
        f"({box})>}} : memref<{sticks}x{rows}x64xf16> -> !ktdp.access_tile<{s}x{r}x{lanes}xindex>"
    )


@seed(5)
@settings(max_examples=examples(40), deadline=None)
@given(rows=st.integers(1, 4), columns=st.integers(1, 140), gap=st.integers(0, 5), tiles=st.integers(1, 3), data=st.data())
def test_a_copy_in_sticks(rows: int, columns: int, gap: int, tiles: int, data: st.DataObject) -> None:
    """Each tile copies some rows, stick by stick or all at once; dead lanes are read as zero and not written."""
    sticks, pitch = -(-columns // LANES), columns + gap
    per = data.draw(st.integers(1, sticks), "sticks at once")
    trips = -(-sticks // per)
    if trips * per != sticks:
        per, trips = sticks, 1
    part = (per, rows, LANES)
    text = f"""
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
module {{ func.func @f(%x: index, %y: index) attributes {{grid = [{tiles}]}} {{
  %t = ktdp.get_compute_tile_id : index
  %n = arith.constant {rows * pitch} : index
  %o = arith.muli %t, %n : index
  %xo = arith.addi %x, %o : index
  %yo = arith.addi %y, %o : index
  {_view("a", "xo", rows, columns, pitch)}
  {_view("b", "yo", rows, columns, pitch)}
  %c0 = arith.constant 0 : index
  %c1 = arith.constant {per} : index
  %ce = arith.constant {sticks} : index
  scf.for %i = %c0 to %ce step %c1 {{
    {_direct("at", "a", rows, sticks, part, "%i, 0, 0")}
    {_direct("bt", "b", rows, sticks, part, "%i, 0, 0")}
    %v = ktdp.load %at : <{per}x{rows}x64xindex> -> tensor<{per}x{rows}x64xf16>
    ktdp.store %v, %bt : tensor<{per}x{rows}x64xf16>, <{per}x{rows}x64xindex>
  }}
  return
}} }}"""
    rng = np.random.default_rng(rows * 1000 + columns)
    x = rng.standard_normal(tiles * rows * pitch).astype(np.float16)
    y = np.full_like(x, 7)
    wanted = y.copy().reshape(-1, pitch)
    wanted[:, :columns] = x.reshape(-1, pitch)[:, :columns]
    ktir.execute(text, "f", [x, y])
    np.testing.assert_array_equal(y.reshape(-1, pitch), wanted)


def test_what_is_cut_off_may_be_anything() -> None:
    """A read of elements that nothing has written is no error where they are cut off, and one where they are not."""
    text = """
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
module {{ func.func @f(%x: index) {{
  {first}
  {second}
  {at}
  {bt}
  %z = arith.constant 2.0 : f16
  %e = tensor.empty() : tensor<1x2x64xf16>
  %v = linalg.fill ins(%z : f16) outs(%e : tensor<1x2x64xf16>) -> tensor<1x2x64xf16>
  ktdp.store %v, %at : tensor<1x2x64xf16>, <1x2x64xindex>
  %w = ktdp.load %bt : <1x2x64xindex> -> tensor<1x2x64xf16>
  ktdp.store %w, %at : tensor<1x2x64xf16>, <1x2x64xindex>
  return
}} }}"""
    at, bt = (_direct(f"{v}t", v, 2, 1, (1, 2, 64), "0, 0, 0") for v in ("a", "b"))
    pool = Scratch(24)
    ktir.execute(text.format(first=_view("a", "x", 2, 5, 9), second=_view("b", "x", 2, 5, 9), at=at, bt=bt), "f", [pool])
    with pytest.raises(KtirError, match="nothing has written"):
        ktir.execute(text.format(first=_view("a", "x", 2, 5, 9), second=_view("b", "x", 2, 6, 9), at=at, bt=bt), "f", [pool])


@pytest.mark.parametrize("columns", [1, 5, 64, 70])
def test_gather_and_scatter(columns: int) -> None:
    """Rows by index, on a view whose last stick is cut."""
    rows, picked, sticks = 6, [4, 0, 5], -(-columns // LANES)
    space = f"affine_set<(d0, d1, d2) : (d0 >= 0, -d0 + {sticks - 1} >= 0, d1 >= 0, -d1 + 2 >= 0, d2 >= 0, -d2 + 63 >= 0)>"

    def tile(name: str, view: str) -> str:
        return (
            f"%{name} = ktdp.construct_indirect_access_tile intermediate_variables(%s, %r, %l) %{view}[(%s), ind(%i[%r]), (%l)] "
            f"{{variables_space_order = #id, variables_space_set = {space}}} : memref<{sticks}x{rows}x64xf16>, memref<3xi32> "
            f"-> !ktdp.access_tile<{sticks}x3x64xindex>"
        )

    text = f"""
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
module {{ func.func @f(%x: index, %y: index, %n: index) {{
  {_view("a", "x", rows, columns, columns)}
  {_view("b", "y", rows, columns, columns)}
  %i = ktdp.construct_memory_view %n, sizes: [3], strides: [1]
      {{coordinate_set = affine_set<(d0) : (d0 >= 0, -d0 + 2 >= 0)>, memory_space = #ktdp.memory_space<global>}} : memref<3xi32>
  {tile("at", "a")}
  {tile("bt", "b")}
  %v = ktdp.load %at : <{sticks}x3x64xindex> -> tensor<{sticks}x3x64xf16>
  ktdp.store %v, %bt : tensor<{sticks}x3x64xf16>, <{sticks}x3x64xindex>
  return
}} }}"""
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float16)
    y = np.zeros_like(x)
    ktir.execute(text, "f", [x, y, np.asarray(picked, np.int32)])
    wanted = np.zeros_like(x)
    wanted[picked] = x[picked]
    np.testing.assert_array_equal(y, wanted)
