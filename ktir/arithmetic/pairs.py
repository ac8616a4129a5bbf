"""Numbers of one byte, two of which lie in 16 bits: what lanes that hold such pairs bring to a product."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.floats import F32, decode, encode
from ktir.target import BYTES

ELEMENTS: dict[str, str] = {f.pair: f.name for f in BYTES.values()}
"""What 16 bits are -> type of each half of them."""
INTEGERS = frozenset(f.pair for f in BYTES.values() if f.letter == "i")
"""Those whose products are added in i32, modulo 2^32."""


@lru_cache
def _values(element: str) -> F32:
    """The number of each code."""
    codes = np.arange(256, dtype=np.uint8)
    return codes.view(np.int8).astype(np.float32) if element == "i8" else decode(element, codes)


def both(bits: NDArray[Any], element: str) -> tuple[F32, F32]:
    """The numbers in the low 16 bits of unsigned integers: that of the low byte first."""
    table = _values(element)
    return table[bits & 255], table[bits >> 8 & 255]


def bits(first: F32, second: F32, element: str) -> NDArray[np.uint16]:
    """The 16 bits of two numbers of a type."""
    low, high = (x.astype(np.int8).view(np.uint8) if element == "i8" else encode(element, x) for x in (first, second))
    return low | high.astype(np.uint16) << np.uint16(8)


def integer_sums(a: F32, b: F32, pair: str) -> NDArray[np.int32]:
    """The product of lanes [.., M, K] and [.., K, N] of pairs of integers, K at most 64; leading axes broadcast."""
    return np.matmul(*along_k(a, b, pair)).astype(np.int32)  # a sum of 128 products of 2^14 is exact in f32


def along_k(a: F32, b: F32, pair: str) -> tuple[F32, F32]:
    """Lanes [.., M, K] and [.., K, N] that hold two numbers each, in their low 16 bits, as numbers [.., M, 2 K] and [.., 2 K, N]."""
    codes = (np.ascontiguousarray(x).view(np.uint32) for x in (a, b))
    left, right = (np.stack(both(x, ELEMENTS[pair]), axis) for x, axis in zip(codes, (-1, -2), strict=True))
    return left.reshape(*a.shape[:-1], -1), right.reshape(*b.shape[:-2], -1, b.shape[-1])
