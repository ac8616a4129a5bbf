"""Element types as plain NumPy knows them, edge values, and comparison place by place.

The oracle's values are float64 arrays for every float type (each holds them exactly) and object arrays of Python ints, in two's
complement with its sign, for the integers; a true i1 is -1. Nothing here uses the rounding that is tested.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Array = np.ndarray

FEW = settings(max_examples=10, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
"""The default: the same examples on every run."""
MANY = settings(FEW, max_examples=400, derandomize=False, print_blob=True)
"""Under the marker `long`: other examples every time; a failure prints what repeats it."""

# Element types

FLOATS = ("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2")
INTEGERS = ("i1", "i8", "i16", "i32", "i64", "index")
WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
_FIELDS = {"f16": (5, 10), "bf16": (8, 7), "f8E4M3FN": (4, 3), "f8E5M2": (5, 2), "f32": (8, 23), "f64": (11, 52)}
"""Bits of exponent and fraction."""
HOST: dict[str, Any] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64, "f8E4M3FN": np.uint8, "f8E5M2": np.uint8,
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
}  # fmt: skip


def precision(element: str) -> int:
    """Significand bits, the hidden one included."""
    return _FIELDS[element][1] + 1


def least_exponent(element: str) -> int:
    """Exponent of the smallest normal number."""
    return 2 - (1 << (_FIELDS[element][0] - 1))


def most(element: str) -> float:
    """The largest finite number."""
    if element == "f8E4M3FN":
        return 448.0
    exponent, fraction = _FIELDS[element]
    return float((2 - Fraction(1, 1 << fraction)) * Fraction(2) ** ((1 << (exponent - 1)) - 1))


def rounded(element: str, x: Array) -> Array:
    """Exact values (float64, or objects that are Fractions or floats) in float type `element`: nearest, ties to even.

    Beyond the largest number comes infinity, and the largest number itself in f8E4M3FN, which has no infinity.
    """
    if x.dtype == object:
        return np.array([_rounded_fraction(element, v) for v in x.reshape(-1)], np.float64).reshape(x.shape)
    with np.errstate(all="ignore"):
        if element == "f64":
            return x.astype(np.float64)
        _, exponent = np.frexp(np.where(np.isfinite(x), x, 0))
        grain = np.maximum(exponent - 1, least_exponent(element)) - precision(element) + 1
        y = np.where(np.isfinite(x), np.ldexp(np.rint(np.ldexp(x, -grain)), grain), x)
        return np.where(np.abs(y) > most(element), np.copysign(448.0 if element == "f8E4M3FN" else np.inf, y), y)


def _rounded_fraction(element: str, x: Any) -> float:
    if not isinstance(x, Fraction):
        return float(rounded(element, np.array([x], np.float64))[0])
    if not x:
        return 0.0
    exponent = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    grain = Fraction(2) ** (max(exponent, least_exponent(element)) - precision(element) + 1)
    y = round(x / grain) * grain  # Python rounds to even
    if abs(y) > most(element):
        return (448.0 if element == "f8E4M3FN" else np.inf) * (1 if y > 0 else -1)
    return float(y) if y else (0.0 if x > 0 else -0.0)


def wrapped(element: str, x: Array) -> Array:
    """Python ints modulo the width of `element`, with their sign."""
    bits = WIDTHS[element]
    return np.array([((int(v) + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1)) for v in x.reshape(-1)], object).reshape(
        x.shape
    )


def bare(element: str, x: Array) -> Array:
    """The same bits as numbers without sign."""
    return np.array([int(v) & ((1 << WIDTHS[element]) - 1) for v in x.reshape(-1)], object).reshape(x.shape)


def finished(element: str, x: Any) -> Array:
    """An exact result in type `element`, rounded or wrapped."""
    x = np.asarray(x)
    if element in FLOATS:
        return rounded(element, x if x.dtype == object else x.astype(np.float64))
    return wrapped(element, x.astype(object))


@functools.cache
def _magnitudes(element: str) -> Array:
    """Values of the codes of a narrow type without sign, up to its largest number."""
    exponent, fraction = _FIELDS[element]
    code = np.arange(1 << (exponent + fraction))
    e, f = code >> fraction, (code & ((1 << fraction) - 1)) / (1 << fraction)
    value = np.where(e == 0, np.ldexp(f, least_exponent(element)), np.ldexp(1 + f, e - 1 + least_exponent(element)))
    return value[value <= most(element)]


def to_host(element: str, x: Array) -> Array:
    """Oracle values as an array that `execute` takes."""
    if element in INTEGERS:
        return np.ascontiguousarray((x != 0) if element == "i1" else x.astype(HOST[element])).astype(HOST[element])
    with np.errstate(all="ignore"):
        if HOST[element] not in (np.uint8, np.uint16):
            return np.ascontiguousarray(x.astype(HOST[element]))
        grid = _magnitudes(element)
        code = np.searchsorted(grid, np.where(np.isfinite(x), np.abs(x), 0))
        assert np.array_equal(grid[code], np.where(np.isfinite(x), np.abs(x), 0)), f"values that are none of {element}"
        full = ((1 << _FIELDS[element][0]) - 1) << _FIELDS[element][1]
        code = np.where(np.isinf(x), full, np.where(np.isnan(x), full + (1 << _FIELDS[element][1]) - 1, code))
        return np.ascontiguousarray(code + (np.signbit(x).astype(np.int64) << sum(_FIELDS[element]))).astype(HOST[element])


def from_host(element: str, x: Array) -> Array:
    """An array of `execute` as oracle values."""
    if element in INTEGERS:
        return -x.astype(np.int64).astype(object) if element == "i1" else x.astype(object)
    if HOST[element] not in (np.uint8, np.uint16):
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return x.astype(np.float64)
    grid, width = _magnitudes(element), sum(_FIELDS[element])
    magnitude = (x & ((1 << width) - 1)).astype(np.int64)
    value = np.where(magnitude < grid.size, grid[np.minimum(magnitude, grid.size - 1)], np.nan)
    full = ((1 << _FIELDS[element][0]) - 1) << _FIELDS[element][1]
    if element != "f8E4M3FN":
        value = np.where(magnitude == full, np.inf, value)
    return np.where(x >> width, -value, value)


def ordinal(element: str, x: Array) -> Array:
    """Place of each number among those of its type, 0 for both zeros; infinity comes after the largest number."""
    p, least = precision(element), least_exponent(element)
    with np.errstate(all="ignore"):
        size = np.minimum(np.abs(x), most(element))
        _, e = np.frexp(np.where(np.isnan(size), 0, size))
        e = np.where(size > 0, np.maximum(e - 1, least), least)
        place = np.ldexp(np.where(np.isnan(size), 0, size), p - 1 - e).astype(np.int64) + ((e - least).astype(np.int64) << (p - 1))
    place = place + np.isinf(x)
    return np.where(np.signbit(x), -place, place)


def check_same(element: str, got: Array, want: Array, ulps: int, operands: Sequence[Array], what: str) -> None:
    """Bits are equal (any NaN is one), or with `ulps` at most so many places apart. The message gives the first operands that fail."""
    if element in INTEGERS:
        bad = got != want
    else:
        nan = np.isnan(got) != np.isnan(want)
        both = np.isnan(got) & np.isnan(want)
        if ulps:
            bad = nan | (~both & (np.abs(ordinal(element, got) - ordinal(element, want)) > ulps))
        else:
            bad = nan | (~both & ((got != want) | (np.signbit(got) != np.signbit(want))))
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.size} differ; of ({', '.join(repr(o[first]) for o in operands)}) at {first} "
            f"it makes {got[first]!r}, not {want[first]!r}"
        )


# Values


@functools.cache
def edges(element: str) -> Array:
    """The values at which arithmetic goes wrong."""
    if element in INTEGERS:
        low, high = -(1 << (WIDTHS[element] - 1)), (1 << (WIDTHS[element] - 1)) - 1
        half = 1 << (WIDTHS[element] // 2)
        values = {0, 1, -1, 2, -2, 3, 7, -7, 8, 10, 100, low, low + 1, high, high - 1, half, -half, half + 1}
        for p in (8, 11, 24, 53):  # one beyond a tie of a float type: rounding by way of another type would lose it
            top = high // 2 + 1
            values |= {top + (top >> p) + 1, -top - (top >> p) - 1}
        return np.array(sorted(v for v in values if low <= v <= high), object)
    p, least = precision(element), least_exponent(element)
    eps, tiny, least_sub = 2.0 ** (1 - p), 2.0**least, 2.0 ** (least - p + 1)
    top = most(element)
    values = [
        0.0,
        1.0,
        1 + eps,
        1 - eps / 2,
        0.5,
        1.5,
        2.5,
        3.0,
        eps,
        2.0 ** (p - 1) - 0.5,
        2.0 ** (p - 1) + 1,
        7.25,
        0.1,
        np.pi,
        10.0,
        80.0,
    ]
    values += [least_sub, 3 * least_sub, tiny - least_sub, tiny, tiny * (1 + eps), top, top / 2, np.inf, np.nan]
    array = np.array(values)
    if element == "f8E4M3FN":
        array = array[~np.isinf(array)]
    array = np.unique(rounded(element, array))
    return np.concatenate([array, -array[~np.isnan(array)]])


def random_values(element: str, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Half of them edges, the rest of every size."""
    if element in INTEGERS:
        bits = random.integers(1, WIDTHS[element] + 1, shape)
        raw = random.integers(-(1 << 63), (1 << 63) - 1, shape).astype(object)
        found = wrapped(element, np.frompyfunc(lambda v, b: v >> (64 - b), 2, 1)(raw, bits).astype(object)) if prod(shape) else raw
        found = np.asarray(found, object).reshape(shape)
    else:
        reach = min(-least_exponent(element), 40)
        found = rounded(
            element, random.standard_normal(shape) * np.exp2(random.integers(-reach, reach + 1, shape) * random.integers(0, 2, shape))
        )
        found = found.astype(np.float64)
    pick = random.choice(edges(element), shape) if shape else np.asarray(random.choice(edges(element)))
    chosen = np.where(random.random(shape) < 0.5, pick, found)
    return np.asarray(chosen, object if element in INTEGERS else np.float64).reshape(shape)


def crossed(elements: Sequence[str]) -> list[Array]:
    """All combinations of edge values: one array of rank 1 per operand; of three or more operands a part."""
    if len(elements) < 3:
        grids = np.meshgrid(*[np.arange(edges(e).size) for e in elements], indexing="ij")
        return [edges(e)[g.reshape(-1)] for e, g in zip(elements, grids, strict=True)]
    random = np.random.default_rng(0)
    return [random_values(e, (600,), random) for e in elements]


shapes = st.one_of(
    st.just(()),
    st.lists(st.sampled_from([1, 1, 2, 3, 5, 7]), min_size=1, max_size=4).map(tuple),
    st.lists(st.sampled_from([1, 2, 63, 64, 65, 129]), min_size=1, max_size=2).map(tuple),
)
"""Ranks 0 to 4: single elements, odd extents, and those about a stick."""
tile_counts = st.sampled_from([1, 1, 2, 3, 5])
seeds = st.integers(0, 10**9)
