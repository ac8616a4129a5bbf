"""What the vector unit computes: each kind as a function on lanes, and reductions of integer lanes.

Lanes are float32 arrays: integers and masks are their bits. The functions are those of the KTIR executor, so equal programs give equal
bits. Callers are inside `numerics.quiet()`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import elementary, floats, integers, numerics, pairs
from ktir.isa.kinds import KINDS, Kind

F32 = NDArray[np.float32]


def integer_lane(value: int) -> np.float32:
    """An i32, given modulo 2^32, as the lane that holds it."""
    return np.array([value & 0xFFFFFFFF], np.uint32).view(np.float32)[0]


def _compute(name: str) -> Callable[..., Any]:
    """The function of a kind on values: float32 and int32."""
    stem, _, predicate = name.partition("_")
    if stem == "cmpf":
        number = elementary.FLOAT_PREDICATES.index(predicate)
        return lambda a, b: elementary.compare_floats(number, a, b)
    if name in elementary.UNARY or name in elementary.BINARY:
        return elementary.function(name, np.float32)
    return {
        "absi": np.abs,
        "negi": np.negative,
        "sitofp": lambda x: x.astype(np.float32),
        "uitofp": lambda x: integers.unsigned(x, "i32").astype(np.float32),
        "fptosi": lambda x: elementary.from_float(x, "i32"),
        "fptoui": lambda x: elementary.from_float(x, "i32", signed=False),
        "remf": np.fmod,
        "fma": lambda a, b, c: elementary.fma(a, b, c, "f32"),
    }[name]


def _select(mask: F32, y: F32, z: F32, out: F32 | None = None) -> F32:
    """By bits: where masks are mixed, np.where takes ten times as long."""
    bits = y.view(np.uint32), z.view(np.uint32)
    if out is None:
        out = np.empty(np.broadcast_shapes(mask.shape, y.shape, z.shape), np.float32)
    into = out.view(np.uint32)
    np.bitwise_xor(*bits, into)
    np.multiply(into, mask.view(np.uint32) != 0, into)
    np.bitwise_xor(into, bits[1], into)
    return out


def _on_integers(name: str) -> Callable[..., F32]:
    stem, _, predicate = name.partition("_")
    compute = integers.compare(predicate, "i32") if stem == "cmpi" else integers.apply(f"arith.{name}", "i32")

    def apply(a: F32, b: F32, out: F32 | None = None) -> F32:
        """Operands, then optionally the array that takes the result, which is none of the operands."""
        out = np.empty(np.broadcast_shapes(a.shape, b.shape), np.float32) if out is None else out
        into = out.view(np.int32)
        result = compute(a.view(np.int32), b.view(np.int32), into)
        if result is not into:
            np.copyto(into, result, casting="unsafe")
        return out

    return apply


def _copied(values: F32, out: F32) -> F32:
    np.copyto(out, values)
    return out


def _byte_of(kind: Kind) -> Callable[..., F32]:
    """A byte of the 16 bits that lanes hold, by a table of all of its values."""
    name, part = kind.name[:-2], kind.name[-2:]
    codes = np.arange(256, dtype=np.uint8)
    values = {"e4m3": lambda: floats.decode("f8E4M3FN", codes), "e5m2": lambda: floats.decode("f8E5M2", codes)}
    table = values[name]() if name in values else codes.view(np.int8).astype(np.int32).view(np.float32)
    first = int(part == "hi") if sys.byteorder == "little" else 3 - int(part == "hi")

    def apply(x: F32, out: F32 | None = None) -> F32:
        found = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, 4)[..., first]
        if out is None or out.shape != found.shape:
            values = table[found]
            return values if out is None else _copied(values, out)
        return np.take(table, found, out=out, mode="clip")

    return apply


def _pair(kind: Kind) -> Callable[..., F32]:
    """Two bytes as the 16 bits that a lane holds."""
    element, whole = pairs.ELEMENTS[kind.makes], kind.takes == "ii"

    def apply(x: F32, y: F32, out: F32 | None = None) -> F32:
        first, second = ((v.view(np.int32) if whole else v) for v in (x, y))
        lanes = pairs.bits(first, second, element).astype(np.uint32).view(np.float32)
        return lanes if out is None else _copied(lanes, out)

    return apply


def _on_lanes(kind: Kind) -> Callable[..., F32]:
    compute, count = _compute(kind.name), len(kind.takes)

    def apply(*lanes: F32) -> F32:
        """As above, for any number of operands."""
        values = (x.view(np.int32) if of == "i" else x for x, of in zip(lanes, kind.takes, strict=False))
        result = np.asarray(compute(*values))
        out = lanes[count] if len(lanes) > count else np.empty(result.shape, np.float32)
        np.copyto(out if kind.gives == "f" else out.view(np.int32), result, casting="unsafe")
        return out

    return apply


def _function(kind: Kind) -> Callable[..., F32]:
    if kind.name == "select":
        return _select
    if kind.opens:
        return _byte_of(kind)
    if kind.makes:
        return _pair(kind)
    return numerics.PLAIN.get(kind.name) or (_on_integers(kind.name) if kind.takes == "ii" else _on_lanes(kind))


FUNCTIONS: dict[str, Callable[..., F32]] = {name: _function(kind) for name, kind in KINDS.items()}
"""Kind -> function(*operands) or function(*operands, out)."""

_INTEGER_REDUCTIONS: dict[str, tuple[np.ufunc, int]] = {
    "addi": (np.add, 0),
    "maxsi": (np.maximum, -(2**31)),
    "minsi": (np.minimum, 2**31 - 1),
}


def reduction_identity(kind: str) -> np.float32:
    """What an accumulator holds at the start of a group."""
    return integer_lane(_INTEGER_REDUCTIONS[kind][1]) if kind in _INTEGER_REDUCTIONS else np.float32(numerics.IDENTITY[kind])


def reduce_integers(kind: str, x: F32, axis: int) -> F32:
    """The reduction of integer lanes along an axis, which stays with length 1; their order does not matter."""
    function, _ = _INTEGER_REDUCTIONS[kind]
    return function.reduce(x.view(np.int32), axis=axis, dtype=np.int32, keepdims=True).view(np.float32)


def is_integer_reduction(kind: str) -> bool:
    """Whether a kind of `REDUCTIONS` combines integers."""
    return kind in _INTEGER_REDUCTIONS
