"""The memory side of a transfer: which elements of the arguments one execution moves, on all cores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.program.decode import Instruction
from ktir.isa.access import Counters, Ints
from ktir.target import LANES


@dataclass(frozen=True)
class Indices:
    """The indices of a gather or scatter: element `at` [cores | 1, positions] of `argument`, read where `live`.

    Entry e lies `step` * the index of position `position[e]` beyond what its address says. Legal are indices below `size`.
    """

    argument: int
    at: Ints
    live: NDArray[np.bool_]
    position: Ints
    step: int
    size: int

    def moved(self, at: Ints, indices: Ints) -> Ints:
        """Elements of the entries, from where they would be at index 0 and the indices [cores | 1, positions]."""
        return at + indices[:, self.position] * self.step


@dataclass(frozen=True)
class Transfer:
    """Elements of lane 0 of each entry `at` [cores, entries], `lane` elements between lanes, and how many lanes are `live`.

    With indices, `at` is where index 0 would be. Dead entries have some address.
    """

    argument: int
    at: Ints
    lane: int
    live: Ints
    indices: Indices | None = None


def transfer(x: Instruction, counters: Counters) -> Transfer:
    """What a MOVE between memory and LX moves. As many cores as differ: 1 or all."""
    access = x.ddr
    assert access
    at, live = access.elements(counters), access.lanes(counters)
    if x.leaders is not None:
        at, live = (a[x.leaders] if a is not None and len(a) > 1 else a for a in (at, live))
    assert at is not None
    indices = None
    if x.idx is not None:
        d = access.descriptor
        position, step = access.positions(x.dim), d.stride[x.dim] // d.element_bytes
        at = at - position * step
        read = x.idx.lanes(counters)
        if read is not None:
            there = np.where(read > 0, LANES, 0)[:, position]
            live = there if live is None else np.minimum(live, there)
        used = np.ones((1, d.extent[x.dim]), bool) if live is None else _used(live, d.extent, x.dim)
        indices = Indices(x.idx.descriptor.arg or 0, x.idx.elements(counters), used, position, step, x.size)
    cores = max(len(at), 1 if live is None else len(live), 1 if indices is None else len(indices.at))
    shape = (cores, access.entries)
    live = np.full(shape, LANES) if live is None else np.broadcast_to(live, shape)
    return Transfer(access.descriptor.arg or 0, np.broadcast_to(at, shape), access.lane, live, indices)


def _used(live: Ints, extent: tuple[int, ...], dim: int) -> NDArray[np.bool_]:
    """Positions along `dim` [cores | 1, positions] with a live entry."""
    others = tuple(1 + d for d in range(len(extent)) if d != dim)
    return np.any(live.reshape(len(live), *extent) > 0, axis=others)
