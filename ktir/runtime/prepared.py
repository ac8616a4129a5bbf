"""Launches that repeat, on tensors of a card that lie as those of the first one: what does not differ between them is found once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine import Machine
from ktir.runtime.device import Binding, DeviceTensor
from ktir.runtime.jobplan import JobPlan
from ktir.runtime.memory.allocation import Allocation, DeviceForm, held
from ktir.runtime.memory.hardware import nothing
from ktir.runtime.memory.slot import Slot
from ktir.runtime.time.steps import Step

_state, _address, _carrier = attrgetter("state"), attrgetter("address"), attrgetter("carrier")


def taking(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """What takes of a sequence what is at these places."""
    return itemgetter(*places) if len(places) > 1 else lambda given: tuple(given[k] for k in places)


class Prepared:
    """A program for tensors of these views on one card, which it takes as they lie. Its executable keeps it."""

    def __init__(self, plan: JobPlan, slots: Sequence[Slot], tensors: Sequence[DeviceTensor]) -> None:
        """Raises DeviceOutOfMemory where the program has no room."""
        self.plan = plan
        given = [(i, slot, slot.host, tensors[slot.host]) for i, slot in enumerate(slots) if slot.host >= 0]
        self.reads = [(i, k, tensor.binding(slot)) for i, slot, k, tensor in given if slot.reads]
        """Number of the argument, and of its tensor, and what it is of that."""
        self.writes = [(i, k, tensor.allocation.nbytes, tensor.binding(slot)) for i, slot, k, tensor in given if not slot.reads]
        """Likewise, with the bytes of the allocation."""
        self._written = [k for _, k, *_ in self.writes]
        own = [(i, slot) for i, slot in enumerate(slots) if slot.host < 0]
        self.carriers = [slot.iota for _, slot in own]
        """Of what no tensor gives."""
        self.addresses = [plan.own(i) for i, _ in own]
        """Likewise."""
        grouped = [i for i, _ in own] + [i for i, *_ in self.reads] + [i for i, *_ in self.writes]
        self._in_order = taking(sorted(range(len(grouped)), key=grouped.__getitem__))
        """Takes the arguments in their order from what no tensor gives, what is read, and what is written."""
        self._read = taking([k for _, k, _ in self.reads])
        self._last = array("q")
        """The handles of what the last launch read, if all of it is known."""
        self._forms: list[DeviceForm] = []
        self._occupied: frozenset[int] = frozenset()
        """Where these lie."""
        self._bounds: dict[int, Callable[[], float]] = {}

    def launch(self, machine: Machine, step: Step, handles: Sequence[int]) -> bool:
        """Launch on tensors that begin where their allocations do; who calls holds the machine and the card. False where it is not for
        these. Raises as `Executable.__call__` does; then nothing is written, either.
        """
        plan, card = self.plan, self.plan.card
        read = array("q", self._read(handles))
        if (read != self._last or None in map(_state, self._forms)) and not self._look(read):
            return False
        forms = self._forms
        places = [*self.addresses, *map(_address, forms)]
        carriers: list[NDArray[Any] | None] = [*self.carriers, *map(_carrier, forms)]
        written: list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] = []
        several = len({handles[k] for k in self._written}) < len(self._written)
        for i, k, nbytes, binding in self.writes:
            allocation = held(handles[k])
            if allocation is None or allocation.card is not card or allocation.nbytes != nbytes:
                return False
            twice = several and any(allocation is other for other, *_ in written)  # one after the other, then
            carriers.append(filled := binding.open(allocation))
            address = None if twice else binding.address(allocation, self._occupied)
            places.append(plan.own(i) if address is None else address)
            written.append((allocation, binding, filled, address))
        ready = plan.carriers([*self._in_order(places)], [*self._in_order(carriers)])
        if card.computes:
            machine.launch(ready, "tape", self._bounds)
        else:
            nothing([filled for _, _, filled, _ in written])
        card.run(step)
        for allocation, binding, filled, address in written:
            binding.close(allocation, filled, address)
        return True

    def _look(self, read: array[int]) -> bool:
        """Find the forms of what is read, where they are not those of the last launch. False where it is not on the card. Raises
        OutOfRange.
        """
        last, self._last = self._last or array("q", [-1]) * len(read), array("q")
        forms: list[DeviceForm | None] = [*self._forms] or [None] * len(read)
        moved = not self._forms
        for n, (i, _, binding) in enumerate(self.reads):
            form = forms[n]
            if read[n] != last[n] or form is None or form.state is None:
                allocation = held(read[n])
                if allocation is None or allocation.card is not self.plan.card:
                    return False
                before, forms[n] = form, (form := binding.read(allocation))
                moved = moved or before is None or before.address is not form.address
                self._bounds[i] = form.largest
        self._forms, self._last = [form for form in forms if form is not None], read
        if moved:
            self._occupied = frozenset(map(_address, self._forms))
        return True
