"""What lies before, or behind, what '.masked[..]' reads and writes: as arrays with zeros around them have it, with the executor's bits on
the chip; and reductions along what is cut elsewhere on each tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from ktir import lang
from ktir.runtime import metrics

ROWS, COLUMNS, AROUND = 20, 70, 100


def around(x: NDArray[Any]) -> NDArray[np.float64]:
    """With zeros on all sides."""
    return np.pad(x.astype(np.float64), AROUND)


@lang.kernel
def rows_before(x, y):
    """A causal filter along the rows, in blocks."""
    for b in lang.blocks(ROWS, 7):
        total = lang.zeros((7, COLUMNS))
        for k in range(4):
            start = b.start - k
            total[...] = total + x.masked[start : start + 7].astype(np.float32) * (k + 1)
        y[b] = total


@lang.kernel
def columns_before(x, y):
    """The same along the columns, where rows and trips differ, too."""
    t = lang.tile_id()
    for c in lang.range(0, COLUMNS, 35):
        total = lang.zeros((5, 35))
        for k in range(4):
            total[...] = total + x.masked[t * 5 : t * 5 + 5, c - k : c - k + 35].astype(np.float32) * (k + 1)
        y[t * 5 : t * 5 + 5, c : c + 35] = total


@lang.kernel
def trips_before(x, y):
    """What each trip reads begins before, and in the first ones is nothing but that."""
    t = lang.tile_id() * 5
    for i in lang.range(5):
        y[t + i] = x.masked[t + i - 3 : t + i].astype(np.float32).sum(0)


@lang.kernel
def numbers(x, y):
    """Numbers of Python count from the beginning there, as others do."""
    t = lang.tile_id() * 5
    v = x.masked[-2:3].astype(np.float32) + x.masked[-9:-4] + x.masked[ROWS + 3 : ROWS + 8]
    y[t : t + 5] = v + x.masked[-1] + x.masked[ROWS] + x.masked[3]


@lang.kernel
def stored(x, y):
    t = lang.tile_id() * 5
    y.masked[t - 3 : t + 2] = x[t : t + 5]


@lang.kernel
def parts(x, y):
    """A part in which there is nothing, and one in which there is something."""
    t = lang.tile_id() * 5
    v = x.masked[-3:2].astype(np.float32)
    y[t : t + 5] = v + v[0:1] + v[4]


def filtered(x: NDArray[Any], axis: int) -> NDArray[np.float64]:
    w = around(x)
    moved = (np.roll(w, k, axis) * (k + 1) for k in range(4))
    return np.sum(list(moved), 0)[AROUND : AROUND + ROWS, AROUND : AROUND + COLUMNS]


def in_trips(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.array([around(x)[AROUND + i - 3 : AROUND + i, AROUND : AROUND + COLUMNS].sum(0) for i in range(ROWS)])


def of_numbers(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.tile(np.pad(x[:3].astype(np.float64), ((2, 0), (0, 0))) + x[3], (4, 1))


def of_stored(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.concatenate([x[3:].astype(np.float64), np.full((3, COLUMNS), 7)])


def of_parts(x: NDArray[Any]) -> NDArray[np.float64]:
    return np.tile(np.pad(x[:2].astype(np.float64), ((3, 0), (0, 0))) + x[1], (4, 1))


CASES: dict[str, tuple[Any, Callable[[NDArray[Any]], NDArray[np.float64]]]] = {
    "rows": (rows_before, lambda x: filtered(x, 0)),
    "columns": (columns_before, lambda x: filtered(x, 1)),
    "trips": (trips_before, in_trips),
    "numbers": (numbers, of_numbers),
    "stores": (stored, of_stored),
    "parts": (parts, of_parts),
}


def on_all(kernel: Any, x: NDArray[Any], expected: NDArray[Any], begin: NDArray[Any]) -> None:
    """A kernel on NumPy, the executor and the chip gives these whole numbers."""
    for on in ("numpy", "executor", "chip"):
        y = begin.copy()
        with metrics.counted() as launches:
            kernel.using(on=on)(x, y)
        assert launches().chip == (on == "chip")
        np.testing.assert_array_equal(y.astype(np.float64), expected, err_msg=on)


@pytest.mark.parametrize(
    ("case", "dtype"), [*zip(CASES, [np.float32, np.float16, bfloat16, np.float16, np.int32, np.float32], strict=True)]
)
def test_what_lies_before(case: str, dtype: Any) -> None:
    kernel, expected = CASES[case]
    x = np.random.default_rng(0).integers(-9, 10, (ROWS, COLUMNS)).astype(dtype)
    begin = np.full((ROWS, COLUMNS), 7, dtype if case == "stores" else np.float32)
    on_all(kernel[4], x, expected(x), begin)


REDUCED: dict[str, tuple[Callable[[Any], Any], Callable[[NDArray[Any]], Any]]] = {
    "sum": (lambda v: v.astype(np.float32).sum(0), lambda a: a.sum(0)),
    "least": (lambda v: (v - 1).min(0).astype(np.float32), lambda a: (a - 1).min(0)),
    "of products": (lambda v: (v.astype(np.float32) * v).sum(0, keepdims=True), lambda a: (a * a).sum(0, keepdims=True)),
}


@pytest.mark.parametrize(("how", "dtype"), [*zip(REDUCED, [np.float16, bfloat16, np.int8], strict=True)])
def test_reductions_along_what_is_cut_elsewhere_on_each_tile(how: str, dtype: Any) -> None:
    """Blocks of eight of 20 rows, on three tiles: what lies outside reads as 0."""
    made, meant = REDUCED[how]

    @lang.kernel
    def reduced(x, y):
        for b in lang.blocks(ROWS, 8):
            y[b.start // 8] = made(x[b]).reshape(COLUMNS)

    x = np.random.default_rng(0).integers(-9, 10, (ROWS, COLUMNS)).astype(dtype)
    blocks = np.pad(x.astype(np.float64), ((0, 4), (0, 0))).reshape(3, 8, COLUMNS)
    on_all(reduced[3], x, np.array([meant(b).reshape(COLUMNS) for b in blocks]), np.zeros((3, COLUMNS), np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_such_sums_have_the_order_of_lanes(dtype: Any) -> None:
    """The executor's bits, which depend on the order, of 45 rows; of zeros below zero the sum is 0."""

    @lang.kernel
    def reduced(x, y):
        for b in lang.blocks(100, 45):
            y[b.start // 45] = (x[b] * 3).sum(0)

    x = (np.random.default_rng(0).standard_normal((100, 3)) * 10.0 ** np.arange(-2, 1)).astype(dtype)
    x[:, 2] = -0.0
    found = []
    for on in ("executor", "chip"):
        found.append(np.full((3, 3), -1, dtype))
        reduced[3].using(on=on)(x, found[-1])
    assert found[0].tobytes() == found[1].tobytes()
    assert not np.signbit(found[1][:, 2]).any()
    exact = np.array([(x[b : b + 45] * dtype(3)).astype(np.float64).sum(0) for b in (0, 45, 90)])
    bound = 45 * np.abs(x.astype(np.float64)).max(0) * 3 * 45 * 2.0**-24 + np.abs(exact) * np.finfo(dtype).eps
    assert (np.abs(found[1] - exact) <= bound).all()


@lang.kernel
def block_before(x, y, *, block, before):
    first = lang.tile_id() * block
    y[first : first + block] = np.abs(x.masked[first - before : first - before + block]) + 1


@pytest.mark.parametrize("columns", [1, 3, 70])
@pytest.mark.parametrize("before", [1, 2, 3, 6])
@pytest.mark.parametrize("block", [3, 5, 7])
def test_an_odd_number_of_rows_of_which_some_lie_before(block: int, before: int, columns: int) -> None:
    """They are loaded one by one, and none of these brings the row that makes them even."""
    x = (np.arange(2 * block * columns).reshape(2 * block, columns) % 13 - 5).astype(np.float32)
    with metrics.counted() as launches:
        block_before[2].using(on="chip")(x, y := np.zeros_like(x), block=block, before=before)
    assert launches().chip == 1
    wanted = np.concatenate([np.zeros((before, columns), np.float32), x])[: 2 * block]
    assert np.array_equal(y, np.abs(wanted) + 1)
