"""Interval arithmetic: which values the scalar ops of `arith` and `math` can give, as both engines compute them.

An integer is the signed number of its type (of i1: 0 or 1), whatever the ops read it as. A float interval says besides whether NaN can
be there; its ends are outside of what any order of roundings gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from math import ceil, copysign, exp, floor, inf, isfinite, isinf, isnan, sqrt, trunc

from ktir.mlir import arith, ir, math, named, names

_INF = inf


@dataclass(frozen=True)
class Interval:
    """All numbers from `low` to `high`, both included; `nan`: NaN besides."""

    low: float
    high: float
    nan: bool = False

    def within(self, other: Interval) -> bool:
        """Whether `other` has all of it."""
        return other.low <= self.low and self.high <= other.high and (other.nan or not self.nan)


FLAG = Interval(0, 1)
I32 = Interval(-(2**31), 2**31 - 1)
ANY_FLOAT = Interval(-_INF, _INF, True)

Values = Interval | None
"""None: nothing is there, as in memory before the first store."""


def join(parts: Iterable[Values]) -> Values:
    """The least interval that holds all parts."""
    found = [p for p in parts if p is not None]
    if not found:
        return None
    return Interval(min(p.low for p in found), max(p.high for p in found), any(p.nan for p in found))


def width_of(type_: ir.Type) -> int | None:
    """Bits of an integer or index; None for other types."""
    return 64 if isinstance(type_, ir.IndexType) else ir.IntegerType(type_).width if isinstance(type_, ir.IntegerType) else None


def all_of(type_: ir.Type) -> Interval:
    """All values of a scalar type."""
    width = width_of(type_)
    if width is None:
        return ANY_FLOAT
    return FLAG if width == 1 else Interval(-(1 << (width - 1)), (1 << (width - 1)) - 1)


def bounded(found: Interval, type_: ir.Type) -> Interval:
    """What an op gives that computes `found` and wraps around, or rounds, to a type."""
    whole = all_of(type_)
    if width_of(type_) is not None:
        return found if found.within(whole) else whole
    most, slack = _FORMATS.get(str(type_), (_INF, 2.0**-22))

    def outward(x: float, sign: int) -> float:
        x = x + sign * (abs(x) * slack + 2.0**-24) if isfinite(x) else x
        return copysign(_INF, x) if abs(x) > most else x

    return Interval(outward(found.low, -1), outward(found.high, 1), found.nan)


_FORMATS = {"f16": (65504.0, 2.0**-9), "bf16": (_INF, 2.0**-6), "f32": (2.0**127, 2.0**-20)}
"""Largest number, and a bound of the relative error of a few roundings."""


def _corners(function: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    ends = [function(x, y) for x, y in product((a.low, a.high), (b.low, b.high))]
    return Interval(min(ends), max(ends))


# Integers


def _bits(*operands: Interval) -> int:
    """Bits without sign that hold all operands."""
    return max(int(x if x >= 0 else ~int(x)).bit_length() for i in operands for x in (i.low, i.high))


def _and(a: Interval, b: Interval) -> Interval:
    bounds = [i.high for i in (a, b) if i.low >= 0]
    return Interval(0, min(bounds)) if bounds else Interval(-(1 << _bits(a, b)), (1 << _bits(a, b)) - 1)


def _or(a: Interval, b: Interval) -> Interval:
    most = (1 << _bits(a, b)) - 1
    return Interval(0 if a.low >= 0 and b.low >= 0 else -most - 1, most)


def _shifted(a: Interval, b: Interval, shift: Callable[[int, int], int], beyond: Interval) -> Interval:
    """`beyond`: what amounts below 0 or from 64 on give."""
    inside = Interval(max(b.low, 0), min(b.high, 63))
    parts: list[Values] = [beyond] if b.low < 0 or b.high > 63 else []
    if inside.low <= inside.high:
        parts.append(_corners(lambda x, s: shift(int(x), int(s)), a, inside))
    found = join(parts)
    assert found is not None
    return found


def _left(a: Interval, b: Interval) -> Interval:
    return _shifted(a, b, lambda x, s: x << s, Interval(0, 0))


def _right(a: Interval, b: Interval) -> Interval:
    beyond = Interval(-1 if a.low < 0 else 0, 0 if a.high >= 0 else -1)
    return join([_shifted(a, b, lambda x, s: x >> s, beyond), beyond]) or beyond


def _quotient(round_: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """Division by what is not zero."""

    def divide(a: Interval, b: Interval) -> Interval:
        parts = [Interval(b.low, min(b.high, -1))] if b.low < 0 else []
        parts += [Interval(max(b.low, 1), b.high)] if b.high > 0 else []
        found = [_corners(lambda x, y: round_(int(x), int(y)), a, p) for p in parts]
        return join(found) or Interval(0, 0)

    return divide


def _truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _remainder(a: Interval, b: Interval) -> Interval:
    """Below the divisor, with the sign of the dividend."""
    most = min(max(abs(a.low), abs(a.high)), max(abs(b.low), abs(b.high), 1) - 1)
    return Interval(-most if a.low < 0 else 0, most if a.high > 0 else 0)


def _extreme(choose: Callable[[float, float], float]) -> Callable[[Interval, Interval], Interval]:
    return lambda a, b: Interval(choose(a.low, b.low), choose(a.high, b.high), a.nan or b.nan)


def _magnitude(a: Interval) -> Interval:
    return Interval(0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high)), a.nan)


RING: dict[str, Callable[[Interval, Interval], Interval]] = named(
    {
        arith.AddIOp: lambda a, b: Interval(a.low + b.low, a.high + b.high),
        arith.SubIOp: lambda a, b: Interval(a.low - b.high, a.high - b.low),
        arith.MulIOp: lambda a, b: _corners(lambda x, y: x * y, a, b),
        arith.ShLIOp: _left,
        arith.AndIOp: _and,
        arith.OrIOp: _or,
        arith.XOrIOp: _or,
    }
)
"""Ops whose low bits depend on the low bits of their operands alone."""
SIGNED: dict[str, Callable[[Interval, Interval], Interval]] = named(
    {
        arith.DivSIOp: _quotient(_truncated),
        arith.FloorDivSIOp: _quotient(lambda x, y: x // y),
        arith.CeilDivSIOp: _quotient(lambda x, y: -(-x // y)),
        arith.RemSIOp: _remainder,
        arith.ShRSIOp: _right,
        arith.MaxSIOp: _extreme(max),
        arith.MinSIOp: _extreme(min),
    }
)
UNSIGNED: dict[str, Callable[[Interval, Interval], Interval]] = named(
    {
        arith.DivUIOp: SIGNED[arith.DivSIOp.OPERATION_NAME],
        arith.CeilDivUIOp: SIGNED[arith.CeilDivSIOp.OPERATION_NAME],
        arith.RemUIOp: _remainder,
        arith.ShRUIOp: _right,
        arith.MaxUIOp: _extreme(max),
        arith.MinUIOp: _extreme(min),
    }
)
"""The same for numbers without sign."""


def unsigned(a: Interval, width: int) -> Interval:
    """What the bits of signed numbers are as numbers without sign."""
    if a.low >= 0 or width == 1:
        return a
    whole = 1 << width
    return Interval(a.low + whole, a.high + whole) if a.high < 0 else Interval(0, whole - 1)


_ORDERS: dict[str, Callable[[Interval, Interval], bool]] = {
    "lt": lambda a, b: a.high < b.low,
    "le": lambda a, b: a.high <= b.low,
    "gt": lambda a, b: a.low > b.high,
    "ge": lambda a, b: a.low >= b.high,
    "eq": lambda a, b: a.low == a.high == b.low == b.high,
    "ne": lambda a, b: a.high < b.low or b.high < a.low,
}
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def compared(relation: str, a: Interval, b: Interval) -> Interval:
    """The truth of `lt`, `le`, `gt`, `ge`, `eq` or `ne`, where the intervals decide it."""
    if _ORDERS[relation](a, b):
        return Interval(1, 1)
    return Interval(0, 0) if _ORDERS[_OPPOSITE[relation]](a, b) else FLAG


# Floats


def _has_infinity(*operands: Interval) -> bool:
    return any(isinf(i.low) or isinf(i.high) for i in operands)


def _sum(a: Interval, b: Interval) -> Interval:
    low, high = a.low + b.low, a.high + b.high
    clash = (a.low == -_INF and b.high == _INF) or (a.high == _INF and b.low == -_INF)
    return Interval(-_INF if isnan(low) else low, _INF if isnan(high) else high, a.nan or b.nan or clash)


def negated(a: Interval) -> Interval:
    """-a."""
    return Interval(-a.high, -a.low, a.nan)


def _product(a: Interval, b: Interval) -> Interval:
    found = _corners(lambda x, y: 0.0 if x == 0 or y == 0 else x * y, a, b)
    zero = any(i.low <= 0 <= i.high for i in (a, b))
    return Interval(found.low, found.high, a.nan or b.nan or (zero and _has_infinity(a, b)))


def _ratio(a: Interval, b: Interval) -> Interval:
    if b.low <= 0 <= b.high:
        return ANY_FLOAT
    inverse = Interval(1 / b.high, 1 / b.low)
    found = _product(a, inverse)
    return Interval(found.low, found.high, a.nan or b.nan or (_has_infinity(a) and _has_infinity(b)))


def _modulo(a: Interval, b: Interval) -> Interval:
    most = min(max(abs(a.low), abs(a.high)), max(abs(b.low), abs(b.high)))
    return Interval(-most, most, a.nan or b.nan or b.low <= 0 <= b.high or _has_infinity(a))


def _monotone(function: Callable[[float], float]) -> Callable[[Interval], Interval]:
    def apply(a: Interval) -> Interval:
        low, high = (x if isinf(x) else function(x) for x in (a.low, a.high))
        return Interval(low, high, a.nan)

    return apply


def _exp(x: float) -> float:
    return 0.0 if x == -_INF else exp(x) if x < 700 else _INF


def _between(low: float, high: float) -> Callable[[Interval], Interval]:
    return lambda a: Interval(low, high, a.nan or _has_infinity(a))


FLOATS: dict[str, Callable[..., Interval]] = named(
    {
        arith.AddFOp: _sum,
        arith.SubFOp: lambda a, b: _sum(a, negated(b)),
        arith.MulFOp: _product,
        arith.DivFOp: _ratio,
        arith.RemFOp: _modulo,
        math.FmaOp: lambda a, b, c: _sum(_product(a, b), c),
        math.ExpOp: lambda a: Interval(_exp(a.low), _exp(a.high), a.nan),
        math.TanhOp: lambda a: Interval(-1.0, 1.0, a.nan),
        math.ErfOp: lambda a: Interval(-1.0, 1.0, a.nan),
        math.SinOp: _between(-1.0, 1.0),
        math.CosOp: _between(-1.0, 1.0),
        math.SqrtOp: lambda a: Interval(0.0, sqrt(max(a.high, 0.0)), a.nan or a.low < 0),
        arith.TruncFOp: lambda a: a,
    }
)
"""Ops that round."""
EXACT: dict[str, Callable[..., Interval]] = named(
    {
        arith.ExtFOp: lambda a: a,
        arith.NegFOp: negated,
        arith.MaximumFOp: _extreme(max),
        arith.MinimumFOp: _extreme(min),
        math.AbsFOp: _magnitude,
        math.FloorOp: _monotone(floor),
        math.CeilOp: _monotone(ceil),
        math.TruncOp: _monotone(trunc),
        math.RoundOp: _monotone(lambda x: copysign(floor(abs(x) + 0.5), x)),
        math.RoundEvenOp: _monotone(round),
    }
)


def whole_numbers(a: Interval) -> Interval:
    """What a conversion to integers gives; without end where it may meet NaN or infinity."""
    if a.nan or _has_infinity(a):
        return Interval(-_INF, _INF)
    return Interval(trunc(a.low), trunc(a.high))


def _power(each: Interval, trips: int) -> Interval:
    """Products of so many of it. Of more than 64 factors any that is not -1, 0 or 1 gives more than 64 bits hold."""
    most = max(abs(each.low), abs(each.high))
    trips = min(trips, 64)
    return Interval(each.low**trips if each.low >= 0 else -(most**trips), most**trips)


def repeated(combiner: str, start: Values, each: Values, trips: int) -> Values:
    """What a reduction of `trips` values of `each` gives. Raises KeyError for a combiner that is not known."""
    if each is None:
        return start
    if combiner == arith.AddFOp.OPERATION_NAME:
        slack = max(abs(each.low), abs(each.high)) * trips * trips * 2.0**-24
        low, high = each.low * trips - slack, each.high * trips + slack
        total = Interval(-_INF if isnan(low) else low, _INF if isnan(high) else high, each.nan or _has_infinity(each))
        return total if start is None else _sum(start, total)
    if combiner == arith.AddIOp.OPERATION_NAME:
        return RING[combiner](start or Interval(0, 0), Interval(each.low * trips, each.high * trips))
    if combiner == arith.MulIOp.OPERATION_NAME:
        return RING[combiner](start or Interval(1, 1), _power(each, trips))
    if combiner in names(arith.OrIOp, arith.AndIOp, arith.XOrIOp):
        return _or(start or each, each)
    if combiner in names(arith.MaxUIOp, arith.MinUIOp):
        return join([start, each])
    table = {name: {**SIGNED, **EXACT}[name] for name in names(arith.MaxSIOp, arith.MinSIOp, arith.MaximumFOp, arith.MinimumFOp)}
    return each if start is None else table[combiner](start, each)
