"""ktdp: tile ids, views, access tiles, loads and stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.maps import IndexMap
from ktir.emulator.reference.recorder import Recorder
from ktir.emulator.reference.registry import Action, executes
from ktir.emulator.reference.values import AccessTile, Pointer, View, simplify
from ktir.mlir import ir


@executes("ktdp.get_compute_tile_id")
def _tile_id(op: OpReader) -> Action:
    results, where = op.results, op.where

    def action(rec: Recorder) -> None:
        if len(results) > len(rec.grid):
            raise KtirError(f"{where} asks for {len(results)} coordinates of a grid of {len(rec.grid)} dims", where.location)
        coordinates = np.unravel_index(np.arange(rec.tiles), rec.grid)  # last dim fastest
        for slot, coordinate in zip(results, coordinates, strict=False):
            rec.set(slot, simplify(np.asarray(coordinate, np.int64)))

    return action


@executes("ktdp.construct_memory_view")
def _view(op: OpReader) -> Action:
    view = op.view()
    if view.ct_id is not None:
        raise op.unsupported("names the scratchpad of another tile (ct_id)")
    base = op.slot(view.offset)
    sizes: list[tuple[bool, int]] = [(True, s) if isinstance(s, int) else (False, op.slot(s)) for s in view.sizes]
    strides: list[tuple[bool, int]] = [(True, s) if isinstance(s, int) else (False, op.slot(s)) for s in view.strides]
    dynamic = [not fixed for fixed, _ in sizes]
    # `masked` on a view whose sizes have all become constants still means: clip.
    masked = tuple(dynamic) if any(dynamic) or not view.masked else (True,) * len(sizes)
    element = str(view.element_type)
    space: str = view.memory_space
    (result,), where = op.results, op.where

    def action(rec: Recorder) -> None:
        offset: Any = rec.get(base)
        known = tuple(s if fixed else rec.known(s) for fixed, s in sizes)
        steps = tuple(s if fixed else rec.integer(s, "a stride") for fixed, s in strides)
        buffer = None
        if isinstance(offset, Pointer):
            if space != "global":
                raise Unsupported(f"{where} puts a view of LX at the address of a buffer", where.location)
            buffer, offset = offset.buffer, offset.offset
        elif space == "global":
            buffer = rec.memory.numbered()
        rec.set(result, View(buffer, offset, known, steps, masked, element))

    return action


@executes("ktdp.construct_access_tile")
def _access_tile(op: OpReader) -> Action:
    tile = op.view()
    if not isinstance(op.op.operands[0].type, ir.MemRefType):
        raise op.unsupported("accesses a tensor")
    base = op.slot(tile.base)
    anchor = IndexMap.of(tile.base_map)
    indices = [op.slot(v) for v in tile.index_operands]
    low, extents, order = tuple(tile.box_lo), tuple(tile.box_extent), tuple(tile.order)
    (result,) = op.results

    def action(rec: Recorder) -> None:
        values = [rec.known(slot) for slot in indices]
        start = tuple(simplify(np.add(f(values), first)) for f, first in zip(anchor.code, low, strict=True))
        rec.set(result, AccessTile(rec.get(base), start, extents, order))

    return action


@executes("ktdp.load")
def _load(op: OpReader) -> Action:
    (tile,), (result,), where = op.operands, op.results, op.where
    element = op.result_type().element

    def action(rec: Recorder) -> None:
        access: AccessTile = rec.get(tile)
        if access.view.buffer is None:
            rec.set(result, rec.scratchpad.load(access, element, where))
        else:
            rec.set(result, rec.memory.load(access, element, where))

    return action


@executes("ktdp.store")
def _store(op: OpReader) -> Action:
    (value, tile), where = op.operands, op.where

    def action(rec: Recorder) -> None:
        access: AccessTile = rec.get(tile)
        if access.view.buffer is None:
            rec.scratchpad.store(rec.get(value), access, where)
        else:
            rec.memory.store(rec.tensor(value), access, where)

    return action
