"""Tensors on a card as arguments of launches: read in the form that the program wants, adopted in the form that it writes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.numerics import f16_to_f32
from ktir.diagnostics import KtirError
from ktir.package import HostTensor
from ktir.runtime.host import TYPES, dense_strides, reach_of
from ktir.runtime.memory.allocation import Allocation, DeviceForm
from ktir.runtime.memory.forms import Form
from ktir.runtime.memory.view import Arrangement, View, arrangement
from ktir.runtime.slot import Slot


class Binding(NamedTuple):
    """What an argument is of a tensor. `adopts`: what the program writes there is all of the tensor, and may stay as it is."""

    place: Arrangement
    adopts: bool


class DeviceTensor(NamedTuple):
    """A tensor on a card."""

    allocation: Allocation
    view: View

    def array(self, *, write: bool = False) -> NDArray[Any]:
        """Its elements on the host, as `Allocation.linear` gives them."""
        return self.view.of(self.allocation.linear(write=write))

    def lying_as(self, wanted: HostTensor | None, name: str) -> DeviceTensor:
        """The tensor itself if it is as a program expects it, else, where only its strides are others, a copy. Raises KtirError."""
        dtype, _, size, strides = self.view
        if wanted is None:
            want = dense_strides(size)
        else:
            want = wanted.strides
            types = TYPES.get(wanted.element, ())
            if dtype not in types:
                raise KtirError(f"argument '{name}' expects element type {' or '.join(types) or wanted.element}, but got {dtype}")
            if size != wanted.size:
                raise KtirError(f"argument '{name}' expects shape {list(wanted.size)}, but got {list(size)}")
        if strides == want or all(n == 1 or s == t for n, s, t in zip(size, strides, want, strict=True)) or 0 in size:
            return self
        view = View(dtype, 0, size, want)
        copy = DeviceTensor(Allocation(self.allocation.card, reach_of(size, want, strides, name) * view.numpy.itemsize), view)
        copy.array(write=True)[...] = self.array()
        self.allocation.card.record("D2D", 2 * copy.allocation.nbytes)
        return copy

    def read(self, slot: Slot, taken: list[Form]) -> DeviceForm:
        """What the program only reads, in the form that it wants; nothing is to be given back. Raises OutOfRange."""
        place, allowed = self._binding(slot).place, slot.argument.range
        form = self.allocation.forms.get(place)
        if form is None:
            return self.allocation.form(place, slot.argument.name, allowed)
        if allowed is not None:
            slot.check(form)
        return form

    def open(self, slot: Slot) -> NDArray[np.float32]:
        """A carrier for what the program writes, apart from what is valid now: the launch may fail."""
        carrier = self.allocation.card.carrier(slot.entries)
        allowed = slot.argument.range
        if slot.argument.role == "output":
            carrier.fill(np.nan)
        elif allowed is not None and allowed.spare is not None:
            carrier.fill(0)
            self._binding(slot).place.pack(self.allocation.linear(), carrier, slot.argument.name, allowed)
        else:
            held = self.read(slot, []).carrier
            if held.dtype == np.float16:
                f16_to_f32(held, carrier)
            else:
                np.copyto(carrier, held)
        return carrier

    def address(self, slot: Slot, read: Collection[int | None]) -> int | None:
        """Where what the program writes will lie, apart from what it reads; None where it is put into the tensor afterwards."""
        place, adopts = self._binding(slot)
        return self.allocation.reserve(place, read) if adopts else None

    def close(self, slot: Slot, carrier: NDArray[np.float32]) -> None:
        """The program has written it."""
        place, adopts = self._binding(slot)
        if adopts:
            self.allocation.adopt(place, carrier)
        else:
            self.allocation.put(place, carrier, slot.argument.range)

    def finish(self, tensor: DeviceTensor) -> None:
        """Everything is written: bring what was written to a copy to `tensor`."""
        if tensor is not self:
            tensor.array(write=True)[...] = self.array()

    def _binding(self, slot: Slot) -> Binding:
        last, nbytes, found = slot.bound
        if last is self.view and nbytes == self.allocation.nbytes:
            return found
        dtype, offset, _, _ = self.view
        key = dtype, offset, self.allocation.nbytes
        found = slot.bindings.get(key)
        if found is None:
            host, allowed = slot.argument.host, slot.argument.range
            assert host is not None
            view = View(dtype, offset + host.offset, host.size, host.strides)
            place = arrangement(view, slot.layout, slot.bits)
            whole = place.adopts and view.is_all_of(self.allocation.nbytes) and (allowed is None or allowed.spare is None)
            if len(slot.bindings) >= _MOST_BINDINGS:
                slot.bindings.clear()
            found = slot.bindings[key] = Binding(place, whole)
        slot.bound = self.view, self.allocation.nbytes, found
        return found


_MOST_BINDINGS = 64
"""Of an argument: those of views at many places are not all kept."""
