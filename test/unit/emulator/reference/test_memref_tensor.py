"""memref and tensor ops beyond the usual: parts of views, single elements, coordinates from data, dynamic slices; float formats."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_texts import kernel, load, random_f16, store, tensor, view

import ktir
from ktir.diagnostics import KtirError
from ktir.emulator.findings import DivisionByZero, DuplicateTarget, OutOfBounds

F16, F32 = np.float16, np.float32


def run(body: str, *arrays: np.ndarray, out: np.ndarray, grid: str = "1", element: str = "f16") -> np.ndarray:
    """Runs `body`, which defines %y; returns it."""
    names = [f"%arg{i}" for i in range(len(arrays) + 1)]
    text = body + store("%y", names[-1], out.shape, element=element) if "%y" in body else body
    ktir.execute(kernel(names, text, grid), args=[*arrays, out])
    return out


def test_gather_by_coordinates():
    x = random_f16(5, 6, 4)
    index = np.random.default_rng(0).integers(0, [5, 4], (3, 2, 2)).astype(np.int64)
    text = load("%x", "%arg0", x.shape) + load("%i", "%arg1", index.shape, element="index")
    gather = text + "%y = tensor.gather %x[%i] gather_dims([0, 2]) : (tensor<5x6x4xf16>, tensor<3x2x2xindex>) -> tensor<3x2x6xf16>\n"
    want = x[index[..., 0], :, index[..., 1]]
    np.testing.assert_array_equal(run(gather, x, index, out=np.zeros((3, 2, 6), F16)), want)
    kept = gather.replace("tensor<3x2x6xf16>", "tensor<3x2x1x6x1xf16>")
    np.testing.assert_array_equal(run(kept, x, index, out=np.zeros((3, 2, 1, 6, 1), F16)), want[:, :, None, :, None])
    index[1, 0, 1] = 4
    with pytest.raises(OutOfBounds, match=r"'tensor.gather' op has coordinate 4 in dim 2 of size 4"):
        run(gather, x, index, out=np.zeros((3, 2, 6), F16))


def test_scatter_by_coordinates():
    base, new = random_f16(5, 6), random_f16(3, 1, 6, seed=1)
    index = np.array([[4], [0], [2]], np.int64)
    text = load("%b", "%arg0", base.shape) + load("%n", "%arg1", new.shape) + load("%i", "%arg2", index.shape, element="index")
    text += "%y = tensor.scatter %n into %b[%i] scatter_dims([0]) unique : "
    text += "(tensor<3x1x6xf16>, tensor<5x6xf16>, tensor<3x1xindex>) -> tensor<5x6xf16>\n"
    want = base.copy()
    want[index[:, 0]] = new[:, 0]
    np.testing.assert_array_equal(run(text, base, new, index, out=np.zeros((5, 6), F16)), want)
    index[1] = 4
    with pytest.raises(DuplicateTarget, match=r"'tensor.scatter' op writes coordinates \[4\] twice"):
        run(text, base, new, index, out=np.zeros((5, 6), F16))


def test_gather_on_each_tile():
    """The coordinates differ between tiles; a tile that does not come by is not checked."""
    x, index, y = random_f16(6, 3), np.array([[5], [9], [2]], np.int64), np.zeros((3, 3), F16)
    text = "%t = ktdp.get_compute_tile_id : index\n%c1 = arith.constant 1 : index\n%go = arith.cmpi ne, %t, %c1 : index\nscf.if %go {\n"
    text += load("%x", "%arg0", (6, 3)) + load("%i", "%arg1", (3, 1), index=("%t", 0), extents=(1, 1), element="index")
    text += "%y = tensor.gather %x[%i] gather_dims([0]) : (tensor<6x3xf16>, tensor<1x1xindex>) -> tensor<1x3xf16>\n"
    text += store("%y", "%arg2", (3, 3), index=("%t", 0), extents=(1, 3)) + "}\n"
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text, "3"), args=[x, index, y])
    np.testing.assert_array_equal(y, [x[5], np.zeros(3), x[2]])
    with pytest.raises(OutOfBounds, match=r"coordinate 9 in dim 0 of size 6 \(tile 1\)") as caught:
        ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text.replace("ne, %t", "eq, %t"), "3"), args=[x, index, y])
    assert caught.value.tiles == (1,)


NUMBERS = "%c1 = arith.constant 1 : index\n%c2 = arith.constant 2 : index\n%c3 = arith.constant 3 : index\n"


def test_dynamic_slices():
    x, y = random_f16(8, 9), np.zeros((8, 9), F16)
    text = NUMBERS + load("%x", "%arg0", x.shape)
    text += "%s = tensor.extract_slice %x[%c1, 0] [%c3, 4] [%c2, %c2] : tensor<8x9xf16> to tensor<?x4xf16>\n"
    text += "%y = tensor.insert_slice %s into %x[2, %c1] [%c3, 4] [%c1, 2] : tensor<?x4xf16> into tensor<8x9xf16>\n"
    want = x.copy()
    want[2:5, 1:9:2] = x[1:7:2, 0:8:2]
    np.testing.assert_array_equal(run(text, x, out=y), want)
    with pytest.raises(OutOfBounds, match="takes elements 2 to 8 in dim 0 of size 8"):
        run(text.replace("[%c1, 2] :", "[%c3, 2] :"), x, out=y)


def test_padding():
    """By numbers of the program, with a value from data and with one that depends on the place."""
    x = random_f16(3, 4)
    text = NUMBERS + load("%x", "%arg0", x.shape) + "%v = tensor.extract %x[%c1, %c2] : tensor<3x4xf16>\n"
    text += "%p = tensor.pad %x low[%c1, 2] high[0, %c2] {\n^bb0(%i: index, %j: index):\ntensor.yield %v : f16\n} : "
    text += "tensor<3x4xf16> to tensor<?x?xf16>\n%y = tensor.cast %p : tensor<?x?xf16> to tensor<4x8xf16>\n"
    want = np.pad(x, ((1, 0), (2, 2)), constant_values=x[1, 2])
    np.testing.assert_array_equal(run(text, x, out=np.zeros((4, 8), F16)), want)
    text = load("%x", "%arg0", x.shape) + "%y = tensor.pad %x low[0, 0] high[0, 4] {\n^bb0(%i: index, %j: index):\n"
    text += "%k = arith.index_cast %j : index to i32\n%f = arith.sitofp %k : i32 to f16\ntensor.yield %f : f16\n} : "
    text += "tensor<3x4xf16> to tensor<3x8xf16>\n"
    want = np.concatenate([x, np.broadcast_to(np.arange(4, 8), (3, 4)).astype(F16)], 1)
    np.testing.assert_array_equal(run(text, x, out=np.zeros((3, 8), F16)), want)


def test_reshape_to_a_shape_from_data():
    x, shape, y = random_f16(12), np.array([3, 4], np.int64), np.zeros((3, 4), F16)
    text = load("%x", "%arg0", (12,)) + load("%s", "%arg1", (2,), element="index")
    text += "%r = tensor.reshape %x(%s) : (tensor<12xf16>, tensor<2xindex>) -> tensor<?x?xf16>\n"
    text += "%y = tensor.cast %r : tensor<?x?xf16> to tensor<3x4xf16>\n"
    np.testing.assert_array_equal(run(text, x, shape, out=y), x.reshape(3, 4))
    with pytest.raises(KtirError, match=r"gives 12 elements the shape \[5, 4\]"):
        run(text, x, np.array([5, 4], np.int64), out=y)


def test_bitcast_of_a_tensor():
    x = random_f16(5)
    text = load("%x", "%arg0", (5,)) + "%y = tensor.bitcast %x : tensor<5xf16> to tensor<5xi16>\n"
    np.testing.assert_array_equal(run(text, x, out=np.zeros(5, np.int16), element="i16"), x.view(np.int16))


# memref


def test_parts_of_views():
    """reinterpret_cast, expand, collapse, metadata and rank, each seen through a load."""
    x = random_f16(6, 8)
    head = NUMBERS + view("%v", "%arg0", (6, 8), (8, 1))
    body = "%r = memref.reinterpret_cast %v to offset: [%c3], sizes: [4, 2], strides: [%c2, 16] : memref<6x8xf16> to "
    body += "memref<4x2xf16, strided<[?, 16], offset: ?>>\n%z = arith.constant 0 : index\n"
    body += "%e = memref.load %r[%c3, %c1] : memref<4x2xf16, strided<[?, 16], offset: ?>>\n%y = tensor.splat %e : tensor<1xf16>\n"
    assert run(head + body, x, out=np.zeros(1, F16))[0] == x.reshape(-1)[3 + 3 * 2 + 16]
    body = "%g = memref.expand_shape %v [[0, 1], [2]] output_shape [2, 3, 8] : memref<6x8xf16> into memref<2x3x8xf16>\n"
    body += "%k = memref.collapse_shape %g [[0], [1, 2]] : memref<2x3x8xf16> into memref<2x24xf16>\n"
    body += (
        "%n = memref.rank %k : memref<2x24xf16>\n%e = memref.load %k[%c1, %n] : memref<2x24xf16>\n%y = tensor.splat %e : tensor<1xf16>\n"
    )
    assert run(head + body, x, out=np.zeros(1, F16))[0] == x.reshape(2, 24)[1, 2]
    body = "%b, %o, %s:2, %t:2 = memref.extract_strided_metadata %v : memref<6x8xf16> -> memref<f16>, index, index, index, index, index\n"
    body += "%sum = arith.addi %s#0, %t#0 : index\n%i = arith.index_cast %sum : index to i64\n%y = tensor.splat %i : tensor<1xi64>\n"
    assert run(head + body, x, out=np.zeros(1, np.int64), element="i64")[0] == 6 + 8
    padded = view("%v", "%arg0", (4, 8), (12, 1)) + "%k = memref.collapse_shape %v [[0, 1]] : memref<4x8xf16> into memref<32xf16>\n"
    with pytest.raises(KtirError, match=r"'memref.collapse_shape' op collapses dims \[0, 1\], which do not lie next to each other"):
        ktir.execute(kernel(["%arg0"], padded), args=[x])


def test_elements_and_copies():
    """Single elements of global memory and of the scratchpad, and whole views; tiles have their own element."""
    x, y = random_f16(4, 8), np.zeros((4, 8), F16)
    text = "%t = ktdp.get_compute_tile_id : index\n%c0 = arith.constant 0 : index\n%c5 = arith.constant 5 : index\n"
    text += view("%v", "%arg0", (4, 8), (8, 1)) + view("%w", "%arg1", (4, 8), (8, 1)) + view("%l", "%c0", (2, 8), (8, 1), space="ct_local")
    text += "%e = memref.load %v[%t, %c5] : memref<4x8xf16>\nmemref.store %e, %l[%c0, %c0] : memref<2x8xf16>\n"
    text += "%f = memref.load %l[%c0, %c0] : memref<2x8xf16>\n%g = arith.addf %f, %f : f16\n"
    text += "memref.store %g, %w[%t, %c5] : memref<4x8xf16>\n"
    report = ktir.execute(kernel(["%arg0", "%arg1"], text, "4"), args=[x, y]).report
    want = np.zeros_like(y)
    want[:, 5] = x[:, 5] + x[:, 5]
    np.testing.assert_array_equal(y, want)
    assert report.bytes_read == report.bytes_written == {"global": 8, "ct_local": 8}
    copy = (
        view("%v", "%arg0", (4, 8), (8, 1))
        + view("%w", "%arg1", (4, 8), (8, 1))
        + "memref.copy %v, %w : memref<4x8xf16> to memref<4x8xf16>\n"
    )
    ktir.execute(kernel(["%arg0", "%arg1"], copy), args=[x, y])
    np.testing.assert_array_equal(y, x)
    beyond = view("%v", "%arg0", (4, 8), (8, 1)) + "%c = arith.constant 4 : index\n%e = memref.load %v[%c, %c] : memref<4x8xf16>\n"
    with pytest.raises(OutOfBounds):
        ktir.execute(kernel(["%arg0"], beyond), args=[x])


# affine index computations


def test_affine_indices():
    x = np.arange(64).astype(F16)
    text = NUMBERS + "%a = affine.apply affine_map<(d0)[s0] -> (d0 * 4 + s0 floordiv 2)>(%c3)[%c2]\n"
    text += "%m = affine.min affine_map<(d0) -> (d0 + 5, 7)>(%a)\n%n = affine.max affine_map<(d0) -> (d0, 2)>(%m)\n"
    text += "%d:2 = affine.delinearize_index %a into (4, 5) : index, index\n"
    text += "%l = affine.linearize_index [%d#0, %d#1] by (4, 5) : index\n%s = arith.addi %l, %n : index\n"
    text += view("%v", "%arg0", (64,), (1,)) + "%e = memref.load %v[%s] : memref<64xf16>\n%y = tensor.splat %e : tensor<1xf16>\n"
    assert run(text, x, out=np.zeros(1, F16))[0] == 13 + 7


# Formats


def test_float_formats():
    x = np.array([1.0, -0.0, 6e-8, -6e-5, 6.2e-5, np.inf, np.nan, 65504], F16)
    text = load("%x", "%arg0", (8,)) + f"%y = arith.flush_denormals %x : {tensor((8,))}\n"
    want = x.copy()
    want[[2, 3]] = 0.0, -0.0
    got = run(text, x, out=np.zeros(8, F16))
    np.testing.assert_array_equal(got, want)
    assert np.signbit(got[3])
    text = load("%x", "%arg0", (8,)) + f"%y = arith.convertf %x : {tensor((8,))} to {tensor((8,), 'bf16')}\n"
    bits = run(text, x, out=np.zeros(8, np.uint16), element="bf16")
    wide = (bits.astype(np.uint32) << 16).view(F32)
    np.testing.assert_allclose(wide, x.astype(F32), rtol=2**-8)


def test_scaled_formats():
    x, scale = np.array([1.5, -3.0, 448.0, 0.0], F32), np.array([5.0, 0.3, 1.0, 2.0], F32)
    t, s = tensor((4,), "f32"), tensor((4,), "f8E4M3FN")
    text = load("%x", "%arg0", (4,), element="f32") + load("%s", "%arg1", (4,), element="f32")
    text += f"%q = arith.scaling_truncf %x, %s : {t}, {t} to {s}\n%y = arith.scaling_extf %q, %s : {s}, {t} to {t}\n"
    power = 2.0 ** np.floor(np.log2(scale))
    np.testing.assert_array_equal(run(text, x, scale, out=np.zeros(4, F32), element="f32"), x)  # exact for these
    assert (power == [4, 0.25, 1, 2]).all()


def test_clamps_and_pairs():
    x = np.array([-3, -1, 0, 0.5, 2, np.nan], F32)
    t = tensor((6,), "f32")
    text = load("%x", "%arg0", (6,), element="f32") + f"%lo = arith.constant dense<-1.0> : {t}\n%hi = arith.constant dense<1.0> : {t}\n"
    clamp = text + f"%y = math.clampf %x to [%lo, %hi] : {t}\n"
    np.testing.assert_array_equal(run(clamp, x, out=np.zeros(6, F32), element="f32"), np.clip(x, -1, 1))
    pair = text + f"%s, %c = math.sincos %x : {t}\n%y = arith.subf %s, %c : {t}\n"
    np.testing.assert_allclose(run(pair, x, out=np.zeros(6, F32), element="f32"), np.sin(x) - np.cos(x), rtol=1e-5, atol=1e-6)


def test_integer_powers():
    base = np.array([2, -3, 0, 1, -1, -1, 5, 2], np.int8)
    power = np.array([7, 3, 0, -4, -3, -4, -1, 8], np.int8)
    t = tensor((8,), "i8")
    text = load("%a", "%arg0", (8,), element="i8") + load("%b", "%arg1", (8,), element="i8") + f"%y = math.ipowi %a, %b : {t}\n"
    got = run(text, base, power, out=np.zeros(8, np.int8), element="i8")
    np.testing.assert_array_equal(got, [-128, -27, 1, 1, -1, 1, 0, 0])
    power[2] = -1
    with pytest.raises(DivisionByZero, match=r"'math.ipowi' op raises 0 to a negative power at element \[2\]"):
        run(text, base, power, out=np.zeros(8, np.int8), element="i8")


def test_functions_return_values():
    """A helper without a grid gives numbers and tensors to its caller."""
    text = (
        "func.func @twice(%a: index, %x: tensor<4xf16>) -> (index, tensor<4xf16>) {\n%b = arith.addi %a, %a : index\n"
        "%y = arith.addf %x, %x : tensor<4xf16>\nreturn %b, %y : index, tensor<4xf16>\n}\n"
    )
    body = "%c2 = arith.constant 2 : index\n" + load("%x", "%arg0", (4,))
    body += "%n, %z = func.call @twice(%c2, %x) : (index, tensor<4xf16>) -> (index, tensor<4xf16>)\n"
    body += store("%z", "%arg1", (8,), index=("%n",), extents=(4,))
    x, y = random_f16(4), np.zeros(8, F16)
    ktir.execute(text + kernel(["%arg0", "%arg1"], body).replace("module {", "").rstrip().removesuffix("}"), "kernel", args=[x, y])
    np.testing.assert_array_equal(y, np.concatenate([np.zeros(4), x + x]))
