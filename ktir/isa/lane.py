"""The 32 bits of a lane as a number and as text: an f32, or an i32."""

from __future__ import annotations

import math
import re
import struct
from numbers import Integral
from typing import Any

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|inf|nan)")
_INTEGER = re.compile(r"[+-]?(0[xX][0-9A-Fa-f]+|[0-9]+)")
_NAN = 0x7FC00000


def lane_bits(value: Any) -> int:
    """The bits of an integer, with sign or without, or of another number rounded to f32; every NaN becomes the one canonical NaN.

    Raises ValueError for what has more than 32 bits.
    """
    if isinstance(value, Integral):
        number = int(value)
        if not -(2**31) <= number < 2**32:
            raise ValueError(f"{number} is beyond the range of 32 bits")
        return number & 0xFFFFFFFF
    if math.isnan(value):
        return _NAN
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError(f"{value!r} is beyond the range of f32") from None


def lane_value(bits: int) -> float:
    """The f32 that has these bits."""
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def read_lane(text: str) -> int:
    """The bits of an integer, decimal or hexadecimal, or of an f32: a decimal with a point or exponent, `inf`, `-inf`, `nan`."""
    if _INTEGER.fullmatch(text):
        return lane_bits(int(text, 16 if "x" in text.lower() else 10))
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"expects a number or 8 hexadecimal digits, but got '{text}'")
    return lane_bits(float(text))


def lane_text(bits: int) -> str:
    """The shortest decimal of the f32, with a point or exponent; where that is below the normal ones or another NaN, the i32."""
    value = lane_value(bits)
    tiny = bits & 0x7F800000 == 0 and bits != 1 << 31
    if tiny or (math.isnan(value) and bits != _NAN):
        return str(bits - (bits >> 31 << 32))
    text = next(t for t in (f"{value:.{digits}g}" for digits in range(1, 18)) if _gives(t, bits))
    return text if any(c in text for c in ".ein") else text + ".0"


def _gives(text: str, bits: int) -> bool:
    try:
        return lane_bits(float(text)) == bits
    except ValueError:
        return False
