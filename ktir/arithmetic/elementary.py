"""Functions that are computed in f64 and rounded once, comparisons of floats, and conversions between floats and integers.

Both executors share them, so that their results do not depend on the vector instructions of the host. `numerics` has the functions
that kernels spend their time in.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import erf, erfc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics, transcendental
from ktir.arithmetic.integers import fit

__all__ = ["BINARY", "FLOAT_PREDICATES", "UNARY", "compare_floats", "fma", "fma_wide", "from_float", "function", "once", "round_to_odd"]

_erf_wide = np.frompyfunc(erf, 1, 1)
_erfc_wide = np.frompyfunc(erfc, 1, 1)


def _round_away(x: Any) -> Any:
    """To the nearest whole number, ties away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1, x), whole).astype(np.asarray(x).dtype)


_TRANSCENDENTAL = "sin cos tan asin acos atan sinh cosh asinh acosh atanh exp2 expm1 log2 log10 log1p cbrt erfc".split()

UNARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(transcendental, name) for name in _TRANSCENDENTAL},
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": _round_away,
    "roundeven": np.rint,
}
"""Functions of one operand on f64 arrays; those that are not exact are as precise as a result in float32 needs."""


def _whole_power(x: Any, n: Any) -> Any:
    """x to an integer power. Whether it is odd is asked of the integer, which f64 may not hold."""
    size = transcendental.power(np.abs(x), n.astype(np.float64))
    return np.where(np.signbit(x) & (n & 1 == 1), -size, size)


BINARY: dict[str, Callable[..., Any]] = {
    "powf": transcendental.power,
    "atan2": transcendental.atan2,
    "copysign": np.copysign,
    "fpowi": _whole_power,
}
"""Functions of two operands on f64 arrays."""


def _host_power(x: Any, y: Any) -> Any:
    """x to the y; NumPy takes the square root where one exponent of 0.5 serves all, which differs at -0 and at -infinity."""
    result = np.power(x, y)
    half = np.equal(y, 0.5)
    if half.any():
        result = np.where(half & np.equal(x, 0), 0.0, np.where(half & np.equal(x, -np.inf), np.inf, result))
    return result


def _host_whole_power(x: Any, n: Any) -> Any:
    """x to an integer power. f64 may not hold it: what it lacks is a second power, and whether it is odd is asked of the integer."""
    near = n.astype(np.float64)
    size = np.power(np.abs(x), near)
    rest = n - near.astype(n.dtype) if n.dtype.itemsize == 8 else None
    if rest is not None and rest.any():
        lacks = (rest != 0) & (size > 0) & np.isfinite(size)
        size = np.where(lacks, size * np.power(np.abs(x), rest.astype(np.float64)), size)
    return np.where(np.signbit(x) & (n & 1 == 1), -size, size)


_HOST: dict[str, Callable[..., Any]] = {
    "powf": _host_power,
    "fpowi": _host_whole_power,
    **{name: getattr(np, name) for name in "exp log sqrt tanh floor abs".split()},
    **{name: getattr(np, name) for name in "sin cos tan sinh cosh exp2 expm1 log2 log10 log1p cbrt".split()},
    **{name: getattr(np, "arc" + name[1:]) for name in "asin acos atan asinh acosh atanh atan2".split()},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: np.asarray(_erf_wide(x)).astype(np.float64),
    "erfc": lambda x: np.asarray(_erfc_wide(x)).astype(np.float64),
}
"""Functions for results in f64, where they are the host's own."""


def function(name: str, carrier: type) -> Callable[..., Any]:
    """A function of UNARY, BINARY or `numerics.PLAIN` on values of a type that `carrier` holds, unrounded."""
    if carrier is np.float64:
        compute = _HOST.get(name) or UNARY.get(name) or BINARY[name]
        return lambda x, *others: np.asarray(compute(np.asarray(x, np.float64), *others))
    if name in numerics.PLAIN:
        return numerics.PLAIN[name]
    if name in UNARY:
        return numerics.in_chunks(UNARY[name])
    compute = BINARY[name]

    def apply(x: Any, y: Any) -> Any:
        x, y = np.asarray(x, np.float64), _exponent(y)
        shape = np.broadcast_shapes(x.shape, y.shape)
        # At least one dim: NumPy makes numbers, which are not written in place, of results without any.
        return compute(np.atleast_1d(x), np.atleast_1d(y)).reshape(shape).astype(carrier)

    return apply


def _exponent(y: Any) -> Any:
    """Floats as f64, integers as they are."""
    y = np.asarray(y)
    return y.astype(np.float64) if y.dtype.kind == "f" else y


def once(x: Any, element: str) -> Any:
    """f64 values as values of `element`, rounded once."""
    with numerics.quiet():
        wide = np.asarray(x, np.float64)
        if element not in numerics.NARROW:
            return wide.astype(np.float64 if element == "f64" else np.float32)
        if element == "f16":
            return wide.astype(np.float16).astype(np.float32)
        # To odd first: then the second rounding cannot see a tie that is none.
        near = wide.astype(np.float32)
        bits = near.view(np.int32).copy()
        inexact = (near.astype(np.float64) != wide) & np.isfinite(wide) & np.isfinite(near)
        away = np.abs(near.astype(np.float64)) > np.abs(wide)
        bits = np.where(inexact, np.where(away, bits - 1, bits) | 1, bits).astype(np.int32)
        return numerics.round_to(element, bits.view(np.float32))


def round_to_odd(x: NDArray[Any]) -> NDArray[Any]:
    """Integers, those that f64 cannot hold rounded to odd: then rounding to a narrow type does not see a tie that is none."""
    if x.dtype.itemsize < 8:
        return x
    low = np.array(0x7FF, x.dtype)
    rounded = (x & ~low) | np.where(x & low, np.array(0x800, x.dtype), np.array(0, x.dtype))
    return np.where(x.astype(np.float64).astype(x.dtype) == x, x, rounded)


def _sum_to_odd(a: Any, b: Any) -> tuple[Any, Any]:
    """f64 sum rounded to odd, with its error: a later rounding to a narrower type then sees no tie that is none."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.nextafter(total, np.copysign(np.inf, error))
    return np.where((error != 0) & even & np.isfinite(total), odd, total), error


def fma_wide(a: Any, b: Any, c: Any) -> Any:
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


def fma(a: Any, b: Any, c: Any, element: str) -> Any:
    """a * b + c with one rounding."""
    a, b, c = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (a, b, c)))
    if element == "f64":
        return fma_wide(a, b, c)
    return once(_sum_to_odd(a * b, c)[0], element)  # the product of two f32 is exact in f64


FLOAT_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")
"""Predicates of arith.cmpf in the order of their numbers."""


def compare_floats(predicate: int, a: Any, b: Any) -> Any:
    """arith.cmpf: predicates 1 to 6 are ordered, 8 to 13 unordered; 7 and 14 ask only for (un)orderedness."""
    if predicate in (0, 15):
        return np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), predicate == 15)
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in (7, 14):
        return unordered == (predicate == 14)
    relations = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]
    holds = relations[(predicate - 1) % 7](a, b)
    return holds & ~unordered if predicate < 7 else holds | unordered


def from_float(x: Any, element: str, *, signed: bool = True) -> Any:
    """Floats as integers, rounded towards zero. What 64 bits cannot hold, infinities and NaN too, is -2^63; then the low bits count."""
    whole = np.trunc(np.asarray(x, np.float64))
    if not signed:
        with numerics.quiet():
            whole = np.where((whole >= 2.0**63) & (whole < 2.0**64), whole - 2.0**64, whole)
    held = np.abs(whole) < 2.0**63
    return fit(np.where(held, np.where(held, whole, 0.0).astype(np.int64), np.int64(-(2**63))), element)
