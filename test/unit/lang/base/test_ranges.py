"""Numbers of the device beside integers that do not hold them: an error at their line wherever a kernel runs, as NumPy has it."""

from typing import Any

import numpy as np
import pytest

from ktir import lang


@lang.kernel
def added(x, n, y):
    y[...] = x[...] + n


@lang.kernel
def compared(x, n, y):
    y[...] = np.where(x[...] < n, 1, 0)


@lang.kernel
def squared(x, n, y):
    y[...] = x[...] - n * n


@lang.kernel
def chosen(x, n, y):
    y[...] = np.where(x[...] > 0, n, x[...])


@lang.kernel
def stored(x, n, y):
    y[...] = x[...]
    y[0] = n


@lang.kernel
def tiles(x, n, y):
    t = lang.tile_id()
    y[t] = x[t] + t


@lang.kernel
def trips(x, n, y):
    total = lang.zeros(x.shape, x.dtype)
    for i in lang.range(n):
        total[...] = np.maximum(x[...], i)
    y[...] = total


@lang.kernel
def left(x, n, y):
    total = lang.zeros(x.shape, x.dtype)
    for i in lang.range(1000):
        total[...] = np.maximum(total, (i + 3) % 50 + 70)
    y[...] = total + x[...]


CASES: list[tuple[Any, tuple[int, ...], Any, int, bool]] = [
    (added, (3,), np.int32, 2**31 - 1, True), (added, (3,), np.int32, 2**31, False), (added, (3,), np.int32, -(2**31) - 1, False),
    (added, (3,), np.int8, 127, True), (added, (3,), np.int8, 128, False), (added, (3,), np.int64, 2**63, False),
    (compared, (3,), np.int32, 2**31, False), (compared, (3,), np.int32, 2**32 + 1, False), (compared, (3,), np.int16, -9, True),
    (squared, (3,), np.int32, 2**15, True), (squared, (3,), np.int32, 2**16, False), (squared, (3,), np.int64, 2**40, False),
    (chosen, (3,), np.int8, 200, False), (chosen, (3,), np.int8, -128, True), (stored, (3,), np.int16, 2**15, False),
    (stored, (3,), np.int16, -(2**15), True), (tiles[128], (128, 2), np.int8, 0, True), (tiles[129], (129, 2), np.int8, 0, False),
    (trips[1], (3,), np.int8, 128, True), (trips[1], (3,), np.int8, 129, False), (left[1], (3,), np.int8, 0, True),
]  # fmt: skip


def number_of(kernel: Any, x: np.ndarray, n: int, on: Any) -> np.ndarray | None:
    """What a kernel makes; None where it is refused at its line, with nothing written."""
    y = np.full(x.shape, 7, x.dtype)
    refused: lang.Mistake | None = None
    try:
        kernel.using(on=on)(x, n, y)
    except lang.Mistake as mistake:
        refused = mistake
    if refused is None:
        return y
    assert str(refused.location).startswith(f"{__file__}:")
    assert (y == 7).all()
    return None


CHIP = [case for case in CASES if case[0].function is not left.function and case[2] is not np.int64]
"""Those that the chip takes: it has no address generator for remainders, and no 64 bits."""


@pytest.mark.parametrize(
    ("on", "kernel", "shape", "dtype", "n", "fits"), [*(("executor", *case) for case in CASES), *(("chip", *case) for case in CHIP)]
)
def test_what_fits_is_numpys_and_what_does_not_is_said(on: Any, kernel: Any, shape: Any, dtype: Any, n: int, fits: bool) -> None:
    x = (np.arange(np.prod(shape)).reshape(shape) % 3).astype(dtype)
    with np.errstate(over="ignore"):
        wanted, found = (number_of(kernel, x, n, where) for where in ("numpy", on))
    assert (found is not None) == (wanted is not None) == fits
    if found is not None and wanted is not None:
        assert np.array_equal(found, wanted)


def test_what_was_loaded_has_the_range_of_its_type() -> None:
    @lang.kernel
    def run(ids, x, y):
        for i in lang.range(ids[0]):
            y[...] = x[...] + i

    for ids, dtype, said in ((np.int16, np.int16, None), (np.int32, np.int32, None), (np.int16, np.int8, "from 0 to 32766"),
                             (np.int64, np.int32, "a number that nobody can bound stands beside int32")):  # fmt: skip
        count, x, y = np.array([3], ids), np.zeros(2, dtype), np.zeros(2, dtype)
        if said is None:
            run[1](count, x, y)
            assert y.tolist() == [2, 2]
            continue
        with pytest.raises(lang.Mistake, match=said):
            run[1](count, x, y)


def test_floats_take_any_number() -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    added(x, 2**40, y)
    assert y.tolist() == [np.float32(2**40)] * 3
