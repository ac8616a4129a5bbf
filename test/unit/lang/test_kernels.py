"""Kernels of the language give PyTorch's values in float64: on NumPy, on the KTIR executor, and on the chip."""

from typing import Any

import numpy as np
import pytest
import torch

from ktir import lang

PLACES = ["numpy", "executor"]
rng = np.random.default_rng(17)


def close(found: np.ndarray, expected: torch.Tensor, rounding: float) -> None:
    """Within a rounding of the result, relative to the largest magnitude."""
    wide = expected.double().numpy()
    assert found.shape == wide.shape
    assert np.abs(found.astype(np.float64) - wide).max() <= rounding * max(1.0, np.abs(wide).max())


def wide(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float64))


@lang.kernel
def softmax(x, y, *, block=None):
    for rows in lang.blocks(x.shape[0], block):
        v = x[rows].astype(np.float32)
        e = np.exp(v - v.max(-1, keepdims=True))
        y[rows] = e / e.sum(-1, keepdims=True)


GRIDS = [(None, None), (4, None), (4, 5), ((2, 3), 7)]


@pytest.mark.parametrize(("on", "grid", "block"), [(on, *g) for on in PLACES for g in GRIDS] + [("chip", None, None)])
def test_softmax(on: Any, grid: Any, block: int | None) -> None:
    x = rng.standard_normal((57, 100)).astype(np.float16)
    y = np.zeros_like(x)
    softmax.using(grid=grid, on=on)(x, y, block=block)
    close(y, torch.softmax(wide(x), -1), 2**-11)


@lang.kernel
def clipped_sum(x, y, z, *, live):
    for r, c in lang.blocks(z.shape, (8, 32)):
        s = np.where(c.positions < live, x[r, c] * 2 + y[c], 0)
        z[r, c] = np.maximum(s, -1.5)


@pytest.mark.parametrize("on", PLACES)
@pytest.mark.parametrize("grid", [None, 1, 3])
def test_elementwise_with_masks_and_promotion(on: Any, grid: Any) -> None:
    x = rng.standard_normal((20, 70)).astype(np.float32)
    y = rng.standard_normal(70).astype(np.float16)
    z = np.full((20, 70), 9, np.float32)
    clipped_sum.using(grid=grid, on=on)(x, y, z, live=50)
    s = wide(x) * 2 + wide(y)
    s[:, 50:] = 0
    close(z, s.clamp(min=-1.5), 2**-22)
