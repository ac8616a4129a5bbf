"""Laid-out programs over several row dims, written op by op: what the passes that form kernels and divide work are tested on.

A buffer is linear. `LaidOut.load` and `store` see a tensor in it: columns in sticks, and rows of any strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from builders import Body, element_type, f16, f32, index, number

from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects.structured import affine_map, fill, generic
from ktir.mlir import arith, func, ir, linalg, math, tensor
from ktir.roles import HOST_ROLES

LANES = 64
Rows = Sequence[tuple[int, int]]
"""Extent and stride (in elements) of the row dims of a tensor."""
NUMPY = {"f16": np.float16, "f32": np.float32, "i32": np.int32}


def packed(extents: Sequence[int], pitch: int) -> list[tuple[int, int]]:
    """Row dims of a row-major tensor whose last dim takes `pitch` elements."""
    return [(n, pitch * prod(extents[i + 1 :])) for i, n in enumerate(extents)]


def encoding(shape: Sequence[int], element: ir.Type, columns: int | None = None) -> ir.Attribute:
    """A layout of a physical shape; whole sticks if the number of columns does not matter."""
    *rows, lanes = shape[1:]
    size = [*rows, columns or shape[0] * lanes]
    strides = [prod(size[i + 1 :]) for i in range(len(size))]
    return kt.LayoutAttr.build(size, list(shape), [lanes, *strides[:-1], 1], element)


class LaidOut:
    """A program. Used as a context manager, inside of which ops are added; `sizes` has dtype and elements of each buffer."""

    def __init__(self, *buffers: tuple[str, str, int]) -> None:
        """`buffers`: role, dtype and elements of each."""
        self.buffers = buffers
        self.location = ir.Location.file("laid_out.mlir", 1, 1)
        with self.location:
            self.module = ir.Module.create()
        self.module.operation.attributes["ktir.level"] = ir.StringAttr.get("laid-out")
        with ir.InsertionPoint(self.module.body), self.location:
            function = func.FuncOp("f", ([ir.IndexType.get()] * len(buffers), []))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([self._attributes(i, *b) for i, b in enumerate(buffers)])
        self.block = function.add_entry_block([self.location] * len(buffers))

    @staticmethod
    def _attributes(i: int, role: str, dtype: str, elements: int) -> ir.Attribute:
        sticks = -(-elements // LANES)
        host = {"ktir.host": kt.HostViewAttr.build(i, 0, [elements], [1])} if role in HOST_ROLES else {}
        return ir.DictAttr.get(
            {
                "ktir.name": ir.StringAttr.get(f"b{i}"),
                "ktir.role": ir.StringAttr.get(role),
                "ktir.layout": kt.LayoutAttr.build([elements], [sticks, LANES], [LANES, 1], element_type(dtype)),
                **host,
            }
        )

    def __enter__(self) -> LaidOut:
        self.point = ir.InsertionPoint(self.block)
        self.point.__enter__()
        self.location.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            func.ReturnOp([])
        self.location.__exit__(*error)
        self.point.__exit__(*error)

    # Memory

    def _view(self, buffer: int, columns: int, sizes: list[int], strides: list[int], start: int) -> ir.Value:
        offset = self.block.arguments[buffer]
        if start:
            offset = arith.AddIOp(offset, index(start)).result
        element = element_type(self.buffers[buffer][1])
        attributes: dict[str, ir.Attribute] = {"ktir.layout": encoding(sizes, element, columns)}
        if columns % LANES:
            attributes |= {"coordinate_set": affine.clipped(sizes, 0, columns - 1), "masked": ir.UnitAttr.get()}
        return ktdp.construct_memory_view(offset, sizes, strides, element, attributes=attributes)

    def tile(self, buffer: int, columns: int, rows: Rows = (), lane: int = 1, start: int = 0) -> ir.Value:
        """The tile of a tensor: `columns` in sticks, `lane` elements from one to the next; without row dims there is one row."""
        walks = list(rows) or [(1, LANES)]
        sizes = [-(-columns // LANES), *(n for n, _ in walks), LANES]
        view = self._view(buffer, columns, sizes, [LANES * lane, *(s for _, s in walks), lane], start)
        return ktdp.construct_access_tile(view, [0] * len(sizes), sizes)

    def indirect(self, buffer: int, columns: int, dims: Sequence[tuple[int, int, int | None]], indices: int) -> ir.Value:
        """The tile of a tensor one of whose row dims goes by `indices`, a buffer: (extent, stride, count) has the number of indices."""
        sticks = -(-columns // LANES)
        sizes, strides = [sticks, *(n for n, _, _ in dims), LANES], [LANES, *(s for _, s, _ in dims), 1]
        view = self._view(buffer, columns, sizes, strides, 0)
        subscripts: list = [ir.AffineExpr.get_dim(d) for d in range(len(sizes))]
        extents = list(sizes)
        for d, (_, _, count) in enumerate(dims, 1):
            if count is not None:
                element = element_type("i32")
                at = ktdp.construct_memory_view(self.block.arguments[indices], [count], [1], element)
                subscripts[d], extents[d] = (at, [ir.AffineExpr.get_dim(d)]), count
        return ktdp.construct_indirect_access_tile(view, subscripts, extents)

    def load_tile(self, tile: ir.Value, dtype: str = "f16") -> ir.Value:
        """The tensor in a tile."""
        element = element_type(dtype)
        return ktdp.load(tile, element, encoding(list(tile.type.shape), element))

    def load(self, buffer: int, columns: int, rows: Rows = (), lane: int = 1, start: int = 0) -> ir.Value:
        """A tensor out of a buffer."""
        return self.load_tile(self.tile(buffer, columns, rows, lane, start), self.buffers[buffer][1])

    def store(self, value: ir.Value, buffer: int, columns: int, rows: Rows = (), lane: int = 1, start: int = 0) -> None:
        """Store a tensor to a buffer."""
        ktdp.store(value, self.tile(buffer, columns, rows, lane, start))

    # Ops

    @staticmethod
    def empty(shape: Sequence[int], dtype: str) -> ir.Value:
        """A tensor to write."""
        element = element_type(dtype)
        return tensor.EmptyOp(list(shape), element, encoding=encoding(shape, element)).result

    def filled(self, shape: Sequence[int], value: float, dtype: str = "f32") -> ir.Value:
        """A tensor of one value."""
        return fill(number(value, element_type(dtype)), self.empty(shape, dtype))

    def pointwise(
        self, inputs: Sequence[ir.Value], rows: Sequence[Sequence[int]], extents: Sequence[int], body: Body, dtype: str = "f16"
    ) -> ir.Value:
        """An op over rows of these extents. `rows`: the row loops of each input, in the order of its dims. Of an input with one stick where
        the result has more, lane 0 counts.
        """
        loops = len(extents) + 2
        sticks = max(ir.RankedTensorType(v.type).shape[0] for v in inputs)
        maps = []
        for value, own in zip(inputs, rows, strict=True):
            whole = ir.RankedTensorType(value.type).shape[0] == sticks
            maps.append(affine_map(loops, [0 if whole else None, *([1 + a for a in own] or [None]), loops - 1 if whole else None]))
        init = self.empty([sticks, *extents, LANES], dtype)
        maps.append(affine_map(loops, list(range(loops))))
        return generic(inputs, init, maps, ["parallel"] * loops, body, loc=self.location)

    def column(self, inputs: Sequence[ir.Value], rows: Sequence[Sequence[int]], extents: Sequence[int], body: Body) -> ir.Value:
        """An op on columns (lane 0), f32."""
        loops = len(extents) + 2
        maps = [affine_map(loops, [0, *([1 + a for a in own] or [None]), loops - 1]) for own in rows]
        maps.append(affine_map(loops, list(range(loops))))
        return generic(inputs, self.empty([1, *extents, LANES], "f32"), maps, ["parallel"] * loops, body, loc=self.location)

    def reduction(self, value: ir.Value, start: float, body: Body, columns: int) -> ir.Value:
        """`body([element, accumulator])` over sticks and lanes, in f32; lanes beyond `columns` do not count."""
        rows = list(ir.RankedTensorType(value.type).shape)[1:-1]
        k = len(rows)
        maps = [affine_map(k + 2, [k, *range(k), k + 1]), affine_map(k + 2, [None, *range(k), None])]

        def masked(arguments: list[ir.Value]) -> ir.Value:
            element = f32(arguments[0])
            if columns % LANES:
                element = arith.SelectOp(_live(k, k + 1, columns), element, number(start)).result
            return body([element, arguments[1]])

        init = self.filled([1, *rows, LANES], start)
        return generic([value], init, maps, ["parallel"] * k + ["reduction"] * 2, masked, loc=self.location)

    def contraction(self, a: ir.Value, b: ir.Value, rows: Sequence[int], batches: Sequence[int], transposed: bool = False) -> ir.Value:
        """`a` with rows of these extents times `b`, [n, batches.., K, j] or, `transposed`, [k, batches.., N, i]. `batches`: row dims of `a`
        that `b` has too.
        """
        k = len(rows)
        shape = list(ir.RankedTensorType(b.type).shape)
        blocks = -(-shape[-2] // LANES)
        element = ir.F16Type.get()
        if shape[-2] % LANES:
            b = _padded(b, blocks * LANES)
        split = [*shape[:-2], blocks, LANES, LANES]
        last = len(shape) - 2
        groups = [[i] for i in range(last)] + [[last, last + 1], [last + 2]]
        b = tensor.ExpandShapeOp(ir.RankedTensorType.get(split, element, encoding(split, element)), b, groups, [], split).result
        n, j, kk, i, loops = 0, k + 1, k + 2, k + 3, k + 4  # loops: n, rows.., j, k, i
        own = [1 + d for d in batches]
        every = [1 + d for d in range(k)] or [None]
        maps = [
            affine_map(loops, [kk, *every, i]),
            affine_map(loops, [kk, *own, n, j, i] if transposed else [n, *own, kk, i, j]),
            affine_map(loops, [n, *every, j]),
        ]
        init = self.filled([blocks if transposed else shape[0], *(rows or [1]), LANES], 0.0)

        def body(x: list[ir.Value]) -> ir.Value:
            return arith.AddFOp(x[2], arith.MulFOp(f32(x[0]), f32(x[1])).result).result

        return generic([a, b], init, maps, ["parallel"] * (k + 2) + ["reduction"] * 2, body, loc=self.location)


def _live(sticks: int, lanes: int, columns: int) -> ir.Value:
    at = arith.AddIOp(arith.MulIOp(linalg.IndexOp(sticks).result, index(LANES)).result, linalg.IndexOp(lanes).result).result
    return arith.CmpIOp(arith.CmpIPredicate.ult, at, index(columns)).result


def _padded(value: ir.Value, rows: int) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    shape, high = list(type_.shape), [0] * type_.rank
    high[-2] = rows - shape[-2]
    shape[-2] = rows
    result = ir.RankedTensorType.get(shape, type_.element_type, encoding(shape, type_.element_type))
    pad = tensor.PadOp(result, value, [], [], [0] * len(shape), high)
    block = ir.Block.create_at_start(pad.operation.regions[0], [ir.IndexType.get()] * len(shape), [ir.Location.current] * len(shape))
    with ir.InsertionPoint(block):
        tensor.YieldOp(number(0.0, type_.element_type))
    return pad.result


# Programs


def negated(x: list[ir.Value]) -> ir.Value:
    """-x."""
    return arith.NegFOp(x[0]).result


def added(x: list[ir.Value]) -> ir.Value:
    """The sum of two f16 values, rounded."""
    return f16(arith.AddFOp(f32(x[0]), f32(x[1])).result)


def rounded(x: list[ir.Value]) -> ir.Value:
    """An f32 value as f16."""
    return f16(x[0])


def attention(kv: int, rep: int, s: int, t: int, d: int) -> LaidOut:
    """Grouped heads: q [s, kv, rep, d] (as a projection leaves it), k and v [kv, t, d], mask [s, t], out [s, kv, rep, d]."""
    pitch = -(-d // LANES) * LANES
    program = LaidOut(
        ("input", "f16", kv * rep * s * pitch),
        ("input", "f16", kv * t * d),
        ("input", "f16", kv * t * d),
        ("input", "f16", s * t),
        ("output", "f16", kv * rep * s * d),
    )
    heads = [kv, rep, s]
    with program as f:
        q = f.load(0, d, [(kv, rep * pitch), (rep, pitch), (s, kv * rep * pitch)])
        scores = f.contraction(q, f.load(1, d, packed([kv, t], d)), heads, [0], transposed=True)
        mask = f.load(3, t, [(s, t)])

        def scaled(x: list[ir.Value]) -> ir.Value:
            return arith.AddFOp(arith.MulFOp(x[0], number(d**-0.5)).result, f32(x[1])).result

        scores = f.pointwise([scores, mask], [[0, 1, 2], [2]], heads, scaled, "f32")
        most = f.reduction(scores, float("-inf"), lambda x: arith.MaximumFOp(x[1], x[0]).result, t)
        powers = f.pointwise([scores, most], [[0, 1, 2]] * 2, heads, lambda x: math.exp(arith.SubFOp(x[0], x[1]).result), "f32")
        total = f.reduction(powers, 0.0, lambda x: arith.AddFOp(x[1], x[0]).result, t)

        def share(x: list[ir.Value]) -> ir.Value:
            part = f16(arith.DivFOp(x[0], x[1]).result)
            return part if t % LANES == 0 else arith.SelectOp(_live(0, 4, t), part, number(0.0, ir.F16Type.get())).result

        parts = f.pointwise([powers, total], [[0, 1, 2]] * 2, heads, share)
        values = f.contraction(parts, f.load(2, d, packed([kv, t], d)), heads, [0])
        out = f.pointwise([values], [[0, 1, 2]], heads, rounded)
        f.store(out, 4, d, [(kv, rep * d), (rep, d), (s, kv * rep * d)])
    return program


def rotation(heads: int, s: int, d: int) -> LaidOut:
    """x [s, heads, d] into [heads, s, d], its halves swapped and one negated, times sin [s, d], plus x times cos: through a pool."""
    half, pitch = d // 2, -(-d // LANES) * LANES
    n = heads * s
    program = LaidOut(
        ("input", "f16", n * pitch), ("input", "f16", s * d), ("input", "f16", s * d), ("pool", "f16", n * pitch), ("output", "f16", n * d)
    )
    across: Rows = [(heads, pitch), (s, heads * pitch)]
    with program as f:
        right = f.pointwise([f.load(0, half, across, start=half)], [[0, 1]], [heads, s], negated)
        f.store(right, 3, half, packed([heads, s], pitch))
        f.store(f.load(0, half, across), 3, half, packed([heads, s], pitch), start=half)
        x, turned = f.load(0, d, across), f.load(3, d, packed([heads, s], pitch))
        cos, sin = (f.load(b, d, [(s, d)]) for b in (1, 2))
        product = f.pointwise([x, cos], [[0, 1], [1]], [heads, s], lambda v: arith.MulFOp(f32(v[0]), f32(v[1])).result, "f32")

        def both(v: list[ir.Value]) -> ir.Value:
            return f16(arith.AddFOp(v[0], arith.MulFOp(f32(v[1]), f32(v[2])).result).result)

        f.store(f.pointwise([product, turned, sin], [[0, 1], [0, 1], [1]], [heads, s], both), 4, d, packed([heads, s], d))
    return program


def cache_update(heads: int, s: int, length: int, d: int) -> LaidOut:
    """A cache [heads, length, d] of zeros gets -x [heads, s, d] at positions [s]; then its rows are summed."""
    program = LaidOut(
        ("input", "f16", heads * s * d), ("input", "i32", s), ("input_output", "f16", heads * length * d), ("output", "f32", heads * length)
    )
    cache = packed([heads, length], d)
    with program as f:
        f.store(f.filled([-(-d // LANES), heads, length, LANES], 0.0, "f16"), 2, d, cache)
        x = f.pointwise([f.load(0, d, packed([heads, s], d))], [[0, 1]], [heads, s], negated)
        ktdp.store(x, f.indirect(2, d, [(heads, length * d, None), (length, d, s)], 1))
        stored = list(f.block.operations)[-1].operation
        stored.attributes["ktir.ordered"] = ir.UnitAttr.get()
        total = f.reduction(f.load(2, d, cache), 0.0, lambda v: arith.AddFOp(v[1], v[0]).result, d)
        f.store(total, 3, 1, packed([heads, length], 1))
    return program


def embedding(s: int, vocabulary: int, d: int) -> LaidOut:
    """Rows of a table at indices [s], normalised by their sum of squares."""
    program = LaidOut(("input", "f16", vocabulary * d), ("input", "i32", s), ("output", "f16", s * d))
    with program as f:
        x = f.load_tile(f.indirect(0, d, [(vocabulary, d, s)], 1))
        squares = f.pointwise([x], [[0]], [s], lambda v: arith.MulFOp(f32(v[0]), f32(v[0])).result, "f32")
        total = f.reduction(squares, 0.0, lambda v: arith.AddFOp(v[1], v[0]).result, d)
        out = f.pointwise([x, total], [[0], [0]], [s], lambda v: f16(arith.MulFOp(f32(v[0]), math.rsqrt(v[1])).result))
        f.store(out, 2, d, [(s, d)])
    return program


def vectors_times_matrices(batch: int, k: int, n: int, transposed: bool) -> LaidOut:
    """x [batch, k] times w [batch, k, n]: matmuls without rows."""
    program = LaidOut(("input", "f16", batch * k), ("input", "f16", batch * k * n), ("output", "f16", batch * n))
    with program as f:
        matrix = f.load(1, k, packed([batch, n], k)) if transposed else f.load(1, n, packed([batch, k], n))
        product = f.contraction(f.load(0, k, packed([batch], k)), matrix, [batch], [0], transposed)
        f.store(f.pointwise([product], [[0]], [batch], rounded), 2, n, packed([batch], n))
    return program


def experts(tokens: int, s: int, number_: int, k: int, n: int) -> LaidOut:
    """x [tokens, s, k] times the weights [number, k, n] of the expert that [tokens] tells."""
    program = LaidOut(
        ("input", "f16", tokens * s * k), ("input", "f16", number_ * k * n), ("input", "i32", tokens), ("output", "f16", tokens * s * n)
    )
    with program as f:
        weights = f.load_tile(f.indirect(1, n, [(number_, k * n, tokens), (k, n, None)], 2))
        product = f.contraction(f.load(0, k, packed([tokens, s], k)), weights, [tokens, s], [0])
        f.store(f.pointwise([product], [[0, 1]], [tokens, s], rounded), 3, n, packed([tokens, s], n))
    return program


def projection(batch: int, s: int, k: int, n: int) -> LaidOut:
    """x [batch, s, k] times w [k, n] plus a bias [n], into [batch, n, s]: a matmul with two row loops, transposed in memory."""
    program = LaidOut(("input", "f16", batch * s * k), ("input", "f16", k * n), ("input", "f16", n), ("output", "f16", batch * s * n))
    with program as f:
        product = f.contraction(f.load(0, k, packed([batch, s], k)), f.load(1, n, packed([k], n)), [batch, s], [])
        out = f.pointwise([product, f.load(2, n)], [[0, 1], []], [batch, s], added)
        f.store(out, 3, n, [(batch, n * s), (s, 1)], lane=s)
    return program


def transposes(a: int, b: int, d: int) -> LaidOut:
    """x [a, b, d] + y [b, a, d], the maximum over d of that, and both read again in the other order."""
    n = a * b
    program = LaidOut(("input", "f16", n * d), ("input", "f16", n * d), ("output", "f32", n), ("output", "f16", n * d))
    with program as f:
        x, y = f.load(0, d, packed([a, b], d)), f.load(1, d, packed([b, a], d))
        total = f.pointwise([x, y], [[0, 1], [1, 0]], [a, b], added)
        f.store(f.reduction(total, float("-inf"), lambda v: arith.MaximumFOp(v[1], v[0]).result, d), 2, 1, packed([a, b], 1))
        f.store(f.pointwise([total, y], [[1, 0], [0, 1]], [b, a], added), 3, d, packed([b, a], d))
    return program


def in_place(a: int, b: int, d: int) -> LaidOut:
    """x += y, z = x; then the first halves of x's rows get their second halves, which an op reads before and after."""
    half = d // 2
    program = LaidOut(
        ("input_output", "f16", a * b * d), ("input", "f16", a * b * d), ("output", "f16", a * b * d), ("output", "f16", a * b * half)
    )
    whole = packed([a, b], d)
    with program as f:
        x = f.load(0, d, whole)
        total = f.pointwise([x, f.load(1, d, whole)], [[0, 1]] * 2, [a, b], added)
        f.store(total, 0, d, whole)
        f.store(f.load(0, d, whole), 2, d, whole)
        left = f.load(0, half, whole)
        f.store(f.load(0, half, whole, start=half), 0, half, whole)
        again = f.load(0, half, whole)
        f.store(f.pointwise([left, again], [[0, 1]] * 2, [a, b], added), 3, half, packed([a, b], half))
    return program
