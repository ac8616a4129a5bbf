"""Float formats on NumPy arrays: exact rounding to the grid of a format, and conversion of its bits.

A value of a narrow format is a float32 that lies on the format's grid. `numerics`, which computes with such values, hands these
functions on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BITS",
    "F16",
    "F32",
    "NARROW",
    "ROUND_CHUNK",
    "STEP",
    "as_f32",
    "by_numpy",
    "decode",
    "deliver",
    "encode",
    "f16_to_f32",
    "f32_to_f16",
    "flat_pair",
    "install",
    "quiet",
    "round_f16",
    "round_to",
    "rounding_views",
    "widen",
    "widening",
]

F32 = NDArray[np.float32]
F16 = NDArray[np.float16]

_CHUNK = 32768
"""Elements per pass of a multi-pass function: operand, result and scratch stay in the first two cache levels."""

# Bit patterns of float32.
_FRACTION = 23
_EXPONENT = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_KEPT, _LAST, _BELOW_HALF, _DROPPED = np.uint32(0xFFFF0000), np.uint32(1), np.uint32(0x7FFF), np.uint32(16)  # of bf16
_BIG = np.uint32((15 + 127) << 23)  # 2^15; from here on rounding may overflow, or the value is inf or NaN
_SMALLEST_NORMAL = np.uint32((-14 + 127) << 23)  # 2^-14, the smallest normal f16: below it the grid spacing is constant
_FLOOR = np.full(_CHUNK, _SMALLEST_NORMAL)  # as an array: NumPy's maximum with a scalar operand is five times slower
_SHIFT, _IN_PLACE, _BIASES = np.int32(13), np.int32(-0x70000001), np.float32(2.0**112)
_MAGIC = np.uint32((13 << 23) | 0x400000)  # added to the bits of 2^e: 1.5 * 2^(e+13), whose f32 spacing is f16's at 2^e


def quiet() -> Any:
    """A context in which NumPy reports no floating-point event: values follow IEEE silently."""
    return np.errstate(all="ignore")


# ---------------------------------------------------------------------------------------------------------------------
# Memory order
# ---------------------------------------------------------------------------------------------------------------------


def _dense_order(x: NDArray[Any]) -> tuple[int, ...] | None:
    """The axis permutation that makes `x` C-contiguous without a copy, or None if its memory has gaps or overlaps."""
    if x.flags.c_contiguous:
        return tuple(range(x.ndim))
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]) if x.shape[axis] > 1 else 0)
    return tuple(order) if x.transpose(order).flags.c_contiguous else None


def flat_pair(x: NDArray[Any], out: NDArray[Any] | None, dtype: type) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Flat views of the same elements of `x` and of the result, for passes in chunks.

    Returns (flat input, flat result, result in the shape of `x`). Memory order is kept where `x` is dense, so transposed
    operands cost no copy. If `out` cannot be seen flat, the result is separate and the caller copies it into `out`.
    """
    order = _dense_order(x)
    if order is None:
        x = np.ascontiguousarray(x)
        order = tuple(range(x.ndim))
    dense = x.transpose(order)
    if out is not None and out.dtype == dtype and out.shape == x.shape:
        target = out.transpose(order)
        if target.flags.c_contiguous:
            return dense.reshape(-1), target.reshape(-1), out
    target = np.empty(dense.shape, dtype)
    return dense.reshape(-1), target.reshape(-1), target.transpose(np.argsort(order) if order else ())


def as_f32(x: Any) -> F32:
    return np.asarray(x, dtype=np.float32)


def deliver(result: Any, out: NDArray[Any] | None) -> Any:
    if out is None or result is out:
        return result
    np.copyto(out, result)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# f16
# ---------------------------------------------------------------------------------------------------------------------


def _nan(bits: NDArray[np.uint32], dropped: int) -> NDArray[np.uint32]:
    """NaNs rounded to a format that has fewer bits of fraction: they keep the first ones, by which codes that are only moved are found
    again. One that has none of its bits there is quiet.
    """
    kept = bits >> np.uint32(dropped) << np.uint32(dropped)
    return np.where(kept & np.uint32(0x7FFFFF), kept, kept | np.uint32(0x400000))


def rounding_views(source: F32, target: F32, scratch: F32) -> tuple[NDArray[Any], ...]:
    """The arguments of a function of `ROUND_CHUNK` for one chunk: made once, used for many roundings of the same memory.

    source, target: flat contiguous float32 of the same length, may be the same memory. scratch: float32 [2, >= length].
    """
    m, s = scratch[0, : source.size], scratch[1, : source.size]
    floor = _FLOOR[: source.size] if source.size <= _CHUNK else np.full(source.size, _SMALLEST_NORMAL)
    return source, target, m, source.view(np.uint32), target.view(np.uint32), m.view(np.uint32), s.view(np.uint32), floor


def _round_f16(
    a: F32,
    r: F32,
    m: F32,
    bits: NDArray[np.uint32],
    r_bits: NDArray[np.uint32],
    m_bits: NDArray[np.uint32],
    signs: NDArray[np.uint32],
    floor: NDArray[np.uint32],
) -> None:
    """Round one chunk to the f16 grid: r = round_f16(a). Arguments by `rounding_views`; the caller is inside `quiet()`."""
    np.bitwise_and(bits, _EXPONENT, out=m_bits)
    if m_bits.max(initial=0) >= _BIG:
        np.bitwise_and(bits, _MAGNITUDE, out=m_bits)
        if m_bits.max() <= _EXPONENT:
            r[...] = a.astype(np.float16)
            return
        nan = m_bits > _EXPONENT
        kept = _nan(bits[nan], _FRACTION - 10)  # before `a` is written, which may be `r`
        r[...] = a.astype(np.float16)
        r_bits[nan] = kept
        return
    # Adding and subtracting a number whose spacing is the grid's rounds to the grid, in the FPU's own RNE.
    np.maximum(m_bits, floor, out=m_bits)
    np.add(m_bits, _MAGIC, out=m_bits)
    np.bitwise_and(bits, _SIGN, out=signs)  # the sum loses the sign of zero
    np.add(a, m, out=r)
    np.subtract(r, m, out=r)
    np.bitwise_or(r_bits, signs, out=r_bits)


def _round_bf16(
    a: F32,
    r: F32,
    m: F32,
    bits: NDArray[np.uint32],
    r_bits: NDArray[np.uint32],
    m_bits: NDArray[np.uint32],
    signs: NDArray[np.uint32],
    floor: NDArray[np.uint32],
) -> None:
    """The same to the bf16 grid: half of the last place that stays is added, less one unit where that place is even."""
    np.bitwise_and(bits, _MAGNITUDE, out=m_bits)
    if m_bits.max(initial=0) > _EXPONENT:  # a NaN, which the sum could make an infinity
        r[...] = decode("bf16", encode("bf16", a))
        return
    np.right_shift(bits, _DROPPED, out=m_bits)
    np.bitwise_and(m_bits, _LAST, out=m_bits)
    np.add(m_bits, _BELOW_HALF, out=m_bits)
    np.add(bits, m_bits, out=r_bits)
    np.bitwise_and(r_bits, _KEPT, out=r_bits)


def _round_dl16(a: F32, r: F32, *_: NDArray[Any]) -> None:
    r[...] = decode("dl16", encode("dl16", a))


ROUND_CHUNK: dict[str, Callable[..., None]] = {"f16": _round_f16, "bf16": _round_bf16, "dl16": _round_dl16}
"""Float of 16 bits -> what rounds one chunk to its grid. Arguments by `rounding_views`; the caller is inside `quiet()`."""


def round_f16(x: F32, out: F32 | None = None) -> F32:
    """Round to the f16 grid: nearest, ties to even, as `x.astype(float16).astype(float32)` but several times as fast.

    x: float32, any shape. out: float32 array of the same shape, may be `x`. Subnormals are exact, overflow gives inf, NaN
    stays NaN, the sign of zero is kept. Returns `out`, or a new array in the memory order of `x`.
    """
    return _in_pieces("f16", x, out)


def _in_pieces(kind: str, x: F32, out: F32 | None) -> F32:
    x = as_f32(x)
    source, target, result = flat_pair(x, out, np.float32)
    scratch = np.empty((2, min(_CHUNK, source.size)), np.float32)
    with quiet():
        for start in range(0, source.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            ROUND_CHUNK[kind](*rounding_views(source[part], target[part], scratch))
    return deliver(result, out)


def f16_to_f32(a: NDArray[Any], out: F32 | None = None) -> F32:
    """Convert float16 (or its bits as uint16) to float32 exactly. out: float32 of the same shape. NaN stays NaN."""
    a = np.asarray(a)
    if a.dtype not in (np.float16, np.uint16):
        raise TypeError(f"f16_to_f32 expects a float16 array, but got {a.dtype}")
    source, target, result = flat_pair(a.view(np.int16), out, np.float32)
    with quiet():
        for start in range(0, source.size, _CHUNK):
            h = source[start : start + _CHUNK]
            r = target[start : start + _CHUNK]
            if h.max() >= 0x7C00 or h.view(np.uint16).max() >= 0xFC00:  # exponent 31: inf or NaN
                r[...] = h.view(np.float16)
                continue
            bits = r.view(np.int32)
            np.copyto(bits, h)
            widen(bits, r)
    return deliver(result, out)


def widen(bits: NDArray[np.int32], values: F32) -> None:
    """Bits of finite halves, sign-extended, to the values that they are, in the same memory."""
    # Shifted, exponent and fraction stand in place and the sign is copied into the bits between them and bit 31; the exponent then lacks
    # the difference of the biases, 112. The product also normalises subnormals.
    np.left_shift(bits, _SHIFT, out=bits)
    np.bitwise_and(bits, _IN_PLACE, out=bits)
    np.multiply(values, _BIASES, out=values)


def by_numpy(values: F32) -> Callable[[F16], None]:
    """See `widening`."""
    bits = values.view(np.int32)

    def widened(halves: F16) -> None:
        np.copyto(bits, halves.view(np.int16))
        widen(bits, values)

    return widened


_widening = by_numpy


def widening(values: F32) -> Callable[[F16], None]:
    """What writes the values of finite halves to memory that is dense, as often as it is called."""
    return _widening(values)


def install(widening: Callable[[F32], Callable[[F16], None]]) -> None:
    """Let another function do so from now on, in less time."""
    global _widening
    _widening = widening


def f32_to_f16(a: F32, out: F16 | None = None, *, on_grid: bool = False) -> F16:
    """Convert float32 to float16, rounding as `round_f16`. out: float16 of the same shape.

    on_grid: the caller guarantees that every value lies on the f16 grid (or is inf or NaN); saves the rounding.
    """
    a = as_f32(a)
    source, target, result = flat_pair(a, out, np.float16)
    size = min(_CHUNK, source.size)
    grid, magnitude, sign = np.empty(size, np.float32), np.empty(size, np.uint32), np.empty(size, np.uint32)
    for start in range(0, source.size, _CHUNK):
        x = source[start : start + _CHUNK]
        r = target[start : start + _CHUNK]
        if not on_grid:
            x = round_f16(x, grid[: x.size])
        bits, m, s = x.view(np.uint32), magnitude[: x.size], sign[: x.size]
        np.bitwise_and(bits, np.uint32(0x7FFFFFFF), out=m)
        if m.max() >= _EXPONENT:
            with quiet():
                r[...] = x
            continue
        # The product moves the exponent to f16's bias and denormalises f16 subnormals; exact on the grid.
        np.multiply(m.view(np.float32), np.float32(2.0**-112), out=m.view(np.float32))
        np.right_shift(m, np.uint32(13), out=m)
        np.right_shift(bits, np.uint32(16), out=s)
        np.bitwise_and(s, np.uint32(0x8000), out=s)
        np.bitwise_or(m, s, out=m)
        np.copyto(r.view(np.uint16), m, casting="unsafe")
    return deliver(result, out)


# ---------------------------------------------------------------------------------------------------------------------
# Other formats
# ---------------------------------------------------------------------------------------------------------------------

BITS: dict[str, type] = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "dl16": np.uint16,
    "f8E4M3FN": np.uint8,
    "f8E5M2": np.uint8,
}
"""Narrow float formats -> NumPy type of their bits. dl16 is 1-6-9 with bias 31, without subnormals; 0x7FFF is NaN and infinity."""

NARROW = frozenset(BITS)
"""Formats whose values are carried in float32, on the format's grid."""

STEP: dict[str, float] = {
    "f16": 2.0**-24,
    "bf16": 2.0**-133,
    "dl16": 2.0**-40,
    "f8E4M3FN": 2.0**-9,
    "f8E5M2": 2.0**-16,
    "i8": 1.0,
    "f32": 2.0**-149,
}
"""Format -> what all its finite values are multiples of."""

_E4M3_MOST = np.float32(448)


def decode(kind: str, bits: NDArray[Any]) -> F32:
    """The float32 values of `bits` (uint16 or uint8) in format `kind`, exactly. NaN stays NaN."""
    bits = np.asarray(bits)
    if kind == "f16":
        return f16_to_f32(bits.view(np.uint16))
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "f8E5M2":
        return _E5M2[bits]
    with quiet():
        if kind == "f8E4M3FN":
            return _E4M3[bits]
        if kind == "dl16":
            u = bits.astype(np.uint32)
            magnitude = u & np.uint32(0x7FFF)
            wide = ((magnitude << np.uint32(14)) + np.uint32((127 - 31) << 23)) | ((u & np.uint32(0x8000)) << np.uint32(16))
            wide = np.where(magnitude == 0, (u & np.uint32(0x8000)) << np.uint32(16), wide)
            return np.where(magnitude == 0x7FFF, np.uint32(0x7FC00000) | wide & _SIGN, wide).astype(np.uint32).view(np.float32)
    raise ValueError(f"no format named '{kind}'")


def _e4m3_values() -> F32:
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    value = np.where(exponent == 0, np.ldexp(fraction / 8, -6), np.ldexp(1 + fraction / 8, exponent - 7))
    value = np.where((code & 127) == 127, np.nan, value)
    return np.where(code >= 128, -value, value).astype(np.float32)


def _e5m2_values() -> F32:
    """Each is the upper half of an f16; NaN keeps its fraction, by which its code is found again."""
    code = np.arange(256, dtype=np.uint32)
    values = f16_to_f32((code << np.uint32(8)).astype(np.uint16)).view(np.uint32)
    kept = (code & np.uint32(0x80)) << np.uint32(24) | np.uint32(0x7F800000) | (code & np.uint32(3)) << np.uint32(21)
    return np.where((code & np.uint32(0x7C)) == 0x7C, kept, values).astype(np.uint32).view(np.float32)


_E4M3, _E5M2 = _e4m3_values(), _e5m2_values()


def encode(kind: str, x: F32) -> NDArray[Any]:
    """The bits of float32 `x` in format `kind`, rounded: to nearest, ties to even; dl16 rounds ties away from zero.

    Beyond the largest value f16, bf16 and f8E5M2 give infinity, f8E4M3FN its largest value (as in PyTorch), dl16 its NaN.
    """
    x = as_f32(x)
    if kind == "f16":
        return f32_to_f16(x).view(np.uint16)
    u = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    if kind == "bf16":
        rounded = (u + np.uint32(0x7FFF) + ((u >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(x), _nan(u, _FRACTION - 7) >> np.uint32(16), rounded).astype(np.uint16)
    magnitude, sign = u & np.uint32(0x7FFFFFFF), u >> np.uint32(31)
    if kind == "dl16":
        rounded = (magnitude + np.uint32(1 << 13)) >> np.uint32(14)
        exponent = (rounded >> np.uint32(9)).astype(np.int64) - (127 - 31)
        code = np.where(exponent < 0, 0, (exponent << 9) | (rounded & np.uint32(511)))
        limit = ((63 - 31 + 127) << 23) | (510 << 14) | ((1 << 13) - 1)
        return (np.where(magnitude > limit, 0x7FFF, code) | (sign.astype(np.int64) << 15)).astype(np.uint16)
    if kind not in ("f8E4M3FN", "f8E5M2"):
        raise ValueError(f"no format named '{kind}'")
    fraction, bias, most = (3, 7, float(_E4M3_MOST)) if kind == "f8E4M3FN" else (2, 15, 57344.0)
    with quiet():
        value = np.abs(x).astype(np.float64)
        finite = np.isfinite(value)
        _, e = np.frexp(np.where(finite, value, 0))
        scale = np.maximum(e - 1, 1 - bias) - fraction
        grid = np.ldexp(np.rint(np.ldexp(np.where(finite, value, 0), -scale)), scale)
        over = np.where(grid > most, True, ~finite)
        grid = np.where(over, 0, grid)
        _, e = np.frexp(grid)
        e = np.where(grid == 0, 1 - bias, np.maximum(e - 1, 1 - bias))
        whole = np.ldexp(grid, fraction - e).astype(np.int64)  # with the hidden one, if normal
        code = whole + ((e + bias - 1) << fraction)
    if kind == "f8E4M3FN":
        code = np.where(over, np.where(np.isnan(x), 0x7F, 0x7E), code)
    else:
        code = np.where(over, np.where(np.isnan(x), _nan(magnitude, _FRACTION - 2) >> np.uint32(21) & np.uint32(127), 0x7C), code)
    return (code | (sign.astype(np.int64) << 7)).astype(np.uint8)


_LEAST = {"f8E4M3FN": (3, np.uint32((-6 + 127) << 23)), "f8E5M2": (2, np.uint32((-14 + 127) << 23))}
"""Float of one byte -> bits of its fraction, and its smallest normal number."""


def _round_byte(kind: str, x: F32, out: F32 | None) -> F32:
    """As `_round_f16`, with the grid of a float of one byte."""
    x = as_f32(x)
    fraction, least = _LEAST[kind]
    most = _E4M3_MOST if kind == "f8E4M3FN" else np.float32(65536)
    with quiet():
        result = np.asarray(np.clip(x, -most, most, out=out))  # of one number, too
        nan = np.isnan(result)
        kept = decode(kind, encode(kind, result[nan])) if nan.any() else None
        unit = np.maximum(result.view(np.uint32) & _EXPONENT, least)
        unit += np.uint32(((23 - fraction) << 23) | 0x400000)
        sign = result.view(np.uint32) & _SIGN
        result += unit.view(np.float32)
        result -= unit.view(np.float32)
        bits = result.view(np.uint32)
        np.bitwise_or(bits, sign, out=bits)
        if kind == "f8E5M2":
            np.copyto(result, np.copysign(np.float32(np.inf), result), where=np.abs(result) > np.float32(57344))
        if kept is not None:
            result[nan] = kept
    return result


def round_to(kind: str, x: F32, out: F32 | None = None) -> F32:
    """Round float32 to the grid of format `kind`, as `encode` and `decode` in turn; other kinds are left as they are."""
    if kind in ROUND_CHUNK:
        return _in_pieces(kind, x, out)
    if kind in _LEAST:
        return _round_byte(kind, x, out)
    if kind not in NARROW:
        return deliver(x, out)
    return deliver(decode(kind, encode(kind, x)), out)
