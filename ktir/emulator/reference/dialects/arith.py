"""arith: constants, integer and index arithmetic, float arithmetic, conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir import numerics
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.elementwise import elementwise
from ktir.emulator.reference.pointwise import narrow
from ktir.emulator.reference.recorder import Recorder
from ktir.emulator.reference.registry import Action, executes, scalar
from ktir.emulator.reference.scalar import ScalarOp
from ktir.emulator.reference.values import CARRIERS, is_float
from ktir.mlir import ir

_FLOAT = {
    "arith.addf": "add",
    "arith.subf": "sub",
    "arith.mulf": "mul",
    "arith.divf": "div",
    "arith.maximumf": "max",
    "arith.minimumf": "min",
    "arith.negf": "neg",
}
_EXACT = ("max", "min", "neg")
"""Their results lie on the grid of their operands."""
_WIDE: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
}


@elementwise(*_FLOAT)
def _float(op: OpReader) -> ScalarOp:
    kind = _FLOAT[op.where.op]
    element = op.result_type().element
    compute = numerics.PLAIN[kind] if CARRIERS[element] is np.float32 else _WIDE[kind]
    return ScalarOp(
        element,
        compute,
        rounds=element in numerics.NARROW and kind not in _EXACT,
        combines=kind if kind in ("add", "mul", "max", "min") else None,
        multiplies=kind == "mul",
    )


def deliver(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """`compute` of a function of `count` operands that makes a new array."""

    def compute(*operands: Any) -> Any:
        result = np.asarray(function(*operands[:count]))
        if len(operands) == count:
            return result
        out = operands[count]
        np.copyto(out, result, casting="unsafe")
        return out

    return compute


@elementwise("arith.maxnumf", "arith.minnumf")
def _number_float(op: OpReader) -> ScalarOp:
    largest = op.where.op == "arith.maxnumf"
    return ScalarOp(op.result_type().element, deliver(np.fmax if largest else np.fmin, 2), combines="fmax" if largest else "fmin")


@elementwise("arith.remf")
def _remainder(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    return ScalarOp(element, deliver(np.fmod, 2), rounds=element in numerics.NARROW)


# Integers: numbers known while recording may be Python's; arrays have the type of the result. Both wrap around.

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


def wrap(value: Any, element: str) -> Any:
    """`value` modulo the width of its type, as a signed number."""
    bits = _BITS[element]
    if isinstance(value, np.ndarray):
        return value.astype(CARRIERS[element])
    value = int(value)
    if bits == 1:
        return bool(value & 1)
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(x: Any, element: str) -> Any:
    """The same bits as a number without sign."""
    bits = _BITS[element]
    if isinstance(x, np.ndarray) and x.dtype != object:
        return x.astype(CARRIERS[element]).view(np.bool_ if bits == 1 else f"u{bits // 8}")
    return int(x) & ((1 << bits) - 1)


def _truncated(a: Any, b: Any) -> Any:
    """Division rounded towards zero."""
    quotient = np.abs(a) // np.abs(b)
    return np.where(np.less(a, 0) != np.less(b, 0), -quotient, quotient)


def _shift(function: Callable[[Any, Any], Any], beyond: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A shift; by the width or more it gives `beyond`."""

    def shift(a: Any, b: Any) -> Any:
        width = 8 * np.asarray(a).dtype.itemsize
        far = np.greater_equal(b, width) | np.less(b, 0)
        return np.where(far, beyond(a), function(a, np.where(far, 0, b)))

    return shift


_SIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _truncated,
    "arith.remsi": np.fmod,
    "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": lambda a, b: -((-a) // b),
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": _shift(np.left_shift, np.zeros_like),
    "arith.shrsi": _shift(np.right_shift, lambda a: np.where(np.less(a, 0), -1, 0)),
}
_UNSIGNED: dict[str, Callable[[Any, Any], Any]] = {
    "arith.divui": np.floor_divide,
    "arith.remui": np.remainder,
    "arith.ceildivui": lambda a, b: a // b + (a % b != 0),
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
    "arith.shrui": _shift(np.right_shift, np.zeros_like),
}
_COMBINES = {
    "arith.addi": "add",
    "arith.muli": "mul",
    "arith.maxsi": "max",
    "arith.minsi": "min",
    "arith.maxui": "maxu",
    "arith.minui": "minu",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
}


@elementwise(*_SIGNED, *_UNSIGNED)
def _integer(op: OpReader) -> ScalarOp:
    name, element = op.where.op, op.result_type().element
    carrier = CARRIERS[element]
    divides = name.split(".")[1] in ("divsi", "remsi", "floordivsi", "ceildivsi", "divui", "remui", "ceildivui")

    def on_arrays(a: Any, b: Any) -> Any:
        a, b = (np.asarray(x).astype(carrier) if np.asarray(x).dtype != carrier else np.asarray(x) for x in (a, b))
        if divides:
            b = np.where(b == 0, carrier(1), b)  # data; known numbers are checked
        if carrier is np.bool_ and name not in ("arith.andi", "arith.ori", "arith.xori"):
            a, b = a.astype(np.int64), b.astype(np.int64)
            if name in _SIGNED and name not in ("arith.addi", "arith.subi", "arith.muli"):
                a, b = -a, -b
            if name in _UNSIGNED:
                return (_UNSIGNED[name](a, b) & 1).astype(np.bool_)
            return (_SIGNED[name](a, b) & 1).astype(np.bool_)
        if name in _UNSIGNED:
            return _UNSIGNED[name](unsigned(a, element), unsigned(b, element)).view(carrier)
        return _SIGNED[name](a, b)

    def on_numbers(a: Any, b: Any) -> Any:
        with numerics.quiet():
            result = on_arrays(np.asarray(a, np.int64).astype(carrier), np.asarray(b, np.int64).astype(carrier))
        return wrap(result if np.ndim(result) else np.asarray(result).item(), element)

    return ScalarOp(element, deliver(on_arrays, 2), number=on_numbers, combines=_COMBINES.get(name), multiplies=name == "arith.muli")


@executes("arith.addui_extended", "arith.mulsi_extended", "arith.mului_extended")
def _extended(op: OpReader) -> Action:
    name, element = op.where.op, op.result_type().element
    bits = _BITS[element]
    signed = name == "arith.mulsi_extended"

    def both(a: int, b: int) -> tuple[Any, Any]:
        x, y = (a, b) if signed else (unsigned(a, element), unsigned(b, element))
        if name == "arith.addui_extended":
            return wrap(x + y, element), x + y >= 1 << bits
        return wrap(x * y, element), wrap((x * y) >> bits, element)

    operands, results = op.operands, op.results

    def action(rec: Recorder) -> None:
        a, b = (np.asarray(rec.known(slot)) for slot in operands)
        a, b = np.broadcast_arrays(a, b)
        pairs = [both(int(x), int(y)) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
        for k, slot in enumerate(results):
            column = [p[k] for p in pairs]
            rec.set(slot, np.asarray(column) if a.ndim else column[0])

    if op.result_type().shape:
        raise op.unsupported("is applied to tensors")
    return action


_COMPARE: list[Callable[[Any, Any], Any]] = [
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
]


@elementwise("arith.cmpi")
def _compare_integer(op: OpReader) -> ScalarOp:
    predicate = ir.IntegerAttr(op.attribute("predicate")).value
    function, element = _COMPARE[predicate], op.operand_type(0).element
    carrier = CARRIERS[element]

    def compare(a: Any, b: Any) -> Any:
        if predicate >= 6:
            a, b = (unsigned(np.asarray(x, np.int64) if carrier is not np.bool_ else np.asarray(x), element) for x in (a, b))
        elif carrier is np.bool_ and predicate >= 2:  # a true i1 is -1
            a, b = -np.asarray(a).astype(np.int8), -np.asarray(b).astype(np.int8)
        return function(a, b)

    return ScalarOp("i1", deliver(compare, 2), number=compare)


def _compare(predicate: int, a: Any, b: Any) -> Any:
    """arith.cmpf: predicates 1 to 6 are ordered, 8 to 13 unordered; 7 and 14 ask only for (un)orderedness."""
    if predicate in (0, 15):
        return np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), predicate == 15)
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in (7, 14):
        return unordered == (predicate == 14)
    relations = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]
    holds = relations[(predicate - 1) % 7](a, b)
    return holds & ~unordered if predicate < 7 else holds | unordered


@elementwise("arith.cmpf")
def _compare_float(op: OpReader) -> ScalarOp:
    predicate = ir.IntegerAttr(op.attribute("predicate")).value
    return ScalarOp("i1", deliver(lambda a, b: _compare(predicate, a, b), 2))


@elementwise("arith.select")
def _select(op: OpReader) -> ScalarOp:
    return ScalarOp(op.result_type().element, form="select")


@elementwise("arith.extf", "arith.truncf")
def _width(op: OpReader) -> ScalarOp:
    element, source = op.result_type().element, op.operand_type(0).element
    carrier = CARRIERS[element]
    if op.where.op == "arith.extf" and CARRIERS[source] is carrier:
        return ScalarOp(element, form="copy")
    if carrier is CARRIERS[source]:
        return ScalarOp(element, narrow, rounds=element in numerics.NARROW)
    # From or to f64; on the way to a narrow type rounding twice would show.
    return ScalarOp(element, deliver(lambda x: once(x, element), 1))


def once(x: Any, element: str) -> Any:
    """f64 values as values of `element`, rounded once."""
    with numerics.quiet():
        wide = np.asarray(x, np.float64)
        if element not in numerics.NARROW:
            return wide.astype(CARRIERS[element])
        if element == "f16":
            return wide.astype(np.float16).astype(np.float32)
        # To odd first: then the second rounding cannot see a tie that is none.
        near = wide.astype(np.float32)
        bits = near.view(np.int32).copy()
        inexact = (near.astype(np.float64) != wide) & np.isfinite(wide) & np.isfinite(near)
        away = np.abs(near.astype(np.float64)) > np.abs(wide)
        bits = np.where(inexact, np.where(away, bits - 1, bits) | 1, bits).astype(np.int32)
        return numerics.round_to(element, bits.view(np.float32))


@elementwise("arith.bitcast")
def _bitcast(op: OpReader) -> ScalarOp:
    element, source = op.result_type().element, op.operand_type(0).element

    def cast(x: Any) -> Any:
        bits = numerics.encode(source, np.asarray(x, np.float32)) if source in numerics.NARROW else np.asarray(x, CARRIERS[source])
        if element in numerics.NARROW:
            return numerics.decode(element, np.ascontiguousarray(bits).view(numerics.BITS[element]))
        return np.ascontiguousarray(bits).reshape(np.shape(bits)).view(CARRIERS[element])

    def number(x: Any) -> Any:
        result = cast(np.asarray(x))
        return result if result.ndim else result.item()

    return ScalarOp(element, deliver(cast, 1), number=number)


@elementwise(
    "arith.index_cast",
    "arith.index_castui",
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "arith.sitofp",
    "arith.uitofp",
    "arith.fptosi",
    "arith.fptoui",
)
def _convert(op: OpReader) -> ScalarOp:
    element, source = op.result_type().element, op.operand_type(0).element
    carrier, name = CARRIERS[element], op.where.op
    bare = name in ("arith.extui", "arith.uitofp", "arith.index_castui")

    def convert(x: Any) -> Any:
        x = np.asarray(x)
        if name in ("arith.fptosi", "arith.fptoui"):
            with numerics.quiet():
                whole = np.trunc(x.astype(np.float64))
                return whole.astype(np.uint64).astype(carrier) if name == "arith.fptoui" else whole.astype(np.int64).astype(carrier)
        if bare:
            x = unsigned(x, source)
        elif source == "i1" and name != "arith.trunci":  # a true i1 is all ones
            x = -x.astype(np.int8)
        if element == "i1":
            return (x & 1).astype(np.bool_)
        if element in numerics.NARROW:
            return once(x.astype(np.float64), element)
        return x.astype(carrier)

    def number(x: Any) -> Any:
        result = convert(np.asarray(x, CARRIERS[source]) if not is_float(source) else x)
        return result if result.ndim else result.item()

    return ScalarOp(element, deliver(convert, 1), number=number if not is_float(source) else None)


def _constant(op: OpReader) -> Any:
    """The value of a scalar constant."""
    value = op.attribute("value")
    if isinstance(value, ir.BoolAttr):
        return bool(value.value)
    if isinstance(value, ir.FloatAttr):
        return float(value.value)
    number = ir.IntegerAttr(value).value
    return bool(number) if op.result_type().element == "i1" else number


@scalar("arith.constant", "spyreop.constant")
def _scalar_constant(op: OpReader) -> ScalarOp:
    if op.result_type().shape:
        raise op.unsupported("is a tensor inside a body")
    return ScalarOp(op.result_type().element, form="constant", value=_constant(op))


@executes("arith.constant", "spyreop.constant")
def _constant_op(op: OpReader) -> Action:
    type_ = op.result_type()
    (result,) = op.results
    if not isinstance(op.op.results[0].type, ir.RankedTensorType):
        value = _constant(op)
        return lambda rec: rec.set(result, value)
    array = _dense(op, type_.element)
    array = array.reshape(() if array.size == 1 else type_.shape)

    def action(rec: Recorder) -> None:
        rec.set(result, rec.constant(array, type_.shape, type_.element))

    return action


def _dense(op: OpReader, element: str) -> NDArray[Any]:
    """The elements of a dense attribute; one element for a splat."""
    value, kind = op.attribute("value"), CARRIERS[element]
    dense = ir.DenseElementsAttr(value)
    if dense.is_splat:
        single: Any = dense.get_splat_value()
        return np.asarray(single.value, kind).reshape(1)
    if element in numerics.NARROW and element != "f16":
        return np.array([float(x) for x in np.array(dense).reshape(-1)], kind)  # type: ignore[call-overload]
    return np.array(value).astype(kind)
