"""Layouts: the published fields, and packing there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktir.layout import Digit, Layout

SIZES = st.sampled_from([1, 2, 3, 57, 63, 64, 65, 100, 128, 130])


@pytest.mark.parametrize(
    ("size", "device", "strides"),
    [
        ((1024, 256), (4, 1024, 64), (64, 256, 1)),
        ((1000, 200), (4, 1000, 64), (64, 200, 1)),
        ((1, 128), (2, 1, 64), (64, -1, 1)),
        ((57, 1), (1, 57, 64), (-1, 1, -1)),
    ],
)
def test_published_fields(size: tuple[int, int], device: tuple[int, ...], strides: tuple[int, ...]) -> None:
    layout = Layout.rows(*size)
    assert layout.device_size == device
    assert layout.stride_map == strides


@given(SIZES, SIZES, st.sampled_from(["f16", "f32"]))
def test_pack_and_unpack(rows: int, columns: int, dtype: str) -> None:
    layout = Layout.rows(rows, columns, dtype)
    host = np.arange(1, rows * columns + 1, dtype=np.float32).reshape(rows, columns)
    device = layout.pack(host)
    assert device.shape == (layout.entries, 64)
    assert (device != 0).sum() == host.size, "padding is zero"
    np.testing.assert_array_equal(layout.unpack(device), host)


@given(SIZES, SIZES)
def test_digits_say_the_same_as_the_fast_form(rows: int, columns: int) -> None:
    """A layout with an extra digit of extent one goes through index arithmetic."""
    fast = Layout.rows(rows, columns)
    slow = Layout(fast.size, (Digit(None, 0, 1), *fast.digits))
    host = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    np.testing.assert_array_equal(fast.pack(host), slow.pack(host))
    np.testing.assert_array_equal(slow.unpack(slow.pack(host)), host)


def test_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="expects shape"):
        Layout.rows(3, 5).pack(np.zeros((5, 3), np.float32))
