"""Kernels whose tiles have different shapes: recorded one tile after the other, with the same checks."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_texts import function, kernel, load, module, random_f16, store, view

import ktir
from ktir.diagnostics import Unsupported
from ktir.emulator.findings import OutOfBounds, Race, Uninitialized

F16 = np.float16
TILE = "%t = ktdp.get_compute_tile_id : index\n%c1 = arith.constant 1 : index\n%c0 = arith.constant 0 : index\n"
ROWS = "affine_set<(d0, d1)[s0] : (d0 >= 0, -d0 + s0 - 1 >= 0, d1 >= 0, -d1 + 7 >= 0)>"
ORDER = "affine_map<(d0, d1) -> (d0, d1)>"


def rows_of(name: str, base: str, first: str, count: str, total: int = 10) -> str:
    """An access tile of `count` rows of 8 from row `first`."""
    return view(f"{name}v", base, (total, 8), (8, 1)) + (
        f"{name} = ktdp.construct_access_tile {name}v[{first}, 0] symbols({count}) "
        f"{{access_tile_order = {ORDER}, access_tile_set = {ROWS}}} : memref<{total}x8xf16> -> !ktdp.access_tile<?x8xindex>\n"
    )


TRIANGLE = (
    TILE
    + "%n = arith.addi %t, %c1 : index\n%m = arith.muli %t, %n : index\n%c2 = arith.constant 2 : index\n%at = arith.divui %m, %c2 : index\n"
)
"""Tile t has t + 1 rows from row t (t + 1) / 2 on: %n and %at."""
ACCESS = rows_of("%a", "%arg0", "%at", "%n") + "%x = ktdp.load %a : <?x8xindex> -> tensor<?x8xf16>\n"
DOUBLE = (
    "%y = arith.addf %x, %x : tensor<?x8xf16>\n"
    + rows_of("%b", "%arg1", "%at", "%n")
    + "ktdp.store %y, %b : tensor<?x8xf16>, <?x8xindex>\n"
)


def test_extents_that_differ():
    x, y = random_f16(10, 8), np.zeros((10, 8), F16)
    result = ktir.execute(kernel(["%arg0", "%arg1"], TRIANGLE + ACCESS + DOUBLE, "4"), args=[x, y])
    np.testing.assert_array_equal(y, x + x)
    report = result.report
    assert report.bytes_read["global"] == report.bytes_written["global"] == 10 * 8 * 2
    assert report.arithmetic == {"arith.addf": 80}
    again = ktir.execute(kernel(["%arg0", "%arg1"], TRIANGLE + ACCESS + DOUBLE, "4"), args=[x, y])
    assert again.report.prepare_seconds == 0  # the plan is kept


def test_reductions_of_what_each_tile_has():
    """Column sums over the rows of each tile, whose number `tensor.dim` tells."""
    x, y, n = random_f16(10, 8), np.zeros((4, 8), np.float32), np.zeros(4, np.int64)
    body = (
        "%w = arith.extf %x : tensor<?x8xf16> to tensor<?x8xf32>\n%z = arith.constant dense<0.0> : tensor<8xf32>\n"
        "%s = linalg.reduce { arith.addf } ins(%w : tensor<?x8xf32>) outs(%z : tensor<8xf32>) dimensions = [0]\n\n"
        "%r = tensor.expand_shape %s [[0, 1]] output_shape [1, 8] : tensor<8xf32> into tensor<1x8xf32>\n"
        + store("%r", "%arg1", (4, 8), index=("%t", 0), extents=(1, 8), element="f32")
        + "%d = tensor.dim %x, %c0 : tensor<?x8xf16>\n%i = arith.index_cast %d : index to i64\n%v = tensor.splat %i : tensor<1xi64>\n"
        + store("%v", "%arg2", (4,), index=("%t",), extents=(1,), element="i64")
    )
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], TRIANGLE + ACCESS + body, "4"), args=[x, y, n])
    np.testing.assert_array_equal(n, [1, 2, 3, 4])
    parts = np.split(x.astype(np.float32), [1, 3, 6])
    np.testing.assert_allclose(y, [p.sum(0) for p in parts], rtol=1e-6)


def test_extents_from_data():
    """Each tile reads how many rows it has."""
    x, y, count = random_f16(10, 8), np.zeros((10, 8), F16), np.array([3, 0, 5, 2], np.int64)
    first = np.array([0, 3, 3, 8], np.int64)
    text = TILE
    for name, argument in (("%n", "%arg2"), ("%at", "%arg3")):
        text += load(f"{name}1", argument, (4,), index=("%t",), extents=(1,), element="i64")
        text += f"{name}2 = tensor.extract {name}1[%c0] : tensor<1xi64>\n{name} = arith.index_cast {name}2 : i64 to index\n"
    text = kernel(["%arg0", "%arg1", "%arg2", "%arg3"], text + ACCESS + DOUBLE, "4")
    ktir.execute(text, args=[x, y, count, first])
    np.testing.assert_array_equal(y, x + x)
    count[1] = 9
    with pytest.raises(OutOfBounds, match=r"coordinates 3 to 11 in dim 0 of a view of size 10 \(tile 1\)"):
        ktir.execute(text, args=[x, y, count, first])


def test_findings_across_tiles():
    x, y = random_f16(10, 8), np.zeros((10, 8), F16)
    overlapping = kernel(["%arg0", "%arg1"], TRIANGLE.replace("%m = arith.muli %t, %n", "%m = arith.muli %t, %t") + ACCESS + DOUBLE, "4")
    with pytest.raises(Race) as caught:
        ktir.execute(overlapping, args=[x, y])
    assert sorted(caught.value.tiles) == [0, 1]
    assert not y.any()
    # A tile's scratchpad is its own: what tile 0 has written, tile 1 has not.
    own = "%c = arith.cmpi eq, %t, %c0 : index\n%v = arith.constant dense<1.0> : tensor<8xf16>\nscf.if %c {\n"
    own += store("%v", "%c0", (8,), space="ct_local") + "}\n" + load("%r", "%c0", (8,), space="ct_local")
    with pytest.raises(Uninitialized) as found:
        ktir.execute(kernel(["%arg0", "%arg1"], TRIANGLE + ACCESS + DOUBLE + own, "4"), args=[x, y])
    assert found.value.tiles == (1,)


def test_other_kernels_of_the_program_are_recorded_at_once():
    grid = "attributes {grid = [4]}"
    plain = "%t = ktdp.get_compute_tile_id : index\n" + load("%x", "%arg0", (4, 8), index=("%t", 0), extents=(1, 8))
    plain += store("%x", "%arg1", (4, 8), index=("%t", 0), extents=(1, 8))
    calls = "func.call @ragged(%p, %q) : (index, index) -> ()\nfunc.call @plain(%q, %r) : (index, index) -> ()\n"
    text = module(
        function("ragged", ["%arg0", "%arg1"], TRIANGLE + ACCESS + DOUBLE, grid),
        function("plain", ["%arg0", "%arg1"], plain, grid),
        function("main", ["%p", "%q", "%r"], calls),
    )
    x, y, z = random_f16(10, 8), np.zeros((10, 8), F16), np.zeros((4, 8), F16)
    ktir.execute(text, "main", args=[x, y, z])
    np.testing.assert_array_equal(z, (x + x)[:4])


def test_addresses_chosen_by_tile():
    """A pointer that depends on the tile: a select, and one carried through a loop of different trip counts."""
    x, z, y = random_f16(4), random_f16(4, seed=1), np.zeros(4, F16)
    text = TILE + "%odd = arith.remui %t, %c2 : index\n%c = arith.cmpi eq, %odd, %c1 : index\n%p = arith.select %c, %arg0, %arg1 : index\n"
    text = text.replace("%odd", "%c2 = arith.constant 2 : index\n%odd", 1)
    text += load("%v", "%p", (4,), index=("%t",), extents=(1,)) + store("%v", "%arg2", (4,), index=("%t",), extents=(1,))
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text, "4"), args=[x, z, y])
    np.testing.assert_array_equal(y, np.where(np.arange(4) % 2 == 1, x, z))
    text = TILE + "%p = scf.for %i = %c0 to %t step %c1 iter_args(%q = %arg0) -> (index) {\n%r = arith.addi %q, %c1 : index\n"
    text += "scf.yield %r : index\n}\n" + load("%v", "%p", (1,)) + store("%v", "%arg2", (4,), index=("%t",), extents=(1,))
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text, "4"), args=[x, z, y])
    np.testing.assert_array_equal(y, x)


def test_communication_needs_equal_shapes():
    everyone = "affine_set<(i)[g] : (i >= 0, -i + 3 >= 0)>"
    future = "!ktdp.tile_future<(tensor<1xf16>), groups = affine_set<(g) : (g == 0)>>"
    text = TRIANGLE + ACCESS + "%v = arith.constant dense<1.0> : tensor<1xf16>\n"
    text += f"%f = ktdp.inter_tile_produce producer_tiles_per_group = {everyone} -> {future} {{\n^bb0(%gid: index):\n"
    text += "ktdp.yield_partial %v : tensor<1xf16>\n}\n"
    with pytest.raises(Unsupported, match="communicates in a kernel whose tiles have different shapes"):
        ktir.execute(kernel(["%arg0"], text, "4"), args=[random_f16(10, 8)])
