"""Host arrays on their way to the device: views, element types, extents."""

from __future__ import annotations

import numpy as np
import pytest

from ktir.diagnostics import KtirError
from ktir.layout import Layout
from ktir.runtime.transfer import as_array, from_device, host_view, to_device


def test_strided_views() -> None:
    a = np.arange(12, dtype=np.float16).reshape(3, 4)
    np.testing.assert_array_equal(host_view(a, 0, (4, 3), (1, 4), "a"), a.T)
    np.testing.assert_array_equal(host_view(a, 1, (2, 3), (0, 4), "a"), [a[:, 1], a[:, 1]])
    np.testing.assert_array_equal(host_view(a[:, ::2], 0, (3, 2), (4, 2), "a"), a[:, ::2])


@pytest.mark.parametrize(("offset", "size", "strides"), [(0, (4, 4), (4, 1)), (9, (4,), (1,)), (-1, (2,), (1,)), (0, (2,), (-1,))])
def test_a_view_never_leaves_its_array(offset: int, size: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with pytest.raises(KtirError, match="argument 'a' expects at least"):
        host_view(np.zeros((3, 4), np.float16), offset, size, strides, "a")


def test_element_types() -> None:
    with pytest.raises(KtirError, match="expects element type float16 or float32, but got float64"):
        as_array(np.zeros(3), "a")
    with pytest.raises(KtirError, match="expects a float16 or float32 tensor"):
        as_array([1.0, 2.0], "a")


def test_there_and_back_keeps_bits() -> None:
    a = np.random.default_rng(0).standard_normal((57, 100)).astype(np.float16)
    layout = Layout.rows(57, 100)
    out = np.zeros_like(a)
    from_device(to_device(a, layout), layout, out)
    assert out.tobytes() == a.tobytes()
