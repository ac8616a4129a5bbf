"""Tensors on a card as arguments of launches: read in the form that the program wants, adopted in the form that it writes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.carriers import put
from ktir.diagnostics import KtirError
from ktir.emulator.strides import dense_strides, reach_of
from ktir.package import HostTensor, LaunchArgument
from ktir.runtime.host import TYPES
from ktir.runtime.memory.allocation import Allocation, DeviceForm
from ktir.runtime.memory.forms import Form
from ktir.runtime.memory.slot import Slot
from ktir.runtime.memory.view import Arrangement, Owned, View, arrangement
from ktir.target import is_two


class Binding(NamedTuple):
    """What an argument is of tensors of a view. `entries`: of its carrier. `adopts`: what the program writes there is all of the tensor,
    and may stay as it is. `any`: the program takes whatever elements a form has. `own`: which elements of it are the tensor's.
    """

    argument: LaunchArgument
    entries: int
    place: Arrangement
    adopts: bool
    any: bool
    own: Owned

    @property
    def writes_all(self) -> bool:
        """Whether the program writes all of the tensor without a look at what was there before, and that may stay as it is."""
        return self.adopts and self.argument.role == "output"

    @property
    def rewrites(self) -> bool:
        """Whether the program changes all of the tensor, which is then as it wrote it."""
        allowed = self.argument.range
        return self.adopts and self.argument.role != "output" and (allowed is None or allowed.spare is None)

    def check(self, form: DeviceForm) -> None:
        """Raises OutOfRange where a form has an element that the program does not take."""
        if self.argument.range is not None:
            form.check(self.argument.range, self.argument.name)

    def read(self, allocation: Allocation) -> DeviceForm:
        """What the program only reads, in the form that it wants; nothing is to be given back. Raises OutOfRange."""
        form = allocation.forms.get(self.place)
        if form is None or not self.any:
            return allocation.form(self.place, self.argument.name, self.argument.range)
        return form

    def open(self, allocation: Allocation) -> NDArray[np.float32]:
        """A carrier for what the program writes, apart from what is valid now: the launch may fail."""
        argument, entries, place, _, takes_any, _ = self
        carrier, allowed = allocation.card.carrier(entries), argument.range
        if argument.role == "output":
            carrier.fill(np.nan)
        elif allowed is not None and allowed.spare is not None:
            carrier.fill(0)
            place.pack(allocation.linear(), carrier, argument.name, allowed)
        else:
            form = allocation.forms.get(place) if takes_any else None
            put(carrier, (form or self.read(allocation)).carrier)
        return carrier

    def address(self, allocation: Allocation, read: Collection[int | None]) -> int | None:
        """Where what the program writes will lie, apart from what it reads; None where it is put into the tensor afterwards."""
        return allocation.reserve(self.place, read) if self.adopts else None

    def close(self, allocation: Allocation, carrier: NDArray[np.float32], address: int | None = None) -> None:
        """The program has written it. address: that for it, if that is known."""
        if self.adopts:
            allocation.adopt(self.place, carrier, address)
        else:
            allocation.put(self.place, carrier, self.argument.range, self.own)


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
        """See `Binding`."""
        return self.binding(slot).read(self.allocation)

    def open(self, slot: Slot) -> NDArray[np.float32]:
        """See `Binding`."""
        return self.binding(slot).open(self.allocation)

    def close(self, slot: Slot, carrier: NDArray[np.float32]) -> None:
        """See `Binding`."""
        self.binding(slot).close(self.allocation, carrier)

    def finish(self, tensor: DeviceTensor) -> None:
        """Everything is written: bring what was written to a copy to `tensor`."""
        if tensor is not self:
            tensor.array(write=True)[...] = self.array()

    def binding(self, slot: Slot) -> Binding:
        """What an argument is of the tensor."""
        last, nbytes, found = slot.bound
        if last is self.view and nbytes == self.allocation.nbytes:
            return found
        dtype, offset, _, _ = self.view
        key = dtype, offset, self.allocation.nbytes
        found = slot.bindings.get(key)
        if found is None:
            host, allowed = slot.argument.host, slot.argument.range
            assert host is not None
            two = is_two(slot.layout.dtype)
            view = View(f"{dtype}_x2" if two else dtype, offset + host.offset * (2 if two else 1), host.size, host.strides)
            place = arrangement(view, slot.layout, slot.bits)
            own = None if slot.reads else slot.owned_in(place.view.offset - offset, place.view.size, place.view.strides)
            whole = own is None and place.adopts and view.is_all_of(self.allocation.nbytes) and (allowed is None or allowed.spare is None)
            takes_any = allowed is None or allowed.is_all_of(slot.layout.dtype)
            if len(slot.bindings) >= _MOST_BINDINGS:
                slot.bindings.clear()
            found = slot.bindings[key] = Binding(slot.argument, slot.entries, place, whole, takes_any, own)
        slot.bound = self.view, self.allocation.nbytes, found
        return found


_MOST_BINDINGS = 64
"""Of an argument: those of views at many places are not all kept."""
