"""linalg ops that are brought to `linalg.generic` or to several ops: convolutions, poolings, contractions, softmax, packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_texts import kernel, load, random_f16, store, tensor

import ktir

RNG = np.random.default_rng(0)


def whole(*shape: int) -> np.ndarray:
    """Whole numbers: sums are exact in any order."""
    return RNG.integers(-4, 5, shape).astype(np.float32)


def run(op: str, ins: list[np.ndarray], out: np.ndarray, attributes: str = "", dtype: str = "f32") -> np.ndarray:
    names = [f"%x{i}" for i in range(len(ins))]
    text = "".join(load(n, f"%arg{i}", x.shape, element=dtype) for i, (n, x) in enumerate(zip(names, ins, strict=True)))
    text += load("%o", f"%arg{len(ins)}", out.shape, element=dtype)
    types = ", ".join(tensor(x.shape, dtype) for x in ins)
    o = tensor(out.shape, dtype)
    text += f"%y = linalg.{op} {attributes} ins({', '.join(names)} : {types}) outs(%o : {o}) -> {o}\n"
    y = out.copy()
    arguments = [f"%arg{i}" for i in range(len(ins) + 1)]
    ktir.execute(kernel(arguments, text + store("%y", arguments[-1], out.shape, element=dtype)), args=[*ins, y])
    return y


def windows(x: np.ndarray, axes: list[int], sizes: list[int], stride: int, dilation: int) -> np.ndarray:
    """The elements under a window at each place: the window's dims come last."""
    for k, (axis, n) in enumerate(zip(axes, sizes, strict=True)):
        places = (x.shape[axis] - (n - 1) * dilation - 1) // stride + 1
        index = np.arange(places)[:, None] * stride + np.arange(n) * dilation
        x = np.moveaxis(np.take(x, index, axis), axis + 1, -1)
        assert x.ndim > k
    return x


LAYOUTS = {
    # name: (image dims, filter dims, result dims)
    "conv_1d": ("w", "x", "w"),
    "conv_2d": ("hw", "xy", "hw"),
    "conv_3d": ("dhw", "xyz", "dhw"),
    "conv_1d_nwc_wcf": ("nwc", "xcf", "nwf"),
    "conv_1d_ncw_fcw": ("ncw", "fcx", "nfw"),
    "conv_2d_nhwc_hwcf": ("nhwc", "xycf", "nhwf"),
    "conv_2d_nhwc_fhwc": ("nhwc", "fxyc", "nhwf"),
    "conv_2d_nchw_fchw": ("nchw", "fcxy", "nfhw"),
    "conv_2d_ngchw_fgchw": ("ngchw", "fgcxy", "ngfhw"),
    "conv_2d_ngchw_gfchw": ("ngchw", "gfcxy", "ngfhw"),
    "conv_2d_nhwgc_gfhwc": ("nhwgc", "gfxyc", "nhwgf"),
    "conv_3d_ndhwc_dhwcf": ("ndhwc", "xyzcf", "ndhwf"),
    "conv_3d_ncdhw_fcdhw": ("ncdhw", "fcxyz", "nfdhw"),
    "depthwise_conv_1d_nwc_wc": ("nwc", "xc", "nwc"),
    "depthwise_conv_1d_ncw_cw": ("ncw", "cx", "ncw"),
    "depthwise_conv_1d_nwc_wcm": ("nwc", "xcm", "nwcm"),
    "depthwise_conv_2d_nhwc_hwc": ("nhwc", "xyc", "nhwc"),
    "depthwise_conv_2d_nchw_chw": ("nchw", "cxy", "nchw"),
    "depthwise_conv_2d_nhwc_hwcm": ("nhwc", "xycm", "nhwcm"),
    "depthwise_conv_3d_ndhwc_dhwc": ("ndhwc", "xyzc", "ndhwc"),
    "depthwise_conv_3d_ncdhw_cdhw": ("ncdhw", "cxyz", "ncdhw"),
    "depthwise_conv_3d_ndhwc_dhwcm": ("ndhwc", "xyzcm", "ndhwcm"),
}
EXTENT = {"n": 2, "c": 3, "f": 4, "g": 2, "m": 2, "d": 6, "h": 7, "w": 8, "x": 2, "y": 3, "z": 2}


PLAIN = ("conv_1d", "conv_2d", "conv_3d")
"""They have neither strides nor dilations."""
STEPS = [(op, stride, dilation) for op in sorted(LAYOUTS) for stride, dilation in ((1, 1), (2, 1), (1, 2)) if op not in PLAIN]


@pytest.mark.parametrize(("op", "stride", "dilation"), [*STEPS, *((op, 1, 1) for op in PLAIN)])
def test_convolutions(op, stride, dilation):
    image, filter_, result = LAYOUTS[op]
    spatial, window = [c for c in image if c in "dhw"], [c for c in filter_ if c in "xyz"]
    x, f = whole(*(EXTENT[c] for c in image)), whole(*(EXTENT[c] for c in filter_))
    under = windows(x, [image.index(c) for c in spatial], [EXTENT[c] for c in window], stride, dilation)
    want = np.einsum(f"{image}{''.join(window)},{filter_}->{result}", under, f)
    rank = len(spatial)
    steps = f"{{strides = dense<{stride}> : tensor<{rank}xi64>, dilations = dense<{dilation}> : tensor<{rank}xi64>}}"
    attributes = "" if op in PLAIN else steps
    start = whole(*want.shape)
    np.testing.assert_array_equal(run(op, [x, f], start, attributes), start + want)


POOLINGS = [
    *((f"pooling_{layout}_{kind}", layout, kind) for layout in ("nwc", "nhwc", "ndhwc") for kind in ("sum", "max", "min")),
    *((f"pooling_{layout}_{kind}", layout, kind) for layout in ("ncw", "nchw") for kind in ("sum", "max")),
]


@pytest.mark.parametrize(("op", "layout", "kind"), POOLINGS)
def test_poolings(op, layout, kind):
    spatial = [c for c in layout if c in "dhw"]
    x, window = whole(*(EXTENT[c] for c in layout)), np.zeros((2, 3, 2)[: len(spatial)], np.float32)
    under = windows(x, [layout.index(c) for c in spatial], list(window.shape), 2, 1)
    want = getattr(np, kind)(under, tuple(range(-len(spatial), 0)))
    start = np.zeros_like(want)
    combine: Any = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind]
    attributes = f"{{strides = dense<2> : tensor<{len(spatial)}xi64>, dilations = dense<1> : tensor<{len(spatial)}xi64>}}"
    np.testing.assert_array_equal(run(op, [x, window], start, attributes), combine(start, want))


@pytest.mark.parametrize("layout", ["nwc", "nhwc"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_unsigned_poolings(layout, kind):
    rank = len(layout) - 2
    x = RNG.integers(-9, 9, [EXTENT[c] for c in layout]).astype(np.int8)
    window = np.zeros((2, 2)[:rank], np.int8)
    under = windows(x.view(np.uint8), list(range(1, 1 + rank)), list(window.shape), 1, 1)
    want = getattr(np, kind)(under, tuple(range(-rank, 0)))
    start = np.full_like(want, 0 if kind == "max" else 255).view(np.int8)
    attributes = f"{{strides = dense<1> : tensor<{rank}xi64>, dilations = dense<1> : tensor<{rank}xi64>}}"
    y = run(f"pooling_{layout}_{kind}_unsigned", [x, window], start, attributes, "i8")
    np.testing.assert_array_equal(y.view(np.uint8), want)


def quantized(op: str, a: np.ndarray, b: np.ndarray, shape: tuple[int, ...], attributes: str = "") -> np.ndarray:
    """i8 operands with zero points 2 and -1, i32 result."""
    y = np.zeros(shape, np.int32)
    text = load("%a", "%arg0", a.shape, element="i8") + load("%b", "%arg1", b.shape, element="i8")
    text += "%za = arith.constant 2 : i32\n%zb = arith.constant -1 : i32\n" + load("%o", "%arg2", shape, element="i32")
    o = tensor(shape, "i32")
    text += f"%y = linalg.{op} {attributes} ins(%a, %b, %za, %zb : {tensor(a.shape, 'i8')}, {tensor(b.shape, 'i8')}, i32, i32) "
    text += f"outs(%o : {o}) -> {o}\n" + store("%y", "%arg2", shape, element="i32")
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text), args=[a, b, y])
    return y


def test_quantized_products():
    a, b = RNG.integers(-128, 128, (3, 4, 5)).astype(np.int8), RNG.integers(-128, 128, (3, 5, 6)).astype(np.int8)
    wide = (a.astype(int) - 2) @ (b.astype(int) + 1)
    np.testing.assert_array_equal(quantized("quantized_batch_matmul", a, b, (3, 4, 6)), wide)
    np.testing.assert_array_equal(quantized("quantized_matmul", a[0], b[0], (4, 6)), wide[0])


@pytest.mark.parametrize("op", [k for k in LAYOUTS if f"{k}_q" in (
    "conv_2d_nhwc_hwcf_q", "conv_2d_nhwc_fhwc_q", "conv_2d_nchw_fchw_q", "conv_2d_ngchw_gfchw_q", "conv_2d_nhwgc_gfhwc_q",
    "conv_3d_ndhwc_dhwcf_q", "depthwise_conv_2d_nhwc_hwc_q", "depthwise_conv_2d_nhwc_hwcm_q",
)])  # fmt: skip
def test_quantized_convolutions(op):
    image, filter_, result = LAYOUTS[op]
    spatial, window = [c for c in image if c in "dhw"], [c for c in filter_ if c in "xyz"]
    x, f = (RNG.integers(-128, 128, [EXTENT[c] for c in dims]).astype(np.int8) for dims in (image, filter_))
    under = windows(x.astype(int) - 2, [image.index(c) for c in spatial], [EXTENT[c] for c in window], 1, 1)
    want = np.einsum(f"{image}{''.join(window)},{filter_}->{result}", under, f.astype(int) + 1)
    rank = len(spatial)
    attributes = f"{{strides = dense<1> : tensor<{rank}xi64>, dilations = dense<1> : tensor<{rank}xi64>}}"
    np.testing.assert_array_equal(quantized(f"{op}_q", x, f, want.shape, attributes), want)


def test_contractions():
    a, b = whole(4, 7), whole(5, 7)
    maps = "indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"
    np.testing.assert_array_equal(run("contract", [a, b], np.zeros((4, 5), np.float32), maps), a @ b.T)
    x, y = whole(2, 2, 3, 4, 5), whole(2, 6, 3, 7, 5)
    want = np.einsum("bmkij,bnkpj->bmnip", x, y)
    np.testing.assert_array_equal(run("batch_mmt4d", [x, y], np.zeros(want.shape, np.float32)), want)


def test_elementwise():
    a, b = random_f16(4, 5), random_f16(5, 4)
    maps = "indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>]"
    y = run("elementwise", [a, b], np.zeros((4, 5), np.float16), f"kind=#linalg.elementwise_kind<sub> {maps}", "f16")
    np.testing.assert_array_equal(y, a - b.T)


def test_fill_rng_2d():
    """The generator that MLIR's `linalg.fill_rng_2d` defines, in 32-bit arithmetic."""
    text = "%lo = arith.constant -10.0 : f64\n%hi = arith.constant 10.0 : f64\n%seed = arith.constant 42 : i32\n"
    text += load("%o", "%arg0", (3, 4), element="f32")
    text += "%y = linalg.fill_rng_2d ins(%lo, %hi, %seed : f64, f64, i32) outs(%o : tensor<3x4xf32>) -> tensor<3x4xf32>\n"
    y = np.zeros((3, 4), np.float32)
    ktir.execute(kernel(["%arg0"], text + store("%y", "%arg0", (3, 4), element="f32")), args=[y])

    def step(x: int) -> int:
        return (x * 1103515245 + 12345) & 0xFFFFFFFF

    for i in range(3):
        for j in range(4):
            x = step((step((42 + i) & 0xFFFFFFFF) + j) & 0xFFFFFFFF)
            signed = x - (1 << 32) if x >> 31 else x
            want = (signed + 2147483647.0) * (20.0 * 2.3283064e-10) - 10.0
            assert y[i, j] == pytest.approx(want, rel=1e-6)


def test_softmax():
    x = RNG.standard_normal((4, 100)).astype(np.float32)
    y = run("softmax", [x], np.zeros_like(x), "dimension(1)")
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(run("softmax", [x], np.zeros_like(x), "dimension(0)").sum(0), 1, rtol=1e-6)


def test_packing():
    x = whole(13, 15)
    packed, back = np.zeros((2, 2, 8, 8), np.float32), np.zeros_like(x)
    text = load("%x", "%arg0", x.shape, element="f32") + "%z = arith.constant 7.0 : f32\n%e = tensor.empty() : tensor<2x2x8x8xf32>\n"
    text += (
        "%p = linalg.pack %x padding_value(%z : f32) inner_dims_pos = [0, 1] inner_tiles = [8, 8] into %e : "
        "tensor<13x15xf32> -> tensor<2x2x8x8xf32>\n%f = tensor.empty() : tensor<13x15xf32>\n"
        "%u = linalg.unpack %p inner_dims_pos = [0, 1] inner_tiles = [8, 8] into %f : tensor<2x2x8x8xf32> -> tensor<13x15xf32>\n"
    )
    text += store("%p", "%arg1", packed.shape, element="f32") + store("%u", "%arg2", x.shape, element="f32")
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text), args=[x, packed, back])
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(packed, np.pad(x, ((0, 3), (0, 1)), constant_values=7).reshape(2, 8, 2, 8).swapaxes(1, 2))


def test_winograd():
    """F(2x2, 3x3): the three transforms around a batched product are a convolution."""
    x, f = whole(1, 4, 4, 2), whole(3, 3, 3, 2)
    y = np.zeros((1, 2, 2, 3), np.float32)
    f23 = "fmr(F_2_3)"
    text = load("%x", "%arg0", x.shape, element="f32") + load("%f", "%arg1", f.shape, element="f32")
    text += (
        f"%e0 = tensor.empty() : tensor<4x4x2x3xf32>\n%w = linalg.winograd_filter_transform {f23} ins(%f : tensor<3x3x3x2xf32>) "
        "outs(%e0 : tensor<4x4x2x3xf32>) -> tensor<4x4x2x3xf32>\n%e1 = tensor.empty() : tensor<4x4x1x1x1x2xf32>\n"
        f"%i = linalg.winograd_input_transform {f23} ins(%x : tensor<1x4x4x2xf32>) outs(%e1 : tensor<4x4x1x1x1x2xf32>) -> "
        "tensor<4x4x1x1x1x2xf32>\n%ci = tensor.collapse_shape %i [[0, 1], [2, 3, 4], [5]] : tensor<4x4x1x1x1x2xf32> into "
        "tensor<16x1x2xf32>\n%cw = tensor.collapse_shape %w [[0, 1], [2], [3]] : tensor<4x4x2x3xf32> into tensor<16x2x3xf32>\n"
        "%z = arith.constant dense<0.0> : tensor<16x1x3xf32>\n%m = linalg.batch_matmul ins(%ci, %cw : tensor<16x1x2xf32>, "
        "tensor<16x2x3xf32>) outs(%z : tensor<16x1x3xf32>) -> tensor<16x1x3xf32>\n"
        "%em = tensor.expand_shape %m [[0, 1], [2, 3, 4], [5]] output_shape [4, 4, 1, 1, 1, 3] : tensor<16x1x3xf32> into "
        "tensor<4x4x1x1x1x3xf32>\n%o = arith.constant dense<0.0> : tensor<1x2x2x3xf32>\n"
        f"%y = linalg.winograd_output_transform {f23} ins(%em : tensor<4x4x1x1x1x3xf32>) outs(%o : tensor<1x2x2x3xf32>) -> "
        "tensor<1x2x2x3xf32>\n"
    )
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2"], text + store("%y", "%arg2", y.shape, element="f32")), args=[x, f, y])
    want = np.einsum("nhwcxy,fxyc->nhwf", windows(x, [1, 2], [3, 3], 1, 1), f)
    np.testing.assert_allclose(y, want, atol=1e-4)
