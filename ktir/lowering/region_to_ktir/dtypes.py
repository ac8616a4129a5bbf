"""Facts of torch dtypes, by name: element types of MLIR, the types that bodies compute in, promotion, literals."""

from __future__ import annotations

import math
import struct

ELEMENTS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "i8",
    "uint16": "i16",
    "uint32": "i32",
    "uint64": "i64",
    "bool": "i1",
}
"""Torch dtype -> element type. Integers carry no sign in MLIR: the ops do."""

_HEX = {"f64": (">d", ">Q", 16), "f32": (">f", ">I", 8), "f16": (">e", ">H", 4)}


def is_float(dtype: str) -> bool:
    """Whether it is a floating-point dtype."""
    return "float" in dtype


def is_float8(dtype: str) -> bool:
    """Whether it is a float of one byte."""
    return dtype.startswith("float8")


def is_unsigned(dtype: str) -> bool:
    """Whether it is an unsigned integer."""
    return dtype.startswith("uint")


def width(dtype: str) -> int:
    """Bits."""
    return 8 if is_float8(dtype) else int(ELEMENTS[dtype].lstrip("bfi"))


def computed(dtype: str) -> str:
    """The dtype in which a body computes: narrow floats are widened to float32, all else is kept."""
    return "float32" if dtype in ("float16", "bfloat16") or is_float8(dtype) else dtype


def promoted(*dtypes: str) -> str:
    """Torch's promotion of tensors."""
    result = dtypes[0]
    for other in dtypes[1:]:
        result = _pair(result, other)
    return result


def _pair(a: str, b: str) -> str:
    if a == b:
        return a
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    if is_float(a):
        return "float32" if width(a) == width(b) else max(a, b, key=width)
    if "bool" in (a, b):
        return b if a == "bool" else a
    if is_unsigned(a) == is_unsigned(b):
        return max(a, b, key=width)
    signed, unsigned = (b, a) if is_unsigned(a) else (a, b)
    return signed if width(signed) > width(unsigned) else f"int{min(64, 2 * width(unsigned))}"


def literal(number: float, dtype: str) -> str:
    """The number as an attribute of MLIR without its type: `1.0`, `-3`, `true`."""
    element = ELEMENTS[dtype]
    if element == "i1":
        return "true" if number else "false"
    if not is_float(dtype):
        bits = width(dtype)
        value = int(number) & ((1 << bits) - 1)
        return str(value - (1 << bits) if value >> (bits - 1) else value)
    number = float(number)
    if math.isfinite(number):
        text = repr(number)
        mantissa, e, exponent = text.partition("e")
        return text if "." in mantissa else f"{mantissa}.0{e}{exponent}"
    if element == "bf16":
        return f"0x{_bits(number, 'f32') >> 16:04X}"
    if is_float8(dtype):  # E4M3FN has no infinity: torch makes NaN of it
        magnitude = 0x7C if element == "f8E5M2" and math.isinf(number) else 0x7F
        return f"0x{magnitude | (0x80 if number < 0 else 0):02X}"
    return f"0x{_bits(number, element):0{_HEX[element][2]}X}"


def _bits(number: float, element: str) -> int:
    float_, integer, _ = _HEX[element]
    return struct.unpack(integer, struct.pack(float_, number))[0]


def lowest(dtype: str) -> float:
    """The identity of a maximum."""
    if is_float(dtype):
        return -math.inf
    return 0 if is_unsigned(dtype) or dtype == "bool" else -(1 << (width(dtype) - 1))


def highest(dtype: str) -> float:
    """The identity of a minimum."""
    if is_float(dtype):
        return math.inf
    return 1 if dtype == "bool" else (1 << width(dtype) - (0 if is_unsigned(dtype) else 1)) - 1
