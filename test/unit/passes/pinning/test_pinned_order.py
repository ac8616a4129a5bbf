"""Kernels that load what they have stored: forwarded, or cut into kernels one behind the other; the executor's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pinned import equal

from ktir import lang
from ktir.diagnostics import Unsupported


@lang.kernel
def loaded_in_a_loop(x, y, z):
    b = lang.tile_id()
    y[b] = x[b, 0] * 2
    for i in lang.range(4):
        z[b, i] = y[b] + x[b, i]


@lang.kernel
def left_by_a_loop(x, y, z):
    """Two stores of one loop, both loaded behind it."""
    b = lang.tile_id()
    for i in lang.range(4):
        y[b] = x[b, i] - 1
        z[b, 0] = x[b, i] * 3
    z[b, 1] = y[b] + z[b, 0]


@lang.kernel
def left_by_a_loop_in_a_loop(x, y, z):
    b = lang.tile_id()
    for _ in lang.range(2):
        y[b] = x[b, 0] * 2
        for i in lang.range(4):
            z[b, 0] = y[b] * x[b, i]
        z[b, 1] = z[b, 0] - 1


@lang.kernel
def cut_once(x, y, z):
    """Half of what was stored; what the second part needs it computes again."""
    b = lang.tile_id()
    scale = x[b, 0].sum()
    y[b] = x[b, 1] * scale
    z[b, 0, 0:35] = y[b, 35:70] + scale


@lang.kernel
def cut_twice(x, y, z):
    b = lang.tile_id()
    y[b] = x[b, 1] + 1
    z[b, 0, 0:35] = y[b, 35:70]
    for i in lang.range(3):
        z[b, i + 1, 20:40] = z[b, 0, 0:20] + x[b, i, 0:20]


@lang.kernel
def other_rows(x, y, z):
    """Nothing is cut: what is loaded was not stored."""
    b = lang.tile_id()
    z[b, 0] = x[b, 0]
    y[b] = z[b, 1] + x[b, 1]


@pytest.mark.parametrize("tiles", [3, 40])
@pytest.mark.parametrize(
    ("kernel", "parts"),
    [(loaded_in_a_loop, 1), (left_by_a_loop, 1), (left_by_a_loop_in_a_loop, 1), (cut_once, 2), (cut_twice, 3), (other_rows, 1)],
)
def test_bits(kernel: Any, parts: int, tiles: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in ((tiles, 4, 70), (tiles, 70), (tiles, 4, 70))]
    made = equal(kernel[tiles].ktir(*arrays), arrays)
    assert len(made.machine.program.kernels) == parts


@lang.kernel
def kept(x, y, z):
    """What the second part needs was loaded from memory that is no longer as it was."""
    b = lang.tile_id()
    old = y[b, 0:35] * 2
    y[b] = x[b, 1]
    z[b, 0, 0:35] = y[b, 35:70] + old


def test_what_cannot_be_computed_again_is_refused() -> None:
    arrays = [np.zeros(shape, np.float16) for shape in ((3, 4, 70), (3, 70), (3, 4, 70))]
    with pytest.raises(Unsupported, match="memory that the kernel has"):
        kept[3].cycles(*arrays)
