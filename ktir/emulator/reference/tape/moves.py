"""Narrow floats that a program only moves stay the caller's bits.

Values are float32 on the grid of their type, because arithmetic is fastest there. Where every step that touches a memory only moves
elements (copies, transposes, gathers, scatters, writes into a cache), widening and narrowing them would cost several times the move.
"""

from __future__ import annotations

from collections.abc import Mapping

from ktir.arithmetic import numerics
from ktir.emulator.reference.tape.tape import Step
from ktir.emulator.reference.tape.values import Storage

__all__ = ["keep_bits"]


def keep_bits(steps: list[Step], stored: Mapping[str, type]) -> None:
    """Give memories without arithmetic the NumPy type in which the caller's arrays hold their element type (`stored`)."""
    parents: dict[Storage, Storage] = {}
    elements: dict[Storage, set[str]] = {}
    computed: set[Storage] = set()

    def root(storage: Storage) -> Storage:
        while (parent := parents.setdefault(storage, storage)) is not storage:
            parents[storage] = storage = parents.setdefault(parent, parent)  # left to right: the old one gets a nearer parent
        return storage

    for step in steps:
        copied = step.copies()
        for storage in copied:
            elements.setdefault(storage, set())
            parents[root(storage)] = root(copied[0])
        for tensor in (*step.reads, *step.writes):
            elements.setdefault(tensor.storage, set()).add(tensor.element)
            if tensor.storage not in copied or tensor.storage.array is not None:
                computed.add(tensor.storage)
    for storage in elements:  # a widening makes a value of another type of a buffer's elements without a step
        if storage.owner is not None:
            elements[storage].update(kind for kind, carrier in storage.owner.carriers.items() if carrier is storage)
    groups: dict[Storage, list[Storage]] = {}
    for storage in elements:
        groups.setdefault(root(storage), []).append(storage)
    for members in groups.values():
        kinds = set[str]().union(*(elements[storage] for storage in members))
        if len(kinds) == 1 and computed.isdisjoint(members) and (kind := kinds.pop()) in numerics.NARROW:
            for storage in members:
                storage.dtype = stored[kind]
