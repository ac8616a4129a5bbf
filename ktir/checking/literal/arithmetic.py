"""What the vector unit and the array compute: a lane is 32 bits, an int of 0 to 2^32 - 1, and an entry a list of 64 lanes."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .elementary import ELEMENTARY, divided, root

Lane = int
Entry = list[Lane]

# --- lanes and numbers: every result is the nearest f32, ties to even -------------------------------------------------


def _cast(source: str, target: str, x: Any) -> Any:
    """The value whose bytes are those of `x`; what is too large becomes an infinity."""
    try:
        return struct.unpack("<" + target, struct.pack("<" + source, x))[0]
    except OverflowError:
        return _cast(source, target, math.copysign(math.inf, x))


number = partial(_cast, "I", "f")  # the f32 of a lane
lane = partial(_cast, "f", "I")  # the lane of a number, rounded to f32
signed = partial(_cast, "I", "i")  # the i32 of a lane


def half(x: float, kind: str) -> int:
    """The 16 bits of a number, rounded to f16, bf16, which is the upper half of an f32, or dl16: 1, 6 and 9 bits, without subnormals, and
    one code for NaN and infinities; the byte of one rounded to e4m3 or e5m2."""
    if kind in ONES:
        found = ONES[kind](x)
        if kind == "e5m2" or not math.isfinite(found):
            return _cast("e", "H", found) >> 8 if kind == "e5m2" else 0x7F | (math.copysign(1, x) < 0) << 7
        return next(code for code in range(256) if lane(found) == byte(code, kind))
    if kind == "dl16":
        fraction, exponent = math.frexp(abs(x)) if math.isfinite(x) else (0.0, 64)
        whole = math.floor(math.ldexp(fraction, 10) + 0.5)
        code = whole - 512 + (exponent + 30 << 9) if whole else 0
        return (max(code, 0) if code < 0x7FFF and exponent < 64 else 0x7FFF) | (math.copysign(1, x) < 0) << 15
    if kind == "f16":
        return _cast("e", "H", x)
    bits = lane(x)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


FRACTIONS = {"f16": 10, "bf16": 7, "e5m2": 2}
"""Bits of the fraction of formats that have more than one NaN."""


def narrowed(x: Lane, kind: str) -> int:
    """As `half`, of a lane. A NaN keeps its sign and the first bits of its fraction; one without a bit there gets the first one."""
    if not math.isnan(number(x)) or kind not in FRACTIONS:
        return half(number(x), kind)
    bits, width = FRACTIONS[kind], 8 if kind in ONES else 16
    fraction = x >> 23 - bits & (1 << bits) - 1 or 1 << bits - 1
    return x >> 31 << width - 1 | ((1 << width - 1 - bits) - 1) << bits | fraction


PAIRS = ("e4m3x2", "e5m2x2", "i8x2")
"""What 16 bits are that hold two bytes."""


def byte(bits: int, kind: str) -> Lane:
    """A byte as a lane: an f8E4M3FN (1, 4 and 3 bits, one code for NaN), an f8E5M2, which is the upper byte of an f16, or an i8."""
    if kind == "i8":
        return wrapped(bits - (bits >> 7 << 8))
    if kind == "e5m2":
        return widened(bits << 8, "f16")
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = math.nan if bits & 127 == 127 else math.ldexp(fraction + 8 * (exponent > 0), max(exponent, 1) - 10)
    return lane(math.copysign(size, -(bits >> 7) or 1))


def widened(bits: int, kind: str) -> Lane:
    """16 bits of an f16, bf16 or dl16 as a lane, or a float of one byte; those of a pair as they are."""
    if kind in ONES:
        return byte(bits, kind)
    if kind in PAIRS:
        return bits
    if kind == "dl16":
        code, sign = bits & 0x7FFF, -1.0 if bits >> 15 else 1.0
        size = math.nan if code == 0x7FFF else math.ldexp(512 + code % 512, (code >> 9) - 40) if code else 0.0
        return lane(math.copysign(size, sign))
    if kind == "f16":
        return (bits >> 15 << 18 | 0x3FC00 | bits & 0x3FF) << 13 if bits & 0x7FFF > 0x7C00 else lane(_cast("H", "e", bits))
    return bits << 16


def rounded(x: float, kind: str) -> float:
    """The nearest f16, bf16 or dl16."""
    return number(widened(narrowed(lane(x), kind), kind))


def nearest_byte(x: float, bits: int, least: int, most: float, beyond: float) -> float:
    """The nearest float of one byte that has so many bits of fraction, exponents from `least` on and numbers up to `most`."""
    if math.isnan(x):
        return x
    found = math.inf
    if math.isfinite(x):
        unit = max(math.frexp(x)[1] - 1, least) - bits
        found = math.ldexp(round(math.ldexp(abs(x), -unit)), unit)  # of two whole numbers as near the even one
    return math.copysign(found if found <= most else beyond, x)


ONES = {
    "e4m3": lambda x: nearest_byte(x, 3, -6, 448.0, 448.0),
    "e5m2": lambda x: nearest_byte(x, 2, -14, 57344.0, math.inf),
}
"""Floats of one byte, and their nearest number."""


def wrapped(x: int) -> Lane:
    """An integer modulo 2^32."""
    return x & 0xFFFFFFFF


def total(terms: Sequence[float]) -> float:
    """The sum of f64 numbers as one that rounds to f32 as the exact sum does; infinities and NaNs as IEEE 754 has them in any order.

    Of an inexact sum that is the neighbour with an odd last bit: it lies on no border between two f32.
    """
    plain = sum(terms)  # of products of f32 none overflows
    if not math.isfinite(plain):
        return plain
    found = math.fsum(terms)
    rest = math.fsum([*terms, -found])
    return math.nextafter(found, math.copysign(math.inf, rest)) if rest and not _cast("d", "Q", found) & 1 else found


def factors(lanes: Sequence[Lane], kind: str) -> list[float]:
    """The numbers that lanes bring to the array: one each, or those of both bytes of a pair, the low one first."""
    if kind not in PAIRS:
        return list(map(number, lanes))
    stem = kind.removesuffix("x2")
    found = [byte(bits, stem) for x in lanes for bits in (x & 255, x >> 8 & 255)]
    return [float(signed(x)) if stem == "i8" else number(x) for x in found]


def add_block(so_far: Lane, a: Sequence[float], b: Sequence[float]) -> Lane:
    """A sum in f32 after one more block of products."""
    return compute("add", so_far, dot(a, b))


def add_integers(so_far: Lane, a: Sequence[float], b: Sequence[float]) -> Lane:
    """A sum in i32 after one more block of products of integers, modulo 2^32."""
    return so_far + sum(int(x) * int(y) for x, y in zip(a, b, strict=True)) & 0xFFFFFFFF


def dot(a: Sequence[float], b: Sequence[float]) -> Lane:
    """The exact sum of products of f32 numbers, rounded once to f32; a zero is +0."""
    return lane(number(lane(total(list(map(operator.mul, a, b))))) + 0.0)


# --- kinds ------------------------------------------------------------------------------------------------------------


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """A function to whole numbers; the result has the sign of x, a zero too."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


def _maximum(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan
    return max(x, y) if x != y else (x if math.copysign(1, x) > 0 else y)


FLOAT: dict[str, Callable[..., float]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": root,
    "rsqrt": lambda x: divided(1.0, number(lane(root(x)))),
    "rec": lambda x: divided(1.0, x),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(lambda x: math.floor(abs(x) + 0.5)),
    "roundeven": _whole(round),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": divided,
    "max": _maximum,
    "min": lambda x, y: -_maximum(-x, -y),
    "addh": lambda x, y: rounded(x + y, "f16"),
    "addb": lambda x, y: rounded(x + y, "bf16"),
    "addl": lambda x, y: rounded(x + y, "dl16"),
    "maxnum": lambda x, y: y if math.isnan(x) else x if math.isnan(y) else _maximum(x, y),
    "minnum": lambda x, y: y if math.isnan(x) else x if math.isnan(y) else -_maximum(-x, -y),
    "copysign": math.copysign,
    "remf": lambda x, y: math.nan if not y or math.isinf(x) or math.isnan(x) else math.fmod(x, y),
    "fma": lambda x, y, z: total((x * y, z)) or x * y + z,
    **ELEMENTARY,
}
"""Functions of f32 numbers, each computed exactly or in f64 and rounded once to f32."""


def _toward_zero(x: int, y: int) -> int:
    y = y or 1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


SIGNED: dict[str, Callable[..., int]] = {
    "absi": lambda x: abs(x),
    "negi": lambda x: -x,
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "minsi": min,
    "maxsi": max,
    "shrsi": lambda x, y: x >> min(wrapped(y), 31),
    "divsi": _toward_zero,
    "remsi": lambda x, y: x - _toward_zero(x, y) * (y or 1),
    "floordivsi": lambda x, y: x // (y or 1),
}
UNSIGNED: dict[str, Callable[..., int]] = {
    "minui": min,
    "maxui": max,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": lambda x, y: x << y if y < 32 else 0,
    "shrui": lambda x, y: x >> min(y, 32),
    "divui": lambda x, y: x // (y or 1),
    "remui": lambda x, y: x % (y or 1),
}
"""Functions of integers; results wrap modulo 2^32. A divisor of 0 counts as 1."""
BITS: dict[str, Callable[..., Lane]] = {
    "mov": lambda x: x,
    "select": lambda x, y, z: y if x else z,
    **{f"to{name}": partial(lambda x, kind: byte(narrowed(x, kind), kind), kind=name) for name in ONES},
    **{f"{name}lo": partial(lambda x, kind: byte(x & 255, kind), kind=name) for name in ("e4m3", "e5m2", "i8")},
    **{f"{name}hi": partial(lambda x, kind: byte(x >> 8 & 255, kind), kind=name) for name in ("e4m3", "e5m2", "i8")},
    **{f"{name}x2": partial(lambda x, y, kind: narrowed(x, kind) | narrowed(y, kind) << 8, kind=name) for name in ONES},
    "i8x2": lambda x, y: x & 255 | (y & 255) << 8,
    "sitofp": lambda x: lane(float(signed(x))),
    "uitofp": lambda x: lane(float(x)),
    **dict.fromkeys(("fptosi", "fptoui"), lambda x: wrapped(math.trunc(number(x))) if math.isfinite(number(x)) else 0),
}
"""Functions of lanes."""


def _compared(kind: str, predicate: str, x: Lane, y: Lane) -> Lane:
    """`cmpf_` and `cmpi_`: o.. is false and u.. true where an operand is NaN; s.. and u.. say how integers are read."""
    a, b = (number(x), number(y)) if kind == "cmpf" else (signed(x), signed(y)) if predicate[0] == "s" else (x, y)
    unordered = kind == "cmpf" and (math.isnan(a) or math.isnan(b))
    if predicate in ("ord", "uno"):
        return int(unordered == (predicate == "uno"))
    return int(predicate[0] == "u" if unordered else getattr(operator, predicate[-2:])(a, b))


def compute(kind: str, *operands: Lane) -> Lane:
    """A kind of the vector unit on one lane."""
    if kind.startswith("cmp"):
        return _compared(kind[:4], kind[5:], *operands)
    if kind in FLOAT:
        return lane(FLOAT[kind](*map(number, operands)))
    if kind in SIGNED:
        return wrapped(SIGNED[kind](*map(signed, operands)))
    return wrapped((UNSIGNED | BITS)[kind](*operands))


START = {"add": lane(0.0), "max": lane(-math.inf), "min": lane(math.inf), "addi": 0, "maxsi": 2**31, "minsi": 2**31 - 1}
START |= {"addh": lane(0.0), "addb": lane(0.0), "addl": lane(0.0), "maxnum": lane(-math.inf), "minnum": lane(math.inf)}
"""What an accumulator holds at the start of a group."""


def reduced(kind: str, entry: Entry) -> Lane:
    """VRED: a halving tree over the lanes."""
    while len(entry) > 1:
        middle = len(entry) // 2
        entry = [compute(kind, x, y) for x, y in zip(entry[:middle], entry[middle:], strict=True)]
    return entry[0]
