"""Strided layouts, against NumPy's own views."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ktir.emulator.reference.tape.values import Strided, simplify

MEMORY = np.arange(100_000)


def view(at: Strided) -> np.ndarray:
    """The elements of a layout in a memory whose elements are their own addresses."""
    return np.lib.stride_tricks.as_strided(MEMORY[at.offset :], at.shape, [s * MEMORY.itemsize for s in at.strides])


layouts = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 40)), min_size=1, max_size=4).map(
    lambda dims: Strided(tuple(n for n, _ in dims), tuple(s for _, s in dims), 7)
)


@given(layouts)
def test_span_and_present(at):
    low, high = at.span()
    assert (low, high) == (view(at).min(), view(at).max() + 1)
    assert at.present_size == np.prod([1 if s == 0 else n for n, s in zip(at.shape, at.strides, strict=True)])


@given(layouts, st.randoms())
def test_axes_box_and_tiles(at, random):
    order = list(range(len(at.shape)))
    random.shuffle(order)
    np.testing.assert_array_equal(view(at.axes(tuple(order))), view(at).transpose(order))
    box = tuple((low := random.randrange(n), random.randint(1, n - low)) for n in at.shape)
    np.testing.assert_array_equal(view(at.box(box, 0)), view(at)[tuple(slice(a, a + n) for a, n in box)])
    first, count = box[0]
    np.testing.assert_array_equal(view(at.tiles(first, count)), view(at)[first : first + count])


@given(layouts, st.data())
def test_collapse_is_exact_or_refused(at, data):
    first = data.draw(st.integers(0, len(at.shape) - 1))
    last = data.draw(st.integers(first, len(at.shape) - 1))
    merged = at.collapse(first, last)
    shape = (*at.shape[:first], int(np.prod(at.shape[first : last + 1])), *at.shape[last + 1 :])
    want = view(at).reshape(shape)
    if merged is not None:
        np.testing.assert_array_equal(view(merged), want)
    else:
        flat = want.reshape(*shape[: first + 1], -1)
        steps = np.diff(np.moveaxis(want, first, -1), axis=-1)
        assert flat.size
        assert len(np.unique(steps)) > 1


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.data())
def test_expand_undoes_collapse(shape, data):
    present = tuple(data.draw(st.sampled_from([1, n])) for n in shape)
    at = Strided.compact(tuple(shape), present)
    assert at.is_compact()
    whole = Strided.compact((int(np.prod(shape)),), (0,))
    np.testing.assert_array_equal(view(whole.expand(0, tuple(shape))), view(whole).reshape(shape))


def test_linear():
    at = Strided((2, 5, 6), (30, 6, 1))
    diagonal = at.linear((2, 4), ((1,), (1,)), (1, 2))
    np.testing.assert_array_equal(view(diagonal), [[t * 30 + (1 + i) * 6 + 2 + i for i in range(4)] for t in range(2)])


def test_simplify():
    assert simplify(np.array([3, 3, 3])) == 3
    assert isinstance(simplify(np.int64(4)), int)
    assert isinstance(simplify(np.array(True)), bool)
    np.testing.assert_array_equal(simplify(np.array([1, 2])), [1, 2])
