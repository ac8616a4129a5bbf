"""Elementary functions in f64, of additions, multiplications, divisions, square roots and operations on bits, each as IEEE 754 has it.
Transcribed from the page on elementary functions; the caller rounds to f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

LN2, LOG2E = float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.71547652b82fep+0")
LOG10E, PI = float.fromhex("0x1.bcb7b1526e50ep-2"), float.fromhex("0x1.921fb54442d18p+1")

_COEFFICIENTS = {
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
}
SERIES = {name: tuple(map(float.fromhex, text.split())) for name, text in _COEFFICIENTS.items()}
"""Coefficients of polynomials, the constant one first."""
TWO_OVER_PI = Fraction(int("a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0", 16), 1 << 320)


def polynomial(name: str, t: float) -> float:
    """Horner's scheme: from the highest coefficient down, a product and a sum for each."""
    *rest, total = SERIES[name]
    for c in reversed(rest):
        total = total * t + c
    return total


def divided(x: float, y: float) -> float:
    """x / y, also by zero."""
    if y:
        return x / y
    return math.nan if not x or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def root(x: float) -> float:
    """The square root, NaN of what is below zero."""
    return math.sqrt(x) if x >= 0 else math.nan


def clipped(x: float, limit: float) -> float:
    """x, but no farther from 0 than a limit."""
    return min(max(x, -limit), limit)


# --- powers -----------------------------------------------------------------------------------------------------------


def _power_of_two(x: float, per_unit: float) -> tuple[float, float]:
    """2^k and k, where k is the whole number nearest to x * per_unit."""
    k = float(round(x * per_unit))
    return math.ldexp(1.0, int(k)), k


def _power_of_e(x: float) -> tuple[float, float]:
    """2^k and e^r - 1, where x, cut at 700, is k ln 2 + r."""
    x = clipped(x, 700.0)
    scale, k = _power_of_two(x, LOG2E)
    r = x - k * LN2
    return scale, polynomial("expm1", r) * r


def exp(x: float) -> float:
    scale, part = _power_of_e(x)
    return part * scale + scale


def exp2(x: float) -> float:
    x = clipped(x, 1000.0)
    scale, k = _power_of_two(x, 1.0)
    r = (x - k) * LN2
    return polynomial("expm1", r) * r * scale + scale


def expm1(x: float) -> float:
    scale, part = _power_of_e(x)
    return math.copysign(part * scale + (scale - 1.0), x)


def tanh(x: float) -> float:
    part = expm1(clipped(x, 10.0) * 2.0)
    return part / (part + 2.0)


def sinh(x: float) -> float:
    part = expm1(abs(x))
    return math.copysign(0.5 * (part + part / (part + 1.0)), x)


def cosh(x: float) -> float:
    part = exp(abs(x))
    return 0.5 * (part + 1.0 / part)


# --- logarithms and roots ---------------------------------------------------------------------------------------------


def _near_one(less: float, m: float) -> float:
    """log m, where m = 1 + less."""
    s = less / (m + 1.0)
    return polynomial("atanh", s * s) * (s * 2.0)


def _mantissa(x: float) -> tuple[float, float]:
    """e and log m, where x = 2^e m and m is at least the root of 1/2 and below that of 2."""
    m, e = math.frexp(x)
    if m < math.sqrt(0.5):
        m, e = m * 2.0, e - 1
    return float(e), _near_one(m - 1.0, m)


def _logarithm(of: Callable[[float, float], float]) -> Callable[[float], float]:
    """A logarithm from e and log m, with its ends."""

    def compute(x: float) -> float:
        if x > 0:
            return of(*_mantissa(x)) if x < math.inf else x
        return -math.inf if x == 0 else math.nan

    return compute


log = _logarithm(lambda e, part: part + e * LN2)
log2 = _logarithm(lambda e, part: e + part * LOG2E)


def log10(x: float) -> float:
    return log(x) * LOG10E


def log1p(x: float) -> float:
    return _near_one(x, 1.0 + x) if abs(x) < 0.25 else log(1.0 + x)


def asinh(x: float) -> float:
    a = abs(x)
    rest = a * 2.0 - 1.0 if a > 2.0**28 else a + a * a / (1.0 + math.sqrt(1.0 + a * a))
    return math.copysign(log1p(rest), x)


def acosh(x: float) -> float:
    less = math.nan if x < 1 else x - 1.0
    return log1p(less + root(2.0 * less + less * less))


def atanh(x: float) -> float:
    a = abs(x)
    return math.copysign(0.5 * log1p(divided(2.0 * a, 1.0 - a)), x)


def cbrt(x: float) -> float:
    """2^(log2 |x| / 3), then a step of Newton's."""
    a = abs(x)
    if not 0 < a < math.inf:
        return x
    r = exp2(log2(a) / 3.0)
    r -= (r - a / (r * r)) / 3.0
    return math.copysign(r, x)


def powf(x: float, y: float) -> float:
    """x to the y as C has it; of negative x only whole powers."""
    whole = math.isinf(y) or (not math.isnan(y) and math.floor(y) == y)
    odd = whole and abs(y) < 2.0**53 and y % 2.0 == 1
    if y == 0 or x == 1 or (x == -1 and math.isinf(y)):
        size = 1.0
    elif math.isnan(x) or math.isnan(y) or (-math.inf < x < 0 and not whole):
        return math.nan
    else:
        size = exp2(y * log2(abs(x)))
    return -size if odd and math.copysign(1.0, x) < 0 else size


# --- circular functions -----------------------------------------------------------------------------------------------


def _reduced(x: float) -> tuple[int, float]:
    """x = (n + f) pi / 2: n modulo 4, and f pi / 2 with |f| of at most a half."""
    m, e = math.frexp(x)
    value = TWO_OVER_PI * Fraction(2) ** (e - 24) % 4
    high = Fraction(math.floor(value * 2**27), 2**27)
    middle = Fraction(math.floor((value - high) * 2**56), 2**56)
    a, b, c = (float(part) * (m * 2.0**24) for part in (high, middle, value - high - middle))
    a -= 4.0 * math.floor(a * 0.25)
    n = round(a + b)
    return n % 4, ((a - n) + b + c) * (PI / 2)


def _circular(x: float, first: int) -> tuple[int, float, float]:
    """The quadrant, counted from `first`, and sine and cosine of what is beyond it."""
    n, y = _reduced(x)
    z = y * y
    return (n + first) % 4, polynomial("sin", z) * y, polynomial("cos", z)


def _in_quadrant(x: float, first: int) -> float:
    if not math.isfinite(x):
        return math.nan
    n, sine, cosine = _circular(x, first)
    size = cosine if n % 2 else sine
    return -size if n >= 2 else size


def sin(x: float) -> float:
    return _in_quadrant(x, 0) if x else x


def cos(x: float) -> float:
    return _in_quadrant(x, 1)


def tan(x: float) -> float:
    if not x or not math.isfinite(x):
        return x if not x else math.nan
    n, sine, cosine = _circular(x, 0)
    return divided(-cosine, sine) if n % 2 else sine / cosine


def atan(x: float) -> float:
    a = abs(x)
    if a > 2.0**0.5 + 1:
        base, t = PI / 2, -1.0 / a
    elif a > 2.0**0.5 - 1:
        base, t = PI / 4, (a - 1.0) / (a + 1.0)
    else:
        base, t = 0.0, a
    return math.copysign(base + polynomial("atan", t * t) * t, x)


def atan2(y: float, x: float) -> float:
    """The angle of the point (x, y); of two zeros as if x were 1 or -1, of two infinities as if both had the size 1."""
    above, beside = abs(y), abs(x)
    if math.isnan(x) or math.isnan(y):
        return math.nan
    if math.isinf(above) and math.isinf(beside):
        above = beside = 1.0
    angle = atan(divided(above, beside) if above or beside else 0.0)
    return math.copysign(PI - angle if math.copysign(1.0, x) < 0 else angle, y)


def asin(x: float) -> float:
    return atan(divided(x, root((1.0 - x) * (1.0 + x))))


def acos(x: float) -> float:
    return 2.0 * atan(root(divided(1.0 - x, 1.0 + x)))


# --- the error function -----------------------------------------------------------------------------------------------


def erf(x: float) -> float:
    """x P(x^2) / Q(x^2), with |x| cut at 3.95."""
    x = clipped(x, 3.95)
    return x * polynomial("erf_p", x * x) / polynomial("erf_q", x * x)


def erfc(x: float) -> float:
    """e^(-z^2) P((z - 3) / (z + 3)) of z = |x|, 0 from 11 on; of negative x 2 less that."""
    z = abs(x)
    tail = exp(-(z * z)) * polynomial("erfc", (z - 3.0) / (z + 3.0)) if z < 11 else 0.0
    return 2.0 - tail if x < 0 else tail


_UNARY = (
    exp, exp2, expm1, tanh, sinh, cosh, log, log2, log10, log1p, asinh, acosh, atanh, cbrt, sin, cos, tan, atan, asin, acos, erf, erfc
)  # fmt: skip
_NAMES = "exp exp2 expm1 tanh sinh cosh log log2 log10 log1p asinh acosh atanh cbrt sin cos tan atan asin acos erf erfc".split()
ELEMENTARY: dict[str, Callable[..., float]] = {
    **{name: (lambda x, f=f: f(x) if x == x else x) for name, f in zip(_NAMES, _UNARY, strict=True)},
    "powf": powf,
    "atan2": atan2,
}
"""Functions of f32 numbers, by the name of their kind; of NaN they are NaN."""
