"""Kernels at the divided level, written op by op: what the passes below it are tested on.

A buffer is linear, as the device has it. `Divided.load` and `store` make the per-core view of a tensor on it: sticks, row loops, lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from builders import Body, element_type, f16, f32, index, number

from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects.structured import affine_map, fill, generic
from ktir.mlir import arith, func, ir, linalg, math, tensor

LANES = 64
Dim = tuple[int | None, int, int]
"""A row dim of a tensor: the axis that it runs along (None: none, then its extent counts), its extent, its stride in elements."""


def _argument(number_: int, elements: int) -> ir.Attribute:
    """Attributes of a linear device argument that shows a host array as it is."""
    count, dtype = abs(elements), element_type("i32" if elements < 0 else "f16")
    layout = kt.LayoutAttr.build([count], [-(-count // LANES), LANES], [LANES, 1], dtype)
    host = kt.HostViewAttr.build(number_, 0, [count], [1])
    role, name = ir.StringAttr.get("input_output"), ir.StringAttr.get(f"a{number_}")
    return ir.DictAttr.get({"ktir.name": name, "ktir.role": role, "ktir.layout": layout, "ktir.host": host})


class Divided:
    """One kernel over axes of `extents`, split in `splits` parts, and an entry that calls it. Used as a context manager, inside of which
    ops are added.

    `buffers`: the elements of each argument; a negative number counts i32 elements.
    """

    def __init__(self, buffers: Sequence[int], extents: Sequence[int], splits: Sequence[int]) -> None:
        arguments = len(buffers)
        self.extents, self.splits = list(extents), list(splits)
        self.shares = [-(-e // s) for e, s in zip(extents, splits, strict=True)]
        self.location = ir.Location.file("divided.mlir", 1, 1)
        with self.location:
            self.module = ir.Module.create()
        self.module.operation.attributes["ktir.level"] = ir.StringAttr.get("divided")
        with ir.InsertionPoint(self.module.body), self.location:
            entry = func.FuncOp("forward", ([ir.IndexType.get()] * arguments, []))
            entry.attributes["arg_attrs"] = ir.ArrayAttr.get([_argument(i, n) for i, n in enumerate(buffers)])
            kernel = func.FuncOp("kernel", ([ir.IndexType.get()] * arguments, []))
        kernel.attributes["grid"] = ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IntegerType.get_signless(64), prod(splits))])
        kernel.attributes["ktir.rows"] = ir.DenseI64ArrayAttr.get(self.extents)
        kernel.attributes["ktir.work"] = kt.WorkAttr.build([1, *splits, 1], [1, *self.shares, LANES])
        self.block = kernel.add_entry_block([self.location] * arguments)
        block = entry.add_entry_block([self.location] * arguments)
        with ir.InsertionPoint(block), self.location:
            func.CallOp([], "kernel", list(block.arguments))
            func.ReturnOp([])

    def __enter__(self) -> Divided:
        self.point = ir.InsertionPoint(self.block)
        self.point.__enter__()
        self.location.__enter__()
        (core,) = ktdp.get_compute_tile_id()
        self.first: list[ir.Value] = []
        self.own: list[int | ir.Value] = []
        for a, (extent, share) in enumerate(zip(self.extents, self.shares, strict=True)):
            part = arith.RemUIOp(arith.DivUIOp(core, index(prod(self.splits[a + 1 :]))).result, index(self.splits[a])).result
            self.first.append(arith.MulIOp(part, index(share)).result)
            left = arith.SubIOp(index(extent), self.first[a]).result
            self.own.append(share if extent % share == 0 else arith.MinSIOp(left, index(share)).result)
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            func.ReturnOp([])
        self.location.__exit__(*error)
        self.point.__exit__(*error)

    # Memory

    def _view(self, argument: int, sizes: list[int | ir.Value], strides: list[int], dtype: str, offset: ir.Value, columns: int) -> ir.Value:
        attributes = {}
        if columns % LANES:
            extents = [s if isinstance(s, int) else None for s in sizes]
            attributes = {"coordinate_set": affine.clipped(extents, 0, columns - 1), "masked": ir.UnitAttr.get()}
        return ktdp.construct_memory_view(offset, sizes, strides, element_type(dtype), attributes=attributes)

    def _part(self, argument: int, rows: Sequence[Dim], start: int = 0) -> tuple[ir.Value, list[int | ir.Value], list[int]]:
        """Offset, sizes and shares of a core's part."""
        offset = self.block.arguments[argument]
        if start:
            offset = arith.AddIOp(offset, index(start)).result
        sizes: list[int | ir.Value] = []
        shares: list[int] = []
        for axis, extent, stride in rows:
            if axis is not None and self.splits[axis] > 1:
                offset = arith.AddIOp(offset, arith.MulIOp(self.first[axis], index(stride)).result).result
            sizes.append(extent if axis is None else self.own[axis])
            shares.append(extent if axis is None else self.shares[axis])
        return offset, sizes, shares

    def tile(self, argument: int, columns: int, rows: Sequence[Dim], dtype: str = "f16", lane: int = 1, start: int = 0) -> ir.Value:
        """The tile of a core's part: `columns` in sticks with a stride of `lane` elements, and rows; without row dims there is one row."""
        offset, sizes, shares = self._part(argument, rows, start)
        sticks = -(-columns // LANES)
        if not rows:
            sizes, shares, rows = [1], [1], [(None, 1, LANES)]
        view = self._view(argument, [sticks, *sizes, LANES], [LANES * lane, *(s for _, _, s in rows), lane], dtype, offset, columns)
        return ktdp.construct_access_tile(view, [0] * (len(rows) + 2), [sticks, *shares, LANES])

    def load(self, argument: int, columns: int, rows: Sequence[Dim] = (), dtype: str = "f16", lane: int = 1, start: int = 0) -> ir.Value:
        """A core's part of a tensor."""
        return ktdp.load(self.tile(argument, columns, rows, dtype, lane, start), element_type(dtype))

    def store(self, value: ir.Value, argument: int, columns: int, rows: Sequence[Dim] = (), lane: int = 1, start: int = 0) -> None:
        """Store a value to a core's part of a tensor."""
        dtype = str(ir.RankedTensorType(value.type).element_type)
        ktdp.store(value, self.tile(argument, columns, rows, dtype, lane, start))

    def indirect(
        self, argument: int, columns: int, rows: Sequence[Dim], where: int, extent: int, stride: int, indices: tuple[int, Sequence[Dim]]
    ) -> ir.Value:
        """The tile [sticks, rows.., lanes] where the memory has one dim more, `where`, of `extent` positions, that an index tells.

        `rows` with stride 0 are walked by the index alone. `indices`: the buffer of i32 indices and its dims, whose axes are those of rows.
        """
        sticks = -(-columns // LANES)
        offset, sizes, shares = self._part(argument, rows)
        number_, walks = indices
        at, counts, _ = self._part(number_, walks)
        index_view = ktdp.construct_memory_view(at, counts, [s for _, _, s in walks], element_type("i32"))
        variable = {axis: 1 + i for i, (axis, _, _) in enumerate(rows)}
        direct = [i for i, (_, _, s) in enumerate(rows) if s]
        view_sizes: list[int | ir.Value] = [sticks, *(sizes[i] for i in direct), LANES]
        strides = [LANES, *(rows[i][2] for i in direct), 1]
        subscripts: list = [ir.AffineExpr.get_dim(0), *(ir.AffineExpr.get_dim(1 + i) for i in direct), ir.AffineExpr.get_dim(1 + len(rows))]
        view_sizes.insert(where, extent)
        strides.insert(where, stride)
        subscripts.insert(where, (index_view, [ir.AffineExpr.get_dim(variable[axis]) for axis, _, _ in walks]))
        uneven = next((i for i, s in enumerate(sizes) if not isinstance(s, int) and i not in direct), None)
        if uneven is not None:  # which rows are there
            view_sizes.insert(len(view_sizes) - 1, sizes[uneven])
            strides.insert(len(strides) - 1, 0)
            subscripts.insert(len(subscripts) - 1, ir.AffineExpr.get_dim(1 + uneven))
        view = self._view(argument, view_sizes, strides, "f16", offset, columns)
        return ktdp.construct_indirect_access_tile(view, subscripts, [sticks, *shares, LANES])

    # Ops

    def pointwise(
        self, inputs: Sequence[ir.Value], axes: Sequence[Sequence[int]], body: Body, dtype: str = "f16", columns: Sequence[int] = ()
    ) -> ir.Value:
        """An op over all axes. `axes`: those that each input has; `columns`: the inputs that have one value per row, in lane 0."""
        loops = len(self.extents) + 2
        sticks = max(ir.RankedTensorType(v.type).shape[0] for i, v in enumerate(inputs) if i not in columns)
        maps = []
        for i, own in enumerate(axes):
            rows = [1 + a for a in own] or [None]
            maps.append(affine_map(loops, [None, *rows, None] if i in columns else [0, *rows, loops - 1]))
        init = tensor.EmptyOp([sticks, *self.shares, LANES], element_type(dtype)).result
        maps.append(affine_map(loops, list(range(loops))))
        return generic(inputs, init, maps, ["parallel"] * loops, body, loc=self.location)

    def reduction(self, value: ir.Value, start: float, body: Body, columns: int) -> ir.Value:
        """`body([element, accumulator])` over sticks and lanes, in f32; lanes beyond `columns` do not count."""
        k = len(self.extents)
        empty = tensor.EmptyOp([1, *self.shares, LANES], ir.F32Type.get()).result
        init = fill(number(start), empty)
        maps = [affine_map(k + 2, [k, *range(k), k + 1]), affine_map(k + 2, [None, *range(k), None])]

        def masked(arguments: list[ir.Value]) -> ir.Value:
            element = arguments[0]
            if columns % LANES:
                at = arith.AddIOp(arith.MulIOp(linalg.IndexOp(k).result, index(LANES)).result, linalg.IndexOp(k + 1).result).result
                live = arith.CmpIOp(arith.CmpIPredicate.ult, at, index(columns)).result
                element = arith.SelectOp(live, element, number(start)).result
            return body([element, arguments[1]])

        return generic([value], init, maps, ["parallel"] * k + ["reduction"] * 2, masked, loc=self.location)

    def contraction(self, a: ir.Value, b: ir.Value, batches: Sequence[int], transposed: bool = False, rows: int | None = None) -> ir.Value:
        """A product of `a` with `b` as it is loaded: [n, batches.., K, j], or `transposed` [k, batches.., N, i]. `rows`: its row axes, if
        the row axis has none.
        """
        k = len(self.extents) if rows is None else rows
        shape = list(ir.RankedTensorType(b.type).shape)
        blocks = -(-shape[-2] // LANES)
        if shape[-2] % LANES:
            b = _padded(b, blocks * LANES)
        split = [*shape[:-2], blocks, LANES, LANES]
        last = len(shape) - 2
        groups = [[i] for i in range(last)] + [[last, last + 1], [last + 2]]
        f16_, f32_ = ir.F16Type.get(), ir.F32Type.get()
        b = tensor.ExpandShapeOp(ir.RankedTensorType.get(split, f16_), b, groups, [], split).result
        # loops: n, axes.., j, k, i
        n, j, kk, i, loops = 0, k + 1, k + 2, k + 3, k + 4
        own = [1 + axis for axis in batches]
        axes = [1 + axis for axis in range(k)]
        maps = [
            affine_map(loops, [kk, *(axes or [None]), i]),
            affine_map(loops, [kk, *own, n, j, i] if transposed else [n, *own, kk, i, j]),
            affine_map(loops, [n, *(axes or [None]), j]),
        ]
        empty = tensor.EmptyOp([blocks if transposed else shape[0], *(self.shares[:k] or [1]), LANES], f32_).result
        init = fill(number(0.0), empty)
        iterators = ["parallel"] * (k + 2) + ["reduction"] * 2

        def body(arguments: list[ir.Value]) -> ir.Value:
            return arith.AddFOp(arguments[2], arith.MulFOp(f32(arguments[0]), f32(arguments[1])).result).result

        return generic([a, b], init, maps, iterators, body, loc=self.location)


def _padded(value: ir.Value, rows: int) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    shape = list(type_.shape)
    more = rows - shape[-2]
    shape[-2] = rows
    high = [0] * len(shape)
    high[-2] = more
    pad = tensor.PadOp(ir.RankedTensorType.get(shape, type_.element_type), value, [], [], [0] * len(shape), high)
    block = ir.Block.create_at_start(pad.operation.regions[0], [ir.IndexType.get()] * len(shape), [ir.Location.current] * len(shape))
    with ir.InsertionPoint(block):
        tensor.YieldOp(number(0.0, type_.element_type))
    return pad.result


def attention(kv: int, rep: int, s: int, t: int, d: int, splits: Sequence[int]) -> ir.Module:
    """Grouped heads: q [kv, rep, s, d], k and v [kv, t, d], mask [s, t], out [kv, rep, s, d], each packed row-major."""
    kernel = Divided([kv * rep * s * d, kv * t * d, kv * t * d, s * t, kv * rep * s * d], [kv, rep, s], splits)
    queries: list[Dim] = [(0, kv, rep * s * d), (1, rep, s * d), (2, s, d)]
    with kernel as f:
        q = f.load(0, d, queries)
        keys = f.load(1, d, [(0, kv, t * d), (None, t, d)])
        scores = f.contraction(q, keys, [0], transposed=True)
        mask = f.load(3, t, [(2, s, t)])

        def scaled(x: list[ir.Value]) -> ir.Value:
            return arith.AddFOp(arith.MulFOp(x[0], number(d**-0.5)).result, f32(x[1])).result

        scores = f.pointwise([scores, mask], [[0, 1, 2], [2]], scaled, "f32")
        most = f.reduction(scores, float("-inf"), lambda x: arith.MaximumFOp(x[1], x[0]).result, t)
        powers = f.pointwise([scores, most], [[0, 1, 2]] * 2, lambda x: math.exp(arith.SubFOp(x[0], x[1]).result), "f32", [1])
        total = f.reduction(powers, 0.0, lambda x: arith.AddFOp(x[1], x[0]).result, t)
        loops = len(f.extents) + 2

        def share(x: list[ir.Value]) -> ir.Value:
            part = f16(arith.DivFOp(x[0], x[1]).result)
            if t % LANES == 0:
                return part
            at = arith.AddIOp(arith.MulIOp(linalg.IndexOp(0).result, index(LANES)).result, linalg.IndexOp(loops - 1).result).result
            live = arith.CmpIOp(arith.CmpIPredicate.ult, at, index(t)).result
            return arith.SelectOp(live, part, number(0.0, ir.F16Type.get())).result

        parts = f.pointwise([powers, total], [[0, 1, 2]] * 2, share, columns=[1])
        values = f.load(2, d, [(0, kv, t * d), (None, t, d)])
        out = f.pointwise([f.contraction(parts, values, [0])], [[0, 1, 2]], lambda x: f16(x[0]))
        f.store(out, 4, d, queries)
    return kernel.module


def rotation(heads: int, s: int, d: int, splits: Sequence[int]) -> ir.Module:
    """x [s, heads, d] times cos and sin [s, d] into [heads, s, d]: transposed in memory."""
    kernel = Divided([s * heads * d, s * d, s * d, heads * s * d], [heads, s], splits)
    with kernel as f:
        x = f.load(0, d, [(0, heads, d), (1, s, heads * d)])
        cos, sin = (f.load(a, d, [(1, s, d)]) for a in (1, 2))

        def turned(v: list[ir.Value]) -> ir.Value:
            a, c, b = (f32(e) for e in v[:3])
            return f16(arith.AddFOp(arith.MulFOp(a, c).result, b).result)

        f.store(f.pointwise([x, cos, sin], [[0, 1], [1], [1]], turned), 3, d, [(0, heads, s * d), (1, s, d)])
    return kernel.module


def embedding(s: int, vocabulary: int, d: int, cores: int) -> ir.Module:
    """Rows of a table [vocabulary, d] at indices [s], doubled, into [s, d]."""
    kernel = Divided([vocabulary * d, -s, s * d], [s], [cores])
    with kernel as f:
        tile = f.indirect(0, d, [(0, s, 0)], 1, vocabulary, d, (1, [(0, s, 1)]))
        rows = ktdp.load(tile, ir.F16Type.get())
        f.store(f.pointwise([rows], [[0]], lambda v: arith.AddFOp(v[0], v[0]).result), 2, d, [(0, s, d)])
    return kernel.module


def cache_update(heads: int, s: int, length: int, d: int, splits: Sequence[int]) -> ir.Module:
    """x [heads, s, d] into a cache [heads, length, d] at positions [s]."""
    kernel = Divided([heads * s * d, -s, heads * length * d], [heads, s], splits)
    with kernel as f:
        x = f.load(0, d, [(0, heads, s * d), (1, s, d)])
        x = f.pointwise([x], [[0, 1]], lambda v: arith.NegFOp(v[0]).result)
        ktdp.store(x, f.indirect(2, d, [(0, heads, length * d), (1, s, 0)], 2, length, d, (1, [(1, s, 1)])))
    return kernel.module


def batched(batch: int, k: int, n: int, cores: int, transposed: bool) -> ir.Module:
    """A vector [batch, k] times a matrix [batch, k, n] (or [batch, n, k]) each: no row axis."""
    kernel = Divided([batch * k, batch * k * n, batch * n], [batch, 1], [cores, 1])
    with kernel as f:
        a = f.load(0, k, [(0, batch, k)])
        matrix: list[Dim] = [(0, batch, k * n), (None, n, k) if transposed else (None, k, n)]
        product = f.contraction(a, f.load(1, k if transposed else n, matrix), [0], transposed, rows=1)
        init = tensor.EmptyOp([-(-n // LANES), f.shares[0], LANES], ir.F16Type.get()).result
        out = generic([product], init, [affine_map(3, [0, 1, 2])] * 2, ["parallel"] * 3, lambda v: f16(v[0]), loc=f.location)
        f.store(out, 2, n, [(0, batch, n)])
    return kernel.module


def experts(tokens: int, s: int, number_: int, k: int, n: int, splits: Sequence[int]) -> ir.Module:
    """x [tokens, s, k] times the weights [number, k, n] of the expert that [tokens] tells."""
    kernel = Divided([tokens * s * k, number_ * k * n, -tokens, tokens * s * n], [tokens, s], splits)
    with kernel as f:
        a = f.load(0, k, [(0, tokens, s * k), (1, s, k)])
        tile = f.indirect(1, n, [(0, tokens, 0), (None, k, n)], 1, number_, k * n, (2, [(0, tokens, 1)]))
        product = f.contraction(a, ktdp.load(tile, ir.F16Type.get()), [0])
        f.store(f.pointwise([product], [[0, 1]], lambda v: f16(v[0])), 3, n, [(0, tokens, s * n), (1, s, n)])
    return kernel.module
