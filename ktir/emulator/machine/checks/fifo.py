"""FIFOs of the control run: no values, only how many entries, when, and what their producer had seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.trace.clocks import WIDTH
from ktir.isa.resources import Resource

Indices = NDArray[np.intp]


class FifoQueue:
    """An ordered blocking queue. Entry number i lives in slot i mod depth.

    `ready` has the cycle at which an entry can be popped, `freed` that at which its slot can be filled again, `ready_chain` and
    `freed_chain` what these times consist of, `rows` the producer's vector clock (nothing where `crosses`: another core's producer is no
    part of it). `announced` counts the entries whose producing words the trace already holds.
    """

    __slots__ = (
        "_ring",
        "announced",
        "crosses",
        "depth",
        "freed",
        "freed_chain",
        "name",
        "popped",
        "pushed",
        "ready",
        "ready_chain",
        "rows",
    )

    def __init__(self, name: str, depth: int, crosses: bool = False) -> None:
        self.name = name
        self.depth = depth
        self.crosses = crosses
        self.pushed = self.popped = self.announced = 0
        self.ready = np.zeros(depth, np.int64)
        self.freed = np.zeros(depth, np.int64)
        self.ready_chain = np.zeros((depth, len(Resource)), np.int64)
        self.freed_chain = np.zeros((depth, len(Resource)), np.int64)
        self.rows = np.zeros((depth, WIDTH), np.int64)
        self._ring = np.arange(2 * depth) % depth

    @property
    def fill(self) -> int:
        """Entries that wait to be popped."""
        return self.pushed - self.popped

    @property
    def space(self) -> int:
        """Entries that fit before the queue is full."""
        return self.depth - self.fill

    def slots(self, first: int, count: int) -> Indices:
        """Slots of the entries `first`, `first` + 1, ...; at most `depth` of them."""
        start = first % self.depth
        return self._ring[start : start + count]
