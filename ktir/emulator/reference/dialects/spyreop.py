"""spyreop: the intrinsics of the vector unit, computed in f32 by its steps and rounded once to the type of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ktir.arithmetic import elementary, numerics
from ktir.arithmetic.integers import fit
from ktir.dialects.spyreop import SLICE
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes, scalar
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.scalar.arith import deliver, extreme, rounded
from ktir.emulator.reference.dialects.scalar.arith_integer import number_of
from ktir.emulator.reference.ops.elementwise import elementwise
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.tape import Step
from ktir.mlir import ir

_exp = numerics.PLAIN["exp"]
_erfc, _log1p = (elementary.function(name, np.float32) for name in ("erfc", "log1p"))


def _sigmoid(x: Any) -> Any:
    return np.divide(np.float32(1), np.float32(1) + _exp(-x))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "spyreop.exp": _exp,
    "spyreop.reciprocal": lambda x: np.divide(np.float32(1), x),
    "spyreop.sigmoid": _sigmoid,
    "spyreop.silu": lambda x: x * _sigmoid(x),
    "spyreop.sqrt": np.sqrt,
    "spyreop.rsqrt": lambda x: np.divide(np.float32(1), np.sqrt(x)),
}


@elementwise(*_UNARY)
def _unary(op: OpReader) -> ScalarOp:
    return rounded(op, _UNARY[op.where.op])


@elementwise("spyreop.gelu")
def _gelu(op: OpReader) -> ScalarOp:
    def gelu(x: Any) -> Any:
        x = np.asarray(x)
        return x * np.float32(0.5) * _erfc(x * np.float32(-(0.5**0.5)))  # 1 + erf loses the tail where x is negative

    return rounded(op, gelu)


@elementwise("spyreop.realdiv")
def _divide(op: OpReader) -> ScalarOp:
    return rounded(op, np.divide)


@elementwise("spyreop.softplus")
def _softplus(op: OpReader) -> ScalarOp:
    beta, threshold = (np.float32(ir.FloatAttr(op.attribute(n)).value) for n in ("beta", "threshold"))

    def softplus(x: Any) -> Any:
        scaled = np.asarray(x) * beta
        soft = _log1p(_exp(np.minimum(scaled, threshold))) / beta
        return np.where(scaled > threshold, x, soft)

    return rounded(op, softplus)


_PREDICATES: dict[str, Callable[[Any, Any], Any]] = {
    "equal": np.equal,
    "notequal": lambda a, b: (a < b) | (a > b),
    "greaterthan": np.greater,
    "greaterequal": np.greater_equal,
    "lesserthan": np.less,
    "lesserequal": np.less_equal,
}
"""All ordered: with a NaN none of them holds."""


@elementwise("spyreop.compare")
def _compare(op: OpReader) -> ScalarOp:
    predicate: Any = op.attribute("predicate")
    holds = _PREDICATES[predicate.value]
    return ScalarOp(op.result_type().element, deliver(lambda a, b: holds(a, b).astype(np.float32), 2))


@elementwise("spyreop.select")
def _select(op: OpReader) -> ScalarOp:
    return ScalarOp(op.result_type().element, deliver(lambda c, a, b: np.where(c != 0, a, b), 3))


def _wrapping(function: Callable[..., Any], element: str, count: int) -> ScalarOp:
    def compute(*operands: Any) -> Any:
        return fit(function(*(np.asarray(x, np.int64) for x in operands)), element)

    return ScalarOp(element, deliver(compute, count), number=number_of(compute, "i64"))


@elementwise("spyreop.addi32toi32", "spyreop.addi64toi64")
def _add(op: OpReader) -> ScalarOp:
    return _wrapping(np.add, op.result_type().element, 2)


@elementwise("spyreop.muli32toi32")
def _multiply(op: OpReader) -> ScalarOp:
    return _wrapping(np.multiply, op.result_type().element, 2)


@elementwise("spyreop.idx32toaddr")
def _address(op: OpReader) -> ScalarOp:
    if op.attribute("base_value") is not None:
        base, stride = (ir.IntegerAttr(op.attribute(n)).value for n in ("base_value", "stride_value"))
        return _wrapping(lambda i: np.asarray(base + stride * i), "i32", 1)
    return _wrapping(lambda i, base, stride: base + stride * i, "i32", 3)


@elementwise("spyreop.layernormscale")
def _scale(op: OpReader) -> ScalarOp:
    """1 / sqrt(squares - mean * mean); the op carries no epsilon."""

    def scale(mean: Any, squares: Any = None) -> Any:
        return np.divide(np.float32(1), np.sqrt(mean if squares is None else squares - mean * mean))

    return rounded(op, scale)


@elementwise("spyreop.layernormscale_fused")
def _scale_fused(op: OpReader) -> ScalarOp:
    def scale(pair: Any) -> Any:
        pair = np.asarray(pair)
        return np.divide(np.float32(1), np.sqrt(pair.imag - pair.real * pair.real)).astype(np.float32)

    return rounded(op, scale)


@elementwise("spyreop.layernormnorm")
def _norm(op: OpReader) -> ScalarOp:
    def norm(x: Any, mean: Any, scale: Any, weight: Any, bias: Any) -> Any:
        return (x - mean) * scale * weight + bias

    return rounded(op, norm)


# Statistics of a row: the reduced loops of the `linalg.generic` around them, or else its last loop.


def _row(op: OpReader, wanted: str) -> ScalarOp:
    return ScalarOp(op.result_type().element, form="row", value=wanted)


@scalar("spyreop.exx2")
def _exx2(op: OpReader) -> tuple[ScalarOp, ...]:
    return _row(op, "mean"), replace(_row(op, "squares"), counts=False)


@scalar("spyreop.exx2_fused")
def _exx2_fused(op: OpReader) -> ScalarOp:
    return _row(op, "pair")


@scalar("spyreop.exx2_zeromean_fused")
def _exx2_zeromean(op: OpReader) -> ScalarOp:
    return _row(op, "zeromean")


@executes("spyreop.exx2", "spyreop.exx2_fused", "spyreop.exx2_zeromean_fused")
def _statistic(op: OpReader) -> Action:
    raise op.unsupported("stands outside of the body of a 'linalg.generic'")


# Slices of a stick


@executes("spyreop.slice_reduction")
def _slice_reduction(op: OpReader) -> Action:
    kind_attribute: Any = op.attribute("reduction_kind")
    scope_attribute: Any = op.attribute("reduction_scope")
    kind, across = kind_attribute.value, scope_attribute.value == "across_slice"
    type_ = op.result_type()
    if not type_.shape or type_.shape[-1] % SLICE:
        raise op.unsupported(f"is applied to a tensor whose last dim is no multiple of {SLICE}")
    (value,), (result,) = op.operands, op.results

    def action(rec: Recording) -> None:
        tensor = rec.copy(rec.tensor(value))
        out = rec.temporary(tensor.at.shape, (tensor.at.present[0], *type_.shape), type_.element)
        step = _Slices((tensor,), (out,))
        step.kind, step.across, step.element = kind, across, type_.element
        rec.emit(step)
        rec.set(result, out)

    return action


class _Slices(Step):
    """The reduction of each slice in its first element, or of all slices in the first one; the other elements stay."""

    kind: str
    across: bool
    element: str

    def calls(self, binder: Any) -> Any:
        rank = len(self.writes[0].at.shape)
        source, target = binder.array(self.reads[0], range(1, rank)), binder.array(self.writes[0], range(1, rank))
        functions: dict[str, Callable[[Any, Any], Any]] = {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "max": extreme(True),
            "min": extreme(False),
            "abs_max": extreme(True),
        }

        def run() -> None:
            target[...] = source
            slices = source.reshape(*source.shape[:-1], -1, SLICE)
            if self.kind == "abs_max":
                slices = np.abs(slices)
            axis = -2 if self.across else -1
            total = slices.take(0, axis)
            for i in range(1, slices.shape[axis]):
                total = numerics.round_to(self.element, functions[self.kind](total, slices.take(i, axis)))
            if self.across:
                target[..., :SLICE] = total
            else:
                target[..., ::SLICE] = total

        yield run, ()
