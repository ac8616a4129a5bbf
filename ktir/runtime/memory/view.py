"""Elements of a card's memory, and how they lie in sticks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.carriers import bits_of, waiting_type
from ktir.arithmetic.pairs import put_pairs, view_of_pairs
from ktir.diagnostics import KtirError
from ktir.layout import Digit, Layout
from ktir.package import ValueRange
from ktir.runtime.memory.transfer import OWN, from_device, to_device
from ktir.target import BYTES, STICK_BYTES, TWOS, is_two

BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8", **{f.dtype: "uint16" for f in TWOS.values()}}
"""Element types that NumPy lacks -> those that carry their bits."""
_KEPT = {
    "f16": ("float16",),
    "bf16": ("bfloat16",),
    "dl16": (),
    "f32": ("float32", "float16", "bfloat16"),
    "i32": ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    "f8E4M3FN": ("float8_e4m3fn",),
    "f8E5M2": ("float8_e5m2",),
    "i8": ("int8", "uint8"),
    **{f.name: (f.dtype,) for f in TWOS.values()},
}
"""Type of a layout -> types whose bytes come back from it as they were; those of bool need not."""
_WRITTEN: dict[str, tuple[str, ...]] = {
    "f16": ("float16",),
    "bf16": ("bfloat16",),
    "dl16": (),
    "f32": ("float32",),
    "i32": ("int64", "int32", "bool"),
    **dict.fromkeys((*BYTES, *TWOS), ()),
}
"""Type of a layout -> types of which whatever a program writes there is an element, or made one by `Arrangement.settle`."""
_NUMBERS = {dtype: Struct(f"<{code}") for dtype, code in zip("int64 int32 int16 int8 bool".split(), "qihb?", strict=True)}
"""What reads one integer, in less time than NumPy takes to begin: a host gives some with each launch."""
_I32 = _NUMBERS["int32"]
_LEAST, _MOST = -(2**31), 2**31 - 1

Owned = NDArray[np.bool_] | None
"""Which elements of a view are those of a tensor; None for all."""


class View(NamedTuple):
    """Elements of an allocation: their type by PyTorch's name; offset, sizes and strides in elements of that type. Pairs of bytes begin
    anywhere: of them the offset is in bytes."""

    dtype: str
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The type that carries the elements in NumPy."""
        return np.dtype(BITS.get(self.dtype, self.dtype))

    def of(self, linear: NDArray[np.uint8]) -> NDArray[Any]:
        """The elements in an allocation's linear bytes; of pairs of bytes a copy. Raises KtirError where these end before them."""
        try:
            if self.is_pairs:
                return view_of_pairs(linear, self.offset, self.size, self.strides)
            if not linear.size and 0 not in self.size:
                raise ValueError  # of a buffer without bytes NumPy does not ask where it ends
            kind, offset, strides = _in_bytes(self)
            return np.ndarray(self.size, kind, linear, offset, strides)
        except (TypeError, ValueError) as error:
            got = f"{self.dtype} {list(self.size)} with strides {list(self.strides)} from {self.offset} on"
            raise KtirError(f"expects a view of the {linear.size} bytes of an allocation, but got {got}") from error

    @property
    def is_pairs(self) -> bool:
        """Whether an element is two of one byte, see `ktir.arithmetic.pairs`."""
        return self.dtype.endswith("_x2")

    def is_all_of(self, nbytes: int) -> bool:
        """Whether these are all elements of so many bytes, each one once."""
        dims = sorted((s, n) for n, s in zip(self.size, self.strides, strict=True) if n != 1)
        dense = all(s == prod(n for _, n in dims[:k]) for k, (s, _) in enumerate(dims))
        return dense and self.offset == 0 and prod(self.size) * self.numpy.itemsize == nbytes


@lru_cache(maxsize=1 << 12)
def _in_bytes(view: View) -> tuple[np.dtype[Any], int, tuple[int, ...]]:
    """The type in NumPy; offset and strides in bytes."""
    kind = view.numpy
    return kind, view.offset * kind.itemsize, tuple(s * kind.itemsize for s in view.strides)


put_number: Callable[[memoryview, int, int], None] = _I32.pack_into
"""Let the memory of a carrier have, from its first byte on, an integer by itself."""


class Arrangement:
    """A view of an allocation in a layout, which is what a form is of. By `arrangement`, the same object for the same view and layout.

    bits: see ValueRange. low_bits: of integers that the layout has no room for it has these alone, for programs that need no more.
    """

    def __init__(self, view: View, layout: Layout, bits: int | None, *, low_bits: bool = False) -> None:
        self.view = view
        self.layout = layout
        self.size = layout.sticks * STICK_BYTES
        """Bytes that it takes on a card."""
        self.exact = view.dtype in _KEPT[layout.dtype] and not low_bits
        """Whether all bytes come back as they were."""
        self.adopts = view.dtype in _WRITTEN[layout.dtype]
        """Whether what a program writes may stay as it is."""
        self._bits = bits
        self._keeps: dict[int, bool] = {}
        self._as = _i32(bits) if layout.dtype == "i32" else None
        self._number = _NUMBERS.get(view.dtype) if layout.dtype == "i32" and layout.is_number else None
        self.is_number = self._number is not None
        """Whether it is an integer by itself."""
        self._at = view.offset * view.numpy.itemsize

    @cached_property
    def of_low_bits(self) -> Arrangement:
        """The same with the low bits of integers that the layout has no room for."""
        return Arrangement(self.view, self.layout, self._bits, low_bits=True)

    def keeps(self, nbytes: int) -> bool:
        """Whether all of so many bytes come back from it as they were."""
        known = self._keeps.get(nbytes)
        if known is None:
            known = self._keeps[nbytes] = self.exact and self.view.is_all_of(nbytes)
        return known

    def number(self, memory: tuple[Any, int], nbytes: int, allowed: ValueRange | None) -> int | None:
        """An integer by itself, in a buffer that holds so many linear bytes from a place on; None for all else, and where it is not in the
        range (see `pack`).
        """
        if self._number is None or self._at + self._number.size > nbytes:
            return None
        buffer, first = memory
        (value,) = self._number.unpack_from(buffer, first + self._at)
        low, high = self.numbers(allowed)
        return value if low <= value <= high else None

    def numbers(self, allowed: ValueRange | None) -> tuple[int, int]:
        """The range in which an integer by itself is taken (see `pack`)."""
        allowed = allowed or self._as
        return (_LEAST, _MOST) if allowed is None else (max(_LEAST, allowed.low), min(_MOST, allowed.high))

    def number_at(self, at: int) -> tuple[Callable[[Any, int], tuple[int]], int]:
        """What takes an integer by itself from a buffer that holds linear bytes from a place on, and from which byte."""
        assert self._number is not None
        return self._number.unpack_from, at + self._at

    def has(self, carrier: NDArray[np.float32], allowed: ValueRange) -> bool:
        """Whether the carrier of an integer by itself has one that is in the range; False for all else."""
        return self.is_number and allowed.low <= _I32.unpack_from(carrier.data)[0] <= allowed.high

    def pack(self, linear: NDArray[np.uint8], carrier: NDArray[Any], name: str, allowed: ValueRange | None) -> None:
        """Elements to a carrier whose padding is zero. Raises OutOfRange for those outside of a range, by default integers that the layout
        has no room for.
        """
        to_device(self._elements(linear), self.layout, name, self._values(carrier), allowed or self._as)

    def unpack(self, carrier: NDArray[Any], linear: NDArray[np.uint8], allowed: ValueRange | None = None, own: Owned = None) -> None:
        """A carrier's elements to where they belong. own: see `from_device`."""
        if self.view.is_pairs:
            bits = bits_of(self.layout.unpack(carrier))
            put_pairs(bits, linear, self.view.offset, self.view.size, self.view.strides)
            return
        from_device(self._values(carrier), self.layout, self._elements(linear), allowed, own)

    def settle(self, carrier: NDArray[np.float32]) -> None:
        """Make what a program has left in a carrier what `pack` would have put there: padding is zero, and what is true is one."""
        if self.view.dtype == "bool":
            values = carrier.view(np.int32)
            np.not_equal(values, 0, out=values, casting="unsafe")
        if self.padding is not None:
            carrier.reshape(-1)[self.padding] = 0

    @cached_property
    def settles(self) -> bool:
        """Whether `settle` has something to do."""
        return self.view.dtype == "bool" or self.padding is not None

    @cached_property
    def padding(self) -> NDArray[np.int64] | slice | None:
        """Which elements of a carrier hold none of the view."""
        elements = prod(self.layout.device_size)
        if elements == prod(self.layout.size):
            return None
        live = np.zeros((self.layout.entries, self.layout.lanes), self.layout.value_type)
        self.layout.pack(np.ones(self.layout.size, self.layout.value_type), live)
        places = np.flatnonzero(live == 0)
        first, last = places[0].item(), places[-1].item()
        return slice(first, last + 1) if last - first + 1 == places.size else places

    @cached_property
    def waits_as(self) -> np.dtype[Any]:
        """What a carrier that is only read has its elements as."""
        pairs = self.layout.is_byte or is_two(self.layout.dtype)
        return np.dtype(np.uint16) if pairs else waiting_type(self.view.dtype, self.layout.dtype)

    def _elements(self, linear: NDArray[np.uint8]) -> NDArray[Any]:
        found = self.view.of(linear)
        own = OWN.get(self.view.dtype)
        return found if own is None else found.view(own)

    def _values(self, carrier: NDArray[Any]) -> NDArray[Any]:
        return bits_of(carrier) if self.layout.dtype == "i32" else carrier


def arrangement(view: View, layout: Layout, bits: int | None = None) -> Arrangement:
    """What a view looks like in a layout: the same object for views that differ in the order of their dimensions alone, or in dimensions
    of one element. bits: of the program's integers, see ValueRange; it counts for unsigned ones alone.
    """
    plain = tuple(Digit(None, 0, 1) if d.extent == 1 else d for d in layout.digits)  # of one place: whichever dimension it is said to be of
    return _arrangement(view, Layout(layout.size, plain, layout.dtype), bits if view.dtype.startswith("u") else None)


@lru_cache(maxsize=1 << 14)
def _arrangement(view: View, layout: Layout, bits: int | None) -> Arrangement:
    order = sorted((d for d, n in enumerate(view.size) if n != 1), key=lambda d: -view.strides[d])
    if view.size == layout.size and order != list(range(len(order))):
        return _arrangement(*_in_order(view, layout, order), bits)
    return Arrangement(view, layout, bits)


def _in_order(view: View, layout: Layout, order: Sequence[int]) -> tuple[View, Layout]:
    """A view with some of its dimensions, those that are left out having one element, and its layout."""
    digits = [Digit(order.index(d.dim), d.divisor, d.extent) if d.dim in order else Digit(None, 0, d.extent) for d in layout.digits]
    size = tuple(layout.size[d] for d in order)
    return View(view.dtype, view.offset, size, tuple(view.strides[d] for d in order)), Layout(size, tuple(digits), layout.dtype)


def _i32(bits: int | None) -> ValueRange:
    return ValueRange(-(2**31), 2**31 - 1, bits)
