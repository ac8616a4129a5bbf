"""What the vector unit and the array compute: a lane is 32 bits, an int of 0 to 2^32 - 1, and an entry a list of 64 lanes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from operator import mul
from typing import Any

from .elementary import ELEMENTARY

Lane = int
Entry = list[Lane]

# --- lanes and numbers: every result is the nearest f32, ties to even -------------------------------------------------


def number(lane: Lane) -> float:
    """The f32 of a lane."""
    return struct.unpack("<f", struct.pack("<I", lane))[0]


def lane(x: float) -> Lane:
    """The lane of a number, rounded to f32."""
    try:
        return struct.unpack("<I", struct.pack("<f", x))[0]
    except OverflowError:
        return lane(math.copysign(math.inf, x))


def single(x: float) -> float:
    """A number rounded to f32."""
    return number(lane(x))


def half(x: float) -> int:
    """The 16 bits of a number rounded to f16."""
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return half(math.copysign(math.inf, x))


def widened(bits: int) -> Lane:
    """16 bits of an f16 as a lane."""
    return lane(struct.unpack("<e", struct.pack("<H", bits))[0])


def rounded_to_half(x: Lane) -> Lane:
    """A lane rounded to the f16 grid."""
    return widened(half(number(x)))


def signed(x: Lane) -> int:
    """The i32 of a lane."""
    return x - (x >> 31 << 32)


def wrapped(x: int) -> Lane:
    """An integer modulo 2^32."""
    return x & 0xFFFFFFFF


def nearest(n: int, scale: int) -> float:
    """The f32 nearest to n / 2^scale, ties to even; zero is +0."""
    size = abs(n)
    drop = max(size.bit_length() - 24, scale - 149)
    if drop > 0:
        rest, size = size & ((1 << drop) - 1), size >> drop
        size += rest > 1 << (drop - 1) or (rest == 1 << (drop - 1) and size & 1)
        scale -= drop
    try:
        result = math.ldexp(size, -scale)
    except OverflowError:
        result = math.inf
    return single(result if n >= 0 else -result)


def scaled(x: float) -> int:
    """A finite f32 times 2^149, which is an integer."""
    return int(math.ldexp(x, 149))


# --- kinds ------------------------------------------------------------------------------------------------------------


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    """A function to whole numbers; the result has the sign of x, a zero too."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


def _root(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _divide(x: float, y: float) -> float:
    if y:
        return x / y
    return math.nan if not x or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1, y)


def _maximum(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan
    return max(x, y) if x != y else (x if math.copysign(1, x) > 0 else y)


def _remainder(x: float, y: float) -> float:
    return math.nan if not y or math.isinf(x) or math.isnan(x) else math.fmod(x, y)


def _fma(x: float, y: float, z: float) -> float:
    if not all(map(math.isfinite, (x, y, z))):
        return z if math.isfinite(x) and math.isfinite(y) else x * y + z
    exact = scaled(x) * scaled(y) + (scaled(z) << 149)
    return nearest(exact, 298) if exact else single(x * y + z) if not x * y else 0.0


FLOAT: dict[str, Callable[..., float]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": _root,
    "rsqrt": lambda x: _divide(1.0, single(_root(x))),
    "rec": lambda x: _divide(1.0, x),
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(lambda x: math.floor(abs(x) + 0.5)),
    "roundeven": _whole(round),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": _divide,
    "max": _maximum,
    "min": lambda x, y: -_maximum(-x, -y),
    "copysign": math.copysign,
    "remf": _remainder,
    "fma": _fma,
    **ELEMENTARY,
}
"""Functions of f32 numbers, each computed exactly or in f64 and rounded once to f32."""


def _toward_zero(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _by(y: int) -> int:
    """A divisor: 0 counts as 1."""
    return y or 1


SIGNED: dict[str, Callable[..., int]] = {
    "absi": lambda x: abs(x),
    "negi": lambda x: -x,
    "addi": lambda x, y: x + y,
    "subi": lambda x, y: x - y,
    "muli": lambda x, y: x * y,
    "minsi": lambda x, y: min(x, y),
    "maxsi": lambda x, y: max(x, y),
    "shrsi": lambda x, y: x >> min(wrapped(y), 31),
    "divsi": lambda x, y: _toward_zero(x, _by(y)),
    "remsi": lambda x, y: x - _toward_zero(x, _by(y)) * _by(y),
    "floordivsi": lambda x, y: x // _by(y),
}
UNSIGNED: dict[str, Callable[..., int]] = {
    "minui": lambda x, y: min(x, y),
    "maxui": lambda x, y: max(x, y),
    "andi": lambda x, y: x & y,
    "ori": lambda x, y: x | y,
    "xori": lambda x, y: x ^ y,
    "shli": lambda x, y: x << y if y < 32 else 0,
    "shrui": lambda x, y: x >> y if y < 32 else 0,
    "divui": lambda x, y: x // _by(y),
    "remui": lambda x, y: x % _by(y),
}
"""Functions of integers; results wrap modulo 2^32."""

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def _compared(predicate: str, x: Lane, y: Lane) -> Lane:
    """`cmpf_` and `cmpi_`: o.. is false and u.. true where an operand is NaN; s.. and u.. say how integers are read."""
    kind, predicate = predicate.split("_")
    if kind == "cmpi":
        if predicate[0] == "s":
            x, y = signed(x), signed(y)
        return int(RELATIONS[predicate if predicate in ("eq", "ne") else predicate[1:]](x, y))
    a, b = number(x), number(y)
    unordered = math.isnan(a) or math.isnan(b)
    if predicate in ("ord", "uno"):
        return int(unordered == (predicate == "uno"))
    return int(predicate[0] == "u" if unordered else RELATIONS[predicate[1:]](a, b))


def compute(kind: str, *operands: Lane) -> Lane:
    """A kind of the vector unit on one lane."""
    if kind in FLOAT:
        return lane(FLOAT[kind](*map(number, operands)))
    if kind in SIGNED:
        return wrapped(SIGNED[kind](*map(signed, operands)))
    if kind in UNSIGNED:
        return wrapped(UNSIGNED[kind](*operands))
    if kind.startswith("cmp"):
        return _compared(kind, *operands)
    (x, *rest) = operands
    match kind:
        case "mov":
            return x
        case "select":
            return rest[0] if x else rest[1]
        case "sitofp":
            return lane(float(signed(x)))
        case "uitofp":
            return lane(float(x))
        case "fptosi" | "fptoui":
            return wrapped(math.trunc(number(x))) if math.isfinite(number(x)) else 0
    raise ValueError(f"unknown kind '{kind}'")


START: dict[str, Lane] = {
    "add": lane(0.0),
    "max": lane(-math.inf),
    "min": lane(math.inf),
    "addi": 0,
    "maxsi": wrapped(-(2**31)),
    "minsi": 2**31 - 1,
}
"""What an accumulator holds at the start of a group."""


def reduced(kind: str, entry: Entry) -> Lane:
    """VRED: a halving tree over the lanes."""
    while len(entry) > 1:
        middle = len(entry) // 2
        entry = [compute(kind, x, y) for x, y in zip(entry[:middle], entry[middle:], strict=True)]
    return entry[0]


Numbers = tuple[list[float], list[int]]
"""f32 numbers, and the same times 2^149; those that are not finite as 0."""


def numbers(lanes: Iterable[Lane]) -> Numbers:
    """Lanes as numbers, for products."""
    found = [number(x) for x in lanes]
    return found, [scaled(x) if math.isfinite(x) else 0 for x in found]


def sum_of_products(a: Numbers, b: Numbers) -> float:
    """The exact sum of the products, rounded once to f32; infinities and NaNs as IEEE 754 has them in any order."""
    plain = sum(map(mul, a[0], b[0]))  # of finite f32 no product or sum overflows here
    return nearest(sum(map(mul, a[1], b[1])), 298) + 0.0 if math.isfinite(plain) else plain  # a zero is +0
