"""Addresses of descriptors in closed form: which bytes a word may touch over all cores, corelets, trips and positions.

The lanes of an entry are one more dimension of element descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ktir.isa.descriptor import LEVELS, Bound, Descriptor
from ktir.isa.program import Kernel
from ktir.target import LANES

_GRID = 1 << 22
"""Largest grid of cores, corelets and trips that bounds are evaluated on; beyond it they are left out, which only widens ranges."""
_WALK = 1 << 20
"""Largest walk whose addresses are enumerated."""


@dataclass(frozen=True)
class Range:
    """Bytes `low` to `high`, both included; `low` > `high` where nothing is touched."""

    low: int
    high: int

    @property
    def empty(self) -> bool:
        """Whether nothing is touched."""
        return self.low > self.high


def touched(d: Descriptor, kernel: Kernel, trips: dict[int, int], corelets: int) -> Range:
    """The range over every run of a word in loops with `trips` per open level, without positions and lanes that a bound clips."""
    if any(n == 0 for n in trips.values()):
        return Range(0, -1)
    bounds = d.bounds if _grid_size(d, kernel, trips, corelets) <= _GRID else ()
    levels = sorted({b.level for b in bounds if b.level is not None and b.level in trips})
    dims = _lane_dims(d) if bounds else []
    axes = [np.arange(kernel.cores), np.arange(corelets), *(np.arange(trips[level]) for level in levels)]
    axes += [np.arange(d.extent[dim]) for dim in dims]
    core, corelet, *counters = np.meshgrid(*axes, indexing="ij", sparse=True)
    positions = dict(zip(dims, counters[len(levels) :], strict=True))
    table = np.zeros(kernel.cores, np.int64) if d.core_table is None else np.array(kernel.tables[d.core_table], np.int64)
    start = d.base + table[core] + corelet * d.corelet_step
    for level, counter in zip(levels, counters, strict=False):
        start = start + d.level_step[level] * counter
    for dim, position in positions.items():
        start = start + d.stride[dim] * position
    live = np.ones((1,) * len(axes), bool)
    small = sum(abs(s) * e for s, e in zip(d.stride, d.extent, strict=True)) < 2**62  # where indices choose, an extent may be any number
    exact = np.int64 if small else object
    last = [np.full((1,) * len(axes), 0 if dim in positions else e - 1, exact) for dim, e in enumerate(d.extent)]
    last_lane = np.full((1,) * len(axes), LANES - 1, np.int64)
    for b in bounds:
        limit = np.int64(b.limit) if b.table is None else np.array(kernel.tables[b.table], np.int64)[core]
        room = limit - b.corelet_step * corelet
        if b.level is not None and b.level in levels:
            room = room - b.level_step * counters[levels.index(b.level)]
        if b.dim in positions:
            room = room - b.dim_step * positions[b.dim]
        live = live & (room > 0)
        if d.element and b.lanes:
            last_lane = np.minimum(last_lane, room - 1)
        if b.dim is not None and b.dim not in positions and b.dim_step:
            last[b.dim] = np.minimum(last[b.dim], -(-room // b.dim_step) - 1)
    if not live.any():
        return Range(0, -1)
    low = high = start
    for stride, end in zip((*d.stride, d.lane_step), (*last, last_lane), strict=True):
        low, high = low + np.minimum(0, stride * end), high + np.maximum(0, stride * end)
    live = np.broadcast_to(live, np.broadcast_shapes(live.shape, low.shape))
    minimum = int(np.min(np.broadcast_to(low, live.shape)[live]))
    maximum = int(np.max(np.broadcast_to(high, live.shape)[live]))
    free = [d.level_step[level] * (n - 1) for level, n in trips.items() if level not in levels]
    reach = rotation_reach(d, trips) * d.rotate_step + d.element_bytes - 1
    return Range(minimum + sum(min(0, f) for f in free), maximum + sum(max(0, f) for f in free) + reach)


def core_span(d: Descriptor, kernel: Kernel, trips: dict[int, int], enough: int) -> int:
    """Bytes from the first to the last that any one core touches in all runs of a word; an upper bound if that is not above `enough`."""
    table = [0] if d.core_table is None else kernel.tables[d.core_table]
    whole = touched(replace(d, bounds=()), kernel, trips, 1)
    most = 0 if whole.empty else whole.high - whole.low + 1 - (max(table) - min(table))
    if most <= enough:
        return most
    spans = []
    for core in range(kernel.cores):
        alone = replace(kernel, cores=1, tables=[[row[core]] for row in kernel.tables])
        found = touched(d, alone, trips, 1)
        spans.append(0 if found.empty else found.high - found.low + 1)
    return max(spans)


def misaligned(d: Descriptor, kernel: Kernel) -> int | None:
    """What a descriptor begins at or steps by that is no multiple of its unit."""
    places = (d.base, *([] if d.core_table is None else kernel.tables[d.core_table]))
    steps = (*d.stride, *d.level_step, d.rotate_step, d.corelet_step, *([] if d.lane_stride is None else [d.lane_stride]))
    return next((v for v in (*places, *steps) if v % d.unit), None)


def _grid_size(d: Descriptor, kernel: Kernel, trips: dict[int, int], corelets: int) -> int:
    size = kernel.cores * corelets
    for level in {b.level for b in d.bounds if b.level is not None}:
        size *= trips.get(level, 1)
    return size * prod(d.extent[dim] for dim in _lane_dims(d))


def _lane_dims(d: Descriptor) -> list[int]:
    """Dims whose positions decide how many lanes are live, where lanes have addresses of their own."""
    return sorted({b.dim for b in d.bounds if b.lanes and b.dim is not None}) if d.element else []


def indexed(d: Descriptor, dim: int, size: int) -> Descriptor:
    """The walk of all places that indices below `size` along `dim` may choose; bounds of that dim count positions, not indices."""
    extent = (*d.extent[:dim], size, *d.extent[dim + 1 :])
    return replace(d, extent=extent, bounds=tuple(replace(b, dim=None, dim_step=1) if b.dim == dim else b for b in d.bounds))


def rotation_reach(d: Descriptor, trips: dict[int, int]) -> int:
    """The highest buffer that the open levels reach."""
    steps = sum(n - 1 for level, n in trips.items() if d.rotate_levels >> level & 1)
    return min(d.buffers - 1, steps)


def buffer_bytes(d: Descriptor, trips: dict[int, int], corelets: int) -> int:
    """Bytes that one buffer spans: the walk, the corelets, and the levels that do not choose the buffer."""
    spans = [abs(stride) * (e - 1) for stride, e in zip(d.stride, d.extent, strict=True)]
    spans += [abs(d.level_step[level]) * max(n - 1, 0) for level, n in trips.items() if not d.rotate_levels >> level & 1]
    entry = d.element_bytes + abs(d.lane_step) * (LANES - 1)
    return sum(spans) + abs(d.corelet_step) * (corelets - 1) + entry


def stepped_levels(d: Descriptor) -> set[int]:
    """Levels whose counters move the address or a bound."""
    levels = {level for level in range(LEVELS) if d.level_step[level]}
    return levels | {b.level for b in d.bounds if b.level is not None and b.level_step}


def is_injective(d: Descriptor, kernel: Kernel, corelets: int) -> bool:
    """Whether no two live positions of one walk, on both corelets, share a stick, or an element of an element descriptor.

    Walks too long to enumerate must be visibly so. Where a bound clips lanes that have addresses of their own, only the run can tell.
    """
    extents, lanes = _live_extents(d, kernel)
    dims = [(e, s) for e, s in zip(extents, d.stride, strict=True) if e > 1]
    if corelets > 1:
        dims.append((corelets, d.corelet_step))
    if d.element and lanes > 1:
        if not d.lane_step:
            return False
        dims.append((lanes, d.lane_step))
    covered = whole = d.element_bytes if d.element else d.entry_bytes
    width = whole // d.unit
    nested = True
    for extent, stride in sorted(dims, key=lambda dim: abs(dim[1])):
        nested = nested and abs(stride) >= covered
        covered += abs(stride) * (extent - 1)
    if nested or _lane_dims(d):
        return True
    if width * prod(extent for extent, _ in dims) > _WALK:
        return False
    *position, corelet, lane, part = np.ogrid[tuple(map(slice, (*extents, corelets, lanes if d.element else 1, width)))]
    start = corelet * d.corelet_step + lane * d.lane_step + part * d.unit
    at = sum((p * stride for p, stride in zip(position, d.stride, strict=True)), start)
    live = np.ones(at.shape, bool)
    for b in d.bounds:
        walked = b.corelet_step * corelet + (b.dim_step * position[b.dim] if b.dim is not None else 0)
        live &= walked + (lane if b.lanes else 0) < _most(b, kernel)
    return len(np.unique(at[live])) == np.count_nonzero(live)


def _most(b: Bound, kernel: Kernel) -> int:
    """The limit of the core that has the largest one."""
    return b.limit if b.table is None else max(kernel.tables[b.table])


def _live_extents(d: Descriptor, kernel: Kernel) -> tuple[list[int], int]:
    """The extents without positions that are live on no core in no trip, and how many lanes of an entry are ever live."""
    extents, lanes = list(d.extent), LANES
    for b in d.bounds:
        limit = _most(b, kernel)
        if b.dim is not None and b.dim_step:
            extents[b.dim] = min(extents[b.dim], max(1, -(-limit // b.dim_step)))
        if b.lanes:
            lanes = min(lanes, max(1, limit))
    return extents, lanes


def is_contiguous(d: Descriptor) -> bool:
    """Whether one walk visits adjacent entries in order."""
    expected = d.entry_bytes
    for extent, stride in zip(reversed(d.extent), reversed(d.stride), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True
