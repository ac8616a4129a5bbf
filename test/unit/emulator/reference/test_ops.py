"""One op or one form at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from kernel_runs import F16, F32, TYPES, run
from kernel_texts import (
    empty,
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

from ktir.arithmetic import numerics
from ktir.diagnostics import Unsupported
from ktir.emulator.reference import execute

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
