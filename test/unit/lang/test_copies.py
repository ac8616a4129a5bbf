"""What is a copy of a tile and what a view of it: as NumPy has it, wherever a kernel runs. Buffers that share bytes, too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ktir import lang

WAYS: dict[str, Callable[[Any], Any]] = {
    "flatten": lambda t: t.flatten(), "ravel": lambda t: t.ravel(), "reshape": lambda t: t.reshape(2, 96),
    "turned": lambda t: t.T.reshape(-1), "turned rows": lambda t: t.T.reshape(64, 3), "one row": lambda t: t[1:2].T.reshape(-1),
    "rows": lambda t: t[1:3].reshape(-1), "columns": lambda t: t[:, :32].reshape(-1), "column": lambda t: t[:, 5].reshape(3, 1),
    "spread": lambda t: np.broadcast_to(t, (2, 3, 64)).reshape(6, 64), "new dim": lambda t: t[:, None].reshape(3, 64),
    "swapped": lambda t: t.reshape(3, 8, 8).swapaxes(0, 1).reshape(-1), "row": lambda t: t[2].reshape(8, 8),
    "computed": lambda t: t.T, "copy": lambda t: t.T.copy().reshape(-1), "sum": lambda t: (t.T + 0).reshape(-1),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_views_see_changes_and_copies_do_not(name: str) -> None:
    @lang.kernel
    def run(x, y):
        tile = lang.zeros((3, 64))
        tile += x[...]
        seen = WAYS[name](tile)
        tile += 1
        y[...] = seen

    x = np.arange(192, dtype=np.float32).reshape(3, 64)
    plain = x.copy()
    seen = WAYS[name](plain)
    plain += 1
    for on in ("numpy", "executor"):
        run[1].using(on=on)(x, y := np.full(seen.shape, -9, np.float32))
        assert np.array_equal(y, seen), on


def test_a_view_of_what_was_computed_from_turned_ones_is_one() -> None:
    @lang.kernel
    def run(x, y, *, cast):
        tile = x[...].T.astype(np.float32) if cast else x[...].T + 0
        seen = tile.reshape(-1)
        tile += 1
        y[...] = seen

    x = np.arange(192, dtype=np.float32).reshape(3, 64)
    for cast in (False, True):
        for on in ("numpy", "executor"):
            run[1].using(on=on)(x, y := np.zeros(192, np.float32), cast=cast)
            assert np.array_equal(y, (x.T + 1).reshape(-1)), (on, cast)


@lang.kernel
def shared(x, y):
    first, second = lang.buffer(64, address=0), lang.buffer(64, address=0)
    first[...] = x[0]
    second[...] = x[1]
    y[...] = first[...]


@lang.kernel
def overlapping(x, y):
    first, second = lang.buffer((2, 64), address=0), lang.buffer(64, address=256)
    first[...] = x[0:2]
    second[...] = x[2]
    y[...] = first[1]


@lang.kernel
def under_one_without_address(x, y):
    first = lang.buffer(64)
    first[...] = x[0]
    second = lang.buffer(32, address=128)
    second[...] = x[1, 0:32]
    y[...] = first[...]


@lang.kernel
def in_a_loop(x, y):
    for i in lang.range(2):
        one, two = lang.buffer(64), lang.buffer(64)
        one[...] = x[i]
        two[...] = x[i + 1]
        y[...] = one[...] * 2 + two[...]


@lang.kernel
def apart(x, y):
    first, second = lang.buffer((3, 5)), lang.buffer(64, np.float16)
    first[...] = x[0:3, 0:5]
    second[...] = x[1].astype(np.float16)
    y[...] = second[...].astype(np.float32)
    y[0:5] = first[2]


@pytest.mark.parametrize("kernel", [shared, overlapping, under_one_without_address, in_a_loop, apart])
def test_buffers_share_the_bytes_that_they_are_given(kernel: Any) -> None:
    x = np.arange(192, dtype=np.float32).reshape(3, 64)
    found = []
    for on in ("numpy", "executor"):
        kernel[1].using(on=on)(x, y := np.full(64, -9, np.float32))
        found.append(y)
    assert np.array_equal(*found)


def test_what_nothing_has_written_is_nan_on_numpy() -> None:
    @lang.kernel
    def run(y, z, w):
        y[...], z[...], w[...] = (lang.buffer(3, d)[...] for d in (np.float16, np.int8, np.bool_))

    run[1].using(on="numpy")(y := np.zeros(3, np.float16), z := np.zeros(3, np.int8), w := np.zeros(3, np.bool_))
    assert np.isnan(y).all()
    assert (z == -1).all()
    assert w.all()
