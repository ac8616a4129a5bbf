"""Slices of tiles, and tiles put together: near NumPy's values in float64, and with the executor's bits on the chip, pinned and planned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ktir import lang
from ktir.runtime import metrics

ROWS, LONG = (7, 100), (6, 128)


def of_loaded(v: Any) -> Any:
    """Rows, and columns that begin inside of a stick, of what is loaded."""
    return (v * 2)[1:6, 10:74]


def of_reduced(v: Any) -> Any:
    """Rows, an odd number of them from an odd one on, of what has one form."""
    e = np.exp(v - v.max(-1, keepdims=True))
    s = e.sum(-1, keepdims=True)
    return (e / s)[1:4] * s[3:6]


def of_a_single_row(v: Any) -> Any:
    return v.sum(-1, keepdims=True)[6:7] + v


def whole_sticks(v: Any) -> Any:
    return v[:, 64:128] * v.sum(-1, keepdims=True)


def in_rows(v: Any) -> Any:
    """An odd row where parts meet, and one more reduction of the whole."""
    s = v.sum(-1, keepdims=True)
    w = np.concatenate([v[0:3] * s[0:3], v[0:1] * s[2:3], v[3:6] / s[1:4]])
    return w - w.max(-1, keepdims=True)


def in_columns(v: Any) -> Any:
    s = v.sum(-1, keepdims=True)
    return np.concatenate([v[:, 0:64] * s, v[:, 64:100] / s], 1)


def rotated(v: Any) -> Any:
    w = v * v.sum(-1, keepdims=True)
    return np.concatenate([-w[:, 64:128], w[:, 0:64]], 1) * v


def truths(v: Any) -> Any:
    return np.where(np.concatenate([v[3:7] > 0, v[0:3] < 0.5]), v, -1)


def stacked(v: Any) -> Any:
    s = v * v.sum(-1, keepdims=True)
    return np.stack([s, s + 1, -v], 1)


def changed(v: Any) -> Any:
    """A box that becomes another one."""
    w = (v * 2).copy()
    w[1:3, 64:128] = w[0:2, 0:64] + 1
    return w * v


def carried(v: Any) -> Any:
    total = lang.zeros(ROWS, v.dtype)
    for _ in lang.range(3):
        w = v * (total + 1)
        total[...] = np.concatenate([w[4:7], w[0:4]])
    return total


CASES = [(of_loaded, ROWS), (of_reduced, ROWS), (of_a_single_row, ROWS), (whole_sticks, LONG), (in_rows, ROWS), (in_columns, ROWS),
         (rotated, LONG), (truths, ROWS), (stacked, ROWS), (changed, LONG), (carried, ROWS)]  # fmt: skip


@pytest.mark.parametrize(("part", "shape"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_parts(part: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    def body(x, y):
        for t in lang.blocks(x.shape[0], 1):
            y[t] = part(x[t.start])[None]

    kernel, x = lang.kernel(body), np.random.default_rng(7).standard_normal((2, *shape)).astype(np.float32) + 3
    y = np.zeros((2, *part_shape(part, x)), np.float32)
    kernel.using(on="numpy", grid=2)(x.astype(np.float64), wide := y.astype(np.float64))
    kernel.using(on="executor", grid=2)(x, wanted := y.copy())
    assert np.abs(wanted - wide).max() <= 2**-20 * np.abs(wide).max() * 16  # of sums of at most 128, and quotients of them
    with metrics.counted() as launches:
        kernel.using(on="chip", grid=2)(x, found := y.copy())
    assert launches().chip == 1
    assert found.tobytes() == wanted.tobytes()


def part_shape(part: Callable[[Any], Any], x: np.ndarray) -> tuple[int, ...]:
    """The shape that NumPy gives."""
    return x.shape[1:] if part is carried else part(x[0]).shape


@pytest.mark.parametrize(("part", "shape"), [c for c in CASES if c[0] is not carried], ids=[f.__name__ for f, _ in CASES[:-1]])
def test_parts_that_are_planned(part: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    def body(x, y):
        y[:] = part(x[:])

    kernel, x = lang.kernel(body), np.random.default_rng(8).standard_normal(shape).astype(np.float32) + 3
    wide = part(x.astype(np.float64))
    with metrics.counted() as launches:
        kernel.using(on="chip")(x, found := np.zeros(wide.shape, np.float32))
    assert launches().chip == 1
    assert np.abs(found - wide).max() <= 2**-16 * np.abs(wide).max()


def test_lanes_do_not_move() -> None:
    def body(x, y):
        v = x[:] * x[:].sum(-1, keepdims=True)
        s = np.concatenate([v[:, 0:30], v[:, 30:60]])
        y[:] = s / s.sum(-1, keepdims=True)

    kernel, x = lang.kernel(body).using(on="chip", grid=1), np.ones((4, 64), np.float32)
    kernel(x, y := np.zeros((8, 30), np.float32))  # each part is computed from its own load
    assert (y == np.float32(1) / np.float32(30)).all()

    def moved(x, y):
        y[:] = (x[:] @ x[:])[:, 10:40]

    with pytest.raises(Exception, match="inside of a stick of what is computed, and no instruction moves lanes"):
        lang.kernel(moved).using(on="chip", grid=1)(np.ones((64, 64), np.float16), np.zeros((64, 30), np.float16))


@lang.kernel
def changed_parts(x, y):
    total = lang.zeros((4, x.shape[1]))
    for i in lang.range(x.shape[0]):
        total[...] += x[i]
        total[1] += x[i] * 2
        total[2:4] -= x[i]
        total[2:4, :64] *= 2
        total[0][...] += 1
    first = total[0:2]
    first += 1
    row = x[0]
    row *= 3
    y[:4] = total
    y[4] = row


@pytest.mark.parametrize("on", ["executor", "chip"])
def test_parts_of_tiles_change_in_place(on: Any) -> None:
    """A part is a view, as NumPy's are: what is added to it is added to the tile; what was loaded is a copy."""
    x = np.arange(5 * 128, dtype=np.float32).reshape(5, 128) % 11
    wanted, found = np.zeros((2, 5, 128), np.float32)
    changed_parts[1].using(on="numpy")(x, wanted)
    changed_parts[1].using(on=on)(x, found)
    assert np.array_equal(found, wanted)
