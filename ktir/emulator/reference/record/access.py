"""Accesses to buffers, resolved to addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import DuplicateTarget, OutOfBounds, Where
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.values import ELEMENT_BYTES, AccessTile, Known, Strided, View, simplify
from ktir.target import LANES

__all__ = ["Access", "AnyAccess", "Part", "Points", "Run", "resolve", "tiles_text"]

_BATCH = 1 << 21
"""Granule numbers held at once."""


@dataclass(frozen=True)
class Run:
    """`count` tiles from tile `first`: tile first + i is `step * i` elements after `start`."""

    first: int
    count: int
    start: int
    step: int


@dataclass(frozen=True)
class Part:
    """The live part of an access that is the same for all tiles in `runs`: per base dim first coordinate in the tile, and extent."""

    low: tuple[int, ...]
    extents: tuple[int, ...]
    runs: tuple[Run, ...]

    @property
    def tiles(self) -> int:
        return sum(run.count for run in self.runs)

    @property
    def elements(self) -> int:
        return int(np.prod(self.extents, dtype=np.int64))


@dataclass(frozen=True)
class Access:
    """A load or store of a tile by all tiles, as addresses: in elements of `element`, per base dim `strides`.

    Tile i of a run touches run.start + run.step*i + (low + p)·strides for p in the part's box.
    """

    tile: AccessTile
    parts: tuple[Part, ...]
    where: Where
    kernel: int
    write: bool
    epoch: int = 1
    clock: NDArray[np.int64] = field(default_factory=lambda: np.zeros((1, 1), np.int64))

    @property
    def view(self) -> View:
        assert isinstance(self.tile.view, View)
        return self.tile.view

    @property
    def element(self) -> str:
        return self.view.element

    @property
    def key(self) -> object:
        """Equal for accesses that touch the same addresses."""
        return (self.write, self.parts, self.view.strides, self.element, self.epoch)

    @property
    def several(self) -> bool:
        """Whether it is on more than one tile, or on another than tile 0."""
        return any(run.count > 1 or run.first for p in self.parts for run in p.runs)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Intervals of element addresses that hold all it touches."""
        for part in self.parts:
            for run in part.runs:
                yield self.at(part, run).span()

    def distance(self) -> int:
        """A number of bytes that divides every address and the length of every contiguous piece."""
        result, size = 0, ELEMENT_BYTES[self.element]
        for part in self.parts:
            for run in part.runs:
                at = self.at(part, run)
                low = Strided(at.shape[1:], at.strides[1:], at.offset).span()[0]
                block, rest = _blocks(at)
                result = gcd(result, low * size, block * size, at.strides[0] * size, *(s * size for s, _ in rest))
        return result

    def granules(self, granule: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Tile ids and, per tile, numbers of the granules that it touches."""
        size = ELEMENT_BYTES[self.element]
        for part in self.parts:
            for run in part.runs:
                at = self.at(part, Run(run.first, 1, run.start, 0))
                low = at.span()[0]
                block, rest = _blocks(at)
                ids = _granule_numbers(block, rest, size, granule) + low * size // granule
                step = max(1, _BATCH // ids.size)
                for first in range(0, run.count, step):
                    tiles = np.arange(first, min(first + step, run.count))
                    yield (run.first + tiles).astype(np.int32), ids + (tiles * run.step * size // granule)[:, None]

    @property
    def elements(self) -> int:
        """Elements moved, over all tiles."""
        return sum(part.elements * part.tiles for part in self.parts)

    @property
    def distinct_elements(self) -> int:
        """The same where what several tiles touch at the same addresses counts once: a multicast brings it to all of them."""
        most: dict[int, int] = {}
        for part in self.parts:
            corner = sum(low * s for low, s in zip(part.low, self.view.strides, strict=True))
            for run in part.runs:
                for i in range(run.count if run.step else 1):
                    start = run.start + i * run.step + corner
                    most[start] = max(most.get(start, 0), part.elements)
        return sum(most.values())

    def is_whole(self, tiles: int) -> bool:
        """Whether nothing is clipped and one run serves all `tiles`."""
        if len(self.parts) != 1:
            return False
        (part,) = self.parts
        return part.extents == self.tile.extents and len(part.runs) == 1 and part.runs[0].count == tiles

    def at(self, part: Part, run: Run) -> Strided:
        """The addresses of one run in tile order: axis 0 the tiles of the run."""
        view, order = self.view, self.tile.order
        offset = run.start + sum(low * s for low, s in zip(part.low, view.strides, strict=True))
        return Strided((run.count, *(part.extents[d] for d in order)), (run.step, *(view.strides[d] for d in order)), offset)

    def box(self, part: Part) -> tuple[tuple[int, int], ...]:
        """The part in tile dims."""
        return tuple((part.low[d], part.extents[d]) for d in self.tile.order)


@dataclass(eq=False)
class Points:
    """An access to single places, one contiguous `block` of elements at each of `addresses` [tiles, n].

    Addresses are known when recording (`dynamic` False), or a launch finds them out, just before it asks for anything else.
    """

    buffer_name: str
    element: str
    tiles: NDArray[np.int64]
    addresses: NDArray[np.int64] | None
    block: tuple[tuple[int, int], ...]
    """(stride, extent) of the dims of a block."""
    where: Where
    kernel: int
    write: bool
    epoch: int
    clock: NDArray[np.int64]
    valid: NDArray[np.bool_] | None = None
    dynamic: bool = False
    reach: int = 0
    """End of the addresses that it can touch."""
    adds: bool = False
    """A write that also reads what was there."""
    apart: bool = False
    """Found out with the addresses: no two blocks overlap, on whatever tiles. So it is not at odds with itself."""

    def all_apart(self) -> bool:
        """Whether no two blocks overlap, as far as blocks without gaps show it: at multiples of their length, all different."""
        length, rest = _blocks_of(self.block)
        touched = self._touched().reshape(-1)
        if rest or not touched.size or (length > 1 and (touched % length).any()):
            return not touched.size
        numbers = touched // length if length > 1 else touched
        low = int(numbers.min())
        if int(numbers.max()) - low < 8 * numbers.size:
            return int(np.bincount(numbers - low).max()) == 1
        ordered = np.sort(numbers)
        return not bool((ordered[1:] == ordered[:-1]).any())

    @property
    def key(self) -> object:
        return id(self)

    @property
    def several(self) -> bool:
        return self.tiles.size > 1 or bool(self.tiles.any())

    def _touched(self) -> NDArray[np.int64]:
        assert self.addresses is not None
        return self.addresses if self.valid is None else self.addresses[self.valid]

    def spans(self) -> Iterator[tuple[int, int]]:
        touched = self._touched()
        if touched.size:
            low = sum((n - 1) * s for s, n in self.block if s < 0)
            high = sum((n - 1) * s for s, n in self.block if s > 0)
            yield int(touched.min()) + low, int(touched.max()) + high + 1

    def distance(self) -> int:
        size = ELEMENT_BYTES[self.element]
        touched = self._touched()
        run, rest = _blocks_of(self.block)
        common = int(np.gcd.reduce(touched.reshape(-1))) if touched.size else 0
        return gcd(common * size, run * size, *(s * size for s, _ in rest))

    def granules(self, granule: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        assert self.addresses is not None
        size = ELEMENT_BYTES[self.element]
        run, rest = _blocks_of(self.block)
        ids = _granule_numbers(run, rest, size, granule)
        for i, tile in enumerate(self.tiles):
            addresses = self.addresses[i] if self.valid is None else self.addresses[i][self.valid[i]]
            step = max(1, _BATCH // max(1, ids.size))
            for first in range(0, addresses.size, step):
                some = addresses[first : first + step].astype(np.int64) * size // granule
                yield np.full(1, tile, np.int32), (some[:, None] + ids).reshape(1, -1)


AnyAccess = Access | Points


def _granule_numbers(run: int, rest: Sequence[tuple[int, int]], size: int, granule: int) -> NDArray[np.int64]:
    """Numbers of the granules of runs of `run` elements of `size` bytes, as `_blocks_of` finds them."""
    ids = np.arange(run * size // granule, dtype=np.int64)
    for stride, extent in rest:
        ids = np.add.outer(np.arange(extent, dtype=np.int64) * (stride * size // granule), ids).reshape(-1)
    return ids


def _blocks(at: Strided) -> tuple[int, list[tuple[int, int]]]:
    """Length of the contiguous runs of elements in the tile, and the other dims as (distance, extent)."""
    return _blocks_of(tuple(zip(at.strides[1:], at.shape[1:], strict=True)))


def _blocks_of(dims: Sequence[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    run, rest = 1, []
    for stride, extent in sorted((abs(s), n) for s, n in dims if n > 1 and s):
        if stride == run and not rest:
            run *= extent
        else:
            rest.append((stride, extent))
    return run, rest


def resolve(rec: Recording, tile: AccessTile, where: Where, write: bool) -> Access:
    """Clip `tile` where its view is masked, and find its addresses. Raises OutOfBounds where it exceeds a static size."""
    view = tile.view
    assert isinstance(view, View)
    low: list[Known] = []
    extents: list[Known] = []
    for dim, (anchor, extent, size) in enumerate(zip(tile.anchor, tile.extents, view.sizes, strict=True)):
        if view.masked[dim]:
            first = simplify(np.clip(np.negative(anchor), 0, extent))
            end = simplify(np.clip(np.subtract(size, anchor), 0, extent))
            low.append(first)
            extents.append(simplify(np.maximum(np.subtract(end, first), 0)))
            continue
        low.append(0)
        extents.append(extent)
        if rec.policy.bounds and extent:
            _check_bounds(rec, tile, dim, where, write)
    offset = view.offset
    for anchor, stride in zip(tile.anchor, view.strides, strict=True):
        offset = simplify(np.add(offset, np.multiply(anchor, stride)))
    parts: list[Part] = []
    if view.lanes is not None:
        stick, last = view.lanes
        low.append(simplify(np.subtract(last, np.add(np.multiply(tile.anchor[stick], LANES), tile.anchor[-1]))))
        extents.append(1)
    for members, clip_low, clip_extents in _groups(rec, low, extents):
        boxes = [(clip_low, clip_extents)]
        if view.lanes is not None:
            boxes = _cut_at_lane(clip_low[:-1], clip_extents[:-1], view.lanes[0], clip_low[-1])
        runs = tuple(_runs(members, offset))
        parts += [Part(corner, size, runs) for corner, size in boxes if 0 not in size]
    access = Access(tile, tuple(parts), where, rec.kernel, write, rec.epoch, rec.clock)
    if write:
        _check_apart(rec, access)
    return access


def _check_apart(rec: Recording, access: Access) -> None:
    """Raise DuplicateTarget where one tile's store writes an element twice: which value stays is not defined."""
    strides = access.view.strides
    for part in access.parts:
        if part.runs and (place := _met_twice(part.extents, strides)) is not None:
            run = part.runs[0]
            start = run.start + sum(low * s for low, s in zip(part.low, strides, strict=True))
            name = "LX" if access.view.buffer is None else f"'{access.view.buffer.name}'"
            raise DuplicateTarget(
                f"stores twice to element {start + place} of {name}, {'x'.join(map(str, part.extents))} elements with "
                f"{'stride 0' if len(strides) == 1 and not strides[0] else f'strides {list(strides)}'}"
                + (f" (tile {run.first})" if rec.tiles > 1 else ""),
                access.where,
                tiles=[run.first],
                address=start + place,
            )


def _met_twice(extents: Sequence[int], strides: Sequence[int]) -> int | None:
    """A place that two points of a box have, as distance from its corner; None if all have places of their own."""
    dims = sorted((abs(s), s, n) for s, n in zip(strides, extents, strict=True) if n > 1)
    reach = 1
    for distance, _, n in dims:
        if distance < reach:
            break
        reach = distance * (n - 1) + reach
    else:
        return None
    places = np.zeros(1, np.int64)
    for _, s, n in dims:
        places = np.add.outer(places, s * np.arange(n, dtype=np.int64)).reshape(-1)
    places.sort()
    same = np.flatnonzero(places[1:] == places[:-1])
    return int(places[same[0]]) if same.size else None


def _cut_at_lane(low: tuple[int, ...], extents: tuple[int, ...], stick: int, last: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The points of a box at which 64 * p[stick] + p[-1] <= last, as boxes: one per lane at which sticks end.

    A box of at most 64 lanes has two at most: whole sticks, and the last one.
    """
    sticks = low[stick] + np.arange(extents[stick])
    ends = np.clip(last + 1 - LANES * sticks - low[-1], 0, extents[-1])
    boxes = []
    for end in sorted(set(ends.tolist()), reverse=True):
        places = np.flatnonzero(ends == end)
        corner, size = list(low), list(extents)
        corner[stick], size[stick], size[-1] = low[stick] + int(places[0]), len(places), end
        boxes.append((tuple(corner), tuple(size)))
    return boxes


def _check_bounds(rec: Recording, tile: AccessTile, dim: int, where: Where, write: bool) -> None:
    assert isinstance(tile.view, View)
    anchor, extent, size = tile.anchor[dim], tile.extents[dim], tile.view.sizes[dim]
    bad = np.broadcast_to(np.less(anchor, 0) | np.greater(np.add(anchor, extent), size), (rec.tiles,))
    if rec.active is not None:
        bad = bad & rec.active
    if not bad.any():
        return
    tiles = np.flatnonzero(bad)
    first = int(np.broadcast_to(anchor, (rec.tiles,))[tiles[0]])
    bound = int(np.broadcast_to(size, (rec.tiles,))[tiles[0]])
    raise OutOfBounds(
        f"{'writes' if write else 'reads'} coordinates {first} to {first + extent - 1} in dim {dim} of a view of size {bound}"
        f"{tiles_text(rec, tiles)}",
        where,
        tiles=tiles.tolist(),
        address=first if first < 0 else max(first, bound),
    )


def tiles_text(rec: Recording, tiles: NDArray[np.int64]) -> str:
    if rec.tiles == 1:
        return ""
    return f" (tile {tiles[0]})" if len(tiles) == 1 else f" (tile {tiles[0]} and {len(tiles) - 1} others)"


def _groups(rec: Recording, low: list[Known], extents: list[Known]) -> list[tuple[NDArray[np.int64], tuple[int, ...], tuple[int, ...]]]:
    """Tiles by what part of the access is live: (tile ids, low corner, extents)."""
    rank = len(low)
    if rec.active is None and not any(isinstance(x, np.ndarray) for x in (*low, *extents)):
        return [(np.arange(rec.tiles), tuple(int(x) for x in low), tuple(int(x) for x in extents))]
    table = np.stack([np.broadcast_to(x, (rec.tiles,)) for x in (*low, *extents)], axis=1)
    ids = np.arange(rec.tiles) if rec.active is None else np.flatnonzero(rec.active)
    if not ids.size:
        return []
    kinds, which = np.unique(table[ids], axis=0, return_inverse=True)
    return [
        (ids[which.reshape(-1) == i], tuple(int(x) for x in row[:rank]), tuple(int(x) for x in row[rank:])) for i, row in enumerate(kinds)
    ]


def _runs(members: NDArray[np.int64], offset: Known) -> list[Run]:
    """`members` cut into runs of neighbouring tiles whose addresses have equal distances."""
    if not isinstance(offset, np.ndarray):
        cuts = np.flatnonzero(np.diff(members) != 1) + 1
        return [Run(int(r[0]), len(r), int(offset), 0) for r in np.split(members, cuts)]
    offsets = offset[members]
    runs: list[Run] = []
    i = 0
    while i < len(members):
        end = i + 1
        if end < len(members) and members[end] == members[i] + 1:
            step = offsets[end] - offsets[i]
            while end < len(members) and members[end] == members[i] + end - i and offsets[end] - offsets[end - 1] == step:
                end += 1
            runs.append(Run(int(members[i]), end - i, int(offsets[i]), int(step)))
        else:
            runs.append(Run(int(members[i]), 1, int(offsets[i]), 0))
        i = end
    return runs
