"""Arrays of callers as the memory in which a program declares its tensors to lie. Strides are in elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError

Array = NDArray[Any]


def dense_strides(size: Sequence[int]) -> tuple[int, ...]:
    """Those of elements that lie one after the other, in elements."""
    return tuple(prod(size[d + 1 :]) for d in range(len(size)))


def lies_as(shape: Sequence[int], size: Sequence[int | None], strides: Sequence[int | None]) -> bool:
    """Whether an array of this shape, its elements one after the other, may lie as a view of as many dims says: in its dims as they stand,
    or in the order in which they lie in memory. None stands for what is not known.
    """

    def agree(dims: Sequence[int]) -> bool:
        expected = [(size[d], strides[d]) for d in dims]
        return all(
            n == 1 or s is None or s == own or (s == 0 and m == 1)
            for m, own, (n, s) in zip(shape, dense_strides(shape), expected, strict=True)
        )

    dims = range(len(size))
    return agree(dims) or agree(sorted(dims, key=lambda d: -(strides[d] or 0)))


def with_strides(array: Array, strides: Sequence[int], name: str) -> Array:
    """The array itself if it has these strides, counted in elements, else a copy that has them.

    Raises KtirError for strides with which elements share their place, as an expanded tensor has them: then only the array itself will do.
    """
    item = array.itemsize
    if all(n == 1 or s == t * item for n, s, t in zip(array.shape, array.strides, strides, strict=True)) or not array.size:
        return array
    reach = reach_of(array.shape, strides, tuple(s // item for s in array.strides), name)
    copy = np.lib.stride_tricks.as_strided(np.zeros(reach, array.dtype), array.shape, [s * item for s in strides])
    copy[...] = array
    return copy


def reach_of(size: Sequence[int], strides: Sequence[int], got: Sequence[int], name: str) -> int:
    """Elements from the first to the last one of a tensor of these strides, in place of which a tensor of other ones was got. Raises
    KtirError for strides with which elements share their place.
    """
    reach = 0
    for n, s in sorted(zip(size, strides, strict=True), key=lambda pair: pair[1]):
        if n > 1 and s <= reach:
            raise KtirError(f"argument '{name}' expects strides {tuple(strides)}, but got {tuple(got)}")
        reach += (n - 1) * s
    return reach + 1


def as_memory(array: Array) -> Array:
    """The memory of an array from its first element to its last one, gaps included; no copy."""
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize if array.size else 0
    return np.lib.stride_tricks.as_strided(array, (reach,), (array.itemsize,))
