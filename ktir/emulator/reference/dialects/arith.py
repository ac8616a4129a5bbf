"""arith: constants, integer and index arithmetic, float arithmetic, conversions."""

from __future__ import annotations

import operator
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
from ktir.emulator.reference.values import CARRIERS
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


@elementwise(*_FLOAT)
def _float(op: OpReader) -> ScalarOp:
    kind = _FLOAT[op.where.op]
    element = op.result_type().element
    return ScalarOp(
        element,
        numerics.PLAIN[kind],
        rounds=element == "f16" and kind not in _EXACT,
        combines=kind if kind in numerics.COMBINE else None,
        multiplies=kind == "mul",
    )


def _ignoring_nan(function: np.ufunc) -> Callable[..., Any]:
    return lambda a, b, out=None: function(a, b, out=out)


@elementwise("arith.maxnumf", "arith.minnumf")
def _number_float(op: OpReader) -> ScalarOp:
    function = np.fmax if op.where.op == "arith.maxnumf" else np.fmin
    # As a reduction NaN is dropped too, but only maximumf and minimumf have a machine order.
    return ScalarOp(op.result_type().element, _ignoring_nan(function))


def _truncated(a: Any, b: Any) -> Any:
    """Division rounded towards zero."""
    quotient = np.floor_divide(np.abs(a), np.abs(b))
    return np.where(np.less(a, 0) != np.less(b, 0), -quotient, quotient)


_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.divsi": _truncated,
    "arith.remsi": lambda a, b: a - _truncated(a, b) * b,
    "arith.floordivsi": operator.floordiv,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.minsi": np.minimum,
    "arith.minui": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.maxui": np.maximum,
    "arith.andi": operator.and_,
    "arith.ori": operator.or_,
    "arith.xori": operator.xor,
    "arith.shli": operator.lshift,
    "arith.shrsi": operator.rshift,
    "arith.shrui": operator.rshift,
}
"""Indices are never negative where the unsigned ops are used on them, so signedness makes no difference there."""


@elementwise(*_INTEGER)
def _integer(op: OpReader) -> ScalarOp:
    function = _INTEGER[op.where.op]

    def compute(a: Any, b: Any, out: NDArray[Any] | None = None) -> Any:
        result = function(a, b)
        if out is None:
            return result
        np.copyto(out, result, casting="unsafe")
        return out

    return ScalarOp(op.result_type().element, compute, number=function)


def _unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    def compare(a: Any, b: Any) -> Any:
        return function(np.asarray(a, np.int64).view(np.uint64), np.asarray(b, np.int64).view(np.uint64))

    return compare


_COMPARE_INTEGER: list[Callable[[Any, Any], Any]] = [
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    _unsigned(np.less),
    _unsigned(np.less_equal),
    _unsigned(np.greater),
    _unsigned(np.greater_equal),
]


@elementwise("arith.cmpi")
def _compare_integer(op: OpReader) -> ScalarOp:
    function = _COMPARE_INTEGER[ir.IntegerAttr(op.attribute("predicate")).value]

    def compute(a: Any, b: Any, out: NDArray[Any] | None = None) -> Any:
        result = np.asarray(function(a, b))
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return ScalarOp("i1", compute, number=function)


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

    def compute(a: Any, b: Any, out: NDArray[Any] | None = None) -> Any:
        result = _compare(predicate, a, b)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return ScalarOp("i1", compute)


@elementwise("arith.select")
def _select(op: OpReader) -> ScalarOp:
    return ScalarOp(op.result_type().element, form="select")


@elementwise("arith.extf", "arith.truncf")
def _width(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    if op.operand_type(0).element == "f32" and element == "f16":
        return ScalarOp(element, narrow, rounds=True)
    return ScalarOp(element, form="copy")


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
    kind = CARRIERS[element]
    # A true i1 is all ones: sign extension gives -1.
    sign = -1 if source == "i1" and op.where.op in ("arith.extsi", "arith.sitofp", "arith.index_cast") else 1

    def compute(x: Any, out: NDArray[Any] | None = None) -> Any:
        result = np.asarray(x).astype(kind) * kind(sign) if sign < 0 else np.asarray(x).astype(kind)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    whole = element not in ("f16", "f32") and source not in ("f16", "f32")
    return ScalarOp(element, compute, number=(lambda x: x * sign) if whole else None, rounds=element == "f16")


def _constant(op: OpReader) -> Any:
    """The value of a scalar constant."""
    value = op.attribute("value")
    if isinstance(value, ir.BoolAttr):
        return bool(value.value)
    if isinstance(value, ir.FloatAttr):
        return float(value.value)
    number = ir.IntegerAttr(value).value
    return bool(number) if op.result_type().element == "i1" else number


@scalar("arith.constant")
def _scalar_constant(op: OpReader) -> ScalarOp:
    if op.result_type().shape:
        raise op.unsupported("is a tensor inside a body")
    return ScalarOp(op.result_type().element, form="constant", value=_constant(op))


@executes("arith.constant")
def _constant_op(op: OpReader) -> Action:
    type_ = op.result_type()
    (result,) = op.results
    if not isinstance(op.op.results[0].type, ir.RankedTensorType):
        value = _constant(op)
        return lambda rec: rec.set(result, value)
    array = _dense(op, CARRIERS[type_.element])
    array = array.reshape(() if array.size == 1 else type_.shape)

    def action(rec: Recorder) -> None:
        rec.set(result, rec.constant(array, type_.shape, type_.element))

    return action


def _dense(op: OpReader, kind: type) -> NDArray[Any]:
    """The elements of a dense attribute as `kind`; one element for a splat."""
    value = op.attribute("value")
    dense = ir.DenseElementsAttr(value)
    if dense.is_splat:
        element: Any = dense.get_splat_value()
        return np.asarray(element.value, kind).reshape(1)
    return np.array(value).astype(kind)
