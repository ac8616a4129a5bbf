"""Memory of a tensor on a card: the forms that it has there, and which of them hold what was written last.

An allocation holds its data in one form or in several: as linear bytes, as the host has them, and as views of these in layouts, as programs
want them. Each write counts up the allocation's version, and leaves valid only the form that was written. Another form that is wanted then
is made from a valid one, which is a relayout. One valid form at least has all of the data.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError, OutOfRange
from ktir.layout import Layout
from ktir.package import ValueRange
from ktir.runtime.memory.card import FEW, Card
from ktir.runtime.memory.changes import changes
from ktir.runtime.memory.forms import Form, carrier
from ktir.runtime.memory.pool import rounded
from ktir.runtime.memory.view import Arrangement, Owned, put_number
from ktir.spyre_tensor_layout import SpyreTensorLayout
from ktir.target import LANES, STICK_BYTES

_MANY = 1 << 20
"""Elements from which on a carrier that is only read has them in as few bytes as hold them: less memory, for some time at each launch."""
_ENTRY = LANES * 4
"""Bytes of the smallest range of a tensor with elements: an entry of 32-bit elements, in which a number lies, whatever its type."""
_FIRST_HANDLE = 1 << 54
"""No address of any process: who takes a handle for one fails at once."""


_NOTHING = np.empty((0, LANES), np.float32)


class DeviceForm(Form):
    """A form in memory of a card, at an address of its own for good. Its state is the allocation's version."""

    __slots__ = ("address", "size")  # launches look at many objects that are in no cache of the host: they are small

    def __init__(self, layout: Layout, filled: NDArray[Any], address: int, size: int, version: int | None) -> None:
        self.layout, self.carrier, self.state, self.address, self.size = layout, filled, version, address, size
        self.stamp, self.users, self._largest, self._extremes, self._around = None, 0, None, None, None

    def renew(self, filled: NDArray[Any], version: int) -> NDArray[Any]:
        """It has another carrier from now on, as who calls notes; that before, which nobody has any more."""
        before, self.carrier, self.state = self.carrier, filled, version
        self._largest = self._extremes = self._around = None
        return before

    def end(self) -> NDArray[Any]:
        """It is not valid any more, which who knows it still sees; its carrier, which nobody has any more."""
        changes.note(self)
        return self.drop()

    def drop(self) -> NDArray[Any]:
        """As `end`, with its allocation: nobody has the handle of that any more, by which forms are found."""
        filled, self.state, self.carrier = self.carrier, None, _NOTHING
        return filled


class NumberForm(DeviceForm):
    """A form of an integer by itself, in the place of the linear bytes of its owner. It has its carrier for good: the host gives another
    integer at each launch. It is valid where it has been read.
    """

    __slots__ = ("_at", "_bits", "_memory", "_place", "_unpack", "owner")

    def __init__(self, owner: Allocation, place: Arrangement, address: int, size: int) -> None:
        super().__init__(place.layout, carrier(place.layout), address, size, None)
        self.owner, self._place, self._bits = weakref.ref(owner), place, self.carrier.data
        self._memory, at = owner.card.memory(address)
        self._unpack, self._at = place.number_at(at)

    def renew(self, filled: NDArray[Any], version: int) -> NDArray[Any]:
        """See `DeviceForm`."""
        if filled is not self.carrier:
            self.carrier[...] = filled
        super().renew(self.carrier, version)
        return filled

    def drop(self) -> NDArray[Any]:
        """See `DeviceForm`."""
        self.state = None
        return _NOTHING

    def again(self, low: int, high: int) -> bool:
        """Whether it has what the linear bytes hold, in whose place it is from now on, and that is in the range. Who calls holds the card,
        and records the relayout.
        """
        owner = self.owner()
        if owner is None or self.state is not None or owner.linear_at != self.address:
            return False
        (value,) = self._unpack(self._memory, self._at)
        if not low <= value <= high:
            return False
        put_number(self._bits, 0, value)
        self.state = owner.version
        self._largest = self._extremes = self._around = None
        owner.linear_at, owner._whole, owner._forms[self._place] = None, self._place, self
        return True


class _Ranges:
    """The ranges of a card that an allocation has, and what lies in them."""

    __slots__ = (
        "__weakref__",
        "_forms",
        "_reserved",
        "_room",
        "_whole",
        "card",
        "forms",
        "handle",
        "linear_at",
        "nbytes",
        "version",
        "wanted",
    )

    card: Card
    handle: int
    nbytes: int
    version: int
    _forms: dict[Arrangement, DeviceForm]
    linear_at: int | None
    _reserved: tuple[Arrangement, int, int] | None
    _room: int
    _whole: Arrangement | None

    def _place(self) -> NDArray[np.uint8]:
        assert self.linear_at is not None
        return self.card.bytes(self.linear_at, self.nbytes)

    def _unpacked(self) -> NDArray[np.uint8]:
        """The linear bytes of what is valid in another form; those asked for last are kept."""
        kept = self.card.unpacked
        if kept is None or kept[:2] != (self.handle, self.version):
            out = np.empty(self.nbytes, np.uint8)
            assert self._whole is not None
            self._whole.unpack(self._forms[self._whole].carrier, out)
            kept = self.card.unpacked = (self.handle, self.version, out)
        return kept[2]

    def _in_place_of_linear(self, size: int) -> tuple[int, int]:
        """A range for a form of so many bytes that makes the linear bytes superfluous: theirs, if that is as large."""
        room = self._room
        if self.linear_at is not None and (size == room or _fits(size, room)):
            address, self.linear_at = self.linear_at, None
            if room > FEW:
                self.card.vacate(address, room)
            return address, room
        address = self.card.take(size)
        self._drop_linear()
        return address, size

    def _in_place_of_form(self) -> int:
        """An address for the linear bytes: that of the form that has taken their place, if its range is theirs."""
        form = self._forms.get(self._whole) if self._whole is not None else None
        if self._whole is None or form is None or form.size != self._room:
            return self.card.take(self._room)
        self.card.put_back(self._forms.pop(self._whole).end())
        return form.address

    def _new_form(self, wanted: Arrangement, filled: NDArray[Any], *, moved: bool) -> DeviceForm:
        """What is valid is in this carrier, too. moved: see `lay`."""
        if self.linear_at is not None and wanted.keeps(self.nbytes):
            address, size = self._in_place_of_linear(wanted.size)
            self._whole = wanted
        else:
            address, size = self.card.take(wanted.size), wanted.size
        form = self._forms[wanted] = DeviceForm(wanted.layout, filled, address, size, self.version)
        if not moved:
            self.card.record("Relayout", self._room + wanted.size)
        return form

    def _drop_linear(self) -> None:
        if self.linear_at is not None:
            address, self.linear_at = self.linear_at, None
            self.card.give(address, self._room)

    def _drop_reserved(self) -> None:
        if self._reserved is not None:
            (_, address, size), self._reserved = self._reserved, None
            self.card.give(address, size)

    def _drop_forms(self, but: Arrangement | None = None) -> None:
        forms, card = self._forms, self.card
        kept = forms.pop(but, None) if but is not None else None
        while forms:
            _, form = forms.popitem()
            card.give(form.address, form.size)
            card.put_back(form.end())
        if but is not None and kept is not None:
            forms[but] = kept

    def renew(self, form: DeviceForm) -> bool:
        """A program has written all of the allocation in place, in a form that was valid, as who calls notes. Whether there was no other
        form that somebody has asked for since; those are not valid any more.
        """
        self.version += 1
        form.renew(form.carrier, self.version)
        if len(self._forms) == 1:
            return True
        self._drop_forms(but=next(place for place, each in self._forms.items() if each is form))
        return False


class Allocation(_Ranges):
    """Memory on a card. `handle` stands for it in PyTorch: a number apart from all others by the bytes that it has, and no address."""

    __slots__ = ()

    _ending = staticmethod(sys.is_finalizing)  # see `Forms`

    def __init__(
        self, card: Card, nbytes: int, handle: int | None = None, form: Arrangement | None = None, filled: NDArray[np.float32] | None = None
    ) -> None:
        """handle: see `reserved`. form: in which it lies from the first, with this carrier, that a program is about to fill and to settle
        (see `Arrangement`); else it has linear bytes. Raises DeviceOutOfMemory where the card has no room.
        """
        self.card = card
        self.nbytes = nbytes
        self.version = 0
        """Writes so far."""
        self._forms: dict[Arrangement, DeviceForm] = {}
        self.forms: Mapping[Arrangement, DeviceForm] = self._forms
        """All but the linear bytes."""
        self._reserved: tuple[Arrangement, int, int] | None = None
        """Address and bytes of a form that a program is about to write."""
        self._whole: Arrangement | None = None
        """Which of them has taken the place of the linear bytes."""
        self.wanted: tuple[Arrangement, SpyreTensorLayout] | None = None
        """The form in which its user wants it to lie, and how that is published."""
        self._room = _room(nbytes)
        """Of the range in which the linear bytes lie, or a form that has taken their place."""
        self.linear_at: int | None = None
        """Address of the linear bytes; None where they are not valid."""
        self.handle = reserved(nbytes) if handle is None else handle
        if form is None or filled is None:
            self.linear_at = card.take(self._room)
        else:
            size = self._room if _fits(form.size, self._room) else form.size
            self.version, self._whole = 1, form
            self._forms[form] = DeviceForm(form.layout, filled, card.take(size), size, 1)
        _live[self.handle] = weakref.ref(self)
        card.asked(self.handle, nbytes)

    @property
    def is_linear(self) -> bool:
        """Whether the linear bytes are valid."""
        return self.linear_at is not None

    def write(self, data: NDArray[Any], offset: int = 0) -> None:
        """Copy bytes from the host to a place among the linear bytes."""
        source = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        with self.card.compute:
            self.linear(write=True, whole=source.size == self.nbytes)[offset : offset + source.size] = source
            self.card.record("H2D", source.size, wait=True)

    def read(self, offset: int = 0, nbytes: int | None = None) -> NDArray[np.uint8]:
        """A copy of linear bytes on the host."""
        with self.card.compute:
            found = self.linear()[offset : self.nbytes if nbytes is None else offset + nbytes].copy()
            self.card.record("D2H", found.size, wait=True)
        return found

    def linear(self, *, write: bool = False, whole: bool = False) -> NDArray[np.uint8]:
        """The linear bytes, good until something else is done with the card. write: whoever asks changes them, and from now on they are
        what is valid. whole: all of them, so that nothing need be valid before.
        """
        with self.card.compute:
            if not write:
                return self._unpacked() if self.linear_at is None else self._place()
            if self.linear_at is None:
                source = None if whole else self._unpacked()
                self.linear_at = self._in_place_of_form()
                if source is not None:
                    self._place()[...] = source
                    self.card.record("Relayout", 2 * self._room)
            self.version += 1
            if self._forms:
                self._drop_forms()
            return self._place()

    def clear(self) -> None:
        """All linear bytes are zero, and take no memory of the host where they are many."""
        with self.card.compute:
            self.linear(write=True, whole=True)
            if self.linear_at is not None:
                self.card.clear(self.linear_at, self.nbytes)

    @property
    def whole(self) -> Arrangement | None:
        """The form that has taken the place of the linear bytes; None where these are valid."""
        return None if self.is_linear else self._whole

    def lay(self, wanted: Arrangement, *, moved: bool = False) -> None:
        """Let all of it lie in one form. moved: the copy that brought it has arranged it too. Raises KtirError for a form that does not
        keep all of it as it is.
        """
        if not wanted.keeps(self.nbytes):
            raise KtirError("expects a layout of all elements of an allocation, which keeps them as they are")
        with self.card.compute:
            self.form(wanted, "device_layout", moved=moved)
            form = self._forms.pop(wanted)
            self._drop_linear()
            self._drop_forms()
            self._forms[wanted], self._whole = form, wanted

    def form(self, wanted: Arrangement, name: str = "", allowed: ValueRange | None = None, *, moved: bool = False) -> DeviceForm:
        """A form, made if it is not valid; its carrier is only to be read. Raises OutOfRange where some element is not in the range
        `allowed`. Where that is wider than the layout's integers, of those that are beyond these the form has the low bits: it is one of
        its own, and takes the place of nothing. name: of the argument, for messages. moved: see `lay`.
        """
        with self.card.compute:
            if (found := self._forms.get(wanted)) is not None:
                if allowed is not None:
                    found.check(allowed, name)
                return found
            low = wanted.of_low_bits if allowed is not None and allowed.is_wide and wanted.layout.dtype == "i32" else None
            if low is not None and (found := self._forms.get(low)) is not None:
                return found
            if self.linear_at is not None and wanted.is_number:
                value = wanted.number(self.card.memory(self.linear_at), self.nbytes, allowed)
                if value is not None:
                    filled = carrier(wanted.layout)
                    put_number(filled.data, 0, value)
                    return self._new_form(wanted, filled, moved=moved)
            layout = wanted.layout
            filled = carrier(layout, wanted.waits_as if layout.entries * layout.lanes >= _MANY and low is None else np.float32)
            try:
                wanted.pack(self.linear(), filled, name, None if low is not None else allowed)
            except OutOfRange:
                if low is None:
                    raise
                wanted = low
                wanted.pack(self.linear(), filled, name, allowed)
            return self._new_form(wanted, filled, moved=moved)

    def number(self, wanted: Arrangement, before: DeviceForm | None) -> NumberForm | None:
        """A form of an integer by itself in linear bytes in whose place that `stands_in`, as who calls knows, to be asked for the integer
        (`NumberForm.again`); None where these are not valid. before: what it gave for this allocation the last time.
        """
        if (address := self.linear_at) is None:
            return None
        if type(before) is NumberForm and before.owner() is self and before.state is None and before.address == address:
            return before
        return NumberForm(self, wanted, address, self._room)

    def adopt(self, written: Arrangement, filled: NDArray[np.float32], address: int | None = None) -> None:
        """A program has written all of the allocation through this carrier, which belongs to it from now on. address: as reserved."""
        with self.card.compute:
            if written.settles:
                written.settle(filled)
            if address is None:
                address = self.reserve(written)
            before = self._forms.get(written)
            if address == self.linear_at:
                self.version += 1
                address, size = self._in_place_of_linear(written.size)
                self._forms[written] = DeviceForm(written.layout, filled, address, size, self.version)
            elif before is not None and before.address == address:
                self.version += 1
                changes.note(before)
                self.card.put_back(before.renew(filled, self.version))
            else:
                self.version, self._reserved = self.version + 1, None
                self._drop_forms()
                self._forms[written] = DeviceForm(written.layout, filled, address, written.size, self.version)
            self._whole = written
            self._drop_linear()
            if len(self._forms) > 1:
                self._drop_forms(but=written)

    @property
    def has_one_form(self) -> bool:
        """Whether all of it lies in one form, and no address is kept for another."""
        return self.linear_at is None and len(self._forms) == 1 and self._reserved is None

    def copy(self, other: Allocation) -> None:
        """Hold what another allocation of as many bytes on the card holds, in the form in which it lies there, unless its user wants it in
        another one. Who calls holds the card, and records the copy.
        """
        place = other.whole if self.wanted is None else None
        form = None if place is None else other.forms.get(place)
        if place is None or form is None or not place.adopts or form.carrier.dtype != np.float32:
            self.linear(write=True, whole=True)[...] = other.linear()
            return
        filled = self.card.carrier(len(form.carrier))
        np.copyto(filled, form.carrier)
        self.adopt(place, filled)

    def take_over(self, other: Allocation) -> None:
        """Hold what another allocation of as many bytes on the card holds, as it lies there; that is empty from now on, and nobody will
        look at it again. Who calls holds the card.
        """
        for form in self._forms.values():
            changes.note(form)
        self.free()
        self.version += 1
        self.linear_at, other.linear_at = other.linear_at, None
        self._reserved, other._reserved = other._reserved, None
        self._whole = other._whole
        while other._forms:
            place, form = other._forms.popitem()
            changes.note(form)
            form.state = self.version
            self._forms[place] = form

    def reserve(self, wanted: Arrangement, read: Collection[int | None] = ()) -> int:
        """The address that a form will have that a program is about to write, which is none of those that it reads."""
        with self.card.compute:
            if self._reserved is not None:
                if self._reserved[0] is wanted and self._reserved[1] not in read:
                    return self._reserved[1]
                self._drop_reserved()
            before = self._forms.get(wanted)
            if before is not None and before.address not in read:
                return before.address
            if self.linear_at is not None and _fits(wanted.size, self._room):
                return self.linear_at
            self._reserved = wanted, self.card.take(wanted.size), wanted.size
            return self._reserved[1]

    def put(self, written: Arrangement, filled: NDArray[np.float32], allowed: ValueRange | None = None, own: Owned = None) -> None:
        """A program has written a part of the allocation, or what has to be converted, through this carrier. own: see `from_device`."""
        with self.card.compute:
            written.unpack(filled, self.linear(write=True), allowed, own)
            self.card.record("Relayout", 2 * written.size)
            self.card.put_back(filled)

    def free(self) -> None:
        """Give everything back, with nobody left who knows the forms; may be called at any time, more than once."""
        if self.linear_at is not None:
            self._drop_linear()
        while self._forms:
            _, form = self._forms.popitem()
            self.card.give(form.address, form.size)
            self.card.put_back(form.drop())
        if self._reserved is not None:
            self._drop_reserved()

    def __del__(self) -> None:
        if self._ending():
            return
        self.free()
        if _live.pop(self.handle, None) is not None:  # else the card had no room
            self.card.asked(self.handle, -self.nbytes)


def _fits(size: int, room: int) -> bool:
    """Whether a form of so many bytes takes a range like that of linear bytes."""
    return size == room or size < room == _ENTRY


def stands_in(form: Arrangement, nbytes: int) -> int:
    """The bytes that move where a form takes the place and the range of so many linear bytes; 0 where it does not."""
    room = _room(nbytes)
    return room + form.size if form.keeps(nbytes) and _fits(form.size, room) else 0


@lru_cache(maxsize=1 << 12)
def _room(nbytes: int) -> int:
    """What an allocation of so many bytes takes."""
    return max(rounded(nbytes), _ENTRY) if nbytes else 0


_live: dict[int, weakref.ref[Allocation]] = {}
_next_handle = _FIRST_HANDLE
_lock = Lock()


def held(handle: int) -> Allocation | None:
    """The allocation of a handle; None where it is gone."""
    found = _live.get(handle)
    return None if found is None else found()


def find(handle: int) -> Allocation:
    """The allocation of a handle, or of a place among its bytes, where a slice of a storage begins. Raises KtirError where it is gone."""
    found = held(handle) or held(max((h for h in list(_live) if h < handle), default=0))
    if found is None or handle > found.handle + found.nbytes:
        raise KtirError(f"expects the handle of an allocation, but got {handle:#x}")
    return found


def reserved(nbytes: int) -> int:
    """A handle for an allocation of so many bytes that is made later."""
    global _next_handle
    with _lock:
        handle, _next_handle = _next_handle, _next_handle + rounded(nbytes) + STICK_BYTES
    return handle
