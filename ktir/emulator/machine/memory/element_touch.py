"""The elements of memory that one execution of a word touches, for arguments that element descriptors use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np

from ktir.emulator.machine.memory.touch import Touch, tag_of
from ktir.isa.access import Access, Counters, Ints
from ktir.isa.descriptor import Descriptor
from ktir.isa.granules import ElementPrice
from ktir.isa.program import Kernel, Program
from ktir.target import LANES, STICK_BYTES, Target


def cell_sizes(program: Program) -> list[int]:
    """Per argument the elements of a shadow cell: as many as every descriptor takes or leaves together, 0 = sticks.

    An argument without element descriptors keeps sticks, whose lanes are counted; one that is read or written by index does not.
    """
    sizes = [min(STICK_BYTES // a.element_bytes, LANES) for a in program.arguments]
    elements = [False] * len(sizes)
    for kernel in program.kernels:
        for d in kernel.descriptors:
            if d.arg is not None:
                sizes[d.arg] = gcd(sizes[d.arg], *_steps(d, kernel))
                elements[d.arg] |= d.element
        for words in kernel.units.values():
            for w in words:
                if w.operands.get("index") is not None:
                    for d in (kernel.descriptors[w[name]] for name in ("src", "dst") if w[name] is not None):
                        if d.arg is not None:
                            elements[d.arg] = True
    return [size if used else 0 for size, used in zip(sizes, elements, strict=True)]


def _steps(d: Descriptor, kernel: Kernel) -> list[int]:
    """Distances in elements that a descriptor's live lanes may begin or end at."""
    out: list[int] = []
    if d.element:
        table = [] if d.core_table is None else kernel.tables[d.core_table]
        out += [v // d.element_bytes for v in (d.base, *d.stride, *d.level_step, d.rotate_step, *table)]
        out += [] if d.lane_stride == d.element_bytes else [1]
    for b in d.bounds:
        if b.lanes:
            out += [b.dim_step if b.dim is not None else 0, b.level_step, b.limit]
            out += [] if b.table is None else kernel.tables[b.table]
    return out


@dataclass(frozen=True)
class _Touched:
    """What a walk touches, with its lowest and highest element."""

    touch: Touch
    low: int
    high: int


class ElementToucher:
    """Makes the touches of one access by the cores `owners` in a shadow with cells of `cell` elements, and prices them.

    `lanes` lanes of an entry may be used; `dim` is the one that indices choose.
    """

    def __init__(
        self, access: Access, owners: Sequence[int], cell: int, target: Target, dim: int | None = None, lanes: int = LANES
    ) -> None:
        self.access = access
        self.cell = cell
        self.price = ElementPrice(access, owners, target, dim, lanes)
        self.lane = np.arange(0, lanes, cell if access.lane == 1 else 1)
        """The lane at which each cell of an entry begins."""
        self._unit = LANES // access.width
        """Lanes that a stick descriptor takes together."""
        self._apart = access.descriptor.element and access.lane == 1 and access.entries == 1
        d = access.descriptor
        self._first = self.price.first // d.element_bytes
        self._stride = 0 if dim is None else d.stride[dim] // d.element_bytes
        self._known: dict[tuple[bytes, bool], _Touched] = {}
        self._reaches: dict[bytes, tuple[int, int]] = {}

    def visits_twice(self, touch: Touch) -> bool:
        """Whether a core visits a cell twice."""
        if self._apart or not touch.cells.size:
            return False
        span = int(touch.cells.max()) + 1
        return np.unique(touch.owner * span + touch.cells).size < touch.cells.size

    def sticks(self, counters: Counters) -> int:
        """Sticks of memory that a stick descriptor touches."""
        live = self.price.live(counters)[1]
        return sum(int(np.count_nonzero(live > half * self._unit)) for half in range(self.access.width))

    def touch(self, counters: Counters, writes: bool = False) -> tuple[Touch, int, int]:
        """The cells, and the lowest and highest element; empty touches give (0, -1). Writes of stick descriptors take whole sticks."""
        pattern, live = self.price.live(counters)
        key = pattern, writes
        if key not in self._known:
            self._known[key] = self._touched(live, writes)
        known, shift = self._known[key], self._shift(counters)
        if not known.touch.cells.size:
            return known.touch, 0, -1
        return known.touch.moved(shift // self.cell), known.low + shift, known.high + shift

    def _shift(self, counters: Counters) -> int:
        """The element at which the walk starts."""
        return self.access.origin(counters) // self.access.descriptor.element_bytes

    def _touched(self, live: Ints, writes: bool) -> _Touched:
        unit = self._unit if writes and not self.access.descriptor.element else 1
        keep = live[..., None] > self.lane // unit * unit
        at = (self._first[..., None] + self.lane * self.access.lane)[keep]
        core, entry, _ = np.nonzero(keep)
        lanes = np.broadcast_to(live[..., None] > self.lane, keep.shape)[keep]
        zero = np.zeros(at.size, np.int64)
        tag = np.full(at.size, tag_of(self.access.descriptor), np.int8)
        touch = Touch(at // self.cell, self.price.owners[core], zero, entry, tag, lanes.astype(np.int64))
        if not at.size:
            return _Touched(touch, 0, -1)
        return _Touched(touch, int(at.min()), int(at.max()) + self.cell - 1)

    def reach(self, counters: Counters, size: int = 1) -> tuple[int, int]:
        """The lowest and highest element, with indices below `size`; (0, -1) where nothing is live."""
        pattern, live = self.price.live(counters)
        if pattern not in self._reaches:
            self._reaches[pattern] = self._reach(live)
        low, high = self._reaches[pattern]
        if high < low:
            return 0, -1
        span, shift = (size - 1) * self._stride, self._shift(counters)
        return low + shift + min(span, 0), high + shift + max(span, 0)

    def _reach(self, live: Ints) -> tuple[int, int]:
        """The lowest and highest element of a walk that starts at 0, with indices 0."""
        first = self._first
        if self.price.dim is not None:
            first = first - self.access.positions(self.price.dim) * self._stride
        if not (live > 0).any():
            return 0, -1
        last = (live - 1) * self.access.lane
        low, high = (first + np.minimum(last, 0))[live > 0].min(), (first + np.maximum(last, 0))[live > 0].max()
        return int(low), int(high)
