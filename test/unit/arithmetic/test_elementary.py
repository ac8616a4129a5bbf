"""Elementary functions in float32: near the exact value by mpmath, at the ends as PyTorch has them, the same whatever the host offers."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch

from ktir.arithmetic import elementary, numerics, transcendental

EXACT = {
    **{
        name: getattr(mpmath, name)
        for name in "exp expm1 tanh sinh cosh log log1p asinh acosh atanh sin cos tan atan asin acos erf erfc".split()
    },
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "log10": lambda x: mpmath.log(x, 10),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}
LARGEST_ERROR = 0.5005
LARGEST_ERROR_OF_TWO = 0.501
"""In units of the last place, of functions of one and of two operands."""
ALL_F16 = np.arange(1 << 16).astype(np.uint16).view(np.float16).astype(np.float32)


def bits(x):
    return np.where(np.isnan(x), np.uint32(0x7FC00000), np.ascontiguousarray(x).view(np.uint32))


def ours(name):
    return elementary.function(name, np.float32)


def points(seed, count):
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    near = [rng.standard_normal(count) * 2, 1 + rng.standard_normal(count) * 1e-3, rng.standard_normal(count) * 30]
    x = np.concatenate([patterns, *(x.astype(np.float32) for x in near), rng.choice(ALL_F16, count)])
    return x[np.isfinite(x)]


def errors(name, x):
    """In units of the last place of float32, against the exact values; and the exact values."""
    with numerics.quiet():
        got = ours(name)(x)
    wrong = np.zeros(x.size)
    for i, (at, value) in enumerate(zip(x.tolist(), got.tolist(), strict=True)):
        try:
            exact = EXACT[name](mpmath.mpf(at))
        except (ZeroDivisionError, ValueError):
            continue  # a pole
        if not isinstance(exact, mpmath.mpf) or not mpmath.isfinite(exact):
            continue  # outside the domain
        if abs(exact) >= mpmath.mpf(2) ** 128 - mpmath.mpf(2) ** 103:
            assert value == float(mpmath.sign(exact)) * np.inf, (name, at, value)
            continue
        step = mpmath.mpf(2) ** (max(mpmath.frexp(exact)[1] - 1, -126) - 23) if exact else mpmath.mpf(2) ** -149
        wrong[i] = float(abs(mpmath.mpf(value) - exact) / step)
    return wrong


@pytest.fixture(autouse=True)
def _precise():
    with mpmath.workprec(160):
        yield


@pytest.mark.parametrize("name", sorted(EXACT))
def test_nearly_always_the_nearest_value(name):
    x = points(1, 80)
    wrong = errors(name, x)
    assert wrong.max() <= LARGEST_ERROR, (wrong.max(), x[wrong.argmax()])


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(EXACT))
def test_every_f16_and_many_f32(name):
    x = np.concatenate([ALL_F16[np.isfinite(ALL_F16)], points(2, 20_000)])
    wrong = errors(name, x)
    print(name, wrong.max(), x[wrong.argmax()])
    assert wrong.max() <= LARGEST_ERROR, (wrong.max(), x[wrong.argmax()])


@pytest.mark.parametrize("name", ["exp", "log", "tanh"])
def test_the_hosts_function_is_not_seen(name):
    x = np.concatenate([ALL_F16, points(3, 200_000), np.linspace(-104, -86, 40_000, dtype=np.float32)])
    with numerics.quiet():
        defined = getattr(transcendental, name)(x.astype(np.float64)).astype(np.float32)
        np.testing.assert_array_equal(bits(numerics.PLAIN[name](x)), bits(defined))
        for error in (-(2.0**-42), 2.0**-42):  # a worse library

            def host(y, out, error=error):
                np.multiply(getattr(np, name)(y), 1 + error, out=out)

            worse = numerics.in_chunks(getattr(transcendental, name), host)
            np.testing.assert_array_equal(bits(worse(x)), bits(defined))


@pytest.mark.parametrize("name", [*sorted(EXACT.keys() - {"cbrt"}), "rsqrt", "sqrt"])
def test_ends_are_those_of_pytorch(name):
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 3.4e38, -3.4e38, 1e-45, -1e-45, 1e-40], np.float32)
    function = ours(name)
    want = {"log": torch.log}.get(name) or getattr(torch, name, None) or getattr(torch.special, name)
    with numerics.quiet():
        got = function(x)
    wide = want(torch.from_numpy(x).double()).float().numpy()
    special = ~np.isfinite(wide) | (wide == 0)
    np.testing.assert_array_equal(bits(got)[special], bits(wide)[special])
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wide))
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(wide[~np.isnan(got)]))


@pytest.mark.parametrize("name", ["powf", "atan2"])
def test_two_operands(name):
    rng = np.random.default_rng(5)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 3, 0.5, -0.5, -3, 2.5, 1e-45, 3e38], np.float32)
    x = np.concatenate([np.repeat(special, 16), rng.standard_normal(500), np.abs(rng.standard_normal(500)) * 40]).astype(np.float32)
    y = np.concatenate([np.tile(special, 16), rng.standard_normal(500), rng.standard_normal(500) * 8]).astype(np.float32)
    with numerics.quiet():
        got = ours(name)(x, y)
    want = {"powf": torch.pow, "atan2": torch.atan2}[name](torch.from_numpy(x).double(), torch.from_numpy(y).double()).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    with numerics.quiet():
        near = want.astype(np.float32)
        step = np.spacing(np.minimum(np.abs(near), np.float32(3e38))).astype(np.float64)
        held = np.isfinite(near) & np.isfinite(got)
    np.testing.assert_array_equal(bits(got)[~held], bits(near)[~held])
    np.testing.assert_array_equal(np.signbit(got[held]), np.signbit(near[held]))
    assert (np.abs(got[held] - want[held]) / step[held]).max() <= LARGEST_ERROR_OF_TWO
