"""Which memory a walk touches, as a function of core, corelet, loop counters and entry: in one normal form for access tiles of KTIR and
for descriptors, so that two of them can be compared over all cores and trips at once.

Addresses count elements. An address is base[core] + corelet * step + inner[entry] + lane * lane step + steps[level] * counter[level]
+ rotation; what lies beyond a clip is dead.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir.isa.descriptor import Descriptor
from ktir.isa.program import Kernel
from ktir.lowering.ktir_to_spyre.access import Tile
from ktir.target import LANES, STICK_BYTES

Ints = NDArray[np.int64]
Trips = Mapping[int, int]
"""Trips of the open loops by level."""


@dataclass(frozen=True)
class Limit:
    """An entry (or lane, if `lanes`) is live where position[corelet, entry] + sum of steps[level] * counter[level] (+ lane) is below
    limit[core]."""

    position: Ints
    steps: Mapping[int, int]
    limit: Ints
    lanes: bool

    def binds(self, trips: Trips) -> bool:
        """Whether it makes anything dead."""
        most = int(self.position.max(initial=0)) + sum(max(step, 0) * (trips[level] - 1) for level, step in self.steps.items())
        return bool((self.limit - most < (LANES if self.lanes else 1)).any())

    def same(self, other: Limit) -> bool:
        """Whether both say the same in the same words."""
        return (
            self.lanes == other.lanes
            and self.steps == other.steps
            and bool((self.position == other.position).all())
            and bool((self.limit == other.limit).all())
        )

    def live(self, counters: Mapping[int, int]) -> Ints:
        """Live lanes [cores, corelets, entries]."""
        moved = sum(step * counters[level] for level, step in self.steps.items())
        room = self.limit[:, None, None] - self.position - moved
        return np.clip(room, 0, LANES) if self.lanes else np.where(room > 0, LANES, 0)


@dataclass(frozen=True)
class Footprint:
    """A walk of `inner.size` entries on `corelets` corelets. `argument` is that of the program, None for LX.

    `rotation` is (levels, buffers, step): ((sum of the counters of `levels`) mod `buffers`) * `step`.
    """

    argument: int | None
    element_bytes: int
    trips: Trips
    base: Ints
    corelet_step: int
    corelets: int
    inner: Ints
    lane_step: int
    steps: Mapping[int, int]
    rotation: tuple[tuple[int, ...], int, int] | None = None
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
        found = np.full((len(self.base), self.corelets, self.inner.size), LANES)
        for limit in self.limits:
            found = np.minimum(found, limit.live(counters))
        return found

    @property
    def levels(self) -> set[int]:
        """Levels that decide what is live."""
        return {level for limit in self.limits for level in limit.steps}

    def ever_live(self) -> Ints:
        """Most live lanes of each entry [corelets, entries] over all cores and trips."""
        if not self.limits:
            return np.full((self.corelets, self.inner.size), LANES)
        return np.maximum.reduce([self.live(at).max(0) for at in counters(self.levels, self.trips)])


def counters(levels: set[int], trips: Trips) -> list[dict[int, int]]:
    """All values of the counters of some levels."""
    order = sorted(levels)
    return [dict(zip(order, at, strict=True)) for at in itertools.product(*(range(trips[level]) for level in order))]


def _moving(steps: Mapping[int, int], trips: Trips) -> dict[int, int]:
    """The steps that matter: of loops of several trips. A level that is not open keeps its step, and differs from all others."""
    return {level: step for level, step in steps.items() if step and trips.get(level, 2) > 1}


def _rotation(
    levels: Sequence[int], buffers: int, step: int, steps: dict[int, int], trips: Trips
) -> tuple[dict[int, int], tuple[tuple[int, ...], int, int] | None]:
    """Steps and rotation in normal form: one that never comes back to the first buffer is a step."""
    moving = tuple(level for level in levels if trips.get(level, 2) > 1)
    if buffers <= 1 or not step or not moving:
        return steps, None
    if sum(trips.get(level, buffers) - 1 for level in moving) < buffers:
        steps = {level: steps.get(level, 0) + (step if level in moving else 0) for level in {*steps, *moving}}
        return _moving(steps, trips), None
    return steps, (moving, buffers, step)


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
    anchor = tile.anchor
    steps, rotation = _moving(anchor.steps, trips), None
    if anchor.rotation:
        r = anchor.rotation
        steps, rotation = _rotation([i for i in range(32) if r.levels >> i & 1], r.buffers, r.step, steps, trips)
    limits = []
    for clip in tile.clips:
        at = coordinates.get(clip.dim, np.zeros(n, np.int64))
        position = clip.step * np.stack([at + k * apart.get(clip.dim, 0) for k in range(corelets)])
        room = clip.room
        assert room.argument is None
        assert room.rotation is None
        limit = np.broadcast_to(room.constant, (cores,))
        limits.append(Limit(position, _moving({level: -s for level, s in room.steps.items()}, trips), limit, clip.lanes))
    return Footprint(
        argument=None if tile.local or anchor.argument is None else arguments[anchor.argument],
        element_bytes=tile.element_bytes,
        trips=trips,
        base=np.broadcast_to(anchor.constant, (cores,)),
        corelet_step=sum(tile.strides[d] * rows for d, rows in apart.items()),
        corelets=corelets,
        inner=np.broadcast_to(inner, (n,)),
        lane_step=tile.strides[-1],
        steps=steps,
        rotation=rotation,
        limits=tuple(limit for limit in limits if limit.binds(trips)),
        splat=splat,
    )


def of_descriptor(d: Descriptor, kernel: Kernel, trips: Trips, corelets: int, looked_up: int | None = None) -> Footprint:
    """What a walk of a descriptor touches; `looked_up` is the inner dim whose position an index replaces."""
    unit = 1 if d.element else STICK_BYTES // d.element_bytes
    n = d.entries
    index = [np.arange(n) // prod(d.extent[i + 1 :]) % d.extent[i] for i in range(len(d.extent))]
    walked = [(p, s) for i, (p, s) in enumerate(zip(index, d.stride, strict=True)) if i != looked_up]
    table = np.zeros(kernel.cores, np.int64) if d.core_table is None else np.array(kernel.tables[d.core_table], np.int64)
    steps = _moving({level: step * unit for level, step in enumerate(d.level_step)}, trips)
    rotating = [level for level in range(len(d.level_step)) if d.rotate_levels >> level & 1 and level in trips]
    steps, rotation = _rotation(rotating, d.buffers, d.rotate_step * unit, steps, trips)
    limits = []
    for b in d.bounds:
        at = np.zeros(n, np.int64) if b.dim is None else index[b.dim] * b.dim_step
        limits.append(
            Limit(
                np.stack([at + k * b.corelet_step for k in range(corelets)]),
                _moving({} if b.level is None else {b.level: b.level_step}, trips),
                np.array([b.limit] * kernel.cores if b.table is None else kernel.tables[b.table], np.int64),
                b.lanes,
            )
        )
    return Footprint(
        argument=d.arg,
        element_bytes=d.element_bytes,
        trips=trips,
        base=(table + d.base) * unit,
        corelet_step=d.corelet_step * unit,
        corelets=corelets,
        inner=sum((p * s for p, s in walked), np.zeros(n, np.int64)) * unit,
        lane_step=d.lane_stride,
        steps=steps,
        rotation=rotation,
        limits=tuple(limit for limit in limits if limit.binds(trips)),
        splat=d.splat,
        pad=d.pad,
        positions=None if looked_up is None else index[looked_up],
        stride=0 if looked_up is None else d.stride[looked_up] * unit,
    )


def difference(expected: Footprint, found: Footprint, *, lanes: int = LANES) -> str | None:
    """In words, how what a word touches differs from what KTIR says; None where both are the same function.

    `lanes`: how many lanes of an entry count.
    """
    if found.inner.size != expected.inner.size:
        return f"walks {found.inner.size} entries, but KTIR {expected.inner.size}"
    dead = _liveness(expected, found)
    if dead:
        return dead
    live = expected.ever_live()
    if not live.any():
        return None
    if found.argument != expected.argument:
        return f"is on {_where(found)}, but KTIR on {_where(expected)}"
    if found.element_bytes != expected.element_bytes:
        return f"has elements of {found.element_bytes} bytes, but KTIR of {expected.element_bytes}"
    if found.splat != expected.splat:
        return f"{'repeats' if found.splat else 'does not repeat'} lane 0, unlike KTIR"
    if (live < LANES).any() and found.pad != expected.pad and expected.limits:
        return f"pads with {found.pad}, but KTIR with {expected.pad}"
    if lanes > 1 and (live > 1).any() and not found.splat and found.lane_step != expected.lane_step:
        return f"has lanes {found.lane_step} elements apart, but KTIR {expected.lane_step}"
    return _addresses(expected, found, live)


def _where(x: Footprint) -> str:
    return "LX" if x.argument is None else f"argument {x.argument}"


def _addresses(expected: Footprint, found: Footprint, live: Ints) -> str | None:
    if found.steps != expected.steps:
        level = min(k for k in {*found.steps, *expected.steps} if found.steps.get(k) != expected.steps.get(k))
        return f"steps {found.steps.get(level, 0)} elements per trip of level {level}, but KTIR {expected.steps.get(level, 0)}"
    if found.rotation != expected.rotation:
        return f"rotates {_turning(found)}, but KTIR {_turning(expected)}"
    if (found.positions is None) != (expected.positions is None):
        return "looks up a dimension, unlike KTIR" if expected.positions is None else "looks up no dimension, unlike KTIR"
    if found.positions is not None and expected.positions is not None:
        if found.stride != expected.stride:
            return f"steps {found.stride} elements per index, but KTIR {expected.stride}"
        if (found.positions != expected.positions)[live.any(0)].any():
            return "takes its indices in another order than KTIR"
    for corelet in range(expected.corelets):
        entries = np.flatnonzero(live[corelet])
        if not entries.size:
            continue
        mine, theirs = (x.base[:, None] + corelet * x.corelet_step + x.inner[entries] for x in (found, expected))
        if (mine != theirs).any():
            core, k = np.argwhere(mine != theirs)[0]
            at = f"core {core}" + (f", corelet {corelet}" if expected.corelets > 1 else "") + f", entry {entries[k]}"
            return f"touches element {mine[core, k]} at {at}, but KTIR {theirs[core, k]}"
    return None


def _turning(x: Footprint) -> str:
    if x.rotation is None:
        return "over one buffer"
    levels, buffers, step = x.rotation
    return f"over {buffers} buffers {step} elements apart with levels {', '.join(map(str, levels))}"


def _liveness(expected: Footprint, found: Footprint) -> str | None:
    """How live lanes differ."""
    mine, theirs = list(found.limits), list(expected.limits)
    if len(mine) == len(theirs) and all(any(x.same(y) for y in theirs) for x in mine) and all(any(x.same(y) for y in mine) for x in theirs):
        return None
    levels = expected.levels | found.levels
    if levels - expected.trips.keys():
        return f"is clipped by level {min(levels - expected.trips.keys())}, which is not open"
    for at in counters(levels, expected.trips):
        a, b = found.live(at), expected.live(at)
        if (a != b).any():
            core, corelet, k = np.argwhere(a != b)[0]
            trip = "".join(f", i{level} = {n}" for level, n in at.items())
            place = f"core {core}" + (f", corelet {corelet}" if expected.corelets > 1 else "") + f", entry {k}{trip}"
            return f"has {a[core, corelet, k]} live lanes at {place}, but KTIR {b[core, corelet, k]}"
    return None
