"""Layouts: the published fields, and packing there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktir.layout import Digit, Layout, host_index

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


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any tensor with one of its dims, or none, in the stick, the others in any order, a dim cut in two or not at all."""
    size = draw(st.lists(st.sampled_from([1, 2, 3, 5, 64, 65]), min_size=1, max_size=3))
    stick = draw(st.none() | st.integers(0, len(size) - 1))
    lanes = Digit(stick, 1 if stick is not None else 0, 64)
    digits = []
    for dim, extent in enumerate(size):
        unit = 64 if dim == stick else draw(st.sampled_from([1, 1, 2]))
        digits += [Digit(dim, unit, -(-extent // unit))] + ([Digit(dim, 1, unit)] if unit == 2 else [])
    order = draw(st.permutations(range(len(digits))))
    outer = tuple(digits[i] for i in order)
    if draw(st.booleans()):
        outer = (Digit(None, 0, 2), *outer)
    return Layout(tuple(size), (*outer, lanes), draw(st.sampled_from(["f16", "i32"])))


@given(layouts())
@settings(deadline=None)
def test_digits_say_where_elements_lie(layout: Layout) -> None:
    host = np.arange(1, np.prod(layout.size) + 1).reshape(layout.size).astype(layout.value_type)
    source = host_index(layout.size, layout.digits).reshape(-1, 64)
    device = layout.pack(host)
    assert device.dtype == layout.value_type
    np.testing.assert_array_equal(device, np.where(source >= 0, host.reshape(-1)[np.maximum(source, 0)], 0))
    np.testing.assert_array_equal(layout.unpack(device), host)


def test_overlapping_digits() -> None:
    """Digits that do not cut a dim into parts go by an index for each element."""
    layout = Layout((4, 5), (Digit(0, 1, 3), Digit(0, 1, 4), Digit(1, 1, 64)), "f32")
    host = np.arange(20, dtype=np.float32).reshape(4, 5)
    device = layout.pack(host).reshape(3, 4, 64)
    np.testing.assert_array_equal(device[0, :, :5], host)
    np.testing.assert_array_equal(device[1, :3, :5], host[1:])


def test_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="expects shape"):
        Layout.rows(3, 5).pack(np.zeros((5, 3), np.float32))


@pytest.mark.parametrize("size", [(), (1,), (1, 1)])
def test_a_scalar_lies_in_the_first_lane(size: tuple[int, ...]) -> None:
    """Digits that no dimension has leave one place."""
    layout = Layout(size, (Digit(None, 1, 1), Digit(None, 1, 1), Digit(None, 1, 64)), "f32")
    device = layout.pack(np.full(size, 5, np.float32))
    assert device.ravel().tolist() == [5.0] + [0.0] * 63
    assert layout.unpack(device).tolist() == np.full(size, 5).tolist()


@pytest.mark.parametrize("piece", [1, 64, 200, 5000])
@pytest.mark.parametrize("outer", [(1, 0), (0, 1)])
def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch, piece: int, outer: tuple[int, int]) -> None:
    layout = Layout.ordered((37, 130), outer, 1)
    host = np.arange(37 * 130, dtype=np.float32).reshape(130, 37).T
    whole = layout.pack(host)
    monkeypatch.setattr("ktir.layout._PIECE", piece)
    np.testing.assert_array_equal(layout.pack(host), whole)
    source = host_index(layout.size, layout.digits).reshape(-1)
    np.testing.assert_array_equal(whole.reshape(-1), np.where(source >= 0, host.reshape(-1)[source], 0))
