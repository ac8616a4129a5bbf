"""math, op by op. The oracle computes in extended precision: what is not exact may be one place off, a few functions in f32 more."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sweep
from hypothesis import given
from hypothesis import strategies as st
from sweep import FLOATS, INTEGERS, WIDTHS, Case

Array = np.ndarray
CASES: list[Case] = []


def extended(function: Callable[..., Any]) -> Callable[..., Array]:
    """A NumPy function in `longdouble`, which has 64 significant bits or more."""
    return lambda *operands: np.asarray(function(*(np.asarray(x, np.longdouble) for x in operands))).astype(np.float64)


def scalarwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([function(float(v)) for v in x.reshape(-1)], np.float64).reshape(x.shape)


def half_away(x: Array) -> Array:
    """The nearest whole number; of two the one further from zero."""
    down = np.floor(np.abs(x))
    with np.errstate(all="ignore"):
        return np.copysign(np.where(np.abs(x) - down >= 0.5, down + 1, down), x)


EXACT: dict[str, Callable[..., Array]] = {
    "absf": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "round": half_away,
    "roundeven": np.rint,
    "sqrt": np.sqrt,
}
"""Single roundings, or none."""
CLOSE: dict[str, Callable[..., Array]] = {
    **{n: extended(getattr(np, n)) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt")},
    **{n: extended(getattr(np, n)) for n in ("sinh", "cosh", "tanh")},
    **{f"a{n}": extended(getattr(np, f"arc{n}")) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "rsqrt": extended(lambda x: 1 / np.sqrt(x)),
    "erf": scalarwise(math.erf),
    "erfc": scalarwise(math.erfc),
}
NUMPY_F32 = {"exp": 3, "log": 4, "tanh": 2, "rsqrt": 2}
"""Places that the functions which are evaluated in f32 may be off there: NumPy's own bounds, and two roundings for rsqrt."""

for element in FLOATS:
    for name, oracle in (EXACT | CLOSE).items():
        ulps = 0 if name in EXACT else NUMPY_F32.get(name, 1) if element == "f32" else 1
        if element == "f64" and name not in EXACT:
            ulps = 4  # NumPy's bound for its vectorised functions
        CASES.append(Case(f"math.{name}", f"math.{name} {{x[0]}} : {{t[0]}}", (element,), (element,), oracle, ulps))
    for name, ulps in {"powf": 1, "atan2": 1, "copysign": 0}.items():
        function = extended({"powf": np.power, "atan2": np.arctan2, "copysign": np.copysign}[name])
        wide = 4 if element == "f64" and ulps else ulps
        CASES.append(Case(f"math.{name}", f"math.{name} {{x[0]}}, {{x[1]}} : {{t[0]}}", (element,) * 2, (element,), function, wide))


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c exactly, where all are finite."""
    result = np.empty(a.shape, object)
    for i in np.ndindex(*a.shape):
        x, y, z = float(a[i]), float(b[i]), float(c[i])
        if not math.isfinite(x) or not math.isfinite(y):
            result[i] = x * y + z
        elif not math.isfinite(z):
            result[i] = z
        elif x == 0 or y == 0:
            result[i] = x * y + z
        else:
            result[i] = Fraction(x) * Fraction(y) + Fraction(z)
    return result


def whole_power(x: Array, n: Array) -> Array:
    def one(x: float, n: int) -> float:
        size = float(np.power(np.longdouble(abs(x)), np.longdouble(n)))
        return -size if math.copysign(1, x) < 0 and n % 2 else size

    return np.array([one(float(a), int(b)) for a, b in zip(x.reshape(-1), n.reshape(-1), strict=True)], np.float64).reshape(x.shape)


def clamp(x: Array, low: Array, high: Array) -> Array:
    return np.where(x < low, low, np.where(x > high, high, x))


LEAST = {e: 2.0 ** sweep.least_exponent(e) for e in FLOATS}
for element in FLOATS:
    CASES.append(Case("math.fma", "math.fma {x[0]}, {x[1]}, {x[2]} : {t[0]}", (element,) * 3, (element,), fused))
    for integer in ("i8", "i32", "i64"):
        text = "math.fpowi {x[0]}, {x[1]} : {t[0]}, {t[1]}"
        CASES.append(Case("math.fpowi", text, (element, integer), (element,), whole_power, 4 if element == "f64" else 1))
    text = "math.clampf {x[0]} to [{x[1]}, {x[2]}] : {t[0]}"
    CASES.append(
        Case("math.clampf", text, (element,) * 3, (element,), clamp, 0, lambda x, a, b: (a < b) & (x != 0) & ~np.isnan(x), (1.0,) * 3)
    )
    waves = CLOSE["sin"], CLOSE["cos"]
    text, wide = "math.sincos {x[0]} : {t[0]}", 4 if element == "f64" else 1
    CASES.append(Case("math.sincos", text, (element,), (element,) * 2, lambda x, f=waves: (f[0](x), f[1](x)), wide))
    classes: dict[str, Callable[[Array], Any]] = {
        "isnan": np.isnan,
        "isinf": np.isinf,
        "isfinite": np.isfinite,
        "isnormal": lambda x, e=element: np.isfinite(x) & (np.abs(x) >= LEAST[e]),
    }
    for name, holds in classes.items():
        CASES.append(
            Case(
                f"math.{name}", f"math.{name} {{x[0]}} : {{t[0]}}", (element,), ("i1",), lambda x, f=holds: -f(x).astype(int).astype(object)
            )
        )

BITS: dict[str, Callable[[str], int]] = {
    "ctpop": lambda digits: digits.count("1"),
    "ctlz": lambda digits: len(digits) - len(digits.lstrip("0")),
    "cttz": lambda digits: len(digits) - len(digits.rstrip("0")),
}
for element in INTEGERS:
    power = np.frompyfunc(lambda a, b, n=1 << WIDTHS[element]: pow(a, b, n), 2, 1)
    text = "math.ipowi {x[0]}, {x[1]} : {t[0]}"
    if element != "i1":
        CASES.append(Case("math.ipowi", text, (element,) * 2, (element,), power, 0, lambda a, b: b >= 0, (1, 1)))
    CASES.append(Case("math.absi", "math.absi {x[0]} : {t[0]}", (element,), (element,), np.abs))
    for name, count in BITS.items():

        def oracle(x: Array, f: Any = count, e: str = element) -> Array:
            values = [f(format(int(v), f"0{WIDTHS[e]}b")) for v in sweep.bare(e, x).reshape(-1)]
            return np.array(values, object).reshape(x.shape)

        CASES.append(Case(f"math.{name}", f"math.{name} {{x[0]}} : {{t[0]}}", (element,), (element,), oracle))


@pytest.mark.parametrize("cases", sweep.grouped(CASES))
def test_edges(cases):
    sweep.verify_edges(cases)


@sweep.FEW
@given(st.data())
def test_random(data):
    sweep.verify_random(CASES, data)


@pytest.mark.long
@sweep.MANY
@given(st.data())
def test_random_many(data):
    sweep.verify_random(CASES, data)


@pytest.mark.parametrize("element", ["f16", "bf16", "f8E4M3FN", "f8E5M2"])
def test_every_value(element):
    """The functions of one operand on all values of a narrow type."""
    bits = np.arange(1 << (8 * np.dtype(sweep.HOST[element]).itemsize)).astype(np.dtype(sweep.HOST[element]).str.replace("f", "u"))
    values = sweep.from_host(element, bits.view(sweep.HOST[element]))[None]
    values = values[:, ~np.isnan(values[0])]
    cases = [c for c in CASES if c.takes == (element,) and c.op != "math.erfc"]
    sweep.verify(cases, [[values]] * len(cases), "tensors")
