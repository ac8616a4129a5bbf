"""A loop interpreter: runs a Region on NumPy arrays, each nest over its whole iteration space at once. An oracle, independent of the
translator and of MLIR.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ktir.lowering.region_to_ktir.region import Buffer, Nest, Record, Region

HALVES = ("float16", "bfloat16")


def _torch(name: str) -> Callable[..., np.ndarray]:
    function = getattr(torch, name)
    return lambda *xs: function(*(torch.from_numpy(np.array(x)) for x in xs)).numpy()


def _truncdiv(a: Any, b: Any) -> Any:
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.result_type(a, b))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dot": np.multiply,
    "mul_rn": np.multiply,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "div_rn": np.true_divide,
    "int_truediv": np.true_divide,
    "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "identity": lambda x: x,
    "pow": np.power,
    "round": np.round,
    "floordiv": np.floor_divide,
    "truncdiv": _truncdiv,
    "mod": np.fmod,
    "remainder": np.mod,
    "fma": lambda a, b, c: a * b + c,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "acosh": np.arccosh,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "trunc_to_int": np.trunc,
    "floor_to_int": np.floor,
    "ceil_to_int": np.ceil,
    "round_to_int": np.round,
    "erf": _torch("erf"),
    "erfinv": _torch("erfinv"),
    "lgamma": _torch("lgamma"),
    "digamma": _torch("digamma"),
}
REDUCTIONS: dict[str, Any] = {"sum": np.sum, "dot": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "any": np.any}


def carrier(dtype: str) -> Any:
    """The NumPy type in which values of a type are computed."""
    return np.dtype("float32" if dtype in HALVES else dtype)


class Memory:
    """The elements behind a tensor from its first one on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        count = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
        self.elements = torch.as_strided(tensor.detach(), (count,), (1,), tensor.storage_offset())

    def read(self, index: np.ndarray) -> np.ndarray:
        found = self.elements[torch.from_numpy(np.ascontiguousarray(index).reshape(-1))].reshape(index.shape)
        return (found.float() if found.dtype in (torch.float16, torch.bfloat16) else found).numpy()

    def write(self, index: np.ndarray, values: np.ndarray, accumulate: bool) -> None:
        converted = torch.from_numpy(np.array(values)).reshape(-1).to(self.elements.dtype)
        self.elements.index_put_((torch.from_numpy(np.ascontiguousarray(index).reshape(-1)),), converted, accumulate=accumulate)


def run(region: Region, tensors: Sequence[torch.Tensor]) -> None:
    """Run a region on the tensors of its arguments; outputs are written in place."""
    memory = dict(zip(region.arguments, map(Memory, tensors), strict=True))
    for name, buffer in region.buffers.items():
        if buffer.role == "temp":
            memory[name] = Memory(_storage(buffer))
    with np.errstate(all="ignore"):
        for nest in region.nests:
            Interpreter(nest, memory).run()


def _storage(buffer: Buffer) -> torch.Tensor:
    dtype = getattr(torch, buffer.dtype)
    poison = 1e30 if dtype.is_floating_point else 1
    elements = 1 + sum((n - 1) * s for n, s in zip(buffer.size, buffer.stride, strict=True))
    return torch.full((elements,), poison, dtype=torch.float64).to(dtype)


class Interpreter:
    """One nest. Loops are axes, the reduction's last."""

    def __init__(self, nest: Nest, memory: Mapping[str, Memory]) -> None:
        self.nest, self.memory = nest, memory
        self.dims = [n for _, n in nest.loops]
        self.outer = len(nest.iteration)
        rank = len(self.dims)
        self.at: dict[str, Any] = {
            v: np.arange(n, dtype=np.int64).reshape([-1 if d == axis else 1 for d in range(rank)]) for axis, (v, n) in enumerate(nest.loops)
        }
        self.values: dict[str, Any] = {}

    def run(self) -> None:
        self.body(self.nest.body, None)

    def whole(self, name: str) -> np.ndarray:
        return np.broadcast_to(self.values[name], self.dims)

    def body(self, records: Sequence[Record], mask: Any) -> None:
        for record in records:
            results = getattr(self, f"op_{record.op}", self.pointwise)(record, mask)
            if results is None:
                continue
            if not isinstance(results, tuple):
                results = (results,)
            for name, dtype, value in zip(record.results, record.dtypes or (record.dtype,), results, strict=True):
                self.values[name] = np.asarray(value).astype(carrier(dtype))

    def pointwise(self, record: Record, mask: Any) -> Any:
        function = FUNCTIONS.get(record.op) or getattr(np, record.op)
        return function(*(self.values[a] for a in record.args))

    def op_load(self, record: Record, mask: Any) -> Any:
        index = record.index.values(self.at)
        if mask is not None:
            index = np.where(mask, index, 0)
        return self.memory[record.buffer].read(index)

    def op_store(self, record: Record, mask: Any) -> None:
        index = record.index.values(self.at)
        values = self.values[record.args[0]]
        reduced = any(r.op == "reduction" for r in self.nest.body)
        dims = self.dims[: self.outer] + [1] * (len(self.dims) - self.outer) if reduced else self.dims
        self.memory[record.buffer].write(np.broadcast_to(index, dims), np.broadcast_to(values, dims), record.mode == "atomic_add")

    def op_constant(self, record: Record, mask: Any) -> Any:
        return np.array(record.value)

    def op_index_expr(self, record: Record, mask: Any) -> Any:
        return record.index.values(self.at)

    def op_to_dtype(self, record: Record, mask: Any) -> Any:
        return self.values[record.args[0]]

    def op_round_to(self, record: Record, mask: Any) -> Any:
        return torch.from_numpy(np.array(self.values[record.args[0]])).to(getattr(torch, record.dtype)).float().numpy()

    def op_to_dtype_bitcast(self, record: Record, mask: Any) -> Any:
        value = torch.from_numpy(np.array(self.values[record.args[0]])).to(getattr(torch, record.source))
        found = value.view(getattr(torch, record.dtype))
        return (found.float() if record.dtype in HALVES else found).numpy()

    def op_indirect(self, record: Record, mask: Any) -> None:
        value, size = np.asarray(self.values[record.args[0]]), int(record.size.values({}))
        if record.wrap:
            value = np.where(value < 0, value + size, value)
        if record.check and mask is None:
            assert ((value >= 0) & (value < size)).all(), "index out of range"
        self.at[record.out] = value

    def op_check_bounds(self, record: Record, mask: Any) -> None:
        index, size = record.index.values(self.at), record.size.values({})
        if mask is None:
            assert not record.option("lower") or (index >= 0).all()
            assert not record.option("upper") or (index < size).all()

    def op_masked(self, record: Record, mask: Any) -> Any:
        own = self.values[record.args[0]]
        self.body(record.body, own if mask is None else mask & own)
        return np.where(own, self.values[record.yields[0]], np.array(record.value))

    def op_reduction(self, record: Record, mask: Any) -> Any:
        axes = tuple(range(self.outer, len(self.dims)))
        x = self.whole(record.args[0]).astype(carrier(record.source))
        if record.kind in REDUCTIONS:
            more = {"dtype": carrier(record.dtype)} if record.kind in ("sum", "dot", "prod") else {}
            return REDUCTIONS[record.kind](x, axis=axes, keepdims=True, **more)
        if record.kind == "xor_sum":
            return np.bitwise_xor.reduce(x, axis=axes, keepdims=True)
        assert record.kind in ("argmax", "argmin")
        flat = torch.from_numpy(np.array(x.reshape([*self.dims[: self.outer], -1])))
        found = (torch.argmax if record.kind == "argmax" else torch.argmin)(flat, -1).numpy()
        return found.reshape([*self.dims[: self.outer], *[1] * len(axes)])

    def op_scan(self, record: Record, mask: Any) -> Any:
        rows = [np.moveaxis(self.whole(a), -1, 0) for a in record.args]
        dims, self.dims = self.dims, self.dims[:-1]
        state = [r[0] for r in rows]
        found = [[s] for s in state]
        for t in range(1, dims[-1]):
            for i, (s, row) in enumerate(zip(state, rows, strict=True)):
                self.values[f"%a{i}"], self.values[f"%b{i}"] = s, row[t]
            self.body(record.body, None)
            state = [self.values[y] for y in record.yields]
            for column, s in zip(found, state, strict=True):
                column.append(s)
        self.dims = dims
        return tuple(np.moveaxis(np.stack(column), 0, -1) for column in found)

    def op_sort(self, record: Record, mask: Any) -> Any:
        columns = [self.whole(a) for a in record.args]
        key = torch.from_numpy(np.array(columns[0]))
        order = torch.sort(key, dim=-1, stable=True, descending=bool(record.option("descending"))).indices.numpy()
        return tuple(np.take_along_axis(c, order, -1) for c in columns)

    def op_bucketize(self, record: Record, mask: Any) -> Any:
        value, start = (np.asarray(self.values[a]) for a in record.args)
        count, stride = int(record.size.values({})), int(record.option("stride"))
        less = operator.le if record.option("right") else operator.lt
        found = np.zeros(np.broadcast_shapes(value.shape, start.shape), np.int64)
        for i in range(count):
            found += less(self.memory[record.buffer].read(np.asarray(start + i * stride)), value)
        return found
