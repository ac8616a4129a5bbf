"""math: elementary functions.

Those that kernels spend their time in are NumPy's and ours in f32, a few units of its last place off at most; all others are
computed in f64 and rounded once to f32, so that their results do not depend on the vector instructions of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import erf as _erf_scalar
from math import erfc as _erfc_scalar
from typing import Any

import numpy as np

from ktir import numerics
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.dialects.arith import deliver, once
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
_erfc_wide = np.frompyfunc(_erfc_scalar, 1, 1)
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


_PEER: dict[str, Callable[..., Any]] = {
    "math.exp": np.exp,
    "math.log": np.log,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.tanh": np.tanh,
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.log2": np.log2,
    "math.log1p": np.log1p,
}
_PEER_TYPES = {"f16": np.float16, "f32": np.float32}


def _peer(name: str, element: str) -> Callable[..., Any] | None:
    """What the public interpreter computes: NumPy's function in the type of the operand, where rsqrt rounds twice. Its erf, which is
    wrong in the third digit in f16, is not followed."""
    function, kind = _PEER.get(name), _PEER_TYPES.get(element)
    if function is None or kind is None:
        return None
    return deliver(lambda x: function(np.asarray(x).astype(kind)).astype(np.float32), 1)


@elementwise(*_FUNCTIONS)
def _function(op: OpReader) -> ScalarOp:
    kind = _FUNCTIONS[op.where.op]
    element = op.result_type().element
    compute = numerics.PLAIN[kind] if CARRIERS[element] is np.float32 else deliver(_WIDE[kind], 1)
    return ScalarOp(element, compute, rounds=element in numerics.NARROW and kind not in _EXACT, peer=_peer(op.where.op, element))


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
    "math.erfc": lambda x: np.asarray(_erfc_wide(x)).astype(np.float64),
}


def _in_wide(function: Callable[..., Any], element: str) -> Callable[..., Any]:
    """`function` computed in f64, its result in the carrier of `element`."""
    carrier = CARRIERS[element]
    return lambda x, *others: np.asarray(function(np.asarray(x, np.float64), *others)).astype(carrier)


@elementwise(*_UNARY)
def _unary(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    compute = deliver(_in_wide(_UNARY[op.where.op], element), 1)
    return ScalarOp(element, compute, rounds=element in numerics.NARROW, peer=_peer(op.where.op, element))


def _whole_power(x: Any, n: Any) -> Any:
    """x to an integer power. f64 may not hold it: what it lacks is a second power, and whether it is odd is asked of the integer."""
    near = n.astype(np.float64)
    size = np.power(np.abs(x), near)
    rest = n - near.astype(n.dtype) if n.dtype.itemsize == 8 else None
    if rest is not None and rest.any():
        lacks = (rest != 0) & (size > 0) & np.isfinite(size)
        size = np.where(lacks, size * np.power(np.abs(x), rest.astype(np.float64)), size)
    return np.where(np.signbit(x) & (n & 1 == 1), -size, size)


_BINARY: dict[str, Callable[..., Any]] = {
    "math.powf": np.power,
    "math.atan2": np.arctan2,
    "math.copysign": np.copysign,
    "math.fpowi": _whole_power,
}


@elementwise(*_BINARY)
def _binary(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    return ScalarOp(element, deliver(_in_wide(_BINARY[op.where.op], element), 2), rounds=element in numerics.NARROW)


def _sum_to_odd(a: Any, b: Any) -> tuple[Any, Any]:
    """f64 sum rounded to odd, with its error: a later rounding to a narrower type then sees no tie that is none."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.copysign(np.inf, error))
    return np.where((error != 0) & even & np.isfinite(total), odd, total), error


def _fma_wide(a: Any, b: Any, c: Any) -> Any:
    """a * b + c in f64 with one rounding; a, b, c: f64 arrays of one shape."""
    # A factor cut in halves makes the error of the product exact, and rounding the errors' sum to odd makes the last sum the only
    # one that rounds. All this holds away from the ends of the exponents.
    halves = []
    for x in (a, b):
        high = x * 134217729.0  # 2^27 + 1
        high = high - (high - x)
        halves.append((high, x - high))
    (ah, al), (bh, bl) = halves
    product = a * b
    error = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    low = c + error
    part = low - c
    low_error = (c - (low - part)) + (error - part)
    high_sum = product + low
    part = high_sum - product
    high_error = (product - (high_sum - part)) + (low - part)
    result = high_sum + _sum_to_odd(high_error, low_error)[0]
    sizes = [np.abs(x) for x in (a, b, c)]
    inside = np.ones(np.shape(a), np.bool_)
    for size in sizes:
        inside &= (size > 2.0**-400) & (size < 2.0**400)
    plain = product + c
    result = np.where(inside, result, plain)
    # A product that is not infinite but only too large does not cancel an infinite c.
    result = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, result)
    rare = ~inside & np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    flat = [x.reshape(-1) for x in (result, a, b, c)]
    for i in np.flatnonzero(rare):
        x, y, z = (Fraction(float(v[i])) for v in flat[1:])
        exact = x * y + z
        try:
            flat[0][i] = float(exact) or (0.0 if exact >= 0 else -0.0)
        except OverflowError:
            flat[0][i] = np.inf if exact > 0 else -np.inf
    return result


@elementwise("math.fma")
def _fma(op: OpReader) -> ScalarOp:
    """a * b + c with one rounding."""
    element = op.result_type().element

    def fma(*operands: Any) -> Any:
        a, b, c = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in operands))
        if element == "f64":
            return _fma_wide(a, b, c)
        return once(_sum_to_odd(a * b, c)[0], element)  # the product of two f32 is exact in f64

    return ScalarOp(element, deliver(fma, 3))


_SMALLEST_NORMAL = {
    "f16": 2.0**-14,
    "bf16": 2.0**-126,
    "f32": 2.0**-126,
    "f64": 2.0**-1022,
    "f8E4M3FN": 2.0**-6,
    "f8E5M2": 2.0**-14,
}
"""dl16 has no subnormals."""


@elementwise("math.isnan", "math.isinf", "math.isfinite", "math.isnormal")
def _classify(op: OpReader) -> ScalarOp:
    name = op.where.op
    least = _SMALLEST_NORMAL.get(op.operand_type(0).element, 0.0)
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
