"""A program on a card: where it lies, and what tells it, at each launch, where its arguments lie.

As published, a program begins with a block of addresses that the host fills in (*program correction*): a symbol per argument, a 32-bit
number of a stick, in slots of 16 bytes of flits of 128 bytes; behind the flits a word for each. Block and program lie in the card's last
segment, and with them what is the program's own: pools, iotas, and room for what travels between host and card or is a part of a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.runtime.memory.card import Card
from ktir.runtime.memory.pool import rounded
from ktir.runtime.memory.slot import Slot
from ktir.runtime.time.steps import Step, moving
from ktir.target import STICK_BYTES

Carrier = NDArray[Any] | None
"""None of a pool: the machine's own."""
_SLOT_WORDS, _FLIT_SLOTS = 4, 8


class Correction:
    """The block of addresses of so many arguments."""

    def __init__(self, symbols: int) -> None:
        self.symbols = symbols
        self.flits = -(-symbols // _FLIT_SLOTS)
        self.size = self.flits * (STICK_BYTES + 4)

    def block(self, addresses: Sequence[int]) -> NDArray[np.uint8]:
        """The block for arguments at these addresses."""
        words = np.zeros(self.size // 4, "<u4")
        words[self.flits * STICK_BYTES // 4 :] = np.arange(self.flits)  # where each flit goes
        words[: self.symbols * _SLOT_WORDS : _SLOT_WORDS] = np.array(addresses, np.int64) // STICK_BYTES
        return words.view(np.uint8)

    def addresses(self, block: NDArray[np.uint8]) -> list[int]:
        """The addresses in a block."""
        found: list[int] = (block.view("<u4")[: self.symbols * _SLOT_WORDS : _SLOT_WORDS].astype(np.int64) * STICK_BYTES).tolist()
        return found

    @staticmethod
    def change(block: NDArray[np.uint8], known: list[int], addresses: Sequence[int]) -> None:
        """Note in a block, in which arguments lie where it is known, where they lie now; and what is in the block in what is known."""
        words = block.view("<u4")
        for symbol, (old, new) in enumerate(zip(known, addresses, strict=True)):
            if old != new:
                word = symbol * _SLOT_WORDS
                words[word] = new // STICK_BYTES
                known[symbol] = int(words[word]) * STICK_BYTES


class JobPlan:
    """A program prepared on a card. `program`: gives its bytes, once."""

    _ending = staticmethod(sys.is_finalizing)
    """See `Forms`."""

    def __init__(self, card: Card, name: str, slots: Sequence[Slot], program: Callable[[], bytes]) -> None:
        """Raises DeviceOutOfMemory where the segment of programs has no room."""
        self.card = card
        self.name = name
        self._slots = slots
        self._correction = Correction(len(slots))
        self.addresses: dict[int, int] = {}
        """By number of an argument, where what is the program's own for it lies."""
        self._bound: list[int] = []
        self.bound = object()
        """Another one whenever the program is told anew where its arguments are."""
        self._correcting = Step("HostCompute", 0, 0.0, name), moving("H2D", self._correction.size, card.target, name)
        data = np.frombuffer(program(), np.uint8)
        head = rounded(self._correction.size)
        self._size = head + rounded(data.size)
        self._at: int | None = None
        self._at = card.take(self._size, program=True)
        card.bytes(self._at + head, data.size)[...] = data
        self._block = card.bytes(self._at, self._correction.size)
        card.record("H2D", data.size, name)

    def own(self, index: int) -> int:
        """The address of room for an argument that no tensor of the card is in the form for."""
        found = self.addresses.get(index)
        if found is None:
            found = self.addresses[index] = self.card.take(self._bytes_of(index), program=True)
        return found

    def _bytes_of(self, index: int) -> int:
        return self._slots[index].layout.sticks * STICK_BYTES

    def carriers(self, addresses: Sequence[int], lying: list[Carrier], steps: list[Step] | None = None) -> list[Carrier]:
        """Tell the program where its arguments are, of which these are the carriers: those that it then finds, at the addresses that are
        read where it lies. Nothing to do where it knows. steps: to which those that this takes are added; else the card is given them.
        """
        if addresses == self._bound:
            return lying
        self.bound = object()
        if self._bound:
            self._correction.change(self._block, self._bound, addresses)
        else:
            self._block[...] = self._correction.block(addresses)
            self._bound = self._correction.addresses(self._block)
        if steps is None:
            self.card.run(*self._correcting)
        else:
            steps += self._correcting
        if self._bound == addresses:
            self._bound = [*addresses]  # the same objects are compared without a look at them
            return lying
        at = dict(zip(addresses, lying, strict=True))
        return [at[a] for a in self._bound]

    def free(self) -> None:
        """Take the program from the card; may be called at any time, more than once."""
        if self._at is not None:
            address, self._at = self._at, None
            self.card.give(address, self._size)
        while self.addresses:
            index, address = self.addresses.popitem()
            self.card.give(address, self._bytes_of(index))

    def __del__(self) -> None:
        if not self._ending() and hasattr(self, "_at"):
            self.free()
