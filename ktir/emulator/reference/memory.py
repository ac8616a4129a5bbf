"""Global memory while a program is recorded: buffers, and accesses resolved to strided memory.

A buffer is what backs a base address: an array of the caller, scratch, or (for addresses that are plain numbers) one memory
without content. Its *carrier* of an element type holds all its elements of that type as NumPy values; a launch fills the carriers
it reads from the caller's array and writes back what was written. Loads are views of a carrier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import Unsupported
from ktir.emulator.findings import OutOfBounds, OutOfBuffer, TypeConfusion, Where
from ktir.emulator.reference.tape import Assemble
from ktir.emulator.reference.values import (
    CARRIERS,
    ELEMENT_BYTES,
    AccessTile,
    Known,
    Storage,
    Strided,
    Tensor,
    simplify,
)

if TYPE_CHECKING:
    from ktir.emulator.reference.recorder import Recorder

__all__ = ["Access", "Buffer", "Memory", "Part", "Run", "resolve"]


@dataclass(eq=False)
class Buffer:
    """Memory behind base addresses. `size` in bytes, None where the program's own accesses decide it."""

    name: str
    size: int | None
    initialized: bool
    argument: int | None = None
    """Position of the caller's array among the distinct arrays of a launch; None: no array."""
    element: str | None = None
    """Element type of the array; None: views of any type may lie here."""
    carriers: dict[str, Storage] = field(default_factory=dict)

    def carrier(self, element: str) -> Storage:
        """The memory of all elements of this type; its size is settled when recording ends."""
        if element not in self.carriers:
            size = 0 if self.size is None else self.size // ELEMENT_BYTES[element]
            self.carriers[element] = Storage(CARRIERS[element], size, owner=self)
        return self.carriers[element]


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

    @property
    def elements(self) -> int:
        """Elements moved, over all tiles."""
        return sum(part.elements * part.tiles for part in self.parts)

    def is_whole(self, tiles: int) -> bool:
        """Whether nothing is clipped and one run serves all `tiles`."""
        if len(self.parts) != 1:
            return False
        (part,) = self.parts
        return part.extents == self.tile.extents and len(part.runs) == 1 and part.runs[0].count == tiles

    def at(self, part: Part, run: Run) -> Strided:
        """The addresses of one run in tile order: axis 0 the tiles of the run."""
        view, order = self.tile.view, self.tile.order
        offset = run.start + sum(low * s for low, s in zip(part.low, view.strides, strict=True))
        return Strided((run.count, *(part.extents[d] for d in order)), (run.step, *(view.strides[d] for d in order)), offset)

    def box(self, part: Part) -> tuple[tuple[int, int], ...]:
        """The part in tile dims."""
        return tuple((part.low[d], part.extents[d]) for d in self.tile.order)


def resolve(rec: Recorder, tile: AccessTile, where: Where, write: bool) -> Access:
    """Clip `tile` where its view is masked, and find its addresses. Raises OutOfBounds where it exceeds a static size."""
    view = tile.view
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
    for members, clip_low, clip_extents in _groups(rec, low, extents):
        if 0 in clip_extents:
            continue
        runs = tuple(_runs(members, offset))
        parts.append(Part(clip_low, clip_extents, runs))
    return Access(tile, tuple(parts), where, rec.kernel, write)


def _check_bounds(rec: Recorder, tile: AccessTile, dim: int, where: Where, write: bool) -> None:
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
        f"{_tiles_text(rec, tiles)}",
        where,
        tiles=tiles.tolist(),
        address=first if first < 0 else max(first, bound),
    )


def _tiles_text(rec: Recorder, tiles: NDArray[np.int64]) -> str:
    if rec.tiles == 1:
        return ""
    return f" (tile {tiles[0]})" if len(tiles) == 1 else f" (tile {tiles[0]} and {len(tiles) - 1} others)"


def _groups(rec: Recorder, low: list[Known], extents: list[Known]) -> list[tuple[NDArray[np.int64], tuple[int, ...], tuple[int, ...]]]:
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


class Memory:
    """All buffers of a recording and the accesses to them, in order."""

    def __init__(self, rec: Recorder) -> None:
        self.rec = rec
        self.buffers: list[Buffer] = []
        self.accesses: dict[Buffer, list[Access]] = {}
        self._numbers: Buffer | None = None

    def new(self, buffer: Buffer) -> Buffer:
        self.buffers.append(buffer)
        return buffer

    def numbered(self) -> Buffer:
        """The memory that addresses without a base lie in."""
        if self._numbers is None:
            self._numbers = self.new(Buffer("global memory", None, initialized=False))
        return self._numbers

    def load(self, tile: AccessTile, element: str, where: Where) -> Tensor:
        """The elements of `tile`; positions that a masked view clips read as zero."""
        rec = self.rec
        access = self._resolve(tile, where, write=False)
        rec.counts.read["global"] += access.elements * ELEMENT_BYTES[element]
        assert tile.view.buffer is not None
        memory = tile.view.buffer.carrier(element)
        born = len(rec.steps)
        if access.is_whole(rec.tiles):
            return Tensor(memory, access.at(access.parts[0], access.parts[0].runs[0]), element, born)
        shape = (rec.tiles, *tile.shape)
        runs = [(part, run) for part in access.parts for run in part.runs]
        if not runs:
            return rec.constant(np.zeros((), CARRIERS[element]), tile.shape, element)
        alike = len(runs) == 1 and runs[0][1].count == rec.tiles and runs[0][1].step == 0
        result = rec.temporary(shape, (1 if alike else rec.tiles, *tile.shape), element)
        covered = access.elements == rec.tiles * int(np.prod(tile.shape, dtype=np.int64))
        reads: list[Tensor] = []
        pieces: list[tuple[Strided, int]] = []
        for part, run in runs:
            target = result.at.box(access.box(part))
            pieces.append((target if alike else target.tiles(run.first, run.count), len(reads)))
            reads.append(Tensor(memory, access.at(part, run), element, born))
        zero = None if covered else CARRIERS[element](0)
        rec.emit(Assemble(tuple(reads), (result,), pieces=tuple(pieces), fill=zero))
        return result

    def store(self, value: Tensor, tile: AccessTile, where: Where) -> None:
        """Write `value` to `tile`; what a masked view clips is dropped."""
        rec = self.rec
        access = self._resolve(tile, where, write=True)
        if any(s == 0 and n > 1 for s, n in zip(tile.view.strides, tile.extents, strict=True)):
            raise Unsupported(f"{where} writes through a view with stride 0", where.location)
        rec.counts.written["global"] += access.elements * ELEMENT_BYTES[value.element]
        assert tile.view.buffer is not None
        memory = tile.view.buffer.carrier(value.element)
        reads: list[Tensor] = []
        pieces: list[tuple[Strided, int]] = []
        for part in access.parts:
            for run in part.runs:
                if run.step == 0 and run.count > 1:  # a race; if it is tolerated, the last tile wins
                    run = Run(run.first + run.count - 1, 1, run.start, 0)
                pieces.append((access.at(part, run), len(reads)))
                reads.append(value.moved(value.at.box(access.box(part)).tiles(run.first, run.count)))
        if pieces:
            target = Tensor(memory, pieces[0][0], value.element)
            rec.emit(Assemble(tuple(reads), (target,), pieces=tuple(pieces)))

    def _resolve(self, tile: AccessTile, where: Where, write: bool) -> Access:
        access = resolve(self.rec, tile, where, write)
        buffer = tile.view.buffer
        assert buffer is not None
        element = tile.view.element
        if buffer.element is not None and buffer.element != element:
            what = "writes" if write else "reads"
            raise TypeConfusion(f"{what} '{buffer.name}' as {element}, but it is an array of {buffer.element}", where)
        self._check_buffer(access, buffer)
        self.accesses.setdefault(buffer, []).append(access)
        return access

    def _check_buffer(self, access: Access, buffer: Buffer) -> None:
        element = access.tile.view.element
        limit = None if buffer.size is None else buffer.size // ELEMENT_BYTES[element]
        for part in access.parts:
            for run in part.runs:
                low, high = access.at(part, run).span()
                if low >= 0 and (limit is None or high <= limit):
                    continue
                tile = run.first
                for i in range(run.count):
                    one = access.at(part, Run(run.first + i, 1, run.start + run.step * i, 0)).span()
                    if one[0] < 0 or (limit is not None and one[1] > limit):
                        tile, low, high = run.first + i, *one
                        break
                what = "writes" if access.write else "reads"
                size = "" if limit is None else f" of {limit} elements"
                raise OutOfBuffer(
                    f"{what} elements {low} to {high - 1} of '{buffer.name}'{size}" + (f" (tile {tile})" if self.rec.tiles > 1 else ""),
                    access.where,
                    tiles=[tile],
                    address=low if low < 0 else limit,
                )
