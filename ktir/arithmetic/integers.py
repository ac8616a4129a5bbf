"""Integers of any width up to 64 as NumPy arrays: their ops, which both executors share, and the operands for which an op has no result.

A value is kept as a signed number of the carrier of its type; a true i1 is True and counts as -1 where the sign matters. Arithmetic
wraps around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CARRIERS",
    "DIVISIONS",
    "PREDICATES",
    "SIGNED",
    "UNSIGNED",
    "apply",
    "compare",
    "fit",
    "no_quotient",
    "signed",
    "unsigned",
    "width",
]

CARRIERS: dict[str, type] = {
    "i1": np.bool_,
    **{f"i{n}": np.int8 for n in range(2, 9)},
    **{f"i{n}": np.int16 for n in range(9, 17)},
    **{f"i{n}": np.int32 for n in range(17, 33)},
    **{f"i{n}": np.int64 for n in range(33, 65)},
    "index": np.int64,
}
"""Integer type -> NumPy type of its values; one narrower than its carrier is kept as a signed number."""

Binary = Callable[[Any, Any], Any]


def width(element: str) -> int:
    """Bits of an integer type."""
    return 64 if element == "index" else int(element[1:])


def fit(x: NDArray[Any], element: str) -> NDArray[Any]:
    """`x` modulo the width of its type, as values of the type."""
    bits, carrier = width(element), np.dtype(CARRIERS[element])
    if bits == 1:
        return x if x.dtype == np.bool_ else (x & 1).astype(np.bool_)
    x = x.astype(carrier, copy=False)
    spare = 8 * carrier.itemsize - bits
    return (x << spare) >> spare if spare else x


def signed(x: Any, element: str) -> NDArray[Any]:
    """Values as signed numbers."""
    x = np.asarray(x)
    return -x.astype(np.int8) if element == "i1" else x.astype(CARRIERS[element], copy=False)


def unsigned(x: Any, element: str) -> NDArray[Any]:
    """Values as numbers without sign."""
    x = np.asarray(x)
    if element == "i1":
        return x.astype(np.uint8)
    carrier = np.dtype(CARRIERS[element])
    bare = x.astype(carrier, copy=False).view(f"u{carrier.itemsize}")
    spare = 8 * carrier.itemsize - width(element)
    return bare & np.array((1 << width(element)) - 1, bare.dtype) if spare else bare


def _quotient(rounded: Callable[..., Any], wide: Binary) -> Binary:
    """Division with the quotient `rounded`; `wide` is that of 64 bits. Of fewer, f64 gives it exactly, since no quotient is as near to a
    whole number as the error of f64, and much faster.
    """

    def divide(a: Any, b: Any) -> Any:
        type_ = np.result_type(a, b)
        return wide(a, b) if type_.itemsize > 4 else rounded(np.true_divide(a, b, dtype=np.float64)).astype(type_)

    return divide


def _wide_truncated(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


def _wide_ceiling(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, b)
    return quotient + (quotient * b != a)


def _rest(wide: Binary) -> Binary:
    """What a division rounded towards zero leaves, in the same way. The sign of the divisor does not count, so no quotient overflows."""

    def rest(a: Any, b: Any) -> Any:
        type_ = np.result_type(a, b)
        if type_.itemsize > 4:
            return wide(a, b)
        b = np.abs(b)
        quotient = np.true_divide(a, b, dtype=np.float64).astype(type_)
        quotient *= b
        return a - quotient

    return rest


_floored = _quotient(np.floor, np.floor_divide)
_truncated = _quotient(np.trunc, _wide_truncated)
_ceiling = _quotient(np.ceil, _wide_ceiling)


def _shift(function: Binary, beyond: Callable[[Any], Any]) -> Callable[[Any, Any, int], Any]:
    """A shift by `b` read as a number without sign; by the width or more it gives `beyond`."""

    def shift(a: Any, b: Any, bits: int) -> Any:
        far = (b < 0) | (b >= bits)
        return np.where(far, beyond(a), function(a, np.where(far, 0, b).astype(a.dtype)))

    return shift


SIGNED: dict[str, Binary] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _truncated,
    "arith.remsi": _rest(np.fmod),
    "arith.floordivsi": _floored,
    "arith.ceildivsi": _ceiling,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
}
UNSIGNED: dict[str, Binary] = {
    "arith.divui": _floored,
    "arith.remui": _rest(np.remainder),
    "arith.ceildivui": _ceiling,
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
}
_SHIFTS: dict[str, Callable[[Any, Any, int], Any]] = {
    "arith.shli": _shift(np.left_shift, np.zeros_like),
    "arith.shrsi": _shift(np.right_shift, lambda a: np.where(a < 0, -1, 0).astype(a.dtype)),
    "arith.shrui": _shift(np.right_shift, np.zeros_like),
}
DIVISIONS = ("divui", "divsi", "remui", "remsi", "floordivsi", "ceildivsi", "ceildivui")
_BITWISE = ("arith.andi", "arith.ori", "arith.xori")


def apply(name: str, element: str) -> Binary:
    """The function of an arith op on values of type `element`. Where `no_quotient` holds, its result means nothing."""
    divides = name.split(".")[1] in DIVISIONS

    def compute(a: Any, b: Any) -> Any:
        if name in _BITWISE:
            return SIGNED[name](a, b)
        view = unsigned if name in UNSIGNED or name == "arith.shrui" else signed
        x, y = view(a, element), view(b, element)
        if divides and not y.all():
            y = np.where(y == 0, np.ones((), y.dtype), y)
        if name in _SHIFTS:
            return fit(_SHIFTS[name](x, y if view is signed else y.astype(np.uint64), width(element)), element)
        return fit((UNSIGNED if view is unsigned else SIGNED)[name](x, y), element)

    return compute


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
    "ult": np.less,
    "ule": np.less_equal,
    "ugt": np.greater,
    "uge": np.greater_equal,
}
PREDICATES = tuple(_RELATIONS)
"""Predicates of arith.cmpi in the order of their numbers."""


def compare(predicate: str, element: str) -> Binary:
    """arith.cmpi on values of type `element`."""
    relation = _RELATIONS[predicate]
    view = unsigned if predicate[0] == "u" else signed
    return lambda a, b: relation(view(a, element), view(b, element))


def no_quotient(name: str, element: str) -> Callable[[Any, Any], tuple[NDArray[np.bool_], NDArray[np.bool_] | None]]:
    """For a division: where it divides by zero, and where the quotient overflows (None = nowhere).

    A remainder of -1 is 0 for all numbers.
    """
    overflows = name.split(".")[1] in ("divsi", "floordivsi", "ceildivsi")
    least = -1 << (width(element) - 1)

    def faults(a: Any, b: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
        zero = np.equal(b, 0)
        if zero.any():
            zero = np.broadcast_to(zero, np.broadcast_shapes(np.shape(a), np.shape(b)))
        over = np.equal(signed(b, element), -1) if overflows else np.zeros(1, np.bool_)
        return zero, over & np.equal(signed(a, element), least) if over.any() else None

    return faults
