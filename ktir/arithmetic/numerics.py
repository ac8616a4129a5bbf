"""Numerics of the Spyre machine on NumPy arrays: f16 rounding, scalar functions, reductions and matmul in machine order.

Both executors (KTIR and instruction stream) compute with these functions, so equal programs give equal bits. Conventions:

* Every value is `float32`. A value of type f16 or bf16 is a float32 that lies on the grid of its type; it is rounded once per
  operation with `round_to`. Nothing here computes in `np.float16`: NumPy's f16 loops are scalar, 15 to 100 times slower, and
  they round some operations twice.
* Functions accept any memory layout. Results are new arrays unless `out` is given; `out` may be an input.
* No NumPy floating-point warning leaks: overflow, division by zero and NaN follow IEEE silently.

*Machine order* (docs/design.md) is the meaning of reductions: sticks of 64 in sequence per lane, then a halving tree
over the lanes; matmuls add blocks of 64 along K in order.

Beyond the machine description this module imports only NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import transcendental
from ktir.arithmetic.floats import (
    BITS,
    F32,
    NARROW,
    ROUND_CHUNK,
    as_f32,
    decode,
    deliver,
    encode,
    f16_to_f32,
    f32_to_f16,
    flat_pair,
    quiet,
    round_f16,
    round_to,
    rounding_views,
)
from ktir.target import LANES

__all__ = [
    "BINARY",
    "BITS",
    "COMBINE",
    "IDENTITY",
    "IN_BYTES",
    "NARROW",
    "PLAIN",
    "ROUND_CHUNK",
    "STICK",
    "SUMS",
    "UNARY",
    "decode",
    "encode",
    "f16_to_f32",
    "f32_to_f16",
    "in_chunks",
    "lane_tree",
    "quiet",
    "reduce_machine",
    "reduce_sticks",
    "round_f16",
    "round_to",
    "rounding_views",
    "sum_in_order",
]

F64 = NDArray[np.float64]

STICK = LANES
"""Lanes of an entry: elements of a stick of f16, or of two adjacent sticks of f32."""


_SIGN = np.uint32(0x80000000)

# ---------------------------------------------------------------------------------------------------------------------
# Scalar functions
# ---------------------------------------------------------------------------------------------------------------------

_F64_CHUNK = 16384
"""Elements that a function in f64 computes at once: its intermediate values stay in the second cache level."""


_DOUBT = 1 << 11
"""Units of the last place of f64 by which our functions and those of any host's math library differ, at most: 2^-41 of the value."""
_TIE = np.array([1, -1], np.int64) * (_DOUBT << 35) + np.array([-(2**63), 2**63 - 1], np.int64)
"""The 29 bits that rounding to float32 drops, as a signed number's highest: what is near a tie is at either end."""


def in_chunks(function: Callable[[F64], F64], likely: Callable[..., Any] | None = None) -> Callable[..., F32]:
    """A function on f64 arrays as one on float32, of any shape, rounded once. The function may overwrite its argument.

    likely: the host's function, which is faster where it has vector instructions. What it gives depends on the host, so it stands
    only where a difference as large as `_DOUBT` cannot be seen in the rounded result.
    """

    def apply(x: F32, out: F32 | None = None) -> F32:
        source, target, result = flat_pair(as_f32(x), out, np.float32)
        for start in range(0, source.size, _F64_CHUNK):
            part = slice(start, start + _F64_CHUNK)
            if likely is None:
                np.copyto(target[part], function(source[part].astype(np.float64)), casting="same_kind")
            else:
                _round_likely(function, likely, source[part], target[part])
        return deliver(result, out)

    apply.__name__ = function.__name__
    return apply


_NORMAL = 2.0**-126
"""Below it rounding to float32 drops more bits; below its 2^-25th part all."""


def _round_likely(function: Callable[[F64], F64], likely: Callable[..., F64], x: F32, target: F32) -> None:
    y = x.astype(np.float64)
    likely(y, out=y)
    dropped = y.view(np.int64) << 35
    near, small = dropped.min() <= _TIE[0] or dropped.max() >= _TIE[1], y.min() < _NORMAL
    if near or small:
        doubtful = (dropped <= _TIE[0]) | (dropped >= _TIE[1])
        if small:
            size = np.abs(y)
            doubtful |= (size < _NORMAL) & (size > _NORMAL * 2.0**-25)
        places = np.flatnonzero(doubtful)
        y[places] = function(x[places].astype(np.float64))
    np.copyto(target, y, casting="same_kind")


def _rec(x: F32, out: F32 | None = None) -> F32:
    return np.divide(np.float32(1), x, out=out)


def _rsqrt(x: F32, out: F32 | None = None) -> F32:
    root = np.sqrt(x, out=out)
    return np.divide(np.float32(1), root, out=out)


def _mov(x: F32, out: F32 | None = None) -> F32:
    if out is None:
        return x.copy(order="K")
    np.copyto(out, x)
    return out


def _filled(x: F32, other: F32) -> F32:
    """`x`, but a scalar beside an array as an array: NumPy's maximum and minimum are five times slower with a scalar."""
    if np.ndim(x) or np.size(other) < STICK:
        return x
    return np.full(np.shape(other), x, np.float32)


def _both_ways(function: np.ufunc, merge: np.ufunc) -> Callable[..., F32]:
    """max or min with a defined sign of zero: -0 < +0, as IEEE 754-2019 maximum and minimum.

    NumPy returns either zero, depending on the vector width and on the position of the element. Computing with swapped operands
    too gives both zeros, and the AND (max) or OR (min) of their signs is the right one. Equal results are unchanged; NaN stays NaN.
    """
    others = np.uint32(0x7FFFFFFF if merge is np.bitwise_and else 0)  # what must not be merged: of two NaNs AND could make an infinity

    def apply(a: F32, b: F32, out: F32 | None = None) -> F32:
        a, b = _filled(a, b), _filled(b, a)
        swapped = np.asarray(function(b, a))
        result = np.asarray(function(a, b, out=out))
        bits, signs = result.view(np.uint32), swapped.view(np.uint32)
        if others:
            np.bitwise_or(signs, others, out=signs)
        merge(bits, signs, out=bits)
        return result

    return apply


def _added_in(half: str) -> Callable[..., F32]:
    def apply(a: F32, b: F32, out: F32 | None = None) -> F32:
        total = np.asarray(np.add(a, b, out=out))
        return round_to(half, total, total)

    return apply


IN_HALVES = {"addh": "f16", "addb": "bf16", "addl": "dl16"}
"""Sums that are rounded step by step, to which float of 16 bits."""
SUMS = ("add", *IN_HALVES)
IN_BYTES = {"toe4m3": "f8E4M3FN", "toe5m2": "f8E5M2"}
"""Roundings to floats of one byte."""


PLAIN: dict[str, Callable[..., F32]] = {
    "neg": np.negative,
    "abs": np.absolute,
    "exp": in_chunks(transcendental.exp, np.exp),
    "log": in_chunks(transcendental.log, np.log),
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "rec": _rec,
    "tanh": in_chunks(transcendental.tanh, np.tanh),
    "erf": in_chunks(transcendental.erf),
    "floor": np.floor,
    "mov": _mov,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": _both_ways(np.maximum, np.bitwise_and),
    "min": _both_ways(np.minimum, np.bitwise_or),
    **{name: _added_in(half) for name, half in IN_HALVES.items()},
    "maxnum": _both_ways(np.fmax, np.bitwise_and),
    "minnum": _both_ways(np.fmin, np.bitwise_or),
    **{kind: partial(round_to, name) for kind, name in IN_BYTES.items()},
}
"""The functions of UNARY and BINARY for inner loops: the caller passes float32 arrays and is inside `quiet()`."""


def _guarded(name: str) -> Callable[..., F32]:
    function = PLAIN[name]

    def apply(*operands: F32, out: F32 | None = None) -> F32:
        with quiet():
            return function(*(as_f32(x) for x in operands), out=out)

    apply.__name__ = name
    return apply


UNARY: dict[str, Callable[..., F32]] = {
    name: _guarded(name) for name in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "rec", "tanh", "erf", "floor", "mov")
}
"""Name -> function(x, *, out=None), float32 -> float32, elementwise, unrounded. rsqrt is sqrt followed by 1/x, both in f32."""

BINARY: dict[str, Callable[..., F32]] = {name: _guarded(name) for name in ("add", "sub", "mul", "div", "max", "min")}
"""Name -> function(a, b, *, out=None), float32 x float32 -> float32, elementwise with broadcasting, unrounded.

max and min propagate NaN and order zeros: max(-0, +0) = +0.
"""

COMBINE: dict[str, Callable[..., F32]] = {kind: BINARY[kind] for kind in ("add", "max", "min")}
"""Reduction kind -> function(accumulator, value, *, out=None)."""

IDENTITY: dict[str, float] = {
    "add": 0.0,
    "max": -np.inf,
    "min": np.inf,
    **dict.fromkeys(IN_HALVES, 0.0),
    "maxnum": -np.inf,
    "minnum": np.inf,
}
"""Reduction kind -> the value that fills a last partial stick."""


# ---------------------------------------------------------------------------------------------------------------------
# Reductions
# ---------------------------------------------------------------------------------------------------------------------

_SHORT = 32
"""Elements that are quickly moved out of the way of an inner loop."""
_EXTREME: dict[str, np.ufunc] = {"max": np.maximum, "min": np.minimum, "maxnum": np.fmax, "minnum": np.fmin}


def _extreme(kind: str, x: F32, axis: int) -> F32:
    """max or min along `axis` (dropped), in any order; signs of zeros as in BINARY; of NaNs alone `maxnum` leaves the identity."""
    largest = kind in ("max", "maxnum")
    with quiet():
        if x.shape[axis] <= _SHORT and x.size > _SHORT**2:  # NumPy is slow where its inner loop is short
            result = np.asarray(_EXTREME[kind].reduce(np.ascontiguousarray(np.moveaxis(x, axis, 0)), axis=0))
        else:
            result = np.asarray(_EXTREME[kind].reduce(x, axis=axis))
    if kind in ("maxnum", "minnum"):
        result = np.asarray(_EXTREME[kind](result, np.float32(IDENTITY[kind])))
    if not result.all():
        zero = result == 0
        # Rare: a zero wins. It is +0 for max if any +0 took part, -0 for min if any -0 did.
        bits = np.ascontiguousarray(x).view(np.uint32)
        wanted = np.any(bits == (0 if largest else _SIGN), axis=axis)
        positive = wanted if largest else ~wanted
        result = np.where(zero, np.where(positive, np.float32(0), np.float32(-0.0)), result)
    return result


_NEUTRAL = np.float32(-0.0)
"""The start of a sum that leaves its first term as it is, -0 too; NumPy's own start is +0."""


def sum_in_order(x: F32, axis: int, out: F32 | None = None) -> F32:
    """Sum along `axis` (dropped) in f32, strictly one after the other: ((x0 + x1) + x2) + ...; length 0 gives 0."""
    x = as_f32(x)
    axis = axis % x.ndim
    length = x.shape[axis]
    if length == 1:
        return deliver(x.take(0, axis), out)
    if x.size == 0:
        return deliver(np.zeros(x.shape[:axis] + x.shape[axis + 1 :], np.float32), out)
    # NumPy's add.reduce sums pairwise along the axis with the smallest stride, which becomes its inner loop, and adds whole
    # slices in sequence along any other. So some other axis of more than one element must have a smaller stride.
    stride = abs(x.strides[axis])
    inner = [abs(s) for i, (s, n) in enumerate(zip(x.strides, x.shape, strict=True)) if i != axis and n > 1]
    with quiet():
        if any(0 < s < stride for s in inner):
            return deliver(np.add.reduce(x, axis=axis, initial=_NEUTRAL), out)
        if x.size > 4 * length:
            moved = np.ascontiguousarray(np.moveaxis(x, axis, 0))
            return deliver(np.add.reduce(moved, axis=0, initial=_NEUTRAL), out)
        return deliver(np.add.accumulate(x, axis=axis).take(-1, axis), out)


def reduce_sticks(kind: str, x: F32, stick_axis: int) -> F32:
    """Combine the sticks of an accumulator lane by lane, in sequence: drops `stick_axis`. kind: one of IDENTITY."""
    x = as_f32(x)
    if kind in IN_HALVES:
        with quiet():
            return reduce(PLAIN[kind], np.moveaxis(x, stick_axis, 0), np.zeros((), np.float32))
    if kind == "add":
        return sum_in_order(x, stick_axis)
    return _extreme(kind, x, stick_axis)


def lane_tree(kind: str, x: F32) -> F32:
    """Reduce the last axis by a halving tree (32+32, 16+16, ...), keeping it with length 1. Its length is a power of two."""
    x = as_f32(x)
    lanes = x.shape[-1]
    if lanes & (lanes - 1) or not lanes:
        raise ValueError(f"lane_tree expects a power of two of lanes, but got {lanes}")
    if kind not in SUMS:
        return _extreme(kind, x, -1)[..., None]
    with quiet():
        while lanes > 1:
            lanes //= 2
            x = PLAIN[kind](x[..., :lanes], x[..., lanes:])
    return x


def reduce_machine(kind: str, x: F32) -> F32:
    """Reduce a host-shaped last axis in machine order; drops it.

    As if the axis were filled with the identity to a multiple of 64, its sticks combined in sequence, then the lanes by a tree.
    Without elements the result is the identity. The accumulator (`outs`) is not part of it: the caller combines it last.
    """
    x = as_f32(x)
    length = x.shape[-1]
    full, tail = divmod(length, STICK)
    if length == 0:
        return np.full(x.shape[:-1], IDENTITY[kind], np.float32)
    if kind != "add":
        return _extreme(kind, x, -1)
    if full:
        sticks = x[..., : full * STICK].reshape(*x.shape[:-1], full, STICK)
        lanes = sum_in_order(sticks, -2)
        if tail:
            if full == 1:  # still a view of the input
                lanes = lanes.copy()
            with quiet():
                lanes[..., :tail] += x[..., full * STICK :]
                lanes[..., tail:] += np.float32(0)  # the fill: turns -0 into +0
    else:
        # Levels of the tree that would only add the fill: once is enough.
        lanes = np.zeros((*x.shape[:-1], 1 << (tail - 1).bit_length()), np.float32)
        if lanes.shape[-1] < STICK:
            with quiet():
                np.add(x, np.float32(0), out=lanes[..., :tail])  # turns -0 into +0
        else:
            lanes[..., :tail] = x
    return lane_tree(kind, lanes)[..., 0]
