"""Views of the tape visit what index arrays say, element by element."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings

from ktir.emulator.machine.replay.values import View, together


def visited(view: View) -> np.ndarray:
    """Numbers of the elements of a flat memory, in the shape of the view."""
    at = np.full(view.shape, view.offset)
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        at += (np.arange(n) * stride).reshape([n if k == axis else 1 for k in range(len(view.shape))])
    return at


def check(source: np.ndarray, lane: int, target: np.ndarray, lanes: int) -> bool:
    """Whether there are views; they copy what the walks copy, to each element once."""
    found = together(source, lane, target, 1, lanes)
    if found is None:
        return False
    of, to = map(visited, found)
    copied = dict(zip(to.ravel().tolist(), np.broadcast_to(of, to.shape).ravel().tolist(), strict=True))
    all_of, all_to = (at.reshape(-1, 1) + np.arange(lanes) * step for at, step in ((source, lane), (target, 1)))
    expected = set(zip(all_to.ravel().tolist(), all_of.ravel().tolist(), strict=True))
    if len(copied) == to.size:
        assert set(copied.items()) == expected
    return True


@pytest.mark.parametrize(("rows", "columns"), [(1, 32), (4, 8), (8, 4), (16, 2), (3, 5), (1, 1), (7, 1)])
def test_a_grid_of_cores_has_strides(rows: int, columns: int) -> None:
    core, entry = np.arange(rows * columns)[:, None], np.arange(6)[None]
    weights = 7 + core % columns * 4096 + entry * 64
    own = core * 6 * 64 + entry * 64
    assert check(weights, 1, own, 64)
    assert check(core // columns * 512 + entry * 64, -1, own, 10)


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_any_walk(data: st.DataObject) -> None:
    """Strides for a grid of cores and two axes of entries; sometimes one entry lies elsewhere, and then no view says so."""
    outer, inner, n, m = (data.draw(st.integers(1, 4)) for _ in range(4))
    walks = []
    for _ in range(2):
        steps = [data.draw(st.integers(-70, 70)) for _ in range(4)]
        grid = np.indices((outer, inner, n, m))
        at = sum(s * g for s, g in zip(steps, grid, strict=True)) + 5000
        walks.append(np.asarray(at).reshape(outer * inner, n, m))
    moved = data.draw(st.booleans())
    if moved:
        flat = walks[data.draw(st.integers(0, 1))].reshape(-1)
        flat[data.draw(st.integers(0, flat.size - 1))] += 1
    lanes = data.draw(st.sampled_from([1, 3, 64]))
    found = check(walks[0], data.draw(st.sampled_from([0, 1, 2, -1])), walks[1], lanes)
    assert found or moved or len(np.unique(walks[1])) < walks[1].size
