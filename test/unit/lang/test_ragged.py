"""Blocks that are cut along outer dims, what lies before two dims, and reductions of several dims and of many rows: near NumPy's values in
float64, and with the executor's bits on the chip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from ktir import lang
from ktir.runtime import metrics


def on_both(kernel: Any, x: np.ndarray, shape: tuple[int, ...], wide: np.ndarray, dtype: Any, bound: float) -> None:
    """The executor is near a value of float64, and the chip has its bits."""
    found = [np.full(shape, 7, dtype) for _ in range(2)]
    kernel.using(on="executor")(x, found[0])
    with metrics.counted() as launches:
        kernel.using(on="chip")(x, found[1])
    assert launches().chip == 1
    assert found[0].tobytes() == found[1].tobytes()
    assert np.abs(found[0].astype(np.float64) - wide).max() <= bound * np.abs(wide).max()


CUT = [
    ((7, 5, 128), (2,), 1, 1),
    ((7, 5, 70), (2,), 1, 2),
    ((9, 3, 5, 64), (4,), 1, 1),
    ((5, 3, 5, 64), (2,), 2, 2),
]


@pytest.mark.parametrize(("case", "dtype"), [*zip(CUT, [np.float32, np.int8, np.float16, bfloat16], strict=True)])
def test_a_last_block_with_fewer_rows(case: tuple[Any, ...], dtype: Any) -> None:
    """A position of a dim that is cut is there or not in each trip; rows of it follow each other in memory, or do not."""
    shape, block, axis, grid = case

    def body(x, y):
        for b in lang.blocks(shape[: len(block)], block):
            y[b] = x[b].min(axis)

    x = np.random.default_rng(0).integers(-90, 90, shape).astype(dtype)
    wide = x.astype(np.float64).min(axis)
    on_both(lang.kernel(body)[grid], x, wide.shape, wide, dtype, 0)


def by_itself(x, y):
    for i in lang.blocks(x.shape[0], 2):
        for j in lang.blocks(x.shape[1], 3):
            y[i, j] = x[i, j] * 2 + 1


def along_rows(x, y):
    for i in lang.blocks(x.shape[0], 2):
        for j in lang.blocks(x.shape[1], 3):
            v = x[i, j]
            y[i, j] = v * v.sum(1, keepdims=True) - v.max(-1, keepdims=True)


def carried_along(x, y):
    for i in lang.blocks(x.shape[0], 2):
        total = lang.zeros((2, 1, x.shape[2]))
        for j in lang.blocks(x.shape[1], 3):
            total += x[i, j].sum(1, keepdims=True)
        for j in lang.blocks(x.shape[1], 3):
            y[i, j] = x[i, j] * total


def also_in_columns(x, y):
    for i in lang.blocks(x.shape[0], 2):
        for j in lang.blocks(x.shape[1], 3):
            for k in lang.blocks(x.shape[2], 64):
                v = x[i, j, k]
                y[i, j, k] = v - v.max(1, keepdims=True)


@pytest.mark.parametrize("grid", [1, 2, (2, 2)])
@pytest.mark.parametrize("body", [by_itself, along_rows, carried_along, also_in_columns])
def test_loops_whose_last_trip_has_fewer_rows_of_two_dims(body: Callable[..., None], grid: Any) -> None:
    """Each tile takes several blocks: those that are whole in a loop, the others in trips of their own. Numbers are whole: exact in f32."""
    x = np.random.default_rng(0).integers(-9, 9, (7, 10, 130)).astype(np.float32)
    blocks = [(slice(i, i + 2), slice(j, j + 3)) for i in range(0, 7, 2) for j in range(0, 10, 3)]
    wide, v = np.zeros(x.shape), x.astype(np.float64)
    for at in blocks:
        part = v[at]
        whole = {
            by_itself: part * 2 + 1,
            along_rows: part * part.sum(1, keepdims=True) - part.max(-1, keepdims=True),
            carried_along: part * v[at[0]].sum(1, keepdims=True),
            also_in_columns: part - part.max(1, keepdims=True, initial=0 if part.shape[1] < 3 else -9),  # zeros lie outside
        }
        wide[at] = whole[body]
    on_both(lang.kernel(body)[grid], x, x.shape, wide, np.float32, 0)


def centred(axes: Any) -> Callable[[Any], Any]:
    return lambda v: (v - v.mean(axes, keepdims=True)) / (v.std(axes, keepdims=True) + 1)


F32, F16 = np.float32, np.float16
SEVERAL: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "all": ((2, 10, 128), lambda v: v.sum((1, 2))),
    "many rows": ((2, 70, 65), lambda v: v.sum((1, 2))),
    "outer": ((2, 9, 20, 64), lambda v: v.sum((1, 2))),
    "apart": ((4, 5, 3, 64), lambda v: v.max((1, 3))),
    "normalised": ((2, 3, 2, 65), centred((2, 3))),
    "of rows": ((2, 3, 2, 64), centred((1, 3))),
}


@pytest.mark.parametrize(("case", "dtype"), [*zip(SEVERAL, [F32, F16, F32, bfloat16, F32, F32], strict=True)])
def test_reductions_of_several_dims(case: str, dtype: Any) -> None:
    """They are taken one after the other, and what they give is read along the dims that it lacks."""
    shape, function = SEVERAL[case]

    def body(x, y):
        for b in lang.blocks(shape[0], 1):
            y[b] = function(x[b])

    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    wide = function(x.astype(np.float64))
    on_both(lang.kernel(body)[2], x, wide.shape, wide, dtype, 2**-18 if dtype == np.float32 else 2**-7)


@pytest.mark.parametrize(("count", "dtype"), [(100, np.float32), (130, np.int32), (300, np.float16)])
def test_reductions_of_many_rows(count: int, dtype: Any) -> None:
    """A dim that is cut elsewhere on each tile lies in the rows: 64 of them are combined with the next ones, then halves of them."""

    def body(x, y):
        t = lang.tile_id() * count
        v = x.masked[:, t : t + count]
        y[lang.tile_id()] = v.sum(-1, dtype=v.dtype) + v.max(-1)

    x = np.random.default_rng(2).integers(-9, 9, (3, 2 * count + 30)).astype(dtype)
    blocks = [x[:, k : k + count].astype(np.float64) for k in range(0, 3 * count, count)]
    reached = [np.pad(b, ((0, 0), (0, count - b.shape[1]))) for b in blocks]
    wide = np.array([b.sum(-1) + b.max(-1) for b in reached])
    on_both(lang.kernel(body)[3], x, wide.shape, wide, dtype, 0)


def filtered(taps: list[tuple[int, int]]) -> Any:
    """A filter of images: the rows and columns that lie before and behind are 0."""

    def body(x, y):
        for rows in lang.blocks(x.shape[0], 4):
            for columns in lang.blocks(x.shape[1], 4):
                total = lang.zeros((4, 4, x.shape[2]))
                for i, j in taps:
                    at, left = rows.start + i - 1, columns.start + j - 1
                    total += x.masked[at : at + 4, left : left + 4].astype(np.float32) * (i * 3 + j + 1)
                y[rows, columns] = total

    return lang.kernel(body)


ALL = [(i, j) for i in range(3) for j in range(3)]


@pytest.mark.parametrize(
    ("grid", "taps"), [(1, [(0, 0), (1, 0)]), (4, ALL), ((2, 2), [(0, 1), (2, 0), (2, 2)])], ids=["loops", "rows", "both"]
)
def test_what_lies_before_two_dims(grid: Any, taps: list[tuple[int, int]]) -> None:
    """An odd number of columns behind one that is not there moves nothing to the next row's."""
    x = np.random.default_rng(3).integers(-9, 10, (8, 8, 64)).astype(np.float16)
    around = np.pad(x.astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    wide = sum(around[i : i + 8, j : j + 8] * (i * 3 + j + 1) for i, j in taps)
    assert isinstance(wide, np.ndarray)
    on_both(filtered(taps)[grid], x, wide.shape, wide, np.float32, 0)


@lang.kernel
def spread(x, y):
    t = lang.tile_id() * 4
    y.masked[t - 1 : t + 3, t - 2 : t + 3] = x[t : t + 4, 0:5]


def test_stores_before_two_dims() -> None:
    x, wide = np.random.default_rng(4).integers(-9, 10, (8, 6, 64)).astype(np.float32), np.full((9, 8, 64), 7.0)
    wide[0:3, 0:3], wide[3:7, 2:7] = x[1:4, 2:5], x[4:8, 0:5]
    on_both(spread[2], x, wide.shape, wide, np.float32, 0)
