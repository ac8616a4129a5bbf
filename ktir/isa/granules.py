"""What element descriptors cost: memory moves granules of 32 bytes, and LX takes one fragment per cycle.

A granule is a burst of LPDDR5 (JEDEC JESD209-5: bursts of 16 on a channel of 16 bits). A run of a word moves each granule that it touches
once per core, however many of its elements it uses. A fragment is what stays together on the side of LX: a stick of adjacent lanes, or one
lane. The transfer takes as long as the slower side. Nothing is known of the indices of a gather or scatter, so that each position is priced
on its own, at the worst place in its first granule; the indices are read first, which takes the latency of memory once more. Stick
descriptors move whole sticks, and LX keeps up. The emulator and the cost model agree on these functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ktir.isa.access import Access, Counters, Ints
from ktir.isa.descriptor import Descriptor
from ktir.target import LANES, STICK_BYTES, Target


class ElementPrice:
    """The price of one run after the other of an element descriptor on the cores `owners`; `dim` is the one that indices choose."""

    def __init__(self, access: Access, owners: Sequence[int], target: Target, dim: int | None = None, lanes: int = LANES) -> None:
        self.access, self.target, self.dim, self.lanes = access, target, dim, lanes
        self.owners = np.array(owners, np.int64)
        first = np.broadcast_to(access.inner, (len(owners), access.entries))
        self.first = first if access.table is None else first + access.table[self.owners][:, None]
        """Address of each entry [owners, entries] of a walk that starts at 0."""
        self._known: dict[tuple[int, bytes], tuple[Ints, Ints]] = {}
        self._live: dict[bytes, Ints] = {}

    def live(self, counters: Counters) -> tuple[bytes, Ints]:
        """Live lanes of each entry [owners, entries], and what tells them from those of other trips; not to be written."""
        lanes = self.access.lanes(counters)
        key = b"" if lanes is None else lanes.tobytes()
        if key not in self._live:
            every = np.full((1, 1), self.lanes) if lanes is None else lanes[self.owners] if len(lanes) > 1 else lanes
            self._live[key] = np.minimum(np.broadcast_to(every, self.first.shape), self.lanes)
        return key, self._live[key]

    def of(self, counters: Counters) -> tuple[Ints, Ints]:
        """Granules and fragments per core."""
        d = self.access.descriptor
        granule = self.target.dram_granule_bytes
        pattern, live = self.live(counters)
        key = self.access.origin(counters) % granule, pattern
        if key not in self._known:
            first, pieces = self.first + self.access.origin(counters), fragments(live, d)
            if self.dim is not None:
                if d.stride[self.dim] % granule:
                    first = first // granule * granule + granule - d.element_bytes
                first, live = (_by_position(a, d.extent, self.dim) for a in (first, live))
            self._known[key] = granules(first, live, d, granule).reshape(len(self.owners), -1).sum(1), pieces
        return self._known[key]


def _by_position(a: Ints, extent: tuple[int, ...], dim: int) -> Ints:
    """Entries [cores, entries] as one row for each core and position along `dim`."""
    apart = np.moveaxis(a.reshape(-1, *extent), dim + 1, 1)
    return apart.reshape(apart.shape[0] * apart.shape[1], -1)


def granules(first: Ints, live: Ints, d: Descriptor, granule: int) -> Ints:
    """Per row the granules of so many bytes that entries touch; `first` has the address of each [rows, entries]."""
    if abs(d.lane_step) == d.element_bytes:
        last = first + (live - 1) * d.lane_step
        low, high = np.minimum(first, last) // granule, np.maximum(first, last) // granule
        at = low[..., None] + np.arange(d.entry_bytes // granule + 1)
        keep = (at <= high[..., None]) & (live > 0)[..., None]
    else:
        lane = np.arange(LANES)
        at = (first[..., None] + lane * d.lane_step) // granule
        keep = live[..., None] > lane
    row = np.broadcast_to(np.arange(len(at))[:, None, None], at.shape)[keep]
    at = at[keep]
    if not at.size:
        return np.zeros(len(first), np.int64)
    low = int(at.min())
    span = int(at.max()) - low + 1
    return np.bincount(np.unique(row * span + (at - low)) // span, minlength=len(first))


def fragments(live: Ints, d: Descriptor) -> Ints:
    """Per core the pieces in which LX sends or takes a walk's entries."""
    if d.lane_step in (0, d.element_bytes):
        return (live > 0).sum(-1) * -(-d.entry_bytes // STICK_BYTES)
    return live.sum(-1)
