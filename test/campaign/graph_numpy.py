"""What a logical program computes, in plain NumPy: op by op on whole arrays, and but for erf nothing shared with the executors.

Sums add in machine order, as the specification states it: sticks of 64 in sequence per lane, lanes by a halving tree; products of f16 in
blocks of 64, each rounded once. So the values are those of the executor to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from campaign.graph_text import DTYPES

from ktir.arithmetic import numerics
from ktir.assembly import parse_module
from ktir.context import context
from ktir.mlir import ir

Array = np.ndarray[Any, Any]


def _extreme(function: np.ufunc) -> Callable[..., Any]:
    """Of operands: MLIR orders zeros of different signs, NumPy takes either."""
    return lambda *xs: _extreme_along(function, np.stack(np.broadcast_arrays(*xs)), 0)


def _extreme_along(function: np.ufunc, x: Array, axis: int) -> Array:
    total = function.reduce(x, axis=axis)
    if x.dtype.kind != "f":
        return total
    least = function is np.minimum
    extreme_zero = np.float32(-0.0 if least else 0.0)
    among = ((x == 0) & (np.signbit(x) == least)).any(axis)
    return np.where(total == 0, np.where(among, extreme_zero, -extreme_zero), total).astype(x.dtype)


_FLOATS: dict[str, Callable[..., Any]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "negf": np.negative, "maximumf": _extreme(np.maximum),
    "minimumf": _extreme(np.minimum), "absf": np.abs, "sqrt": np.sqrt, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x), "erf": numerics.PLAIN["erf"],
}  # fmt: skip
"""On f32; an op on f16 rounds what these give. NumPy has no erf."""
_WIDE: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "log1p": np.log1p, "expm1": np.expm1, "exp2": np.exp2,
}  # fmt: skip
"""On f64, rounded to f32 and then to the type of the op."""
_INTEGERS: dict[str, Callable[..., Any]] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "maxsi": np.maximum, "minsi": np.minimum, "andi": np.bitwise_and,
    "ori": np.bitwise_or, "xori": np.bitwise_xor, "floordivsi": np.floor_divide, "remsi": np.fmod,
    "divsi": lambda a, b: (np.abs(a) // np.abs(b)) * (np.sign(a) * np.sign(b)),
}  # fmt: skip
_COMBINE: dict[str, np.ufunc] = {
    "addf": np.add, "maximumf": np.maximum, "minimumf": np.minimum, "addi": np.add, "maxsi": np.maximum, "minsi": np.minimum,
    "andi": np.bitwise_and, "ori": np.bitwise_or,
}  # fmt: skip
_COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_FLOAT_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")


def run(text: str, arguments: Sequence[Array]) -> list[Array]:
    """The host arrays after the program."""
    with context(), ir.Location.unknown():
        module = parse_module(text, "graph")
        block = module.body.operations[0].regions[0].blocks[0]
        evaluation = _Evaluation([a.copy() for a in arguments])
        for number, argument in enumerate(block.arguments):
            evaluation.values[argument] = (number, 0)
        with np.errstate(all="ignore"):
            for op in block.operations:
                evaluation.do(op.operation)
    return evaluation.memory


def _integers(attribute: ir.Attribute) -> list[int]:
    return [int(n) for n in ir.DenseI64ArrayAttr(attribute)]


def _element(type_: ir.Type) -> type[np.generic]:
    return np.int64 if str(type_) == "index" else DTYPES[str(type_)]


class _Evaluation:
    """Values by SSA value: an array; for an address its argument and offset; for a view or tile the array of its elements in memory."""

    def __init__(self, memory: list[Array]) -> None:
        self.memory = memory
        self.values: dict[ir.Value, Any] = {}

    def do(self, op: ir.Operation) -> None:
        """Execute one op of the function."""
        name = op.name.replace(".", "_")
        operands = [self.values[v] for v in op.operands]
        result = getattr(self, f"_{name}")(op, *operands)
        if len(op.results):
            self.values[op.results[0]] = result

    # memory

    def _arith_constant(self, op: ir.Operation) -> Any:
        return constant(op)

    def _arith_addi(self, op: ir.Operation, base: tuple[int, int], offset: Any) -> tuple[int, int]:
        return base[0], base[1] + int(offset)

    def _ktdp_construct_memory_view(self, op: ir.Operation, base: tuple[int, int]) -> Array:
        flat = self.memory[base[0]].reshape(-1)
        sizes, strides = _integers(op.attributes["static_sizes"]), _integers(op.attributes["static_strides"])
        return np.lib.stride_tricks.as_strided(flat[base[1] :], sizes, [s * flat.itemsize for s in strides])

    def _ktdp_construct_access_tile(self, op: ir.Operation, view: Array) -> Array:
        return view

    def _ktdp_construct_indirect_access_tile(self, op: ir.Operation, table: Array, indices: Array) -> tuple[Array, Array]:
        return table, indices

    def _ktdp_load(self, op: ir.Operation, tile: Any) -> Array:
        return tile[0][tile[1]] if isinstance(tile, tuple) else tile.copy()

    def _ktdp_store(self, op: ir.Operation, value: Array, tile: Any) -> None:
        if isinstance(tile, tuple):
            tile[0][tile[1]] = value
        else:
            tile[...] = value

    def _ktir_materialize(self, op: ir.Operation, value: Array) -> Array:
        return value

    # shapes

    def _tensor_empty(self, op: ir.Operation) -> Array:
        type_ = ir.RankedTensorType(op.results[0].type)
        return np.zeros(type_.shape, _element(type_.element_type))

    def _reshaped(self, op: ir.Operation, value: Array) -> Array:
        return value.reshape(ir.RankedTensorType(op.results[0].type).shape)

    _tensor_expand_shape = _tensor_collapse_shape = _reshaped

    def _tensor_extract_slice(self, op: ir.Operation, value: Array) -> Array:
        return self._reshaped(op, value[_box(op)])

    def _tensor_insert_slice(self, op: ir.Operation, piece: Array, whole: Array) -> Array:
        whole = whole.copy()
        whole[_box(op)] = piece.reshape(whole[_box(op)].shape)
        return whole

    def _tensor_pad(self, op: ir.Operation, value: Array, *_: Any) -> Array:
        yielded = list(op.regions[0].blocks[0].operations)[-1].operation.operands[0]
        number = self.values[yielded]
        low, high = _integers(op.attributes["static_low"]), _integers(op.attributes["static_high"])
        return np.pad(value, list(zip(low, high, strict=True)), constant_values=number)

    # computation

    def _linalg_fill(self, op: ir.Operation, scalar: Any, out: Array) -> Array:
        return np.full_like(out, scalar)

    def _linalg_transpose(self, op: ir.Operation, value: Array, out: Array) -> Array:
        return value.transpose(_integers(op.attributes["permutation"]))

    def _linalg_broadcast(self, op: ir.Operation, value: Array, out: Array) -> Array:
        new = _integers(op.attributes["dimensions"])
        return np.broadcast_to(np.expand_dims(value, tuple(new)), out.shape).copy()

    def _linalg_matmul(self, op: ir.Operation, a: Array, b: Array, out: Array) -> Array:
        return blocks(a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :], out)

    _linalg_batch_matmul = _linalg_matmul

    def _linalg_generic(self, op: ir.Operation, *operands: Array) -> Array:
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
        reduced = ["reduction" in str(i) for i in ir.ArrayAttr(op.attributes["iterator_types"])]
        kept = [i for i, r in enumerate(reduced) if not r]
        order = [ir.AffineDimExpr(e).position for e in maps[-1].results]
        out = operands[-1].transpose(*(order.index(i) for i in kept))
        placed = [_placed(x, m, len(reduced)) for x, m in zip(operands[:-1], maps, strict=False)]
        extents = np.broadcast_shapes(*(p.shape for p in placed), tuple(_loop_extents(out.shape, kept, len(reduced))))
        body = _Body(op.regions[0].blocks[0], placed, self.values, extents)
        walks = [{e.position for e in m.results if isinstance(e, ir.AffineDimExpr)} for m in maps]
        if any(reduced):
            axes = [i for i, r in enumerate(reduced) if r]
            result = body.reduced([*kept, *axes], out, walks)
        else:
            result = np.broadcast_to(body.yielded(), extents)
        return np.array(result.transpose(*(kept.index(i) for i in order)))

    def _ktir_scan(self, op: ir.Operation, value: Array) -> Array:
        d = ir.IntegerAttr(op.attributes["dimension"]).value
        name = next(iter(op.regions[0].blocks[0].operations)).operation.name.partition(".")[2]
        return _COMBINE[name].accumulate(value, axis=d)

    def _ktir_sort(self, op: ir.Operation, value: Array) -> Array:
        d = ir.IntegerAttr(op.attributes["dimension"]).value
        if "descending" not in op.attributes:
            return np.sort(value, axis=d, kind="stable")
        return np.flip(np.sort(np.flip(value, d), axis=d, kind="stable"), d)

    def _func_return(self, op: ir.Operation) -> None:
        pass


def _box(op: ir.Operation) -> tuple[slice, ...]:
    starts, sizes, steps = (_integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
    return tuple(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, sizes, steps, strict=True))


def _loop_extents(shape: Sequence[int], kept: Sequence[int], loops: int) -> list[int]:
    extents = [1] * loops
    for loop, extent in zip(kept, shape, strict=True):
        extents[loop] = extent
    return extents


def _placed(x: Array, map_: ir.AffineMap, loops: int) -> Array:
    """An operand with an axis per loop, of extent 1 where it does not walk it."""
    walked: list[int] = []
    for axis, e in reversed(list(enumerate(map_.results))):
        if isinstance(e, ir.AffineDimExpr):
            walked.insert(0, ir.AffineDimExpr(e).position)
        else:
            x = x.take(ir.AffineConstantExpr(e).value, axis)
    x = x.transpose(*(walked.index(i) for i in sorted(walked)))
    return np.expand_dims(x, tuple(i for i in range(loops) if i not in walked))


class _Body:
    """The scalar body of a generic on arrays with an axis per loop."""

    def __init__(self, block: ir.Block, inputs: Sequence[Array], outer: dict[ir.Value, Any], extents: tuple[int, ...]) -> None:
        self.values: dict[ir.Value, Any] = dict(zip(block.arguments, inputs, strict=False))
        self.outer, self.extents = outer, extents
        self.ops = [op.operation for op in block.operations]
        self.out = block.arguments[len(block.arguments) - 1]

    def yielded(self) -> Any:
        """The value that the body yields."""
        *ops, last = self.ops
        self._compute(ops)
        return self._of(last.operands[0])

    def _compute(self, ops: Sequence[ir.Operation]) -> None:
        for op in ops:
            self.values[op.results[0]] = self._scalar(op, [self._of(v) for v in op.operands])

    def _of(self, value: ir.Value) -> Any:
        return self.values[value] if value in self.values else self.outer[value]

    def _scalar(self, op: ir.Operation, operands: list[Any]) -> Any:
        if op.name == "linalg.index":
            d = ir.IntegerAttr(op.attributes["dim"]).value
            return np.arange(self.extents[d]).reshape([-1 if i == d else 1 for i in range(len(self.extents))])
        return scalar(op, operands)

    def reduced(self, axes: Sequence[int], out: Array, walks: Sequence[set[int]]) -> Array:
        """What the yielded values come to: `axes` are the loops that stay, then those that go; `walks` has the loops of each operand."""
        *ops, last, _ = self.ops
        mapped = next(v for v in last.operands if v != self.out)
        combine = last.name.partition(".")[2]
        factors = self._factors(mapped, walks)

        def flat(x: Any) -> Array:
            # An operand keeps extent 1 along loops that it does not walk; the reduced ones become one axis.
            moved = np.broadcast_to(x, self.extents).transpose(axes)
            return moved.reshape(*out.shape, prod(moved.shape[out.ndim :]))

        if combine == "addf" and len(factors) == 2:
            return blocks(flat(factors[0]), flat(factors[1]), out)
        self._compute(ops)
        x = flat(self._of(mapped))
        if combine == "addf":
            extents = [self.extents[i] for i in axes[out.ndim :]]
            ordered = add_sticks if len(extents) == 1 or (len(extents) == 2 and extents[1] == 64) else add_in_sequence
            return (out + ordered(x)).astype(out.dtype)
        function = _COMBINE[combine]
        if function in (np.maximum, np.minimum):
            return _extreme(function)(out, _extreme_along(function, x, -1)).astype(out.dtype)
        return function(out, function.reduce(x, axis=-1)).astype(out.dtype)

    def _factors(self, value: ir.Value, walks: Sequence[set[int]]) -> list[Array]:
        """The two f16 inputs that are contracted, if a value is their product and no more."""
        product = value.owner
        if isinstance(product, ir.Block) or product.name != "arith.mulf":
            return []
        widened = [v.owner for v in product.operands]
        found = [o.operands[0] for o in widened if not isinstance(o, ir.Block) and o.name == "arith.extf"]
        inputs = sorted({v.arg_number for v in found if isinstance(v, ir.BlockArgument)})
        if len(inputs) < 2:
            return []
        left, right = (walks[i] & walks[-1] for i in inputs)
        if left & right and not right - left:
            return []  # no loop walks the second one alone: the sum of a product of vectors
        return [self.values[v] for v in found]


def constant(op: ir.Operation) -> Any:
    """A constant as a NumPy number."""
    attribute = op.attributes["value"]
    kind = _element(op.results[0].type)
    if isinstance(attribute, ir.FloatAttr):
        return kind(ir.FloatAttr(attribute).value)
    if isinstance(attribute, ir.BoolAttr):
        return np.bool_(ir.BoolAttr(attribute).value)
    return kind(ir.IntegerAttr(attribute).value)


def scalar(op: ir.Operation, operands: list[Any]) -> Any:
    """One op of a body."""
    name = op.name.partition(".")[2]
    kind = _element(op.results[0].type)
    match name:
        case "constant":
            return constant(op)
        case "select":
            return np.where(*operands)
        case "cmpi":
            return _COMPARISONS[tuple(_COMPARISONS)[ir.IntegerAttr(op.attributes["predicate"]).value]](*operands)
        case "cmpf":
            return _compared(_FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value], *operands)
        case "extf" | "truncf" | "sitofp" | "uitofp" | "extsi" | "extui" | "trunci" | "index_cast" | "fptosi":
            return np.asarray(operands[0]).astype(kind)
    if name in _WIDE:
        return _WIDE[name](np.asarray(operands[0], np.float64)).astype(np.float32).astype(kind)
    if name in _FLOATS:
        return np.asarray(_FLOATS[name](*(np.asarray(x, np.float32) for x in operands))).astype(kind)
    return np.asarray(_INTEGERS[name](*operands)).astype(kind)


def _compared(predicate: str, a: Any, b: Any) -> Any:
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("ord", "uno"):
        return unordered if predicate == "uno" else ~unordered
    found = _COMPARISONS[predicate[1:]](a, b)
    return found | unordered if predicate[0] == "u" else found & ~unordered


def add_sticks(x: Array) -> Array:
    """The sum along the last axis in machine order, in f32."""
    x = np.asarray(x, np.float32)
    filled = np.zeros((*x.shape[:-1], -(-x.shape[-1] // 64) * 64), np.float32)
    filled[..., : x.shape[-1]] = x
    lanes = filled[..., :64].copy()
    for start in range(64, filled.shape[-1], 64):
        lanes = lanes + filled[..., start : start + 64]
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def add_in_sequence(x: Array) -> Array:
    """The sum along the last axis, one element after the other, in f32."""
    return np.add.accumulate(np.asarray(x, np.float32), axis=-1)[..., -1]


def blocks(a: Array, b: Array, out: Array) -> Array:
    """`out` and the sum of products along the last axis, in blocks of 64, each rounded to f32 once."""
    total = out.astype(np.float32)
    for start in range(0, a.shape[-1], 64):
        left, right = (x[..., start : start + 64].astype(np.float64) for x in (a, b))
        total = total + np.sum(left * right, -1).astype(np.float32)
    return total
