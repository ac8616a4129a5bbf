"""One op or one form at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kernel_texts import (
    empty,
    filled,
    function,
    generic,
    kernel,
    load,
    module,
    random_f16,
    same,
    store,
    tensor,
)

from ktir import numerics
from ktir.diagnostics import Unsupported
from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute

F16, F32 = np.float16, np.float32
TYPES = {"f16": F16, "f32": F32, "i32": np.int32}


def run(body: str, *arrays: np.ndarray, out: tuple[int, ...], element: str = "f16", policy: Policy | None = None) -> np.ndarray:
    """Runs `body`, which defines %y from arguments %arg0, %arg1, ..; returns %y."""
    y = np.zeros(out, TYPES[element])
    names = [f"%arg{i}" for i in range(len(arrays) + 1)]
    text = kernel(names, body + store("%y", names[-1], out, element=element))
    execute(text, args=[*arrays, y], policy=policy)
    return y


UNARY = {
    "arith.negf": np.negative,
    "math.absf": np.abs,
    "math.exp": np.exp,
    "math.log": np.log,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.tanh": np.tanh,
    "math.erf": np.vectorize(math.erf),
    "math.floor": np.floor,
}
BINARY = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
}


@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("op", sorted(UNARY))
def test_unary(op, element):
    x = random_f16(9, 70, scale=4).astype(TYPES[element])
    t = tensor(x.shape, element)
    body = load("%x", "%arg0", x.shape, element=element) + f"%y = {op} %x : {t}\n"
    y = run(body, x, out=x.shape, element=element)
    with np.errstate(all="ignore"):
        want = UNARY[op](x.astype(np.float64)).astype(TYPES[element])
    np.testing.assert_allclose(y, want, rtol=1e-3 if element == "f16" else 1e-6)
    if element == "f16" and op in ("arith.negf", "math.absf", "math.sqrt", "math.floor"):
        same(y[~np.isnan(y)], want[~np.isnan(want)])


@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary(op, element):
    a, b = random_f16(9, 70).astype(TYPES[element]), random_f16(9, 70, seed=1).astype(TYPES[element])
    t = tensor(a.shape, element)
    body = load("%a", "%arg0", a.shape, element=element) + load("%b", "%arg1", a.shape, element=element)
    y = run(body + f"%y = {op} %a, %b : {t}\n", a, b, out=a.shape, element=element)
    same(y, BINARY[op](a.astype(F32), b.astype(F32)).astype(TYPES[element]))


def test_each_op_of_a_body_rounds_once():
    """f16: three roundings; the same in f32: one."""
    x = random_f16(1000, scale=0.37)
    t = tensor(x.shape)
    narrow = "%x = arith.mulf %a, %a : f16\n%y = arith.addf %x, %a : f16\n%z = math.exp %y : f16\nlinalg.yield %z : f16"
    wide = (
        "%w = arith.extf %a : f16 to f32\n%x = arith.mulf %w, %w : f32\n%y = arith.addf %x, %w : f32\n%z = math.exp %y : f32\n"
        "%t = arith.truncf %z : f32 to f16\nlinalg.yield %t : f16"
    )
    f = x.astype(F32)
    r = numerics.round_f16
    wants = (np.exp(r(r(f * f) + f)).astype(F16), np.exp(f * f + f).astype(F16))
    for body, want in zip((narrow, wide), wants, strict=True):
        text = load("%x", "%arg0", x.shape) + empty("%e", x.shape) + generic("%y", [("%x", t, "d0")], ("%e", t, "d0"), "p", body)
        same(run(text, x, out=x.shape), want)
    assert (wants[0] != wants[1]).any()


def test_special_values_survive():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, -65504, 6e-8, -6e-8, 6.1e-5], F16)
    t = tensor(x.shape)
    same(run(load("%y", "%arg0", x.shape), x, out=x.shape), x)
    y = run(load("%x", "%arg0", x.shape) + f"%y = arith.addf %x, %x : {t}\n", x, out=x.shape)
    with np.errstate(all="ignore"):
        want = (x.astype(F32) * 2).astype(F16)
    np.testing.assert_array_equal(y, want)
    assert np.signbit(y[1])


def test_large_pointwise_in_many_chunks():
    """More than a chunk on every axis order, broadcast operands of every kind, a value used twice."""
    x, row, column, one = random_f16(3, 700, 130), random_f16(130, seed=1), random_f16(3, 700, seed=2), random_f16(1, seed=3)
    body = (
        "%x = arith.mulf %a, %b : f16\n%y = arith.addf %x, %c : f16\n%z = arith.subf %y, %d : f16\n%w = arith.mulf %z, %x : f16\n"
        "linalg.yield %w : f16"
    )
    text = load("%x", "%arg0", x.shape) + load("%b", "%arg1", row.shape) + load("%c", "%arg2", column.shape) + load("%d", "%arg3", (1,))
    ins = [
        ("%x", tensor(x.shape), "d0, d1, d2"),
        ("%b", tensor(row.shape), "d2"),
        ("%c", tensor(column.shape), "d0, d1"),
        ("%d", tensor((1,)), "0"),
    ]
    text += empty("%e", (130, 3, 700)) + generic("%y", ins, ("%e", tensor((130, 3, 700)), "d2, d0, d1"), "ppp", body)
    y = run(text, x, row, column, one, out=(130, 3, 700))
    f, r = x.astype(F32), numerics.round_f16
    p = r(f * row.astype(F32))
    want = r(r(r(p + column.astype(F32)[..., None]) - one.astype(F32)) * p)
    same(y, np.ascontiguousarray(want.transpose(2, 0, 1)).astype(F16))


def test_body_that_depends_on_rows_only():
    column = random_f16(40)
    body = "%x = math.exp %a : f16\nlinalg.yield %x : f16"
    text = load("%x", "%arg0", (40,)) + empty("%e", (40, 30))
    text += generic("%y", [("%x", tensor((40,)), "d0")], ("%e", tensor((40, 30)), "d0, d1"), "pp", body)
    y = run(text, column, out=(40, 30))
    want = np.exp(column.astype(F32)).astype(F16)
    same(y, np.broadcast_to(want[:, None], (40, 30)))


def test_several_results():
    x = random_f16(8, 20)
    t = tensor(x.shape)
    text = load("%x", "%arg0", x.shape) + empty("%e", x.shape) + empty("%f", (20, 8))
    text += (
        "%y:2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>, "
        'affine_map<(d0, d1) -> (d1, d0)>], iterator_types = ["parallel", "parallel"]} '
        f"ins(%x : {t}) outs(%e, %f : {t}, {tensor((20, 8))}) {{\n^bb0(%p: f16, %q: f16, %r: f16):\n"
        "%s = arith.negf %p : f16\n%u = arith.addf %p, %p : f16\nlinalg.yield %s, %u : f16, f16\n}"
        f" -> ({t}, {tensor((20, 8))})\n"
    )
    a, b = np.zeros_like(x), np.zeros((20, 8), F16)
    execute(kernel(["%arg0", "%arg1", "%arg2"], text + store("%y#0", "%arg1", x.shape) + store("%y#1", "%arg2", (20, 8))), args=[x, a, b])
    same(a, -x)
    same(b, np.ascontiguousarray(x.T) * F16(2))


def test_outs_of_a_pointwise_body_are_read():
    x, start = random_f16(6, 5), random_f16(6, 5, seed=1)
    t = tensor(x.shape)
    text = load("%x", "%arg0", x.shape) + load("%s", "%arg1", x.shape)
    text += generic("%y", [("%x", t, "d0, d1")], ("%s", t, "d0, d1"), "pp", "%x = arith.addf %a, %o : f16\nlinalg.yield %x : f16")
    same(run(text, x, start, out=x.shape), (x.astype(F32) + start).astype(F16))


@pytest.mark.parametrize(("rows", "columns"), [(5, 130), (1, 1), (64, 64)])
def test_masks_by_index(rows, columns):
    """select on the loop index: a box, and a set that is no box (a triangle)."""
    x = random_f16(rows, columns)
    t = tensor(x.shape)
    index = "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n%n = arith.constant -1.0 : f16\n"
    box = index + "%l = arith.constant 3 : index\n%m = arith.cmpi ult, %i, %l : index\n"
    triangle = index + "%m = arith.cmpi sle, %j, %i : index\n"
    ii, jj = np.indices(x.shape)
    for body, keep in ((box, ii < 3), (triangle, jj <= ii)):
        body += "%d = arith.addf %a, %a : f16\n%v = arith.select %m, %d, %n : f16\nlinalg.yield %v : f16"
        text = load("%x", "%arg0", x.shape) + empty("%e", x.shape) + generic("%y", [("%x", t, "d0, d1")], ("%e", t, "d0, d1"), "pp", body)
        same(run(text, x, out=x.shape), np.where(keep, x + x, F16(-1)))


def test_select_on_data():
    a, b = random_f16(7, 66), random_f16(7, 66, seed=1)
    t = tensor(a.shape)
    text = load("%a", "%arg0", a.shape) + load("%b", "%arg1", a.shape)
    text += f"%m = arith.cmpf olt, %a, %b : {t}\n%y = arith.select %m, %a, %b : {tensor(a.shape, 'i1')}, {t}\n"
    same(run(text, a, b, out=a.shape), np.where(a < b, a, b))


@pytest.mark.parametrize(
    ("name", "numpy"),
    [
        ("oeq", lambda a, b: a == b),
        ("one", lambda a, b: (a != b) & ~np.isnan(a + b)),
        ("ogt", lambda a, b: a > b),
        ("ole", lambda a, b: a <= b),
        ("une", lambda a, b: a != b),
        ("ult", lambda a, b: ~(a >= b)),
        ("uno", lambda a, b: np.isnan(a + b)),
        ("ord", lambda a, b: ~np.isnan(a + b)),
    ],
)
def test_cmpf(name, numpy):
    a = np.array([0, 1, -1, np.nan, 2, np.nan], F16)
    b = np.array([0, 2, -2, 1, np.nan, np.nan], F16)
    t = tensor(a.shape)
    text = load("%a", "%arg0", a.shape) + load("%b", "%arg1", a.shape) + f"%m = arith.cmpf {name}, %a, %b : {t}\n"
    text += f"%y = arith.uitofp %m : {tensor(a.shape, 'i1')} to {t}\n"
    np.testing.assert_array_equal(run(text, a, b, out=a.shape), numpy(a, b).astype(F16))


def test_index_arithmetic():
    """Every integer op on known numbers, seen through the offset of a view."""
    cases = {
        "addi": 9, "subi": 5, "muli": 14, "divui": 3, "remui": 1, "divsi": 3, "remsi": 1, "floordivsi": 3, "ceildivui": 4, "ceildivsi": 4,
        "minsi": 2, "maxsi": 7, "minui": 2, "maxui": 7, "andi": 2, "ori": 7, "xori": 5, "shli": 28, "shrui": 1,
    }  # fmt: skip
    x = np.arange(64).astype(F16)
    for op, want in cases.items():
        text = "%p = arith.constant 7 : index\n%q = arith.constant 2 : index\n" + f"%r = arith.{op} %p, %q : index\n"
        text += "%at = arith.addi %arg0, %r : index\n" + load("%y", "%at", (1,))
        assert run(text, x, out=(1,))[0] == want, op
    text = "%p = arith.constant -7 : i32\n%q = arith.constant 2 : i32\n%c8 = arith.constant 8 : index\n"
    for op, want in {"divsi": -3, "remsi": -1, "floordivsi": -4, "ceildivsi": -3}.items():
        body = text + f"%r = arith.{op} %p, %q : i32\n%s = arith.index_cast %r : i32 to index\n%t = arith.addi %s, %c8 : index\n"
        body += "%at = arith.addi %arg0, %t : index\n" + load("%y", "%at", (1,))
        assert run(body, x, out=(1,))[0] == want + 8, op
    for predicate, want in {"slt": 1, "ult": 0, "sge": 0, "ugt": 1, "eq": 0, "ne": 1}.items():
        body = text + f"%c = arith.cmpi {predicate}, %p, %q : i32\n%c1 = arith.constant 1 : index\n%c0 = arith.constant 0 : index\n"
        body += "%r = arith.select %c, %c1, %c0 : index\n%at = arith.addi %arg0, %r : index\n" + load("%y", "%at", (1,))
        assert run(body, x, out=(1,))[0] == want, predicate


def test_addresses():
    """Differences of addresses are numbers; an address can be chosen."""
    x = np.arange(64).astype(F16)
    text = "%c5 = arith.constant 5 : index\n%p = arith.addi %arg0, %c5 : index\n%d = arith.subi %p, %arg0 : index\n"
    text += "%t = arith.constant true\n%q = arith.select %t, %p, %arg0 : index\n%at = arith.addi %d, %q : index\n" + load("%y", "%at", (2,))
    np.testing.assert_array_equal(run(text, x, out=(2,)), [10, 11])
    bad = "%p = arith.muli %arg0, %arg0 : index\n" + load("%y", "%p", (2,))
    with pytest.raises(Unsupported, match=r"'arith.muli' op computes with an address"):
        run(bad, x, out=(2,))


def test_constants():
    text = "%y = arith.constant dense<[[1.0, -2.5], [0.1, 65504.0]]> : tensor<2x2xf16>\n"
    same(run(text, out=(2, 2)), np.array([[1, -2.5], [0.1, 65504]], F16))
    same(run("%y = arith.constant dense<0.1> : tensor<3x4xf32>\n", out=(3, 4), element="f32"), np.full((3, 4), 0.1, F32))
    same(run("%c = arith.constant 0.1 : f16\n%y = tensor.splat %c : tensor<5xf16>\n", out=(5,)), np.full(5, 0.1, F16))
    rank0 = (
        "%c = arith.constant dense<2.5> : tensor<f16>\n%y = tensor.expand_shape %c [] output_shape [1] : tensor<f16> into tensor<1xf16>\n"
    )
    same(run(rank0, out=(1,)), np.array([2.5], F16))


def test_known_floats():
    """Scalar float arithmetic on constants, rounded like any other."""
    text = "%a = arith.constant 0.1 : f16\n%b = arith.constant 3.0 : f16\n%c = arith.mulf %a, %b : f16\n%w = arith.extf %c : f16 to f32\n"
    text += "%s = math.sqrt %w : f32\n%h = arith.truncf %s : f32 to f16\n%i = arith.constant 3 : i32\n%f = arith.sitofp %i : i32 to f16\n"
    text += "%t = arith.divf %h, %f : f16\n%y = tensor.splat %t : tensor<2xf16>\n"
    want = (np.sqrt((F32(F16(0.1)) * 3).astype(F16).astype(F32)).astype(F16).astype(F32) / 3).astype(F16)
    same(run(text, out=(2,)), np.full(2, want))


def test_scalar_from_data():
    """tensor.extract, arithmetic on the scalar, and its use in a body and in a fill."""
    x = random_f16(4, 5)
    t = tensor(x.shape)
    text = load("%x", "%arg0", x.shape) + "%c1 = arith.constant 1 : index\n%c2 = arith.constant 2 : index\n"
    text += f"%s = tensor.extract %x[%c1, %c2] : {t}\n%d = arith.addf %s, %s : f16\n" + empty("%e", x.shape)
    text += f"%f = linalg.fill ins(%d : f16) outs(%e : {t}) -> {t}\n"
    body = "%u = arith.mulf %a, %d : f16\n%v = arith.addf %u, %b : f16\nlinalg.yield %v : f16"
    body = body.replace("%d", "%scalar")
    text = text.replace("%d", "%scalar")
    text += generic("%y", [("%x", t, "d0, d1"), ("%f", t, "d0, d1")], ("%e", t, "d0, d1"), "pp", body)
    double = (x[1, 2] + x[1, 2]).astype(F32)
    same(run(text, x, out=x.shape), numerics.round_f16(numerics.round_f16(x * double) + double).astype(F16))


# Reductions that are not the usual ones


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
    want = numerics.matmul_machine(a.astype(F32)[None], b.astype(F32)[:, None], np.zeros((1, 1), F32))
    same(run(text, a, b, out=(1,), element="f32"), want[0])


# Maps and shapes


def test_floordiv_and_mod_maps():
    """A dense column read as [n floordiv 64, n mod 64]."""
    rows = 130
    column, x = random_f16(3, 64), random_f16(rows, 5)
    text = load("%c", "%arg0", column.shape) + load("%x", "%arg1", x.shape) + empty("%e", x.shape)
    ins = [("%c", tensor(column.shape), "d0 floordiv 64, d0 mod 64"), ("%x", tensor(x.shape), "d0, d1")]
    text += generic("%y", ins, ("%e", tensor(x.shape), "d0, d1"), "pp", "%x = arith.addf %a, %b : f16\nlinalg.yield %x : f16")
    same(run(text, column, x, out=x.shape), column.reshape(-1)[:rows, None] + x)


def test_linear_maps():
    """64*q + r addresses a dense vector; a diagonal is read."""
    v, x = random_f16(128), random_f16(6, 6)
    text = load("%v", "%arg0", v.shape) + empty("%e", (2, 64))
    add = "linalg.yield %a : f16"
    text += generic("%y", [("%v", tensor(v.shape), "d0 * 64 + d1")], ("%e", tensor((2, 64)), "d0, d1"), "pp", add)
    same(run(text, v, out=(2, 64)), v.reshape(2, 64))
    text = load("%x", "%arg0", x.shape) + empty("%e", (6,))
    text += generic("%y", [("%x", tensor(x.shape), "d0, d0")], ("%e", tensor((6,)), "d0"), "p", add)
    same(run(text, x, out=(6,)), x.diagonal().copy())


def test_scattering_result_map():
    x = random_f16(4)
    text = load("%x", "%arg0", x.shape) + filled("%z", "7.0", (4, 4), "f16")
    text += generic("%y", [("%x", tensor(x.shape), "d0")], ("%z", tensor((4, 4)), "d0, d0"), "p", "linalg.yield %a : f16")
    want = np.full((4, 4), 7, F16)
    want[np.arange(4), np.arange(4)] = x
    same(run(text, x, out=(4, 4)), want)


def test_reshapes():
    x = random_f16(6, 10)
    text = load("%x", "%arg0", x.shape)
    text += "%a = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 3, 10] : tensor<6x10xf16> into tensor<2x3x10xf16>\n" + empty(
        "%e", (3, 10, 2)
    )
    text += "%b = linalg.transpose ins(%a : tensor<2x3x10xf16>) outs(%e : tensor<3x10x2xf16>) permutation = [1, 2, 0]\n"
    text += "%y = tensor.collapse_shape %b [[0], [1, 2]] : tensor<3x10x2xf16> into tensor<3x20xf16>\n"
    same(run(text, x, out=(3, 20)), np.ascontiguousarray(x.reshape(2, 3, 10).transpose(1, 2, 0)).reshape(3, 20))


def test_collapse_of_a_broadcast():
    v = random_f16(5)
    text = load("%v", "%arg0", v.shape) + empty("%e", (5, 3))
    text += "%b = linalg.broadcast ins(%v : tensor<5xf16>) outs(%e : tensor<5x3xf16>) dimensions = [1]\n"
    text += "%y = tensor.collapse_shape %b [[0, 1]] : tensor<5x3xf16> into tensor<15xf16>\n"
    same(run(text, v, out=(15,)), np.repeat(v, 3))


def test_slices():
    x = random_f16(8, 9)
    text = load("%x", "%arg0", x.shape) + "%c2 = arith.constant 2 : index\n"
    text += "%s = tensor.extract_slice %x[%c2, 1] [3, 4] [2, 2] : tensor<8x9xf16> to tensor<3x4xf16>\n"
    text += "%r = tensor.extract_slice %x[%c2, 0] [1, 9] [1, 1] : tensor<8x9xf16> to tensor<9xf16>\n"
    text += "%i = tensor.insert_slice %s into %x[%c2, 5] [3, 4] [1, 1] : tensor<3x4xf16> into tensor<8x9xf16>\n"
    text += "%y = tensor.insert_slice %r into %i[0, 0] [1, 9] [1, 1] : tensor<9xf16> into tensor<8x9xf16>\n"
    want = x.copy()
    want[2:5, 5:9] = x[2:8:2, 1:9:2]
    want[0] = x[2]
    same(run(text, x, out=x.shape), want)


def test_insert_in_a_loop():
    """The carried tensor is built piece by piece, in place."""
    x = random_f16(5, 64)
    text = load("%x", "%arg0", x.shape) + empty("%e", (5, 64))
    text += (
        "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%c5 = arith.constant 5 : index\n%c4 = arith.constant 4 : index\n"
    )
    text += "%y = scf.for %i = %c0 to %c5 step %c1 iter_args(%p = %e) -> (tensor<5x64xf16>) {\n%j = arith.subi %c4, %i : index\n"
    text += "%s = tensor.extract_slice %x[%j, 0] [1, 64] [1, 1] : tensor<5x64xf16> to tensor<1x64xf16>\n"
    text += "%q = tensor.insert_slice %s into %p[%i, 0] [1, 64] [1, 1] : tensor<1x64xf16> into tensor<5x64xf16>\n"
    text += "scf.yield %q : tensor<5x64xf16>\n}\n"
    same(run(text, x, out=x.shape), x[::-1])


def test_pad():
    x = random_f16(3, 5)
    text = load("%x", "%arg0", x.shape) + "%z = arith.constant -1.5 : f16\n"
    text += "%y = tensor.pad %x low[1, 0] high[2, 3] {\n^bb0(%i: index, %j: index):\ntensor.yield %z : f16\n}"
    text += " : tensor<3x5xf16> to tensor<6x8xf16>\n"
    want = np.full((6, 8), -1.5, F16)
    want[1:4, :5] = x
    same(run(text, x, out=(6, 8)), want)


def test_named_elementwise_ops():
    a, b = random_f16(4, 5), random_f16(4, 5, seed=1)
    t = tensor(a.shape)
    text = load("%a", "%arg0", a.shape) + load("%b", "%arg1", a.shape) + empty("%e", a.shape)
    text += f"%s = linalg.add ins(%a, %b : {t}, {t}) outs(%e : {t}) -> {t}\n%y = linalg.exp ins(%s : {t}) outs(%e : {t}) -> {t}\n"
    same(run(text, a, b, out=a.shape), np.exp((a.astype(F32) + b).astype(F16).astype(F32)).astype(F16))


# Views


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


def test_conditions():
    """scf.if on the tile id: some tiles store one thing, the others another; values are merged."""
    y = np.zeros(6, F16)
    text = "%t = ktdp.get_compute_tile_id : index\n%c2 = arith.constant 2 : index\n%c = arith.cmpi slt, %t, %c2 : index\n"
    text += "%a = arith.constant dense<1.0> : tensor<1xf16>\n%b = arith.constant dense<2.0> : tensor<1xf16>\n"
    text += "%v = scf.if %c -> (tensor<1xf16>) {\nscf.yield %a : tensor<1xf16>\n} else {\nscf.yield %b : tensor<1xf16>\n}\n"
    text += "%at = arith.addi %arg0, %t : index\nscf.if %c {\n" + store("%v", "%at", (1,)) + "}\n%c4 = arith.constant 4 : index\n"
    text += "%e = arith.cmpi sge, %t, %c4 : index\nscf.if %e {\n" + store("%v", "%at", (1,)) + "}\n"
    execute(kernel(["%arg0"], text, "6"), args=[y])
    np.testing.assert_array_equal(y, [1, 1, 0, 0, 2, 2])


def test_loops_whose_trip_counts_differ():
    """Tile t adds 1.0 t times; an index is carried too."""
    y = np.zeros((5, 2), F16)
    text = "%t = ktdp.get_compute_tile_id : index\n%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"
    text += "%z = arith.constant dense<0.0> : tensor<1xf16>\n%one = arith.constant dense<1.0> : tensor<1xf16>\n"
    text += "%s:2 = scf.for %i = %c0 to %t step %c1 iter_args(%p = %z, %q = %c0) -> (tensor<1xf16>, index) {\n"
    text += "%r = arith.addf %p, %one : tensor<1xf16>\n%u = arith.addi %q, %c1 : index\nscf.yield %r, %u : tensor<1xf16>, index\n}\n"
    text += "%c2 = arith.constant 2 : index\n%o = arith.muli %t, %c2 : index\n%at = arith.addi %arg0, %o : index\n" + store(
        "%s#0", "%at", (1,)
    )
    text += "%n = arith.index_cast %s#1 : index to i32\n%f = arith.sitofp %n : i32 to f16\n%v = tensor.splat %f : tensor<1xf16>\n"
    text += "%next = arith.addi %at, %c1 : index\n" + store("%v", "%next", (1,))
    execute(kernel(["%arg0"], text, "5"), args=[y])
    np.testing.assert_array_equal(y, np.arange(5)[:, None].repeat(2, 1))


# Loads are views of memory: what a store changes later must not show


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


def test_unsupported_op_is_named_and_placed():
    text = module(function("kernel", [], "%x = memref.alloc() : memref<4xf32>\n"))
    with pytest.raises(Unsupported, match=r"<text>:3:\d+: error: 'memref.alloc' op has no executor"):
        execute(text)
    body = load("%x", "%arg0", (4,)) + empty("%e", (4,))
    body += generic(
        "%y", [("%x", tensor((4,)), "d0")], ("%e", tensor((4,)), "d0"), "p", "%u = tensor.rank %x : tensor<4xf16>\nlinalg.yield %a : f16"
    )
    with pytest.raises(Unsupported, match=r"'tensor.rank' op has no executor inside 'linalg.generic'"):
        execute(kernel(["%arg0"], body), args=[np.zeros(4, F16)])
