"""Loads and stores of a pinned kernel: in one piece, or one for each part of a distributed view."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ktir.analysis.scalars.sets import Span, tile_boxes
from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.mlir import ir, is_a, tensor
from ktir.passes.flat.integers.intervals import all_of, width_of
from ktir.passes.pinning.values.elements import Leaf, Value, of_type
from ktir.passes.pinning.values.narrowed import from_memory, in_memory
from ktir.passes.pinning.values.parts import part_of, together
from ktir.passes.pinning.values.places import MOST_PIECES, Place, is_cut, placed
from ktir.passes.pinning.values.rows import physical_shape, rows_of
from ktir.passes.pinning.values.tensors import Joined, Loaded, choose_stick, place_here, pointwise, reshaped
from ktir.passes.pinning.values.views import Window

Places = Sequence[tuple[Place, Window]]


def loaded(op: ir.Operation, places: Places) -> Value:
    """What a load gives. Raises Unsupported for parts that are not side by side along one dim, and these along another one."""
    if len(places) > 1:
        places = list({window: (place, window) for place, window in reversed(places)}.values())  # a replica is as good as another
    found, own = _loaded(op, places, _whole(places)), ir.RankedTensorType(op.results[0].type).element_type
    return Value(found.shape, from_memory(found.element, own))


def _loaded(op: ir.Operation, places: Places, whole: Sequence[int]) -> Value:
    if len(places) == 1 and _is_whole(*places[0], whole):
        place = places[0][0]
        return Value(place.shape, Leaf(place.element, Loaded(place, place_here(), _bounds(op)), tuple(range(len(place.shape)))))
    apart = _parted(places, whole)
    if len(apart) > 1:
        return _in_layers(op, places, whole, apart[0])
    shape, dim, firsts = _side_by_side(op, places, whole)
    anchor = place_here()
    parts = [(first, Loaded(place, anchor, _bounds(op))) for first, (place, _) in zip(firsts, places, strict=True)]
    joined = Joined(shape, dim, sorted(parts, key=lambda p: p[0]), anchor)
    return Value(shape, Leaf(places[0][0].element, joined, tuple(range(len(shape)))))


def _in_layers(op: ir.Operation, places: Places, whole: Sequence[int], base: int) -> Value:
    """Parts that lie along several dims of their view: those at one place along the first one are a value, zero where there is none."""
    layers, values, end, dim = _layers(places, whole, base), list[Value](), 0, list(places[0][0].op.opview.order).index(base)
    shape = [whole[d] for d in places[0][0].op.opview.order]

    def nothing(extent: int) -> list[Value]:
        return [Value((*shape[:dim], extent, *shape[dim + 1 :]), of_type(places[0][0].element, 0))] if extent else []

    for (first, extent), layer, inner in layers:
        values += [*nothing(first - end), _loaded(op, layer, inner)]
        end = first + extent
    return together([*values, *nothing(whole[base] - end)], dim, tuple(shape), op)


def _layers(places: Places, whole: Sequence[int], base: int) -> list[tuple[Span, Places, Sequence[int]]]:
    """The parts at each place along a dim of their view, as parts of a tile of that extent."""
    found: dict[Span, list[tuple[Place, Window]]] = {}
    for place, window in places:
        alone = tuple((0, n) if d == base else (first, n) for d, (first, n) in enumerate(window))
        found.setdefault(window[base], []).append((place, alone))
    return [(span, layer, [*whole[:base], span[1], *whole[base + 1 :]]) for span, layer in sorted(found.items())]


def _bounds(op: ir.Operation) -> tuple[int, int] | None:
    """What integers a load may give, where they are narrower than the device's."""
    type_ = ir.RankedTensorType(op.results[0].type).element_type
    found = all_of(type_)
    return (int(found.low), int(found.high)) if 1 < (width_of(type_) or 32) < 32 else None


def stored(op: ir.Operation, value: Value, places: Places) -> None:
    """Write a value where its tile lies; to each replica of a part."""
    _stored(op, Value(value.shape, in_memory(value.element)), places, _whole(places))


def _stored(op: ir.Operation, value: Value, places: Places, whole: Sequence[int]) -> None:
    apart = _parted(places, whole)
    if len(apart) > 1:
        order = places[0][0].op.opview.order
        value = value if len(value.shape) == len(order) else reshaped(value, tuple(whole[d] for d in order), op)
        for (first, extent), layer, inner in _layers(places, whole, apart[0]):
            _stored(op, part_of(value, list(order).index(apart[0]), first, extent, op), layer, inner)
        return
    alone = not apart and len({window for _, window in places}) == 1
    shape, dim, firsts = (places[0][0].shape, 0, [0] * len(places)) if alone else _side_by_side(op, places, whole)
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


def _parted(places: Places, whole: Sequence[int]) -> list[int]:
    """The dims of their view along which parts of a tile are not all of it."""
    return [d for d in range(len(whole)) if any(window and window[d] != (0, whole[d]) for _, window in places)]


def _side_by_side(op: ir.Operation, places: Places, whole: Sequence[int]) -> tuple[tuple[int, ...], int, list[int]]:
    """The whole shape of parts, the dim along which they lie, and the first position of each. Raises Unsupported."""
    order, dims = places[0][0].op.opview.order, _parted(places, whole)
    if len(dims) != 1:
        raise refused(op, "accesses parts that do not lie side by side, which is not pinned yet")
    (base,) = dims
    dim = list(order).index(base)
    shape = list(places[0][0].shape)
    shape[dim] = whole[base]
    return tuple(shape), dim, [window[base][0] for _, window in places]


def _whole(places: Places) -> Sequence[int]:
    """The extents of the tile that parts are of: by dims of its base, of an indirect one by its variables."""
    tile = places[0][0].op
    if is_a(tile, ktdp.ConstructAccessTileOp):
        return tile_boxes(tile).extents
    return [max(sum(window[d]) for _, window in places) for d in range(len(places[0][1]))]


def _is_whole(place: Place, window: Window, whole: Sequence[int]) -> bool:
    """Whether a part is all of its tile, as a place without a window is."""
    return not window or list(window) == [(0, n) for n in whole]
