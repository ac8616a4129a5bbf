"""Kernels as hand-written and compiled KTIR has them, each with the same computation in plain NumPy.

Sizes are free; every generator returns a `Case`. The NumPy side reads and writes the same f16 arrays as the kernel, computes in f32 on
work arrays that were made beforehand (`out=`), and rounds to f16 once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import kernel_texts as k
import numpy as np
from numpy.typing import NDArray

from ktir.emulator.policy import Policy

__all__ = [
    "Case",
    "embedding",
    "gather",
    "layer_norm",
    "layer_norm_rows",
    "matmul_blocks",
    "norm_plain",
    "paged_attention",
    "rms_norm",
    "rms_plain",
    "rope",
    "rope_plain",
    "scatter",
    "softmax_plain",
    "softmax_rows",
    "softmax_tiles",
]

F16, F32 = np.float16, np.float32


@dataclass
class Case:
    """A program, its arguments, and `plain`: the same in NumPy, which returns what argument `result` must hold after a launch."""

    name: str
    text: str
    arguments: list[Any]
    plain: Callable[[], NDArray[Any]]
    result: int
    tolerance: float = 0.02
    policy: Policy = field(default_factory=Policy)


def _numbers(**values: int) -> str:
    return "".join(f"%{name} = arith.constant {value} : index\n" for name, value in values.items())


def _constant(name: str, value: float | str, type_: str) -> str:
    return f"{name} = arith.constant {value} : {type_}\n"


def _dense(name: str, value: float | str, shape: Sequence[int], element: str) -> str:
    return f"{name} = arith.constant dense<{value}> : {k.tensor(shape, element)}\n"


def _reduce(name: str, op: str, x: str, shape: Sequence[int], start: str, element: str) -> str:
    """Along the last axis."""
    return (
        f"{name} = linalg.reduce {{ {op} }} ins({x} : {k.tensor(shape, element)}) outs({start} : {k.tensor(shape[:-1], element)}) "
        f"dimensions = [{len(shape) - 1}]\n"
    )


def _spread(name: str, x: str, shape: Sequence[int], element: str = "f16") -> str:
    """A value per row, repeated along the last axis."""
    empty = k.empty(f"{name}_", shape, element)
    return empty + (
        f"{name} = linalg.broadcast ins({x} : {k.tensor(shape[:-1], element)}) outs({name}_ : {k.tensor(shape, element)}) "
        f"dimensions = [{len(shape) - 1}]\n"
    )


def _binary(name: str, op: str, a: str, b: str, shape: Sequence[int], element: str = "f16") -> str:
    return f"{name} = {op} {a}, {b} : {k.tensor(shape, element)}\n"


def _unary(name: str, op: str, a: str, shape: Sequence[int], element: str = "f16") -> str:
    return f"{name} = {op} {a} : {k.tensor(shape, element)}\n"


# Rows


def softmax_plain(x: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    wide, result = np.empty(x.shape, F32), np.empty_like(x)

    def plain() -> NDArray[Any]:
        np.copyto(wide, x)
        np.subtract(wide, wide.max(1, keepdims=True), out=wide)
        np.exp(wide, out=wide)
        np.divide(wide, wide.sum(1, keepdims=True), out=wide)
        np.copyto(result, wide, casting="same_kind")
        return result

    return plain


def softmax_tiles(rows: int, columns: int, tiles: int, block: int) -> Case:
    """As the compiler tiles it: sticks, blocks of rows, sums in f32, masks."""
    x = k.random_f16(rows, columns)
    text = k.softmax_tiled(rows, columns, -(-rows // tiles), block)
    plain = softmax_plain(x)
    return Case(f"softmax {rows}x{columns}, {tiles} tiles", text, [k.pack(x), np.zeros_like(k.pack(x))], lambda: k.pack(plain()), 1)


def softmax_rows(rows: int, columns: int, tiles: int, block: int = 1) -> Case:
    """As written by hand: a loop over rows, every op in f16 on `block` rows."""
    x = k.random_f16(rows, columns)
    full, shape = (rows, columns), (block, columns)
    place: dict[str, Any] = {"index": ("%i", 0), "extents": shape}
    body = _numbers(n=rows, step=tiles * block, block=block) + "%t = ktdp.get_compute_tile_id : index\n"
    body += "%first = arith.muli %t, %block : index\nscf.for %i = %first to %n step %step {\n"
    body += k.load("%x", "%arg0", full, **place) + _dense("%low", "0xFC00", (block,), "f16") + _dense("%zero", 0.0, (block,), "f16")
    body += _reduce("%m", "arith.maximumf", "%x", shape, "%low", "f16") + _spread("%mm", "%m", shape)
    body += _binary("%d", "arith.subf", "%x", "%mm", shape) + _unary("%e", "math.exp", "%d", shape)
    body += _reduce("%s", "arith.addf", "%e", shape, "%zero", "f16") + _spread("%ss", "%s", shape)
    body += _binary("%y", "arith.divf", "%e", "%ss", shape) + k.store("%y", "%arg1", full, **place) + "}\n"
    text = k.kernel(["%arg0", "%arg1"], body, str(tiles))
    what = f"softmax {rows}x{columns}, {block}-row loop, {tiles} tile{'s' * (tiles > 1)}"
    return Case(what, text, [x, np.zeros_like(x)], softmax_plain(x), 1, 0.05)


def norm_plain(x: NDArray[Any], g: NDArray[Any], h: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    wide, square, result = np.empty(x.shape, F32), np.empty(x.shape, F32), np.empty_like(x)

    def plain() -> NDArray[Any]:
        np.copyto(wide, x)
        np.subtract(wide, wide.mean(1, keepdims=True), out=wide)
        np.multiply(wide, wide, out=square)
        np.divide(wide, np.sqrt(square.mean(1, keepdims=True) + F32(1e-5)), out=wide)
        for function, vector in ((np.multiply, g), (np.add, h)):
            if vector.ndim == 1:
                function(wide, vector.astype(F32), out=wide)
            else:
                np.copyto(square, vector)
                function(wide, square, out=wide)
        np.copyto(result, wide, casting="same_kind")
        return result

    return plain


def layer_norm(rows: int, columns: int) -> Case:
    """As the compiler's front end writes it: whole tensors on one tile, f32 inside."""
    x, g, h = k.random_f16(rows, columns), k.random_f16(columns, seed=1), k.random_f16(columns, seed=2)
    arrays = [x, g, h, np.zeros_like(x)]
    return Case(f"layer norm {rows}x{columns}, whole tensors", k.layer_norm(rows, columns), arrays, norm_plain(x, g, h), 3)


def layer_norm_rows(rows: int, columns: int, tiles: int) -> Case:
    """As written by hand: tile t takes row t, t + tiles, ...; f32 inside."""
    x, g, h = k.random_f16(rows, columns), k.random_f16(columns, seed=1), k.random_f16(columns, seed=2)
    full, shape = (rows, columns), (1, columns)
    place: dict[str, Any] = {"index": ("%i", 0), "extents": shape}
    body = _numbers(n=rows, step=tiles) + "%t = ktdp.get_compute_tile_id : index\n" + _dense("%zero", 0.0, (1,), "f32")
    body += _dense("%count", float(columns), (1,), "f32") + _dense("%eps", "1.0e-5", (1,), "f32")
    body += "scf.for %i = %t to %n step %step {\n"
    for name, base in (("g", "%arg1"), ("h", "%arg2")):
        body += k.load(f"%{name}16", base, shape) + f"%{name} = arith.extf %{name}16 : {k.tensor(shape)} to {k.tensor(shape, 'f32')}\n"
    body += k.load("%x16", "%arg0", full, **place) + f"%x = arith.extf %x16 : {k.tensor(shape)} to {k.tensor(shape, 'f32')}\n"
    body += _reduce("%s", "arith.addf", "%x", shape, "%zero", "f32") + _binary("%m", "arith.divf", "%s", "%count", (1,), "f32")
    body += _spread("%mm", "%m", shape, "f32") + _binary("%c", "arith.subf", "%x", "%mm", shape, "f32")
    body += _binary("%q", "arith.mulf", "%c", "%c", shape, "f32") + _reduce("%v", "arith.addf", "%q", shape, "%zero", "f32")
    body += _binary("%w", "arith.divf", "%v", "%count", (1,), "f32") + _binary("%we", "arith.addf", "%w", "%eps", (1,), "f32")
    body += _unary("%r", "math.rsqrt", "%we", (1,), "f32") + _spread("%rr", "%r", shape, "f32")
    body += _binary("%z", "arith.mulf", "%c", "%rr", shape, "f32") + _binary("%zg", "arith.mulf", "%z", "%g", shape, "f32")
    body += _binary("%y32", "arith.addf", "%zg", "%h", shape, "f32")
    body += f"%y = arith.truncf %y32 : {k.tensor(shape, 'f32')} to {k.tensor(shape)}\n" + k.store("%y", "%arg3", full, **place) + "}\n"
    text = k.kernel(["%arg0", "%arg1", "%arg2", "%arg3"], body, str(tiles))
    return Case(f"layer norm {rows}x{columns}, row loop, {tiles} tiles", text, [x, g, h, np.zeros_like(x)], norm_plain(x, g, h), 3)


def rms_plain(x: NDArray[Any], w: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    wide, square, result = np.empty(x.shape, F32), np.empty(x.shape, F32), np.empty_like(x)

    def plain() -> NDArray[Any]:
        np.copyto(wide, x)
        np.multiply(wide, wide, out=square)
        np.divide(wide, np.sqrt(square.mean(1, keepdims=True) + F32(1e-5)), out=wide)
        np.copyto(square, w)
        np.multiply(wide, square, out=wide)
        np.copyto(result, wide, casting="same_kind")
        return result

    return plain


def rms_norm(rows: int, columns: int, tiles: int, block: int = 1024) -> Case:
    """A loop over the rows of a tile and in it two over blocks of columns, all in f16; the weight is stored once per row."""
    x, w = k.random_f16(rows, columns), np.repeat(k.random_f16(1, columns, seed=1), rows, 0)
    full, shape = (rows, columns), (1, block)
    place: dict[str, Any] = {"index": ("%i", "%j"), "extents": shape}
    body = _numbers(c0=0, c1=1, share=rows // tiles, columns=columns, block=block) + "%t = ktdp.get_compute_tile_id : index\n"
    body += "%first = arith.muli %t, %share : index\n%end = arith.addi %first, %share : index\n"
    body += _dense("%zeros", 0.0, shape, "f16") + _dense("%zero", 0.0, (1,), "f16")
    body += _dense("%count", float(columns), (1,), "f16") + _dense("%eps", "1.0e-5", (1,), "f16")
    body += "scf.for %i = %first to %end step %c1 {\n"
    body += f"%sum = scf.for %j = %c0 to %columns step %block iter_args(%acc = %zeros) -> ({k.tensor(shape)}) {{\n"
    body += k.load("%x", "%arg0", full, **place) + _binary("%q", "arith.mulf", "%x", "%x", shape)
    body += _binary("%next", "arith.addf", "%acc", "%q", shape) + f"scf.yield %next : {k.tensor(shape)}\n}}\n"
    body += _reduce("%s", "arith.addf", "%sum", shape, "%zero", "f16") + _binary("%v", "arith.divf", "%s", "%count", (1,))
    body += _binary("%ve", "arith.addf", "%v", "%eps", (1,)) + _unary("%r", "math.rsqrt", "%ve", (1,)) + _spread("%rr", "%r", shape)
    body += "scf.for %j = %c0 to %columns step %block {\n"
    body += k.load("%x", "%arg0", full, **place) + k.load("%w", "%arg1", full, **place)
    body += _binary("%n", "arith.mulf", "%x", "%rr", shape) + _binary("%y", "arith.mulf", "%n", "%w", shape)
    body += k.store("%y", "%arg2", full, **place) + "}\n}\n"
    text = k.kernel(["%arg0", "%arg1", "%arg2"], body, str(tiles))
    return Case(f"RMS norm {rows}x{columns}, {tiles} tiles", text, [x, w, np.zeros_like(x)], rms_plain(x, w), 2, 0.05)


def rope_plain(x: NDArray[Any], cos: NDArray[Any], sin: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    heads, positions, half = *x.shape[:2], x.shape[2] // 2
    wide, c, s = np.empty(x.shape, F32), np.empty(cos.shape, F32), np.empty(sin.shape, F32)
    left, right, result = np.empty((heads, positions, half), F32), np.empty((heads, positions, half), F32), np.empty_like(x)

    def plain() -> NDArray[Any]:
        for target, source in ((wide, x), (c, cos), (s, sin)):
            np.copyto(target, source)
        a, b = wide[..., :half], wide[..., half:]
        np.multiply(a, c, out=left)
        np.multiply(b, s, out=right)
        np.subtract(left, right, out=left)
        np.multiply(a, s, out=a)
        np.multiply(b, c, out=b)
        np.add(a, b, out=b)
        np.copyto(result[..., :half], left, casting="same_kind")
        np.copyto(result[..., half:], b, casting="same_kind")
        return result

    return plain


def rope(heads: int, positions: int, size: int, tiles: int) -> Case:
    """Rotary embedding, all in f16: each tile turns its positions of every head, a block of 64 positions at a time."""
    half, block = size // 2, 64
    x = k.random_f16(heads, positions, size)
    cos, sin = k.random_f16(positions, half, seed=1), k.random_f16(positions, half, seed=2)
    full, shape = (heads, positions, size), (heads, block, half)
    body = _numbers(c0=0, block=block, share=positions // tiles) + "%t = ktdp.get_compute_tile_id : index\n"
    body += "%first = arith.muli %t, %share : index\n%end = arith.addi %first, %share : index\nscf.for %i = %first to %end step %block {\n"
    for name, base in (("c", "%arg1"), ("s", "%arg2")):
        body += k.load(f"%{name}h", base, (positions, half), index=("%i", 0), extents=(block, half)) + k.empty(f"%{name}e", shape)
        body += (
            f"%{name} = linalg.broadcast ins(%{name}h : {k.tensor((block, half))}) outs(%{name}e : {k.tensor(shape)}) dimensions = [0]\n"
        )
    body += k.load("%a", "%arg0", full, index=(0, "%i", 0), extents=shape)
    body += k.load("%b", "%arg0", full, index=(0, "%i", half), extents=shape)
    for name, left, right, op in (("u", "%c", "%s", "arith.subf"), ("v", "%s", "%c", "arith.addf")):
        body += _binary(f"%{name}a", "arith.mulf", "%a", left, shape) + _binary(f"%{name}b", "arith.mulf", "%b", right, shape)
        body += _binary(f"%{name}", op, f"%{name}a", f"%{name}b", shape)
    body += k.store("%u", "%arg3", full, index=(0, "%i", 0), extents=shape)
    body += k.store("%v", "%arg3", full, index=(0, "%i", half), extents=shape) + "}\n"
    text = k.kernel(["%arg0", "%arg1", "%arg2", "%arg3"], body, str(tiles))
    return Case(f"RoPE {heads}x{positions}x{size}, {tiles} tiles", text, [x, cos, sin, np.zeros_like(x)], rope_plain(x, cos, sin), 3)


# Matmul


def matmul_blocks(m: int, depth: int, n: int, grid: tuple[int, int]) -> Case:
    """Each tile of the grid computes its block of the result from whole rows and columns, in one matmul with an f32 accumulator."""
    a, b, c = k.random_f16(m, depth), k.random_f16(depth, n, seed=1), np.zeros((m, n), F16)
    rows, columns = m // grid[0], n // grid[1]
    shape = (rows, columns)
    body = "%p, %q = ktdp.get_compute_tile_id : index, index\n" + _numbers(rows=rows, columns=columns)
    body += "%i = arith.muli %p, %rows : index\n%j = arith.muli %q, %columns : index\n"
    body += k.load("%a", "%arg0", (m, depth), index=("%i", 0), extents=(rows, depth))
    body += k.load("%b", "%arg1", (depth, n), index=(0, "%j"), extents=(depth, columns)) + k.filled("%z", "0.0", shape)
    body += f"%s = linalg.matmul ins(%a, %b : {k.tensor((rows, depth))}, {k.tensor((depth, columns))}) "
    body += f"outs(%z : {k.tensor(shape, 'f32')}) -> {k.tensor(shape, 'f32')}\n"
    body += f"%y = arith.truncf %s : {k.tensor(shape, 'f32')} to {k.tensor(shape)}\n"
    body += k.store("%y", "%arg2", (m, n), index=("%i", "%j"), extents=shape)
    text = k.kernel(["%arg0", "%arg1", "%arg2"], body, f"{grid[0]}, {grid[1]}")
    left, right, total, result = np.empty(a.shape, F32), np.empty(b.shape, F32), np.empty(c.shape, F32), np.empty_like(c)

    def plain() -> NDArray[Any]:
        np.copyto(left, a)
        np.copyto(right, b)
        np.matmul(left, right, out=total)
        np.copyto(result, total, casting="same_kind")
        return result

    return Case(f"matmul {m}x{depth}x{n}, {grid[0]}x{grid[1]} tiles", text, [a, b, c], plain, 2, 0.05)


# Indirect access


def _whole_view(name: str, base: str, sizes: Sequence[int], element: str = "f16") -> str:
    return k.view(name, base, sizes, k.row_major(sizes), element)


def embedding(words: int, size: int, tokens: int, tiles: int) -> Case:
    """Rows of a table, chosen by ids: tile t takes its share of the tokens."""
    table, out = k.random_f16(words, size), np.zeros((tokens, size), F16)
    ids = np.random.default_rng(1).integers(0, words, tokens).astype(np.int32)
    share = tokens // tiles
    shape = (share, size)
    body = _numbers(share=share) + "%t = ktdp.get_compute_tile_id : index\n%o = arith.muli %t, %share : index\n"
    body += _whole_view("%w", "%arg0", table.shape) + _whole_view("%ids", "%arg1", (tokens,), "i32")
    body += k.indirect("%rows", "%w", "ind(%ids[%v0 + %o]), (%v1)", shape, f"{k.memref(table.shape)}, {k.memref((tokens,), 'i32')}")
    body += f"%x = ktdp.load %rows : {k.access(shape)} -> {k.tensor(shape)}\n"
    body += k.store("%x", "%arg2", (tokens, size), index=("%o", 0), extents=shape)
    text = k.kernel(["%arg0", "%arg1", "%arg2"], body, str(tiles))
    result = np.empty_like(out)
    plain = lambda: np.take(table, ids, 0, out=result, mode="clip")  # noqa: E731
    return Case(f"embedding {tokens} of {words}x{size}, {tiles} tiles", text, [table, ids, out], plain, 2, 0)


def _two_indices(rows: int, columns: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """f16 values and two index arrays that name every place once."""
    order = np.random.default_rng(1).permutation(rows * columns).astype(np.int32)
    return k.random_f16(rows, columns), (order // columns).reshape(rows, columns), (order % columns).reshape(rows, columns)


def _indexed(rows: int, columns: int, tiles: int, base: str) -> str:
    share = rows // tiles
    kind = k.memref((rows, columns), "i32")
    body = _numbers(share=share) + "%t = ktdp.get_compute_tile_id : index\n%o = arith.muli %t, %share : index\n"
    body += _whole_view("%w", base, (rows, columns))
    body += "".join(_whole_view(f"%i{n}", f"%arg{n}", (rows, columns), "i32") for n in (1, 2))
    subscripts = "ind(%i1[%v0 + %o, %v1]), ind(%i2[%v0 + %o, %v1])"
    return body + k.indirect("%places", "%w", subscripts, (share, columns), f"{k.memref((rows, columns))}, {kind}, {kind}")


def gather(rows: int, columns: int, tiles: int) -> Case:
    """y[m, n] = x[i[m, n], j[m, n]]."""
    x, i, j = _two_indices(rows, columns)
    shape = (rows // tiles, columns)
    body = _indexed(rows, columns, tiles, "%arg0") + f"%x = ktdp.load %places : {k.access(shape)} -> {k.tensor(shape)}\n"
    body += k.store("%x", "%arg3", (rows, columns), index=("%o", 0), extents=shape)
    text = k.kernel(["%arg0", "%arg1", "%arg2", "%arg3"], body, str(tiles))
    return Case(f"gather {rows}x{columns}, {tiles} tiles", text, [x, i, j, np.zeros_like(x)], lambda: x[i, j], 3, 0)


def scatter(rows: int, columns: int, tiles: int) -> Case:
    """y[i[m, n], j[m, n]] = x[m, n]."""
    x, i, j = _two_indices(rows, columns)
    shape = (rows // tiles, columns)
    body = _indexed(rows, columns, tiles, "%arg3") + k.load("%x", "%arg0", (rows, columns), index=("%o", 0), extents=shape)
    body += f"ktdp.store %x, %places : {k.tensor(shape)}, {k.access(shape)}\n"
    text = k.kernel(["%arg0", "%arg1", "%arg2", "%arg3"], body, str(tiles))
    result = np.zeros_like(x)

    def plain() -> NDArray[Any]:
        result[i, j] = x
        return result

    return Case(f"scatter {rows}x{columns}, {tiles} tiles", text, [x, i, j, np.zeros_like(x)], plain, 3, 0)


def paged_attention(tokens: int, heads: int, shared: int, size: int, pages: int, used: int, page: int = 16) -> Case:
    """Attention of `tokens` queries on a paged cache, a tile per two tokens and key head; f32 online softmax, a page per trip.

    `shared`: query heads per key head. Queries see every key.
    """
    groups = heads // shared
    rows = 2 * shared
    query = k.random_f16(tokens, heads, size)
    keys, values = (k.random_f16(pages, page, groups, size, seed=s) for s in (1, 2))
    table = np.random.default_rng(0).permutation(pages)[:used].astype(np.int32)
    scale = F32(size**-0.5)
    q_shape, one = (2, shared, size), (1, page, 1, size)
    narrow, wide = (rows, page), (rows, size)
    body = "%p, %h = ktdp.get_compute_tile_id : index, index\n" + _numbers(c0=0, c1=1, c2=2, shared=shared, used=used)
    body += "%token = arith.muli %p, %c2 : index\n%head = arith.muli %h, %shared : index\n"
    body += k.load("%q3", "%arg0", query.shape, index=("%token", "%head", 0), extents=q_shape)
    body += f"%q16 = tensor.collapse_shape %q3 [[0, 1], [2]] : {k.tensor(q_shape)} into {k.tensor(wide)}\n"
    body += f"%q = arith.extf %q16 : {k.tensor(wide)} to {k.tensor(wide, 'f32')}\n"
    body += _dense("%m0", "0xFF800000", (rows,), "f32") + _dense("%l0", 0.0, (rows,), "f32") + _dense("%a0", 0.0, wide, "f32")
    body += _dense("%scale", float(scale), narrow, "f32") + _dense("%none", 0.0, narrow, "f32")
    body += "".join(_whole_view(f"%cache{n}", f"%arg{n}", keys.shape) for n in (1, 2)) + _whole_view("%table", "%arg3", (used,), "i32")
    row, state = k.tensor((rows,), "f32"), k.tensor(wide, "f32")
    body += "%m, %l, %acc = scf.for %j = %c0 to %used step %c1 iter_args(%mp = %m0, %lp = %l0, %ap = %a0) -> "
    body += f"({row}, {row}, {state}) {{\n"
    for name, n in (("k", 1), ("v", 2)):
        where = "ind(%table[%j + %v0]), (%v1), (%h + %v2), (%v3)"
        body += k.indirect(f"%{name}t", f"%cache{n}", where, one, f"{k.memref(keys.shape)}, {k.memref((used,), 'i32')}")
        body += f"%{name}4 = ktdp.load %{name}t : {k.access(one)} -> {k.tensor(one)}\n"
        body += f"%{name}2 = tensor.collapse_shape %{name}4 [[0, 1], [2, 3]] : {k.tensor(one)} into {k.tensor((page, size))}\n"
        body += f"%{name} = arith.extf %{name}2 : {k.tensor((page, size))} to {k.tensor((page, size), 'f32')}\n"
    body += k.empty("%kte", (size, page), "f32")
    body += f"%kT = linalg.transpose ins(%k : {k.tensor((page, size), 'f32')}) outs(%kte : {k.tensor((size, page), 'f32')}) "
    body += "permutation = [1, 0]\n"
    body += f"%s0 = linalg.matmul ins(%q, %kT : {k.tensor(wide, 'f32')}, {k.tensor((size, page), 'f32')}) "
    body += f"outs(%none : {k.tensor(narrow, 'f32')}) -> {k.tensor(narrow, 'f32')}\n"
    body += _binary("%s", "arith.mulf", "%s0", "%scale", narrow, "f32") + _reduce("%mj", "arith.maximumf", "%s", narrow, "%mp", "f32")
    body += _spread("%mm", "%mj", narrow, "f32") + _binary("%d", "arith.subf", "%s", "%mm", narrow, "f32")
    body += _unary("%e", "math.exp", "%d", narrow, "f32") + _binary("%md", "arith.subf", "%mp", "%mj", (rows,), "f32")
    body += _unary("%f", "math.exp", "%md", (rows,), "f32") + _binary("%lf", "arith.mulf", "%lp", "%f", (rows,), "f32")
    body += _reduce("%ln", "arith.addf", "%e", narrow, "%lf", "f32") + _spread("%ff", "%f", wide, "f32")
    body += _binary("%af", "arith.mulf", "%ap", "%ff", wide, "f32")
    body += f"%an = linalg.matmul ins(%e, %v : {k.tensor(narrow, 'f32')}, {k.tensor((page, size), 'f32')}) "
    body += f"outs(%af : {state}) -> {state}\nscf.yield %mj, %ln, %an : {row}, {row}, {state}\n}}\n"
    body += _spread("%ll", "%l", wide, "f32") + _binary("%o", "arith.divf", "%acc", "%ll", wide, "f32")
    body += f"%o16 = arith.truncf %o : {state} to {k.tensor(wide)}\n"
    body += f"%o3 = tensor.expand_shape %o16 [[0, 1], [2]] output_shape {list(q_shape)} : {k.tensor(wide)} into {k.tensor(q_shape)}\n"
    body += k.store("%o3", "%arg4", query.shape, index=("%token", "%head", 0), extents=q_shape)
    text = k.kernel([f"%arg{i}" for i in range(5)], body, f"{tokens // 2}, {groups}")

    def plain() -> NDArray[Any]:
        held = [c[table].reshape(used * page, groups, size).astype(F32).transpose(1, 0, 2) for c in (keys, values)]
        q = query.astype(F32).reshape(tokens, groups, shared, size).transpose(1, 0, 2, 3).reshape(groups, tokens * shared, size)
        score = np.matmul(q, held[0].transpose(0, 2, 1)) * scale
        e = np.exp(score - score.max(-1, keepdims=True))
        out = np.matmul(e / e.sum(-1, keepdims=True), held[1]).reshape(groups, tokens, shared, size)
        return out.transpose(1, 0, 2, 3).reshape(query.shape).astype(F16)

    arguments = [query, keys, values, table, np.zeros_like(query)]
    return Case(f"paged attention {tokens}x{heads}x{size}, {used}x{page} keys", text, arguments, plain, 4)
