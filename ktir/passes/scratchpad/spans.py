"""Transfers that reach further in memory than an address can span are cut into several, each from a tile of its own.

A tensor lies in sticks whose columns are as far apart as it has rows: a few rows of one that is larger than the span reach over all of it.
Where the trips of a loop reach that far, and not one transfer, the loop is cut into several, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import NamedTuple

import numpy as np

from ktir.analysis.attributes.levels import constant_of
from ktir.analysis.calls import argument_attributes
from ktir.analysis.points import Points
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects._ktdp.views import memory_view
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, func, ir, is_a, scf
from ktir.target import Target, element_bytes


def split_transfers(module: ir.Module, target: Target) -> None:
    """Cut the loads and stores of every kernel at the allocated level."""
    if max(map(_bytes, module.body.operations), default=0) > target.span_bytes:
        for op in module.body.operations:
            if isinstance(op, func.FuncOp) and "grid" in op.attributes:
                while far := next(filter(None, (one.far_loop(target.span_bytes) for one in _transfers(op.operation))), None):
                    far.cut()
                for one in list(_transfers(op.operation)):
                    one.cut(target.span_bytes)


def _bytes(op: ir.Operation) -> int:
    """Of the largest argument of a function that says how its memory is laid out."""
    layouts = (
        [kt.LayoutAttr(d["ktir.layout"]) for d in argument_attributes(op) if "ktir.layout" in d] if isinstance(op, func.FuncOp) else []
    )
    return max((prod(layout.device) * element_bytes(layout.dtype) for layout in layouts), default=0)


@dataclass(frozen=True)
class _Dim:
    """What one dim of a tile adds to its addresses: elements from one position to the next, and how many there are."""

    number: int
    stride: int
    extent: int
    has_rows: bool
    """Whether the corelets have halves of it, so that it is cut into even numbers, or single ones."""

    @property
    def reach(self) -> int:
        return (self.extent - 1) * abs(self.stride)


class _Loop(NamedTuple):
    """A loop around a transfer, and how many elements of memory it reaches over in all its trips."""

    op: ir.Operation
    reach: int

    @property
    def bounds(self) -> range | None:
        """Its counter; None where that is no matter of numbers."""
        numbers = [constant_of(v) for v in list(self.op.operands)[:3]]
        return None if None in numbers else range(*(n or 0 for n in numbers))

    @property
    def turns(self) -> int:
        """Trips after which all slots that rotate with its counter are the first ones again."""
        found, counted = [1], {self.op.regions[0].blocks[0].arguments[0]}

        def look(op: ir.Operation) -> ir.WalkResult:
            if len(op.results) == 1 and any(v in counted for v in op.operands):
                counted.add(op.results[0])
                if is_a(op, arith.RemUIOp):
                    found.append(constant_of(op.operands[1]) or 1)
            return ir.WalkResult.ADVANCE

        self.op.walk(look, ir.WalkOrder.PRE_ORDER)
        return lcm(*found)

    @property
    def may_be_cut(self) -> bool:
        """Whether there are trips to tell apart. Sums that they hand on stay in the array from one loop to the next."""
        return self.reach > 0 and self.bounds is not None

    def trips(self, span: int, most: int) -> int:
        """As many at a time as reach no further than `most` elements where all of them reach over `span`, one at least.

        They end where slots that rotate are the first ones again; the slots of a single trip do not rotate.
        """
        found = (most - (span - self.reach)) * (len(self.bounds or ()) - 1) // self.reach + 1
        return max(found // self.turns * self.turns, 1)


class _FarLoop(NamedTuple):
    """A loop that is to be cut into loops of so many trips."""

    loop: _Loop
    trips: int

    def cut(self) -> None:
        op, bounds = self.loop.op, self.loop.bounds
        assert bounds is not None
        carried = list(op.operands)[3:]
        with ir.InsertionPoint(op), op.location:
            for first in range(0, len(bounds), self.trips):
                own = bounds[first : first + self.trips]
                part = op.clone()
                for i, operand in enumerate((index_constant(own.start), index_constant(own.stop), part.operands[2], *carried)):
                    part.operands[i] = operand
                part.move_after(part.operands[1].owner)
                carried = list(part.results)
        for old, new in zip(op.results, carried, strict=True):
            old.replace_all_uses_with(new)
        op.erase()


@dataclass(frozen=True)
class _Transfer:
    """A load that is stored to the scratchpad, or the other way round."""

    store: ir.Operation
    load: ir.Operation
    memory: ir.Operation
    """The access tile in memory."""
    span: int
    """Elements from the first to the last that any one core reaches in all trips."""
    looked_up: int
    """Of these, what rows that indices choose reach by themselves."""
    dims: tuple[_Dim, ...]
    """Those that may be cut, of the tile."""
    loops: tuple[_Loop, ...]
    """Around it, outermost first."""

    def far_loop(self, most: int) -> _FarLoop | None:
        """The loop to cut where parts of the transfer would still reach further than `most` bytes: the one that reaches furthest."""
        most //= element_bytes(ir.RankedTensorType(self.load.results[0].type).element_type)
        if self.span <= most or self.looked_up > most or _pieces(self._cuttable(), self.span, most) is not None:
            return None
        for loop in sorted(self.loops, key=lambda loop: -loop.reach):
            if loop.may_be_cut and _pieces(self._cuttable(), self.span - loop.reach, most) is not None:
                return _FarLoop(loop, loop.trips(self.span, most))
        return None

    def cut(self, most: int) -> None:
        """In place of one transfer, as few as reach no further than `most` bytes each. Raises Unsupported where indices reach further."""
        size = element_bytes(ir.RankedTensorType(self.load.results[0].type).element_type)
        if self.span * size <= most:
            return
        if self.looked_up * size > most:
            op, done = (self.load, "reads from") if self.memory == self.load.operands[0].owner.operation else (self.store, "writes to")
            raise refused(
                op,
                f"{done} rows that indices choose among {self.looked_up * size:,} bytes, but an address reaches {most:,}; "
                "the nearest supported form has fewer rows, or several tensors",
            )
        pieces = _pieces(self._cuttable(), self.span, most // size)
        if pieces is None:
            return  # steps of loops reach that far, unless they are clipped: the verifier of the stream tells
        with ir.InsertionPoint(self.store), self.store.location:
            for piece in pieces:
                source, destination = (_part(op, piece) for op in (self.load.operands[0].owner, self.store.operands[1].owner))
                value = ktdp.load(source, ir.RankedTensorType(self.load.results[0].type).element_type, loc=self.load.location)
                ktdp.store(value, destination)
        self.store.erase()
        if not list(self.load.results[0].uses):
            self.load.erase()

    def _cuttable(self) -> list[_Dim]:
        """The dims to cut, in order. What is loaded must lie side by side in the scratchpad: there the outermost one comes first, then the
        others of what has one position of those before."""
        by_reach = sorted((d for d in self.dims if d.reach), key=lambda d: -d.reach)
        if self.memory != self.load.operands[0].owner.operation:
            return by_reach
        found, dims = list[_Dim](), {d.number: d for d in self.dims}
        for number, extent in enumerate(self.memory.opview.shape[:-1]):
            if extent > 1 and number not in dims:
                break
            found += [dims[number]] if extent > 1 else []
        return found


_Piece = dict[int, tuple[int, int]]
"""Of the dims that are cut: the first position and how many."""


def _pieces(dims: Sequence[_Dim], span: int, most: int) -> list[_Piece] | None:
    """What a tile that reaches over `span` elements is cut into along `dims`, so that no piece reaches over more than `most`: as much of
    the first one as may be, or as little, and then the next one; None where that cannot be."""
    if span <= most:
        return [{}]
    if not dims:
        return None
    dim, *others = dims
    room = most - (span - dim.reach)
    count = room // abs(dim.stride) + 1 if room >= 0 and dim.stride else 0
    count -= count % 2 if dim.has_rows and count > 1 else 0
    inner: list[_Piece] | None = [{}]
    if not count:
        count = 1
        inner = _pieces(others, span - dim.reach, most)
    if inner is None:
        return None
    return [{dim.number: (first, min(count, dim.extent - first)), **more} for first in range(0, dim.extent, count) for more in inner]


def _part(op: ir.Operation, piece: _Piece) -> ir.Value:
    """The tile of some positions of the dims that are cut."""
    for dim, (first, extent) in piece.items():
        op = _part_along(op, dim, first, extent).owner.operation
    return op.results[0]


def _part_along(op: ir.Operation, dim: int, first: int, extent: int) -> ir.Value:
    """The tile of `extent` positions of a dim from `first` on."""
    tile = op.opview
    shape = [extent if d == dim else n for d, n in enumerate(tile.shape)]
    if isinstance(tile, ktdp.ConstructAccessTileOp):
        moved = [e + first if d == dim else e for d, e in enumerate(tile.base_map.results)]
        attributes = {name: op.attributes[name] for name in op.attributes} | {
            "base_map": ir.AffineMapAttr.get(ir.AffineMap.get(tile.base_map.n_dims, 0, moved)),
            "access_tile_set": affine.box_set(shape),
        }
        made = ir.Operation.create(op.name, results=[ktdp.AccessTileType.build(shape)], operands=list(op.operands), attributes=attributes)
        return made.results[0]
    variable = len(tile.captured) + dim
    subscripts = [
        (view, list(m.results)) if view is not None else m.results[0] + (first if variable in _used(m.results[0]) else 0)
        for m, view in tile.subscripts
    ]
    return ktdp.construct_indirect_access_tile(tile.base, subscripts, shape, captured=list(tile.captured))


def _used(expression: ir.AffineExpr) -> dict[int, int]:
    """The dims of a sum of dims and numbers, and how often each stands in it; empty for another expression."""
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position: 1}
    if isinstance(expression, ir.AffineAddExpr):
        one, other = _used(expression.lhs), _used(expression.rhs)
        return {d: one.get(d, 0) + other.get(d, 0) for d in one | other}
    return {}


def _transfers(kernel: ir.Operation) -> Iterator[_Transfer]:
    """Those between memory and the scratchpad, in order."""
    indices = [a for a in kernel.regions[0].blocks[0].arguments if isinstance(a.type, ir.IndexType)]
    points = Points(kernel, {a.arg_number: 0 for a in indices})  # wherever an argument lies
    yield from _of_block(kernel.regions[0].blocks[0], points, ())


def _of_block(block: ir.Block, points: Points, loops: tuple[ir.Operation, ...]) -> Iterator[_Transfer]:
    for view in block.operations:
        op = view.operation
        if is_a(op, scf.ForOp):
            lower, upper, step = (points(v) for v in list(op.operands)[:3])
            last = lower + (np.maximum(upper - 1 - lower, 0) // step) * step
            ends = np.stack(np.broadcast_arrays(lower, last), -1)  # of what grows from trip to trip, they are the extremes
            live = np.broadcast_to(points.live[..., None], (*points.live.shape, 2))
            with points.loop(op.regions[0].blocks[0].arguments[0], ends, live):
                yield from _of_block(op.regions[0].blocks[0], points, (*loops, op))
        elif is_a(op, scf.IfOp):
            for region in op.regions:
                for inner in region.blocks:
                    yield from _of_block(inner, points, loops)
        elif is_a(op, ktdp.StoreOp) and not isinstance(op.operands[0].owner, ir.Block) and is_a(op.operands[0].owner, ktdp.LoadOp):
            load = op.operands[0].owner.operation
            tiles = [tile.owner.operation for tile in (load.operands[0], op.operands[1])]
            memory = next((t for t in tiles if (base := memory_view(t.operands[0])) and base.memory_space == "global"), None)
            if memory is not None:
                span, looked_up, dims, ways = _reach(memory, points)
                yield _Transfer(op, load, memory, span, looked_up, dims, tuple(map(_Loop, loops, ways)))


def _has_rows(shape: Sequence[int], dim: int) -> bool:
    return dim == len(shape) - 2 and shape[dim] > 1


def _reach(op: ir.Operation, points: Points) -> tuple[int, int, tuple[_Dim, ...], list[int]]:
    """Elements from the first to the last that any core may touch through a tile, how far indices alone reach, the dims that may be cut,
    and how far each open loop reaches."""
    tile = op.opview
    view = memory_view(tile.base)
    assert view is not None
    first, dims, fixed, looked_up = points.number(view.offset), [], 0, 0
    if isinstance(tile, ktdp.ConstructAccessTileOp):
        for d, (expression, stride) in enumerate(zip(tile.base_map.results, view.strides, strict=True)):
            first = first + points.affine(expression, tile.index_operands) * stride
            dims.append(_Dim(d, stride, tile.shape[d], _has_rows(tile.shape, d)))
    else:
        captured = [*map(points, tile.captured), *(points.number(0) for _ in tile.shape)]
        uses = [_used(e) for m, _ in tile.subscripts for e in m.results]
        for (m, index), stride, size in zip(tile.subscripts, view.strides, view.sizes, strict=True):
            if index is not None:
                looked_up += (size - 1) * abs(stride)
                continue
            first = first + points.affine(m.results[0], captured) * stride
            for d in range(len(tile.shape)):
                number = len(tile.captured) + d
                if number in _used(m.results[0]):
                    alone = sum(number in u for u in uses) == 1
                    dim = _Dim(d, stride, tile.shape[d], _has_rows(tile.shape, d))
                    fixed += 0 if alone else dim.reach
                    dims += [dim] if alone else []
    low = first + sum(min((d.extent - 1) * d.stride, 0) for d in dims)
    high = first + sum(max((d.extent - 1) * d.stride, 0) for d in dims)
    per_core = tuple(range(1, low.ndim))
    span = int((high.max(per_core) - low.min(per_core)).max()) + fixed + looked_up + 1
    ways = [int(np.ptp(first, axis).max()) for axis in range(1, first.ndim)]
    return span, looked_up, tuple(d for d in dims if d.number != len(tile.shape) - 1), ways
