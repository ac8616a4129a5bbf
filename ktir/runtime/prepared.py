"""Launches that repeat, on tensors of a card that lie as those of the first one: what does not differ between them is found once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine import Machine
from ktir.runtime.device import Binding, DeviceTensor
from ktir.runtime.jobplan import JobPlan
from ktir.runtime.memory.allocation import Allocation, DeviceForm, held
from ktir.runtime.slot import Slot
from ktir.runtime.time.steps import Step

_NONE: tuple[int, Callable[[], None]] = -1, lambda: None


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
        self.carriers = [s.iota if s.host < 0 else None for s in slots]
        """Of what no tensor gives."""
        self.addresses = [plan.own(i) if s.host < 0 else -1 for i, s in enumerate(slots)]
        """Likewise."""

        self._read: dict[int, tuple[int, weakref.ref[DeviceForm]]] = {}
        """By number of an argument that may hold anything, the handle and the form of the last launch."""

    def launch(self, machine: Machine, step: Step, handles: Sequence[int]) -> bool:
        """Launch on tensors that begin where their allocations do; who calls holds the machine and the card. False where it is not for
        these. Raises as `Executable.__call__` does; then nothing is written, either.
        """
        plan, card = self.plan, self.plan.card
        carriers, addresses = self.carriers.copy(), self.addresses.copy()
        bounds: dict[int, Callable[[], float]] = {}
        for i, k, binding in self.reads:
            handle, last = self._read.get(i, _NONE)
            form = last() if handle == handles[k] else None
            if form is None or form.state is None:
                allocation = held(handles[k])
                if allocation is None or allocation.card is not card:
                    return False
                form = binding.read(allocation)
                if binding.argument.range is None:
                    self._read[i] = handles[k], weakref.ref(form)
            carriers[i], addresses[i], bounds[i] = form.carrier, form.address, form.largest
        opened: list[tuple[int, Allocation, Binding, NDArray[np.float32]]] = []
        for i, k, nbytes, binding in self.writes:
            allocation = held(handles[k])
            if allocation is None or allocation.card is not card or allocation.nbytes != nbytes:
                return False
            carriers[i] = filled = binding.open(allocation)
            opened.append((i, allocation, binding, filled))
        read = set(addresses)
        several = len({id(allocation) for _, allocation, *_ in opened}) < len(opened)
        written: list[tuple[Allocation, Binding, NDArray[np.float32], int | None]] = []
        for i, allocation, binding, filled in opened:
            twice = several and any(allocation is other for other, *_ in written)  # one after the other, then
            address = None if twice else binding.address(allocation, read)
            addresses[i] = plan.own(i) if address is None else address
            written.append((allocation, binding, filled, address))
        machine.launch(plan.carriers(addresses, carriers), "tape", bounds)
        card.run(step)
        for allocation, binding, filled, address in written:
            binding.close(allocation, filled, address)
        return True
