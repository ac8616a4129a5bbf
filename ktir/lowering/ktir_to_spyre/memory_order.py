"""What a kernel reads and writes in memory: the units that load and store do not wait for each other there.

So a kernel reads nothing that it writes, but for an op in place: what it computes of a block goes to where the block came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.lowering.ktir_to_spyre.access import Tile
from ktir.lowering.ktir_to_spyre.index import Index
from ktir.mlir import ir

_MOST = 1 << 23
"""Elements of an access that are looked at one by one, per core."""


_NONE = np.iinfo(np.int64).min
"""Stands for no element."""


@dataclass(frozen=True)
class _Access:
    op: ir.Operation
    tile: Tile
    trips: Mapping[int, int]
    """Of the loops around it, by level."""


class MemoryOrder:
    """Accesses of a kernel to its arguments, in program order."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.reads: dict[int, list[_Access]] = {}
        self.writes: dict[int, list[_Access]] = {}

    def read(self, op: ir.Operation, tile: Tile, argument: int, trips: Mapping[int, int]) -> None:
        """Note a load. Raises Unsupported if it meets what the kernel has written."""
        access = _Access(op, tile, dict(trips))
        for other in self.writes.get(argument, []):
            if self._overlap(access, other):
                raise _refuse(access, other, "reads memory that the kernel has written")
        self.reads.setdefault(argument, []).append(access)

    def write(self, op: ir.Operation, tile: Tile, argument: int, trips: Mapping[int, int]) -> None:
        """Note a store. Raises Unsupported if it meets what the kernel has read, unless it puts a block back."""
        access = _Access(op, tile, dict(trips))
        for other in self.reads.get(argument, []):
            if not (self._same(access, other) and _walks(access)) and self._overlap(access, other):
                raise _refuse(access, other, "writes memory that the kernel has read; the nearest supported form stores to other memory")
        self.writes.setdefault(argument, []).append(access)

    def _same(self, a: _Access, b: _Access) -> bool:
        """Whether both touch the same elements in the same trip, position by position; one of them may have more, all of them clipped."""
        one, other = a.tile, b.tile
        if a.trips != b.trips or len(one.shape) != len(other.shape):
            return False
        if one.shape != other.shape:
            return self._same_elements(a, b)
        clips = [(c.dim, c.step, c.lanes) for c in one.clips] == [(c.dim, c.step, c.lanes) for c in other.clips]
        return (
            clips
            and (one.shape, one.strides) == (other.shape, other.strides)
            and _equal(one.anchor, other.anchor)
            and all(_equal(c.room, d.room) for c, d in zip(one.clips, other.clips, strict=True))
        )

    def _same_elements(self, a: _Access, b: _Access) -> bool:
        extents = [max(m, n) for m, n in zip(a.tile.shape, b.tile.shape, strict=True)]
        found = [self._addresses(access, sorted(a.trips), extents) for access in (a, b)]
        return all(np.array_equal(one, other) for one, other in zip(*found, strict=True)) if None not in found else False

    def _overlap(self, a: _Access, b: _Access) -> bool:
        one, other = self._elements(a), self._elements(b)
        return one is None or other is None or bool(np.intersect1d(one, other).size)

    def _elements(self, access: _Access) -> np.ndarray | None:
        """The elements touched by any core in any trip; None if there are too many to tell."""
        tile = access.tile
        levels = sorted({level for index in (tile.anchor, *(c.room for c in tile.clips)) for level in index.steps})
        found = self._addresses(access, levels, tile.shape)
        return None if found is None else np.unique(np.concatenate([np.unique(addresses[addresses != _NONE]) for addresses in found]))

    def _addresses(self, access: _Access, levels: Sequence[int], shape: Sequence[int]) -> list[np.ndarray] | None:
        """Per core the elements at the positions of `shape`, in the trips of the loops at `levels`; None if there are too many to tell."""
        tile = access.tile
        extents = [*(access.trips[level] for level in levels), *shape]
        if np.prod(extents, dtype=np.float64) > _MOST:
            return None
        axes = np.meshgrid(*map(np.arange, extents), indexing="ij", sparse=True)
        counter, position = dict(zip(levels, axes, strict=False)), axes[len(levels) :]
        found = []
        for core in range(self.cores):

            def at(index: Index, core: int = core) -> np.ndarray:
                start = np.broadcast_to(index.constant, (self.cores,))[core]
                return sum((counter[level] * step for level, step in index.steps.items()), start)

            address = sum((p * stride for p, stride in zip(position, tile.strides, strict=True)), at(tile.anchor))
            live = np.ones(extents, bool)
            for p, extent in zip(position, tile.shape, strict=True):
                live &= p < extent
            for clip in tile.clips:
                live &= clip.step * position[clip.dim] + (position[-1] if clip.lanes else 0) < at(clip.room)
            found.append(np.where(live, address, _NONE))
        return found


def reach(tile: Tile, dim: int, size: int) -> Tile:
    """All that a tile can touch whose position in `dim` is looked up."""
    shape = (*tile.shape[:dim], size, *tile.shape[dim + 1 :])
    return replace(tile, shape=shape, clips=tuple(c for c in tile.clips if c.dim != dim))


def _walks(access: _Access) -> bool:
    """Whether no trip comes back to where an earlier one was."""
    return all(level in access.tile.anchor.steps for level, trips in access.trips.items() if trips > 1)


def _equal(a: Index, b: Index) -> bool:
    return a.steps == b.steps and bool((a.constant == b.constant).all())


def _refuse(access: _Access, other: _Access, what: str) -> Unsupported:
    note = Diagnostic("note", f"by this '{other.op.name}' op", location_text(other.op.location))
    error = Diagnostic("error", f"'{access.op.name}' op {what}", location_text(access.op.location), (note,))
    refused = Unsupported.of([error], what)
    assert isinstance(refused, Unsupported)
    return refused
