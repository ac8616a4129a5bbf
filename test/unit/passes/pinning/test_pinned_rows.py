"""Reductions along dims that had better not lie in the sticks, and rows that are read in another order: bits, and values in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pinned import equal

from ktir import lang

rng = np.random.default_rng(3)


@lang.kernel
def along_rows(x, y):
    v = x[lang.tile_id()].astype(np.float32)
    y[lang.tile_id(), 0] = v.sum(0)
    y[lang.tile_id(), 1] = (v - v.max(0)).min(0)
    y[lang.tile_id(), 2] = (v * v).sum(0) + v.max()


@pytest.mark.parametrize(("n", "m"), [(3, 64), (9, 100), (17, 70), (63, 8), (64, 33), (65, 7), (65, 64), (130, 20)])
def test_reductions_along_rows(n: int, m: int) -> None:
    """As many as there are, also beyond a stick; a column without a number, one of negative zeros."""
    x = rng.standard_normal((3, n, m)).astype(np.float16)
    x[0, :, 1], x[1, 0, 2] = -0.0, np.nan
    y = np.zeros((3, 3, m), np.float32)
    along_rows[3].using(on="executor")(x, y)
    wide = x.astype(np.float64)
    finite = np.delete(np.arange(3 * m).reshape(3, m), 2, axis=1)  # without the one that has no number
    np.testing.assert_allclose(y[:, 0].ravel()[finite], wide.sum(1).ravel()[finite], atol=1e-4)
    equal(along_rows[3].ktir(x, y), [x, np.zeros_like(y)])


def test_they_move_whole_sticks() -> None:
    """Lanes that memory would give element by element take more than ten times as long."""
    x, y = np.zeros((1, 40, 768), np.float16), np.zeros((1, 3, 768), np.float32)
    assert along_rows[1].cycles(x, y) < 40 * 768 / 2  # an element takes a cycle, and there are three reductions


@lang.kernel
def of_three_dims(x, y):
    v = x[:]
    y[:] = v.max((1, 3), keepdims=True) * v.sum(2, keepdims=True) - v


@lang.kernel
def turned_columns(x, y):
    y[:] = x[:].max(-1).T


@lang.kernel
def turned_rows(x, y):
    v = x[:]
    y[:] = (v - v.max(-1, keepdims=True)).transpose(1, 0, 2) * 2


@lang.kernel
def turned_beside_others(x, y):
    v = x[:]
    y[:] = v.max(-1).T[:, :, None] * v.transpose(1, 0, 2)


@lang.kernel
def turned_round(x, y):
    y[:] = x[:].sum(2).transpose(1, 2, 0) + 1


@lang.kernel
def of_all_dims(x, y):
    v = x[:]
    y[:] = v - v.sum((0, 1, 2)) + v.max(1, keepdims=True)


@pytest.mark.parametrize(
    ("kernel", "shape", "wanted"),
    [
        *[
            (of_all_dims, shape, lambda v: v - v.sum() + v.max(1, keepdims=True))
            for shape in ((1, 1, 49), (1, 1, 1), (3, 1, 5), (1, 70, 1))
        ],
        (of_three_dims, (2, 6, 3, 64), lambda v: v.max((1, 3), keepdims=True) * v.sum(2, keepdims=True) - v),
        (turned_columns, (4, 5, 100), lambda v: v.max(-1).T),
        (turned_columns, (3, 7, 64), lambda v: v.max(-1).T),
        (turned_rows, (3, 5, 100), lambda v: (v - v.max(-1, keepdims=True)).transpose(1, 0, 2) * 2),
        (turned_beside_others, (3, 5, 100), lambda v: v.max(-1).T[:, :, None] * v.transpose(1, 0, 2)),
        (turned_round, (3, 4, 20, 64), lambda v: v.sum(2).transpose(1, 2, 0) + 1),
    ],
)
def test_rows_in_another_order(kernel: Any, shape: tuple[int, ...], wanted: Any) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    y = np.zeros(wanted(x).shape, np.float32)
    kernel[1].using(on="executor")(x, y)
    np.testing.assert_allclose(y, wanted(x.astype(np.float64)), atol=1e-4)
    equal(kernel[1].ktir(x, y), [x, np.zeros_like(y)])
