"""Access tiles of allocated KTIR on the grid of cores and trips: where they start, how they step, what clips them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir.checking.stream.grid import Grid, Index, along, number
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import ir
from ktir.target import LANES

BYTES = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2", "i8": "i8x2"}
"""Types of one byte, and what two of them are in 16 bits: rows 2r and 2r + 1 share a stick."""
ELEMENTS = {"f16": (2, "f16"), "bf16": (2, "bf16"), "f32": (4, ""), "i32": (4, ""), **{name: (2, pair) for name, pair in BYTES.items()}}
ONES = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
"""Floats of one byte that moves widen and round, and what they are called."""
ELEMENTS |= {f"vector<2x{name}>": (2, pair) for name, pair in BYTES.items()}
"""Type -> bytes of a place, and what its 16 bits are."""


@dataclass(frozen=True)
class Clip:
    """Of dimension `dim` position i is live where step * i (+ lane, if `lanes`) < room."""

    dim: int
    room: NDArray[np.int64]
    step: int = 1
    lanes: bool = False


@dataclass(frozen=True)
class Tile:
    """An access tile: its first element, extents and strides in elements, and what clips it."""

    local: bool
    element_bytes: int
    half: str
    """What the 16 bits of a place are, empty for wider ones."""
    first: Index
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    clips: tuple[Clip, ...] = ()
    paired: bool = False
    """Whether two rows of the tensor are one of it."""
    per_corelet: int = 0
    """Of one that each corelet has for itself: elements from the first one's to the second one's."""

    @property
    def in_pairs(self) -> bool:
        """Whether a row of it is two rows of the tensor."""
        return self.paired

    def every_other(self, row: int | None) -> Tile:
        """The rows 2r + `row`; of pairs, of the only row that all read, and for None, all."""
        if row is None or self.in_pairs or self.shape[1] == 1:
            return self
        shape, strides = (self.shape[0], self.shape[1] // 2, *self.shape[2:]), (self.strides[0], 2 * self.strides[1], *self.strides[2:])
        return replace(self, first=replace(self.first, at=self.first.at + row * self.strides[1]), shape=shape, strides=strides)

    def every_other_stick(self, first: int) -> Tile:
        """The sticks 2s + `first`, where nothing clips those."""
        at = self.first.at + first * self.strides[0]
        shape, strides = (self.shape[0] // 2, *self.shape[1:]), (2 * self.strides[0], *self.strides[1:])
        return replace(self, first=replace(self.first, at=at), shape=shape, strides=strides)


@dataclass(frozen=True)
class IndirectTile:
    """A tile whose position in dimension `dim`, below `size`, is what `positions`, a tile of one dimension, holds."""

    tile: Tile
    positions: Tile
    dim: int
    size: int


def read_tile(value: ir.Value, grid: Grid) -> Tile:
    """A direct tile."""
    op = value.owner.opview
    if not isinstance(op, ktdp.ConstructAccessTileOp):
        raise refused(op.operation, "is no tile of a view")
    rank = len(op.shape)
    if list(op.order) != list(range(rank)):
        raise refused(op.operation, "has another order than that of its dims")
    operands = [grid(v) for v in op.index_operands]
    first = [grid.affine(e, operands, op.operation) for e in op.base_map.results]
    return _of_view(op.operation, op.base, grid, first, tuple(op.shape), {d: d for d in range(rank)})


def read_indirect(op: ktdp.ConstructIndirectAccessTileOp, grid: Grid) -> IndirectTile:
    """A tile of which one dimension is looked up."""
    captured, rank = [grid(v) for v in op.captured], len(op.shape)
    first: list[Index] = []
    walked: dict[int, int] = {}
    looked_up = [(d, subscript, view) for d, (subscript, view) in enumerate(op.subscripts) if view is not None]
    if len(looked_up) != 1:
        raise refused(op.operation, "looks up more than one dimension, or none")
    ((dim, subscript, view),) = looked_up
    for d, (other, _) in enumerate(op.subscripts):
        start, variable = (number(0), None) if d == dim else _split(other.results[0], captured, rank, grid, op.operation)
        first.append(start)
        if variable is not None:
            walked[d] = variable
    parts = [_split(e, captured, rank, grid, op.operation) for e in subscript.results]
    axes = {axis: variable for axis, (_, variable) in enumerate(parts) if variable is not None}
    base = op.base.owner.opview
    shape, size = tuple(op.shape), base.sizes[dim]
    if len(axes) > 1 or not isinstance(size, int):
        raise refused(op.operation, "looks up positions of several variables, or in a dimension of no fixed size")
    if axes:
        ((axis, walk),) = axes.items()
        if any(v == walk and base.strides[d] for d, v in walked.items()):
            raise refused(op.operation, "walks something else with the variable that walks its index")
        positions = _of_view(op.operation, view, grid, [start for start, _ in parts], (shape[walk],), {axis: 0}, positions=True)
    else:  # one index for all: a dimension of one position before the lanes
        walk = rank - 1
        walked = {d: v + (v >= walk) for d, v in walked.items()}
        shape = (*shape[:-1], 1, shape[-1])
        positions = _of_view(op.operation, view, grid, [start for start, _ in parts], (1,), {}, positions=True)
    tile = _of_view(op.operation, op.base, grid, first, shape, {**walked, dim: walk})
    if not any(c.dim == walk and not c.lanes for c in tile.clips):
        tile = replace(tile, clips=(*tile.clips, *(replace(c, dim=walk) for c in positions.clips)))
    return IndirectTile(tile, positions, walk, size)


def _split(e: ir.AffineExpr, captured: list[Index], rank: int, grid: Grid, op: ir.Operation) -> tuple[Index, int | None]:
    """A subscript as where it starts and the variable that it adds, by trying each variable."""

    def at(variables: list[int]) -> Index:
        return grid.affine(e, [*captured, *map(number, variables)], op)

    start = at([0] * rank)
    used = []
    for k in range(rank):
        step = at([int(i == k) for i in range(rank)]).at - start.at
        if (step == 1).all():
            used.append(k)
        elif step.any():
            raise refused(op, "has a subscript that is more than a variable and an offset")
    if len(used) > 1:
        raise refused(op, "has a subscript of several variables")
    return start, (used[0] if used else None)


def _of_view(
    op: ir.Operation,
    base: ir.Value,
    grid: Grid,
    first: list[Index],
    shape: tuple[int, ...],
    walked: dict[int, int],
    *,
    positions: bool = False,
) -> Tile:
    """A tile of `shape` at `first` in a view, whose dim d is walked by the tile's dim `walked[d]`; `positions` have no lanes."""
    view = base.owner.opview
    assert isinstance(view, ktdp.ConstructMemoryViewOp)
    element = str(view.element_type)
    alone = element in ONES and _element_moved(op) != element
    size, half = (1, ONES[element]) if alone else ELEMENTS.get(element, (None, ""))
    steps = [s for s in view.strides if isinstance(s, int)]
    if size is None or len(steps) != len(view.strides):
        raise refused(op, "is on a view that the instruction stream does not have")
    start = grid(view.offset)
    for coordinate, step in zip(first, steps, strict=True):
        start = grid.sum(start, Index(coordinate.at * step), op)
    strides = [0] * len(shape)
    for d, position in walked.items():
        strides[position] += steps[d]
    clips = []
    for d, n in enumerate(view.sizes):
        if not isinstance(n, int):
            lanes = not positions and walked.get(d) == len(shape) - 1
            room = grid.sum(grid(n), first[d], op, sign=-1).at
            clips.append(Clip(walked.get(d, 0), room, step=int(d in walked and not lanes), lanes=lanes))
    for stick, last in affine.lane_bounds(view.attributes["coordinate_set"])[0] if view.masked else ():
        room = last + 1 - LANES * first[stick].at - first[-1].at
        clips.append(Clip(walked.get(stick, 0), room, LANES if stick in walked else 0, lanes=True))
    own = prod(s for s in view.sizes if isinstance(s, int)) if "ktir.per_corelet" in view.operation.attributes else 0
    tile = Tile(
        view.memory_space == "ct_local", size, half, start, shape, tuple(strides), tuple(clips), element in BYTES and not alone, own
    )
    return _paired(tile, op) if tile.in_pairs else tile


def _element_moved(tile: ir.Operation) -> str:
    """The element type of what is loaded from a tile, or stored to it."""
    user = next(iter(tile.results[0].uses)).owner.operation
    return str(ir.RankedTensorType((user.results[0] if len(user.results) else user.operands[0]).type).element_type)


def _paired(tile: Tile, op: ir.Operation) -> Tile:
    """A tile of bytes as one of pairs: two rows of 64 bytes are a stick, of 64 places of 16 bits."""
    row = len(tile.shape) - 2
    outer = tile.strides[:row]
    if (
        tile.strides[row:] != (LANES, 1)
        or tile.shape[row] % 2
        or any(s % (2 * LANES) for s in outer)
        or (tile.first.at % (2 * LANES)).any()
    ):
        raise refused(op, "is on a tile of bytes that are not in whole pairs of rows")
    clips = tuple(replace(c, step=2 * c.step) if c.dim == row else c for c in tile.clips)
    shape = (*tile.shape[:row], tile.shape[row] // 2, LANES)
    return replace(
        tile, first=replace(tile.first, at=tile.first.at // 2), shape=shape, strides=(*(s // 2 for s in outer), LANES, 1), clips=clips
    )


def on_some_cores(tile: Tile, live: NDArray[np.bool_] | None) -> Tile:
    """A tile that only some cores write; None: all do."""
    if live is None:
        return tile
    return replace(tile, clips=(*tile.clips, Clip(0, along(0, live.astype(np.int64)), step=0)))
