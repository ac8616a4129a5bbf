"""Blocks inside of blocks: each pair is computed once, whichever axes of the grid are dealt along, everywhere alike."""

from typing import Any

import numpy as np
import pytest

from ktir import lang

WAYS: list[tuple[Any, Any]] = [("numpy", None), ("executor", None), ("chip", "pin"), ("chip", "lift")]


@lang.kernel
def nested(x, y, *, outer, inner):
    for rows in lang.blocks(x.shape[0], 2, axis=outer):
        for columns in lang.blocks(x.shape[1], 3, axis=inner):
            y[rows, columns] = y[rows, columns] + x[rows, columns]


@lang.kernel
def three(x, y):
    for one in lang.blocks(x.shape[0], 2, axis=1):
        for two, columns in lang.blocks((2, x.shape[1]), (1, 5)):
            for row in lang.blocks(1):
                at = one.start + two.start + row.start
                y[at, columns] = x[at, columns] * 2


CASES = [(grid, outer, inner) for grid in [4, (2, 3), (3, 1, 2)] for outer in (None, 0) for inner in (None, 0) if None in (outer, inner)]
CASES += [(4, 0, 0), ((2, 3), 0, 1), ((2, 3), 1, 0)]
"""Between them, the loops deal along all axes; along one that none names, tiles would do the same again."""


@pytest.mark.parametrize(("on", "way"), WAYS)
def test_each_pair_is_computed_once(on: Any, way: Any) -> None:
    x = np.random.default_rng(5).integers(1, 99, (8, 12)).astype(np.float32)
    for grid, outer, inner in CASES:
        y = np.zeros_like(x)
        nested.using(grid=grid, on=on, way=way)(x, y, outer=outer, inner=inner)
        assert np.array_equal(y, x), (grid, outer, inner)


@pytest.mark.parametrize("on", ["numpy", "executor", "chip"])
def test_three_loops_along_two_axes(on: Any) -> None:
    x = np.random.default_rng(5).integers(1, 99, (8, 12)).astype(np.float32)
    for grid in ((2, 3), (3, 2), (1, 4)):
        y = np.zeros_like(x)
        three.using(grid=grid, on=on)(x, y)
        assert np.array_equal(y, 2 * x), grid


@lang.kernel
def beside(x, y):
    for rows, columns in zip(lang.blocks(x.shape[0], 2), lang.blocks(x.shape[1], 3), strict=False):
        y[rows, columns] = x[rows, columns]


@lang.kernel
def left_early(x, y):
    for rows in lang.blocks(x.shape[0], 2):
        y[rows] = x[rows]
        break


@pytest.mark.parametrize("on", ["numpy", "executor", "chip"])
@pytest.mark.parametrize(("kernel", "words"), [(beside, "inside of another one"), (left_early, "run to its end")])
def test_loops_that_are_walked_otherwise_are_refused(kernel: Any, words: str, on: Any) -> None:
    x = np.ones((8, 12), np.float32)
    y = np.zeros_like(x)
    with pytest.raises(lang.Mistake, match=words) as caught:
        kernel.using(grid=4, on=on)(x, y)
    assert "test_dealing.py" in str(caught.value.location)
    assert not y.any()


@pytest.mark.parametrize("on", ["numpy", "executor", "chip"])
def test_an_axis_along_which_nothing_is_dealt_is_a_race(on: Any) -> None:
    """Its tiles would do the same work again, and store the same elements."""

    @lang.kernel
    def repeated(x, y):
        for rows in lang.blocks(x.shape[0], 2, axis=0):
            y[rows] = x[rows] * 2

    x = np.ones((8, 64), np.float32)
    with pytest.raises(Exception, match=r"writes .* (written by tile|another core writes)"):
        repeated.using(grid=(2, 2), on=on)(x, np.zeros_like(x))
    repeated.using(grid=(2, 1), on=on)(x, y := np.zeros_like(x))
    assert (y == 2).all()


@pytest.mark.parametrize("on", ["numpy", "executor"])
def test_what_another_tile_writes_is_not_read(on: Any) -> None:
    @lang.kernel
    def turned(y):
        t = lang.tile_id()
        y[t] = y[(t + 1) % 2] + 1

    with pytest.raises(Exception, match=r"of 'y' on tile ., and it is (read|written) by tile"):
        turned.using(grid=2, on=on)(np.zeros((2, 64), np.float32))

    @lang.kernel
    def met(y):
        t = lang.tile_id()
        v = lang.shift(y[(t + 1) % 2])
        y[t] = v + 1

    met.using(grid=2, on=on)(y := np.zeros((2, 64), np.float32))
    assert (y == 1).all()
