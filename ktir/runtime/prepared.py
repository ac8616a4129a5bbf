"""Launches that repeat, on tensors of a card that lie as those of the first one: what does not differ between them is found once."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from operator import attrgetter, itemgetter
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine import Machine
from ktir.runtime.device import Binding, DeviceTensor
from ktir.runtime.jobplan import Carrier, JobPlan
from ktir.runtime.memory.allocation import Allocation, DeviceForm, held
from ktir.runtime.memory.card import Card
from ktir.runtime.memory.hardware import nothing
from ktir.runtime.memory.slot import Slot
from ktir.runtime.time.steps import Step

_state, _address, _carrier = attrgetter("state"), attrgetter("address"), attrgetter("carrier")


def taking(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes of a sequence what is at these places."""
    if len(places) == 1:
        (place,) = places
        return lambda given: (given[place],)
    return itemgetter(*places) if places else lambda _: ()


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
        self.writes = [a for slot, a in given if not slot.reads and a not in self.new]
        """What it writes of others."""
        self._written = taking([a.of for a in self.writes])
        self._same: tuple[tuple[int, ...], frozenset[int], list[DeviceForm]] | None = None
        """What the last launch has written of tensors that were there before, where that was in place of what they held: handles; where
        lies what was read; forms.
        """
        own = [(i, slot) for i, slot in enumerate(chip.slots) if slot.host < 0]
        self.carriers: list[Carrier] = [slot.iota for _, slot in own]
        """Of what no tensor gives."""
        self.addresses = [plan.own(i) for i, _ in own]
        """Likewise."""
        grouped = [i for i, _ in own] + [a.number for group in (self.reads, self.new, self.writes) for a in group]
        self._in_order = taking(sorted(range(len(grouped)), key=grouped.__getitem__))
        """Takes the arguments in their order from what no tensor gives, what is read, and what is written."""
        self._read = taking([a.of for a in self.reads])
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
        chip, plan, card = self.chip, self.plan, self.plan.card
        with chip.lock, card.compute:
            read = array("q", self._read(handles))
            if (read != self._last or [*map(_state, self._forms)] != self._states) and not self._look(read):
                return False
            forms = self._forms
            places = [*self.addresses, *map(_address, forms)]
            carriers: list[Carrier] = [*self.carriers, *map(_carrier, forms)]
            for argument in self.new:
                allocation = argument.allocation(handles[argument.of], card)
                if allocation is None:
                    return False
                binding = argument.binding
                carriers.append(filled := card.carrier(binding.entries))
                filled.fill(np.nan)
                places.append(allocation.begin(binding.place, filled))
            same = self._reopen(handles, places, carriers)
            written = self._open(handles, places, carriers) if self.writes and not same else []
            if written is None:
                return False
            ready = plan.carriers([*self._in_order(places)], [*self._in_order(carriers)])
            first = len(self.carriers) + len(forms)
            if card.computes:
                chip.machine.launch(ready, "tape", self._bounds)
            else:
                nothing(carriers[first:])
            card.run(chip.step)
            for (_, _, _, binding), filled in zip(self.new, carriers[first:], strict=False):
                if binding.place.settles and filled is not None:
                    binding.place.settle(filled)
            for allocation, form, filled in same:
                allocation.rewrite(form, filled)
            if written:
                self._close(handles, written)
        return True

    def _reopen(
        self, handles: Sequence[int], places: list[int], carriers: list[Carrier]
    ) -> list[tuple[Allocation, DeviceForm, NDArray[np.float32]]]:
        """As `_open`, of tensors that the last launch has written and nobody has since. None of them where there is another one. Raises
        OutOfRange.
        """
        if self._same is None:
            return []
        known, read, forms = self._same
        written = self._written(handles)
        if written != known or read is not self._occupied or None in map(_state, forms):
            return []
        again: list[tuple[Allocation, DeviceForm, NDArray[np.float32]]] = []
        take = self.plan.card.carrier
        for handle, form, (_, _, _, binding) in zip(written, forms, self.writes, strict=True):
            allocation = held(handle)
            assert allocation is not None  # else its forms are not valid
            if not binding.any:
                binding.check(form)
            filled = take(binding.entries)
            np.copyto(filled, form.carrier)
            again.append((allocation, form, filled))
        places += map(_address, forms)
        carriers += [filled for _, _, filled in again]
        return again

    def _close(self, handles: Sequence[int], written: Sequence[tuple[Allocation, Binding, NDArray[np.float32], int | None]]) -> None:
        """What the program has written of tensors that were there before belongs to them."""
        for allocation, binding, filled, address in written:
            binding.close(allocation, filled, address)
        forms = [a.forms.get(b.place) if b.rewrites and a.has_one_form else None for a, b, _, _ in written]
        places = {f.address for f in forms if f is not None}
        apart = len(places) == len(forms) and not places & self._occupied
        self._same = (self._written(handles), self._occupied, [f for f in forms if f is not None]) if apart else None

    def _open(
        self, handles: Sequence[int], places: list[int], carriers: list[Carrier]
    ) -> list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] | None:
        """What the program writes of tensors that were there before; their addresses and carriers are added to these. None where it is not
        for these tensors.
        """
        plan = self.plan
        written: list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] = []
        several = len({handles[a.of] for a in self.writes}) < len(self.writes)
        for argument in self.writes:
            allocation, binding = argument.allocation(handles[argument.of], plan.card), argument.binding
            if allocation is None:
                return None
            twice = several and any(allocation is other for other, *_ in written)  # one after the other, then
            carriers.append(filled := binding.open(allocation))
            address = None if twice else binding.address(allocation, self._occupied)
            places.append(plan.own(argument.number) if address is None else address)
            written.append((allocation, binding, filled, address))
        return written

    def _look(self, read: array[int]) -> bool:
        """Find the forms of what is read, where they are not those of the last launch. False where it is not on the card. Raises
        OutOfRange.
        """
        last, self._last = self._last, array("q")
        forms: list[Any] = [*self._forms] if last else [None] * len(read)
        moved = not last
        for n, (number, _, _, binding) in enumerate(self.reads):
            before = forms[n]
            if before is None or read[n] != last[n] or before.state != self._states[n]:
                allocation = held(read[n])
                if allocation is None or allocation.card is not self.plan.card:
                    return False
                form = forms[n] = binding.read(allocation)
                moved = moved or before is None or before.address != form.address
                self._bounds[number] = form.largest
        self._forms, self._states, self._last = forms, [*map(_state, forms)], read
        if moved:
            self._occupied = frozenset(map(_address, forms))
        return True


def _argument(number: int, slot: Slot, tensors: Sequence[DeviceTensor]) -> _Argument:
    tensor = tensors[slot.host]
    return _Argument(number, slot.host, tensor.allocation.nbytes, tensor.binding(slot))
