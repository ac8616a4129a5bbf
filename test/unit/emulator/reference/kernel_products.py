"""Kernels around matrix products."""

from __future__ import annotations

import numpy as np
from kernel_case import EXP, Kernel, U, per_tile, rounded
from kernel_texts import filled, function, kernel, load, module, random_f16, store, tensor

__all__ = ["matmul", "split_k", "swiglu"]

F16 = np.float16


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def _product(a: str, b: str, into: str, m: int, k: int, n: int) -> str:
    result = tensor((m, n), "f32")
    return f"linalg.matmul ins({a}, {b} : {tensor((m, k))}, {tensor((k, n))}) outs({into} : {result}) -> {result}\n"


def matmul(m: int, k: int, n: int, grid: tuple[int, int], block: int) -> Kernel:
    """c = a b on a grid of two dims: a tile has a share of rows and one of columns; K in blocks, the last one clipped."""
    rows, columns = -(-m // grid[0]), -(-n // grid[1])
    result = tensor((rows, columns), "f32")
    text = "%ti, %tj = ktdp.get_compute_tile_id : index, index\n%zero = arith.constant 0 : index\n"
    for name, tile, total, share in (("rows", "%ti", m, rows), ("columns", "%tj", n, columns)):
        text += f"%{name}_all = arith.constant {total} : index\n%{name}_share = arith.constant {share} : index\n"
        text += f"%{name}_first = arith.muli {tile}, %{name}_share : index\n"
        text += f"%{name}_left = arith.subi %{name}_all, %{name}_first : index\n"
        text += f"%{name}_some = arith.maxsi %{name}_left, %zero : index\n%{name} = arith.minsi %{name}_some, %{name}_share : index\n"
    text += f"%depth = arith.constant {k} : index\n%step = arith.constant {block} : index\n"
    text += "%skip_a = arith.muli %rows_first, %depth : index\n%skip_c = arith.muli %rows_first, %columns_all : index\n"
    text += "%a_here = arith.addi %a, %skip_a : index\n%b_here = arith.addi %b, %columns_first : index\n"
    text += "%c_row = arith.addi %c, %skip_c : index\n%c_here = arith.addi %c_row, %columns_first : index\n"
    text += filled("%start", "0.0", (rows, columns))
    text += f"%sum = scf.for %i = %zero to %depth step %step iter_args(%sofar = %start) -> ({result}) {{\n"
    text += load("%left", "%a_here", ("%rows", "%depth"), strides=(k, 1), index=(0, "%i"), extents=(rows, block))
    text += load("%right", "%b_here", ("%depth", "%columns"), strides=(n, 1), index=("%i", 0), extents=(block, columns))
    text += "%next = " + _product("%left", "%right", "%sofar", rows, block, columns)
    text += f"scf.yield %next : {result}\n}}\n%half = arith.truncf %sum : {result} to {tensor((rows, columns))}\n"
    text += store("%half", "%c_here", ("%rows", "%columns"), strides=(n, 1), extents=(rows, columns))
    a, b = random_f16(m, k), random_f16(k, n, seed=1)
    want = _wide(a) @ _wide(b)
    error = (k + -(-k // block) + 1) * U * (np.abs(_wide(a)) @ np.abs(_wide(b)))
    arguments = {"a": a, "b": b, "c": np.full((m, n), np.nan, F16)}
    text = kernel(["%a", "%b", "%c"], text, f"{grid[0]}, {grid[1]}")
    return Kernel(text, arguments, {"c": (want, rounded(want, error))})


def split_k(m: int, k: int, n: int, groups: int, parts: int) -> Kernel:
    """c = a b; a group of `parts` tiles shares columns of b, each has a part of K, and the partial products meet on its first tile."""
    columns, depth = -(-n // groups), -(-k // parts)
    role = tensor((m, columns), "f32")
    future = f"<({role}), groups = affine_set<(g) : (g >= 0, -g + {groups - 1} >= 0)>>"
    members = f"affine_set<(i)[g] : (i - {parts} * g >= 0, -i + {parts} * g + {parts - 1} >= 0)>"
    text = "%g, %p = ktdp.get_compute_tile_id : index, index\n%zero = arith.constant 0 : index\n"
    for name, tile, total, share in (("columns", "%g", n, columns), ("depth", "%p", k, depth)):
        text += f"%{name}_all = arith.constant {total} : index\n%{name}_share = arith.constant {share} : index\n"
        text += f"%{name}_first = arith.muli {tile}, %{name}_share : index\n"
        text += f"%{name}_left = arith.subi %{name}_all, %{name}_first : index\n"
        text += f"%{name}_some = arith.maxsi %{name}_left, %zero : index\n%{name} = arith.minsi %{name}_some, %{name}_share : index\n"
    text += "%a_here = arith.addi %a, %depth_first : index\n%skip_b = arith.muli %depth_first, %columns_all : index\n"
    text += "%b_row = arith.addi %b, %skip_b : index\n%b_here = arith.addi %b_row, %columns_first : index\n"
    text += "%c_here = arith.addi %c, %columns_first : index\n"
    text += load("%left", "%a_here", (m, "%depth"), strides=(k, 1), extents=(m, depth))
    text += load("%right", "%b_here", ("%depth", "%columns"), strides=(n, 1), extents=(depth, columns))
    text += filled("%none", "0.0", (m, columns)) + "%partial = " + _product("%left", "%right", "%none", m, depth, columns)
    text += f"%sent = ktdp.inter_tile_produce producer_tiles_per_group = {members} -> {future} {{\n^bb0(%group: index):\n"
    text += f"ktdp.yield_partial %partial : {role}\n}}\n"
    text += f"%sum = ktdp.inter_tile_reduce(%sent) consumer_tiles_per_group = affine_set<(i)[g] : (i - {parts} * g == 0)>, "
    text += f"identity(%none : {role}) : {future} -> {role} {{\n^bb0(%x: {role}, %y: {role}):\n"
    text += f"%z = arith.addf %x, %y : {role}\nktdp.yield_reduced %z : {role}\n}}\n%writes = arith.cmpi eq, %p, %zero : index\n"
    text += f"scf.if %writes {{\n%half = arith.truncf %sum : {role} to {tensor((m, columns))}\n"
    text += store("%half", "%c_here", (m, "%columns"), strides=(n, 1), extents=(m, columns)) + "}\n"
    a, b = random_f16(m, k), random_f16(k, n, seed=1)
    want = _wide(a) @ _wide(b)
    error = (k + parts + 1) * U * (np.abs(_wide(a)) @ np.abs(_wide(b)))
    arguments = {"a": a, "b": b, "c": np.full((m, n), np.nan, F16)}
    return Kernel(kernel(["%a", "%b", "%c"], text, f"{groups}, {parts}"), arguments, {"c": (want, rounded(want, error))})


def swiglu(m: int, width: int, hidden: int, tiles: int) -> Kernel:
    """A program of two kernels: h = silu(x gate) * (x up), columns of the hidden layer divided; then y = h down, columns of y divided."""

    def columns(total: int) -> str:
        return per_tile(total, tiles, "columns")

    share = -(-hidden // tiles)
    wide = tensor((m, share), "f32")
    first = columns(hidden) + load("%in", "%x", (m, width)) + filled("%none", "0.0", (m, share))
    for name in ("gate", "up"):
        first += f"%{name}_here = arith.addi %{name}, %first : index\n"
        first += load(f"%{name}_part", f"%{name}_here", (width, "%columns"), strides=(hidden, 1), extents=(width, share))
        first += f"%{name}_sum = " + _product("%in", f"%{name}_part", "%none", m, width, share)
    first += f"%minus = arith.negf %gate_sum : {wide}\n%e = math.exp %minus : {wide}\n%ones = arith.constant dense<1.0> : {wide}\n"
    first += f"%below = arith.addf %ones, %e : {wide}\n%silu = arith.divf %gate_sum, %below : {wide}\n"
    first += f"%both = arith.mulf %silu, %up_sum : {wide}\n%half = arith.truncf %both : {wide} to {tensor((m, share))}\n"
    first += "%h_here = arith.addi %h, %first : index\n"
    first += store("%half", "%h_here", (m, "%columns"), strides=(hidden, 1), extents=(m, share))

    part = -(-width // tiles)
    second = columns(width) + load("%in", "%h", (m, hidden)) + filled("%none", "0.0", (m, part))
    second += "%down_here = arith.addi %down, %first : index\n%y_here = arith.addi %y, %first : index\n"
    second += load("%down_part", "%down_here", (hidden, "%columns"), strides=(width, 1), extents=(hidden, part))
    second += "%sum = " + _product("%in", "%down_part", "%none", m, hidden, part)
    second += f"%half = arith.truncf %sum : {tensor((m, part), 'f32')} to {tensor((m, part))}\n"
    second += store("%half", "%y_here", (m, "%columns"), strides=(width, 1), extents=(m, part))

    grid = f"attributes {{grid = [{tiles}]}}"
    calls = "func.call @hidden(%x, %gate, %up, %h) : (index, index, index, index) -> ()\n"
    calls += "func.call @down(%h, %down, %y) : (index, index, index) -> ()\n"
    text = module(
        function("hidden", ["%x", "%gate", "%up", "%h"], first, grid),
        function("down", ["%h", "%down", "%y"], second, grid),
        function("swiglu", ["%x", "%gate", "%up", "%down", "%h", "%y"], calls),
    )
    x, gate, up = random_f16(m, width), random_f16(width, hidden, seed=1, scale=0.3), random_f16(width, hidden, seed=2, scale=0.3)
    down = random_f16(hidden, width, seed=3, scale=0.3)
    size = np.abs(_wide(x))
    g, u = _wide(x) @ _wide(gate), _wide(x) @ _wide(up)
    off_g, off_u = ((width + 1) * U * (size @ np.abs(_wide(w))) for w in (gate, up))
    silu = g / (1 + np.exp(-g))
    off = 1.1 * off_g + np.abs(silu) * (EXP + 3 * U)  # the slope of silu is below 1.1
    h = silu * u
    bound = rounded(h, off * (np.abs(u) + off_u) + np.abs(silu) * off_u + U * np.abs(h))
    y = h @ _wide(down)
    error = bound @ np.abs(_wide(down)) + (hidden + 1) * U * ((np.abs(h) + bound) @ np.abs(_wide(down)))
    arguments = {"x": x, "gate": gate, "up": up, "down": down}
    arguments |= {"h": np.full((m, hidden), np.nan, F16), "y": np.full((m, width), np.nan, F16)}
    return Kernel(text, arguments, {"h": (h, bound), "y": (y, rounded(y, error))})
