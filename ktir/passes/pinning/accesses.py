"""Loads and stores of a pinned kernel: in one piece, or one for each part of a distributed view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.structured import filled
from ktir.mlir import ir, tensor
from ktir.passes.pinning.values.elements import Leaf, Value
from ktir.passes.pinning.values.places import Place, even, sticks
from ktir.passes.pinning.values.tensors import Loaded, choose_stick, physical_shape, place_here, pointwise, rows_of
from ktir.passes.pinning.values.views import Window
from ktir.target import LANES

Places = Sequence[tuple[Place, Window]]


@dataclass(eq=False)
class Joined:
    """What the author loads from several parts, which lie side by side along `dim`: each is loaded to its own rows, or sticks, of it."""

    shape: tuple[int, ...]
    dim: int
    parts: list[tuple[int, Loaded]]
    """The first position of each."""
    anchor: ir.Operation
    forms: dict[tuple[int | None, tuple[tuple[int, int | None], ...]], ir.Value] = field(default_factory=dict)

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks: along which parts meet inside of one."""
        inside = any(first % LANES for first, _ in self.parts)
        return tuple({d for _, part in self.parts for d in part.in_rows} | ({self.dim} if inside else set()))

    def physical(self, stick: int | None, rows: tuple[tuple[int, int | None], ...], op: ir.Operation) -> ir.Value:
        if (stick, rows) not in self.forms:
            with ir.InsertionPoint(self.anchor), self.anchor.location:
                self.forms[stick, rows] = self._joined(stick, rows, op)
        return self.forms[stick, rows]

    def _joined(self, stick: int | None, rows: tuple[tuple[int, int | None], ...], op: ir.Operation) -> ir.Value:
        shape = [1 if stick is None else sticks(self.shape[stick]), even(prod(n for n, _ in rows)), LANES]
        odd = any(self._rows(part, rows) % 2 for _, part in self.parts)  # each moves a row more, over which the next one comes
        buffer = [shape[0], shape[1] + 2, LANES] if odd else shape
        type_ = self.parts[0][1].place.element
        short = prod(n for n, _ in rows) % 2 and self._rows(self.parts[-1][1], rows) % 2 == 0  # nobody moves the row that makes it even
        whole = filled(buffer, type_, 0) if short else tensor.EmptyOp(buffer, type_).result
        for first, part in self.parts:
            extent = part.place.shape[self.dim]
            at = _first(self.dim, first, extent, self.shape, stick, [d for n, d in rows if n != 1], op)
            for k, piece in enumerate(self._pieces(part, stick)):
                there = tuple((extent if d == self.dim else n, d) for n, d in rows)
                value = piece.physical(stick, there, op)
                sizes = list(ir.RankedTensorType(value.type).shape)
                whole = tensor.InsertSliceOp(value, whole, [], [], [], [at[0] + k, at[1], 0], sizes, [1, 1, 1]).result
        if odd:
            rows_ = ir.RankedTensorType.get(shape, type_)
            whole = tensor.ExtractSliceOp(rows_, whole, [], [], [], [0, 0, 0], shape, [1, 1, 1]).result
        return whole

    def _rows(self, part: Loaded, rows: tuple[tuple[int, int | None], ...]) -> int:
        return prod(part.place.shape[self.dim] if d == self.dim else n for n, d in rows)

    def _pieces(self, part: Loaded, stick: int | None) -> list[Loaded]:
        """What is moved at once: memory fills the scratchpad one byte after the other, but rows of several sticks lie apart there."""
        if stick is None or stick == self.dim:
            return [part]
        extent = self.shape[stick]
        return [Loaded(part.place.narrowed(stick, k, min(LANES, extent - k)), self.anchor) for k in range(0, extent, LANES)]


def loaded(op: ir.Operation, places: Places) -> Value:
    """What a load gives. Raises Unsupported for parts that are not side by side along one dim."""
    if len(places) > 1:
        places = list({window: (place, window) for place, window in reversed(places)}.values())  # a replica is as good as another
    if len(places) == 1:
        place = places[0][0]
        return Value(place.shape, Leaf(place.element, Loaded(place, place_here()), tuple(range(len(place.shape)))))
    shape, dim, firsts = _side_by_side(op, places)
    anchor = place_here()
    parts = [(first, Loaded(place, anchor)) for first, (place, _) in zip(firsts, places, strict=True)]
    joined = Joined(shape, dim, sorted(parts, key=lambda p: p[0]), anchor)
    return Value(shape, Leaf(places[0][0].element, joined, tuple(range(len(shape)))))


def stored(op: ir.Operation, value: Value, places: Places) -> None:
    """Write a value where its tile lies; to each replica of a part."""
    windows = {window for _, window in places}
    shape, dim, firsts = (places[0][0].shape, 0, [0] * len(places)) if len(windows) == 1 else _side_by_side(op, places)
    if value.shape != tuple(shape):
        raise refused(op, "stores a tensor whose dims were joined, which is not pinned yet")
    in_rows = {d for place, _ in places for d in place.in_rows} | ({dim} if any(first % LANES for first in firsts) else set())
    walked = [d for d, n in enumerate(shape) if n != 1 and d not in in_rows]
    wanted = next((d for d in reversed(walked) if places[0][0].dims[d].stride == 1), walked[-1] if walked else None)
    stick = choose_stick(value, wanted)
    made = pointwise(value, stick, op)
    rows = rows_of(shape, stick)
    for first, (place, _) in zip(firsts, places, strict=True):
        part = physical_shape(place.shape, stick)
        part[1] = prod(place.shape[d] for d in rows)
        piece = made
        if part != list(ir.RankedTensorType(made.type).shape):
            at = [0, 0, 0] if len(windows) == 1 else _first(dim, first, place.shape[dim], shape, stick, rows, op)
            type_ = ir.RankedTensorType.get(part, place.element)
            piece = tensor.ExtractSliceOp(type_, made, [], [], [], at, part, [1, 1, 1]).result
        ktdp.store(piece, place.row_tile(stick, rows_of(place.shape, stick)))


def _side_by_side(op: ir.Operation, places: Places) -> tuple[tuple[int, ...], int, list[int]]:
    """The whole shape of parts, the dim along which they lie, and the first position of each. Raises Unsupported."""
    order = places[0][0].op.opview.order
    windows = [window for _, window in places]
    dims = [d for d in range(len(order)) if len({window[d] for window in windows}) > 1]
    if len(dims) != 1:
        raise refused(op, "accesses parts of a distributed view that do not lie side by side along one dim, which is not pinned yet")
    (base,) = dims
    dim = list(order).index(base)
    shape = list(places[0][0].shape)
    shape[dim] = max(sum(window[base]) for window in windows)
    return tuple(shape), dim, [window[base][0] for window in windows]


def _first(
    dim: int, first: int, extent: int, shape: Sequence[int], stick: int | None, rows: Sequence[int | None], op: ir.Operation
) -> list[int]:
    """Where a part begins in the tensor of all: at a stick, or at a row. Raises Unsupported."""
    if dim == stick:
        if first % LANES or (extent % LANES and first + extent != shape[dim]):
            raise refused(
                op, f"accesses parts that meet inside of a stick of {LANES}; the nearest supported form cuts them at its multiples"
            )
        return [first // LANES, 0, 0]
    if dim != rows[0]:
        raise refused(op, "accesses parts along a dim that is not the outermost of its rows, which is not pinned yet")
    return [0, first * prod(shape[d] for d in rows[1:] if d is not None), 0]
