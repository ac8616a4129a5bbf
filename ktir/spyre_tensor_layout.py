"""The published SpyreTensorLayout: how a host tensor lies on the device, for users.

A layout has a device shape (`device_size`, always row-major) and per device dimension the host elements that one step advances
(`stride_map`; -1 = a synthetic dimension, or one of size 1). The stick is the last device dimension. See torch-spyre's user guide,
"Tensors and layouts".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import prod
from typing import Any, overload

import numpy as np

from ktir.layout import Digit, host_index
from ktir.target import STICK_BYTES


class DataFormats(enum.Enum):
    """Formats of elements on the device; the value is the number of bits."""

    SEN169_FP16 = (16, 0)
    IEEE_FP32 = (32, 1)
    SEN143_FP8 = (8, 2)
    SEN152_FP8 = (8, 3)
    IEEE_INT32 = (32, 4)
    SENUINT32 = (32, 5)
    SENINT16 = (16, 6)
    SENINT8 = (8, 7)
    SENINT4 = (4, 8)

    @property
    def elems_per_stick(self) -> int:
        """Elements in 128 bytes."""
        return STICK_BYTES * 8 // self.value[0]

    def __str__(self) -> str:
        return f"DataFormats.{self.name}"


_OF_DTYPE = {
    "float16": DataFormats.SEN169_FP16,
    "bfloat16": DataFormats.SEN169_FP16,
    "bool": DataFormats.SEN169_FP16,
    "float32": DataFormats.IEEE_FP32,
    "float8_e4m3fn": DataFormats.SEN143_FP8,
    "float8_e5m2fnuz": DataFormats.SEN152_FP8,
    "int64": DataFormats.IEEE_INT32,
    "int32": DataFormats.IEEE_INT32,
    "int16": DataFormats.SENINT16,
    "int8": DataFormats.SENINT8,
    "uint8": DataFormats.SENUINT32,
}
"""Host dtype -> device format, as the device's transfers map them."""

ARRANGEMENTS = ("STANDARD", "DL16_TO_FP32", "FP32_TO_DL16", "QFP8CH", "QFP8WT", "EXX2")


def get_device_dtype(dtype: Any) -> DataFormats:
    """Device format of a host dtype: a torch or NumPy dtype or its name. Raises ValueError for one that the device does not have."""
    name = str(np.dtype(dtype)) if isinstance(dtype, (type, np.dtype)) else str(dtype).removeprefix("torch.")
    if name not in _OF_DTYPE:
        raise ValueError(f"dtype {name} has no format on the device; those that have are {', '.join(_OF_DTYPE)}")
    return _OF_DTYPE[name]


class SpyreTensorLayout:
    """A device layout: `device_size`, `stride_map`, `device_dtype`, `element_arrangement`.

    Made from a host shape (`dim_order` permutes its dimensions, the last one lies in the stick; a trailing -1 gives one value per stick),
    or from its own fields. Raises ValueError for fields that do not fit together.
    """

    device_size: list[int]
    stride_map: list[int]
    device_dtype: DataFormats
    element_arrangement: str

    @overload
    def __init__(self, size: Sequence[int], dtype: Any, /) -> None: ...
    @overload
    def __init__(self, size: Sequence[int], strides: Sequence[int], dtype: Any, dim_order: Sequence[int], /) -> None: ...
    @overload
    def __init__(
        self, device_size: Sequence[int], stride_map: Sequence[int], device_dtype: DataFormats, /, *, element_arrangement: str = "STANDARD"
    ) -> None: ...

    def __init__(self, *arguments: Any, element_arrangement: str = "STANDARD") -> None:
        if element_arrangement not in ARRANGEMENTS:
            raise ValueError(f"unknown element arrangement '{element_arrangement}'; there are {', '.join(ARRANGEMENTS)}")
        if len(arguments) == 3 and isinstance(arguments[2], DataFormats):
            device_size, stride_map, self.device_dtype = arguments
            self.device_size, self.stride_map = [*device_size], [*stride_map]
            self._check_raw()
        elif len(arguments) == 2:
            size, dtype = arguments
            self.device_dtype = get_device_dtype(dtype)
            self._from_host([*size], row_major(size), [*range(len(size))])
        elif len(arguments) == 4:
            size, strides, dtype, order = arguments
            self.device_dtype = get_device_dtype(dtype)
            self._from_host([*size], [*strides], [*order])
        else:
            raise ValueError(
                "SpyreTensorLayout expects (size, dtype), (size, strides, dtype, dim_order) or (device_size, stride_map, device_dtype)"
            )
        self.element_arrangement = element_arrangement

    def _check_raw(self) -> None:
        if len(self.device_size) != len(self.stride_map):
            raise ValueError(f"expects one stride per device dimension, but got {len(self.stride_map)} for {len(self.device_size)}")
        if len(self.device_size) < 2 or self.device_size[-1] != self.device_dtype.elems_per_stick:
            eps = self.device_dtype.elems_per_stick
            raise ValueError(
                f"expects a last device dimension of {eps} elements, a stick of {self.device_dtype}, but got {self.device_size}"
            )
        if any(n < 1 for n in self.device_size) or any(s < 1 and s != -1 for s in self.stride_map):
            raise ValueError(f"expects positive sizes, and strides that are positive or -1, but got {self.device_size}, {self.stride_map}")

    def _from_host(self, size: list[int], strides: list[int], order: list[int]) -> None:
        if len(size) != len(strides):
            raise ValueError(f"expects one stride per dimension, but got {len(strides)} for {len(size)}")
        dims = order[:-1] if order[-1:] == [-1] else order
        if sorted(dims) != list(range(len(size))):
            raise ValueError(f"dim_order {order} is no permutation of {len(size)} dimensions, optionally with a trailing -1")
        if any(n < 1 for n in size):
            raise ValueError(f"expects positive sizes, but got {size}")
        eps = self.device_dtype.elems_per_stick
        if not order:
            self.device_size, self.stride_map = [1, eps], [-1, -1]
            return
        stick = order[-1]
        outer = [*order[1:], order[0]]
        extents = [1 if d == -1 else -(-size[d] // eps) if d == stick else size[d] for d in outer]
        self.device_size = [*extents, eps]
        self.stride_map = [-1] * len(self.device_size)
        reached: dict[int, int] = {}
        last = len(order) - 1
        back_to_front = [(stick, len(outer)), *((order[i], last if i == 0 else i - 1) for i in range(last, -1, -1))]
        for d, place in back_to_front:
            if d != -1 and size[d] != 1:
                self.stride_map[place] = reached.get(d, strides[d])
                reached[d] = min(self.stride_map[place] * self.device_size[place], strides[d] * size[d])

    # Identities

    @property
    def elems_per_stick(self) -> int:
        """Elements of a stick."""
        return self.device_dtype.elems_per_stick

    @property
    def device_strides(self) -> list[int]:
        """Elements between neighbours along each device dimension: row-major over `device_size`."""
        return row_major(self.device_size)

    @property
    def bytes(self) -> int:
        """Bytes of the device tensor, in whole sticks."""
        return STICK_BYTES * prod(self.device_size[:-1])

    def device_offset(self, position: Sequence[int]) -> int:
        """Device element at a device position."""
        return sum(i * s for i, s in zip(position, self.device_strides, strict=True))

    def host_offset(self, position: Sequence[int]) -> int:
        """Host element at a device position that holds one, in standard order."""
        return sum(i * s for i, s in zip(position, self.stride_map, strict=True) if s != -1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpyreTensorLayout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return (tuple(self.device_size), tuple(self.stride_map), self.device_dtype, self.element_arrangement)

    def __repr__(self) -> str:
        arrangement = (
            "" if self.element_arrangement == "STANDARD" else f", element_arrangement=ElementArrangement.{self.element_arrangement}"
        )
        shape = f"device_size={self.device_size}, stride_map ={self.stride_map}"
        return f"SpyreTensorLayout({shape}, device_dtype={self.device_dtype}{arrangement})"

    # Transfer

    def digits(self, size: Sequence[int], strides: Sequence[int] | None = None) -> tuple[Digit, ...]:
        """Each device dimension as a digit of a dimension of a host tensor of that size (row-major if no strides are given).

        Raises ValueError if a stride of the layout is no step along one dimension of the host tensor, or the arrangement is not one of
        whole elements.
        """
        strides = row_major(size) if strides is None else strides
        digits = [self._digit(i, size, strides) for i in range(len(self.device_size))]
        if self.element_arrangement == "STANDARD":
            return tuple(digits)
        if self.element_arrangement not in _GROUPS:
            raise ValueError(f"arrangement {self.element_arrangement} has no order of host elements")
        return tuple(self._arranged(digits, size))

    def _digit(self, place: int, size: Sequence[int], strides: Sequence[int]) -> Digit:
        extent, stride = self.device_size[place], self.stride_map[place]
        if stride == -1 or extent == 1:
            return Digit(None, 0, extent)
        steps = [d for d, (n, s) in enumerate(zip(size, strides, strict=True)) if n > 1 and s > 0 and stride % s == 0 and stride < s * n]
        if not steps:
            raise ValueError(
                f"stride {stride} of device dimension {place} is no step along a dimension of "
                f"host shape {list(size)}, strides {list(strides)}"
            )
        dim = max(steps, key=lambda d: strides[d])
        return Digit(dim, stride // strides[dim], extent)

    def _arranged(self, digits: list[Digit], size: Sequence[int]) -> list[Digit]:
        """The digits with the elements of the stick dimension in groups, as a conversion between 16 and 32 bits leaves them."""
        lanes = digits[-1]
        if lanes.dim is None or lanes.divisor != 1:
            raise ValueError(f"arrangement {self.element_arrangement} expects the elements of one dimension in the stick")
        dim, eps = lanes.dim, self.elems_per_stick
        place = next((i for i, d in enumerate(digits) if d.dim == dim and d.divisor == eps), None)
        outer, inner, whole = _GROUPS[self.element_arrangement]
        per_stick = prod(e for _, e in inner)
        if eps != per_stick or size[dim] % whole:
            raise ValueError(
                f"arrangement {self.element_arrangement} expects {per_stick} elements per stick and a multiple of {whole} of them, "
                f"but got {eps} and {size[dim]}"
            )
        if place is not None and outer:
            digits[place : place + 1] = [Digit(dim, whole, size[dim] // whole), *(Digit(dim, q, e) for q, e in outer)]
        return [*digits[:-1], *(Digit(dim, q, e) for q, e in inner)]

    def pack(self, host: np.ndarray, *, strides: Sequence[int] | None = None, fill: float = 0) -> np.ndarray:
        """A host array as the device holds it: an array of shape `device_size` with `fill` in the padding.

        `strides` are those in elements that the layout was made for, row-major by default. The element type stays the host's: formats are
        the transfer's business. Raises ValueError if the layout does not hold every element once.
        """
        at = self._host_index(host.shape, strides)
        flat = np.ascontiguousarray(host).reshape(-1)
        return np.where(at >= 0, flat[np.maximum(at, 0)], np.asarray(fill, host.dtype)).reshape(self.device_size)

    def unpack(self, device: np.ndarray, size: Sequence[int], *, strides: Sequence[int] | None = None) -> np.ndarray:
        """The host array of shape `size` that a device array of shape `device_size` holds; the reverse of `pack`."""
        if list(device.shape) != self.device_size:
            raise ValueError(f"expects a device array of shape {self.device_size}, but got {list(device.shape)}")
        at = self._host_index(tuple(size), strides).reshape(-1)
        host = np.empty(prod(size), device.dtype)
        live = at >= 0
        host[at[live]] = device.reshape(-1)[live]
        return host.reshape(tuple(size))

    def _host_index(self, size: tuple[int, ...], strides: Sequence[int] | None) -> np.ndarray:
        index = host_index(size, self.digits(size, strides))
        held = np.bincount(index[index >= 0], minlength=prod(size))
        if (held != 1).any():
            wrong = int((held != 1).sum())
            raise ValueError(
                f"{self} does not hold a host tensor of shape {list(size)}: {wrong} of {prod(size)} elements have not one place"
            )
        return index


_GROUPS = {
    "DL16_TO_FP32": ([(4, 2)], [(8, 8), (1, 4)], 64),
    "FP32_TO_DL16": ([], [(4, 8), (32, 2), (1, 4)], 64),
}
"""Digits (divisor, extent) of a stick dimension beside its outermost one: among the sticks, inside a stick; and the elements of a group."""


def row_major(size: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor."""
    return [prod(size[i + 1 :]) for i in range(len(size))]
