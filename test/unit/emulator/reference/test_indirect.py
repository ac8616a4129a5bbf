"""Indirect access in all its forms: through distributed views, from and to scratchpads, of tensors, backwards, with holes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_texts import function, kernel, load, module, random_f16, store, tensor, tile, view

import ktir
from ktir.diagnostics import KtirError
from ktir.emulator.findings import DuplicateTarget, OutOfBounds, Race, Uninitialized

F16 = np.float16
TILE = "%t = ktdp.get_compute_tile_id : index\n"
M = "memref<4x64xf16>"


def partition(name: str, base: str, low: int, space: str) -> str:
    owned = f"affine_set<(d0, d1) : (d0 - {low} >= 0, -d0 + {low + 3} >= 0, d1 >= 0, -d1 + 63 >= 0)>"
    return (
        f"{name} = ktdp.construct_memory_view {base}, sizes: [4, 64], strides: [64, 1] {{coordinate_set = {owned}, "
        f"memory_space = #ktdp.memory_space<{space}>}} : {M}\n"
    )


def rows(name: str, of: str, sizes: tuple[int, int], index: str, count: int, n: int, first: str = "0", element: str = "f16") -> str:
    """The rows of `of` that `count` entries of `index`, from `first` on, name."""
    box = f"affine_set<(d0, d1) : (d0 >= 0, -d0 + {count - 1} >= 0, d1 >= 0, -d1 + {sizes[1] - 1} >= 0)>"
    kind = "memref" if not of.startswith("%tensor") else "tensor"
    return (
        f"{name} = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) {of}[ind({index}[%i + {first}]), (%j)] "
        f"{{variables_space_order = affine_map<(d0, d1) -> (d0, d1)>, variables_space_set = {box}}} : "
        f"{kind}<{sizes[0]}x{sizes[1]}x{element}>, memref<{n}xi32> -> !ktdp.access_tile<{count}x{sizes[1]}xindex>\n"
    )


def indices(n: int, base: str = "%arg1") -> str:
    return view("%iv", base, (n,), (1,), "i32")


TWO = partition("%a", "%arg0", 0, "global") + partition("%b", "%arg3", 4, "global")
TWO += f"%d = ktdp.construct_distributed_memory_view(%a, %b : {M}, {M}) : memref<8x64xf16>\n"
ARGUMENTS = ["%arg0", "%arg1", "%arg2", "%arg3"]


def gather_text(setup: str, count: int, grid: str = "1") -> str:
    text = TILE + setup + indices(count) + rows("%g", "%d", (8, 64), "%iv", count, count)
    text += f"%x = ktdp.load %g : <{count}x64xindex> -> {tensor((count, 64))}\n" + store("%x", "%arg2", (count, 64))
    return kernel(ARGUMENTS, text, grid)


def test_gather_through_a_distributed_view():
    low, high, y = random_f16(4, 64), random_f16(4, 64, seed=1), np.zeros((6, 64), F16)
    index = np.array([7, 0, 3, 4, 4, 1], np.int32)
    result = ktir.execute(gather_text(TWO, 6), args=[low, index, y, high])
    np.testing.assert_array_equal(y, np.concatenate([low, high])[index])
    assert result.report.bytes_read["global"] == 6 * 64 * 2 + 2 * 6 * 4  # each partition asks for the indices
    index[2] = 8
    with pytest.raises(OutOfBounds, match=r"coordinates that no partition of the distributed view owns, at \[2, 0\]"):
        ktir.execute(gather_text(TWO, 6), args=[low, index, y, high])


def test_gather_from_other_scratchpads():
    """Rows 0 to 3 lie on tile 0, rows 4 to 7 on tile 1: both tiles read both."""
    near, far, y = random_f16(4, 64), random_f16(4, 64, seed=1), np.zeros((2, 3, 64), F16)
    setup = "%zero = arith.constant 0 : index\n" + partition("%a", "%zero", 0, "ct_local, ct_id = 0")
    setup += partition("%b", "%zero", 4, "ct_local, ct_id = 1")
    setup += f"%d = ktdp.construct_distributed_memory_view(%a, %b : {M}, {M}) : memref<8x64xf16>\n"
    text = TILE + setup + indices(6) + "%c3 = arith.constant 3 : index\n%o = arith.muli %t, %c3 : index\n"
    text += rows("%g", "%d", (8, 64), "%iv", 3, 6, "%o") + f"%x = ktdp.load %g : <3x64xindex> -> {tensor((3, 64))}\n"
    text += f"%r = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 3, 64] : {tensor((3, 64))} into {tensor((1, 3, 64))}\n"
    text += store("%r", "%arg2", (2, 3, 64), index=("%t", 0, 0), extents=(1, 3, 64))
    index = np.array([7, 0, 3, 4, 5, 2], np.int32)
    places: Any = {("lx", 0, 0): near, ("lx", 1, 0): far}
    result = ktir.execute(kernel(ARGUMENTS[:3], text, "2"), args=[near, index, y], memory=places)
    np.testing.assert_array_equal(y.reshape(6, 64), np.concatenate([near, far])[index])
    assert result.report.bytes_read["ct_local"] == 6 * 64 * 2
    with pytest.raises(Uninitialized, match="LX"):
        ktir.execute(kernel(ARGUMENTS[:3], text, "2"), args=[near, index, y], memory={("lx", 0, 0): near})


def test_scatter_through_a_distributed_view():
    low, high, x = np.zeros((4, 64), F16), np.zeros((4, 64), F16), random_f16(5, 64)
    text = TILE + TWO + indices(5) + load("%x", "%arg2", (5, 64)) + rows("%g", "%d", (8, 64), "%iv", 5, 5)
    text = kernel(ARGUMENTS, text + "ktdp.store %x, %g : tensor<5x64xf16>, <5x64xindex>\n")
    index = np.array([7, 0, 3, 4, 1], np.int32)
    result = ktir.execute(text, args=[low, index, x, high])
    want = np.zeros((8, 64), F16)
    want[index] = x
    np.testing.assert_array_equal(np.concatenate([low, high]), want)
    assert result.report.bytes_written == {"global": 5 * 64 * 2, "ct_local": 0}
    for bad, kind in ((9, OutOfBounds), (7, DuplicateTarget)):
        before = low.copy(), high.copy()
        with pytest.raises(kind):
            ktir.execute(text, args=[low, np.array([7, 0, 3, 4, bad], np.int32), x, high])
        np.testing.assert_array_equal(low, before[0])
        np.testing.assert_array_equal(high, before[1])


def test_indices_in_a_distributed_view():
    owned = [f"affine_set<(d0) : (d0 - {low} >= 0, -d0 + {low + 2} >= 0)>" for low in (0, 3)]
    text = TILE
    for name, base, box in (("%a", "%arg1", owned[0]), ("%b", "%arg3", owned[1])):
        text += f"{name} = ktdp.construct_memory_view {base}, sizes: [3], strides: [1] {{coordinate_set = {box}, "
        text += "memory_space = #ktdp.memory_space<global>} : memref<3xi32>\n"
    text += "%iv = ktdp.construct_distributed_memory_view(%a, %b : memref<3xi32>, memref<3xi32>) : memref<6xi32>\n"
    text += view("%d", "%arg0", (8, 64), (64, 1)) + rows("%g", "%d", (8, 64), "%iv", 6, 6)
    text += f"%x = ktdp.load %g : <6x64xindex> -> {tensor((6, 64))}\n" + store("%x", "%arg2", (6, 64))
    table, y = random_f16(8, 64), np.zeros((6, 64), F16)
    first, second = np.array([1, 5, 0], np.int32), np.array([7, 7, 2], np.int32)
    ktir.execute(kernel(ARGUMENTS, text), args=[table, first, y, second])
    np.testing.assert_array_equal(y, table[[1, 5, 0, 7, 7, 2]])


LX = "%c0 = arith.constant 0 : index\n" + view("%d", "%c0", (8, 64), (64, 1), space="ct_local")


def test_scatter_to_the_scratchpad():
    """Two rows of what has been stored there are replaced; the others stay."""
    x, new, y = random_f16(8, 64), random_f16(2, 64, seed=1), np.zeros((8, 64), F16)
    text = TILE + load("%x", "%arg0", (8, 64)) + LX + store("%x", "%c0", (8, 64), space="ct_local") + indices(2)
    text += load("%n", "%arg2", (2, 64)) + rows("%g", "%d", (8, 64), "%iv", 2, 2)
    text += "ktdp.store %n, %g : tensor<2x64xf16>, <2x64xindex>\n" + load("%y", "%c0", (8, 64), space="ct_local")
    text = kernel(ARGUMENTS, text + store("%y", "%arg3", (8, 64)))
    index = np.array([6, 1], np.int32)
    result = ktir.execute(text, args=[x, index, new, y])
    want = x.copy()
    want[index] = new
    np.testing.assert_array_equal(y, want)
    assert result.report.bytes_written["ct_local"] == (8 + 2) * 64 * 2
    assert result.report.lx_peaks == (8 * 64 * 2,)
    for bad, kind in ((-1, OutOfBounds), (8, OutOfBounds), (6, DuplicateTarget)):
        with pytest.raises(kind):
            ktir.execute(text, args=[x, np.array([6, bad], np.int32), new, y])


def test_scatter_to_scratchpads_by_some_tiles():
    """Each tile has its own; only the odd ones scatter."""
    x, y = random_f16(4, 64), np.zeros((4, 2, 64), F16)
    text = TILE + LX.replace("8, 64", "2, 64").replace("8x64", "2x64").replace("-d0 + 7", "-d0 + 1") + indices(4)
    text += "%v = arith.constant dense<0.0> : tensor<2x64xf16>\n" + store("%v", "%c0", (2, 64), space="ct_local")
    text += "%c2 = arith.constant 2 : index\n%c1 = arith.constant 1 : index\n%r = arith.remui %t, %c2 : index\n"
    text += "%odd = arith.cmpi eq, %r, %c1 : index\nscf.if %odd {\n" + load("%x", "%arg0", (4, 64), index=("%t", 0), extents=(1, 64))
    text += rows("%g", "%d", (2, 64), "%iv", 1, 4, "%t") + "ktdp.store %x, %g : tensor<1x64xf16>, <1x64xindex>\n}\n"
    text += load("%y", "%c0", (2, 64), space="ct_local")
    text += "%z = tensor.expand_shape %y [[0, 1], [2]] output_shape [1, 2, 64] : tensor<2x64xf16> into tensor<1x2x64xf16>\n"
    text += store("%z", "%arg2", (4, 2, 64), index=("%t", 0, 0), extents=(1, 2, 64))
    index = np.array([0, 1, 1, 0], np.int32)
    ktir.execute(kernel(ARGUMENTS[:3], text, "4"), args=[x, index, y])
    want = np.zeros_like(y)
    want[1, 1], want[3, 0] = x[1], x[3]
    np.testing.assert_array_equal(y, want)


def test_scatter_to_the_scratchpad_of_another():
    """Tile 1 scatters to tile 0, which reads it in the next kernel; in the same one that is a race."""
    x = random_f16(2, 64)
    head = TILE + "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%one = arith.cmpi eq, %t, %c1 : index\n"
    write = view("%d", "%c0", (8, 64), (64, 1), space="ct_local, ct_id = 0") + indices(2)
    write += "scf.if %one {\n" + load("%x", "%arg0", (2, 64)) + rows("%g", "%d", (8, 64), "%iv", 2, 2)
    write += "ktdp.store %x, %g : tensor<2x64xf16>, <2x64xindex>\n}\n"
    read = "%zero = arith.cmpi eq, %t, %c0 : index\nscf.if %zero {\n"
    read += view("%e", "%c0", (8, 64), (64, 1), space="ct_local") + indices(2) + rows("%h", "%e", (8, 64), "%iv", 2, 2)
    read += "%y = ktdp.load %h : <2x64xindex> -> tensor<2x64xf16>\n" + store("%y", "%arg2", (2, 64)) + "}\n"
    grid, index, y = "attributes {grid = [2]}", np.array([5, 2], np.int32), np.zeros((2, 64), F16)
    calls = "func.call @w(%p, %q, %r) : (index, index, index) -> ()\nfunc.call @r(%p, %q, %r) : (index, index, index) -> ()\n"
    text = module(
        function("w", ARGUMENTS[:3], head + write, grid),
        function("r", ARGUMENTS[:3], head + read, grid),
        function("main", ["%p", "%q", "%r"], calls),
    )
    ktir.execute(text, "main", args=[x, index, y])
    np.testing.assert_array_equal(y, x)
    with pytest.raises(Race, match=r"LX byte 0 of tile 0 on tile 0, and it is written by tile 1"):
        ktir.execute(kernel(ARGUMENTS[:3], head + write + read.replace("%iv", "%iw"), "2"), args=[x, index, y])


def test_gather_of_what_nothing_has_written():
    x, y = random_f16(4, 64), np.zeros((2, 64), F16)
    text = TILE + load("%x", "%arg0", (4, 64)) + LX + store("%x", "%c0", (4, 64), space="ct_local") + indices(2)
    text += rows("%g", "%d", (8, 64), "%iv", 2, 2) + "%y = ktdp.load %g : <2x64xindex> -> tensor<2x64xf16>\n"
    text = kernel(ARGUMENTS[:3], text + store("%y", "%arg2", (2, 64)))
    ktir.execute(text, args=[x, np.array([3, 1], np.int32), y])
    np.testing.assert_array_equal(y, x[[3, 1]])
    with pytest.raises(Uninitialized) as caught:
        ktir.execute(text, args=[x, np.array([3, 4], np.int32), y])
    assert caught.value.op == "ktdp.load"
    assert caught.value.address == 4 * 64 * 2
    assert caught.value.tiles == (0,)


# Access tiles of tensors


def test_access_tiles_of_a_tensor():
    """A box at an anchor that depends on the tile, in another order; and rows that indices name."""
    x, y = random_f16(6, 5), np.zeros((4, 3, 2), F16)
    text = TILE + load("%tensor", "%arg0", (6, 5))
    text += tile("%a", "%tensor", ("%t", 1), (2, 3), (6, 5), order=(1, 0)).replace("memref<6x5xf16>", "tensor<6x5xf16>")
    text += "%y = ktdp.load %a : <3x2xindex> -> tensor<3x2xf16>\n"
    text += "%z = tensor.expand_shape %y [[0, 1], [2]] output_shape [1, 3, 2] : tensor<3x2xf16> into tensor<1x3x2xf16>\n"
    text += store("%z", "%arg1", (4, 3, 2), index=("%t", 0, 0), extents=(1, 3, 2))
    result = ktir.execute(kernel(["%arg0", "%arg1"], text, "4"), args=[x, y])
    np.testing.assert_array_equal(y, [x[t : t + 2, 1:4].T for t in range(4)])
    assert result.report.bytes_read["global"] == 4 * 60
    with pytest.raises(OutOfBounds, match=r"reads coordinate 6 in dim 0 of a view of size 6"):
        ktir.execute(kernel(["%arg0", "%arg1"], text, "6"), args=[x, y])


def test_indirect_tile_of_a_tensor():
    x, y, index = random_f16(6, 5), np.zeros((3, 5), F16), np.array([5, 0, 2], np.int32)
    text = load("%tensor", "%arg0", (6, 5)) + indices(3) + rows("%g", "%tensor", (6, 5), "%iv", 3, 3)
    text += "%y = ktdp.load %g : <3x5xindex> -> tensor<3x5xf16>\n" + store("%y", "%arg2", (3, 5))
    ktir.execute(kernel(ARGUMENTS[:3], text), args=[x, index, y])
    np.testing.assert_array_equal(y, x[index])


def test_a_tensor_cannot_be_stored_to():
    text = load("%tensor", "%arg0", (6, 5)) + tile("%a", "%tensor", (0, 0), (6, 5), (6, 5)).replace("memref<6x5xf16>", "tensor<6x5xf16>")
    text += "ktdp.store %tensor, %a : tensor<6x5xf16>, <6x5xindex>\n"
    with pytest.raises(KtirError, match=r"'ktdp.store' op stores to an access tile of a tensor, which is a value"):
        ktir.execute(kernel(["%arg0"], text), args=[random_f16(6, 5)])


def test_backwards():
    """A direct subscript that falls as its variable grows."""
    x, y = random_f16(2, 8), np.zeros((2, 8), F16)
    box = "affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 7 >= 0)>"
    text = view("%v", "%arg0", (2, 8), (8, 1)) + (
        "%g = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %v[(%i), (-%j + 7)] "
        f"{{variables_space_order = affine_map<(d0, d1) -> (d0, d1)>, variables_space_set = {box}}} : "
        "memref<2x8xf16> -> !ktdp.access_tile<2x8xindex>\n%y = ktdp.load %g : <2x8xindex> -> tensor<2x8xf16>\n"
    )
    ktir.execute(kernel(["%arg0", "%arg1"], text + store("%y", "%arg1", (2, 8))), args=[x, y])
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_holes_in_a_distributed_view():
    """Every other row of a distributed view; what is left out reads as zero and is not written."""
    low, high, y = random_f16(4, 64), random_f16(4, 64, seed=1), np.zeros((8, 64), F16)
    even = "affine_set<(d0, d1) : (d0 >= 0, -d0 + 7 >= 0, d1 >= 0, -d1 + 63 >= 0, d0 mod 2 == 0)>"
    access = "%g = ktdp.construct_access_tile %d[0, 0] {access_tile_order = affine_map<(d0, d1) -> (d0, d1)>, "
    access += f"access_tile_set = {even}}} : memref<8x64xf16> -> !ktdp.access_tile<8x64xindex>\n"
    text = TWO + access + "%y = ktdp.load %g : <8x64xindex> -> tensor<8x64xf16>\n" + store("%y", "%arg2", (8, 64))
    result = ktir.execute(kernel(["%arg0", "%arg2", "%arg3"], text), args=[low, y, high])
    whole = np.concatenate([low, high])
    np.testing.assert_array_equal(y, np.where(np.arange(8)[:, None] % 2 == 0, whole, 0))
    assert result.report.bytes_read["global"] == 4 * 64 * 2
    text = TWO + access + "%n = arith.constant dense<1.0> : tensor<8x64xf16>\nktdp.store %n, %g : tensor<8x64xf16>, <8x64xindex>\n"
    ktir.execute(kernel(["%arg0", "%arg3"], text), args=[low, high])
    np.testing.assert_array_equal(np.concatenate([low, high]), np.where(np.arange(8)[:, None] % 2 == 0, 1, whole))


def test_indices_in_the_scratchpad_of_each_tile():
    """Each tile has loaded other indices to its scratchpad."""
    x, y = random_f16(8, 64), np.zeros((6, 64), F16)
    text = TILE + "%c0 = arith.constant 0 : index\n%c2 = arith.constant 2 : index\n%o = arith.muli %t, %c2 : index\n"
    text += load("%n", "%arg1", (6,), index=("%o",), extents=(2,), element="i32")
    text += store("%n", "%c0", (2,), space="ct_local", element="i32")
    text += view("%lx", "%c0", (2,), (1,), "i32", space="ct_local")
    text += view("%d", "%arg0", (8, 64), (64, 1)) + rows("%g", "%d", (8, 64), "%lx", 2, 2)
    moved = "%x = ktdp.load %g : <2x64xindex> -> tensor<2x64xf16>\n" + store("%x", "%arg2", (6, 64), index=("%o", 0), extents=(2, 64))
    index = np.array([7, 0, 3, 4, 4, 1], np.int32)
    ktir.execute(kernel(ARGUMENTS[:3], text + moved, "3"), args=[x, index, y])
    np.testing.assert_array_equal(y, x[index])
    some = text + "%some = arith.cmpi eq, %t, %c2 : index\nscf.if %some {\n" + moved + "}\n"
    y[...] = 0
    ktir.execute(kernel(ARGUMENTS[:3], some, "3"), args=[x, index, y])
    np.testing.assert_array_equal(y, np.where(np.arange(6)[:, None] >= 4, x[index], 0))
    with pytest.raises(OutOfBounds, match="tile 1"):
        ktir.execute(kernel(ARGUMENTS[:3], text + moved, "3"), args=[x, np.array([0, 1, 8, 2, 3, 4], np.int32), y])


def test_additions_of_several_tiles():
    """Tiles add to elements of their own; to the same one is a race."""
    x, y = random_f16(4, 64), np.zeros((8, 64), F16)
    text = TILE + indices(8) + load("%x", "%arg0", (4, 64)) + view("%d", "%arg2", (8, 64), (64, 1))
    text += "%c4 = arith.constant 4 : index\n%o = arith.muli %t, %c4 : index\n" + rows("%g", "%d", (8, 64), "%iv", 4, 8, "%o")
    text = kernel(ARGUMENTS[:3], text + "ktir.scatter_add %x, %g : tensor<4x64xf16>, !ktdp.access_tile<4x64xindex>\n", "2")
    index = np.array([5, 0, 5, 2, 7, 1, 1, 7], np.int32)
    ktir.execute(text, args=[x, index, y])
    want = np.zeros_like(y)
    for row, place in zip([*x, *x], index, strict=True):
        want[place] += row
    np.testing.assert_array_equal(y, want)
    with pytest.raises(Race):
        ktir.execute(text, args=[x, np.array([5, 0, 5, 2, 7, 2, 1, 7], np.int32), y])
