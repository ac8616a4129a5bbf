"""The published SpyreTensorLayout: how a host tensor lies on the device, for users.

A layout has a device shape (`device_size`, always row-major) and per device dimension the host elements that one step advances
(`stride_map`; -1 = a synthetic dimension, or one of size 1). The stick is the last device dimension. See torch-spyre's user guide,
"Tensors and layouts".
"""

from __future__ import annotations

import enum
import itertools
import operator
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple, overload

import numpy as np

from ktir.layout import Digit, host_index
from ktir.target import STICK_BYTES


class DataFormats(enum.Enum):
    """Formats of elements on the device, with their published numbers."""

    SEN169_FP16 = 0
    IEEE_FP32 = 1
    INVALID = 2
    SEN143_FP8 = 3
    SEN152_FP8 = 4
    SEN153_FP9 = 5
    SENINT2 = 6
    SENINT4 = 7
    SENINT8 = 8
    SENINT16 = 9
    SENINT24 = 10
    IEEE_INT64 = 11
    IEEE_INT32 = 12
    SENUINT32 = 13
    SENUINT2 = 14
    IEEE_FP16 = 15
    BOOL = 16
    BFLOAT16 = 17
    SEN18F_FP24 = 18

    def elems_per_stick(self) -> int:
        """Elements in 128 bytes. Raises ValueError for formats of which no public source says how they fill a stick."""
        if self not in _BITS:
            raise ValueError(f"{self} has no known number of elements per stick")
        return STICK_BYTES * 8 // _BITS[self]

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __str__(self) -> str:
        return f"DataFormats.{self.name}"


_BITS = {
    DataFormats.SEN169_FP16: 16,
    DataFormats.IEEE_FP32: 32,
    DataFormats.SEN143_FP8: 8,
    DataFormats.SEN152_FP8: 8,
    DataFormats.SENINT2: 2,
    DataFormats.SENINT4: 4,
    DataFormats.SENINT8: 8,
    DataFormats.SENINT16: 16,
    DataFormats.IEEE_INT64: 64,
    DataFormats.IEEE_INT32: 32,
    DataFormats.SENUINT32: 32,
    DataFormats.SENUINT2: 2,
    DataFormats.IEEE_FP16: 16,
    DataFormats.BFLOAT16: 16,
}

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


def get_elem_in_stick(dtype: Any) -> int:
    """Elements of a host dtype in 128 bytes of the device."""
    return get_device_dtype(dtype).elems_per_stick()


class Transfer(NamedTuple):
    """A loop nest that copies elements between host and device, outermost loop first: `device[d + sum(i * s)] = host[h + sum(i * t)]`."""

    ranges: tuple[int, ...]
    host_strides: tuple[int, ...]
    device_strides: tuple[int, ...]
    host_offset: int = 0
    device_offset: int = 0


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
    def __init__(self, host_size: Sequence[int], dtype: Any) -> None: ...
    @overload
    def __init__(self, host_size: Sequence[int], host_strides: Sequence[int], dtype: Any, dim_order: Sequence[int]) -> None: ...
    @overload
    def __init__(
        self, device_size: Sequence[int], stride_map: Sequence[int], device_dtype: DataFormats, element_arrangement: str = "STANDARD"
    ) -> None: ...

    def __init__(self, *arguments: Any, element_arrangement: str = "STANDARD", **named: Any) -> None:
        if len(arguments) == 4 and isinstance(arguments[2], DataFormats):
            arguments, element_arrangement = arguments[:3], arguments[3]
        if element_arrangement not in ARRANGEMENTS:
            raise ValueError(f"unknown element arrangement '{element_arrangement}'; there are {', '.join(ARRANGEMENTS)}")
        self.element_arrangement = element_arrangement
        names = _FIELDS.get(len(arguments) + len(named), ())
        if set(names[len(arguments) :]) != set(named) or not names:
            raise ValueError(f"SpyreTensorLayout expects {' or '.join(map(str, _FIELDS.values()))}".replace("'", ""))
        given = dict(zip(names, arguments, strict=False)) | named
        whole = {name: _integers(name, given[name]) for name in names if "dtype" not in name}
        if "device_size" in given:
            self.device_size, self.stride_map = whole["device_size"], whole["stride_map"]
            self.device_dtype = given["device_dtype"]
            self._check_raw()
            return
        self.device_dtype = get_device_dtype(given["dtype"])
        size = whole["host_size"]
        self._from_host(size, whole.get("host_strides", row_major(size)), whole.get("dim_order", [*range(len(size))]))

    def _check_raw(self) -> None:
        if not isinstance(self.device_dtype, DataFormats):
            raise ValueError(f"expects a device_dtype of DataFormats, but got {self.device_dtype!r}")
        if len(self.device_size) != len(self.stride_map):
            raise ValueError(f"expects one stride per device dimension, but got {len(self.stride_map)} for {len(self.device_size)}")
        if len(self.device_size) < 2 or self.device_size[-1] != self.device_dtype.elems_per_stick():
            eps = self.device_dtype.elems_per_stick()
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
        if any(n < 1 for n in size) or any(s < 1 for s, n in zip(strides, size, strict=True) if n > 1):
            raise ValueError(f"expects positive sizes and strides, but got {size}, {strides}")
        eps = self.device_dtype.elems_per_stick()
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

    def elems_per_stick(self) -> int:
        """Elements of a stick."""
        return self.device_dtype.elems_per_stick()

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
        dim, eps = lanes.dim, self.elems_per_stick()
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

    def transfers(self, size: Sequence[int], strides: Sequence[int] | None = None) -> list[Transfer]:
        """The DMA descriptors of a host tensor, which copy each element once: one for whole sticks, and one for each remainder.

        Loops are in decreasing order of device strides. Raises ValueError if the layout does not hold every element once.
        """
        strides = row_major(size) if strides is None else strides
        digits = self.digits(size, strides)
        self._host_index(tuple(size), strides)
        places = row_major([d.extent for d in digits])
        of_dims = []
        for dim, elements in enumerate(size):
            own = sorted((k for k, d in enumerate(digits) if d.dim == dim), key=lambda k: -digits[k].divisor)
            of_dims.append(list(_blocks([(k, digits[k].divisor) for k in own], elements)))
        return [self._transfer(digits, places, strides, block) for block in itertools.product(*of_dims)]

    def _transfer(self, digits: Sequence[Digit], places: Sequence[int], strides: Sequence[int], block: Sequence[_Block]) -> Transfer:
        """The loop nest over a block of each dimension."""
        first = {k: n for b in block for k, n in b.first.items()}
        ranges = {k: n for b in block for k, n in b.ranges.items()}
        loops = [k for k in range(len(digits)) if ranges.get(k, 1) > 1]
        step = [0 if d.dim is None else d.divisor * strides[d.dim] for d in digits]
        return Transfer(
            tuple(ranges[k] for k in loops),
            tuple(step[k] for k in loops),
            tuple(places[k] for k in loops),
            sum(n * step[k] for k, n in first.items()),
            sum(n * places[k] for k, n in first.items()),
        )

    def _host_index(self, size: tuple[int, ...], strides: Sequence[int] | None) -> np.ndarray:
        index = host_index(size, self.digits(size, strides))
        held = np.bincount(index[index >= 0], minlength=prod(size))
        if (held != 1).any():
            wrong = int((held != 1).sum())
            raise ValueError(
                f"{self} does not hold a host tensor of shape {list(size)}: {wrong} of {prod(size)} elements have not one place"
            )
        return index


_FIELDS = {
    2: ("host_size", "dtype"),
    4: ("host_size", "host_strides", "dtype", "dim_order"),
    3: ("device_size", "stride_map", "device_dtype"),
}
"""By their number, what a layout is made from."""


def _integers(name: str, given: Any) -> list[int]:
    try:
        return [*map(operator.index, given)]
    except TypeError:
        raise ValueError(f"expects a sequence of integers as {name}, but got {given!r}") from None


class _Block(NamedTuple):
    """Elements of a dimension that digits count: of each digit the first value, and how many."""

    first: dict[int, int]
    ranges: dict[int, int]


def _blocks(digits: Sequence[tuple[int, int]], elements: int) -> Iterator[_Block]:
    """The first elements of a dimension that digits (number, divisor; from outer to inner) count, as blocks of all combinations."""
    if not digits:
        yield _Block({}, {})
        return
    (digit, divisor), *inner = digits
    whole, rest = divmod(elements, divisor)
    if whole:
        for block in _blocks(inner, divisor):
            yield _Block(block.first, {digit: whole, **block.ranges})
    if rest:
        for block in _blocks(inner, rest):
            yield _Block({digit: whole, **block.first}, block.ranges)


_GROUPS = {
    "DL16_TO_FP32": ([(4, 2)], [(8, 8), (1, 4)], 64),
    "FP32_TO_DL16": ([], [(4, 8), (32, 2), (1, 4)], 64),
}
"""Digits (divisor, extent) of a stick dimension beside its outermost one: among the sticks, inside a stick; and the elements of a group."""


def row_major(size: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor."""
    return [prod(size[i + 1 :]) for i in range(len(size))]
