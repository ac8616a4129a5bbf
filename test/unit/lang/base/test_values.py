"""What NumPy leaves to the processor has one meaning on NumPy, on the executor and on the chip."""

from math import isfinite, trunc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ktir import lang
from ktir.diagnostics import KtirError

ENGINES: list[tuple[Any, Any]] = [("numpy", None), ("executor", None), ("chip", None), ("chip", 1)]
FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]


def whole(number: float, bits: int) -> int:
    """A float as an integer, as the specification has it: cut, held in 64 bits or the least of them, and of that the low bits."""
    held = trunc(number) if isfinite(number) and -(2**63) <= trunc(number) < 2**63 else -(2**63)
    return (held + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@lang.kernel
def conversions(x, a, b, c, d):
    v = x[:]
    a[:] = v.astype(a.dtype)
    b[:] = v
    c[:] = (v * 1).max(-1, keepdims=True).astype(a.dtype) + np.where(v > 0, v, v).astype(a.dtype)
    own = lang.zeros(x.shape, a.dtype)
    own[...] = v
    d[:] = own


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_beyond_integers(dtype: Any, on: Any, grid: Any) -> None:
    numbers = [0.5, -1.9, 3e9, -3e9, 2.0**31, -(2.0**31), 1e19, -1e19, 70000, 300, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        x = np.array(numbers, np.float32).astype(dtype)
    for wanted in (np.int32,) if grid else (np.int8, np.int16, np.int32):
        found = [np.full(x.shape, 9, wanted) for _ in range(4)]
        conversions.using(on=on, grid=grid)(x, *found)
        bits = np.dtype(wanted).itemsize * 8
        expected = np.array([whole(float(n), bits) for n in x], object)
        largest = whole(float("nan"), bits)
        assert found[0].tolist() == found[1].tolist() == found[3].tolist() == expected.tolist()
        assert found[2].tolist() == [(n + largest + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for n in expected]


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_a_division_of_integers_by_zero_is_an_error_at_its_line(name: str, on: Any, grid: Any) -> None:
    def body(x, y, z):
        z[:] = getattr(np, name)(x[:], y[:])

    x, y, z = np.array([5, 7], np.int32), np.array([1, 0], np.int32), np.zeros(2, np.int32)
    with pytest.raises(KtirError, match=r"test_values.py:\d+:\d+: error: .* (divides|by zero)"):
        lang.kernel(body).using(on=on, grid=grid)(x, y, z)
    assert not z.any()


@pytest.mark.parametrize("on", ["numpy", "executor", "chip"])
def test_sums_of_narrow_floats_are_rounded_once(on: str) -> None:
    """Sums, means, and products of matrices, where steps in 16 bits would stand still; and functions that go beyond the type on the way."""

    @lang.kernel
    def kernel(x, w, total, mean, product, gate, columns):
        v = x[:]
        total[:], mean[:], product[:], gate[:] = v.sum(-1), v.mean(-1), v @ w[:], lang.sigmoid(-v * 13)
        columns[:] = w[:].sum(0)

    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = np.linspace(0.5, 1, 2 * 600).reshape(2, 600).astype(dtype)
        w = np.linspace(0.1, 1, 600 * 2).reshape(600, 2).astype(dtype)
        wide, step = x.astype(np.float64), np.multiply(x, x.dtype.type(-13))
        expected = [
            wide.sum(1),
            wide.mean(1),
            wide @ w.astype(np.float64),
            1 / (1 + np.exp(-step.astype(np.float64))),
            w.astype(np.float64).sum(0),
        ]
        found = [np.zeros(e.shape, dtype) for e in expected]
        kernel.using(on=on)(x, w, *found)
        for got, exact in zip(found, expected, strict=True):
            least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
            assert (np.abs(got.astype(np.float64) - exact) <= np.abs(exact) * float(ml_dtypes.finfo(dtype).eps) * 0.6 + least).all()
