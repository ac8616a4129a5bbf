"""Launches that repeat, on tensors of a card that lie as those of the first one: what does not differ between them is found once."""

from __future__ import annotations

import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter, itemgetter
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine import Machine
from ktir.package import ValueRange
from ktir.runtime.device import Binding, DeviceTensor
from ktir.runtime.jobplan import Carrier, JobPlan
from ktir.runtime.memory.allocation import Allocation, DeviceForm, NumberForm, held, stands_in
from ktir.runtime.memory.card import Card
from ktir.runtime.memory.changes import changes
from ktir.runtime.memory.hardware import nothing
from ktir.runtime.memory.slot import Slot
from ktir.runtime.memory.view import Arrangement
from ktir.runtime.time.steps import Step, moving

_state, _address, _carrier = attrgetter("state"), attrgetter("address"), attrgetter("carrier")
_WRITTEN = -1
"""In place of the number of an argument that is read."""


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


class Holder(Protocol):
    """What keeps the allocation of a tensor that is made for a launch: until then it has none, but the handle that this will have."""

    handle: int
    allocation: Allocation


class _Argument(NamedTuple):
    """An argument that a tensor gives: its number, where the handles of a launch have that of the tensor, the bytes of its allocation, and
    what it is of that.
    """

    number: int
    of: int
    nbytes: int
    binding: Binding

    def allocation(self, handle: int, card: Card) -> Allocation | None:
        """That of a handle, if it is as this one."""
        found = held(handle)
        return None if found is None or found.card is not card or found.nbytes != self.nbytes else found


class _New(NamedTuple):
    """A tensor that is made for each launch. place: where what the program writes of it lies, if that is all of it; entries and form of
    that, and whether the program itself writes all of the carrier.
    """

    nbytes: int
    place: _Place | None = None
    entries: int = 0
    form: Arrangement | None = None
    whole: bool = False


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


class _Same(NamedTuple):
    """A form that the last launch has written, of a tensor that was there before and has no other form: whose it is, what the program
    takes of an integer by itself, and what is to be done when it is written. The next launch writes it where it is.
    """

    owner: weakref.ref[Allocation]
    form: DeviceForm
    checked: tuple[Arrangement, ValueRange] | None
    settled: Arrangement | None


class Prepared:
    """A program for tensors of these views on one card, which it takes as they lie. Its executable keeps it."""

    def __init__(self, chip: Chip, card: Card, tensors: Sequence[DeviceTensor], made: Sequence[int]) -> None:
        """made: numbers of tensors that are made for each launch, which nobody has seen before. Raises DeviceOutOfMemory where the program
        has no room.
        """
        self.chip = chip
        self.plan = plan = chip.plan(card)
        at = {k: place for place, k in enumerate([*(k for k in range(len(tensors)) if k not in made), *made])}
        given = [(slot, _argument(i, slot, tensors, at)) for i, slot in enumerate(chip.slots) if slot.host >= 0]
        times = Counter(id(tensors[slot.host].allocation) for slot, _ in given)
        own = {at[k] for k in made if times[id(tensors[k].allocation)] == 1}
        new = {a.of: a for slot, a in given if not slot.reads and a.of in own and a.binding.writes_all}
        """What the program writes of tensors that nobody has seen before, by where their handles are."""
        self.reads = [a for slot, a in given if slot.reads]
        self.writes = [a for slot, a in given if not slot.reads and a.of not in new]
        """What it writes of others."""
        places = [_Place(slot.iota, plan.own(i) if slot.host < 0 else -1) for i, slot in enumerate(chip.slots)]
        self._lie: list[_Place | DeviceForm] = [*places]
        """Where each argument lies: what is read in forms."""
        fills = chip.machine.fills
        self._made = [_New(tensors[k].allocation.nbytes) for k in made]
        for n, a in ((n, new[at[k]]) for n, k in enumerate(made) if at[k] in new):
            self._made[n] = _New(a.nbytes, places[a.number], a.binding.entries, a.binding.place, fills(a.number))
        self._plain = any(made.place is None for made in self._made)
        """Whether some of these have linear bytes before the launch."""
        self._rewritten = taking([a.of for a in self.writes])
        self._written = [places[a.number] for a in self.writes]
        self._outputs = [a.number for a in (*new.values(), *self.writes)]
        self._passing = [places[a.number] for a in (*new.values(), *self.writes)]
        """Those whose carriers belong to tensors, which may end."""
        self._settling = [(places[a.number], a.binding.place) for a in new.values() if a.binding.place.settles]
        self._inplace = frozenset(a.number for a in self.writes)
        self._same: list[_Same] = []
        """What the last launch has written of others, if all of it is so."""
        self._bound: object = None
        """What the program has been told by the last launch, as long as each argument is where it was then."""
        self._numbers = [_number(a, card) for a in self.reads]
        """Of integers by themselves, which hosts give at each launch."""
        self._read = taking([a.of for a in self.reads])
        self._last = array("q")
        """The handles of the last launch, if all that it read is known."""
        self._forms: list[DeviceForm] = []
        """What it read."""
        self._states: list[Hashable] = []
        """Of these, when they were looked for."""
        self._occupied: frozenset[int] = frozenset()
        """Where they lie."""
        self._known: dict[int, int] = {}
        """By `id` the numbers of these forms, and `_WRITTEN` for those of `_same`."""
        self._seen: tuple[Sequence[int], int] = (), 0
        """The changes of forms (`changes`), and how many of them are in what is known."""
        self._bounds: dict[int, Callable[[], float]] = {}

    def launch(self, handles: array[int], holders: Sequence[Holder] = ()) -> bool:
        """Launch on tensors that begin where their allocations do: their handles, and what will hold those that are made for it. False
        where it is not for these. Raises as `Executable.__call__` does; then nothing is written, either.
        """
        chip, plan = self.chip, self.plan
        card = plan.card
        steps: list[Step] = []
        """What the card has done, and has not been given yet: to give it takes longer than to note it."""
        with chip.lock, card.compute:
            try:
                if not (handles == self._last and self._is_known(steps)) and not self._look(handles, steps):
                    return False
                self._make(holders, card)
                written = None
                if self._same:
                    self._check()
                elif self.writes:
                    every = array("q", [*handles, *(h.handle for h in holders)]) if self._plain else handles
                    if (written := self._open(every)) is None:
                        return False
                lying = ready = [*map(_carrier, self._lie)]
                if plan.bound is not self._bound:
                    ready = plan.carriers([*map(_address, self._lie)], lying, steps)
                    self._bound = plan.bound if ready is lying else None
                try:
                    if card.computes:
                        chip.machine.launch(ready, "tape", self._bounds, self._inplace if self._same else ())
                    else:
                        nothing([lying[n] for n in self._outputs])
                finally:  # where it fails, they may be as they were, or an interrupt have come when they were written
                    if written is None:
                        self._renew()
                steps.append(chip.step)
                for place, arrangement in self._settling:
                    if place.carrier is not None:
                        arrangement.settle(place.carrier)
                if written is not None:
                    self._close(written)
                return True
            finally:
                for place in self._passing:
                    place.carrier = None
                if steps:
                    card.run(*steps)

    def _make(self, holders: Sequence[Holder], card: Card) -> None:
        """Give those memory that have none: what the program writes there belongs to them before it runs, since nobody else sees it."""
        for (nbytes, place, entries, form, whole), holder in zip(self._made, holders, strict=True):
            if place is None or form is None:
                holder.allocation = Allocation(card, nbytes, holder.handle)
                continue
            place.carrier = filled = card.carrier(entries)
            if not whole:
                filled.fill(np.nan)
            holder.allocation = allocation = Allocation(card, nbytes, holder.handle, form, filled)
            self._at(place, allocation.forms[form].address)

    def _at(self, place: _Place, address: int) -> None:
        """What is written lies there."""
        if place.address != address:
            place.address, self._bound = address, None

    def _check(self) -> None:
        """Raises OutOfRange where the program does not take what the last launch has left in what it writes."""
        for n, (_, form, checked, _) in enumerate(self._same):
            if checked is not None and not checked[0].has(form.carrier, checked[1]):
                self.writes[n].binding.check(form)

    def _renew(self) -> None:
        """The program has written the forms of the last launch, in their places."""
        alone = True
        for owner, form, _, settled in self._same:
            allocation = owner()
            assert allocation is not None  # else its handle would be another one
            if settled is not None:
                settled.settle(form.carrier)
            alone = allocation.renew(form) and alone
        changes.note(*[s.form for s in self._same])
        if alone:
            log, _ = self._seen
            self._seen = log, len(log)  # all of it under the card's lock, and of these forms alone

    def _close(self, written: Sequence[tuple[Allocation, Binding, NDArray[np.float32], int | None]]) -> None:
        """What the program has written of tensors that were there before belongs to them."""
        for allocation, binding, filled, address in written:
            binding.close(allocation, filled, address)
        if self._plain:  # other tensors at each launch
            return
        same: list[_Same] = []
        for allocation, binding, _, _ in written:
            form = allocation.forms.get(binding.place) if binding.rewrites and allocation.has_one_form else None
            if form is None or form.address in self._occupied or any(form.address == s.form.address for s in same):
                return
            allowed, arrangement = binding.argument.range, binding.place
            checked = None if binding.any or allowed is None else (arrangement, allowed)
            same.append(_Same(weakref.ref(allocation), form, checked, arrangement if arrangement.settles else None))
        self._same = same
        self._known |= {id(s.form): _WRITTEN for s in same}
        for argument, each in zip(self.writes, same, strict=True):
            self._lie[argument.number] = each.form

    def _open(self, handles: Sequence[int]) -> list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] | None:
        """What the program writes of tensors that were there before. None where it is not for these tensors."""
        plan = self.plan
        written: list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] = []
        several = len({handles[a.of] for a in self.writes}) < len(self.writes)
        for argument, place in zip(self.writes, self._written, strict=True):
            allocation, binding = argument.allocation(handles[argument.of], plan.card), argument.binding
            if allocation is None:
                return None
            twice = several and any(allocation is other for other, *_ in written)  # one after the other, then
            place.carrier = filled = binding.open(allocation)
            address = None if twice else binding.address(allocation, self._occupied)
            self._at(place, plan.own(argument.number) if address is None else address)
            written.append((allocation, binding, filled, address))
        return written

    def _is_known(self, steps: list[Step]) -> bool:
        """Whether nothing of what the last launch read and wrote has changed since but integers by themselves that are read, in the places
        where they were. If so, their forms have them.
        """
        log, seen = self._seen
        if log is not changes.log:
            return False
        if (now := len(log)) == seen:
            return True
        forms, states, known = self._forms, self._states, self._known
        for n in [known[key] for key in log[seen:now] if key in known]:
            if n == _WRITTEN or (number := self._numbers[n]) is None:
                return False
            if (form := forms[n]).state is states[n]:  # noted twice
                continue
            if type(form) is not NumberForm or not form.again(number.low, number.high):
                return False
            states[n] = form.state
            steps.append(number.move)
        self._seen = log, now
        return True

    def _look(self, handles: array[int], steps: list[Step]) -> bool:
        """Find the forms of what is read, where they are not those of the last launch. False where it is not on the card. steps: see
        `launch`. Raises OutOfRange.
        """
        last, self._last = self._last, array("q")
        log, now = changes.log, len(changes.log)
        read, before = self._read(handles), self._read(last) if last else ()
        forms: list[Any] = self._forms if last else [None] * len(read)
        states: list[Hashable] = [*map(_state, forms)] if last else [None] * len(read)
        moved = not last
        others = [n for n, handle in enumerate(read) if not last or handle != before[n] or states[n] is not self._states[n]]
        for n in others:
            number, _, nbytes, binding = self.reads[n]
            allocation = held(read[n])
            if allocation is None or allocation.card is not self.plan.card:
                return False
            given = self._numbers[n] if allocation.nbytes == nbytes else None
            was = forms[n]
            form = None if given is None else allocation.number(binding.place, was if last and read[n] == before[n] else None)
            if given is None or form is None or not form.again(given.low, given.high):
                form = binding.read(allocation)
            else:
                steps.append(given.move)
            moved = moved or was.address != form.address
            if form is not was:
                forms[n], self._bounds[number], self._lie[number] = form, form.largest, form
            states[n] = form.state
        self._forms, self._states, self._last, self._seen = forms, states, handles, (log, now)
        if moved:
            self._occupied, self._bound = frozenset(map(_address, forms)), None
        if self._same and (moved or self._rewritten(handles) != self._rewritten(last) or any(s.form.state is None for s in self._same)):
            self._same = []
            for argument, place in zip(self.writes, self._written, strict=True):
                self._lie[argument.number] = place
        self._known = {id(form): n for n, form in enumerate(forms)} | {id(s.form): _WRITTEN for s in self._same}
        return True


def _number(argument: _Argument, card: Card) -> _Number | None:
    """An argument that is an integer by itself, whose form takes the place of its linear bytes; None for all else."""
    place = argument.binding.place
    nbytes = stands_in(place, argument.nbytes) if place.is_number else 0
    return _Number(moving("Relayout", nbytes, card.target), *place.numbers(argument.binding.argument.range)) if nbytes else None


def _argument(number: int, slot: Slot, tensors: Sequence[DeviceTensor], at: Mapping[int, int]) -> _Argument:
    tensor = tensors[slot.host]
    return _Argument(number, at[slot.host], tensor.allocation.nbytes, tensor.binding(slot))
