"""A small NumPy evaluator of logical modules: whole arrays, no claim to machine order. Independent of the product's executor."""

from typing import Any

import numpy as np

from ktir.mlir import ir

_UNARY: dict[str, Any] = {
    "arith.negf": np.negative,
    "math.absf": np.abs,
    "math.exp": np.exp,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: (1 / np.sqrt(x, dtype=np.float32)).astype(x.dtype),
    "math.tanh": np.tanh,
    "math.erf": lambda x: _erf(x),
}
_BINARY: dict[str, Any] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
}


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x).astype(x.dtype)


def _dtype(type_: ir.Type) -> Any:
    return {"f16": np.float16, "f32": np.float32}[str(type_)]


def _ints(attribute: ir.Attribute) -> list[int]:
    return list(ir.DenseI64ArrayAttr(attribute))


class Evaluator:
    """Runs the one function of a module on flat arrays, one per argument; outputs are written in place."""

    def __init__(self, module: ir.Module, buffers: list[np.ndarray]) -> None:
        function = module.body.operations[0].operation
        block = function.regions[0].blocks[0]
        self.values: dict[ir.Value, Any] = {a: (b, 0) for a, b in zip(block.arguments, buffers, strict=True)}
        for op in block.operations:
            self.run(op.operation)

    def run(self, op: ir.Operation) -> None:
        operands = [self.values[v] for v in op.operands]
        method = getattr(self, op.name.split(".")[1], None)
        if op.name == "func.return":
            return
        assert method is not None, op.name
        result = method(op, *operands)
        if op.results:
            self.values[op.results[0]] = result

    def constant(self, op: ir.Operation) -> Any:
        value = op.attributes["value"]
        return _dtype(op.results[0].type)(ir.FloatAttr(value).value) if isinstance(value, ir.FloatAttr) else ir.IntegerAttr(value).value

    def addi(self, op: ir.Operation, base: Any, offset: int) -> Any:
        return (base[0], base[1] + offset)

    def construct_memory_view(self, op: ir.Operation, base: Any) -> np.ndarray:
        buffer, offset = base
        sizes, strides = _ints(op.attributes["static_sizes"]), _ints(op.attributes["static_strides"])
        assert all(s >= 0 for s in strides)
        assert 0 <= offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) < buffer.size, "view exceeds its buffer"
        width = buffer.itemsize
        return np.lib.stride_tricks.as_strided(buffer[offset:], sizes, [s * width for s in strides])

    def construct_access_tile(self, op: ir.Operation, view: np.ndarray) -> np.ndarray:
        return view

    def load(self, op: ir.Operation, tile: np.ndarray) -> np.ndarray:
        type_ = ir.RankedTensorType(op.results[0].type)
        assert tile.dtype == _dtype(type_.element_type)
        assert list(tile.shape) == list(type_.shape)
        return tile.copy()

    def store(self, op: ir.Operation, value: np.ndarray, tile: np.ndarray) -> None:
        assert tile.shape == value.shape
        assert tile.dtype == value.dtype
        tile[...] = value

    def empty(self, op: ir.Operation) -> np.ndarray:
        type_ = ir.RankedTensorType(op.results[0].type)
        return np.full(list(type_.shape), 6e4, _dtype(type_.element_type))  # poison: must never show

    def fill(self, op: ir.Operation, scalar: Any, out: np.ndarray) -> np.ndarray:
        return np.full(out.shape, scalar, out.dtype)

    def collapse_shape(self, op: ir.Operation, value: np.ndarray) -> np.ndarray:
        return value.reshape(list(ir.RankedTensorType(op.results[0].type).shape))

    expand_shape = collapse_shape

    def generic(self, op: ir.Operation, *operands: np.ndarray) -> np.ndarray:
        *inputs, init = operands
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
        reduced = ["reduction" in str(i) for i in ir.ArrayAttr(op.attributes["iterator_types"])]
        positions = [[ir.AffineDimExpr(e).position for e in m.results] for m in maps]
        ranges: dict[int, int] = {}
        for where, array in zip(positions, operands, strict=True):
            for loop, n in zip(where, array.shape, strict=True):
                assert ranges.setdefault(loop, n) == n
        shape = [ranges[k] for k in range(len(reduced))]
        block = op.regions[0].blocks[0]
        spaces = [_spread(a, w, len(reduced)) for a, w in zip(inputs, positions[:-1], strict=True)]
        if not any(reduced):
            known = dict[ir.Value, Any](zip(block.arguments, [*spaces, None], strict=True))
            result = np.broadcast_to(self.body(block, known), shape)
            return np.ascontiguousarray(result.transpose(positions[-1])).astype(init.dtype).reshape(init.shape)
        *mapped, last = [o.operation for o in block.operations][:-1]
        assert last.operands[0] == block.arguments[-1]
        known = dict[ir.Value, Any](zip(block.arguments, [*spaces, None], strict=True))
        for inner in mapped:
            self.scalar(inner, known)
        value = np.broadcast_to(known[last.operands[1]], shape)
        axis = reduced.index(True)
        fold = {"arith.addf": np.sum, "arith.maximumf": np.max, "arith.minimumf": np.min}[last.name]
        total = fold(value.astype(np.float64), axis=axis).astype(init.dtype)
        return np.asarray(_BINARY[last.name](total, init))

    def body(self, block: ir.Block, known: dict[ir.Value, Any]) -> Any:
        *ops, last = [o.operation for o in block.operations]
        for op in ops:
            self.scalar(op, known)
        return known[last.operands[0]]

    def scalar(self, op: ir.Operation, known: dict[ir.Value, Any]) -> None:
        operands = [known[v] for v in op.operands]
        with np.errstate(all="ignore"):
            if op.name == "arith.constant":
                result = self.constant(op)
            elif op.name in ("arith.extf", "arith.truncf"):
                result = operands[0].astype(_dtype(op.results[0].type))
            else:
                result = (_UNARY | _BINARY)[op.name](*operands)
        assert np.asarray(result).dtype == _dtype(op.results[0].type), op.name
        known[op.results[0]] = result


def _spread(array: np.ndarray, where: list[int], rank: int) -> np.ndarray:
    """`array` with its dims at the loops `where`, size 1 elsewhere."""
    order = np.argsort(where)
    shape = [1] * rank
    for d in order:
        shape[where[d]] = array.shape[d]
    return array.transpose(order).reshape(shape)
