"""Functions around the gamma function and a Bessel function, which the chip has no instruction for: polynomials and series for float32."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ktir.lowering.inductor.graph.formulas.sequences import HALVES

aten = torch.ops.aten

_BELOW_TWO = (
    *(0.422784335, 0.3224670335, -0.06735228147, 0.02058079947, -0.007386174156),
    *(0.002890795322, -0.001185860034, 0.000506517143, -0.0002538170957, 0.0001134728199),
)
"""log(gamma(2 + t)) / t for t from -0.5 to 0.5."""
_ABOUT_ONE = (
    *(-0.5772156651, 0.8224670336, -0.4006854794, 0.2705806661, -0.2074052782),
    *(0.1695752864, -0.1431769645, 0.124708451, -0.1268620618, 0.1143465366),
)
"""log(gamma(1 + t)) / t for t from -0.25 to 0.25."""
_BESSEL_LOW = (
    *(0.3383976372, -0.3046826723, 0.1716209015, -0.09490109705, 0.04930528424, -0.02373741481, 0.01054646039, -0.004324309995),
    *(0.001639475617, -0.0005763755745, 0.0001885028851, -5.75419501e-5, 1.644844807e-5, -4.416738358e-6, 1.117387539e-6, -2.670793854e-7),
)
"""exp(-x) * i0(x) for x from 0 to 8, in Chebyshev polynomials."""
_BESSEL_HIGH = (0.4022452055, 0.003369116478, 6.889758347e-5, 2.891370521e-6, 2.048918589e-7, 2.26666899e-8)
"""exp(-x) * i0(x) * sqrt(x) for 1 / x from 0 to 1 / 8."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30)
_SHIFT = 8
"""Where the series begins that gets better with larger numbers."""
_MOST_DERIVATIVES = 8


def _narrow(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function of float32 for that type, in the types below it computed in float32 and rounded once, and for no others."""

    @functools.wraps(function)
    def run(*operands: Any) -> Any:
        kind = operands[-1].dtype
        if kind not in (*HALVES, torch.float32):
            return NotImplemented
        return function(*operands[:-1], operands[-1].float()).to(kind)

    return run


def _polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    result = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result


def _chebyshev(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """For x from -1 to 1."""
    one, two = torch.zeros_like(x), torch.zeros_like(x)
    for c in reversed(coefficients[1:]):
        one, two = 2 * x * one - two + c, one
    return x * one - two + coefficients[0]


def _turned(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sine and cosine of pi times a number, up to their common sign; both exactly 0 where they are."""
    r = x - x.round()
    return (r * math.pi).sin(), ((0.5 - r.abs()) * math.pi).sin()


@_narrow
def log_gamma(x: torch.Tensor) -> torch.Tensor:
    """`lgamma`: between 1.5 and 2.5, and about 1, a polynomial; other numbers are brought there, or are large; negative ones mirrored."""
    a = x.abs()
    r, product = a, torch.ones_like(a)
    for _ in range(4):
        large = r > 2.5
        r = torch.where(large, r - 1, r)
        product = torch.where(large, product * r, product)
    for _ in range(2):
        small = r < 1.5
        product = torch.where(small, product * r, product)
        r = torch.where(small, r + 1, r)
    logarithm, t = product.log(), r - 2
    near = t * _polynomial(t, _BELOW_TWO) + torch.where(a < 1.5, -logarithm, logarithm)
    near = torch.where((a - 1).abs() <= 0.25, (1 - a) * _polynomial(a - 1, [-c for c in _ABOUT_ONE]), near)  # 0, and not -0, of 1
    inverse = 1 / (a * a)
    tail = (1 / 12 + inverse * (-1 / 360 + inverse / 1260)) / a
    far = (a - 0.5) * (a.log() - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + tail)
    positive = torch.where(a > 6.5, far, near)
    mirrored = math.log(math.pi) - (a * _turned(a)[0].abs()).log() - positive
    return torch.where(a == math.inf, a, torch.where(x < 0, mirrored, positive))


@_narrow
def digamma(x: torch.Tensor) -> torch.Tensor:
    """The derivative of `lgamma`; NaN for negative integers."""
    below = x < 0
    a = torch.where(below, 1 - x, x)
    shifted = a + _SHIFT
    inverse = 1 / (shifted * shifted)
    series = _polynomial(inverse, [b / (2 * k + 2) for k, b in enumerate(_BERNOULLI)]) * inverse
    result = shifted.log() - 0.5 / shifted - series
    for k in range(_SHIFT):
        result = result - 1 / (a + k if k else a)  # the sign of 0 counts
    sine, cosine = _turned(x)
    mirrored = torch.where(sine == 0, math.nan, result - math.pi * cosine / sine)
    return torch.where(below, mirrored, result)


def polygamma(order: int, x: torch.Tensor) -> Any:
    """Derivatives of `digamma`: inverse powers, and a series for the rest; mirrored below 0.5, by a polynomial of the cotangent."""
    if order == 0:
        return digamma(x)
    return _derivative(order, x) if order <= _MOST_DERIVATIVES else NotImplemented


@_narrow
def _derivative(order: int, x: torch.Tensor) -> torch.Tensor:
    below, power = x < 0.5, order + 1
    a = torch.where(below, 1 - x, x)
    shifted = a + _SHIFT
    inverse = 1 / shifted
    total = inverse**order / order + inverse**power / 2
    for k, b in enumerate(_BERNOULLI):
        total = total + b * math.prod(range(power, power + 2 * k + 1)) / math.factorial(2 * k + 2) * inverse ** (power + 2 * k + 1)
    for k in range(_SHIFT):
        total = total + 1 / (a + k) ** power
    total = total * float((-1) ** power * math.factorial(order))
    sine, cosine = _turned(x)
    mirrored = (-1) ** order * total - math.pi**power * _polynomial(cosine / sine, _cotangents(order))
    pole = sine == 0
    if order > 1:  # PyTorch's kernel has sums of powers for these, which end nowhere for infinities
        pole, total = pole | (x == -math.inf), torch.where(x == math.inf, math.nan, total)
    return torch.where(below, torch.where(pole, (-1) ** power * math.inf, mirrored), total)


def _cotangents(order: int) -> list[float]:
    """Coefficients of the derivative of that order of the cotangent, a polynomial of it."""
    found = [0.0, 1.0]
    for _ in range(order):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope], strict=True)]
    return found


def ldexp(x: torch.Tensor, exponent: torch.Tensor) -> Any:
    """`ldexp` by the power, which has a type of its own, as PyTorch computes it but for floats with whole exponents."""
    if x.is_floating_point() and not exponent.is_floating_point():
        return NotImplemented
    if exponent.dtype not in (torch.float16, torch.bfloat16):
        return x * torch.pow(2.0, exponent)
    power = torch.pow(2.0, exponent.to(torch.float32))
    power = torch.where(power > torch.finfo(exponent.dtype).max, math.inf, power)
    return (x.to(torch.float32) * power).to(torch.result_type(x, exponent))


@_narrow
def bessel(x: torch.Tensor) -> torch.Tensor:
    """`i0`."""
    a = x.abs()
    low = _chebyshev(a / 4 - 1, _BESSEL_LOW)
    high = _chebyshev(16 / a - 1, _BESSEL_HIGH) / a.sqrt()
    half = (a / 2).exp()  # the exponential alone becomes infinite before the result does
    return torch.where(a <= 8, low, high) * half * half


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.lgamma.default: log_gamma,
    aten.digamma.default: digamma,
    aten.polygamma.default: polygamma,
    aten.i0.default: bessel,
    aten.ldexp.Tensor: ldexp,
}
"""See `decompositions.DECOMPOSITIONS`."""
