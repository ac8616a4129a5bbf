"""arith: constants, integer and index arithmetic, float arithmetic, conversions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.arithmetic.elementary import compare_floats, from_float, once, round_to_odd
from ktir.arithmetic.integers import fit, signed, unsigned
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes, scalar
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.ops.elementwise import elementwise
from ktir.emulator.reference.ops.pointwise import narrow
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.values import CARRIERS, is_float, is_odd
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


def extreme(largest: bool) -> Callable[[Any, Any], Any]:
    """maximum or minimum with -0 < +0; NumPy gives either zero."""
    function, negative = (np.maximum, np.logical_and) if largest else (np.minimum, np.logical_or)

    def compute(a: Any, b: Any) -> Any:
        result = np.asarray(function(a, b))
        zero = (result == 0) & (a == b)
        if zero.any():
            sign = np.where(negative(np.signbit(a), np.signbit(b)), -0.0, 0.0)
            result = np.where(zero, sign, result).astype(result.dtype)
        return result

    return compute


def number_extreme(largest: bool) -> Callable[[Any, Any], Any]:
    """As `extreme`, but a NaN loses against a number."""
    function = extreme(largest)

    def compute(a: Any, b: Any) -> Any:
        result = function(a, b)
        if np.isnan(result).any():
            result = np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))
        return result

    return compute


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


def rounded(op: OpReader, function: Callable[..., Any]) -> ScalarOp:
    """What a function makes of all operands, rounded where the type of the result is a narrow one."""
    element = op.result_type().element
    return ScalarOp(element, deliver(function, len(op.operands)), rounds=element in numerics.NARROW)


_WIDE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": deliver(extreme(True), 2),
    "min": deliver(extreme(False), 2),
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


@elementwise("arith.maxnumf", "arith.minnumf")
def _number_float(op: OpReader) -> ScalarOp:
    largest = op.where.op == "arith.maxnumf"
    return ScalarOp(op.result_type().element, deliver(number_extreme(largest), 2), combines="fmax" if largest else "fmin")


@elementwise("arith.remf")
def _remainder(op: OpReader) -> ScalarOp:
    return rounded(op, np.fmod)


@elementwise("arith.cmpf")
def _compare_float(op: OpReader) -> ScalarOp:
    predicate = ir.IntegerAttr(op.attribute("predicate")).value
    return ScalarOp("i1", deliver(lambda a, b: compare_floats(predicate, a, b), 2))


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


@elementwise("arith.bitcast", "tensor.bitcast")
def _bitcast(op: OpReader) -> ScalarOp:
    element, source = op.result_type().element, op.operand_type(0).element

    def cast(x: Any) -> Any:
        if source == "bf16":  # on its grid: rounding would make signalling NaNs quiet
            wide = np.asarray(x, np.float32, order="C")
            bits = (wide.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        elif source in numerics.NARROW:
            bits = numerics.encode(source, np.asarray(x, np.float32))
        else:
            bits = np.asarray(x, CARRIERS[source])
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
            return from_float(x, element, signed=name == "arith.fptosi")
        x = unsigned(x, source) if bare else signed(x, source)
        if element in numerics.NARROW:
            return once(round_to_odd(x), element)
        return x.astype(carrier) if is_float(element) else fit(x, element)

    def number(x: Any) -> Any:
        result = convert(np.asarray(x, CARRIERS[source]) if not is_float(source) else x)
        return result if result.ndim else result.item()

    widens = name in ("arith.sitofp", "arith.uitofp") and source == "i8"
    return ScalarOp(element, deliver(convert, 1), number=number if not is_float(source) else None, widens=widens)


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

    def action(rec: Recording) -> None:
        rec.set(result, rec.constant(array, type_.shape, type_.element))

    return action


def _from_text(text: str, kind: type) -> NDArray[Any]:
    """The elements of a dense attribute of a type that the bindings do not read."""
    body = text[len("dense<") : text.rindex("> : ")]
    if body.startswith('"0x'):
        return np.frombuffer(bytes.fromhex(body[3:-1]), kind)
    return np.asarray(json.loads(body), kind).reshape(-1)


def _narrow_from_text(text: str, element: str) -> NDArray[Any]:
    """The elements of a dense attribute of a narrow float type; NaN and infinity are written as bits, many elements as one string."""
    body = text[len("dense<") : text.rindex("> : ")]
    kind = numerics.BITS[element]
    if body.startswith('"0x'):
        return numerics.decode(element, np.frombuffer(bytes.fromhex(body[3:-1]), kind))
    words = re.findall(r"[^\[\],\s]+", body)
    return np.array([numerics.decode(element, np.array(int(w, 16), kind)) if w.startswith("0x") else float(w) for w in words], np.float32)


def _dense(op: OpReader, element: str) -> NDArray[Any]:
    """The elements of a dense attribute; one element for a splat."""
    value, kind = op.attribute("value"), CARRIERS[element]
    dense = ir.DenseElementsAttr(value)
    if is_odd(element):
        return _from_text(str(value), kind)
    if dense.is_splat:
        single: Any = dense.get_splat_value()
        return np.asarray(single.value, kind).reshape(1)
    if element in numerics.NARROW and element != "f16":
        return _narrow_from_text(str(value), element)
    return np.array(value).astype(kind)
