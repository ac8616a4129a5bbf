"""Device layouts: how a host-shaped tensor lies in sticks.

A layout is a list of digits, outer to inner; each device dimension is one digit of one logical dimension. The published SpyreTensorLayout
fields (`device_size`, `stride_map`) follow from the digits and the logical size (torch-spyre: SpyreTensorLayout).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ktir.target import LANES, STICK_BYTES, element_bytes, is_byte, is_byte_float

Copy = Callable[[np.ndarray, np.ndarray], None]
"""Fills the first array from the second one, of the same shape."""


_FEW = 1 << 8
"""Elements that are packed one by one, as the numbers that a host gives with each launch are."""
_PIECE = 1 << 18
"""Elements that are packed together."""


def _cast(target: np.ndarray, values: np.ndarray) -> None:
    np.copyto(target, values, casting="unsafe")


@dataclass(frozen=True)
class Digit:
    """One device dimension: `(index[dim] // divisor) % extent`; `dim` None = synthetic (only coordinate 0 is live)."""

    dim: int | None
    divisor: int
    extent: int


@dataclass(frozen=True)
class Layout:
    """Logical `size`, digits from outer to inner, element type: a format of `ktir.target`.

    The last digit is the stick: in programs 64 lanes for every type (f32 and i32 lie in two adjacent sticks; of one byte, two rows of the
    digit before it share a stick, place l of which has lane l of both). Floats of one byte without such a digit lie one after the other.
    """

    size: tuple[int, ...]
    digits: tuple[Digit, ...]
    dtype: str = "f16"

    @staticmethod
    def rows(rows: int | Sequence[int], columns: int, dtype: str = "f16") -> Layout:
        """The default stick layout of a tensor of rows and columns: [ceil(columns/64), *rows, 64], sticks along columns.

        A column tensor (`columns` = 1) holds one value per stick, in lane 0.
        """
        size = (*([rows] if isinstance(rows, int) else rows), columns)
        last = len(size) - 1
        return Layout.ordered(size, (last, *range(last)), last, dtype)

    @staticmethod
    def linear(elements: int, dtype: str = "f16") -> Layout:
        """Elements one after the other, in whole sticks."""
        lane = Digit(0, LANES, -(-elements * element_bytes(dtype) // STICK_BYTES) * STICK_BYTES // (element_bytes(dtype) * LANES))
        return Layout((elements,), (lane, Digit(0, 1, LANES)), dtype) if element_bytes(dtype) == 1 else Layout.rows((), elements, dtype)

    @staticmethod
    def ordered(size: Sequence[int], outer: Sequence[int], stick: int, dtype: str = "f16") -> Layout:
        """Sticks along dimension `stick`; `outer` lists the dimensions from outer to inner, the stick dimension at the place of its sticks.

        The published default of n dimensions is outer = 1, 2, .., n-1, 0 with the last one in sticks.
        """
        digits = [Digit(d, LANES, -(-size[d] // LANES)) if d == stick else Digit(d, 1, size[d]) for d in outer]
        return Layout(tuple(size), (*digits, Digit(stick, 1, LANES)), dtype)

    @cached_property
    def device_size(self) -> tuple[int, ...]:
        """Extents of the device tensor, padding included."""
        return tuple(d.extent for d in self.digits)

    @property
    def stride_map(self) -> tuple[int, ...]:
        """Per device dimension the host elements it advances (row-major over `size`); -1 = synthetic or a size-1 dimension."""
        strides = [prod(self.size[i + 1 :]) for i in range(len(self.size))]
        return tuple(-1 if d.dim is None or self.size[d.dim] == 1 else d.divisor * strides[d.dim] for d in self.digits)

    @cached_property
    def lanes(self) -> int:
        """Elements of an entry: 64 in programs."""
        return self.digits[-1].extent

    @cached_property
    def entries(self) -> int:
        """Entries that the device tensor has: pairs of rows, of elements of one byte."""
        return prod(self.device_size[:-1]) // (2 if self.is_byte else 1)

    @cached_property
    def is_byte(self) -> bool:
        """Whether two rows share a stick."""
        return is_byte(self.dtype) and not self.is_one

    @cached_property
    def is_one(self) -> bool:
        """Whether floats of one byte lie one after the other: a program moves them by elements, and they become f16 on the way."""
        return is_byte_float(self.dtype) and len(self.digits) == 2

    @property
    def element_bytes(self) -> int:
        """1, 2 or 4."""
        return element_bytes(self.dtype)

    @cached_property
    def sticks(self) -> int:
        """128-byte sticks of the device tensor."""
        return prod(self.device_size) * self.element_bytes // STICK_BYTES

    @property
    def value_type(self) -> Any:
        """NumPy type in which `pack` gives values: float32 for f16 too."""
        return np.int32 if self.dtype == "i32" else np.float32

    def pack(self, host: np.ndarray, out: np.ndarray | None = None, copy: Copy = _cast) -> np.ndarray:
        """Host values of shape `size` -> device entries of `value_type` [entries, 64]; padding is zero. Elements of one byte are given as
        their bits, and an entry holds those of two rows.

        host: any strides. out: where the entries go, of any type; of it padding is left as it is. copy: how a piece of the host's values
        becomes one of the device's.
        """
        if host.shape != self.size:
            raise ValueError(f"expects shape {self.size}, but got {host.shape}")
        if self.is_byte:
            return self._pack_pairs(host, out)
        device = np.zeros((self.entries, self.lanes), self.value_type) if out is None else out
        if copy is _cast and (places := self._places_of_few) is not None:
            device.reshape(-1)[places] = host.reshape(-1)
            return device
        cut = _cut(self)
        if cut is None:
            source = _host_index(self)
            values = np.empty(self.size, device.dtype)
            copy(values, host)
            live = source >= 0
            device.reshape(source.shape)[live] = values.reshape(-1)[source[live]]
            return device
        if cut.padded != self.size:
            padded = np.zeros(cut.padded, host.dtype)
            padded[tuple(map(slice, self.size))] = host
            host = padded
        target, values = device.reshape(self.device_size)[(*cut.live, ...)], host.reshape(cut.split).transpose(cut.order)
        for part in _pieces(target.shape):
            copy(target[(*part, ...)], values[(*part, ...)])
        return device

    def pack_bytes(self, host: np.ndarray) -> np.ndarray:
        """Elements of one byte of the host, as uint8 -> rows of 64, row after row; padding is zero."""
        return self._of_raw.pack(host.view(np.uint8), np.zeros((2 * self.entries, self.lanes), np.uint8))

    @cached_property
    def _of_raw(self) -> Layout:
        """The same digits on elements that stay as they are."""
        return Layout(self.size, self.digits)

    def _pack_pairs(self, host: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        device = np.zeros((self.entries, self.lanes), np.float32) if out is None else out
        rows, bits = self.pack_bytes(host).reshape(self.entries, 2, self.lanes), _bits_of(device)
        np.left_shift(rows[:, 1], bits.dtype.type(8), out=bits, dtype=bits.dtype)
        np.bitwise_or(bits, rows[:, 0], out=bits)
        return device

    @cached_property
    def _places_of_few(self) -> np.ndarray | None:
        """Where each of a few elements lies in the device tensor. None of more, or where one lies at several places."""
        return _few(self)

    @cached_property
    def is_number(self) -> bool:
        """Whether it has one element, which is the first of the device tensor."""
        places = self._places_of_few
        return places is not None and places.tolist() == [0]

    def unpack(self, device: np.ndarray) -> np.ndarray:
        """Device entries [entries, 64] -> host values of shape `size`; elements of one byte as uint8."""
        if self.is_byte:
            bits = _bits_of(device)
            return self._of_raw.unpack(np.stack([bits & 255, bits >> 8], 1).astype(np.uint8))
        cut = _cut(self)
        if cut is not None:
            digits = device.reshape(self.device_size)[cut.live].transpose(np.argsort(cut.order))
            return digits.reshape(cut.padded)[tuple(map(slice, self.size))]
        source = _host_index(self).reshape(-1)
        host = np.empty(prod(self.size), device.dtype)
        live = source >= 0
        host[source[live]] = device.reshape(-1)[live]
        return host.reshape(self.size)


def _bits_of(device: np.ndarray) -> np.ndarray:
    """Entries of pairs as integers: of 32 bits, or the 16 that they have."""
    return device if device.dtype == np.uint16 else device.view(np.int32)


def _pieces(shape: tuple[int, ...]) -> Iterator[tuple[int | slice, ...]]:
    """Indices along the first axes that cut an array into pieces that stay in cache however far apart their elements lie in the source."""
    axis, size = 0, prod(shape[1:])
    while size > _PIECE and axis < len(shape) - 1:
        axis += 1
        size //= shape[axis]
    step = max(1, _PIECE // size)
    for lead in np.ndindex(*shape[:axis]):
        for first in range(0, shape[axis] if shape else 1, step):
            yield (*lead, slice(first, first + step)) if shape else ()


class _Cut(NamedTuple):
    """A host tensor of extents `padded` in digits `split`; in the order `order` they are the device tensor at `live`."""

    padded: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    live: tuple[int | slice, ...]


@lru_cache(maxsize=256)
def _cut(layout: Layout) -> _Cut | None:
    """How the digits cut the dimensions, or None where they do not cut each one into all of its digits."""
    padded: list[int] = []
    places: list[int] = []
    for dim, extent in enumerate(layout.size):
        mine = sorted((i for i, d in enumerate(layout.digits) if d.dim == dim), key=lambda i: (layout.digits[i].divisor, -i))
        whole = 1
        for i in mine:
            if layout.digits[i].divisor != whole:
                return None
            whole *= layout.digits[i].extent
        if whole < extent:
            return None
        padded.append(whole)
        places += reversed(mine)
    order = tuple(places.index(i) for i in sorted(places))
    live = tuple(0 if d.dim is None else slice(None) for d in layout.digits)
    return _Cut(tuple(padded), tuple(layout.digits[i].extent for i in places), order, live)


@lru_cache(maxsize=256)
def _few(layout: Layout) -> np.ndarray | None:
    """The same for equal layouts."""
    if prod(layout.size) > _FEW:
        return None
    source = host_index(layout.size, layout.digits).reshape(-1)
    live = np.flatnonzero(source >= 0)
    places = live[np.argsort(source[live])]
    return places if np.array_equal(source[places], np.arange(prod(layout.size))) else None


@lru_cache(maxsize=256)
def _host_index(layout: Layout) -> np.ndarray:
    return host_index(layout.size, layout.digits)


def host_index(size: Sequence[int], digits: Sequence[Digit]) -> np.ndarray:
    """Per device position, in the shape of the digits' extents, the row-major element of a host tensor of that size; -1 for padding."""
    shape = [d.extent for d in digits]
    coordinates = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    index = [np.zeros((1,) * len(shape), np.int64) for _ in size]
    live = np.ones(shape, bool)
    for digit, coordinate in zip(digits, coordinates, strict=True):
        if digit.dim is None:
            live &= coordinate == 0
        else:
            index[digit.dim] = index[digit.dim] + coordinate * digit.divisor
    linear = np.zeros((1,) * len(shape), np.int64)
    for i, n in zip(index, size, strict=True):
        live &= i < n
        linear = linear * n + i
    return np.where(live, linear, -1)


def pool_elements(shape: Sequence[int]) -> int:
    """Size of a linear pool of `shape`, in elements: row-major, whole sticks along the last dim."""
    return prod(shape[:-1]) * -(-(shape[-1] if shape else 1) // LANES) * LANES
