"""What each kind of the vector unit computes on one lane, in Python's numbers and independent of the functions of the executors."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ktir import numerics
from ktir.isa.kinds import KINDS


def wrapped(x: int) -> int:
    """An integer modulo 2^32, as a signed number."""
    return (x + 2**31) % 2**32 - 2**31


def bare(x: int) -> int:
    return x % 2**32


def truncated(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _shift(function: Callable[[int, int], int], beyond: Callable[[int], int]) -> Callable[[int, int], int]:
    return lambda a, b: function(a, b) if 0 <= b < 32 else beyond(a)


INTEGERS: dict[str, Callable[..., Any]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "minsi": min,
    "maxsi": max,
    "minui": lambda a, b: min(bare(a), bare(b)),
    "maxui": lambda a, b: max(bare(a), bare(b)),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": _shift(lambda a, b: a << b, lambda a: 0),
    "shrsi": _shift(lambda a, b: a >> b, lambda a: -1 if a < 0 else 0),
    "shrui": _shift(lambda a, b: bare(a) >> b, lambda a: 0),
    "absi": abs,
    "negi": lambda a: -a,
    # without a quotient: divided by one
    "divsi": lambda a, b: truncated(a, b or 1),
    "remsi": lambda a, b: a - truncated(a, b or 1) * (b or 1),
    "floordivsi": lambda a, b: a // (b or 1),
    "divui": lambda a, b: bare(a) // (bare(b) or 1),
    "remui": lambda a, b: bare(a) % (bare(b) or 1),
}
RELATIONS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def _cmpi(predicate: str, a: int, b: int) -> bool:
    if predicate[0] == "u":
        a, b = bare(a), bare(b)
    return RELATIONS[predicate[-2:]](a, b)


def _cmpf(predicate: str, a: float, b: float) -> bool:
    unordered = math.isnan(a) or math.isnan(b)
    if predicate in ("ord", "uno"):
        return unordered == (predicate == "uno")
    if unordered:
        return predicate[0] == "u"
    return RELATIONS[predicate[1:]](a, b)


def _whole(x: float) -> int:
    if not math.isfinite(x) or not -(2**63) <= x < 2**63:
        return -(2**63)
    return math.trunc(x)


def _unsigned_whole(x: float) -> int:
    return int(np.trunc(np.array(x, np.float64)).astype(np.uint64))  # what no u64 holds is the processor's matter


def nearest(exact: Fraction) -> np.float32:
    """A fraction rounded once to f32, ties to even."""
    first = np.float32(float(exact)) if abs(exact) < 2**1000 else np.float32(math.copysign(math.inf, exact))
    if not np.isfinite(first):
        most = Fraction(float(np.finfo(np.float32).max))
        return first if abs(exact) >= most + 2**103 else np.float32(math.copysign(float(most), exact))
    near = [first, np.nextafter(first, np.float32(np.inf)), np.nextafter(first, np.float32(-np.inf))]
    return min((c for c in near if np.isfinite(c)), key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) & 1))


def _fma(a: float, b: float, c: float) -> Any:
    if not all(map(math.isfinite, (a, b, c))) or a == 0 or b == 0:
        return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return np.float32(np.float64(a) * np.float64(b) + np.float64(c))
    return nearest(exact)


def _round(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5) if abs(x) < 2**23 else abs(x), x) if math.isfinite(x) else x


FLOATS: dict[str, Callable[..., Any]] = {
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": _round,
    "roundeven": np.rint,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "erfc": lambda x: math.erfc(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "copysign": np.copysign,
    "remf": np.fmod,
    "powf": lambda x, y: np.power(np.full(2, x), np.full(2, y))[0],  # one exponent for all takes a short cut
    "atan2": np.arctan2,
    "fma": _fma,
}
CONVERSIONS: dict[str, Callable[..., Any]] = {
    "sitofp": lambda x: nearest(Fraction(x)) if x else 0.0,
    "uitofp": lambda x: nearest(Fraction(bare(x))) if x else 0.0,
    "fptosi": _whole,
    "fptoui": _unsigned_whole,
}


def lane(kind: str, bits: tuple[int, ...]) -> int:
    """The bits that a kind gives for the bits of its operands; signed numbers."""
    if kind == "select":
        return bits[1] if bits[0] else bits[2]
    takes = KINDS[kind].takes
    values = [int(b) if of == "i" else np.float64(np.array(b, np.int32).view(np.float32)) for b, of in zip(bits, takes, strict=True)]
    stem, _, predicate = kind.partition("_")
    function = {
        "cmpi": lambda a, b: _cmpi(predicate, a, b),
        "cmpf": lambda a, b: _cmpf(predicate, a, b),
    }.get(stem) or (INTEGERS | FLOATS | CONVERSIONS)[kind]
    result = function(*values)
    if KINDS[kind].gives in "im":
        return wrapped(int(result))
    return int(np.array(result, np.float32).view(np.int32))


def of_lanes(kind: str, *operands: np.ndarray) -> np.ndarray:
    """A kind on registers of 64 lanes; those that `ktir.numerics` has are its own matter."""
    if kind in numerics.PLAIN:
        return (numerics.UNARY if len(operands) == 1 else numerics.BINARY)[kind](*operands)
    columns = [x.view(np.int32).tolist() for x in operands]
    with np.errstate(all="ignore"):
        return np.array([lane(kind, bits) for bits in zip(*columns, strict=True)], np.int64).astype(np.int32).view(np.float32)


def combine(kind: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two registers combined by a kind of reduction."""
    return numerics.COMBINE[kind](a, b) if kind in numerics.COMBINE else of_lanes(kind, a, b)


IDENTITIES = {
    **{k: int(np.array(v, np.float32).view(np.int32)) for k, v in (("add", 0.0), ("max", -np.inf), ("min", np.inf))},
    "addi": 0,
    "maxsi": -(2**31),
    "minsi": 2**31 - 1,
}
"""Bits that an accumulator starts from."""
