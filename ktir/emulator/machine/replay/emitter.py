"""The operations of a tape under construction, and those that only rearrange values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ktir.emulator.machine.replay.ops import Assemble, Operation, Piece
from ktir.emulator.machine.replay.values import Buffer, Ints, Value, View, entry_view, stored
from ktir.emulator.machine.step.divisions import Noticed
from ktir.target import LANES


class Emitter:
    """Collects operations in order. `lasting` are buffers with fixed content."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.lasting: list[Buffer] = []
        self.noticed: list[Noticed] = []
        """Integer divisions of a launch that had no quotient in some lanes."""
        self.unwatched = False
        """Whether there are divisions that do not tell."""

    def constant(self, value: np.float32, entries: int) -> Value:
        """Entries that all hold one value."""
        buffer = Buffer(1, lasting=True, data=np.full(1, value, np.float32))
        self.lasting.append(buffer)
        return Value(buffer, np.zeros((1, 1, entries), np.int64), 0)

    def assemble(self, shape: Sequence[int], pieces: list[Piece], pad: float = 0.0, pads: Sequence[tuple[int, Ints]] = ()) -> Value:
        """A new value [cores, corelets, entries] of 64 lanes, from pieces of others and pads."""
        buffer = Buffer(prod(shape) * LANES)
        self.operations.append(Assemble(buffer, pieces, np.float32(pad), [*pads]))
        return Value(buffer, stored((*shape, LANES), shape[2:]))

    def copy(self, value: Value) -> Value:
        """The same entries, one after the other in memory of their own."""
        return self.assemble(value.at.shape, [whole_piece(value, entries(value.at.shape))])

    def join(self, values: Sequence[Value]) -> Value:
        """One value of the entries of several."""
        cores = max(v.at.shape[0] for v in values)
        corelets = max(v.at.shape[1] for v in values)
        spread = [np.broadcast_to(v.at, (cores, corelets, v.entries)) for v in values]
        if len({(v.buffer, v.lane) for v in values}) == 1:
            return Value(values[0].buffer, np.concatenate(spread, 2), values[0].lane)
        n = sum(v.entries for v in values)
        target = entries((cores, corelets, n))
        pieces, first = [], 0
        for v, at in zip(values, spread, strict=True):
            pieces.append(whole_piece(Value(v.buffer, at, v.lane), target[:, :, first : first + v.entries]))
            first += v.entries
        return self.assemble((cores, corelets, n), pieces)

    def view(self, value: Value, shape: Sequence[int]) -> tuple[Buffer, View]:
        """A value's entries as an array [cores | 1, corelets | 1, *shape, lanes | 1], copied if no strides describe them."""
        found = entry_view(value, shape)
        if found is None:
            value = self.copy(value)
            found = entry_view(value, shape)
            assert found is not None
        return value.buffer, found


def entries(shape: Sequence[int]) -> Ints:
    """Where the entries of a new value begin in its memory."""
    return (np.arange(prod(shape)) * LANES).reshape(shape)


def whole_piece(value: Value, target: Ints) -> Piece:
    """Copies all entries of a value to those that begin at `target` [cores, corelets, entries]."""
    return Piece(value.buffer, np.broadcast_to(value.at, target.shape), target, LANES, value.lane)
