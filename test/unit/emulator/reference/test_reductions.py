"""Reductions that are not the usual ones."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import F16, F32, run
from kernel_texts import (
    filled,
    generic,
    load,
    random_f16,
    same,
    tensor,
)

from ktir.arithmetic import numerics
from ktir.arithmetic.products import matmul_machine


@pytest.mark.parametrize("kind", ["maximumf", "minimumf"])
def test_extremes(kind):
    x = random_f16(6, 100)
    x[0, 3] = np.nan
    start = "0xFC00" if kind == "maximumf" else "0x7C00"
    text = load("%x", "%arg0", x.shape) + filled("%z", start, (6,), "f16")
    body = f"%r = arith.{kind} %o, %a : f16\nlinalg.yield %r : f16"
    text += generic("%y", [("%x", tensor(x.shape), "d0, d1")], ("%z", tensor((6,)), "d0"), "pr", body)
    want = x.max(1) if kind == "maximumf" else x.min(1)
    np.testing.assert_array_equal(run(text, x, out=(6,)), want)


def test_accumulator_joins_last():
    x, start = random_f16(6, 100), random_f16(6, seed=1).astype(F32)
    text = load("%x", "%arg0", x.shape) + load("%z", "%arg1", (6,), element="f32")
    body = "%w = arith.extf %a : f16 to f32\n%r = arith.addf %w, %o : f32\nlinalg.yield %r : f32"
    text += generic("%y", [("%x", tensor(x.shape), "d0, d1")], ("%z", tensor((6,), "f32"), "d0"), "pr", body)
    same(run(text, x, start, out=(6,), element="f32"), start + numerics.reduce_machine("add", x.astype(F32)))


@pytest.mark.parametrize("columns", [1, 64, 130])
def test_f16_accumulator_rounds_every_step(columns):
    x = random_f16(6, columns)
    text = load("%x", "%arg0", x.shape) + filled("%z", "0.0", (6,), "f16")
    body = "%r = arith.addf %a, %o : f16\nlinalg.yield %r : f16"
    text += generic("%y", [("%x", tensor(x.shape), "d0, d1")], ("%z", tensor((6,)), "d0"), "pr", body)
    padded = np.zeros((6, -(-columns // 64) * 64), F32)
    padded[:, :columns] = x
    sticks = padded.reshape(6, -1, 64)
    lanes = sticks[:, 0]
    for i in range(1, sticks.shape[1]):
        lanes = numerics.round_f16(lanes + sticks[:, i])
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = numerics.round_f16(lanes[:, :half] + lanes[:, half:])
    same(run(text, x, out=(6,)), (lanes[:, 0] + F32(0)).astype(F16))


def test_several_reduced_loops_in_order():
    """Loops (p, r, r) with an inner extent other than 64: strictly one after the other."""
    x = random_f16(4, 5, 7, scale=50)
    text = load("%x", "%arg0", x.shape) + filled("%z", "0.0", (4,))
    body = "%w = arith.extf %a : f16 to f32\n%r = arith.addf %w, %o : f32\nlinalg.yield %r : f32"
    text += generic("%y", [("%x", tensor(x.shape), "d0, d1, d2")], ("%z", tensor((4,), "f32"), "d0"), "prr", body)
    acc = np.zeros(4, F32)
    for i in range(35):
        acc = x.reshape(4, 35)[:, i].astype(F32) + acc if i else x.reshape(4, 35)[:, 0].astype(F32)
    same(run(text, x, out=(4,), element="f32"), acc)


def test_body_that_is_no_known_reduction():
    """o*2 + a (Horner): evaluated point by point; linalg.index of the reduced loop counts."""
    x = random_f16(4, 6)
    text = load("%x", "%arg0", x.shape) + filled("%z", "0.0", (4,))
    body = (
        "%i = linalg.index 1 : index\n%k = arith.index_cast %i : index to i32\n%f = arith.sitofp %k : i32 to f32\n"
        "%w = arith.extf %a : f16 to f32\n%d = arith.addf %o, %o : f32\n%e = arith.addf %d, %w : f32\n%r = arith.addf %e, %f : f32\n"
        "linalg.yield %r : f32"
    )
    text += generic("%y", [("%x", tensor(x.shape), "d0, d1")], ("%z", tensor((4,), "f32"), "d0"), "pr", body)
    acc = np.zeros(4, F32)
    for i in range(6):
        acc = ((acc + acc) + x[:, i].astype(F32)) + F32(i)
    same(run(text, x, out=(4,), element="f32"), acc)


def test_reduce_op_with_two_results():
    x = random_f16(4, 70)
    t, s = tensor(x.shape), tensor((4,))
    text = load("%x", "%arg0", x.shape) + filled("%lo", "0x7C00", (4,), "f16") + filled("%hi", "0xFC00", (4,), "f16")
    text += (
        f"%r:2 = linalg.reduce ins(%x, %x : {t}, {t}) outs(%lo, %hi : {s}, {s}) dimensions = [1] (%a: f16, %b: f16, %p: f16, %q: f16) {{\n"
        "%u = arith.minimumf %a, %p : f16\n%v = arith.maximumf %b, %q : f16\nlinalg.yield %u, %v : f16, f16\n}\n"
        f"%y = arith.subf %r#1, %r#0 : {s}\n"
    )
    same(run(text, x, out=(4,)), (x.max(1).astype(F32) - x.min(1)).astype(F16))


def test_rank_0_results():
    x = random_f16(100)
    text = load("%x", "%arg0", x.shape) + filled("%z", "0.0", ())
    body = "%w = arith.extf %a : f16 to f32\n%r = arith.addf %w, %o : f32\nlinalg.yield %r : f32"
    text += generic("%s", [("%x", tensor(x.shape), "d0")], ("%z", "tensor<f32>", ""), "r", body)
    text += "%y = tensor.expand_shape %s [] output_shape [1] : tensor<f32> into tensor<1xf32>\n"
    same(run(text, x, out=(1,), element="f32"), numerics.reduce_machine("add", x.astype(F32)[None]))


def test_dot_product_is_a_matmul():
    a, b = random_f16(130), random_f16(130, seed=1)
    t = tensor(a.shape)
    body = (
        "%x = arith.extf %a : f16 to f32\n%y = arith.extf %b : f16 to f32\n%z = arith.mulf %x, %y : f32\n"
        "%w = arith.addf %o, %z : f32\nlinalg.yield %w : f32"
    )
    text = load("%a0", "%arg0", a.shape) + load("%b0", "%arg1", a.shape) + filled("%z0", "0.0", (1,))
    text += generic("%y", [("%a0", t, "d0"), ("%b0", t, "d0")], ("%z0", tensor((1,), "f32"), "0"), "r", body)
    want = matmul_machine(a.astype(F32)[None], b.astype(F32)[:, None], np.zeros((1, 1), F32))
    same(run(text, a, b, out=(1,), element="f32"), want[0])
