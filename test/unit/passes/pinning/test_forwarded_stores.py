"""`ktir-forward-stores` leaves every bit as it is: the executor on a text before and after the pass, and the chip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pinned import equal

from ktir import lang
from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.emulator.reference import execute
from ktir.mlir import ir
from ktir.pipeline import run_pipeline


@lang.kernel
def added(x, y):
    """A sum that is rounded in memory in each trip."""
    b = lang.tile_id()
    for i in lang.range(x.shape[1]):
        y[b] = y[b] * 0.75 + x[b, i]


@lang.kernel
def written_twice(x, y):
    b = lang.tile_id()
    y[b] = x[b, 0]
    y[b] = y[b] + x[b, 1]
    y[b] = y[b] * x[b, 2]


@lang.kernel
def copied(x, y):
    """What is loaded is stored, with the bits that it has, and loaded again."""
    b = lang.tile_id()
    y[b] = x[b, 0]
    x[b, 1] = y[b]
    y[b] = -x[b, 1]


@lang.kernel
def summed_in_trips(x, y):
    """A loop in a loop, and what lies behind them."""
    b = lang.tile_id()
    for _ in lang.range(2):
        for i in lang.range(x.shape[1]):
            y[b] = y[b] + x[b, i]
    y[b] = y[b] - x[b, 0]


@pytest.mark.parametrize("type_", [np.float16, np.float32])
@pytest.mark.parametrize(("kernel", "stores"), [(added, (1, 1)), (written_twice, (3, 1)), (copied, (3, 2)), (summed_in_trips, (2, 1))])
def test_bits(kernel: Any, stores: tuple[int, int], type_: Any) -> None:
    """`stores`: before and after."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4, 70)).astype(type_), rng.standard_normal((3, 70)).astype(type_)]
    arrays[0][0, :, :4] = [[-0.0, np.nan, np.inf, 6e-8]] * 4
    text = kernel[3].ktir(*arrays)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, "ktir-forward-stores")
        after = print_module(module)
    assert (text.count("ktdp.store"), after.count("ktdp.store")) == stores
    before, forwarded = ([a.copy() for a in arrays] for _ in range(2))
    execute(text, None, before)
    execute(after, None, forwarded)
    for a, b in zip(before, forwarded, strict=True):
        assert a.tobytes() == b.tobytes()
    equal(text, arrays)
