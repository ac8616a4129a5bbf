"""Views of memory, and loads as views of it: what a store changes later must not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_runs import F16, run
from kernel_texts import (
    function,
    kernel,
    load,
    module,
    random_f16,
    same,
    store,
    tensor,
)

from ktir.emulator.findings import DuplicateTarget
from ktir.emulator.reference import execute


def test_views_transposed_broadcast_and_sliced():
    x = random_f16(6, 10)
    same(run(load("%y", "%arg0", (10, 6), strides=(1, 10)), x, out=(10, 6)), np.ascontiguousarray(x.T))
    same(run(load("%y", "%arg0", (4, 6), strides=(0, 10)), x, out=(4, 6)), np.broadcast_to(x[:, 0], (4, 6)))
    text = "%c = arith.constant 23 : index\n%at = arith.addi %arg0, %c : index\n" + load("%y", "%at", (3, 4), strides=(10, 1))
    same(run(text, x, out=(3, 4)), x[2:5, 3:7])


def test_cyclic_access_order():
    """tile[s(p)] = base[x + p] for s = (d2, d0, d1), on load and on store."""
    x = random_f16(2, 3, 4)
    text = load("%y", "%arg0", x.shape, order=(2, 0, 1))
    same(run(text, x, out=(4, 2, 3)), np.ascontiguousarray(x.transpose(2, 0, 1)))
    back = load("%x", "%arg0", (4, 2, 3)) + store("%x", "%arg1", (2, 3, 4), order=(2, 0, 1))
    y = np.zeros_like(x)
    execute(kernel(["%arg0", "%arg1"], back), args=[np.ascontiguousarray(x.transpose(2, 0, 1)), y])
    same(y, x)


def test_masked_view_clips_on_both_sides():
    x = np.arange(1, 13).astype(F16)
    text = "%n = arith.constant 5 : index\n%m = arith.constant -2 : index\n" + load(
        "%y", "%arg0", ("%n",), strides=(1,), index=("%m",), extents=(9,)
    )
    np.testing.assert_array_equal(run(text, x, out=(9,)), [0, 0, 1, 2, 3, 4, 5, 0, 0])
    y = np.full(12, -1, F16)
    body = load("%x", "%arg0", (9,)) + "%n = arith.constant 5 : index\n%m = arith.constant -2 : index\n"
    body += store("%x", "%arg1", ("%n",), strides=(1,), index=("%m",), extents=(9,))
    execute(kernel(["%arg0", "%arg1"], body), args=[x[:9].copy(), y])
    np.testing.assert_array_equal(y, [3, 4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1])


def test_grid_of_two_dims_last_fastest():
    x = np.zeros((3, 4), F16)
    text = "%i, %j = ktdp.get_compute_tile_id : index, index\n%c4 = arith.constant 4 : index\n%r = arith.muli %i, %c4 : index\n"
    text += "%k = arith.addi %r, %j : index\n%at = arith.addi %arg0, %k : index\n%n = arith.index_cast %k : index to i32\n"
    text += "%f = arith.sitofp %n : i32 to f16\n%v = tensor.splat %f : tensor<1xf16>\n" + store("%v", "%at", (1,))
    execute(kernel(["%arg0"], text, "3, 4"), args=[x])
    np.testing.assert_array_equal(x, np.arange(12).reshape(3, 4))


def test_offsets_that_are_not_linear_in_the_tile():
    """A 2 x 3 grid over blocks: rows by the first coordinate, columns by the second."""
    x = random_f16(4, 9)
    y = np.zeros_like(x)
    text = "%i, %j = ktdp.get_compute_tile_id : index, index\n%c2 = arith.constant 2 : index\n%c3 = arith.constant 3 : index\n"
    text += "%r = arith.muli %i, %c2 : index\n%c = arith.muli %j, %c3 : index\n"
    text += load("%x", "%arg0", (4, 9), index=("%r", "%c"), extents=(2, 3)) + f"%y = arith.addf %x, %x : {tensor((2, 3))}\n"
    text += store("%y", "%arg1", (4, 9), index=("%r", "%c"), extents=(2, 3))
    execute(kernel(["%arg0", "%arg1"], text, "2, 3"), args=[x, y])
    same(y, x + x)


def test_swap_in_place():
    x = random_f16(2, 64)
    want = x[::-1].copy()
    text = load("%a", "%arg0", (2, 64), extents=(1, 64)) + load("%b", "%arg0", (2, 64), index=(1, 0), extents=(1, 64))
    text += store("%b", "%arg0", (2, 64), extents=(1, 64)) + store("%a", "%arg0", (2, 64), index=(1, 0), extents=(1, 64))
    execute(kernel(["%arg0"], text), args=[x])
    same(x, want)


def test_transpose_in_place():
    x = random_f16(33, 33)
    want = np.ascontiguousarray(x.T)
    execute(kernel(["%arg0"], load("%x", "%arg0", x.shape) + store("%x", "%arg0", x.shape, strides=(1, 33))), args=[x])
    same(x, want)


def test_load_kept_over_a_store_in_a_loop():
    """Each trip adds what row 0 held before the loop, although the loop overwrites row 0."""
    x = random_f16(4, 8)
    first = x[0].copy()
    text = "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%c4 = arith.constant 4 : index\n"
    text += load("%f", "%arg0", (4, 8), extents=(1, 8)) + "scf.for %i = %c0 to %c4 step %c1 {\n"
    text += load("%r", "%arg0", (4, 8), index=("%i", 0), extents=(1, 8)) + "%s = arith.addf %r, %f : tensor<1x8xf16>\n"
    text += store("%s", "%arg0", (4, 8), index=("%i", 0), extents=(1, 8)) + "}\n"
    want = x + first
    execute(kernel(["%arg0"], text), args=[x])
    same(x, want)


def test_same_array_as_input_and_output():
    x = random_f16(50)
    want = x + x
    text = load("%x", "%arg0", (50,)) + "%y = arith.addf %x, %x : tensor<50xf16>\n" + store("%y", "%arg1", (50,))
    execute(kernel(["%arg0", "%arg1"], text), args=[x, x])
    same(x, want)


def test_lx_keeps_its_contents_between_kernels_with_other_grids():
    x = random_f16(4, 64)
    y = np.zeros_like(x)

    def row(name: str, count: int, body: str) -> str:
        head = "%t = ktdp.get_compute_tile_id : index\n%c64 = arith.constant 64 : index\n%o = arith.muli %t, %c64 : index\n"
        return function(
            name,
            ["%p"],
            head + "%c0 = arith.constant 0 : index\n%at = arith.addi %p, %o : index\n" + body,
            f"attributes {{grid = [{count}]}}",
        )

    keep = load("%x", "%at", (1, 64)) + store("%x", "%c0", (1, 64), space="ct_local")
    again = load("%x", "%at", (1, 64)) + "%d = arith.addf %x, %x : tensor<1x64xf16>\n" + store("%d", "%c0", (1, 64), space="ct_local")
    emit = load("%x", "%c0", (1, 64), space="ct_local") + store("%x", "%at", (1, 64))
    calls = "func.call @keep(%x) : (index) -> ()\nfunc.call @again(%x) : (index) -> ()\nfunc.call @emit(%y) : (index) -> ()\n"
    text = module(row("keep", 4, keep), row("again", 2, again), row("emit", 4, emit), function("main", ["%x", "%y"], calls))
    execute(text, args=[x, y])
    want = x.copy()
    want[:2] = x[:2] + x[:2]
    same(y, want)
    small = module(
        row("keep", 4, keep),
        row("emit", 3, emit),
        function("main", ["%x", "%y"], calls.replace("func.call @again(%x) : (index) -> ()\n", "")),
    )
    y[...] = 0
    execute(small, args=[x, y])
    same(y[:3], x[:3])
    assert not y[3].any()


def test_lx_read_in_other_pieces_than_written():
    """Two halves written, read as one; then the middle overwritten; then one row of it read."""
    x = random_f16(4, 64)
    y, z = np.zeros_like(x), np.zeros((1, 64), F16)
    lx: dict[str, Any] = {"space": "ct_local"}
    text = "%c0 = arith.constant 0 : index\n%c64 = arith.constant 64 : index\n%c128 = arith.constant 128 : index\n"
    text += load("%a", "%arg0", (4, 64), extents=(2, 64)) + load("%b", "%arg0", (4, 64), index=(2, 0), extents=(2, 64))
    text += store("%a", "%c0", (2, 64), **lx) + store("%b", "%c128", (2, 64), **lx)
    text += "%two = arith.constant dense<2.0> : tensor<2x64xf16>\n" + store("%two", "%c64", (2, 64), **lx)
    text += (
        load("%y", "%c0", (4, 64), **lx)
        + store("%y", "%arg1", (4, 64))
        + load("%z", "%c128", (1, 64), **lx)
        + store("%z", "%arg2", (1, 64))
    )
    execute(kernel(["%arg0", "%arg1", "%arg2"], text), args=[x, y, z])
    want = x.copy()
    want[1:3] = 2
    same(y, want)
    same(z, want[2:3])


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 3), (1, 1)), ((2, 3), (3, 3)), ((3, 3), (2, 4)), ((4,), (0,)), ((2, 4, 3), (12, 1, 2)), ((3, 2), (-1, 1))],
)
@pytest.mark.parametrize("space", ["global", "ct_local"])
def test_stores_that_write_an_element_twice(shape: tuple[int, ...], strides: tuple[int, ...], space: str) -> None:
    """Which value stays is not defined."""
    body = load("%x", "%arg0", shape)
    if space == "global":
        base = "%arg1" if min(strides) >= 0 else "%base"
        body += "%two = arith.constant 2 : index\n%base = arith.addi %arg1, %two : index\n" + store("%x", base, shape, strides=strides)
    else:
        body += "%two = arith.constant 2 : index\n" + store("%x", "%two", shape, strides=strides, space="ct_local")
    with pytest.raises(DuplicateTarget, match="stores twice to element"):
        execute(kernel(["%arg0", "%arg1"], body), args=[random_f16(*shape), np.zeros(64, np.float16)])


@pytest.mark.parametrize(
    ("shape", "strides"), [((4, 3), (1, 4)), ((3, 2), (2, 3)), ((1, 3), (0, 2)), ((2, 3, 4), (3, 1, 6)), ((2, 2), (-1, 2))]
)
def test_stores_whose_elements_only_interleave(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x, y = random_f16(*shape), np.zeros(64, np.float16)
    at = "%one = arith.constant 1 : index\n%base = arith.addi %arg1, %one : index\n"
    execute(kernel(["%arg0", "%arg1"], load("%x", "%arg0", shape) + at + store("%x", "%base", shape, strides=strides)), args=[x, y])
    wanted = np.zeros(64, np.float16)
    for place in np.ndindex(shape):
        wanted[1 + sum(p * s for p, s in zip(place, strides, strict=True))] = x[place]
    same(y, wanted)
