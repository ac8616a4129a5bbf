"""Launches that repeat, on tensors of a card that lie as those of the first one: what does not differ between them is found once."""

from __future__ import annotations

import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import compress, count
from operator import attrgetter, is_not, itemgetter
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine import Machine
from ktir.runtime.device import Binding, DeviceTensor
from ktir.runtime.jobplan import Carrier, JobPlan
from ktir.runtime.memory.allocation import Allocation, DeviceForm, NumberForm, held, stands_in
from ktir.runtime.memory.card import Card
from ktir.runtime.memory.hardware import nothing
from ktir.runtime.memory.slot import Slot
from ktir.runtime.memory.view import Arrangement
from ktir.runtime.time.steps import Step, moving

_SMALL = 1 << 14
"""Elements of the largest carrier that is kept for the next launch alone."""
_state, _address, _carrier = attrgetter("state"), attrgetter("address"), attrgetter("carrier")


def taking(places: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes of a sequence what is at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0))


class Chip(Protocol):
    """An executable, as its prepared launches know it."""

    slots: list[Slot]
    machine: Machine
    step: Step
    lock: Lock

    def plan(self, card: Card) -> JobPlan:
        """The program on a card."""
        ...


class _Argument(NamedTuple):
    """An argument that a tensor gives: its number, that of the tensor, the bytes of its allocation, and what it is of that."""

    number: int
    of: int
    nbytes: int
    binding: Binding

    def allocation(self, handle: int, card: Card) -> Allocation | None:
        """That of a handle, if it is as this one."""
        found = held(handle)
        return None if found is None or found.card is not card or found.nbytes != self.nbytes else found


class _New(NamedTuple):
    """A tensor that is made for each launch, which writes all of it: its number, its bytes, elements and form, and whether the program
    itself writes all of the carrier.
    """

    of: int
    nbytes: int
    entries: int
    form: Arrangement
    whole: bool


class _Number(NamedTuple):
    """An integer by itself that is read: what it takes to have it as the program reads it, and the range in which that takes it."""

    move: Step
    low: int
    high: int


class _Place:
    """Where an argument lies that is no form: what no tensor gives, and what is written while the program runs."""

    __slots__ = ("address", "carrier")

    def __init__(self, carrier: Carrier, address: int) -> None:
        self.carrier, self.address = carrier, address


class Prepared:
    """A program for tensors of these views on one card, which it takes as they lie. Its executable keeps it."""

    def __init__(self, chip: Chip, card: Card, tensors: Sequence[DeviceTensor], made: Collection[int]) -> None:
        """made: numbers of tensors that are made for each launch, which nobody has seen before. Raises DeviceOutOfMemory where the program
        has no room.
        """
        self.chip = chip
        self.plan = plan = chip.plan(card)
        given = [(slot, _argument(i, slot, tensors)) for i, slot in enumerate(chip.slots) if slot.host >= 0]
        times = Counter(id(tensors[slot.host].allocation) for slot, _ in given)
        new = {k for k in made if times[id(tensors[k].allocation)] == 1}
        self.reads = [a for slot, a in given if slot.reads]
        self.new = [a for slot, a in given if not slot.reads and a.of in new and a.binding.writes_all]
        """What the program writes of tensors that nobody has seen before."""
        fills = chip.machine.fills
        self._made = [_New(a.of, a.nbytes, a.binding.entries, a.binding.place, fills(a.number)) for a in self.new]
        self.writes = [a for slot, a in given if not slot.reads and a not in self.new]
        """What it writes of others."""
        self._written = taking([a.of for a in self.writes])
        self._spare: list[Carrier] = [None] * len(self.writes)
        """For each of these, where it is small, a carrier for the next launch to write: the one that the tensor had before the last one."""
        self._settled = [a.binding.place if a.binding.place.settles else None for a in self.writes]
        limited = [(n, a.binding.place, a.binding.argument.range) for n, a in enumerate(self.writes) if not a.binding.any]
        self._checked = [(n, place, allowed) for n, place, allowed in limited if allowed]
        """Those of which the program does not take every element."""
        self._same: tuple[Sequence[int], frozenset[int], list[DeviceForm], list[weakref.ref[Allocation]]] | None = None
        """What the last launch has written of tensors that were there before, where that was in place of what they held: handles; where
        lies what was read; forms; whose these are.
        """
        places = [_Place(slot.iota, plan.own(i) if slot.host < 0 else -1) for i, slot in enumerate(chip.slots)]
        self._lie: list[_Place | DeviceForm] = [*places]
        """Where each argument lies: what is read in forms."""
        self._bound: object = None
        """What the program has been told by the last launch, as long as each argument is where it was then."""
        self._new, self._old = ([places[a.number] for a in some] for some in (self.new, self.writes))
        """Of these, what is written of tensors that nobody has seen before, and of others."""
        self._settling = [(p, a.binding.place) for p, a in zip(self._new, self.new, strict=True) if a.binding.place.settles]
        self._read = taking([a.of for a in self.reads])
        self._numbers = [_number(a, card) for a in self.reads]
        """Of integers by themselves, which hosts give at each launch."""
        self._last = array("q")
        """The handles of what the last launch read, if all of it is known."""
        self._forms: list[DeviceForm] = []
        self._states: list[Hashable] = []
        """Of these, when they were looked for."""
        self._occupied: frozenset[int] = frozenset()
        """Where they lie."""
        self._bounds: dict[int, Callable[[], float]] = {}

    def launch(self, handles: Sequence[int]) -> bool:
        """Launch on tensors that begin where their allocations do. False where it is not for these. Raises as `Executable.__call__` does;
        then nothing is written, either.
        """
        chip, plan = self.chip, self.plan
        card = plan.card
        steps: list[Step] = []
        """What the card has done, and has not been given yet: to give it takes longer than to note it."""
        with chip.lock, card.compute:
            try:
                read, states = array("q", self._read(handles)), [*map(_state, self._forms)]
                if read != self._last or (states != self._states and not self._renewed(states, steps)):
                    if not self._look(read, steps):
                        return False
                for place, (of, nbytes, entries, form, whole) in zip(self._new, self._made, strict=True):
                    allocation = held(handles[of])
                    if allocation is None or allocation.card is not card or allocation.nbytes != nbytes:
                        return False
                    place.carrier = filled = card.carrier(entries)
                    if not whole:
                        filled.fill(np.nan)
                    if place.address != (address := allocation.begin(form, filled)):
                        place.address, self._bound = address, None
                same = self._reopen(handles) if self._same is not None else []
                written = self._open(handles) if self.writes and not same else []
                if written is None:
                    return False
                lying = ready = [*map(_carrier, self._lie)]
                if plan.bound is not self._bound:
                    ready = plan.carriers([*map(_address, self._lie)], lying, steps)
                    self._bound = plan.bound if ready is lying else None
                if card.computes:
                    chip.machine.launch(ready, "tape", self._bounds)
                else:
                    nothing([*map(_carrier, (*self._new, *self._old))])
                steps.append(chip.step)
                self._end(same)
                if written:
                    self._close(handles, written)
                return True
            finally:
                if steps:
                    card.run(*steps)

    def _end(self, same: Sequence[tuple[Allocation, DeviceForm, NDArray[np.float32]]]) -> None:
        """The program has written. same: what it has written of the tensors of the last launch, which belongs to them."""
        for place, arrangement in self._settling:
            if place.carrier is not None:
                arrangement.settle(place.carrier)
        for n, (allocation, form, filled) in enumerate(same):
            if (arrangement := self._settled[n]) is not None:
                arrangement.settle(filled)
            allocation.version += 1  # as `Allocation.adopt`, of the one form that there is, in its place
            before = form.renew(filled, allocation.version)
            if before.size > _SMALL:
                self.plan.card.put_back(before)
            else:
                self._spare[n] = before
        for place in self._new:  # it belongs to tensors, which may end
            place.carrier = None
        for place in self._old:
            place.carrier = None

    def _at(self, place: _Place, address: int) -> None:
        """What is written lies there."""
        if place.address != address:
            place.address, self._bound = address, None

    def _reopen(self, handles: Sequence[int]) -> list[tuple[Allocation, DeviceForm, NDArray[np.float32]]]:
        """As `_open`, of tensors that the last launch has written and nobody has since. None of them where there is another one. Raises
        OutOfRange.
        """
        assert self._same is not None
        known, read, forms, owners = self._same
        written = self._written(handles)
        if written != known or read is not self._occupied or None in map(_state, forms):
            return []
        for n, place, allowed in self._checked:
            if not place.has(forms[n].carrier, allowed):
                self.writes[n].binding.check(forms[n])
        again: list[tuple[Allocation, DeviceForm, NDArray[np.float32]]] = []
        for place, owner, form, filled in zip(self._old, owners, forms, self._spare, strict=True):
            allocation, carrier = owner(), form.carrier
            assert allocation is not None  # else its forms are not valid
            if filled is None:
                filled = self.plan.card.carrier(len(carrier))
            np.copyto(filled, carrier)  # of 32 bits, as all that programs have written
            place.carrier = filled
            self._at(place, form.address)
            again.append((allocation, form, filled))
        return again

    def _close(self, handles: Sequence[int], written: Sequence[tuple[Allocation, Binding, NDArray[np.float32], int | None]]) -> None:
        """What the program has written of tensors that were there before belongs to them."""
        for allocation, binding, filled, address in written:
            binding.close(allocation, filled, address)
        forms = [a.forms.get(b.place) if b.rewrites and a.has_one_form else None for a, b, _, _ in written]
        places = {f.address for f in forms if f is not None}
        apart = len(places) == len(forms) and not places & self._occupied
        owners = [weakref.ref(allocation) for allocation, *_ in written]
        self._same = (self._written(handles), self._occupied, [f for f in forms if f is not None], owners) if apart else None

    def _open(self, handles: Sequence[int]) -> list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] | None:
        """What the program writes of tensors that were there before. None where it is not for these tensors."""
        plan = self.plan
        written: list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] = []
        several = len({handles[a.of] for a in self.writes}) < len(self.writes)
        for argument, place in zip(self.writes, self._old, strict=True):
            allocation, binding = argument.allocation(handles[argument.of], plan.card), argument.binding
            if allocation is None:
                return None
            twice = several and any(allocation is other for other, *_ in written)  # one after the other, then
            place.carrier = filled = binding.open(allocation)
            address = None if twice else binding.address(allocation, self._occupied)
            self._at(place, plan.own(argument.number) if address is None else address)
            written.append((allocation, binding, filled, address))
        return written

    def _renewed(self, states: list[Hashable], steps: list[Step]) -> bool:
        """Whether nothing of what is read has changed since the last launch but integers by themselves, in the places where they were. If
        so, their forms have them.
        """
        forms = self._forms
        for n in compress(count(), map(is_not, states, self._states)):
            form, number = forms[n], self._numbers[n]
            if number is None or type(form) is not NumberForm or not form.again(number.low, number.high):
                return False
            states[n] = form.state
            steps.append(number.move)
        self._states = states
        return True

    def _look(self, read: array[int], steps: list[Step]) -> bool:
        """Find the forms of what is read, where they are not those of the last launch. False where it is not on the card. steps: see
        `launch`. Raises OutOfRange.
        """
        last, self._last = self._last, array("q")
        forms: list[Any] = self._forms if last else [None] * len(read)
        states: list[Hashable] = [*map(_state, forms)] if last else [None] * len(read)
        moved = not last
        if read == last:
            others: Iterable[int] = [*compress(count(), map(is_not, states, self._states))]
        else:
            others = [n for n, now in enumerate(read) if not last or now != last[n] or states[n] is not self._states[n]]
        for n in others:
            number, _, nbytes, binding = self.reads[n]
            allocation = held(read[n])
            if allocation is None or allocation.card is not self.plan.card:
                return False
            given = self._numbers[n] if allocation.nbytes == nbytes else None
            before = forms[n]
            same = before if last and read[n] == last[n] else None
            form = None if given is None else allocation.number(binding.place, same)
            if given is None or form is None or not form.again(given.low, given.high):
                form = binding.read(allocation)
            else:
                steps.append(given.move)
            moved = moved or before.address != form.address
            if form is not before:
                forms[n], self._bounds[number], self._lie[number] = form, form.largest, form
            states[n] = form.state
        self._forms, self._states, self._last = forms, states, read
        if moved:
            self._occupied, self._bound = frozenset(map(_address, forms)), None
        return True


def _number(argument: _Argument, card: Card) -> _Number | None:
    """An argument that is an integer by itself, whose form takes the place of its linear bytes; None for all else."""
    place = argument.binding.place
    nbytes = stands_in(place, argument.nbytes) if place.is_number else 0
    return _Number(moving("Relayout", nbytes, card.target), *place.numbers(argument.binding.argument.range)) if nbytes else None


def _argument(number: int, slot: Slot, tensors: Sequence[DeviceTensor]) -> _Argument:
    tensor = tensors[slot.host]
    return _Argument(number, slot.host, tensor.allocation.nbytes, tensor.binding(slot))
