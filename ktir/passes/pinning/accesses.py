"""Loads and stores of a pinned kernel: in one piece, or one for each part of a distributed view."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ktir.analysis.scalars.sets import tile_boxes
from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.mlir import ir, is_a, tensor
from ktir.passes.flat.integers.intervals import all_of, width_of
from ktir.passes.pinning.values.elements import Leaf, Value
from ktir.passes.pinning.values.narrowed import from_memory, in_memory
from ktir.passes.pinning.values.places import MOST_PIECES, Place, is_cut, placed
from ktir.passes.pinning.values.tensors import (
    Joined,
    Loaded,
    choose_stick,
    physical_shape,
    place_here,
    pointwise,
    reshaped,
    rows_of,
)
from ktir.passes.pinning.values.views import Window

Places = Sequence[tuple[Place, Window]]


def loaded(op: ir.Operation, places: Places) -> Value:
    """What a load gives. Raises Unsupported for parts that are not side by side along one dim."""
    found, own = _loaded(op, places), ir.RankedTensorType(op.results[0].type).element_type
    return Value(found.shape, from_memory(found.element, own))


def _loaded(op: ir.Operation, places: Places) -> Value:
    if len(places) > 1:
        places = list({window: (place, window) for place, window in reversed(places)}.values())  # a replica is as good as another
    if len(places) == 1 and _is_whole(*places[0]):
        place = places[0][0]
        return Value(place.shape, Leaf(place.element, Loaded(place, place_here(), _bounds(op)), tuple(range(len(place.shape)))))
    shape, dim, firsts = _side_by_side(op, places)
    anchor = place_here()
    parts = [(first, Loaded(place, anchor, _bounds(op))) for first, (place, _) in zip(firsts, places, strict=True)]
    joined = Joined(shape, dim, sorted(parts, key=lambda p: p[0]), anchor)
    return Value(shape, Leaf(places[0][0].element, joined, tuple(range(len(shape)))))


def _bounds(op: ir.Operation) -> tuple[int, int] | None:
    """What integers a load may give, where they are narrower than the device's."""
    type_ = ir.RankedTensorType(op.results[0].type).element_type
    found = all_of(type_)
    return (int(found.low), int(found.high)) if 1 < (width_of(type_) or 32) < 32 else None


def stored(op: ir.Operation, value: Value, places: Places) -> None:
    """Write a value where its tile lies; to each replica of a part."""
    value = Value(value.shape, in_memory(value.element))
    windows = {window for _, window in places}
    alone = len(windows) == 1 and _is_whole(places[0][0], *windows)
    shape, dim, firsts = (places[0][0].shape, 0, [0] * len(places)) if alone else _side_by_side(op, places)
    if alone and len(value.shape) > len(shape) and value.shape[:-2] == shape[:-1] and all(place.splits for place, _ in places):
        places = [(place.split(len(shape) - 1, value.shape[-1]), window) for place, window in places]  # as the memory lies
        shape = value.shape
    if value.shape != tuple(shape):
        value = reshaped(value, tuple(shape), op)
    in_rows = {d for place, _ in places for d in place.in_rows}
    if not alone and is_cut([(first, place.shape[dim]) for first, (place, _) in zip(firsts, places, strict=True)], shape[dim]):
        in_rows.add(dim)
    walked = [d for d, n in enumerate(shape) if n != 1 and d not in in_rows]
    wanted = next((d for d in reversed(walked) if places[0][0].dims[d].stride == 1), walked[-1] if walked else None)
    stick = choose_stick(value, wanted)
    made = pointwise(value, stick, op)
    walked = [(shape[d], d) for d in rows_of(shape, stick)]
    for first, (place, _) in zip(firsts, places, strict=True):
        pieces = [([0, 0, 0], place)] if alone else placed(place, dim, first, shape, stick, walked)
        for at, piece in pieces:
            _put(made, at, piece, stick, op)


def _put(made: ir.Value, at: list[int], place: Place, stick: int | None, op: ir.Operation) -> None:
    """Store what lies at a place from `at` on, by positions of the outermost row dim where one walk does not reach all rows."""
    part, rows = physical_shape(place.shape, stick), rows_of(place.shape, stick)
    part[1] = prod(place.shape[d] for d in rows)
    try:
        tile = place.row_tile(stick, rows)
    except Unsupported:
        if len(rows) < 2 or part[1] > MOST_PIECES * place.shape[rows[-1]]:
            raise
        inner = part[1] // place.shape[rows[0]]
        for k in range(place.shape[rows[0]]):
            _put(made, [at[0], at[1] + k * inner, 0], place.narrowed(rows[0], k, 1), stick, op)
        return
    piece = made
    if part != list(ir.RankedTensorType(made.type).shape):
        type_ = ir.RankedTensorType.get(part, place.element)
        piece = tensor.ExtractSliceOp(type_, made, [], [], [], at, part, [1, 1, 1]).result
    ktdp.store(piece, tile)


def _side_by_side(op: ir.Operation, places: Places) -> tuple[tuple[int, ...], int, list[int]]:
    """The whole shape of parts, the dim along which they lie, and the first position of each. Raises Unsupported."""
    order = places[0][0].op.opview.order
    windows, whole = [window for _, window in places], _whole(places)
    dims = [d for d in range(len(order)) if any(window[d] != (0, whole[d]) for window in windows)]
    if len(dims) != 1:
        raise refused(op, "accesses parts that do not lie side by side along one dim, which is not pinned yet")
    (base,) = dims
    dim = list(order).index(base)
    shape = list(places[0][0].shape)
    shape[dim] = whole[base]
    return tuple(shape), dim, [window[base][0] for window in windows]


def _whole(places: Places) -> Sequence[int]:
    """The extents of the tile that parts are of: by dims of its base, of an indirect one by its variables."""
    tile = places[0][0].op
    if is_a(tile, ktdp.ConstructAccessTileOp):
        return tile_boxes(tile).extents
    return [max(sum(window[d]) for _, window in places) for d in range(len(places[0][1]))]


def _is_whole(place: Place, window: Window) -> bool:
    """Whether a part is all of its tile, as a place without a window is."""
    return not window or list(window) == [(0, n) for n in _whole([(place, window)])]
