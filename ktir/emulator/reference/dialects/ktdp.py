"""ktdp: tile ids, views, access tiles, loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ktir.arithmetic.numerics import round_to
from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.ops.indirect import gather, gather_points, scatter, scatter_points
from ktir.emulator.reference.ops.maps import IndexMap, grid_of
from ktir.emulator.reference.ops.sets import IndexSet
from ktir.emulator.reference.ops.structured_steps import repeat
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.record.recording import NeedsTiles
from ktir.emulator.reference.tape.tape import Binder, Call, PlainStep
from ktir.emulator.reference.tape.values import (
    AccessTile,
    Distributed,
    IndirectTile,
    Overlay,
    Pointer,
    Strided,
    Subscript,
    Tensor,
    View,
    element_name,
    simplify,
)
from ktir.mlir import ir
from ktir.target import NARROW


@executes("ktdp.get_compute_tile_id")
def _tile_id(op: OpReader) -> Action:
    results, where = op.results, op.where

    def action(rec: Recorder) -> None:
        if len(results) > len(rec.grid):
            raise KtirError(f"{where} asks for {len(results)} coordinates of a grid of {len(rec.grid)} dims", where.location)
        order = "C" if rec.policy.grid_order == "last-fastest" else "F"
        coordinates = np.unravel_index(np.arange(rec.tiles), rec.grid, order)
        for slot, coordinate in zip(results, coordinates, strict=False):
            number = np.asarray(coordinate, np.int64)
            rec.set(slot, simplify(number) if rec.single is None else int(number[rec.single]))

    return action


@executes("ktdp.construct_memory_view")
def _view(op: OpReader) -> Action:
    view = op.view()
    base = op.slot(view.offset)
    sizes: list[tuple[bool, int]] = [(True, s) if isinstance(s, int) else (False, op.slot(s)) for s in view.sizes]
    strides: list[tuple[bool, int]] = [(True, s) if isinstance(s, int) else (False, op.slot(s)) for s in view.strides]
    dynamic = [not fixed for fixed, _ in sizes]
    element = element_name(view.element_type)
    owned = IndexSet.of(op.attribute("coordinate_set"))
    lanes = owned.lane_bound if view.masked else None
    # `masked` on a view whose sizes have all become constants still means: clip.
    masked = tuple(dynamic) if any(dynamic) or lanes or not view.masked else (True,) * len(sizes)
    space: str = view.memory_space
    if space not in ("global", "ct_local"):
        raise op.unsupported(f"lies in memory space '{space}'")
    owner: int | None = view.ct_id
    op.numbering.remote |= owner is not None
    (result,), where = op.results, op.where
    name = f"view at {where.location}" if where.location else "view"

    def action(rec: Recorder) -> None:
        offset: Any = rec.get(base)
        known = tuple(s if fixed else rec.known(s) for fixed, s in sizes)
        steps = tuple(s if fixed else rec.integer(s, "a stride") for fixed, s in strides)
        buffer = None
        if isinstance(offset, Pointer):
            if space != "global":
                raise Unsupported(f"{where} puts a view of LX at the address of a buffer", where.location)
            buffer, offset = offset.buffer, offset.offset
        else:
            offset = rec.known(base)
            if space == "global":
                buffer = rec.memory.numbered()
        symbols = [size for size, moving in zip(known, dynamic, strict=True) if moving]
        box = owned.box(symbols[: owned.symbols]) if owned.symbols <= len(symbols) else None
        origin, extents = (None, ()) if box is None else (tuple(map(simplify, box[0])), tuple(map(simplify, box[1])))
        rec.set(result, View(buffer, offset, known, steps, masked, element, owner, origin, extents, name, lanes=lanes))

    return action


@executes("ktdp.construct_distributed_memory_view")
def _distributed(op: OpReader) -> Action:
    operands, (result,), where = op.operands, op.results, op.where

    def action(rec: Recorder) -> None:
        parts: list[View] = []
        for slot in operands:
            part = rec.get(slot)
            if isinstance(part, Distributed):
                parts.extend(part.parts)
                continue
            if not isinstance(part, View) or part.origin is None:
                raise Unsupported(f"{where} has a partition whose coordinates are no box", where.location)
            parts.append(part)
        if not parts:
            raise Unsupported(f"{where} has no partitions", where.location)
        rec.set(result, Distributed(tuple(parts), parts[0].element))

    return action


def _order(op: OpReader, name: str, dims: int) -> tuple[int, ...]:
    """Base dim of each tile dim."""
    results = list(ir.AffineMapAttr(op.attribute(name)).value.results)
    order = tuple(r.position for r in results if isinstance(r, ir.AffineDimExpr))
    if sorted(order) != list(range(dims)) or len(results) != dims:
        raise op.unsupported("has an order that is not a permutation")
    return order


def _view_of(rec: Recorder, value: Tensor | Overlay) -> View:
    """A tensor as what access tiles can lie on."""
    tensor = repeat(rec, rec.plain(value))
    shape = tensor.shape
    flat = tensor.moved(Strided((rec.tiles, prod(shape)), (tensor.at.strides[0], 1), tensor.at.offset))
    strides = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    return View(None, 0, shape, strides, (False,) * len(shape), tensor.element, name="tensor", held=flat)


def _extents(rec: Recorder, extents: tuple[Any, ...]) -> tuple[int, ...]:
    for n in extents:
        if isinstance(n, np.ndarray) and n.ndim:
            raise NeedsTiles("has a set whose extents differ between tiles", rec)
    return tuple(int(n) for n in extents)


def _delivers(op: OpReader, order: tuple[int, ...]) -> Callable[[tuple[int, ...]], None]:
    """What raises KtirError for extents of a set that, in its order, are not the tile's type: a load would give another shape."""
    type_: Any = op.op.results[0].type
    wanted, where = list(type_.shape), op.where

    def check(extents: tuple[int, ...]) -> None:
        shape = [extents[d] for d in order]
        if len(shape) != len(wanted) or any(w >= 0 and n != w for n, w in zip(shape, wanted, strict=True)):
            raise KtirError(
                f"{where} expects a tile of shape {shape}, the extents of its set in its order, but got {wanted}", where.location
            )

    return check


@executes("ktdp.construct_access_tile")
def _access_tile(op: OpReader) -> Action:
    tile = op.view()
    base = op.slot(tile.base)
    anchor = IndexMap.of(tile.base_map)
    _, index_count, _ = op.integers("operandSegmentSizes")
    indices, symbols = op.operands[1 : 1 + index_count], op.operands[1 + index_count :]
    points = IndexSet.of(op.attribute("access_tile_set"))
    order = _order(op, "access_tile_order", points.dims)
    fixed = None if symbols else points.box()
    if fixed is None and not symbols:
        raise op.unsupported("has a set without constant bounds")
    fixed_mask = None if fixed is None else points.mask(fixed[0], fixed[1])
    (result,), where, delivers = op.results, op.where, _delivers(op, order)

    def action(rec: Recorder) -> None:
        values = [rec.known(slot) for slot in indices]
        low, extents, mask = (*fixed, fixed_mask) if fixed is not None else ((), (), None)
        if fixed is None:
            given = [rec.known(slot) for slot in symbols]
            box = points.box(given)
            if box is None:
                raise Unsupported(f"{where} has a set without bounds", where.location)
            low, extents = box
            if not points.is_box:
                if any(isinstance(x, np.ndarray) and x.ndim for x in (*low, *given)):
                    raise NeedsTiles("has a set with holes that differs between tiles", rec)
                mask = points.mask([int(x) for x in low], _extents(rec, extents), given)
        start = tuple(simplify(np.add(f(values), first)) for f, first in zip(anchor.code, low, strict=True))
        view = rec.get(base)
        if isinstance(view, Tensor | Overlay):
            view = _view_of(rec, view)
        found = _extents(rec, extents)
        delivers(found)
        rec.set(result, AccessTile(view, start, found, order, mask))

    return action


@executes("ktdp.construct_indirect_access_tile")
def _indirect_tile(op: OpReader) -> Action:
    tile = op.view()
    base = op.operands[0]
    index_views = [op.slot(v) for v in tile.index_views]
    captured = [op.slot(v) for v in tile.captured]
    symbols = [op.slot(v) for v in tile.symbol_values]
    kinds = [bool(ir.BoolAttr(k).value) for k in ir.ArrayAttr(op.attribute("per_dim_subscript_kinds"))]
    maps = [IndexMap.of(ir.AffineMapAttr(m).value) for m in ir.ArrayAttr(op.attribute("per_dim_subscript_maps"))]
    points = IndexSet.of(op.attribute("variables_space_set"))
    rank = points.dims
    order = _order(op, "variables_space_order", rank)
    (result,), where, delivers = op.results, op.where, _delivers(op, order)

    def action(rec: Recorder) -> None:
        view = rec.get(base)
        if isinstance(view, Tensor | Overlay):
            view = _view_of(rec, view)
        given = [rec.known(slot) for slot in symbols]
        box = points.box(given)
        if box is None:
            raise Unsupported(f"{where} has a set without bounds", where.location)
        extents = _extents(rec, box[1])
        delivers(extents)
        if any(isinstance(x, np.ndarray) and x.ndim for x in (*given, *box[0])):
            raise NeedsTiles("has a set that differs between tiles", rec)
        low = [int(x) for x in box[0]]
        mask = points.mask(low, extents, given)
        values: list[Any] = []
        for slot in captured:
            number = np.asarray(rec.known(slot), np.int64)
            values.append(number.reshape((number.size,) + (1,) * rank))
        values += [first + numbers for first, numbers in zip(low, grid_of(extents), strict=True)]
        subscripts: list[Subscript] = []
        number = iter(index_views)
        for kind, map_ in zip(kinds, maps, strict=True):
            found = tuple(_full(f(values), rank) for f in map_.code)
            if kind:
                index = rec.get(next(number))
                subscripts.append(Subscript(None, None, index, found))
            else:
                row = map_.rows[0]
                subscripts.append(Subscript(found[0], None if row is None else row[0][len(captured) :]))
        rec.set(result, IndirectTile(view, tuple(subscripts), extents, order, mask))

    return action


def _full(value: Any, rank: int) -> Any:
    array = np.asarray(value, np.int64)
    return array.reshape((1,) * (1 + rank)) if array.ndim == 0 else array


@executes("ktdp.load")
def _load(op: OpReader) -> Action:
    (tile,), (result,), where = op.operands, op.results, op.where
    element = op.result_type().element

    def action(rec: Recorder) -> None:
        access = rec.get(tile)
        if isinstance(access, IndirectTile):
            rec.set(result, gather(rec, access, element, where))
            return
        assert isinstance(access, AccessTile)
        if isinstance(access.view, Distributed):
            load = rec.memory.load_distributed if access.mask is None else partial(gather_points, rec)
            rec.set(result, load(access, element, where))
        elif access.mask is not None or access.view.held is not None:
            rec.set(result, gather_points(rec, access, element, where))
        elif access.view.buffer is None:
            rec.set(result, rec.scratchpad.load(access, element, where))
        else:
            rec.set(result, rec.memory.load(access, element, where))

    return action


class _Rounded(PlainStep):
    """Numbers of the type that memory has, which is narrower."""

    def calls(self, binder: Binder) -> Iterable[Call]:
        source, target = binder.array(self.reads[0]), binder.array(self.writes[0])
        yield np.copyto, (target, source)
        yield round_to, (self.writes[0].element, target, target)

    def details(self) -> object:
        return self.writes[0].element


def _given(rec: Recorder, slot: int, access: AccessTile | IndirectTile) -> Tensor:
    """What is stored, as memory has it."""
    value, element = rec.tensor(slot), access.view.element
    if element == value.element or element not in NARROW.values():
        return value
    shape = (rec.tiles, *value.shape)
    result = rec.temporary(shape, (1, *value.shape) if value.at.strides[0] == 0 else shape, element)
    rec.emit(_Rounded((value,), (result,)))
    return result


@executes("ktdp.store")
def _store(op: OpReader) -> Action:
    (value, tile), where = op.operands, op.where
    ordered = op.attribute("ktir.ordered") is not None

    def action(rec: Recorder) -> None:
        access = rec.get(tile)
        if isinstance(access, IndirectTile):
            scatter(rec, _given(rec, value, access), access, where, ordered=ordered)
            return
        assert isinstance(access, AccessTile)
        if isinstance(access.view, Distributed):
            store = rec.memory.store_distributed if access.mask is None else partial(scatter_points, rec)
            store(_given(rec, value, access), access, where)
        elif access.mask is not None or access.view.held is not None:
            scatter_points(rec, _given(rec, value, access), access, where)
        elif access.view.buffer is None:
            rec.scratchpad.store(rec.get(value), access, where)
        else:
            rec.memory.store(_given(rec, value, access), access, where)

    return action


@executes("ktdp.runtime_arg_extract")
def _runtime_argument(op: OpReader) -> Action:
    kind = ir.IntegerAttr(op.attribute("kind")).value
    type_: Any = op.op.operands[0].type
    (argument,), (result,) = op.operands, op.results
    if kind == 0:
        return lambda rec: rec.set(result, rec.get(argument))
    number = type_.granularity if kind == 1 else type_.upperbound
    return lambda rec: rec.set(result, number)
