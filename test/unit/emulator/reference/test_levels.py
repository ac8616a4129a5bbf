"""Programs at every level: right against NumPy, and the same bits from level to level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import (
    LANES,
    PRODUCTS,
    SUM,
    filled,
    function,
    generic,
    kernel,
    layer_norm,
    live,
    load,
    matmul_tiled,
    module,
    pack,
    random_f16,
    same,
    softmax_allocated,
    softmax_block,
    softmax_divided,
    softmax_host,
    softmax_reference,
    softmax_sticks,
    softmax_tiled,
    store,
    tensor,
    unpack,
)

from ktir.emulator.policy import Policy
from ktir.emulator.reference import Scratch, execute


def run_softmax(text: str, x: np.ndarray, physical: bool = True) -> np.ndarray:
    if not physical:
        y = np.full_like(x, np.nan)
        execute(text, args=[x, y])
        return y
    y = np.full_like(pack(x), np.nan)
    execute(text, args=[pack(x), y])
    return unpack(y, x.shape[1])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 64), (7, 65), (200, 130), (33, 1000)])
def test_softmax_bits_at_every_level(rows, columns):
    x = random_f16(rows, columns, scale=3)
    host = run_softmax(softmax_host(rows, columns), x, physical=False)
    np.testing.assert_allclose(host, softmax_reference(x), atol=1e-3)
    share = max(1, -(-rows // 3))
    block = max(1, share // 3)
    texts = [
        softmax_sticks(rows, columns),
        softmax_divided(rows, columns, share),
        softmax_tiled(rows, columns, share, block),
        softmax_tiled(rows, columns, share, block, uneven_trips=True),
        softmax_allocated(rows, columns, share, block),
        softmax_allocated(rows, columns, share, block, buffers=3),
    ]
    for text in texts:
        same(run_softmax(text, x), host)
    fast = np.zeros_like(x)
    execute(softmax_host(rows, columns), args=[x, fast], policy=Policy(numerics="fast"))
    np.testing.assert_allclose(fast, host, atol=1e-3)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 70), st.integers(1, 200), st.integers(1, 40), st.integers(1, 9), st.integers(0, 99))
def test_softmax_random_shapes(rows, columns, share, block, seed):
    x = random_f16(rows, columns, seed=seed, scale=4)
    host = run_softmax(softmax_host(rows, columns), x, physical=False)
    same(run_softmax(softmax_tiled(rows, columns, share, block), x), host)
    same(run_softmax(softmax_allocated(rows, columns, share, block), x), host)


def test_report_counts_sticks_and_scratchpad():
    text = softmax_allocated(200, 130, 50, 16)
    x = pack(random_f16(200, 130))
    report = execute(text, args=[x, np.zeros_like(x)])
    assert report.bytes_read["global"] == report.bytes_written["global"] == 600 * 128
    slot = 3 * 16 * LANES
    assert report.lx_peak_bytes == 4 * (2 * slot + 16 * LANES) + 4 * 16 * LANES  # the sums lie last: f32, one stick pair per row
    assert report.bytes_written["ct_local"] > 0
    assert report.ops > 100
    assert report.seconds > 0
    assert report.prepare_seconds > 0
    assert execute(text, args=[x, np.zeros_like(x)]).prepare_seconds == 0


# Sums


def oracle_sum(x: np.ndarray) -> np.ndarray:
    """Machine order, spelled out."""
    rows, columns = x.shape
    padded = np.zeros((rows, -(-columns // LANES) * LANES), np.float32)
    padded[:, :columns] = x
    lanes = padded[:, :LANES].copy()
    for first in range(LANES, padded.shape[1], LANES):
        lanes += padded[:, first : first + LANES]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return np.float32(0) + lanes[:, 0]


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 200, 1024])
def test_sum_is_in_machine_order(columns):
    x = random_f16(5, columns, scale=100)
    host = load("%x", "%arg0", (5, columns)) + filled("%z", "0.0", (5,))
    host += generic("%s", [("%x", tensor((5, columns)), "d0, d1")], ("%z", tensor((5,), "f32"), "d0"), "pr", SUM)
    host += store("%s", "%arg1", (5,), element="f32")
    logical = np.zeros(5, np.float32)
    execute(kernel(["%arg0", "%arg1"], host), args=[x, logical])
    same(logical, oracle_sum(x))

    sticks = -(-columns // LANES)
    shape = (sticks, 5, LANES)
    body = live(columns) + "%c = arith.constant 0.0 : f32\n%f = arith.extf %a : f16 to f32\n"
    body += "%v = arith.select %live, %f, %c : f32\n%r = arith.addf %o, %v : f32\nlinalg.yield %r : f32"
    text = load("%x", "%arg0", shape) + filled("%z", "0.0", (1, 5, LANES))
    out = ("%z", tensor((1, 5, LANES), "f32"), "0, d1, 0")
    text += generic("%s", [("%x", tensor(shape), "d0, d1, d2")], out, "rpr", body)
    text += store("%s", "%arg1", (1, 5, LANES), element="f32")
    physical = np.zeros((1, 5, LANES), np.float32)
    execute(kernel(["%arg0", "%arg1"], text), args=[pack(x), physical])
    same(physical[0, :, 0], logical)
    assert not physical[0, :, 1:].any()  # the other lanes keep what outs held


@pytest.mark.parametrize("axis", [0, 1])
def test_reduction_over_either_axis_and_all(axis):
    x = random_f16(70, 90)
    kept = 1 - axis
    n = x.shape[kept]
    text = load("%x", "%arg0", x.shape) + filled("%z", "0.0", (n,))
    out = ("%z", tensor((n,), "f32"), f"d{kept}")
    text += generic("%s", [("%x", tensor(x.shape), "d0, d1")], out, "pr" if axis else "rp", SUM)
    text += store("%s", "%arg1", (n,), element="f32")
    y = np.zeros(n, np.float32)
    execute(kernel(["%arg0", "%arg1"], text), args=[x, y])
    same(y, oracle_sum(np.ascontiguousarray(x.T) if axis == 0 else x))


# Matmul


def oracle_matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    acc = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], LANES):
        acc += (a[:, k : k + LANES].astype(np.float64) @ b[k : k + LANES].astype(np.float64)).astype(np.float32)
    return acc


def matmul_host(m: int, k: int, n: int, *, named: bool = False) -> str:
    body = load("%a", "%arg0", (m, k)) + load("%b", "%arg1", (k, n)) + filled("%z", "0.0", (m, n))
    ta, tb, tc = tensor((m, k)), tensor((k, n)), tensor((m, n), "f32")
    if named:
        body += f"%c = linalg.matmul ins(%a, %b : {ta}, {tb}) outs(%z : {tc}) -> {tc}\n"
    else:
        body += generic("%c", [("%a", ta, "d0, d2"), ("%b", tb, "d2, d1")], ("%z", tc, "d0, d1"), "ppr", PRODUCTS)
    body += f"%h = arith.truncf %c : {tc} to {tensor((m, n))}\n"
    return kernel(["%arg0", "%arg1", "%arg2"], body + store("%h", "%arg2", (m, n)))


def matmul_sticks(m: int, k: int, n: int) -> str:
    """Laid-out contraction (n, m, j, k, i); A and B are padded with zeros."""
    n0, k0 = -(-n // LANES), -(-k // LANES)
    ta, tb, tc = tensor((k0, m, LANES)), tensor((n0, k0, LANES, LANES)), tensor((n0, m, LANES), "f32")
    body = load("%a", "%arg0", (k0, m, LANES)) + load("%b3", "%arg1", (n0, k0 * LANES, LANES))
    body += (
        f"%b = tensor.expand_shape %b3 [[0], [1, 2], [3]] output_shape [{n0}, {k0}, {LANES}, {LANES}] : "
        f"{tensor((n0, k0 * LANES, LANES))} into {tb}\n"
    )
    body += filled("%z", "0.0", (n0, m, LANES))
    ins = [("%a", ta, "d3, d1, d4"), ("%b", tb, "d0, d3, d4, d2")]
    body += generic("%c", ins, ("%z", tc, "d0, d1, d2"), "ppprr", PRODUCTS)
    body += f"%h = arith.truncf %c : {tc} to {tensor((n0, m, LANES))}\n"
    return kernel(["%arg0", "%arg1", "%arg2"], body + store("%h", "%arg2", (n0, m, LANES)))


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (9, 64, 64), (5, 65, 3), (70, 200, 130), (3, 513, 100)])
def test_matmul_bits_at_every_level(m, k, n):
    a, b = random_f16(m, k, seed=1), random_f16(k, n, seed=2)
    want = oracle_matmul(a, b).astype(np.float16)
    for named in (False, True):
        c = np.zeros((m, n), np.float16)
        execute(matmul_host(m, k, n, named=named), args=[a, b, c])
        same(c, want)
    n0, k0 = -(-n // LANES), -(-k // LANES)
    padded = np.zeros((k0 * LANES, n), np.float16)
    padded[:k] = b
    c = np.zeros((n0, m, LANES), np.float16)
    execute(matmul_sticks(m, k, n), args=[pack(a, 0), pack(padded, 0), c])
    same(unpack(c, n), want)
    for share in {1, max(1, m // 2), m}:
        c = np.full((n0, m, LANES), np.nan, np.float16)
        # NaN in all pads: the masked views must keep them out.
        execute(matmul_tiled(m, k, n, share), args=[pack(a), pack(b, 0), c])
        same(unpack(c, n), want)
    fast = np.zeros((m, n), np.float16)
    execute(matmul_host(m, k, n), args=[a, b, fast], policy=Policy(numerics="fast"))
    np.testing.assert_allclose(fast.astype(np.float32), want.astype(np.float32), rtol=2e-3, atol=2e-3)


def test_elementwise_product_sum_is_a_reduction():
    """Row dot products: no loop belongs to one factor only, so it is a sum in machine order, not a matmul."""
    a, b = random_f16(6, 100, seed=3), random_f16(6, 100, seed=4)
    body = load("%x", "%arg0", (6, 100)) + load("%y", "%arg1", (6, 100)) + filled("%z", "0.0", (6,))
    t = tensor((6, 100))
    body += generic("%s", [("%x", t, "d0, d1"), ("%y", t, "d0, d1")], ("%z", tensor((6,), "f32"), "d0"), "pr", PRODUCTS)
    y = np.zeros(6, np.float32)
    execute(kernel(["%arg0", "%arg1", "%arg2"], body + store("%s", "%arg2", (6,), element="f32")), args=[a, b, y])
    same(y, oracle_sum(a.astype(np.float32) * b.astype(np.float32)))


@pytest.mark.parametrize("batch", [1, 3])
def test_batch_matmul(batch):
    a, b = random_f16(batch, 5, 70, seed=3), random_f16(batch, 70, 9, seed=4)
    body = load("%a", "%arg0", a.shape) + load("%b", "%arg1", b.shape) + filled("%z", "0.0", (batch, 5, 9))
    tc = tensor((batch, 5, 9), "f32")
    body += f"%c = linalg.batch_matmul ins(%a, %b : {tensor(a.shape)}, {tensor(b.shape)}) outs(%z : {tc}) -> {tc}\n"
    c = np.zeros((batch, 5, 9), np.float32)
    execute(kernel(["%arg0", "%arg1", "%arg2"], body + store("%c", "%arg2", c.shape, element="f32")), args=[a, b, c])
    same(c, np.stack([oracle_matmul(x, y) for x, y in zip(a, b, strict=True)]))


# Layer norm, and kernels behind an entry


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (11, 200), (64, 768)])
def test_layer_norm(rows, columns):
    x, g, h = random_f16(rows, columns, scale=2), random_f16(columns, seed=1), random_f16(columns, seed=2)
    y = np.zeros_like(x)
    execute(layer_norm(rows, columns), args=[x, g, h, y])
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * g + h
    np.testing.assert_allclose(y, want, atol=8e-3)


def two_kernels(rows: int, columns: int, first_share: int, second_share: int) -> str:
    """exp(x) * 2 through a pool buffer, then softmax; different numbers of cores."""
    sticks = -(-columns // LANES)
    sizes = (sticks, "%rows", LANES)

    def divided(name: str, share: int, compute: str) -> str:
        place: dict[str, Any] = {"strides": (rows * LANES, LANES, 1), "extents": (sticks, share, LANES)}
        rows_of = (
            "%t = ktdp.get_compute_tile_id : index\n"
            f"%share = arith.constant {share} : index\n%all = arith.constant {rows} : index\n%lanes = arith.constant {LANES} : index\n"
            "%row0 = arith.muli %t, %share : index\n%left = arith.subi %all, %row0 : index\n"
            "%rows = arith.minsi %left, %share : index\n%off = arith.muli %row0, %lanes : index\n"
            "%in = arith.addi %arg0, %off : index\n%out = arith.addi %arg1, %off : index\n"
        )
        body = rows_of + load("%x", "%in", sizes, **place) + compute + store("%y", "%out", sizes, **place)
        return function(name, ["%arg0", "%arg1"], body, f"attributes {{grid = [{-(-rows // share)}]}}")

    full = tensor((sticks, first_share, LANES))
    double = f"%y = arith.addf %x, %x : {full}\n"
    entry = "func.call @first(%x, %pool) : (index, index) -> ()\nfunc.call @second(%pool, %y) : (index, index) -> ()\n"
    return module(
        divided("first", first_share, double),
        divided("second", second_share, softmax_block("%x", "%y", sticks, second_share, columns)),
        function("main", ["%x", "%y", "%pool"], entry),
    )


@pytest.mark.parametrize("shares", [(5, 5), (5, 3), (3, 20)])
def test_two_kernels_through_a_pool(shares):
    rows, columns = 20, 100
    x = random_f16(rows, columns)
    y = np.zeros_like(pack(x))
    report = execute(two_kernels(rows, columns, *shares), args=[pack(x), y, Scratch(pack(x).size)])
    np.testing.assert_allclose(unpack(y, columns), softmax_reference(x + x), atol=1e-3)
    assert report.bytes_written["global"] == 2 * pack(x).nbytes
    # A plain array as pool holds the intermediate result afterwards.
    pool = np.zeros(pack(x).size, np.float16)
    execute(two_kernels(rows, columns, *shares), args=[pack(x), y, pool])
    same(unpack(pool.reshape(pack(x).shape), columns), x + x)


def test_online_form_of_a_loop_with_carried_values():
    """Row sums by a loop over sticks whose accumulator is one value per row."""
    rows, columns = 6, 300
    sticks = -(-columns // LANES)
    x = random_f16(rows, columns)
    acc = tensor((rows,), "f32")
    body = f"%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%n = arith.constant {sticks} : index\n"
    body += f"%N = arith.constant {columns} : index\n%c64 = arith.constant 64 : index\n" + filled("%z", "0.0", (rows,))
    body += f"%s = scf.for %j = %c0 to %n step %c1 iter_args(%p = %z) -> ({acc}) {{\n%first = arith.muli %j, %c64 : index\n"
    body += load("%x", "%arg0", (rows, "%N"), strides=(columns, 1), index=(0, "%first"), extents=(rows, LANES))
    body += generic("%q", [("%x", tensor((rows, LANES)), "d0, d1")], ("%p", acc, "d0"), "pr", SUM)
    body += f"scf.yield %q : {acc}\n}}\n" + store("%s", "%arg1", (rows,), element="f32")
    y = np.zeros(rows, np.float32)
    execute(kernel(["%arg0", "%arg1"], body), args=[x, y])
    np.testing.assert_allclose(y, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-4)
