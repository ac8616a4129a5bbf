"""f32 values as text and as bits."""

from __future__ import annotations

import math
import re
import struct

_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?|inf|nan)")
_BITS = re.compile(r"0[xX][0-9A-Fa-f]{8}")
_NAN = 0x7FC00000


def f32(value: float) -> float:
    """`value` rounded to f32; every NaN becomes the one canonical NaN. Raises ValueError if a finite value overflows."""
    if math.isnan(value):
        return math.nan
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError(f"{value!r} is beyond the range of f32") from None


def f32_value(text: str) -> float:
    """The value of a decimal, of `inf`, `-inf` or `nan`, or of 8 hexadecimal digits of bits. Raises ValueError."""
    if _BITS.fullmatch(text):
        return f32(struct.unpack("<f", struct.pack("<I", int(text, 16)))[0])
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"expects a number or 8 hexadecimal digits of f32 bits, but got '{text}'")
    return f32(float(text))


def f32_bits(text: str) -> int:
    """The bits of the value of `text`."""
    value = f32_value(text)
    return _NAN if math.isnan(value) else struct.unpack("<I", struct.pack("<f", value))[0]


def f32_text(value: float) -> str:
    """The shortest decimal that gives the same f32 back, or `inf`, `-inf`, `nan`; bits in hexadecimal if there is none."""
    if math.isnan(value):
        return "nan"
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if _same(text, value):
            return text
    return f"{struct.unpack('<I', struct.pack('<f', value))[0]:#010x}"


def _same(text: str, value: float) -> bool:
    try:
        return f32(float(text)) == value
    except ValueError:
        return False
