"""Kernels that load elsewhere what they have stored: they are cut before the load, into kernels one behind the other.

What a later part needs of an earlier one it computes again, from memory that nobody has written in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ktir.analysis.points import Points, is_index
from ktir.analysis.scalars.sets import tile_boxes
from ktir.diagnostics import KtirError, Unsupported
from ktir.dialects import ktdp
from ktir.mlir import func, ir, is_a, operations, scf
from ktir.passes.pinning.values.views import address, alone

_MOST = 1 << 22
"""Elements of an access that are looked at one by one."""


@dataclass(frozen=True)
class _Access:
    stores: bool
    memory: int | str | None
    """Which memory it is: an argument by its position, or the type of what lies at an address that is a number; two are apart."""
    elements: np.ndarray | None
    """What it touches, on any tile in any trip; None where that is not known."""

    def meets(self, other: _Access) -> bool | None:
        """Whether both touch an element; None where that is not known."""
        if None not in (self.memory, other.memory) and self.memory != other.memory:
            return False
        if self.elements is None or other.elements is None or None in (self.memory, other.memory):
            return None
        return bool(np.intersect1d(self.elements, other.elements).size)


def cut(kernel: func.FuncOp, given: Mapping[int, float]) -> list[func.FuncOp]:
    """The parts of a kernel, in order, behind it; none where nothing has to be cut, or cannot be."""
    ops = [view.operation for view in kernel.regions[0].blocks[0].operations]
    if not _reads_its_own(ops) or any(_is_local(op) for op in operations(kernel)):  # the scratchpad has its own order
        return []
    body = kernel.regions[0].blocks[0]
    try:
        points = Points(kernel.operation, {i: int(n) for i, n in given.items() if is_index(body.arguments[i].type)})
        accesses = [list(_accesses(op, points)) for op in ops]
    except KtirError:  # whoever pins it says why
        return []
    begins = _begins(accesses)
    if len(begins) == 1:
        return []
    parts: list[func.FuncOp] = []
    for number, (first, end) in enumerate(zip(begins, [*begins[1:], len(ops)], strict=True)):
        with ir.InsertionPoint(kernel):
            part = kernel.operation.clone().opview
        part.operation.attributes["sym_name"] = ir.StringAttr.get(f"{kernel.name.value}__part{number}")
        parts.append(part)
        if not _keep(part, first, end, accesses):
            for made in parts:
                made.operation.erase()
            return []
    return parts


def _reads_its_own(ops: list[ir.Operation]) -> bool:
    """Whether some op loads behind one that stores."""
    stored = False
    for op in ops:
        kinds = {inner.name for inner in _within(op)}
        if stored and ktdp.LoadOp.OPERATION_NAME in kinds:
            return True
        stored |= ktdp.StoreOp.OPERATION_NAME in kinds
    return False


def _begins(accesses: list[list[_Access]]) -> list[int]:
    """Where parts begin: at the first op, and at those that load what an op of the part has stored."""
    begins, stores = [0], list[_Access]()
    for k, own in enumerate(accesses):
        if any(store.meets(load) for load in own if not load.stores for store in stores):
            begins.append(k)
            stores = []
        stores += [a for a in own if a.stores]
    return begins


def _keep(part: func.FuncOp, first: int, end: int, accesses: list[list[_Access]]) -> bool:
    """Leave of a copy the ops from `first` on, and what they need of those before; whether that can be computed again."""
    ops = [view.operation for view in part.regions[0].blocks[0].operations]
    stores = [a for own in accesses[:first] for a in own if a.stores]
    for k in reversed(range(len(ops) - 1)):
        if first <= k < end:
            continue
        if not any(True for r in ops[k].results for _ in r.uses):
            ops[k].erase()
            continue
        if any(is_a(op, ktdp.StoreOp) or op.name.startswith("ktdp.inter_tile") for op in _within(ops[k])):
            return False
        if any(store.meets(load) is not False for load in accesses[k] for store in stores):
            return False
    return True


def _accesses(op: ir.Operation, points: Points) -> Iterator[_Access]:
    """Those of an op and of what is in it, but for the scratchpad."""
    if is_a(op, ktdp.LoadOp, ktdp.StoreOp):
        if not _is_local(op):
            yield _access(op, points)
    elif is_a(op, scf.ForOp):
        with _trips(op, points) as known:
            for view in op.regions[0].blocks[0].operations:
                for access in _accesses(view.operation, points):
                    yield access if known else _Access(access.stores, access.memory, None)
    else:
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    yield from _accesses(view.operation, points)


@contextmanager
def _trips(loop: ir.Operation, points: Points) -> Iterator[bool]:
    """Open a loop; whether its trips are known before the kernel starts."""
    counter = loop.regions[0].blocks[0].arguments[0]
    try:
        lower, upper, step = (points(v) for v in list(loop.operands)[:3])
        each = points.same(step)
        if each is None or each <= 0:
            raise Unsupported("")
        trips = np.broadcast_to(np.maximum(0, -(-(upper - lower) // each)), points.live.shape)
        counters = points.counters(lower, each, max(1, int(trips.max())), loop)
    except KtirError:
        with points.loop(counter, np.zeros((1,) * (points.live.ndim + 1), np.int64), points.live[..., None]):
            yield False
        return
    live = points.live[..., None] & (np.arange(counters.shape[-1]) < trips[..., None])
    with points.loop(counter, counters, live):
        yield True


def _access(op: ir.Operation, points: Points) -> _Access:
    """A load or a store of memory."""
    stores, tile = is_a(op, ktdp.StoreOp), list(op.operands)[-1].owner
    try:
        if isinstance(tile, ir.Block) or not is_a(tile, ktdp.ConstructAccessTileOp):
            raise Unsupported("")
        view = alone(tile.operands[0], tile.operation, points)
        argument, begin = address(view.value, points)
        memory = str(view.element) if argument is None else ir.BlockArgument(argument).arg_number
    except (KtirError, ValueError):  # an address that is no argument
        return _Access(stores, None, None)
    box = tile_boxes(tile.operation)
    if points.live.size * float(np.prod(box.extents)) > _MOST:
        return _Access(stores, memory, None)
    rank = len(box.extents)
    apart = (..., *[None] * rank)
    found, inside = (begin + view.shift)[apart], points.live[apart]
    for d, (expression, low, extent) in enumerate(zip(tile.opview.base_map.results, box.corner, box.extents, strict=True)):
        along = np.arange(extent).reshape([-1 if k == d else 1 for k in range(rank)])
        at = (points.affine(expression, tile.opview.index_operands) + low)[apart] + along
        found = found + at * view.strides[d]
        if view.masked:
            inside = inside & (at >= 0) & (at < points.number(view.sizes[d])[apart])
    found, inside = np.broadcast_arrays(found, inside)
    return _Access(stores, memory, np.unique(found[inside]))


def _within(op: ir.Operation) -> Iterator[ir.Operation]:
    """An op, and all that is in it."""
    yield op
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield from _within(view.operation)


def _is_local(op: ir.Operation) -> bool:
    """Whether an op accesses the scratchpad."""
    if not is_a(op, ktdp.LoadOp, ktdp.StoreOp):
        return False
    tile = list(op.operands)[-1].owner
    view = tile if isinstance(tile, ir.Block) else tile.operands[0].owner
    return not isinstance(view, ir.Block) and is_a(view, ktdp.ConstructMemoryViewOp) and view.opview.memory_space != "global"
