"""Which memory a walk touches, on every core and in every trip, for access tiles of KTIR and for descriptors alike, so that two of them
can be compared.

Addresses count elements. An address is origin[core, trips] + corelet * step + inner[entry] + lane * lane step; what lies beyond a limit
is dead. Arrays over cores and trips have an axis for each, see `grid`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from ktir.checking.stream.grid import LEVELS, Ints, along, levels_of, number, points, taken
from ktir.checking.stream.tiles import Tile
from ktir.isa.descriptor import Bound, Descriptor
from ktir.isa.program import Kernel
from ktir.target import LANES

Trips = Mapping[int, int]
"""Trips of the open loops by level."""


@dataclass(frozen=True)
class Limit:
    """An entry (or lane, if `lanes`) is live where position[corelet, entry] (+ lane) is below the room at its core and trips."""

    position: Ints
    room: Ints
    lanes: bool

    @property
    def binds(self) -> bool:
        """Whether it makes anything dead."""
        return bool(self.room.min() - self.position.max(initial=0) < (LANES if self.lanes else 1))

    def same(self, other: Limit) -> bool:
        """Whether both say the same in the same words."""
        return self.lanes == other.lanes and bool((self.position == other.position).all()) and bool((self.room == other.room).all())

    def live(self, counters: Mapping[int, int]) -> Ints:
        """Live lanes [cores, corelets, entries]."""
        room = taken(self.room, counters)[:, None, None] - self.position
        return np.clip(room, 0, LANES) if self.lanes else np.where(room > 0, LANES, 0)


@dataclass(frozen=True)
class Footprint:
    """A walk of `inner.size` entries on `corelets` corelets. `argument` is that of the program, None for LX."""

    argument: int | None
    element_bytes: int
    half: str
    """The float of 16 bits that elements are, empty for wider ones."""
    trips: Trips
    cores: int
    origin: Ints
    corelet_step: int
    corelets: int
    inner: Ints
    lane_step: int
    limits: tuple[Limit, ...] = ()
    splat: bool = False
    pad: str = "zero"
    positions: Ints | None = field(default=None)
    """Of a gather or scatter: the position that an index replaces, of each entry; `inner` leaves it out and `stride` is its step."""
    stride: int = 0

    def picked(self, order: Ints) -> Footprint:
        """With entries in another order, or some of them."""
        limits = tuple(replace(x, position=x.position[:, order]) for x in self.limits)
        positions = None if self.positions is None else self.positions[order]
        return replace(self, inner=self.inner[order], limits=limits, positions=positions)

    def live(self, counters: Mapping[int, int]) -> Ints:
        """Live lanes [cores, corelets, entries]."""
        found = np.full((self.cores, self.corelets, self.inner.size), LANES)
        for limit in self.limits:
            found = np.minimum(found, limit.live(counters))
        return found

    @property
    def levels(self) -> set[int]:
        """Levels that decide what is live."""
        return {level for limit in self.limits for level in levels_of(limit.room)}

    def ever_live(self) -> Ints:
        """Most live lanes of each entry [corelets, entries] over all cores and trips."""
        if not self.limits:
            return np.full((self.corelets, self.inner.size), LANES)
        return np.maximum.reduce([self.live(at).max(0) for at in points(self.levels, self.trips)])


def of_tile(
    tile: Tile,
    coordinates: Mapping[int, Ints],
    trips: Trips,
    cores: int,
    arguments: Sequence[int],
    *,
    corelets: int = 1,
    apart: Mapping[int, int] | None = None,
    splat: bool = False,
) -> Footprint:
    """What a walk over an access tile touches. `coordinates` has the coordinate of each entry per dim but the last (those left out are 0);
    the second corelet lies `apart` further along a dim."""
    apart = apart or {}
    n = next((c.size for c in coordinates.values()), 1)
    inner = sum((c * tile.strides[d] for d, c in coordinates.items()), np.zeros(n, np.int64))
    limits = []
    for clip in tile.clips:
        at = coordinates.get(clip.dim, np.zeros(n, np.int64))
        position = clip.step * np.stack([at + k * apart.get(clip.dim, 0) for k in range(corelets)])
        limits.append(Limit(position, clip.room, clip.lanes))
    return Footprint(
        argument=None if tile.local or tile.first.argument is None else arguments[tile.first.argument],
        element_bytes=tile.element_bytes,
        half=tile.half,
        trips=trips,
        cores=cores,
        origin=tile.first.at,
        corelet_step=sum(tile.strides[d] * rows for d, rows in apart.items()),
        corelets=corelets,
        inner=np.broadcast_to(inner, (n,)),
        lane_step=tile.strides[-1],
        limits=tuple(limit for limit in limits if limit.binds),
        splat=splat,
    )


def _counter(level: int, trips: Trips) -> Ints:
    """A loop counter on the grid; one that is not open stays 0."""
    return along(1 + level, np.arange(trips.get(level, 1)))


def of_descriptor(d: Descriptor, kernel: Kernel, trips: Trips, corelets: int, looked_up: int | None = None) -> Footprint:
    """What a walk of a descriptor touches; `looked_up` is the inner dim whose position an index replaces."""
    n = d.entries
    index = [np.arange(n) // prod(d.extent[i + 1 :]) % d.extent[i] for i in range(len(d.extent))]
    walked = [(p, s) for i, (p, s) in enumerate(zip(index, d.stride, strict=True)) if i != looked_up]
    origin = number(d.base).at
    if d.core_table is not None:
        origin = origin + along(0, np.array(kernel.tables[d.core_table]))
    turn = number(0).at
    for level in range(LEVELS):
        counter = _counter(level, trips)
        if d.level_step[level]:
            origin = origin + d.level_step[level] * counter
        if d.rotate_levels >> level & 1:
            turn = turn + counter
    limits = [_limit(b, kernel, index, trips, n, corelets) for b in d.bounds]
    return Footprint(
        argument=d.arg,
        element_bytes=d.element_bytes,
        half="" if d.element_bytes == 4 else d.half,
        trips=trips,
        cores=kernel.cores,
        origin=(origin + turn % d.buffers * d.rotate_step) // d.element_bytes,
        corelet_step=d.corelet_step // d.element_bytes,
        corelets=corelets,
        inner=sum((p * s for p, s in walked), np.zeros(n, np.int64)) // d.element_bytes,
        lane_step=d.lane_step // d.element_bytes,
        limits=tuple(limit for limit in limits if limit.binds),
        splat=d.splat,
        pad=d.pad,
        positions=None if looked_up is None else index[looked_up],
        stride=0 if looked_up is None else d.stride[looked_up] // d.element_bytes,
    )


def _limit(b: Bound, kernel: Kernel, index: Sequence[Ints], trips: Trips, n: int, corelets: int) -> Limit:
    room = number(b.limit).at if b.table is None else along(0, np.array(kernel.tables[b.table]))
    if b.level is not None and b.level_step:
        room = room - b.level_step * _counter(b.level, trips)
    at = np.zeros(n, np.int64) if b.dim is None else index[b.dim] * b.dim_step
    return Limit(np.stack([at + k * b.corelet_step for k in range(corelets)]), room, b.lanes)


def difference(expected: Footprint, found: Footprint, *, lanes: int = LANES) -> str | None:
    """In words, how what a word touches differs from what KTIR says; None where both are the same function.

    `lanes`: how many lanes of an entry count.
    """
    if found.inner.size != expected.inner.size:
        return f"walks {found.inner.size} entries, but KTIR {expected.inner.size}"
    dead = _liveness(expected, found)
    if dead:
        return dead
    if expected.limits and found.pad != expected.pad:
        return f"pads with {found.pad}, but KTIR with {expected.pad}"
    live = expected.ever_live()
    if not live.any():
        return None
    if found.argument != expected.argument:
        return f"is on {_where(found)}, but KTIR on {_where(expected)}"
    if found.element_bytes != expected.element_bytes:
        return f"has elements of {found.element_bytes} bytes, but KTIR of {expected.element_bytes}"
    if found.half != expected.half:
        return f"has elements of {found.half}, but KTIR of {expected.half}"
    if found.splat != expected.splat:
        return f"{'repeats' if found.splat else 'does not repeat'} lane 0, unlike KTIR"
    if lanes > 1 and (live > 1).any() and not found.splat and found.lane_step != expected.lane_step:
        return f"has lanes {found.lane_step} elements apart, but KTIR {expected.lane_step}"
    return _positions(expected, found, live) or _addresses(expected, found, live)


def _where(x: Footprint) -> str:
    return "LX" if x.argument is None else f"argument {x.argument}"


def _positions(expected: Footprint, found: Footprint, live: Ints) -> str | None:
    if (found.positions is None) != (expected.positions is None):
        return "looks up a dimension, unlike KTIR" if expected.positions is None else "looks up no dimension, unlike KTIR"
    if found.positions is not None and expected.positions is not None:
        if found.stride != expected.stride:
            return f"steps {found.stride} elements per index, but KTIR {expected.stride}"
        if (found.positions != expected.positions)[live.any(0)].any():
            return "takes its indices in another order than KTIR"
    return None


def _addresses(expected: Footprint, found: Footprint, live: Ints) -> str | None:
    """Where addresses differ: over all cores and trips at the first live entry, of the others how far from it they are."""
    for corelet in range(expected.corelets):
        entries = np.flatnonzero(live[corelet])
        if not entries.size:
            continue
        first = entries[0]
        mine, theirs = (x.origin + corelet * x.corelet_step + x.inner[first] for x in (found, expected))
        unlike = mine != theirs
        place = f", corelet {corelet}" if expected.corelets > 1 else ""
        if unlike.any():
            core, *counters = (int(i) for i in np.argwhere(unlike)[0])
            trip = "".join(f", i{level} = {counters[level]}" for level in range(LEVELS) if unlike.shape[1 + level] > 1)
            a, b = (int(np.broadcast_to(x, unlike.shape)[(core, *counters)]) for x in (mine, theirs))
            return f"touches element {a} at core {core}{place}, entry {first}{trip}, but KTIR {b}"
        apart = [x.inner[entries] - x.inner[first] for x in (found, expected)]
        if (apart[0] != apart[1]).any():
            k = int(np.argmax(apart[0] != apart[1]))
            a, b = (int(mine.flat[0] + x[k]) for x in apart)
            return f"touches element {a} at core 0{place}, entry {entries[k]}, but KTIR {b}"
    return None


def _liveness(expected: Footprint, found: Footprint) -> str | None:
    """How live lanes differ."""
    mine, theirs = list(found.limits), list(expected.limits)
    if len(mine) == len(theirs) and all(any(x.same(y) for y in theirs) for x in mine) and all(any(x.same(y) for y in mine) for x in theirs):
        return None
    levels = expected.levels | found.levels
    for at in points(levels, expected.trips):
        a, b = found.live(at), expected.live(at)
        if (a != b).any():
            core, corelet, k = np.argwhere(a != b)[0]
            trip = "".join(f", i{level} = {n}" for level, n in at.items())
            place = f"core {core}" + (f", corelet {corelet}" if expected.corelets > 1 else "") + f", entry {k}{trip}"
            return f"has {a[core, corelet, k]} live lanes at {place}, but KTIR {b[core, corelet, k]}"
    return None
