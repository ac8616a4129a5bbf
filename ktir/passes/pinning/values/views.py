"""What the views of an author are: memory with sizes and strides in numbers, and the parts of a distributed view that a tile lies in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from ktir.analysis.points import Numbers, Points
from ktir.analysis.scalars.sets import Span, tile_boxes
from ktir.diagnostics import KtirError, Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import arith, ir, is_a

MOST_PIECES = 64
"""Loads or stores that one of an author's becomes."""
Window = tuple[Span, ...]
"""Per dim of the base of an access tile: the first position in the tile, and how many."""


@dataclass(frozen=True)
class View:
    """Memory as a tensor: a coordinate x is at `address + sum(x * strides)`; it owns those from `low` on."""

    operation: ir.Operation
    value: ir.Value
    """The author's value of the address."""
    shift: int
    """Elements from that address to the coordinate 0."""
    low: tuple[int, ...]
    sizes: tuple[int | ir.Value, ...]
    strides: tuple[int, ...]
    masked: bool
    element: ir.Type = field(compare=False)
    local: bool = False
    """Whether it lies in the scratchpad."""


def is_distributed(tile: ir.Operation) -> bool:
    """Whether an access tile is on a view of several parts."""
    return not isinstance(tile.operands[0].owner, ir.Block) and is_a(tile.operands[0].owner, ktdp.ConstructDistributedMemoryViewOp)


def seen(tile: ir.Operation, points: Points) -> list[tuple[View, Window]]:
    """The views that an access tile lies in, each with what lies there of it. Raises Unsupported."""
    box = tile_boxes(tile)
    if not box.parts:
        raise refused(tile, "has a set without points, which is not pinned yet")
    if not is_distributed(tile):
        view = alone(tile.operands[0], tile, points)
        if view.local and box.parts != [box.whole]:
            raise refused(tile, "has a set that is not a box, in the scratchpad, which is not pinned yet")
        return [(view, part) for part in (_from_start(tile, box.parts, box.corner, points) if view.masked else box.parts)]
    if box.parts != [box.whole]:
        raise refused(tile, "has a set that is not a box, on a distributed view, which is not pinned yet")
    op = tile.operands[0].owner.operation
    parts = _parts(op, points)
    joined = _joined(op, parts, points)
    if joined is not None:
        return [(joined, box.whole)]
    found: list[tuple[View, Window]] = []
    view = tile.opview
    firsts = [points.affine(e, view.index_operands) + low for e, low in zip(view.base_map.results, box.corner, strict=True)]
    for part in parts:
        window = _window(tile, part, firsts, box.extents, points)
        if window is not None:
            found.append((part, window))
    distinct = {window for _, window in found}
    if sum(prod(n for _, n in window) for window in distinct) != prod(box.extents):
        raise refused(tile, "has coordinates that no part of its distributed view owns")
    return found


def _from_start(tile: ir.Operation, parts: Sequence[Window], corner: Sequence[int], points: Points) -> list[Window]:
    """Parts of a tile that are from position 0 on everywhere, and single positions that are so at some points, or nowhere."""
    found: list[Window] = []
    for part in parts:
        found += product(*(_spans(at, span, points) for at, span in zip(_firsts(tile, part, corner, points), part, strict=True)))
    if len(found) > MOST_PIECES:
        raise refused(tile, f"begins before its masked view in more than {MOST_PIECES} ways, which is not pinned yet")
    return found


def _spans(at: Numbers, span: Span, points: Points) -> list[Span]:
    first, extent = span
    before = np.broadcast_to(-at, points.live.shape)[points.live]
    least, most = (int(np.clip(n, 0, extent)) for n in (before.min(initial=extent), before.max(initial=0)))
    rest = [(first + most, extent - most)] if most < extent else []
    return [(first + k, 1) for k in range(least, most)] + rest or [(first, 1)]  # one of which nothing is there


def _firsts(tile: ir.Operation, part: Window, corner: Sequence[int], points: Points) -> list[Numbers]:
    """Where a part of a tile begins in its view, per dim."""
    view = tile.opview
    return [
        points.affine(expression, view.index_operands) + low + first
        for expression, low, (first, _) in zip(view.base_map.results, corner, part, strict=True)
    ]


def _masked_starts(tile: ir.Operation, points: Points) -> Iterator[tuple[int, Numbers]]:
    """Where a tile of a masked view begins in each dim that is known, by the dim."""
    if not is_a(tile, ktdp.ConstructAccessTileOp) or is_distributed(tile) or isinstance(tile.operands[0].owner, ir.Block):
        return
    owner = tile.operands[0].owner.operation
    if not is_a(owner, ktdp.ConstructMemoryViewOp) or "masked" not in owner.attributes:
        return
    view, box = tile.opview, tile_boxes(tile)
    for d, (expression, low) in enumerate(zip(view.base_map.results, box.corner, strict=True)):
        with suppress(Unsupported):  # it counts an inner loop's, or is data
            yield d, points.affine(expression, view.index_operands) + low + min(part[d][0] for part in box.parts)


def _moves(numbers: Numbers) -> bool:
    """Whether something changes from trip to trip of the innermost loop."""
    return numbers.shape[-1] > 1 and bool((numbers != numbers[..., :1]).any())


def begins_before(tile: ir.Operation, points: Points) -> bool:
    """Whether a tile of a masked view begins before it in some trips of the innermost loop and elsewhere in others."""
    starts = (at for _, at in _masked_starts(tile, points) if _moves(at))
    return any((np.broadcast_to(at, points.live.shape)[points.live] < 0).any() for at in starts)


def trips_inside(tile: ir.Operation, points: Points, trips: int) -> int:
    """How many trips of the innermost loop it takes until a tile of several dims of rows hangs over a masked view along one of them, which
    the loop walks: an address generator has one bound that follows loops, for rows that follow each other in memory."""
    over, starts = np.zeros((trips,), bool), dict(_masked_starts(tile, points))
    if starts:
        view, extents = tile.operands[0].owner.opview, tile_boxes(tile).extents
        rows = [d for d, stride in enumerate(view.strides) if stride != 1 and extents[d] != 1]
        for d in rows if len(rows) > 1 else []:
            if d in starts and view.clips(d) and _moves(starts[d]):
                hangs = starts[d] + extents[d] > points.number(view.sizes[d])
                over |= (np.broadcast_to(hangs, points.live.shape) & points.live).reshape(-1, trips).any(0)
    return int(over.argmax()) if over.any() else trips


def alone(value: ir.Value, tile: ir.Operation, points: Points) -> View:
    """A view that is no part of another one. Raises Unsupported, which names the access tile."""
    owner = value.owner
    if isinstance(owner, ir.Block) or not is_a(owner, ktdp.ConstructMemoryViewOp):
        raise refused(tile, "is on a view that is not made in the kernel by 'ktdp.construct_memory_view', which is not pinned yet")
    return _view(owner.operation, points, alone=True)


def split_dims(op: ir.Operation, points: Points) -> list[int]:
    """The dims along which the parts of a distributed view are not one piece of memory; none where all is one."""
    parts = _parts(op, points)
    if _joined(op, parts, points) is not None:
        return []
    return [d for d in range(len(parts[0].low)) if len({(p.low[d], p.sizes[d]) for p in parts}) > 1]


def _parts(op: ir.Operation, points: Points) -> list[View]:
    views = []
    for value in op.operands:
        if isinstance(value.owner, ir.Block) or not is_a(value.owner, ktdp.ConstructMemoryViewOp):
            raise refused(op, "expects parts that are made in the kernel by 'ktdp.construct_memory_view', others are not pinned yet")
        views.append(_view(value.owner.operation, points, alone=False))
    return views


def _view(op: ir.Operation, points: Points, *, alone: bool) -> View:
    """A view by itself, or a part of a distributed one."""
    view = op.opview
    local = view.memory_space != "global"
    if local and (not alone or view.ct_id is not None):
        whose = "a part of another view" if view.ct_id is None else f"that of tile {view.ct_id}"
        raise refused(op, f"lies in the scratchpad as {whose}, which is not pinned yet")

    def number(n: int | ir.Value) -> int | None:
        return n if isinstance(n, int) else points.same(points(n))

    strides = [number(s) for s in view.strides]
    if None in strides:
        raise refused(op, "expects a view with strides that are the same on every tile")
    dynamic = [n for n in view.sizes if not isinstance(n, int)]
    numbers = [number(n) for n in dynamic]
    sizes = [n if (n_ := number(n)) is None else n_ for n in view.sizes]
    owned = _box(view.attributes["coordinate_set"], numbers)
    if owned is not None and list(owned[1]) == sizes and (not alone or not any(owned[0])):
        low = owned[0]
    elif alone and (not dynamic and not view.masked):
        low = (0,) * len(sizes)  # where no coordinate is clipped the set says nothing more
    elif alone and view.attributes["coordinate_set"] == affine.box_set([n if isinstance(n, int) else None for n in view.sizes]):
        low = (0,) * len(sizes)
    else:
        raise refused(op, f"expects the coordinate set of a {'masked view' if alone else 'part'} to be the box of its sizes")
    shift = -sum(a * s for a, s in zip(low, strides, strict=True) if s is not None)
    return View(
        op, view.offset, shift, tuple(low), tuple(sizes), tuple(s or 0 for s in strides), alone and view.masked, view.element_type, local
    )


def _box(attribute: ir.Attribute, numbers: Sequence[int | None]) -> affine.Box | None:
    """The box of a coordinate set whose symbols are these numbers."""
    _, symbols = affine.set_counts(attribute)
    if symbols and (symbols != len(numbers) or None in numbers):
        return None
    if symbols:
        text = re.sub(r"\[[^\]]*\]", "", str(attribute))
        attribute = ir.Attribute.parse(re.sub(r"\bs(\d+)\b", lambda m: str(numbers[int(m[1])]), text))
    return affine.set_box(attribute)


def _joined(op: ir.Operation, parts: Sequence[View], points: Points) -> View | None:
    """The one piece of memory that all parts are; None where they are several."""
    starts = [address(p.value, points) for p in parts]
    (base, first), strides = starts[0], parts[0].strides
    if any(b != base for b, _ in starts) or any(p.strides != strides for p in parts):
        return None
    if any((n + p.shift != first + parts[0].shift).any() for (_, n), p in zip(starts, parts, strict=True)):
        return None
    ends = [max(p.low[d] + _size(p, d) for p in parts) for d in range(len(parts[0].low))]
    if sum(prod(_size(p, d) for d in range(len(ends))) for p in {p.low: p for p in parts}.values()) != prod(ends):
        return None
    return View(op, parts[0].value, parts[0].shift, (0,) * len(ends), tuple(ends), strides, False, parts[0].element)


def _size(part: View, dim: int) -> int:
    size = part.sizes[dim]
    assert isinstance(size, int)  # a part owns a box of numbers
    return size


def _window(tile: ir.Operation, part: View, firsts: Sequence[Numbers], extents: Sequence[int], points: Points) -> Window | None:
    """What of an access tile lies in a part, the same wherever the text runs; None for nothing."""
    found: list[tuple[int, int]] = []
    edges = []
    for d, (first, extent) in enumerate(zip(firsts, extents, strict=True)):
        begin = np.clip(part.low[d] - first, 0, extent)
        end = np.clip(part.low[d] + _size(part, d) - first, 0, extent)
        edges.append((begin, end))
    some = np.ones((1,) * points.live.ndim, bool)
    for begin, end in edges:
        some = some & (begin < end)
    lies = np.broadcast_to(some, points.live.shape)[points.live]
    if not lies.any():
        return None
    for begin, end in edges:
        a, b = points.same(begin), points.same(end)
        if a is None or b is None or not lies.all():
            raise refused(tile, "lies in other parts of a distributed view, or in more of one, on some tiles, which is not pinned yet")
        found.append((a, b - a))
    return tuple(found)


def address(value: ir.Value, points: Points) -> tuple[ir.Value | None, Numbers]:
    """The argument that an address is built on, None for a number, and what is added to it."""
    if _is_number(value, points):
        return None, points(value)
    owner = value.owner
    if not isinstance(owner, ir.Block):
        if is_a(owner, arith.IndexCastOp):
            return address(owner.operands[0], points)
        if is_a(owner, arith.AddIOp):
            a, b = owner.operands
            base, other = (b, a) if _is_number(a, points) else (a, b)
            if _is_number(other, points):
                argument, number = address(base, points)
                return argument, number + points(other)
    return value, points.number(0)


def check_begins(access: ir.Operation, tile: ir.Operation, parts: Sequence[tuple[View, Window]], points: Points) -> None:
    """Raise KtirError where an access reaches elements before those of an argument, as one by a negative stride may; a view that is masked
    clips."""
    corner, live = tile_boxes(tile).corner, points.live
    for view, window in parts:
        argument, low = address(view.value, points)
        if argument is None or view.masked or view.local:
            continue
        low, subscripts = low + view.shift, zip(tile.opview.base_map.results, corner, window, view.strides, strict=True)
        for expression, first, (start, extent), stride in subscripts:
            at = points.affine(expression, tile.opview.index_operands) + first + start
            low = low + np.minimum(at * stride, (at + extent - 1) * stride)
        least = np.broadcast_to(low, live.shape)[live].min(initial=0)
        if least < 0:
            does = "writes" if is_a(access, ktdp.StoreOp) else "reads"
            raise KtirError(
                f"'{access.name}' op {does} elements from {least} on of memory that begins at 0", location_text(access.location)
            )


def _is_number(value: ir.Value, points: Points) -> bool:
    """Whether a value is computed from numbers alone."""
    if value in points.known:
        return True
    return not isinstance(value.owner, ir.Block) and all(_is_number(v, points) for v in value.owner.operands)
