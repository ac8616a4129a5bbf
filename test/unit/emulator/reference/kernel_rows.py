"""Kernels whose rows are independent: each tile has its share of them, in blocks; tails are clipped by masked views."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_case import EXP, Kernel, U, per_tile, rounded
from kernel_texts import empty, filled, generic, kernel, load, random_f16, store, tensor

__all__ = ["layer_norm", "rms_norm", "rope", "softmax", "vector_add"]

F16 = np.float16
EPS = 2.0**-17
"""Of the norms: near 1e-5, and exact in f32."""


def _blank(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, F16)


def _reduced(name: str, value: str, start: str, op: str, shape: tuple[int, int]) -> str:
    """Sum or maximum over the columns of an f32 tensor."""
    given, result = tensor(shape, "f32"), tensor(shape[:1], "f32")
    return (
        f"{name} = linalg.reduce ins({value} : {given}) outs({start} : {result}) dimensions = [1]\n"
        f"  (%in: f32, %sofar: f32) {{\n  %r = {op} %in, %sofar : f32\n  linalg.yield %r : f32\n  }}\n"
    )


def _spread(name: str, value: str, like: str, shape: tuple[int, int]) -> str:
    """A number per row, repeated over the columns."""
    given, result = tensor(shape[:1], "f32"), tensor(shape, "f32")
    return f"{name} = linalg.broadcast ins({value} : {given}) outs({like} : {result}) dimensions = [1]\n"


def _row_blocks(block: int, body: str) -> str:
    return f"%step = arith.constant {block} : index\nscf.for %i = %zero to %share step %step {{\n{body}}}\n"


def vector_add(n: int, tiles: int, block: int) -> Kernel:
    """out = x + y in f16."""
    place = {"strides": (1,), "index": ("%i",), "extents": (block,)}
    body = load("%a", "%x_here", ("%rows",), **place) + load("%b", "%y_here", ("%rows",), **place)
    body += f"%c = arith.addf %a, %b : {tensor((block,))}\n" + store("%c", "%out_here", ("%rows",), **place)
    text = per_tile(n, tiles)
    for name in ("x", "y", "out"):
        text += f"%{name}_here = arith.addi %{name}, %first : index\n"
    x, y = random_f16(n), random_f16(n, seed=1)
    want = x.astype(np.float64) + y
    arguments = {"x": x, "y": y, "out": _blank(n)}
    return Kernel(kernel(["%x", "%y", "%out"], text + _row_blocks(block, body), f"{tiles}"), arguments, {"out": (want, rounded(want, 0))})


def _rows_of(names: tuple[str, ...], columns: int) -> str:
    """First elements of this tile's rows in arrays of `columns` columns."""
    text = f"%columns = arith.constant {columns} : index\n%skip = arith.muli %first, %columns : index\n"
    return text + "".join(f"%{name}_here = arith.addi %{name}, %skip : index\n" for name in names)


def softmax(rows: int, columns: int, tiles: int, block: int) -> Kernel:
    """Per row, computed in f32 and rounded once."""
    shape, wide = (block, columns), tensor((block, columns), "f32")
    sizes, place = ("%rows", columns), {"strides": (columns, 1), "index": ("%i", 0), "extents": (block, columns)}
    body = load("%a", "%x_here", sizes, **place) + f"%w = arith.extf %a : {tensor(shape)} to {wide}\n"
    body += filled("%low", "0xFF800000", (block,)) + filled("%none", "0.0", (block,)) + empty("%like", shape, "f32")
    body += _reduced("%m", "%w", "%low", "arith.maximumf", shape) + _spread("%ms", "%m", "%like", shape)
    body += f"%d = arith.subf %w, %ms : {wide}\n%e = math.exp %d : {wide}\n"
    body += _reduced("%s", "%e", "%none", "arith.addf", shape) + _spread("%ss", "%s", "%like", shape)
    body += f"%q = arith.divf %e, %ss : {wide}\n%r = arith.truncf %q : {wide} to {tensor(shape)}\n"
    body += store("%r", "%out_here", sizes, **place)
    text = per_tile(rows, tiles) + _rows_of(("x", "out"), columns) + _row_blocks(block, body)
    x = random_f16(rows, columns, scale=3)
    below = x.astype(np.float64) - x.max(1, keepdims=True)
    e = np.exp(below)
    want = e / e.sum(1, keepdims=True)
    # Each exponential is off by EXP and by the rounding of its argument, the sum also by its additions.
    error = want * (2 * (EXP + U * np.abs(below).max()) + (columns + 2) * U)
    return Kernel(kernel(["%x", "%out"], text, f"{tiles}"), {"x": x, "out": _blank(rows, columns)}, {"out": (want, rounded(want, error))})


def layer_norm(rows: int, columns: int, tiles: int, block: int) -> Kernel:
    """(x - mean) / sqrt(variance + eps) * weight + bias per row; both statistics in f32, of the whole row at once."""
    shape, full, wide, column = (block, columns), tensor((block, columns)), tensor((block, columns), "f32"), tensor((block,), "f32")
    sizes, place = ("%rows", columns), {"strides": (columns, 1), "index": ("%i", 0), "extents": shape}
    body = load("%a", "%x_here", sizes, **place) + f"%w = arith.extf %a : {full} to {wide}\n"
    body += filled("%none", "0.0", (block,)) + filled("%n", f"{columns:e}", (block,)) + empty("%like", shape, "f32")
    body += _reduced("%sum", "%w", "%none", "arith.addf", shape) + f"%mean = arith.divf %sum, %n : {column}\n"
    body += _spread("%means", "%mean", "%like", shape) + f"%c = arith.subf %w, %means : {wide}\n%cc = arith.mulf %c, %c : {wide}\n"
    body += _reduced("%squares", "%cc", "%none", "arith.addf", shape) + f"%variance = arith.divf %squares, %n : {column}\n"
    affine = f"%eps = arith.constant {EPS:e} : f32\n%v = arith.addf %b, %eps : f32\n%s = math.rsqrt %v : f32\n"
    affine += "%y = arith.mulf %a, %s : f32\n%wf = arith.extf %c : f16 to f32\n%bf = arith.extf %d : f16 to f32\n"
    affine += "%z = arith.mulf %y, %wf : f32\n%q = arith.addf %z, %bf : f32\n%r = arith.truncf %q : f32 to f16\nlinalg.yield %r : f16"
    inputs = [("%c", wide, "d0, d1"), ("%variance", column, "d0"), ("%g", tensor((columns,)), "d1"), ("%h", tensor((columns,)), "d1")]
    body += empty("%to", shape) + generic("%y", inputs, ("%to", full, "d0, d1"), "pp", affine) + store("%y", "%out_here", sizes, **place)
    text = per_tile(rows, tiles) + _rows_of(("x", "out"), columns)
    text += load("%g", "%weight", (columns,)) + load("%h", "%bias", (columns,)) + _row_blocks(block, body)
    x, g, h = random_f16(rows, columns), random_f16(columns, seed=1), random_f16(columns, seed=2)
    wide_x = x.astype(np.float64)
    mean = wide_x.mean(1, keepdims=True)
    centred, off = wide_x - mean, (columns + 1) * U * np.abs(wide_x).mean(1, keepdims=True)
    variance = (centred**2).mean(1, keepdims=True) + EPS
    scale = g / np.sqrt(variance)
    want = centred * scale + h
    # `off` moves every centred value, and the variance by its square and by what does not cancel of its sum.
    part = (columns + 8) * U + (off**2 + 2 * U * (np.abs(centred) * (np.abs(wide_x) + np.abs(mean))).mean(1, keepdims=True)) / variance
    error = (off + 2 * U * np.abs(centred)) * np.abs(scale) + np.abs(centred * scale) * (part / 2 + 5 * U) + 2 * U * np.abs(want)
    arguments = {"x": x, "weight": g, "bias": h, "out": _blank(rows, columns)}
    text = kernel(["%x", "%weight", "%bias", "%out"], text, f"{tiles}")
    return Kernel(text, arguments, {"out": (want, rounded(want, error))})


def rms_norm(rows: int, columns: int, tiles: int, block: int) -> Kernel:
    """x / sqrt(mean of squares + eps) * weight: row by row, twice over its columns in blocks; the squares are summed lane by lane."""
    line, wide, one = tensor((1, block)), tensor((1, block), "f32"), tensor((1,), "f32")
    place = {"strides": (columns, 1), "index": ("%i", "%j"), "extents": (1, block)}
    body = f"%start = arith.constant dense<0.0> : {wide}\n"
    body += f"%squares = scf.for %j = %zero to %columns step %step iter_args(%sofar = %start) -> ({wide}) {{\n"
    body += load("%a", "%x_here", ("%rows", "%columns"), **place) + f"%w = arith.extf %a : {line} to {wide}\n"
    body += f"%ww = arith.mulf %w, %w : {wide}\n%sum = arith.addf %sofar, %ww : {wide}\nscf.yield %sum : {wide}\n}}\n"
    body += filled("%none", "0.0", (1,)) + _reduced("%all", "%squares", "%none", "arith.addf", (1, block))
    body += f"%one_sum = tensor.extract %all[%zero] : {one}\n%n = arith.constant {columns:e} : f32\n%eps = arith.constant {EPS:e} : f32\n"
    body += "%mean = arith.divf %one_sum, %n : f32\n%v = arith.addf %mean, %eps : f32\n%s = math.rsqrt %v : f32\n"
    body += f"%ss = tensor.splat %s : {wide}\nscf.for %j = %zero to %columns step %step {{\n"
    body += load("%b", "%x_here", ("%rows", "%columns"), **place) + load("%g", "%weight", (1, "%columns"), **{**place, "index": (0, "%j")})
    body += f"%bw = arith.extf %b : {line} to {wide}\n%gw = arith.extf %g : {line} to {wide}\n%bs = arith.mulf %bw, %ss : {wide}\n"
    body += f"%y = arith.mulf %bs, %gw : {wide}\n%r = arith.truncf %y : {wide} to {line}\n"
    body += store("%r", "%out_here", ("%rows", "%columns"), **place) + "}\n"
    text = per_tile(rows, tiles) + _rows_of(("x", "out"), columns) + f"%step = arith.constant {block} : index\n"
    text += f"scf.for %i = %zero to %rows step %one {{\n{body}}}\n"
    x, g = random_f16(rows, columns), random_f16(columns, seed=1)
    wide_x = x.astype(np.float64)
    want = wide_x / np.sqrt((wide_x**2).mean(1, keepdims=True) + EPS) * g
    error = np.abs(want) * ((columns + block + 4) / 2 + 5) * U
    arguments = {"x": x, "weight": g, "out": _blank(rows, columns)}
    return Kernel(kernel(["%x", "%weight", "%out"], text, f"{tiles}"), arguments, {"out": (want, rounded(want, error))})


def rope(heads: int, positions: int, half: int, tiles: int) -> Kernel:
    """Rotary embedding in halves: of x [heads, positions, 2 * half], pairs (i, i + half) turn by the angle of the position."""
    width, part = 2 * half, f"tensor<1x{-(-positions // tiles)}x{half}x"
    share = -(-positions // tiles)
    sizes = (heads, "%rows", width)
    place: dict[str, Any] = {"strides": (positions * width, width, 1), "extents": (1, share, half)}
    text = per_tile(positions, tiles) + f"%heads = arith.constant {heads} : index\n"
    for name, columns in (("x", width), ("out", width), ("cos", half), ("sin", half)):
        text += f"%{name}_width = arith.constant {columns} : index\n%{name}_skip = arith.muli %first, %{name}_width : index\n"
        text += f"%{name}_here = arith.addi %{name}, %{name}_skip : index\n"
    for name in ("cos", "sin"):
        text += load(f"%{name}_t", f"%{name}_here", (1, "%rows", half), strides=(half, half, 1), extents=(1, share, half))
        text += f"%{name}_w = arith.extf %{name}_t : {part}f16> to {part}f32>\n"
    body = ""
    for k in (0, 1):
        body += load(f"%x{k}", "%x_here", sizes, index=("%h", 0, k * half), **place)
        body += f"%w{k} = arith.extf %x{k} : {part}f16> to {part}f32>\n"
        body += f"%c{k} = arith.mulf %w{k}, %cos_w : {part}f32>\n%s{k} = arith.mulf %w{k}, %sin_w : {part}f32>\n"
    for k, expression in enumerate(("arith.subf %c0, %s1", "arith.addf %s0, %c1")):
        body += f"%y{k} = {expression} : {part}f32>\n%r{k} = arith.truncf %y{k} : {part}f32> to {part}f16>\n"
        body += store(f"%r{k}", "%out_here", sizes, index=("%h", 0, k * half), **place)
    text += f"scf.for %h = %zero to %heads step %one {{\n{body}}}\n"
    x = random_f16(heads, positions, width)
    angle = np.outer(np.arange(positions), 10000.0 ** -(np.arange(half) / half))
    cos, sin = np.cos(angle).astype(F16), np.sin(angle).astype(F16)
    a, b, c, s = (v.astype(np.float64) for v in (x[..., :half], x[..., half:], cos, sin))
    want = np.concatenate([a * c - b * s, a * s + b * c], -1)
    # Products of two f16 are exact in f32; the sum is rounded twice.
    arguments = {"x": x, "cos": cos, "sin": sin, "out": _blank(*x.shape)}
    text = kernel(["%x", "%cos", "%sin", "%out"], text, f"{tiles}")
    return Kernel(text, arguments, {"out": (want, rounded(want, U * np.abs(want)))})
