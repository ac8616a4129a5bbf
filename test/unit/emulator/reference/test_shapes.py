"""Maps of generics, and ops that change shapes."""

from __future__ import annotations

import numpy as np
from kernel_runs import F16, F32, run
from kernel_texts import (
    empty,
    filled,
    generic,
    load,
    random_f16,
    same,
    tensor,
)


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
