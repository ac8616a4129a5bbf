"""Indirect access: tiles whose coordinates come from index tensors, and tiles with holes. Recording; the steps stand beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.findings import OutOfBounds, OutOfBuffer, Where
from ktir.emulator.reference.ops.indirect_steps import Cover, Gather, Indirect, LocalScatter, Scatter, Source
from ktir.emulator.reference.record.access import Points
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.record.recording import NeedsTiles
from ktir.emulator.reference.tape.values import ELEMENT_BYTES, AccessTile, Distributed, IndirectTile, Strided, Subscript, Tensor, View
from ktir.target import LANES

__all__ = ["gather", "gather_points", "scatter", "scatter_points"]


def _read_index(rec: Recorder, view: View | Distributed, at: tuple[NDArray[np.int64], ...], rank: int, where: Where) -> Tensor:
    """The index at each point: a tensor [tiles, *variables] that repeats along those that do not matter."""
    if isinstance(view, Distributed):
        extents = tuple(np.broadcast_shapes(*((1,) * (1 + rank), *(c.shape for c in at)))[1:])
        points = IndirectTile(view, tuple(Subscript(c, None) for c in at), extents, tuple(range(rank)))
        return gather(rec, points, view.element, where)
    address: Any = _per_tile(view.offset, rank)
    clipped: Any = None
    live = None if rec.active is None else rec.active.reshape((-1,) + (1,) * rank)
    for dim, (coordinate, size, stride) in enumerate(zip(at, view.sizes, view.strides, strict=True)):
        limit = _per_tile(size, rank)
        beyond = (coordinate < 0) | (coordinate >= limit)
        if view.masked[dim]:
            clipped = beyond if clipped is None else clipped | beyond
        elif rec.policy.bounds:
            _check_coordinate("reads index", coordinate, beyond if live is None else beyond & live, dim, limit, where)
        address = address + coordinate * stride
    mask = None
    if clipped is not None and clipped.any():
        mask = ~np.broadcast_to(clipped, np.broadcast_shapes(address.shape, clipped.shape))
        address = np.broadcast_to(address, mask.shape)
    rank_one = tuple(address.shape[1:])
    if mask is not None and not mask.any():
        return rec.constant(np.asarray(0), rank_one, view.element)
    full = np.broadcast_to(address, (rec.tiles, *rank_one)).reshape(rec.tiles, -1)
    step = Gather((), ())
    _fill(step, rec, view, where, np.asarray(address, np.int64), (), (), tuple(range(rank)), None)
    step.mask = mask
    varies = address.shape[0] > 1
    if view.buffer is None:
        memory, low, step.holes = _backing(rec, view, where)
        step.reads, step.fixed = (memory,), step.fixed - low
        step.points = Points("LX", view.element, np.arange(rec.tiles), None, (), where, rec.kernel, False, rec.epoch, rec.clock)
        varies |= memory.at.present[0] > 1 or step.holes is not None or rec.active is not None  # each tile has its own scratchpad
    result = rec.temporary((rec.tiles, *rank_one), (rec.tiles if varies else 1, *rank_one), view.element)
    step.writes = (result,)
    if view.buffer is not None:
        rec.memory.check_type(view.buffer, view.element, where, write=False)
        live_tiles = np.flatnonzero(rec.live())
        step.points = Points(
            view.buffer.name, view.element, live_tiles, full[live_tiles], (), where, rec.kernel, False, rec.epoch, rec.clock
        )
        if mask is not None:
            step.points.valid = np.broadcast_to(mask, (rec.tiles, *rank_one)).reshape(rec.tiles, -1)[live_tiles]
        _check_range(rec, step.points, view, where)
        _keep(rec, view, step.points)
        if step.active is not None:
            step.active = None
            step.fixed = np.where(rec.live().reshape((-1,) + (1,) * rank), step.fixed, int(full[live_tiles].min(initial=0)))
            result.at = Strided.compact((rec.tiles, *rank_one), step.fixed.shape)
            result.storage.size = result.at.present_size
    live_count = int(rec.live().sum())
    count = full.shape[1] * live_count
    if mask is not None:
        count = int(np.broadcast_to(mask, (rec.tiles, *mask.shape[1:]))[rec.live()].sum())
    rec.counts.moved(view, "ct_local" if view.buffer is None else "global", count * ELEMENT_BYTES[view.element], write=False)
    rec.emit(step)
    return result


def _check_coordinate(
    what: str, coordinate: NDArray[np.int64], wrong: NDArray[np.bool_], dim: int, limit: NDArray[np.int64], where: Where
) -> None:
    """Raises OutOfBounds for the first place where a coordinate is wrong."""
    if wrong.any():
        points = np.argwhere(wrong)
        number = int(np.broadcast_to(coordinate, wrong.shape)[tuple(points[0])])
        message = f"{what} coordinate {number} in dim {dim} of a view of size {int(np.max(limit))}"
        raise OutOfBounds(message, where, tiles=sorted({int(t) for t in points[:, 0]}), address=number)


def _check_range(rec: Recorder, points: Points, view: View, where: Where) -> None:
    assert view.buffer is not None
    limit = None if view.buffer.size is None else view.buffer.size // ELEMENT_BYTES[view.element]
    for low, high in points.spans():
        if low < 0 or (limit is not None and high > limit):
            raise OutOfBuffer(
                f"{'writes' if points.write else 'reads'} elements {low} to {high - 1} of '{view.buffer.name}'"
                + (f" of {limit} elements" if limit is not None else ""),
                where,
                tiles=points.tiles.tolist(),
                address=low if low < 0 else limit,
            )
        view.buffer.carrier(view.element, high)


def _keep(rec: Recorder, view: View, points: Points) -> None:
    assert view.buffer is not None
    rec.memory.accesses.setdefault(view.buffer, []).append(points)


def _per_tile(value: Any, rank: int) -> NDArray[np.int64]:
    array = np.asarray(value, np.int64)
    return array.reshape((array.size,) + (1,) * rank)


def _backing(rec: Recorder, view: View, where: Where) -> tuple[Tensor, int, NDArray[np.bool_] | None]:
    """What a view of LX or of a tensor is of, as one axis [tiles, n]; the address of its first element; what nothing has written."""
    if view.held is not None:
        return view.held, 0, None
    at = _region(rec, view)
    low = at.offset
    policy, tiles = rec.policy, rec.live()
    holes = rec.scratchpad.holes(at, view.element, tiles, view.owner) if policy.uninitialized else None
    rec.policy = replace(policy, uninitialized=False)  # what is not gathered need not have been written
    try:
        value = rec.plain(rec.scratchpad.read(at, view.element, tiles, where, view.owner))
    finally:
        rec.policy = policy
    return value, low, holes


def _region(rec: Recorder, view: View) -> Strided:
    """All of a view of LX as one axis of addresses."""
    if isinstance(view.offset, np.ndarray) or any(isinstance(s, np.ndarray) for s in view.sizes):
        raise NeedsTiles("goes through a view of LX that differs between tiles", rec)
    low, high = Strided((1, *(int(s) for s in view.sizes)), (0, *view.strides), int(view.offset)).span()
    return Strided((1, high - low), (0, 1), low)


def _fill(
    step: Indirect,
    rec: Recorder,
    view: View,
    where: Where,
    fixed: NDArray[np.int64],
    terms: tuple[tuple[int, NDArray[np.int64], int, bool, NDArray[np.int64]], ...],
    block: tuple[tuple[int, int, int], ...],
    order: tuple[int, ...],
    mask: NDArray[np.bool_] | None,
) -> None:
    step.source = Source(view.buffer, view.element)
    step.fixed, step.terms, step.block, step.order = fixed, terms, block, order
    step.mask = None if mask is None else mask[None]
    step.active, step.where, step.tiles, step.bounds = rec.active, where, rec.tiles, rec.policy.bounds


def _plan(rec: Recorder, tile: IndirectTile, step: Indirect, where: Where, write: bool) -> tuple[list[Tensor], list[int]]:
    """Fill `step` from the tile; returns the index tensors."""
    view, rank = tile.view, len(tile.extents)
    assert isinstance(view, View)
    origins = view.origin if view.held is None and tile.shifted and view.origin is not None else (0,) * len(view.sizes)
    indirect = [s for s in tile.subscripts if s.index is not None]
    beyond_lane = _beyond_lane(tile, rank)
    used = _used(tile, view, beyond_lane)
    inside = [v for v in range(rank) if v not in used]
    fixed: Any = _per_tile(view.offset, rank)
    steps = [0] * rank
    mask: Any = None if tile.mask is None else tile.mask[None]
    if beyond_lane is not None and beyond_lane.any():
        mask = ~beyond_lane if mask is None else mask & ~beyond_lane
    live = None if rec.active is None else rec.active.reshape((-1,) + (1,) * rank)
    terms: list[tuple[int, NDArray[np.int64], int, bool, NDArray[np.int64]]] = []
    index: list[Tensor] = []
    for dim, (s, stride) in enumerate(zip(tile.subscripts, view.strides, strict=True)):
        limit = _per_tile(view.sizes[dim], rank)
        if s.index is not None:
            terms.append((stride, limit, dim, view.masked[dim], _per_tile(origins[dim], rank)))
            index.append(_read_index(rec, s.index, s.at, rank, where))
            continue
        assert s.known is not None
        beyond = (s.known < 0) | (s.known >= limit)
        if tile.mask is not None:
            beyond = beyond & tile.mask[None]
        if view.masked[dim]:
            if beyond.any():
                mask = ~beyond if mask is None else mask & ~beyond
        elif rec.policy.bounds:
            _check_coordinate("writes" if write else "reads", s.known, beyond if live is None else beyond & live, dim, limit, where)
        corner = s.known
        for v in inside:
            if s.row is not None:
                steps[v] += s.row[v] * stride
            corner = corner[(slice(None),) * (1 + v) + (slice(0, 1),)]
        fixed = fixed + corner * stride
    assert len(indirect) == len(terms)
    block = tuple((v, steps[v], tile.extents[v]) for v in inside)
    # Every variable outside of the block needs its extent in the addresses.
    outside = [1] * (1 + rank)
    for v in range(rank):
        if v not in inside:
            outside[1 + v] = tile.extents[v]
    fixed = np.broadcast_to(fixed, np.broadcast_shapes(fixed.shape, tuple(outside)))
    _fill(step, rec, view, where, np.asarray(fixed, np.int64), tuple(terms), block, tile.order, None)
    step.mask = mask
    _note_points(rec, view, step, where, tuple((s, n) for _, s, n in block), write)
    return index, inside


def _used(tile: IndirectTile, view: View, beyond_lane: NDArray[np.bool_] | None) -> set[int]:
    """Variables that need an address for each of their values; along the others a point is a block."""
    rank = len(tile.extents)
    if tile.mask is not None:
        return set(range(rank))
    used: set[int] = set()
    for dim, s in enumerate(tile.subscripts):
        if s.index is not None:
            used |= {v for c in s.at for v in range(rank) if c.shape[1 + v] > 1}
            continue
        assert s.known is not None
        # What is clipped: its variables decide what is live.
        clipped = view.masked[dim] and ((s.known < 0) | (s.known >= _per_tile(view.sizes[dim], rank))).any()
        if s.row is None or clipped:
            used |= {v for v in range(rank) if s.known.shape[1 + v] > 1}
    if beyond_lane is not None and beyond_lane.any():
        used |= {v for v in range(rank) if beyond_lane.shape[1 + v] > 1}
    linear = [(s.row, stride) for s, stride in zip(tile.subscripts, view.strides, strict=True) if s.row is not None]
    return used | {v for v in range(rank) if sum(row[v] * stride for row, stride in linear) < 0}  # blocks run forward from their address


def _note_points(rec: Recorder, view: View, step: Indirect, where: Where, dims: tuple[tuple[int, int], ...], write: bool) -> None:
    """What `step` touches, of which the data will say where."""
    tiles = np.arange(rec.tiles)
    name = "LX" if view.buffer is None else view.buffer.name
    step.points = Points(name, view.element, tiles, None, dims, where, rec.kernel, write, rec.epoch, rec.clock, dynamic=True)
    if view.buffer is not None:
        rec.memory.check_type(view.buffer, view.element, where, write)
        reach = np.asarray(view.offset, np.int64)
        for size, stride in zip(view.sizes, view.strides, strict=True):
            reach = reach + np.maximum(np.subtract(size, 1), 0) * max(stride, 0)
        step.points.reach = int(np.max(reach)) + 1
        view.buffer.carrier(view.element, step.points.reach)
        _keep(rec, view, step.points)
        step.limit = None if view.buffer.size is None else view.buffer.size // ELEMENT_BYTES[view.element]


def _beyond_lane(tile: IndirectTile, rank: int) -> NDArray[np.bool_] | None:
    """Where a tile on a view that is cut at a lane lies beyond the cut; None if it is not cut."""
    view = tile.view
    if not isinstance(view, View) or view.lanes is None:
        return None
    stick, last = view.lanes
    sticks, lanes = tile.subscripts[stick].known, tile.subscripts[-1].known
    if sticks is None or lanes is None:
        raise Unsupported("an indirect tile reads the stick or the lane of a view that is cut at a lane from an index view")
    return sticks * LANES + lanes > last


def _emit(rec: Recorder, step: Indirect, view: View, element: str, write: bool) -> None:
    """Record `step`; a launch counts what it moves."""
    rec.emit(step)
    if view.held is not None:
        return
    space = "ct_local" if view.buffer is None else "global"
    if rec.eager:
        rec.counts.moved(view, space, step.count * ELEMENT_BYTES[element], write=write)
    else:
        rec.measured.append((step, view, space, ELEMENT_BYTES[element], write))


def gather(rec: Recorder, tile: IndirectTile, element: str, where: Where) -> Tensor:
    """The elements of an indirect tile."""
    parts = _parts(rec, tile, where, write=False)
    cover = None if parts == [tile] else Cover(_wanted(rec, tile))
    result: Tensor | None = None
    for number, part in enumerate(parts):
        view = part.view
        assert isinstance(view, View)
        step = Gather((), ())
        index, _ = _plan(rec, part, step, where, write=False)
        varies = step.fixed.shape[0] > 1 or any(t.at.present[0] > 1 for t in index) or rec.active is not None or len(parts) > 1
        varies |= step.mask is not None and step.mask.shape[0] > 1
        reads = list(index)
        if view.buffer is None:
            memory, low, step.holes = _backing(rec, view, where)
            step.fixed, step.limit, step.low = step.fixed - low, memory.at.shape[1], low
            reads.append(memory)
            varies |= memory.at.present[0] > 1 or step.holes is not None
        if result is None:
            result = rec.temporary((rec.tiles, *tile.shape), (rec.tiles if varies else 1, *tile.shape), element)
        step.cover, step.first, step.last = cover, number == 0, number == len(parts) - 1
        step.reads, step.writes = tuple(reads), (result,)
        _emit(rec, step, view, element, write=False)
    assert result is not None
    return result


def _wanted(rec: Recorder, tile: IndirectTile) -> NDArray[np.bool_]:
    """The points of a tile, of the tiles that execute the op."""
    live = rec.live().reshape((-1,) + (1,) * len(tile.extents))
    return np.broadcast_to(live & (True if tile.mask is None else tile.mask[None]), (rec.tiles, *tile.extents))


def _parts(rec: Recorder, tile: IndirectTile, where: Where, write: bool) -> list[IndirectTile]:
    """The tile, or one for each partition of a distributed view, whose own coordinates begin at 0 and which clips the rest."""
    if isinstance(tile.view, View):
        return [tile]
    rank = len(tile.extents)
    result: list[IndirectTile] = []
    boxes: list[object] = []
    for part in tile.view.parts:
        assert part.origin is not None
        box = tuple(str(x) for x in (*part.origin, *part.owned))
        if box in boxes and not write:
            continue  # an exact replica
        boxes.append(box)
        view = replace(part, sizes=part.owned, masked=(True,) * len(part.owned))
        origins = [_per_tile(o, rank) for o in part.origin]
        subscripts = tuple(s if s.known is None else Subscript(s.known - o, s.row) for s, o in zip(tile.subscripts, origins, strict=True))
        result.append(IndirectTile(view, subscripts, tile.extents, tile.order, tile.mask, shifted=True))
    return result


def scatter(
    rec: Recorder, value: Tensor, tile: IndirectTile, where: Where, kind: Callable[..., Scatter] = Scatter, *, ordered: bool = False
) -> None:
    """Write a value to the elements of an indirect tile; `kind` makes the step that does it in global memory. `ordered`: an element may be
    named several times, the last value in row-major order stays.
    """
    parts = _parts(rec, tile, where, write=True)
    cover = None if parts == [tile] else Cover(_wanted(rec, tile))
    for number, part in enumerate(parts):
        view = part.view
        assert isinstance(view, View)
        place = (cover, number == 0, number == len(parts) - 1)
        if view.held is not None:
            raise KtirError(f"{where} stores to an access tile of a tensor, which is a value", where.location)
        if view.buffer is None:
            if kind is not Scatter:
                raise Unsupported(f"{where} accumulates in LX, which the executor does not support", where.location)
            _scatter_local(rec, value, part, where, place)
            continue
        step = kind((), ())
        index, _ = _plan(rec, part, step, where, write=True)
        step.cover, step.first, step.last = place
        step._extents = tile.extents
        step.points.adds = kind is not Scatter
        step.duplicates = rec.policy.races and not (ordered and rec.tiles == 1)
        step.reads = (*index, value)
        carrier = view.buffer.carrier(view.element)
        size = max(1, carrier.size if carrier.array is None else carrier.array.size)
        step.writes = (Tensor(carrier, Strided((1, size), (0, 1)), view.element),)
        _emit(rec, step, view, view.element, write=True)


def _scatter_local(rec: Recorder, value: Tensor, tile: IndirectTile, where: Where, place: tuple[Cover | None, bool, bool]) -> None:
    """The same in scratchpads: what lies in the region of the view, with the value in it, is stored there again."""
    view = tile.view
    assert isinstance(view, View)
    region = _region(rec, view)
    for writer in (None,) if view.owner is None else tuple(int(t) for t in np.flatnonzero(rec.live())):
        step = LocalScatter((), ())
        index, _ = _plan(rec, tile, step, where, write=True)
        base, low, _ = _backing(rec, view, where)
        step.cover, step.first, step.last = place
        if writer is not None:  # one tile after the other writes
            step.active = np.arange(rec.tiles) == writer
            step.cover = None
        step._extents, step.duplicates, step.only = tile.extents, rec.policy.races, writer
        step.fixed, step.limit = step.fixed - low, base.at.shape[1]
        count = rec.tiles if writer is None else 1
        result = rec.temporary((rec.tiles, base.at.shape[1]), (count, base.at.shape[1]), view.element)
        step.reads, step.writes = (*index, value, base), (result,)
        _emit(rec, step, view, view.element, write=True)
        tiles = rec.live() if view.owner is None else np.arange(max(view.owner + 1, rec.tiles)) == view.owner
        rec.scratchpad.write(region, result, tiles, where, writer)


def points_of(tile: AccessTile, rank: int) -> IndirectTile:
    """A direct tile whose set is no box, as one whose coordinates are computed."""
    subscripts: list[Subscript] = []
    for d, (anchor, n) in enumerate(zip(tile.anchor, tile.extents, strict=True)):
        shape = [1] * (1 + rank)
        shape[1 + d] = n
        subscripts.append(Subscript(_per_tile(anchor, rank) + np.arange(n).reshape(shape), tuple(int(v == d) for v in range(rank))))
    return IndirectTile(tile.view, tuple(subscripts), tile.extents, tile.order, tile.mask)


def gather_points(rec: Recorder, tile: AccessTile, element: str, where: Where) -> Tensor:
    """The elements of a tile with holes, which read as zero."""
    return gather(rec, points_of(tile, len(tile.extents)), element, where)


def scatter_points(rec: Recorder, value: Tensor, tile: AccessTile, where: Where) -> None:
    """Write the elements of a tile with holes."""
    scatter(rec, value, points_of(tile, len(tile.extents)), where)
