"""Elementary functions on f64 arrays, from IEEE basic operations alone: sums, products, quotients, square roots and bits.

So a result has the same bits on every host, whatever vector instructions, math library and BLAS it has. Values come from float32 and
go back to it: rounded once, a function is the exact one rounded to float32 in all but about one case in a thousand, and then its
neighbour. docs/spec/elementary.md says how each is computed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SERIES",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "power",
    "sin",
    "sinh",
    "tan",
    "tanh",
]

F64 = NDArray[np.float64]
Series = tuple[float, ...]

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_LOG2E = float.fromhex("0x1.71547652b82fep+0")
_LOG10E = float.fromhex("0x1.bcb7b1526e50ep-2")
_PI = float.fromhex("0x1.921fb54442d18p+1")

SERIES: dict[str, Series] = {
    name: tuple(map(float.fromhex, numbers.split()))
    for name, numbers in {
        "expm1": """
            0x1.0000000000000p+0 0x1.fffffffff71b2p-2 0x1.5555555553b78p-3 0x1.555555742d965p-5 0x1.1111111c478ebp-7
            0x1.6c164de86dafdp-10 0x1.a019ada3609f3p-13 0x1.a15a600528a0fp-16 0x1.72c72ca338df0p-19
        """,
        "atanh": """
            0x1.0000000000000p+0 0x1.55555555555aep-2 0x1.999999997ae5dp-3 0x1.2492494518370p-3 0x1.c71c4ffcc4142p-4
            0x1.74669a1004d6ep-4 0x1.3999ab33ca2e3p-4 0x1.2f4e5bc67e798p-4
        """,
        "sin": """
            0x1.0000000000000p+0 -0x1.5555555555543p-3 0x1.111111110f3d8p-7 -0x1.a01a019ba8e2ap-13 0x1.71de3530452f6p-19
            -0x1.ae5e37985bcaap-26 0x1.5d87520e073a2p-33
        """,
        "cos": """
            0x1.0000000000000p+0 -0x1.0000000000000p-1 0x1.5555555555536p-5 -0x1.6c16c16c139ffp-10 0x1.a01a019b1da27p-16
            -0x1.27e4f7279c7b3p-22 0x1.1ee96ccb92766p-29 -0x1.8f760c22f7e1ep-37
        """,
        "atan": """
            0x1.ffffffffffff7p-1 -0x1.5555555550687p-2 0x1.999999922b9c0p-3 -0x1.249246f634ea7p-3 0x1.c71bca91633a8p-4
            -0x1.744e9f942507ep-4 0x1.3a4ec8d3a6dbap-4 -0x1.0a7bc4dc65f3bp-4 0x1.9b9e37b2f1638p-5 -0x1.9ec1ac1391c13p-6
        """,
        "erf_p": """
            0x1.20dd750429b6dp+0 0x1.85d4823b63aeep-3 0x1.cf61d7e881049p-5 0x1.269d1e18bf4f2p-8 0x1.fa76609a86879p-12
            0x1.39b9e19d37418p-16 0x1.88c801cae5122p-21 0x1.c12dc4cff78c5p-29
        """,
        "erf_q": """
            0x1.0000000000000p+0 0x1.01094143bcc40p-1 0x1.e1291f14a8036p-4 0x1.1266954970f9ap-6 0x1.a00420acbd508p-10
            0x1.a7ec6bad97b20p-14 0x1.0f50679a7c38dp-18 0x1.4684ad6ff86eap-24
        """,
        "erfc": """
            0x1.6e9827d229d34p-3 -0x1.4e102b9cf8494p-2 0x1.f6ff204105293p-3 -0x1.336ffbef0fb59p-3 0x1.258b13b02f718p-4
            -0x1.8fa58eaea914ap-6 0x1.17c838f304aa4p-8 0x1.731011d279f20p-11 -0x1.39085b7421439p-11 0x1.7ba642b830de6p-15
            0x1.0cb1afa138099p-14 -0x1.afbef2058c45bp-17 -0x1.0c8ac527a396cp-17 0x1.1bf5017a69f76p-19 0x1.5e6d935e458b6p-20
            -0x1.00392e34414bap-22 -0x1.14bccc3aceb2ap-22 -0x1.99f071bb62d9dp-25
        """,
    }.items()
}
"""Coefficients of polynomials, the constant one first."""

_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0",
    16,
)
"""2 / pi in units of 2^-320, rounded down."""


def _horner(name: str, t: F64) -> F64:
    """The polynomial of a series at t, from its highest coefficient down: a product and a sum for each."""
    series = SERIES[name]
    total = t * series[-1]
    for c in series[-2:0:-1]:
        total += c
        total *= t
    total += series[0]
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Powers of e and of 2
# ---------------------------------------------------------------------------------------------------------------------

_WHOLE = 1.5 * 2.0**52 + 1023
"""Added to k, it rounds to the nearest whole number and leaves k + 1023 in the lowest bits: the exponent field of 2^k."""


def _split(x: F64, per_unit: float) -> tuple[F64, F64]:
    """2^k and k, where k = rint(x * per_unit)."""
    k = x * per_unit
    k += _WHOLE
    scale = (k.view(np.int64) << 52).view(np.float64)
    k -= _WHOLE
    return scale, k


def _e(x: F64) -> tuple[F64, F64]:
    """2^k and e^r - 1, where x = k ln 2 + r and |x| is cut at 700."""
    x = np.minimum(np.maximum(x, -700.0), 700.0)
    scale, k = _split(x, _LOG2E)
    k *= _LN2
    x -= k
    part = _horner("expm1", x)
    part *= x
    return scale, part


def exp(x: F64) -> F64:
    scale, part = _e(x)
    part *= scale
    part += scale
    return part


def exp2(x: F64) -> F64:
    x = np.minimum(np.maximum(x, -1000.0), 1000.0)
    scale, k = _split(x, 1.0)
    r = (x - k) * _LN2
    return _horner("expm1", r) * r * scale + scale


def expm1(x: F64) -> F64:
    scale, part = _e(x)
    part *= scale
    scale -= 1.0
    part += scale
    return np.copysign(part, x, out=part)


def tanh(x: F64) -> F64:
    part = expm1(np.minimum(np.maximum(x, -10.0), 10.0) * 2.0)
    return np.divide(part, part + 2.0, out=part)


def sinh(x: F64) -> F64:
    part = expm1(np.abs(x))
    return np.copysign(0.5 * (part + part / (part + 1.0)), x)


def cosh(x: F64) -> F64:
    part = exp(np.abs(x))
    return 0.5 * (part + 1.0 / part)


# ---------------------------------------------------------------------------------------------------------------------
# Logarithms and roots
# ---------------------------------------------------------------------------------------------------------------------

_ROOT_HALF = np.float64(0.5**0.5).view(np.int64)


def _mantissa(x: F64) -> tuple[F64, F64]:
    """e and log(m), where x = 2^e m and m lies between the roots of 1/2 and of 2."""
    bits = x.view(np.int64)
    e = bits - _ROOT_HALF
    e >>= 52
    m = (bits - (e << 52)).view(np.float64)
    return e.astype(np.float64), _near_one(m - 1.0, m)


def _near_one(less: F64, m: F64) -> F64:
    """log(m) of m = 1 + less: 2 s P(s^2), where s = less / (m + 1)."""
    s = less / (m + 1.0)
    return _horner("atanh", s * s) * (s * 2.0)


def _at_ends(x: F64, result: F64) -> F64:
    """A logarithm where x is no positive finite number."""
    ends = ~((x > 0) & (x < np.inf))
    if ends.any():
        result[ends] = np.where(x[ends] == 0, -np.inf, np.where(x[ends] > 0, np.inf, np.nan))
    return result


def log(x: F64) -> F64:
    e, part = _mantissa(x)
    e *= _LN2
    part += e
    return _at_ends(x, part)


def log2(x: F64) -> F64:
    e, part = _mantissa(x)
    return _at_ends(x, e + part * _LOG2E)


def log10(x: F64) -> F64:
    return log(x) * _LOG10E


def log1p(x: F64) -> F64:
    return np.where(np.abs(x) < 0.25, _near_one(x, 1.0 + x), log(1.0 + x))


def asinh(x: F64) -> F64:
    a = np.abs(x)
    rest = np.where(a > 2.0**28, a * 2.0 - 1.0, a + a * a / (1.0 + np.sqrt(1.0 + a * a)))
    return np.copysign(log1p(rest), x)


def acosh(x: F64) -> F64:
    less = np.where(x < 1, np.nan, x - 1.0)
    return log1p(less + np.sqrt(2.0 * less + less * less))


def atanh(x: F64) -> F64:
    a = np.abs(x)
    return np.copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x)


def cbrt(x: F64) -> F64:
    """2^(log2 |x| / 3), then a step of Newton's."""
    a = np.abs(x)
    root = exp2(log2(a) / 3.0)
    root -= (root - a / (root * root)) / 3.0
    return np.where((a > 0) & (a < np.inf), np.copysign(root, x), x)


def power(x: F64, y: F64) -> F64:
    """x to the y as C has it; of negative x only whole powers."""
    size = exp2(y * log2(np.abs(x)))
    size = np.where((y == 0) | (x == 1) | ((x == -1) & np.isinf(y)), 1.0, size)
    whole = np.floor(y) == y
    odd = whole & (np.abs(y) < 2.0**53) & (np.floor(y * 0.5) * 2.0 != y)
    size = np.where((x < 0) & ~whole & np.isfinite(x), np.nan, size)
    return np.where(np.signbit(x) & odd, -size, size)


# ---------------------------------------------------------------------------------------------------------------------
# Circular functions
# ---------------------------------------------------------------------------------------------------------------------

_LEAST = -173
"""A float32 is m * 2^e with a whole m of 24 bits and e of at least this."""


def _quarters(e: int) -> tuple[float, float, float]:
    """2^e * 2 / pi modulo 4 in three numbers: multiples of 2^-27 and of 2^-56, and what is left to 53 bits."""
    value = Fraction(_TWO_OVER_PI, 1 << 320) * Fraction(2) ** e % 4
    high = Fraction(int(value * 2**27), 2**27)
    middle = Fraction(int((value - high) * 2**56), 2**56)
    return float(high), float(middle), float(value - high - middle)


_QUARTERS = np.array([_quarters(e) for e in range(_LEAST, 105)]).T


def _reduced(x: F64) -> tuple[NDArray[np.int64], F64]:
    """x = (n + f) pi / 2: n modulo 4, and f pi / 2 with |f| of at most a half. All products and the first differences are exact."""
    m, e = np.frexp(np.where(np.isfinite(x), x, 0.0))
    m = m * 2.0**24
    high, middle, low = (part[e - (24 + _LEAST)] * m for part in _QUARTERS)
    high -= 4.0 * np.floor(high * 0.25)
    n = np.rint(high + middle)
    return n.astype(np.int64) & 3, ((high - n) + middle + low) * (_PI / 2)


def _circular(x: F64, first: int) -> tuple[NDArray[np.int64], F64, F64]:
    """The quadrant, counted from `first`, and sine and cosine of what is beyond it."""
    n, y = _reduced(x)
    z = y * y
    return (n + first) & 3, _horner("sin", z) * y, _horner("cos", z)


def _in_quadrant(x: F64, first: int) -> F64:
    n, sine, cosine = _circular(x, first)
    size = np.where(n & 1, cosine, sine)
    return np.where(np.isfinite(x), np.where(n & 2, -size, size), np.nan)


def sin(x: F64) -> F64:
    return np.where(x == 0, x, _in_quadrant(x, 0))


def cos(x: F64) -> F64:
    return _in_quadrant(x, 1)


def tan(x: F64) -> F64:
    n, sine, cosine = _circular(x, 0)
    result = np.where(n & 1, -cosine, sine) / np.where(n & 1, sine, cosine)
    return np.where(np.isfinite(x), np.where(x == 0, x, result), np.nan)


def atan(x: F64) -> F64:
    a = np.abs(x)
    near, far = a > 2.0**0.5 - 1, a > 2.0**0.5 + 1
    t = np.where(far, -1.0, np.where(near, a - 1.0, a)) / np.where(far, a, np.where(near, a + 1.0, 1.0))
    base = np.where(far, _PI / 2, np.where(near, _PI / 4, 0.0))
    return np.copysign(base + _horner("atan", t * t) * t, x)


def atan2(y: F64, x: F64) -> F64:
    """The angle of the point (x, y); of two zeros as if x were 1 or -1, of two infinities as if both had the size 1."""
    above, beside = np.abs(y), np.abs(x)
    both = np.isinf(above) & np.isinf(beside)
    nothing = (above == 0) & (beside == 0)
    angle = atan(np.where(both, 1.0, above) / np.where(both | nothing, 1.0, beside))
    return np.copysign(np.where(np.signbit(x), _PI - angle, angle), y)


def asin(x: F64) -> F64:
    return atan(x / np.sqrt((1.0 - x) * (1.0 + x)))


def acos(x: F64) -> F64:
    return 2.0 * atan(np.sqrt((1.0 - x) / (1.0 + x)))


# ---------------------------------------------------------------------------------------------------------------------
# Error function
# ---------------------------------------------------------------------------------------------------------------------


def erf(x: F64) -> F64:
    """x P(x^2) / Q(x^2), with |x| cut at 3.95: from 3.92 on the result rounds to 1."""
    x = np.minimum(np.maximum(x, -3.95), 3.95)
    t = x * x
    x *= _horner("erf_p", t)
    x /= _horner("erf_q", t)
    return x


def erfc(x: F64) -> F64:
    """e^(-z^2) P((z - 3) / (z + 3)) of z = |x|, 0 from 11 on; of negative x 2 less that."""
    z = np.abs(x)
    cut = np.minimum(z, 11.0)
    tail = exp(-(cut * cut)) * _horner("erfc", (cut - 3.0) / (cut + 3.0))
    tail = np.where(z >= 11.0, 0.0, tail)
    return np.where(x < 0, 2.0 - tail, tail)
