"""What loads and stores touch of the memory that a program writes: the order of its ops that must be kept.

Arguments do not overlap each other. One that is written may be seen through several views, and their order is that of the program.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ktir.analysis.attributes.levels import constant_of
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import arith, ir, is_a
from ktir.target import LANES

_MOST_RUNS = 1 << 22
"""Runs of elements that are compared one by one; views of more are taken to overlap where their first and last elements do."""

Dim = tuple[int, int]
"""Stride and extent."""


@dataclass(frozen=True)
class Region:
    """Elements of an argument that a load or store touches: those of a strided box. `indirect`: some of them, data says which.

    The argument is a value, or whatever stands for one.
    """

    argument: Hashable
    offset: int
    dims: tuple[Dim, ...]
    indirect: bool = False

    def overlaps(self, other: Region) -> bool:
        """Whether both may touch the same element."""
        if self.argument != other.argument:
            return False
        return _overlap(self.offset, self.dims, other.offset, other.dims)

    def taken_with(self, read: Region) -> bool:
        """Whether a store to this region may take an element that a load reads: one that begins and steps by whole sticks takes all of the
        last of them, whichever lanes it leaves."""
        if self.argument != read.argument:
            return False
        dims = self.dims
        if dims and dims[-1][0] == 1 and not any(distance % LANES for distance in (self.offset, *(stride for stride, _ in dims[:-1]))):
            dims = (*dims[:-1], (1, -(-dims[-1][1] // LANES) * LANES))
        return _overlap(self.offset, dims, read.offset, read.dims)

    def same_elements(self, other: Region) -> bool:
        """Whether both touch the same elements position by position."""
        return not self.indirect and self == other


def regions(access: ir.Operation) -> list[Region]:
    """What a load or a store touches, index views last."""
    tile = access.operands[-1].owner.opview
    if is_a(tile, ktdp.ConstructAccessTileOp):
        return [_region(tile.base)]
    return [_region(tile.base, indirect=True), *(_region(view) for view in tile.index_views)]


def arguments_of(access: ir.Operation) -> frozenset[ir.Value]:
    """The arguments one of which is the memory that a load or store touches: all that its view's place is computed from."""
    seen, ahead = set[ir.Value](), [access.operands[-1].owner.opview.operands[0]]
    while ahead:
        if (value := ahead.pop()) not in seen:
            seen.add(value)
            ahead += [] if isinstance(value.owner, ir.Block) else list(value.owner.operands)
    return frozenset(value for value in seen if isinstance(value.owner, ir.Block))


def _region(view: ir.Value, indirect: bool = False) -> Region:
    op = view.owner.opview
    argument, offset = _base(op.offset)
    dims = list(zip(op.strides, op.sizes, strict=True))
    cut = affine.lane_bounds(op.attributes["coordinate_set"])[0] if op.masked else ()
    for stick, last in cut:
        if dims[stick][0] == LANES * dims[-1][0]:
            dims[-1] = (dims[-1][0], last + 1)
            del dims[stick]
    return Region(argument, offset, tuple(dims), indirect)


def _base(offset: ir.Value) -> tuple[ir.Value, int]:
    """The argument that a view lies in, and its distance from the beginning."""
    if isinstance(offset.owner, ir.Block):
        return offset, 0
    if is_a(offset.owner, arith.AddIOp):
        base, distance = offset.owner.operands
        if isinstance(base.owner, ir.Block) and (number := constant_of(distance)) is not None:
            return base, number
    raise Unsupported("a view expects an argument, or 'arith.addi' of one and a constant, as offset", location_text(offset.location))


@lru_cache(maxsize=65536)
def _overlap(offset: int, dims: tuple[Dim, ...], other_offset: int, other_dims: tuple[Dim, ...]) -> bool:
    (low, high), (other_low, other_high) = _span(offset, dims), _span(other_offset, other_dims)
    if high < other_low or other_high < low:
        return False
    mine, theirs = _runs(offset, dims), _runs(other_offset, other_dims)
    if mine is None or theirs is None:
        return True
    (starts, length), (others, other_length) = mine, theirs
    at = np.searchsorted(others, starts, "right")
    after = np.append(others, np.iinfo(np.int64).max)[at]
    before = np.insert(others, 0, np.iinfo(np.int64).min // 2)[at]
    return bool(((after < starts + length) | (before + other_length > starts)).any())


def _span(offset: int, dims: tuple[Dim, ...]) -> tuple[int, int]:
    reach = [stride * (extent - 1) for stride, extent in dims]
    return offset + sum(min(0, r) for r in reach), offset + sum(max(0, r) for r in reach)


def _runs(offset: int, dims: tuple[Dim, ...]) -> tuple[np.ndarray, int] | None:
    """Sorted starts of runs of adjacent elements, and their length; None if there are too many."""
    length = 1
    rest = sorted((abs(stride), extent) for stride, extent in dims if extent > 1 and stride)
    low, _ = _span(offset, dims)
    while rest and rest[0][0] <= length:
        stride, extent = rest.pop(0)
        length += stride * (extent - 1)
    count = 1
    for _, extent in rest:
        count *= extent
    if count > _MOST_RUNS:
        return None
    starts = np.full(1, low, np.int64)
    for stride, extent in rest:
        starts = (starts[:, None] + stride * np.arange(extent)).reshape(-1)
    return np.sort(starts), length
