"""Memory of a tensor on a card: the forms that it has there, and which of them hold what was written last.

An allocation holds its data in one form or in several: as linear bytes, as the host has them, and as views of these in layouts, as programs
want them. Each write counts up the allocation's version, and leaves valid only the form that was written. Another form that is wanted then
is made from a valid one, which is a relayout.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError
from ktir.layout import Layout
from ktir.runtime.memory.card import Card
from ktir.runtime.memory.pool import rounded
from ktir.runtime.memory.transfer import from_device, to_device
from ktir.target import STICK_BYTES

_FIRST_HANDLE = 1 << 54
"""No address of any process: who takes a handle for one fails at once."""
BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Element types that NumPy lacks -> those that carry their bits."""


class View(NamedTuple):
    """Elements of an allocation: their type by PyTorch's name; offset, sizes and strides in elements of that type."""

    dtype: str
    offset: int
    size: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The type that carries the elements in NumPy."""
        return np.dtype(BITS.get(self.dtype, self.dtype))

    def of(self, linear: NDArray[np.uint8]) -> NDArray[Any]:
        """The elements in an allocation's linear bytes."""
        item = self.numpy.itemsize
        strides = tuple(s * item for s in self.strides)
        return np.ndarray(self.size, self.numpy, linear, self.offset * item, strides)

    def is_all_of(self, nbytes: int) -> bool:
        """Whether these are all elements of so many bytes, each one once."""
        dims = sorted((s, n) for n, s in zip(self.size, self.strides, strict=True) if n != 1)
        dense = all(s == prod(n for _, n in dims[:k]) for k, (s, _) in enumerate(dims))
        return dense and self.offset == 0 and prod(self.size) * self.numpy.itemsize == nbytes


@dataclass(eq=False)
class DeviceForm:
    """A view of an allocation in a layout. Valid while `version` is the allocation's."""

    view: View
    layout: Layout
    carrier: NDArray[np.float32]
    address: int
    size: int
    version: int


class Allocation:
    """Memory on a card. `handle` stands for it in PyTorch: a number apart from all others by the bytes that it has, and no address."""

    def __init__(self, card: Card, nbytes: int) -> None:
        """Raises DeviceOutOfMemory where the card has no room."""
        self.card = card
        self.nbytes = nbytes
        self.version = 0
        """Writes so far."""
        self._size = rounded(nbytes)
        self._address: int | None = None  # of the linear bytes
        self._linear_version = 0
        self._forms: dict[tuple[View, Layout], DeviceForm] = {}
        self._address = card.take(self._size)
        self.handle = _new_handle(self)

    def write(self, data: NDArray[Any], offset: int = 0) -> None:
        """Copy bytes from the host to a place among the linear bytes."""
        source = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.linear(write=True, whole=source.size == self.nbytes)[offset : offset + source.size] = source

    def read(self, offset: int = 0, nbytes: int | None = None) -> NDArray[np.uint8]:
        """A copy of linear bytes on the host."""
        return self.linear()[offset : self.nbytes if nbytes is None else offset + nbytes].copy()

    def linear(self, *, write: bool = False, whole: bool = False) -> NDArray[np.uint8]:
        """The linear bytes, good until something else is done with the allocation. write: whoever asks changes them, and from now on they
        are what is valid. whole: all of them, so that nothing need be valid before.
        """
        if self._address is not None and self._linear_version == self.version:
            found = self.card.bytes(self._address, self.nbytes)
        else:
            found = np.empty(self.nbytes, np.uint8)
            if not (write and whole):
                form = next(f for f in self._forms.values() if f.version == self.version and f.view.is_all_of(self.nbytes))
                from_device(form.carrier.view(form.layout.value_type), form.layout, form.view.of(found))
            if write:
                found = self._take_linear(found)
        if write:
            self._written()
            self._linear_version = self.version
        return found

    def form(self, view: View, layout: Layout, name: str = "") -> DeviceForm:
        """The form of a view in a layout, made if it is not valid; its carrier is only to be read. name: of the argument, for messages."""
        found = self._forms.get((view, layout))
        if found is not None and found.version == self.version:
            return found
        carrier = to_device(view.of(self.linear()), layout, name).view(np.float32)
        return self._hold(view, layout, carrier)

    def adopt(self, view: View, layout: Layout, carrier: NDArray[np.float32]) -> None:
        """A program has written a view through this carrier, which belongs to the allocation from now on. Where the view is not all of the
        allocation, it goes through the linear bytes.
        """
        if view.is_all_of(self.nbytes):
            self._written()
            self._hold(view, layout, carrier)
        else:
            from_device(carrier.view(layout.value_type), layout, view.of(self.linear(write=True)))

    def free(self) -> None:
        """Give everything back; may be called at any time, more than once."""
        if self._address is not None:
            self.card.give(self._address, self._size)
            self._address = None
        self._drop_forms()

    def __del__(self) -> None:
        self.free()

    def _hold(self, view: View, layout: Layout, carrier: NDArray[np.float32]) -> DeviceForm:
        size = layout.sticks * STICK_BYTES
        form = self._forms[view, layout] = DeviceForm(view, layout, carrier, self.card.take(size), size, self.version)
        return form

    def _take_linear(self, content: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self._address is None:
            self._address = self.card.take(self._size)
        place = self.card.bytes(self._address, self.nbytes)
        place[...] = content
        return place

    def _written(self) -> None:
        self.version += 1
        self._drop_forms()

    def _drop_forms(self) -> None:
        while self._forms:
            _, form = self._forms.popitem()
            self.card.give(form.address, form.size)


class DeviceTensor(NamedTuple):
    """A tensor on a card, as launches take it."""

    allocation: Allocation
    view: View

    def array(self, *, write: bool = False) -> NDArray[Any]:
        """Its elements on the host, as `Allocation.linear` gives them."""
        return self.view.of(self.allocation.linear(write=write))


_live: WeakValueDictionary[int, Allocation] = WeakValueDictionary()
_next_handle = _FIRST_HANDLE
_lock = Lock()


def find(handle: int) -> Allocation:
    """The allocation of a handle. Raises KtirError where it is gone."""
    found = _live.get(handle)
    if found is None:
        raise KtirError(f"expects the handle of an allocation, but got {handle:#x}")
    return found


def _new_handle(allocation: Allocation) -> int:
    global _next_handle
    with _lock:
        handle, _next_handle = _next_handle, _next_handle + allocation._size + STICK_BYTES
    _live[handle] = allocation
    return handle
