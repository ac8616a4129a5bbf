"""Host arrays <-> device sticks, by the views and layouts of a launch spec."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ktir.diagnostics import KtirError
from ktir.layout import Layout
from ktir.numerics import f16_to_f32, f32_to_f16, round_f16

_HOST = {np.dtype(np.float16): "f16", np.dtype(np.float32): "f32"}


def as_array(tensor: Any, name: str) -> np.ndarray:
    """A NumPy array on the same memory; takes arrays and anything with torch's `detach().numpy()`.

    Raises KtirError for element types other than float16 and float32.
    """
    if not isinstance(tensor, np.ndarray):
        try:
            tensor = tensor.detach().numpy()
        except (AttributeError, TypeError) as e:
            raise KtirError(f"argument '{name}' expects a float16 or float32 tensor in host memory, but got {tensor!r:.80}") from e
    if tensor.dtype not in _HOST:
        raise KtirError(f"argument '{name}' expects element type float16 or float32, but got {tensor.dtype}")
    return tensor


def host_view(array: np.ndarray, offset: int, size: Sequence[int], strides: Sequence[int], name: str) -> np.ndarray:
    """A strided view of the memory behind `array`; offset and strides in elements, strides may be 0.

    Raises KtirError where the view would leave the elements that the array itself spans, and for arrays with negative strides.
    """
    item = array.itemsize
    if min(array.strides, default=0) < 0:
        raise KtirError(f"argument '{name}' expects strides that are not negative, but got {tuple(s // item for s in array.strides)}")
    spanned = 1 + sum((n - 1) * abs(s) // item for n, s in zip(array.shape, array.strides, strict=True)) if array.size else 0
    last = offset + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
    if prod(size) and (offset < 0 or last >= spanned or min(strides, default=0) < 0):
        raise KtirError(f"argument '{name}' expects at least {last + 1} elements, but got shape {tuple(array.shape)} that spans {spanned}")
    flat = np.lib.stride_tricks.as_strided(array, (spanned,), (item,))
    return np.lib.stride_tricks.as_strided(flat[offset:], tuple(size), [s * item for s in strides])


def to_device(view: np.ndarray, layout: Layout) -> np.ndarray:
    """Pack host values into device entries, float32 [entries, 64]; f16 layouts carry values of the f16 grid."""
    values = f16_to_f32(np.ascontiguousarray(view)) if view.dtype == np.float16 else np.ascontiguousarray(view)
    if layout.dtype == "f16" and view.dtype != np.float16:
        values = round_f16(values)
    return layout.pack(values.reshape(layout.size))


def from_device(device: np.ndarray, layout: Layout, view: np.ndarray) -> None:
    """Unpack device entries into a host view, in place."""
    values = layout.unpack(device).reshape(view.shape)
    view[...] = f32_to_f16(np.ascontiguousarray(values)) if view.dtype == np.float16 else values
