"""Device layouts: how a host-shaped tensor lies in sticks.

A layout is a list of digits, outer to inner; each device dimension is one digit of one logical dimension. The published SpyreTensorLayout
fields (`device_size`, `stride_map`) follow from the digits and the logical size (torch-spyre: SpyreTensorLayout).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from ktir.target import LANES


@dataclass(frozen=True)
class Digit:
    """One device dimension: `(index[dim] // divisor) % extent`; `dim` None = synthetic (only coordinate 0 is live)."""

    dim: int | None
    divisor: int
    extent: int


@dataclass(frozen=True)
class Layout:
    """Logical `size`, digits from outer to inner, element type `f16` or `f32`.

    The last digit is the stick: 64 lanes for every type (f32 lies in two adjacent sticks).
    """

    size: tuple[int, ...]
    digits: tuple[Digit, ...]
    dtype: str = "f16"

    @staticmethod
    def rows(rows: int, columns: int, dtype: str = "f16") -> Layout:
        """The default stick layout of a (rows, columns) tensor: [ceil(columns/64), rows, 64], sticks along columns.

        A column tensor (`columns` = 1) holds one value per stick, in lane 0.
        """
        sticks = Digit(1, LANES, -(-columns // LANES))
        lanes = Digit(1, 1, LANES)
        return Layout((rows, columns), (sticks, Digit(0, 1, rows), lanes), dtype)

    @staticmethod
    def ordered(size: Sequence[int], outer: Sequence[int], stick: int, dtype: str = "f16") -> Layout:
        """Sticks along dimension `stick`; `outer` lists the dimensions from outer to inner, the stick dimension at the place of its sticks.

        The published default of n dimensions is outer = 1, 2, .., n-1, 0 with the last one in sticks.
        """
        digits = [Digit(d, LANES, -(-size[d] // LANES)) if d == stick else Digit(d, 1, size[d]) for d in outer]
        return Layout(tuple(size), (*digits, Digit(stick, 1, LANES)), dtype)

    @property
    def device_size(self) -> tuple[int, ...]:
        """Extents of the device tensor, padding included."""
        return tuple(d.extent for d in self.digits)

    @property
    def stride_map(self) -> tuple[int, ...]:
        """Per device dimension the host elements it advances (row-major over `size`); -1 = synthetic or a size-1 dimension."""
        strides = [prod(self.size[i + 1 :]) for i in range(len(self.size))]
        return tuple(-1 if d.dim is None or self.size[d.dim] == 1 else d.divisor * strides[d.dim] for d in self.digits)

    @property
    def entries(self) -> int:
        """Entries of 64 lanes that the device tensor has."""
        return prod(self.device_size[:-1])

    @property
    def element_bytes(self) -> int:
        """2 or 4."""
        return {"f16": 2, "f32": 4}[self.dtype]

    @property
    def sticks(self) -> int:
        """128-byte sticks of the device tensor."""
        return self.entries * self.element_bytes // 2

    def _is_rows(self) -> bool:
        return len(self.size) == 2 and self == Layout.rows(*self.size, self.dtype)

    def pack(self, host: np.ndarray) -> np.ndarray:
        """Host values of shape `size` -> device entries, float32 [entries, 64]; padding is zero."""
        if host.shape != self.size:
            raise ValueError(f"expects shape {self.size}, but got {host.shape}")
        if self._is_rows():
            sticks, rows, lanes = self.device_size
            device = np.zeros((sticks, rows, lanes), np.float32)
            whole = self.size[1] // lanes
            device[:whole] = host[:, : whole * lanes].reshape(rows, whole, lanes).transpose(1, 0, 2)
            if whole < sticks:
                device[whole, :, : self.size[1] - whole * lanes] = host[:, whole * lanes :]
            return device.reshape(-1, lanes)
        source = _host_index(self)
        values = np.asarray(host, np.float32).reshape(-1)[np.maximum(source, 0)]
        return np.where(source >= 0, values, np.float32(0)).reshape(-1, LANES)

    def unpack(self, device: np.ndarray) -> np.ndarray:
        """Device entries, float32 [entries, 64] -> host values of shape `size`, float32."""
        if self._is_rows():
            sticks, rows, lanes = self.device_size
            host = device.reshape(sticks, rows, lanes).transpose(1, 0, 2).reshape(rows, sticks * lanes)
            return host[:, : self.size[1]]
        source = _host_index(self).reshape(-1)
        host = np.empty(prod(self.size), np.float32)
        live = source >= 0
        host[source[live]] = device.reshape(-1)[live]
        return host.reshape(self.size)


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
