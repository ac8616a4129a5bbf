"""What a memory of the host holds, told by all of its bytes, and by a count of writes for those who say that this is enough."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray


def digest(array: NDArray[Any]) -> Hashable:
    """Equal for two arrays of equal shape, strides and type only if they hold the same: a hash of 128 bits over everything.

    Gaps between the elements count as content, unless they are more than the elements.
    """
    span = 1 + sum((n - 1) * s // array.itemsize for n, s in zip(array.shape, array.strides, strict=True)) if array.size else 0
    if min(array.strides, default=0) >= 0 and span <= 2 * array.size:
        flat = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))
    else:
        flat = np.ascontiguousarray(array)
    return xxhash.xxh3_128_digest(flat.data)


class Content:
    """What `array` holds now. `stamp`, where one is given, is equal to an earlier one only if nothing has been written in between."""

    def __init__(self, array: NDArray[Any], stamp: object | None = None) -> None:
        self.array = array
        self.stamp = stamp

    @cached_property
    def digest(self) -> Hashable:
        """Of all bytes; taken once."""
        return digest(self.array)
