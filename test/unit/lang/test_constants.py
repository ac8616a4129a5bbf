"""Arrays of NumPy that stand in a kernel: the same values wherever it runs, with one launch on the chip."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ktir import lang
from ktir.runtime import metrics

rng = np.random.default_rng(0)
SOME = rng.standard_normal((5, 70)) * 10
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, bool]
ENGINES: list[tuple[Any, Any]] = [("numpy", 2), ("executor", 2), ("chip", 1), ("chip", 2), ("chip", None)]


@pytest.mark.parametrize(("on", "grid"), ENGINES)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_constants(dtype: Any, on: Any, grid: Any) -> None:
    numbers = SOME > 0 if dtype is bool else SOME.astype(dtype)
    x = (rng.standard_normal((10 if grid else 5, 70)) * 5).astype(np.float32 if dtype is bool else dtype)

    def body(x, y):
        for rows in lang.blocks(x.shape[0], 5 if grid else None):
            v = x[rows]
            y[rows] = np.where(numbers, v, -v) if dtype is bool else (v + numbers).astype(v.dtype)

    with metrics.counted() as launches:
        lang.kernel(body).using(on=on, grid=grid)(x, y := np.zeros_like(x))
    assert launches().chip == (on == "chip")
    whole = np.concatenate([numbers] * (len(x) // 5))
    assert y.tobytes() == (np.where(whole, x, -x) if dtype is bool else (x + whole).astype(dtype)).tobytes()


def test_a_constant_that_changes_is_another_one() -> None:
    table = SOME.astype(np.float32)

    def body(x, y):
        y[:] = x[:] * table

    kernel = lang.kernel(body).using(on="chip", grid=1)
    for factor in (1, 2):
        table = SOME.astype(np.float32) * factor
        kernel(x := np.ones((5, 70), np.float32), y := np.zeros_like(x))
        assert np.array_equal(y, table)
