"""Which dims of the whole tensors the tiles of a grid take part by part: access tiles of all points of a kernel, put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.points import Numbers, Points
from ktir.analysis.scalars.sets import tile_boxes
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.mlir import ir, is_a
from ktir.passes.pinning.values.views import address, is_distributed, seen


@dataclass(frozen=True, eq=False)
class Axis:
    """A dim of whole tensors, of which each point takes a block of positions; the last block may be short."""

    number: int
    block: int
    extent: int
    at: Numbers | None
    """The number of the block at each point; None: each point takes all."""

    @property
    def blocks(self) -> int:
        return -(-self.extent // self.block)

    @property
    def is_short(self) -> bool:
        """Whether a block has positions beyond the end, which read as 0 and are not written."""
        return self.extent % self.block != 0

    def varies(self, depth: int) -> bool:
        """Whether trips of the loop at that axis of the points take different blocks."""
        return self.at is not None and depth < self.at.ndim and self.at.shape[depth] > 1


@dataclass(frozen=True)
class Dim:
    """A dim of an access: from position `first` of memory on, the axis."""

    axis: Axis
    first: int
    stride: int


@dataclass(frozen=True)
class Access:
    """What all points together take of an argument: element `offset`, and dims from there."""

    argument: ir.Value
    offset: int
    dims: tuple[Dim, ...]
    order: tuple[int, ...]
    """The dim of memory of each dim of the tile."""
    element: ir.Type

    @property
    def start(self) -> int:
        """Its first element."""
        return self.offset + sum(d.first * d.stride for d in self.dims)

    @property
    def dealt(self) -> list[Dim]:
        """Dims of which points take blocks."""
        return [d for d in self.dims if d.axis.at is not None]

    def same_elements(self, other: Access) -> bool:
        """Whether each point takes the same elements of both."""
        return (self.offset, set(self.dims)) == (other.offset, set(other.dims))

    def is_apart(self, other: Access) -> bool:
        """Whether they have no element in common: other positions of one dim of the same memory, or other memory."""
        if self.argument != other.argument or self._end <= other.start or other._end <= self.start:
            return True
        if self.offset != other.offset or [d.stride for d in self.dims] != [d.stride for d in other.dims]:
            return False
        ends = [max(d.first + d.axis.extent for d in pair) for pair in zip(self.dims, other.dims, strict=True)]
        rest = 1
        for d, end in sorted(zip(self.dims, ends, strict=True), key=lambda pair: pair[0].stride):
            if d.stride < rest:
                return False
            rest = d.stride * end
        return any(
            a.first + a.axis.extent <= b.first or b.first + b.axis.extent <= a.first for a, b in zip(self.dims, other.dims, strict=True)
        )

    @property
    def _end(self) -> int:
        return self.start + sum((d.axis.extent - 1) * d.stride for d in self.dims) + 1


class Axes:
    """The axes of a kernel, found as its accesses are read."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.known: list[Axis] = []
        self.carrying: list[int] = []
        """The open loops that carry values: the axes of the points along which their trips lie."""
        self.skips: dict[int, NDArray[np.bool_]] = {}
        """Of those the points of trips that a tile does not make, where others do."""

    @contextmanager
    def carried(self, depth: int, outer: NDArray[np.bool_]) -> Iterator[None]:
        """Read the body of a loop that carries values, whose trips lie along that axis of the points. outer: where the loop runs."""
        left_out = outer[..., None] & ~self.points.live
        self.carrying.append(depth)
        if left_out.any():
            self.skips[depth] = left_out
        try:
            yield
        finally:
            self.carrying.pop()
            self.skips.pop(depth, None)

    def deep(self, numbers: Numbers) -> Numbers:
        """Numbers with an axis for each open loop."""
        return numbers.reshape(numbers.shape + (1,) * (self.points.live.ndim - numbers.ndim))

    def skipped(self, depth: int) -> NDArray[np.bool_]:
        """The points of the trips of a loop that a tile does not make."""
        found = self.skips[depth]
        return np.broadcast_to(found.reshape(found.shape + (1,) * (self.points.live.ndim - found.ndim)), self.points.live.shape)

    def reach(self) -> NDArray[np.bool_]:
        """Points whose elements the whole has: those that run what is being read, and trips that are left out."""
        found = self.points.live
        for depth in self.skips:
            found = found | self.skipped(depth)
        return found

    def whole(self, extent: int, block: int = 0) -> Axis:
        """The axis of a dim that every point takes as a whole; of a block, the part of it that there is."""
        block = block or extent
        for axis in self.known:
            if axis.at is None and (axis.extent, axis.block) == (extent, block):
                return axis
        return self._new(block, extent, None)

    def access(self, tile: ir.Operation) -> Access:
        """What an access tile is over all points. Raises Unsupported."""
        points = self.points
        if not is_a(tile, ktdp.ConstructAccessTileOp):
            raise refused(tile, "chooses elements by what is in memory, which is not lifted")
        if is_distributed(tile):
            raise refused(tile, "is on a distributed view, whose parts the author has placed")
        view, _ = seen(tile, points)[0]
        if view.local:
            raise refused(view.operation, "lies in the scratchpad, where the author has placed it")
        argument, offset = address(view.value, points)
        if argument is None:
            raise refused(view.operation, "expects an address that is an argument, with what is added to it")
        box, boxes = tile.opview, tile_boxes(tile)
        if boxes.parts != [boxes.whole]:
            raise refused(tile, "has a set that is not a box")
        firsts = [points.affine(e, box.index_operands) + low for e, low in zip(box.base_map.results, boxes.corner, strict=True)]
        if view.masked and any((self._here(n) < 0).any() for n in firsts):
            raise refused(tile, "has positions below 0")
        offset = offset + view.shift
        low = int(self._here(offset).min())
        moved = self._dealt_out(offset - low, view.strides, tile)
        dims = []
        for first, more, extent, size, stride in zip(firsts, moved, boxes.extents, view.sizes, view.strides, strict=True):
            limit = points.number(size) + more if view.masked else None
            axis, begin = self._axis(first + more, extent, limit, tile)
            dims.append(Dim(axis, begin, stride))
        return Access(argument, low, tuple(dims), tuple(box.order), view.element)

    def _here(self, numbers: Numbers) -> Numbers:
        """The numbers of the points that run what is being read."""
        return np.broadcast_to(numbers, self.points.live.shape)[self.points.live]

    def _dealt_out(self, offset: Numbers, strides: Sequence[int], tile: ir.Operation) -> list[Numbers]:
        """An offset that differs from point to point, as positions of the dims."""
        moved = [np.zeros_like(offset) for _ in strides]
        for d in sorted(range(len(strides)), key=lambda d: -strides[d]):
            if strides[d] > 0:
                moved[d], offset = np.divmod(offset, strides[d])
        if self._here(offset).any():
            raise refused(tile, "begins at places that are no positions of its view")
        return moved

    def _axis(self, first: Numbers, extent: int, limit: Numbers | None, tile: ir.Operation) -> tuple[Axis, int]:
        """The axis that a dim of a tile runs along, and the position where that begins."""
        starts = self._here(first)
        begin = int(starts.min())
        seen_to = starts + extent
        if limit is not None:
            seen_to = np.minimum(seen_to, self._here(limit))
        size = int(seen_to.max()) - begin
        if size <= 0:
            raise refused(tile, "sees nothing of its view")
        if (np.clip(seen_to - starts, 0, extent) != np.clip(size + begin - starts, 0, extent)).any():
            raise refused(tile, "is clipped inside of what the tiles take together")
        if (starts == begin).all():
            return self.whole(size, extent), begin
        if ((starts - begin) % extent).any():
            raise refused(tile, f"has tiles of {extent} that do not lie side by side")
        return self._block_axis((first - begin) // extent, extent, size, tile), begin

    def _block_axis(self, at: Numbers, block: int, extent: int, tile: ir.Operation) -> Axis:
        here = self._here(at)
        for axis in self.known:
            if axis.at is None or axis.block != block or axis.at.ndim > self.points.live.ndim:
                continue
            own = axis.at.reshape(axis.at.shape + (1,) * (self.points.live.ndim - axis.at.ndim))
            if any(n not in (1, m) for n, m in zip(own.shape, self.points.live.shape, strict=True)) or (self._here(own) != here).any():
                continue
            if axis.extent != extent:
                raise refused(tile, f"ends after {extent} positions where another access ends after {axis.extent}")
            return axis
        return self._new(block, extent, self._narrowed(at))

    def _new(self, block: int, extent: int, at: Numbers | None) -> Axis:
        self.known.append(Axis(len(self.known), block, extent, at))
        return self.known[-1]

    def _narrowed(self, at: Numbers) -> Numbers:
        """Numbers with length 1 along each axis of the points on which they do not depend."""
        live = self.points.live
        at = np.where(live, np.broadcast_to(at, live.shape), -1)
        for d in range(at.ndim):
            most = at.max(axis=d, keepdims=True)
            if (at == most)[np.broadcast_to(live, at.shape)].all():
                at, live = most, np.logical_or.reduce(live, axis=d, keepdims=True)
        while at.shape[-1] == 1:  # loops that are closed again leave nothing behind
            at = at[..., 0]
        return at

    def check_store(self, access: Access, tile: ir.Operation) -> None:
        """Raise Unsupported unless every element is written at one point."""
        axes = [d.axis for d in access.dealt]
        if len(set(axes)) != len(axes):
            raise refused(tile, "runs along the same blocks in two dims")
        live, number = self.points.live, np.zeros((1,) * self.points.live.ndim, np.int64)
        for axis in axes:
            assert axis.at is not None
            own = axis.at.reshape(axis.at.shape + (1,) * (live.ndim - axis.at.ndim))
            live = live & (own < axis.blocks)
            number = number * axis.blocks + own
        found = np.broadcast_to(number, live.shape)[live]
        if len(np.unique(found)) != len(found):
            raise refused(tile, "is stored to at several points, of which the last one counts")
        if len(found) != prod(axis.blocks for axis in axes):
            raise refused(tile, "is stored to at some of the blocks only")

    def check_trips(self, axis: Axis, depth: int, op: ir.Operation) -> None:
        """Raise Unsupported unless the trips of a loop, at that axis of the points, take each block of an axis once."""
        assert axis.at is not None
        if any(n > 1 for d, n in enumerate(axis.at.shape) if d != depth):
            raise refused(op, "goes on from trip to trip over blocks that depend on the tile, too")
        blocks = [int(n) for n in axis.at.reshape(-1) if n < axis.blocks]
        if blocks != list(range(axis.blocks)):
            raise refused(op, "does not go over all blocks of what it sums, in order and each once")
