"""Integers of less than 32 bits, and truth values, in kernels: NumPy's to the bit, on NumPy, the executor, the chip, with a grid and
without."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.runtime import metrics

SIZE = 192
ENGINES: list[tuple[Any, Any]] = [("numpy", None), ("executor", 2), ("chip", None), ("chip", 1), ("chip", 2)]
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "negative": lambda x, y: -x,
    "positive": lambda x, y: +x + np.positive(y),
    "absolute": lambda x, y: np.abs(x),
    "quotient": lambda x, y: x // np.where(y == 0, 1, y),
    "remainder": lambda x, y: x % np.where(y == 0, 1, y),
    "maximum": np.maximum,
    "minimum": lambda x, y: np.minimum(x, y) + np.minimum(y, 3),
    "and": lambda x, y: x & y,
    "xor": lambda x, y: (x ^ y) | 1,
    "not": lambda x, y: ~x,
    "left": lambda x, y: x << (y & 3),
    "right": lambda x, y: x >> (y & 3),
    "compared": lambda x, y: np.where(x < y, x, y * 2),
    "wider": lambda x, y: (x.astype(np.int32) * 3 + y).astype(x.dtype),
    "float": lambda x, y: (x.astype(np.float32) * 0.5).astype(x.dtype),
    "truth": lambda x, y: (x > y).astype(x.dtype) + ((x != 0) & (y != 0)),
    "chained": lambda x, y: (x + y + x) // 2,
}


def numbers(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Some of all that there are, the ends first."""
    rng, ends = np.random.default_rng(3), np.iinfo(dtype)
    some = np.array([ends.min, ends.max, 0, 1, -1, ends.min + 1], dtype)
    x, y = (np.concatenate([some, rng.integers(ends.min, ends.max, SIZE - 6, dtype, endpoint=True)]) for _ in "xy")
    y[:6] = y[5::-1]
    return x, y


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_functions(dtype: Any, on: Any, grid: Any) -> None:
    def body(x, y, z):
        for i in lang.blocks(SIZE, None if grid is None else SIZE // grid):
            for row, function in enumerate(FUNCTIONS.values()):
                z[row, i] = function(x[i], y[i])

    x, y = numbers(dtype)
    z = np.zeros((len(FUNCTIONS), SIZE), dtype)
    with np.errstate(over="ignore"), metrics.counted() as launches:
        lang.kernel(body).using(on=on, grid=grid)(x, y, z)
        wanted = [np.asarray(f(x, y)).astype(dtype) for f in FUNCTIONS.values()]
    assert launches().chip == (on == "chip")
    for name, found, expected in zip(FUNCTIONS, z, wanted, strict=True):
        assert np.array_equal(found, expected), name


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_reductions(dtype: Any, on: Any, grid: Any) -> None:
    def body(x, small, wide):
        for i in lang.blocks(x.shape[0], None if grid is None else x.shape[0] // grid):
            v = x[i]
            small[0, i], small[1, i], small[2, i] = v.max(-1), v.min(-1), v.sum(-1, dtype=v.dtype)
            wide[i] = v.astype(np.int32).sum(-1)

    x = np.stack([n for _ in range(2) for n in numbers(dtype)])[:, :101].copy()
    small, wide = np.zeros((3, 4), dtype), np.zeros(4, np.int32)
    with metrics.counted() as launches:
        lang.kernel(body).using(on=on, grid=grid)(x, small, wide)
    assert launches().chip == (on == "chip")
    assert np.array_equal(small, [x.max(-1), x.min(-1), x.sum(-1, dtype=dtype)])
    assert np.array_equal(wide, x.sum(-1, dtype=np.int32))


@pytest.mark.parametrize(("on", "grid"), ENGINES)
def test_truth_values_in_memory(on: Any, grid: Any) -> None:
    def body(x, mask, y, both):
        for i in lang.blocks(x.shape[0], None if grid is None else x.shape[0] // grid):
            m = mask[i]
            y[i] = np.where(m, x[i], -1)
            both[i] = m & (x[i] > 0) | ~m

    rng = np.random.default_rng(1)
    x, mask = rng.standard_normal((6, 70)).astype(np.float16), rng.random((6, 70)) < 0.5
    y, both = np.zeros_like(x), np.zeros_like(mask)
    with metrics.counted() as launches:
        lang.kernel(body).using(on=on, grid=grid)(x, mask, y, both)
    assert launches().chip == (on == "chip")
    assert np.array_equal(y, np.where(mask, x, np.float16(-1)))
    assert np.array_equal(both, mask & (x > 0) | ~mask)


@pytest.mark.parametrize(("on", "grid"), [("executor", 3), ("chip", 3)])
def test_what_is_carried_and_exchanged(on: Any, grid: Any) -> None:
    def body(x, y):
        t = lang.tile_id()
        total = lang.zeros(x.shape[-1], np.int8)
        for k in lang.range(x.shape[1]):
            total[...] = total + x[t, k]
        y[t] = lang.all_reduce(total) + lang.shift(total)

    x = np.random.default_rng(2).integers(-128, 128, (3, 5, 64)).astype(np.int8)
    y = np.zeros((3, 64), np.int8)
    lang.kernel(body).using(on=on, grid=grid)(x, y)
    sums = x.sum(1, dtype=np.int8)
    assert any(np.array_equal(y, sums.sum(0, dtype=np.int8) + np.roll(sums, way, 0)) for way in (1, -1))


@pytest.mark.parametrize(("on", "grid"), [("executor", 2), ("chip", 2)])
def test_a_table_of_small_integers(on: Any, grid: Any) -> None:
    def body(x, ids, y):
        for i in lang.blocks(ids.shape[0], 4):
            y[i] = x[ids[i]]

    x, ids = np.arange(10 * 64, dtype=np.float32).reshape(10, 64), np.array([3, 1, 9, 0, 0, 7, 2, 5], np.int16)
    lang.kernel(body).using(on=on, grid=grid)(x, ids, y := np.zeros((8, 64), np.float32))
    assert np.array_equal(y, x[ids])


@pytest.mark.parametrize("on", ["numpy", "executor", "chip"])
def test_numbers_that_do_not_fit(on: Any) -> None:
    """`np.where` alone would let them wrap around."""

    def body(x, y):
        y[:] = np.where(x[:] > 0, 300, x[:])

    with pytest.raises(lang.Mistake, match="300 is beyond int8, which holds -128 to 127"):
        lang.kernel(body).using(on=on, grid=1)(np.ones(64, np.int8), np.zeros(64, np.int8))


@lang.kernel
def extremes(x, least, most, columns, *, block=None):
    for b in lang.blocks(x.shape[0], block):
        v = x[b]
        least[b], most[b] = v.min(-1), (v + 1).max(-1)
        columns[b] = v.min(0) - v.max(0)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_extremes_of_numbers_on_one_side_of_zero(dtype: Any) -> None:
    """What they begin from is the end of their own type: none of them, whether planned, pinned or lifted."""
    x = np.arange(1, 15, dtype=dtype).reshape(2, 7) * dtype(8)
    for values in (x, -x):
        expected = [values.min(1), (values + 1).max(1), (values.min(0) - values.max(0))[None].repeat(2, 0)]
        for kernel in (extremes, extremes[1], extremes[1].using(way="lift")):
            arrays = [np.zeros(2, dtype), np.zeros(2, dtype), np.zeros((2, 7), dtype)]
            with metrics.counted() as launches:
                kernel.using(on="chip")(values, *arrays)
            assert launches().chip == 1
            for found, wanted in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(found, wanted)
