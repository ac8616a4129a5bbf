"""Exchanges of more tiles than there are cores: those of a turn exchange with each other, as NumPy has it, and none beyond."""

from __future__ import annotations

import numpy as np
import pytest
from pinned import equal, package_of

from ktir import lang
from ktir.diagnostics import KtirError


@lang.kernel
def exchanged(x, y, z):
    """Along the last dim of the grid: a sum, the neighbour's, that of the first one, and all of them."""
    i, j = lang.tile_id(0), lang.tile_id(1)
    v = x[i, j]
    y[i, j, 0] = lang.all_reduce(v, axis=1)
    y[i, j, 1] = lang.shift(v, axis=1)
    y[i, j, 2] = lang.broadcast(v, axis=1)
    z[i, j] = lang.all_gather(v[None], axis=1)


def memory(*grid: int) -> list[np.ndarray]:
    x = np.random.default_rng(0).integers(-1000, 1000, (*grid, 70)).astype(np.int32)
    return [x, np.zeros((*grid, 3, 70), np.int32), np.zeros((*grid, grid[1], 70), np.int32)]


@pytest.mark.parametrize("grid", [(4, 16), (5, 8), (9, 4), (3, 32)])
def test_groups_of_a_turn(grid: tuple[int, int]) -> None:
    x, y, z = arrays = memory(*grid)
    executable = equal(exchanged[grid].ktir(*arrays), arrays)
    executable(*arrays)
    for k, wanted in enumerate((x.sum(1, keepdims=True), np.roll(x, 1, 1), x[:, :1])):
        assert np.array_equal(y[:, :, k], np.broadcast_to(wanted, x.shape))
    assert np.array_equal(z, np.broadcast_to(x[:, None], z.shape))


@lang.kernel
def in_trips(x, y):
    """An exchange in each trip of a loop."""
    i, j = lang.tile_id(0), lang.tile_id(1)
    total = lang.zeros(x.shape[3], np.int32)
    for k in lang.range(x.shape[2]):
        total += lang.all_reduce(x[i, j, k], axis=1)
    y[i, j] = total


def test_in_a_loop() -> None:
    x = np.random.default_rng(0).integers(-1000, 1000, (9, 4, 3, 70)).astype(np.int32)
    y = np.zeros((9, 4, 70), np.int32)
    executable = equal(in_trips[9, 4].ktir(x, y), [x, y])
    executable(x, y)
    assert np.array_equal(y, np.broadcast_to(x.sum((1, 2), keepdims=True)[:, :, 0], y.shape))


def test_groups_of_two_turns_are_refused() -> None:
    with pytest.raises(KtirError, match=r"kernel.mlir:\d+:.* receive from tile \d+, which runs in another turn of the 32 cores"):
        package_of(exchanged[7, 5].ktir(*memory(7, 5)))
