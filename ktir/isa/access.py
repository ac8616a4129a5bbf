"""A descriptor resolved for one kernel: which addresses its entries have, and which of their lanes are live."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir.isa.descriptor import Bound, Descriptor
from ktir.isa.program import Kernel
from ktir.target import LANES, STICK_BYTES

Ints = NDArray[np.int64]
Counters = tuple[int, ...]

PAD = {"zero": 0.0, "-inf": -np.inf, "+inf": np.inf}


class _Clip:
    """A bound: live iff position < limit."""

    def __init__(self, bound: Bound, extent: tuple[int, ...], kernel: Kernel) -> None:
        self.bound = bound
        n = prod(extent)
        self.position = np.zeros(n, np.int64)
        if bound.dim is not None:
            self.position = np.arange(n) // prod(extent[bound.dim + 1 :]) % extent[bound.dim] * bound.dim_step
        limits = [bound.limit] if bound.table is None else kernel.tables[bound.table]
        self.limit = np.array(limits, np.int64)
        self.need = LANES if bound.lanes else 1
        self.slack = int(self.limit.min()) - int(self.position.max(initial=0))

    def origin(self, counters: Counters, corelet: int) -> int:
        """The part of the position that all entries share."""
        b = self.bound
        return (b.level_step * counters[b.level] if b.level is not None else 0) + corelet * b.corelet_step

    def lanes(self, origin: int) -> Ints:
        """Live lanes [cores | 1, entries]."""
        room = self.limit[:, None] - (self.position + origin)
        if self.bound.lanes:
            return np.minimum(np.maximum(room, 0), LANES)
        return np.where(room > 0, LANES, 0)


class Access:
    """A descriptor of a kernel with its core tables.

    `entries` entries of `width` sticks each (2 for f32, 1 for f16 and for the half stick of bytes), with `lane` elements between the lanes
    of one; `inner` has their addresses relative to `origin`, in bytes as all addresses are.
    """

    def __init__(self, index: int, descriptor: Descriptor, kernel: Kernel) -> None:
        self.index = index
        self.descriptor = d = descriptor
        self.cores = kernel.cores
        self.entries = d.entries
        self.width = -(-d.entry_bytes // STICK_BYTES)
        self.lane = d.lane_step // d.element_bytes
        self.pad = PAD[d.pad]
        self.table = None if d.core_table is None else np.array(kernel.tables[d.core_table], np.int64)
        inner = np.zeros(1, np.int64)
        for extent, stride in zip(d.extent, d.stride, strict=True):
            inner = (inner[:, None] + np.arange(extent, dtype=np.int64) * stride).ravel()
        self.inner = inner
        self._steps = [(level, step) for level, step in enumerate(d.level_step) if step]
        self._rotate = [level for level in range(len(d.level_step)) if d.rotate_levels >> level & 1] if d.buffers > 1 else []
        self.clips = [_Clip(b, d.extent, kernel) for b in d.bounds]

    def origin(self, counters: Counters, corelet: int = 0) -> int:
        """Address of the walk's start without the core table, in the argument or in LX."""
        d = self.descriptor
        at = d.base + corelet * d.corelet_step
        for level, step in self._steps:
            at += step * counters[level]
        if self._rotate:
            at += sum(counters[level] for level in self._rotate) % d.buffers * d.rotate_step
        return at

    def addresses(self, counters: Counters, corelet: int = 0) -> Ints:
        """Address of each entry [cores | 1, entries]; dead positions have one too."""
        at = self.inner[None, :] + self.origin(counters, corelet)
        return at if self.table is None else at + self.table[:, None]

    def sticks(self, counters: Counters, corelet: int = 0) -> Ints:
        """First stick of each entry [cores | 1, entries]; dead positions have one too."""
        return self.addresses(counters, corelet) // STICK_BYTES

    def elements(self, counters: Counters) -> Ints:
        """Element of lane 0 of each entry [cores | 1, entries] in an argument: in its carrier, flat."""
        return self.addresses(counters) // self.descriptor.element_bytes

    def positions(self, dim: int) -> Ints:
        """Position of each entry along an inner dim."""
        extent = self.descriptor.extent
        return np.arange(self.entries) // prod(extent[dim + 1 :]) % extent[dim]

    def lanes(self, counters: Counters, corelet: int = 0) -> Ints | None:
        """Live lanes of each entry [cores | 1, entries], 0 to 64, or None if every lane is live."""
        live: Ints | None = None
        for clip in self.clips:
            origin = clip.origin(counters, corelet)
            if clip.slack - origin >= clip.need:
                continue
            lanes = clip.lanes(origin)
            live = lanes if live is None else np.minimum(live, lanes)
        return None if live is None or live.min(initial=LANES) >= LANES else live
