"""Numbers of one byte, two of which lie in 16 bits: what lanes that hold such pairs bring to a product."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.floats import F32, decode
from ktir.target import BYTES

ELEMENTS: dict[str, str] = {f.pair: f.name for f in BYTES.values()}
"""What 16 bits are -> type of each half of them."""


@lru_cache
def _values(element: str) -> F32:
    """The number of each code."""
    codes = np.arange(256, dtype=np.uint8)
    return codes.view(np.int8).astype(np.float32) if element == "i8" else decode(element, codes)


def _both(bits: NDArray[np.uint32], pair: str) -> F32:
    """[.., 2]: the low byte first."""
    table = _values(ELEMENTS[pair])
    return np.stack([table[bits & 255], table[bits >> 8 & 255]], -1)


def along_k(a: F32, b: F32, pair: str) -> tuple[F32, F32]:
    """Lanes [.., M, K] and [.., K, N] that hold two numbers each, in their low 16 bits, as numbers [.., M, 2 K] and [.., 2 K, N]."""
    left, right = (_both(np.ascontiguousarray(x).view(np.uint32), pair) for x in (a, b))
    return left.reshape(*a.shape[:-1], -1), np.moveaxis(right, -1, -2).reshape(*b.shape[:-2], -1, b.shape[-1])
