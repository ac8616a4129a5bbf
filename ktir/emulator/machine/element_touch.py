"""The elements of memory that one execution of a word touches, for arguments that element descriptors use."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ktir.isa.descriptor import Descriptor
from ktir.isa.granules import fragments, granules
from ktir.isa.program import Kernel, Program
from ktir.target import LANES, STICK_BYTES, Target

from .access import Access, Counters, Ints
from .touch import F16, HIGH, LOW, Touch


def cell_sizes(program: Program) -> list[int]:
    """Per argument the elements of a shadow cell: as many as every descriptor takes or leaves together, 0 = sticks.

    An argument without element descriptors keeps sticks, whose lanes are counted.
    """
    sizes = [STICK_BYTES // a.element_bytes for a in program.arguments]
    elements = [False] * len(sizes)
    for kernel in program.kernels:
        for d in kernel.descriptors:
            if d.arg is not None:
                sizes[d.arg] = gcd(sizes[d.arg], *_steps(d, kernel))
                elements[d.arg] |= d.element
    return [size if used else 0 for size, used in zip(sizes, elements, strict=True)]


def _steps(d: Descriptor, kernel: Kernel) -> list[int]:
    """Distances in elements that a descriptor's live lanes may begin or end at."""
    out: list[int] = []
    if d.element:
        table = [] if d.core_table is None else kernel.tables[d.core_table]
        out += [d.base, *d.stride, *d.level_step, d.rotate_step, *table, *([] if d.lane_stride == 1 else [1])]
    for b in d.bounds:
        if b.lanes:
            out += [b.dim_step if b.dim is not None else 0, b.level_step, b.limit]
            out += [] if b.table is None else kernel.tables[b.table]
    return out


class ElementToucher:
    """Makes the touches of one access by the cores `owners` in a shadow with cells of `cell` elements; `lanes` of an entry may be used."""

    def __init__(self, access: Access, owners: Sequence[int], cell: int, lanes: int = LANES) -> None:
        self.access = access
        self.owners = np.array(owners, np.int64)
        self.cell = cell
        d = access.descriptor
        self.lane = np.arange(0, lanes, cell if access.lane == 1 else 1)
        """The lane at which each cell of an entry begins."""
        first = np.broadcast_to(access.inner, (len(owners), access.entries))
        if access.table is not None:
            first = first + access.table[self.owners][:, None]
        self._first = first
        self._unit = LANES // access.width
        """Lanes that a stick descriptor takes together."""
        self._apart = d.element and access.lane == 1 and access.entries == 1
        self._priced: dict[tuple[int, bytes], tuple[Ints, Ints]] = {}

    def visits_twice(self, touch: Touch) -> bool:
        """Whether a core visits a cell twice."""
        if self._apart or not touch.cells.size:
            return False
        span = int(touch.cells.max()) + 1
        return np.unique(touch.owner * span + touch.cells).size < touch.cells.size

    def sticks(self, counters: Counters) -> int:
        """Sticks of memory that a stick descriptor touches."""
        live = self._live(counters)
        return sum(int(np.count_nonzero(live > half * self._unit)) for half in range(self.access.width))

    def touch(self, counters: Counters, writes: bool = False) -> tuple[Touch, int, int]:
        """The cells, and the lowest and highest element; empty touches give (0, -1). Writes of stick descriptors take whole sticks."""
        first, live = self._walk(counters)
        unit = self._unit if writes and not self.access.descriptor.element else 1
        keep = live[..., None] > self.lane // unit * unit
        at = (first[..., None] + self.lane * self.access.lane)[keep]
        core, entry, _ = np.nonzero(keep)
        lanes = np.broadcast_to(live[..., None] > self.lane, keep.shape)[keep]
        zero = np.zeros(at.size, np.int64)
        tag = np.full(at.size, F16, np.int8) if self.access.width == 1 else np.where(at // self._unit % 2, HIGH, LOW).astype(np.int8)
        touch = Touch(at // self.cell, self.owners[core], zero, entry, tag, lanes.astype(np.int64))
        if not at.size:
            return touch, 0, -1
        return touch, int(at.min()), int(at.max()) + self.cell - 1

    def misaligned(self, counters: Counters) -> bool:
        """Whether a stick descriptor of f32 begins entries at the second stick of a pair."""
        if self.access.descriptor.element or self.access.width == 1:
            return False
        at = self._first + self.access.origin(counters)
        return bool((at % self.access.width)[self._live(counters) > 0].any())

    def price(self, counters: Counters, target: Target, dim: int | None = None) -> tuple[Ints, Ints]:
        """Per core the granules of memory and the fragments of LX. Nothing is known of indices along `dim`: each is priced on its own."""
        first, live = self._walk(counters)
        d = self.access.descriptor
        per = target.dram_granule_bytes // d.element_bytes
        key = self.access.origin(counters) % per, b"" if live.min(initial=LANES) == LANES else live.tobytes()
        if key not in self._priced:
            pieces = fragments(live, d) if d.element else np.zeros(len(live), np.int64)
            if dim is not None:
                if self.access.elements(np.array(d.stride[dim])) % per:
                    first = first // per * per + per - 1
                first, live = (_by_position(a, d.extent, dim) for a in (first, live))
            counted = granules(first, live, d, target).reshape(len(self.owners), -1).sum(1)
            self._priced[key] = counted, pieces
        return self._priced[key]

    def _walk(self, counters: Counters) -> tuple[Ints, Ints]:
        """Element of lane 0 and live lanes of each entry [owners, entries]."""
        return self.access.elements(self._first + self.access.origin(counters)), self._live(counters)

    def _live(self, counters: Counters) -> NDArray[np.int64]:
        lanes = self.access.lanes(counters)
        if lanes is None:
            return np.full(self._first.shape, LANES)
        return np.broadcast_to(lanes[self.owners] if len(lanes) > 1 else lanes, self._first.shape)


def _by_position(a: Ints, extent: tuple[int, ...], dim: int) -> Ints:
    """Entries [cores, entries] as one row for each core and position along `dim`."""
    apart = np.moveaxis(a.reshape(-1, *extent), dim + 1, 1)
    return apart.reshape(apart.shape[0] * apart.shape[1], -1)
