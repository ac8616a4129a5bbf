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

Binary = Callable[..., Any]


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


_PIECE = 1 << 13
"""Elements that are divided at a time: their numbers of 64 bits stay in the nearest cache, and take no fresh memory."""


def _divides(narrow: Callable[[Any, Any, Any], Any], wide: Binary) -> Binary:
    """An op that divides. `narrow` computes it in f64 of numbers of up to 32 bits, into its third operand: f64 gives their quotients
    exactly, since none is as near to a whole number as its error, and much faster. `wide` is the op of 64 bits.
    """

    def compute(a: Any, b: Any, out: NDArray[Any] | None = None) -> Any:
        type_ = np.result_type(a, b)
        if type_.itemsize > 4:
            return wide(a, b)
        out = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), type_) if out is None else out
        with np.nditer(
            [a, b, out],
            ["external_loop", "buffered", "zerosize_ok"],
            [["readonly"], ["readonly"], ["writeonly"]],
            [np.float64] * 3,
            casting="unsafe",
            buffersize=_PIECE,
        ) as pieces:
            for piece in pieces:
                narrow(*piece)
        return out

    return compute


def _rounded(round_: np.ufunc) -> Callable[[Any, Any, Any], Any]:
    return lambda a, b, quotient: round_(np.divide(a, b, quotient), quotient)


def _left(a: Any, b: Any, rest: Any) -> None:
    """What a division rounded towards zero leaves. Of no operands it is too large, so nothing overflows."""
    np.trunc(np.divide(a, b, rest), rest)
    np.subtract(a, np.multiply(rest, b, rest), rest)


def _wide_truncated(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))


def _wide_ceiling(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, b)
    return quotient + (quotient * b != a)


_floored = _divides(_rounded(np.floor), np.floor_divide)
_truncated = _divides(_rounded(np.trunc), _wide_truncated)
_ceiling = _divides(_rounded(np.ceil), _wide_ceiling)


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
    "arith.remsi": _divides(_left, np.fmod),
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
    "arith.remui": _divides(_left, np.remainder),
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
    """The function of an arith op on values of type `element`, and optionally an array of them into which the result goes if it can.
    Where `no_quotient` holds, its result means nothing.
    """
    divides = name.split(".")[1] in DIVISIONS
    function: Binary = SIGNED.get(name) or UNSIGNED.get(name) or _SHIFTS[name]
    view = unsigned if name in UNSIGNED or name == "arith.shrui" else signed

    def compute(a: Any, b: Any, out: NDArray[Any] | None = None) -> Any:
        if name in _BITWISE:
            return function(a, b, out=out)
        x, y = view(a, element), view(b, element)
        if divides and not y.all():
            y = np.where(y == 0, np.ones((), y.dtype), y)
        if name in _SHIFTS:
            return fit(function(x, y if view is signed else y.astype(np.uint64), width(element)), element)
        return fit(function(x, y, out=out if out is not None and out.dtype == x.dtype else None), element)

    return compute


_RELATIONS: dict[str, Binary] = {
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
    """arith.cmpi on values of type `element`, and optionally an array into which 0 and 1 go."""
    relation = _RELATIONS[predicate]
    view = unsigned if predicate[0] == "u" else signed
    return lambda a, b, out=None: relation(view(a, element), view(b, element), out=out)


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
