"""math: elementary functions, computed in f32 (f64 in f64)."""

from __future__ import annotations

from collections.abc import Callable
from math import erf as _erf_scalar
from typing import Any

import numpy as np

from ktir import numerics
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.dialects.arith import deliver
from ktir.emulator.reference.elementwise import elementwise
from ktir.emulator.reference.scalar import ScalarOp
from ktir.emulator.reference.values import CARRIERS

_FUNCTIONS = {
    "math.exp": "exp",
    "math.log": "log",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.tanh": "tanh",
    "math.erf": "erf",
    "math.absf": "abs",
    "math.floor": "floor",
}
_EXACT = ("abs", "floor")
"""Their results lie on the grid of their operands."""
_erf_wide = np.frompyfunc(_erf_scalar, 1, 1)
_WIDE: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "erf": lambda x: np.asarray(_erf_wide(x)).astype(np.float64),
    "abs": np.abs,
    "floor": np.floor,
}


@elementwise(*_FUNCTIONS)
def _function(op: OpReader) -> ScalarOp:
    kind = _FUNCTIONS[op.where.op]
    element = op.result_type().element
    compute = numerics.PLAIN[kind] if CARRIERS[element] is np.float32 else deliver(_WIDE[kind], 1)
    return ScalarOp(element, compute, rounds=element in numerics.NARROW and kind not in _EXACT)


def _round_away(x: Any) -> Any:
    """To the nearest whole number, ties away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole).astype(np.asarray(x).dtype)


_UNARY: dict[str, Callable[..., Any]] = {
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.tan": np.tan,
    "math.asin": np.arcsin,
    "math.acos": np.arccos,
    "math.atan": np.arctan,
    "math.sinh": np.sinh,
    "math.cosh": np.cosh,
    "math.asinh": np.arcsinh,
    "math.acosh": np.arccosh,
    "math.atanh": np.arctanh,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.log2": np.log2,
    "math.log10": np.log10,
    "math.log1p": np.log1p,
    "math.cbrt": np.cbrt,
    "math.ceil": np.ceil,
    "math.trunc": np.trunc,
    "math.round": _round_away,
    "math.roundeven": np.rint,
    "math.erfc": lambda x: np.subtract(1, numerics.erf(x)) if np.asarray(x).dtype == np.float32 else 1 - _WIDE["erf"](x),
}


@elementwise(*_UNARY)
def _unary(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    return ScalarOp(element, deliver(_UNARY[op.where.op], 1), rounds=element in numerics.NARROW)


_BINARY: dict[str, Callable[..., Any]] = {
    "math.powf": np.power,
    "math.atan2": np.arctan2,
    "math.copysign": np.copysign,
    "math.fpowi": lambda x, n: np.power(x, n.astype(x.dtype)),
}


@elementwise(*_BINARY)
def _binary(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    return ScalarOp(element, deliver(_BINARY[op.where.op], 2), rounds=element in numerics.NARROW)


@elementwise("math.fma")
def _fma(op: OpReader) -> ScalarOp:
    """a * b + c with one rounding: exact in f64 for f32, except where the sum itself needs more than its 53 bits."""
    element = op.result_type().element
    carrier = CARRIERS[element]

    def fma(a: Any, b: Any, c: Any) -> Any:
        return (np.asarray(a, np.float64) * b + c).astype(carrier)

    return ScalarOp(element, deliver(fma, 3), rounds=element in numerics.NARROW)


@elementwise("math.isnan", "math.isinf", "math.isfinite", "math.isnormal")
def _classify(op: OpReader) -> ScalarOp:
    name = op.where.op
    least = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}.get(op.operand_type(0).element, 0.0)
    functions: dict[str, Callable[..., Any]] = {
        "math.isnan": np.isnan,
        "math.isinf": np.isinf,
        "math.isfinite": np.isfinite,
        "math.isnormal": lambda x: np.isfinite(x) & (np.abs(x) >= least) & (x != 0),
    }
    return ScalarOp("i1", deliver(functions[name], 1))


@elementwise("math.absi", "math.ctpop", "math.ctlz", "math.cttz")
def _integer(op: OpReader) -> ScalarOp:
    element, name = op.result_type().element, op.where.op
    carrier = CARRIERS[element]

    def bits(x: Any) -> Any:
        wide = np.asarray(x, carrier)
        flat = wide.view(f"u{wide.dtype.itemsize}") if wide.dtype != np.bool_ else wide.astype(np.uint8)
        width = 1 if carrier is np.bool_ else 8 * wide.dtype.itemsize
        columns = [(flat >> np.array(i, flat.dtype)) & np.array(1, flat.dtype) for i in range(width)]
        if name == "math.ctpop":
            return sum(c.astype(np.int64) for c in columns)
        count, open_ = np.zeros(flat.shape, np.int64), np.ones(flat.shape, np.bool_)
        for column in columns if name == "math.cttz" else reversed(columns):
            open_ = open_ & (column == 0)
            count = count + open_
        return count

    def compute(x: Any) -> Any:
        with numerics.quiet():
            result = np.abs(np.asarray(x, carrier)) if name == "math.absi" else bits(x)
        return np.asarray(result).astype(carrier)

    def number(x: Any) -> Any:
        result = compute(x)
        return result if result.ndim else result.item()

    return ScalarOp(element, deliver(compute, 1), number=number)
