"""The sticks that one execution of a word touches: flat index arrays into the shadows of LX and of an argument.

Cores whose LX addresses and live positions agree share one row of the LX shadow (a *class* of cores).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.isa.access import Access, Counters
from ktir.isa.descriptor import LEVELS, Descriptor
from ktir.isa.program import Argument, Kernel
from ktir.target import LANES, MOVED, STICK_BYTES

NEVER, F32 = range(2)
"""What a stick holds: nothing yet, or 32 lanes of 4 bytes; from 2 on 64 lanes of one kind of 16 bits, or of one byte."""

HALF = LANES // 2
"""Lanes of an f32 stick."""


def tag_of(held: Descriptor | Argument) -> int:
    """What sticks of a descriptor or an argument hold."""
    return F32 if held.element_bytes == 4 else 2 + MOVED.index(held.half)


@dataclass
class Touch:
    """Sticks of one word, flat over classes or cores, corelets, entries and halves.

    `cells` index the shadow; `owner` is the core (in LX one that stands for its class), `entry` the position in the walk, `tag` what the
    stick holds, `lanes` how many of the stick's lanes (of 64 or 32) are live, at least one.
    """

    cells: NDArray[np.int64]
    owner: NDArray[np.int64]
    corelet: NDArray[np.int64]
    entry: NDArray[np.int64]
    tag: NDArray[np.int8]
    lanes: NDArray[np.int64]

    def moved(self, cells: int) -> Touch:
        """The same `cells` cells further on."""
        return Touch(self.cells + cells, self.owner, self.corelet, self.entry, self.tag, self.lanes)

    def select(self, keep: NDArray[np.bool_], lanes: NDArray[np.int64]) -> Touch:
        """The part that `keep` marks, with other live lanes."""
        return Touch(self.cells[keep], self.owner[keep], self.corelet[keep], self.entry[keep], self.tag[keep], lanes[keep])


class Toucher:
    """Makes the touches of one access by the cores `owners`, whose sticks begin at row `rows[i]` of `row_sticks` sticks in the shadow."""

    def __init__(self, access: Access, owners: Sequence[int], rows: Sequence[int], row_sticks: int, corelets: int) -> None:
        self.access = access
        self.owners = np.array(owners, np.int64)
        self.corelets = corelets
        n, width = access.entries, access.width
        shape = (len(owners), corelets, n, width)
        d = access.descriptor
        stick = access.inner[:, None] // STICK_BYTES + np.arange(width)
        stick = stick + (np.arange(corelets) * d.corelet_step)[:, None, None] // STICK_BYTES
        stick = np.broadcast_to(stick, shape)
        if access.table is not None:
            stick = stick + access.table[self.owners][:, None, None, None] // STICK_BYTES
        self.low, self.high = (int(stick.min()), int(stick.max())) if stick.size else (0, -1)
        """First and last stick relative to the origin, if every position is live."""
        self._stick = np.ascontiguousarray(stick).ravel()

        def flat(values: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
            view = [1] * 4
            view[axis] = -1
            return np.broadcast_to(values.reshape(view), shape).ravel()

        self._owner_at = flat(np.arange(len(owners)), 0)
        self._half = flat(np.arange(width), 3)
        base = flat(np.array(rows, np.int64) * row_sticks, 0)
        self._all = Touch(
            self._stick + base,
            flat(self.owners, 0),
            flat(np.arange(corelets), 1),
            flat(np.arange(n), 2),
            np.full(self._stick.size, tag_of(d), np.int8),
            np.full(self._stick.size, LANES if width == 1 else HALF),
        )
        self._apart = np.unique(self._stick.reshape(-1, n * width)[0]).size == n * width

    def visits_twice(self, touch: Touch) -> bool:
        """Whether a core and corelet visits a live stick twice."""
        if self._apart:
            return False
        visits = np.stack([touch.owner, touch.corelet, touch.cells])
        return np.unique(visits, axis=1).shape[1] < visits.shape[1]

    def touch(self, counters: Counters) -> tuple[Touch, int, int]:
        """The sticks, and the lowest and highest of them within the memory; empty touches give (0, -1)."""
        access = self.access
        origin = access.origin(counters) // STICK_BYTES
        live = self._live(counters)
        every = self._all
        if live is None:
            t = Touch(every.cells + origin, every.owner, every.corelet, every.entry, every.tag, every.lanes)
            return t, self.low + origin, self.high + origin
        keep = live > 0
        t = every.select(keep, live)
        t.cells += origin
        if not t.cells.size:
            return t, 0, -1
        stick = self._stick[keep]
        return t, int(stick.min()) + origin, int(stick.max()) + origin

    def _live(self, counters: Counters) -> NDArray[np.int64] | None:
        """Live lanes per touched stick, or None if all are live."""
        per_corelet = [self.access.lanes(counters, k) for k in range(self.corelets)]
        if all(x is None for x in per_corelet):
            return None
        n = self.access.entries
        table = np.empty((len(self.owners), self.corelets, n), np.int64)
        for k, lanes in enumerate(per_corelet):
            table[:, k] = LANES if lanes is None else lanes[self.owners] if len(lanes) > 1 else lanes
        lanes = table[self._owner_at, self._all.corelet, self._all.entry]
        return lanes if self.access.width == 1 else np.minimum(np.maximum(lanes - HALF * self._half, 0), HALF)


def lx_classes(kernels: Sequence[tuple[Kernel, Iterable[Access], Sequence[int]]]) -> list[int]:
    """Class of each core. Each item: a kernel, its accesses, and per loop level the highest trip count."""
    cores = max((k.cores for k, _, _ in kernels), default=0)
    keys: list[list[object]] = [[] for _ in range(cores)]
    for kernel, accesses, trips in kernels:
        lx = [a for a in accesses if a.descriptor.space == "lx"]
        for core in range(cores):
            inside = core < kernel.cores
            keys[core].append(inside)
            if inside:
                for a in lx:
                    if a.table is not None:
                        keys[core].append(int(a.table[core]))
                    keys[core].extend(_effective_limits(a, core, trips))
    classes: dict[tuple[object, ...], int] = {}
    return [classes.setdefault(tuple(k), len(classes)) for k in keys]


def _effective_limits(access: Access, core: int, trips: Sequence[int]) -> list[int]:
    """The limits of a core's bounds, cut to the range of positions that can occur."""
    out = []
    for clip in access.clips:
        b = clip.bound
        if b.table is None:
            continue
        most = int(clip.position.max(initial=0)) + b.corelet_step + (LANES if b.lanes else 1)
        if b.level is not None and 0 <= b.level < LEVELS:
            most += b.level_step * max(trips[b.level] - 1, 0)
        out.append(min(max(int(clip.limit[core]), 0), most))
    return out
