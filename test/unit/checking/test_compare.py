"""Where arrays differ."""

import numpy as np
import pytest

from ktir.checking.compare import compare


def test_equal_arrays() -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)
    assert compare(x, x.copy()) is None
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))) is None
    assert compare(np.array(2), np.array(2)) is None
    assert compare(np.array([True, False]), np.array([True, False])) is None


def test_the_smallest_slice() -> None:
    x = np.zeros((4, 8, 3), np.float32)
    y = x.copy()
    y[1, 2:5, 0] = [1, 0, 3]
    found = compare(x, y)
    assert found is not None
    assert found.slice_text == "[1, 2:5, 0]"
    assert (found.count, found.size, found.largest, found.first) == (2, 96, 3.0, (1, 2, 0))
    assert found.elements == ("[1, 2, 0] expected 0.0, but got 1.0", "[1, 4, 0] expected 0.0, but got 3.0")
    assert found.describe("y") == "y[1, 2:5, 0] differs: 2 of 96 elements, the largest difference is 3"


def test_long_lists_are_cut() -> None:
    found = compare(np.zeros(9, np.int8), np.ones(9, np.int8))
    assert found is not None
    assert found.listing("y")[0] == "y[0] expected 0, but got 1"
    assert found.listing("y")[-1] == "and 5 more"


@pytest.mark.parametrize(
    ("wanted", "got"), [(1.0, np.nan), (np.nan, 1.0), (np.inf, -np.inf), (np.inf, 1e30), (0.0, -0.0), (1.0, 1.0 + 2.0**-23)]
)
def test_without_tolerance_every_bit_counts(wanted: float, got: float) -> None:
    assert compare(np.array([wanted], np.float32), np.array([got], np.float32)) is not None


def test_integers_beyond_floats() -> None:
    assert compare(np.array([2**60]), np.array([2**60 + 1])) is not None


@pytest.mark.parametrize(("wanted", "got"), [(1.0, np.nan), (np.inf, -np.inf), (np.inf, 1e30), (1.0, 1.2)])
def test_beyond_the_tolerance(wanted: float, got: float) -> None:
    assert compare(np.array([wanted]), np.array([got]), atol=0.1, rtol=0.01) is not None


def test_within_the_tolerance() -> None:
    assert compare(np.array([100.0, 0.0]), np.array([101.0, 0.05]), atol=0.1, rtol=0.01) is None
    assert compare(np.array([100.0, 0.0]), np.array([100.0, 0.5]), rtol=0.01) is not None


def test_bounds_by_element() -> None:
    wrong = compare(np.array([100.0, 0.5]), np.array([100.25, 0.75]), atol=np.array([0.25, 0.125]))
    assert wrong is not None
    assert wrong.first == (1,)
