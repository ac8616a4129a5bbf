"""Where buffers lie in the scratchpad of a tile."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake
from ktir.lang.base.scalars import element_of, width
from ktir.target import LANES, STICK_BYTES

_MOST_BYTES = 1 << 28


def bytes_of(dtype: Any) -> int:
    """Bytes of an element."""
    return max(width(element_of(dtype)) // 8, 1)


def laid_out(shape: tuple[int, ...], address: int | None) -> tuple[int, ...]:
    """The shape as a buffer lies: where the author gives no address its rows begin at sticks."""
    if address is not None or len(shape) < 2 or shape[-1] == 1:
        return shape
    return (*shape[:-1], -(-shape[-1] // LANES) * LANES)


def room(used: int, laid: tuple[int, ...], dtype: Any, address: int | None) -> tuple[int, int]:
    """How many bytes are used with a buffer more, and its address: behind the others if the author gives none."""
    item = bytes_of(dtype)
    if address is None:
        address = -(-used // STICK_BYTES) * STICK_BYTES
    elif address < 0 or address % item:
        raise Mistake(f"a buffer expects an address of whole elements of {item} bytes, but got {address}")
    return max(used, address + prod(laid) * item), address


class Scratchpad:
    """The scratchpad of a tile where values are known. What nothing has written is NaN, -1 or true."""

    def __init__(self) -> None:
        self.used = 0
        self._filled = 0
        self._bytes: np.ndarray | None = None

    def buffer(self, shape: tuple[int, ...], dtype: Any, address: int | None) -> np.ndarray:
        """An array on the bytes of a buffer, which others may have too."""
        laid, item = laid_out(shape, address), bytes_of(dtype)
        self.used, address = room(self.used, laid, dtype, address)
        if self.used > _MOST_BYTES:
            raise Mistake(f"buffers of {self.used} bytes are beyond any scratchpad")
        if self._bytes is None:
            self._bytes = np.frombuffer(mmap.mmap(-1, _MOST_BYTES), np.uint8)  # which takes memory where it is touched
        self._bytes[self._filled : self.used] = 0xFF
        self._filled = max(self._filled, self.used)
        part = self._bytes[address : address + prod(laid) * item]
        if np.dtype(dtype) == np.bool_:
            part[part == 0xFF] = 1
        found = part.view(dtype).reshape(laid)
        return found[..., : shape[-1]] if shape else found
