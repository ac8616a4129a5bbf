"""Numbers beside tiles: NumPy's types of results and NumPy's values, on NumPy, the executor and the chip."""

import enum
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.diagnostics import KtirError


class Three(enum.IntEnum):
    THREE = 3


class Half(float):
    """A number of a class of its own, which NumPy takes as float64."""


NUMBERS = [2, 2.5, True, np.float64(2.5), np.sqrt(6.25), np.float32(2.5), np.float16(2.5), np.int8(3), np.int64(3), np.bool_(1),
           Three.THREE, Half(0.5)]  # fmt: skip
FUNCTIONS = {
    "product": lambda v, n: v * n,
    "turned": lambda v, n: n - v,
    "where": lambda v, n: np.where(v > 1, v, n),
    "least": np.minimum,
    "power": lambda v, n: v**n,
    "compared": lambda v, n: np.where(v < n, v, 0),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_and_values_are_numpys(name: str, dtype: Any) -> None:
    made: list[Any] = []

    @lang.kernel
    def run(x, y, *, by):
        found = FUNCTIONS[name](x[...], by)
        made.append(found.dtype)
        y[...] = found

    x = np.array([1, 3, 2, 5], dtype)
    for number in NUMBERS:
        wanted = FUNCTIONS[name](x, number)
        found = np.zeros(4, wanted.dtype)
        if name == "power" and wanted.dtype.kind == "i" and type(number) is not int and number is not True:
            with pytest.raises(lang.Mistake, match=r"language has no 'np\.power'"):  # it is there for whole exponents of Python
                run(x, found, by=number)
            continue
        run(x, found, by=number)
        assert made[-1] == wanted.dtype, number
        assert np.array_equal(found, wanted), number


def test_floats_of_numpy_are_no_halves_and_the_chip_says_so() -> None:
    @lang.kernel
    def run(x, y):
        y[...] = x[...] * np.sqrt(1e10) / 1e5

    x, y = np.ones(8, np.float16), np.zeros(8, np.float16)
    run(x, y)
    assert y.tolist() == [1.0] * 8  # 1e5 is beyond float16
    with pytest.raises(KtirError, match=r"f64.*\n.*np.float64 stays it beside any tile"):
        run.using(on="chip")(x, y)
