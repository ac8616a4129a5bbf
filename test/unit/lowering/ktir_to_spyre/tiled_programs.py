"""Tiled kernels of every kind, at any size: each function builds one and gives arguments and what its results must be near."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tiled_kernels import LANES, Argument, Kernel, Tiled, narrowed, tiled

from ktir.mlir import arith, ir, math


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs, and expected values by argument."""

    program: Tiled
    inputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    tolerance: float = 0.0


def sticks(n: int) -> int:
    return -(-n // LANES)


def even(n: int) -> int:
    return n + n % 2


def half(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def _wide(v: ir.Value) -> ir.Value:
    return arith.ExtFOp(ir.F32Type.get(), v).result


def slices(cores: int, rows: int, columns: int, seed: int = 0) -> Case:
    """y = x[:, 3:3+columns] - x[:, :columns]: slices that begin inside a stick, of rows that do."""
    pitch = columns + 5
    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(min(share, 4))
    n = sticks(columns)
    arguments = [Argument("x", "input", rows * pitch), Argument("y", "output", rows * columns)]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = own if share % block == 0 or not isinstance(own, int) else k.index(own)
        at = [k.add(k.times(first, pitch), o) for o in (3, 0)]
        views = [k.view("x", o, [n, own, LANES], [LANES, pitch, 1], cut=columns) for o in at]
        out = k.view("y", k.times(first, columns), [n, own, LANES], [LANES, columns, 1], cut=columns)
        with k.loop(share, block) as loop:
            r = loop.induction_variable
            a, b = (k.load(v, [0, r, 0], [n, block, LANES]) for v in views)
            k.store(k.pointwise(lambda p, q: arith.SubFOp(p, q).result, [n, block, LANES], "f16", a, b), out, [0, r, 0])

    x = half(np.random.default_rng(seed), rows, pitch)
    return Case(tiled(cores, arguments, body), {"x": x}, {"y": x[:, 3 : 3 + columns] - x[:, :columns]})


def transposed(cores: int, rows: int, columns: int, type_: str = "f16", seed: int = 0) -> Case:
    """y = x.T: rows of y in the sticks of x, by the distance between lanes."""
    share = -(-columns // cores)
    cores = -(-columns // share)
    block = even(min(share, 6))
    n = sticks(rows)
    arguments = [Argument("x", "input", rows * columns, type_), Argument("y", "output", rows * columns, type_)]

    def body(k: Kernel) -> None:
        first, own = k.share(columns, share, cores)
        own = k.index(own) if isinstance(own, int) and share % block else own
        view = k.view("x", first, [n, own, LANES], [LANES * columns, 1, columns], cut=rows)
        out = k.view("y", k.times(first, rows), [n, own, LANES], [LANES, rows, 1], cut=rows)
        with k.loop(share, block) as loop:
            r = loop.induction_variable
            k.store(k.load(view, [0, r, 0], [n, block, LANES]), out, [0, r, 0])

    rng = np.random.default_rng(seed)
    x = rng.integers(-(2**31), 2**31, (rows, columns), np.int32) if type_ == "i32" else rng.standard_normal((rows, columns))
    x = x.astype({"f16": np.float16, "f32": np.float32, "i32": np.int32}[type_])
    return Case(tiled(cores, arguments, body), {"x": x}, {"y": x.T})


def gathered(cores: int, rows: int, columns: int, table: int = 11, seed: int = 0) -> Case:
    """y[i] = x[index[i]]."""
    from ktir.dialects import ktdp

    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(min(share, 4))
    n = sticks(columns)
    arguments = [
        Argument("x", "input", table * columns),
        Argument("index", "input", rows, "i32"),
        Argument("y", "output", rows * columns),
    ]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = k.index(own) if isinstance(own, int) and share % block else own
        indices = k.view("index", first, [own], [1])
        view = k.view("x", 0, [n, table, LANES], [LANES, columns, 1], cut=columns)
        out = k.view("y", k.times(first, columns), [n, own, LANES], [LANES, columns, 1], cut=columns)
        with k.loop(share, block) as loop:
            r = loop.induction_variable
            row, s, i, lane = (ir.AffineExpr.get_dim(d) for d in range(4))
            tile = ktdp.construct_indirect_access_tile(view, [s, (indices, [row + i]), lane], [n, block, LANES], captured=[r])
            k.store(ktdp.load(tile, ir.F16Type.get()), out, [0, r, 0])

    rng = np.random.default_rng(seed)
    x, index = half(rng, table, columns), rng.integers(0, table, rows).astype(np.int32)
    return Case(tiled(cores, arguments, body), {"x": x, "index": index}, {"y": x[index]})


def scattered(cores: int, rows: int, columns: int, heads: int = 2, seed: int = 0) -> Case:
    """y[h, index[i]] = x[h, i]: a batch axis; rows beyond the last one are told by a dim of stride 0."""
    from ktir.dialects import ktdp

    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(min(share, 4))
    n = sticks(columns)
    size = rows + 3
    arguments = [
        Argument("x", "input", heads * rows * columns),
        Argument("index", "input", rows, "i32"),
        Argument("y", "input_output", heads * size * columns),
    ]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = k.index(own) if isinstance(own, int) else own
        with k.loop(heads) as batch:
            h = batch.induction_variable
            indices = k.view("index", first, [own], [1])
            at = k.add(k.times(first, columns), k.times(h, rows * columns))
            view = k.view("x", at, [n, own, LANES], [LANES, columns, 1], cut=columns)
            out = k.view("y", k.times(h, size * columns), [n, size, own, LANES], [LANES, columns, 0, 1], cut=columns)
            with k.loop(share, block) as loop:
                r = loop.induction_variable
                row, s, i, lane = (ir.AffineExpr.get_dim(d) for d in range(4))
                value = k.load(view, [0, r, 0], [n, block, LANES])
                subscripts = [s, (indices, [row + i]), row + i, lane]
                tile = ktdp.construct_indirect_access_tile(out, subscripts, [n, block, LANES], captured=[r])
                ktdp.store(value, tile)

    rng = np.random.default_rng(seed)
    x, y, index = half(rng, heads, rows, columns), half(rng, heads, size, columns), rng.permutation(size)[:rows].astype(np.int32)
    expected = y.copy()
    expected[:, index] = x
    return Case(tiled(cores, arguments, body), {"x": x, "index": index, "y": y}, {"y": expected})


def filled(cores: int, rows: int, columns: int, seed: int = 0) -> Case:
    """y is a constant but for its first columns, which are x's."""
    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(share)
    left = columns // 2
    arguments = [Argument("x", "input", rows * left), Argument("y", "output", rows * columns)]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = k.index(own) if isinstance(own, int) else own
        constant = k.filled([sticks(columns - left), block, LANES], "f16", -1.5)
        source = k.view("x", k.times(first, left), [sticks(left), own, LANES], [LANES, left, 1], cut=left)
        at = k.times(first, columns)
        one = k.view("y", at, [sticks(left), own, LANES], [LANES, columns, 1], cut=left)
        other = k.view("y", k.add(at, left), [sticks(columns - left), own, LANES], [LANES, columns, 1], cut=columns - left)
        with k.loop(share, block) as loop:
            r = loop.induction_variable
            k.store(constant, other, [0, r, 0])
            k.store(k.load(source, [0, r, 0], [sticks(left), block, LANES]), one, [0, r, 0])

    x = half(np.random.default_rng(seed), rows, left)
    expected = np.full((rows, columns), -1.5, np.float16)
    expected[:, :left] = x
    return Case(tiled(cores, arguments, body), {"x": x}, {"y": expected})


def rope(cores: int, heads: int, rows: int, width: int, seed: int = 0) -> Case:
    """Halves of the last dim, rotated: two batch loops, operands of the row loop and of the batch loops, two stores to one argument."""
    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(min(share, 4))
    side = width // 2
    n = sticks(side)
    size = 2 * heads * rows * width
    arguments = [
        Argument("x", "input", size),
        Argument("cos", "input", rows * side, "f32"),
        Argument("sin", "input", rows * side, "f32"),
        Argument("scale", "input", heads * side),
        Argument("y", "output", size),
    ]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = k.index(own) if isinstance(own, int) else own
        with k.loop(2) as outer, k.loop(heads) as batch:
            b, h = outer.induction_variable, batch.induction_variable
            scale = k.view("scale", k.times(h, side), [n, 1, LANES], [LANES, LANES, 1], cut=side)
            weight = k.load(scale, [0, 0, 0], [n, 1, LANES])
            at = k.add(k.times(k.add(k.times(b, heads), h), rows * width), k.times(first, width))
            low, high = (k.view("x", k.add(at, o), [n, own, LANES], [LANES, width, 1], cut=side) for o in (0, side))
            to = [k.view("y", k.add(at, o), [n, own, LANES], [LANES, width, 1], cut=side) for o in (0, side)]
            turn = [k.view(f, k.times(first, side), [n, own, LANES], [LANES, side, 1], cut=side) for f in ("cos", "sin")]
            with k.loop(share, block) as loop:
                r = loop.induction_variable
                shape = [n, block, LANES]
                p, q, c, s = (k.load(v, [0, r, 0], shape) for v in (low, high, *turn))
                for v, (a, e, f) in zip(to, ((p, q, arith.SubFOp), (q, p, arith.AddFOp)), strict=True):
                    main = k.pointwise(lambda i, j: arith.MulFOp(_wide(i), j).result, shape, "f32", a, c)
                    other = k.pointwise(lambda i, j: arith.MulFOp(_wide(i), j).result, shape, "f32", e, s)
                    k.store(
                        k.pointwise(
                            lambda i, j, w, f=f: narrowed(arith.MulFOp(f(i, j).result, _wide(w)).result), shape, "f16", main, other, weight
                        ),
                        v,
                        [0, r, 0],
                    )

    rng = np.random.default_rng(seed)
    x, scale = half(rng, 2, heads, rows, width), half(rng, heads, side)
    cos, sin = (rng.standard_normal((rows, side)).astype(np.float32) for _ in range(2))
    p, q = (x[..., s].astype(np.float32) for s in (slice(0, side), slice(side, width)))
    y = np.concatenate([(p * cos - q * sin) * scale[:, None], (q * cos + p * sin) * scale[:, None]], -1)
    return Case(tiled(cores, arguments, body), {"x": x, "cos": cos, "sin": sin, "scale": scale}, {"y": y}, 2e-3)


def attention(cores: int, heads: int, rows: int, keys: int, width: int, resident: bool = True, seed: int = 0) -> Case:
    """softmax(q kT) v per head: heads are a batch axis, keys and values stay in the scratchpad or stream by, results side by side."""
    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(min(share, 4))
    d, n = sticks(width), sticks(keys)
    pitch = heads * width
    arguments = [
        Argument("q", "input", heads * rows * width),
        Argument("keys", "input", heads * keys * width),
        Argument("values", "input", heads * keys * width),
        Argument("y", "output", rows * pitch),
    ]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = k.index(own) if isinstance(own, int) else own
        with k.loop(heads) as batch:
            h = batch.induction_variable
            at = k.times(h, keys * width)
            kv = [k.view(name, at, [d, keys, LANES], [LANES, width, 1], cut=width, masked=True) for name in ("keys", "values")]
            held = [k.load(v, [0, 0, 0], [d, n * LANES, LANES]) for v in kv] if resident else []
            view = k.view("q", k.add(k.times(h, rows * width), k.times(first, width)), [d, own, LANES], [LANES, width, 1], cut=width)
            out = k.view("y", k.add(k.times(first, pitch), k.times(h, width)), [d, own, LANES], [LANES, pitch, 1], cut=width)

            def block_of(which: int, stick: ir.Value, row: ir.Value) -> ir.Value:
                at = [stick, k.times(row, LANES), 0]
                return k.part(held[which], at, [1, LANES, LANES]) if resident else k.load(kv[which], at, [1, LANES, LANES])

            with k.loop(share, block) as loop:
                r = loop.induction_variable
                shape = [n, block, LANES]
                q = k.load(view, [0, r, 0], [d, block, LANES])
                scores = k.matmul(q, lambda j, i: block_of(0, i, j), n, True, lambda f: k.pointwise(narrowed, [1, block, LANES], "f16", f))
                cut = k.pointwise(lambda v: _masked(v, keys), shape, "f32", scores)
                top = k.reduce(lambda v, m: arith.MaximumFOp(m, v).result, cut, float("-inf"))
                e = k.pointwise(lambda v, m: math.ExpOp(arith.SubFOp(v, m).result).result, shape, "f32", cut, top)
                total = k.reduce(lambda v, m: arith.AddFOp(m, v).result, e, 0.0)
                p = k.pointwise(lambda v, m: narrowed(arith.DivFOp(v, m).result), shape, "f16", e, total)
                y = k.matmul(p, lambda j, i: block_of(1, j, i), d, False, lambda f: k.pointwise(narrowed, [1, block, LANES], "f16", f))
                k.store(y, out, [0, r, 0])

    rng = np.random.default_rng(seed)
    q, key, value = half(rng, heads, rows, width), half(rng, heads, keys, width), half(rng, heads, keys, width)
    s = q.astype(np.float32) @ key.astype(np.float32).swapaxes(1, 2)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y = np.moveaxis(p @ value.astype(np.float32), 0, 1)
    return Case(tiled(cores, arguments, body), {"q": q, "keys": key, "values": value}, {"y": y}, 2e-2)


def _masked(value: ir.Value, columns: int) -> ir.Value:
    from ktir.mlir import linalg

    index = ir.IndexType.get()
    f32 = ir.F32Type.get()
    stick = linalg.IndexOp(0).result
    lane = linalg.IndexOp(2).result
    place = arith.AddIOp(arith.MulIOp(stick, arith.ConstantOp(index, LANES).result).result, lane).result
    inside = arith.CmpIOp(6, place, arith.ConstantOp(index, columns).result).result
    return arith.SelectOp(inside, _wide(value), arith.ConstantOp(f32, ir.FloatAttr.get(f32, float("-inf"))).result).result


def single_row(cores: int, rows: int, columns: int, seed: int = 0) -> Case:
    """y = x + (w + w): an op on a single row, whose result every row reads."""
    share = -(-rows // cores)
    cores = -(-rows // share)
    block = even(min(share, 4))
    n = sticks(columns)
    arguments = [Argument("x", "input", rows * columns), Argument("w", "input", columns), Argument("y", "output", rows * columns)]

    def body(k: Kernel) -> None:
        first, own = k.share(rows, share, cores)
        own = k.index(own) if isinstance(own, int) else own
        w = k.load(k.view("w", 0, [n, 1, LANES], [LANES, LANES, 1], cut=columns), [0, 0, 0], [n, 1, LANES])
        view, out = (k.view(v, k.times(first, columns), [n, own, LANES], [LANES, columns, 1], cut=columns) for v in ("x", "y"))
        with k.loop(share, block) as loop:
            r = loop.induction_variable
            twice = k.pointwise(lambda v: arith.AddFOp(v, v).result, [n, 1, LANES], "f16", w)
            x = k.load(view, [0, r, 0], [n, block, LANES])
            k.store(k.pointwise(lambda p, q: arith.AddFOp(p, q).result, [n, block, LANES], "f16", x, twice), out, [0, r, 0])

    rng = np.random.default_rng(seed)
    x, w = half(rng, rows, columns), half(rng, columns)
    return Case(tiled(cores, arguments, body), {"x": x, "w": w}, {"y": x + (w + w)})


Build = Callable[[int], Case]

CASES: dict[str, Build] = {
    "slices": lambda cores: slices(cores, 57, 100),
    "slices-narrow": lambda cores: slices(cores, 7, 3),
    "slices-one-row": lambda cores: slices(cores, 1, 130),
    "slices-aligned": lambda cores: slices(cores, 16, 64),
    "transposed": lambda cores: transposed(cores, 70, 33),
    "transposed-f32": lambda cores: transposed(cores, 5, 130, "f32"),
    "transposed-i32": lambda cores: transposed(cores, 65, 3, "i32"),
    "gathered": lambda cores: gathered(cores, 37, 40),
    "gathered-one": lambda cores: gathered(cores, 1, 128),
    "scattered": lambda cores: scattered(cores, 13, 40),
    "scattered-one": lambda cores: scattered(cores, 1, 64, heads=3),
    "filled": lambda cores: filled(cores, 33, 100),
    "rope": lambda cores: rope(cores, 3, 17, 48),
    "rope-even": lambda cores: rope(cores, 2, 16, 128),
    "rope-half-entries": lambda cores: rope(cores, 2, 16, 64),
    "attention": lambda cores: attention(cores, 3, 17, 70, 20),
    "attention-even": lambda cores: attention(cores, 2, 64, 128, 64),
    "attention-streamed": lambda cores: attention(cores, 2, 33, 130, 70, resident=False),
    "attention-decode": lambda cores: attention(cores, 4, 1, 33, 16),
    "single-row": lambda cores: single_row(cores, 21, 70),
}
