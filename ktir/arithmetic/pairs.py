"""Numbers of one byte, two of which are 16 bits: what lanes that hold such pairs bring to a product, and where in memory the two lie.

Memory is seen in blocks of 128 numbers, which are 64 pairs: pair j of a block has number j and number 64 + j. So the lanes of two sticks
of wider numbers, one behind the other, become those of one stick of pairs, and none moves to another place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.floats import F32, decode, encode
from ktir.target import BYTES, LANES

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


def bits(first: NDArray[Any], second: NDArray[Any], element: str) -> NDArray[np.uint16]:
    """The 16 bits of two numbers of a type."""
    low, high = (x.astype(np.int8).view(np.uint8) if element == "i8" else encode(element, x) for x in (first, second))
    return low | high.astype(np.uint16) << np.uint16(8)


def joined(raw: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """The pairs that bytes one after the other are; a rest of less than a block has none."""
    halves = raw[: raw.size // (2 * LANES) * 2 * LANES].reshape(-1, 2, LANES)
    return _both_bytes(halves[:, 0], halves[:, 1]).reshape(-1)


def parted(codes: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """The bytes of whole blocks of pairs, one after the other."""
    blocks = codes.reshape(-1, LANES)
    return np.stack([blocks & 255, blocks >> 8], 1).astype(np.uint8).reshape(-1)


def view_of_pairs(raw: NDArray[np.uint8], first: int, size: Sequence[int], strides: Sequence[int]) -> NDArray[np.uint16]:
    """The pairs of a view of bytes, as a copy. first: the byte at which its first block begins. Sizes and strides are in pairs: one dim has
    stride 1 and whole blocks, all others step by whole blocks. Raises ValueError for another view, and for one that leaves the bytes.
    """
    low, high = _halves(raw, first, size, strides)
    return _both_bytes(low, high).reshape(tuple(size))


def put_pairs(codes: NDArray[np.uint16], raw: NDArray[np.uint8], first: int, size: Sequence[int], strides: Sequence[int]) -> None:
    """Pairs to the bytes of a view, as `view_of_pairs` sees it. Raises as it does."""
    low, high = _halves(raw, first, size, strides)
    np.copyto(low, codes.reshape(low.shape) & 255, casting="unsafe")
    np.copyto(high, codes.reshape(low.shape) >> 8, casting="unsafe")


def _halves(raw: NDArray[np.uint8], first: int, size: Sequence[int], strides: Sequence[int]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    along = next((d for d, (n, s) in enumerate(zip(size, strides, strict=True)) if s == 1 and n > 1), None)
    others = [s for d, s in enumerate(strides) if d != along and size[d] > 1]
    if along is None or size[along] % LANES or any(s % LANES or s < 0 for s in others):
        raise ValueError(
            f"expects whole blocks of {LANES} pairs of bytes along one dim, but got {tuple(size)} with strides {tuple(strides)}"
        )
    last = first + 2 * sum((n - 1) * s for n, s in zip(size, strides, strict=True)) + 2
    if first < 0 or (prod(size) and last > raw.size):
        raise ValueError(f"expects pairs up to byte {last}, but got {raw.size} bytes")
    shape = (*size[:along], size[along] // LANES, LANES, *size[along + 1 :])
    steps = tuple(2 * s for s in strides)
    step = (*steps[:along], 2 * LANES, 1, *steps[along + 1 :])
    low, high = (np.lib.stride_tricks.as_strided(raw[first + half :], shape, step) for half in (0, LANES))
    return low, high


def _both_bytes(low: NDArray[np.uint8], high: NDArray[np.uint8]) -> NDArray[np.uint16]:
    found = high.astype(np.uint16)
    np.left_shift(found, np.uint16(8), out=found)
    return np.bitwise_or(found, low, out=found)


def integer_sums(a: F32, b: F32, pair: str) -> NDArray[np.int32]:
    """The product of lanes [.., M, K] and [.., K, N] of pairs of integers, K at most 64; leading axes broadcast."""
    return np.matmul(*along_k(a, b, pair)).astype(np.int32)  # a sum of 128 products of 2^14 is exact in f32


def along_k(a: F32, b: F32, pair: str) -> tuple[F32, F32]:
    """Lanes [.., M, K] and [.., K, N] that hold two numbers each, in their low 16 bits, as numbers [.., M, 2 K] and [.., 2 K, N]."""
    codes = (np.ascontiguousarray(x).view(np.uint32) for x in (a, b))
    left, right = (np.stack(both(x, ELEMENTS[pair]), axis) for x, axis in zip(codes, (-1, -2), strict=True))
    return left.reshape(*a.shape[:-1], -1), right.reshape(*b.shape[:-2], -1, b.shape[-1])
