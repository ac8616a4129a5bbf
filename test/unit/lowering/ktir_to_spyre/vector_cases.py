"""Scalar bodies as tiled kernels: every op that the vector unit has, on the values where formats end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from tiled_kernels import LANES, Argument, Kernel, Tiled, tiled

from ktir.dialects.structured import affine_map, generic
from ktir.mlir import arith, ir, tensor

TYPES = {"f16": np.float16, "f32": np.float32, "i32": np.int32}
EDGES: dict[str, list[float]] = {
    "f16": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 6e-8, -7e-6, 0.1, 3.14, 2047.0, 65504.0, -65504.0, np.inf, -np.inf, np.nan],
    "f32": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-45, -1e-40, 0.1, 3.14, 8388609.0, 65520.0, 2.0**31, -(2.0**31), 3e9, 1e20, -3.4e38,
            np.inf, -np.inf, np.nan],
    "i32": [0, 1, -1, 2, -2, 7, -7, 31, 32, 33, 65519, 65520, 2**24 + 1, 2**31 - 1, -(2**31), -(2**31) + 1],
}  # fmt: skip


def op(name: str, result: str, *operands: ir.Value, **attributes: int) -> ir.Value:
    """A scalar op by name; integer attributes are i64."""
    i64 = ir.IntegerType.get_signless(64)
    given = {k: ir.IntegerAttr.get(i64, v) for k, v in attributes.items()}
    return ir.Operation.create(name, [ir.Type.parse(result)], list(operands), given).result


def number(value: float, type_: str) -> ir.Value:
    """A constant of a body."""
    element = ir.Type.parse(type_)
    attribute = ir.IntegerAttr.get(element, int(value)) if type_[0] == "i" else ir.FloatAttr.get(element, value)
    return arith.ConstantOp(element, attribute).result


def shown(value: ir.Value) -> ir.Value:
    """A mask as i32."""
    return op("arith.extui", "i32", value) if str(value.type) == "i1" else value


def edge_rows(types: Sequence[str], keep: Callable[..., bool] = lambda *_: True, seed: int = 0) -> list[np.ndarray]:
    """Columns of all combinations of edge values and of random bits, for operands of these types."""
    rows = [r for r in itertools.product(*(EDGES[t][: 16 if len(types) < 3 else 9] for t in types)) if keep(*r)]
    columns = [np.array(c, np.float64) for c in zip(*rows, strict=True)]
    rng = np.random.default_rng(seed)
    out = []
    for t, c in zip(types, columns, strict=True):
        bits = rng.integers(-(2**31), 2**31, 150).astype(np.int32)
        extra = bits.view(np.float32) if t == "f32" else bits.astype(np.int16).view(np.float16) if t == "f16" else bits
        with np.errstate(all="ignore"):
            out.append(np.concatenate([c.astype(TYPES[t]), extra]))
    return out


def elementwise(
    types: Sequence[str], result: str, body: Callable[..., ir.Value], values: Sequence[np.ndarray]
) -> tuple[Tiled, dict[str, np.ndarray]]:
    """y = body(x0, x1, ..) on two cores with rows of 100 elements, the last row cut."""
    pitch, block = 100, 4
    elements = len(values[0])
    rows = -(-elements // pitch)
    half = -(-rows // 2)
    share = -(-half // block) * block
    arguments = [*(Argument(f"x{i}", "input", rows * pitch, t) for i, t in enumerate(types)), Argument("y", "output", rows * pitch, result)]

    def kernel(k: Kernel) -> None:
        first, own = k.share(rows, share, 2)
        own = own if not isinstance(own, int) else k.index(own)
        at = k.times(first, pitch)
        views = [k.view(a.name, at, [2, own, LANES], [LANES, pitch, 1], cut=pitch) for a in arguments]
        with k.loop(share, block) as loop:
            r = loop.induction_variable
            tiles = [k.load(v, [0, r, 0], [2, block, LANES]) for v in views[:-1]]
            k.store(k.pointwise(lambda *a: shown(body(*a)), [2, block, LANES], result, *tiles), views[-1], [0, r, 0])

    given = {}
    for i, v in enumerate(values):
        given[f"x{i}"] = np.resize(v, rows * pitch)
    return tiled(2, arguments, kernel), given


def produced(result: str, body: Callable[[], ir.Value]) -> Tiled:
    """y = body(), a tensor without operands."""

    def kernel(k: Kernel) -> None:
        init = tensor.EmptyOp([2, 2, LANES], ir.Type.parse(result)).result
        value = generic([], init, [affine_map(3, [0, 1, 2])], ["parallel"] * 3, lambda a: body(), loc=ir.Location.current)
        k.store(value, k.view("y", k.times(k.core, 256), [2, 2, LANES], [LANES, 2 * LANES, 1]), [0, 0, 0])

    return tiled(3, [Argument("y", "output", 768, result)], kernel)


def reduction(
    combiner: str, identity: float, result: str, inputs: Sequence[str], body: Callable[..., ir.Value], rows: int, columns: int
) -> Tiled:
    """y[m] = combination of body(x0[m, k], x1[k], ..) over k: the first input is walked by rows, the others are one row."""
    n, block = -(-columns // LANES), rows + rows % 2
    shapes = [(rows, columns)] + [(1, columns)] * (len(inputs) - 1)
    arguments = [Argument(f"x{i}", "input", a * b, t) for i, ((a, b), t) in enumerate(zip(shapes, inputs, strict=True))]
    arguments.append(Argument("y", "output", rows * LANES, result))

    def kernel(k: Kernel) -> None:
        own = k.index(rows)
        tiles = []
        for i, a in enumerate(arguments[:-1]):
            extent: int | ir.Value = own if i == 0 else 1
            view = k.view(a.name, 0, [n, extent, LANES], [LANES, columns, 1], cut=columns)
            tiles.append(k.load(view, [0, 0, 0], [n, block if i == 0 else 1, LANES]))
        init = k.filled([1, block, LANES], result, identity)
        maps = [affine_map(3, [1, 0 if i == 0 else None, 2]) for i in range(len(tiles))] + [affine_map(3, [None, 0, None])]

        def mapped(a: list[ir.Value]) -> ir.Value:
            return op(combiner, result, a[-1], masked(body(*a[:-1]), columns, identity))

        total = generic(tiles, init, maps, ["parallel", "reduction", "reduction"], mapped, loc=ir.Location.current)
        out = k.view("y", 0, [1, own, LANES], [LANES, LANES, 1], cut=1)
        k.store(total, out, [0, 0, 0])

    return tiled(1, arguments, kernel)


def lanes_before(columns: int, stick: int = 1, lane: int = 2) -> ir.Value:
    """The condition 64 * stick + lane < columns."""
    index = ir.IndexType.get()

    def at(loop: int) -> ir.Value:
        return ir.Operation.create("linalg.index", [index], [], {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), loop)}).result

    scaled = arith.MulIOp(at(stick), arith.ConstantOp(index, LANES).result).result
    position = arith.AddIOp(scaled, at(lane)).result
    return arith.CmpIOp(arith.CmpIPredicate.ult, position, arith.ConstantOp(index, columns).result).result


def masked(value: ir.Value, columns: int, fill: float) -> ir.Value:
    """`value` in the lanes of a row, `fill` beyond."""
    return arith.SelectOp(lanes_before(columns), value, number(fill, str(value.type))).result
