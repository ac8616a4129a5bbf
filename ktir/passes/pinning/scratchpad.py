"""The scratchpad as an author uses it: each view stays at its bytes, and what the compiler places keeps away from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from ktir.analysis.attributes.residents import RESIDENT, RESIDENTS
from ktir.analysis.points import Numbers
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import index_sum
from ktir.mlir import func, integer_attribute, ir, is_a, operations
from ktir.passes.flat.integers.intervals import width_of
from ktir.passes.pinning.values.elements import Apply, Element, Leaf, Value, chosen
from ktir.passes.pinning.values.places import MOST_PIECES, Place, Row, even, sticks, times
from ktir.passes.pinning.values.rows import assembled, copied, rows_of, taken
from ktir.passes.pinning.values.tensors import Made, choose_stick, pointwise
from ktir.target import LANES, element_bytes

_NUMBER = "ktir.access"
"""On a view, until all are known: which access it is."""
_SOME_TILES = (
    "accesses the scratchpad on some tiles only, where not all of them have written before, which is not pinned yet; the nearest supported "
    "form accesses it on all of them, and chooses what it stores there by 'arith.select'"
)
_WHOLE = 256
"""Bytes of what is kept, at least: an entry of f32."""


@dataclass(frozen=True)
class Access:
    """Bytes at each of `starts`: `rows`, `stride` bytes apart, which the two corelets halve. A row is `width` bytes of whole entries, of
    which the author means the first `meant`."""

    op: ir.Operation
    starts: Numbers
    rows: int
    stride: int
    width: int
    meant: int
    fills: bool = False
    """Whether all tiles write there."""

    @property
    def span(self) -> int:
        return (self.rows - 1) * self.stride + self.width

    @property
    def low(self) -> int:
        return int(self.starts.min()) // _WHOLE * _WHOLE

    @property
    def high(self) -> int:
        return -(-(int(self.starts.max()) + self.span) // _WHOLE) * _WHOLE

    def covers(self, other: Access) -> bool:
        """Whether it may overwrite, or read as its own, bytes beside what another access means, or the other one bytes beside its own."""
        if self.meant == self.width and other.meant == other.width:
            return False
        apart = self.starts[:, None] - other.starts[None, :]
        overlap = (apart < other.span) & (-apart < self.span)
        alike = (self.rows, self.stride, self.meant) == (other.rows, other.stride, other.meant)
        return bool((overlap & (apart != 0 if alike else True)).any())

    def clashes(self, other: Access) -> bool:
        """Whether a corelet may find what the other one has written, for which it does not wait."""
        apart = self.starts[:, None] - other.starts[None, :]
        overlap = (apart < other.span) & (-apart < self.span)
        alike = self.rows == other.rows and (self.rows == 1 or self.stride == other.stride)
        return bool((overlap & (np.abs(apart) >= (self.stride if alike else 0))).any())


class Uneven(Exception):
    """Accesses of the same bytes have other rows: those of these views have to be taken row by row."""

    def __init__(self, views: set[ir.Operation]) -> None:
        super().__init__()
        self.views = views


class AuthorScratchpad:
    """Writes loads and stores of the author's views, and says in the end what he uses."""

    def __init__(self, by_rows: frozenset[ir.Operation]) -> None:
        """`by_rows`: the views that are accessed row by row, as others have other rows there: a single row is the same to both corelets."""
        self.by_rows = by_rows
        self.accesses: list[Access] = []
        self.idle: ir.Value | None = None
        """The guard of cores without a tile of their own, whose scratchpad nobody reads."""

    def loaded(self, op: ir.Operation, place: Place) -> Value:
        """What a load gives: a copy, since the author may write there while it is in use."""
        stick = self._stick(op, place)
        if self._on_some_tiles(place) and not self._is_filled(place, stick):
            raise refused(op, _SOME_TILES)
        if self._is_whole(place, stick):
            made = copied(ktdp.load(next(self._tiles(place, stick))[1], place.element))
        else:  # each is loaded behind what the buffer begins as
            pieces = ((0, row, copied(ktdp.load(tile, place.element))) for row, tile in self._tiles(place, stick))
            made = assembled(pieces, place.element, place.shape, stick)
        return Value(place.shape, Leaf(place.element, Made(made, place.shape, stick), tuple(range(len(place.shape)))))

    def stored(self, op: ir.Operation, value: Value, place: Place, runs: Callable[[ir.Value], Element]) -> None:
        """Write a value: what is computed for it alone is computed there. `runs`: whether a guard is 1, as data."""
        if place.guard is not None and self._on_some_tiles(place):  # the others write what is there
            value = Value(value.shape, chosen(runs(place.guard), value.element, self.loaded(op, place).element))
        if value.shape != place.shape:
            raise refused(op, "stores a tensor whose dims were joined, which is not pinned yet")
        stick = self._stick(op, place)
        if choose_stick(value, stick) != stick:
            raise refused(op, "stores a tensor with another dim in its sticks than the scratchpad has, which is not pinned yet")
        made = pointwise(value, stick, op)
        if self._is_whole(place, stick):
            source = copied(made) if not isinstance(value.element, Apply) or list(made.uses) else made
            ktdp.store(source, next(self._tiles(place, stick, fills=True))[1])
            return
        lanes, _, width = ir.RankedTensorType(made.type).shape
        for row, tile in self._tiles(place, stick, fills=True):
            ktdp.store(copied(taken(made, [0, row, 0], [lanes, 1, width])), tile)

    def _stick(self, op: ir.Operation, place: Place) -> int | None:
        """Which dim lies in the sticks. Raises Unsupported for what is not pinned."""
        view = place.view.operation
        if (width_of(place.view.element) or 32) < 32:
            raise refused(
                view, f"keeps {place.view.element} in the scratchpad, where the device has 32 bits; the nearest supported form is i32"
            )
        stick = next((d for d, dim in enumerate(place.dims) if dim.stride == 1 and dim.extent != 1), None)
        if stick is None and prod(place.shape) != 1:
            raise refused(view, "expects tiles of the scratchpad whose elements are side by side, others are not pinned yet")
        if any(d.room is not None for d in place.dims):
            raise refused(op, "accesses the scratchpad clipped, which is not pinned yet")
        return stick

    def _on_some_tiles(self, place: Place) -> bool:
        return place.guard is not None and (self.idle is None or place.guard != self.idle)

    def _is_filled(self, place: Place, stick: int | None) -> bool:
        """Whether all tiles have written the rows before that some of them access, which lie at one address."""
        starts, bytes_ = place.starts(everywhere=True), element_bytes(place.element)
        extent = 1 if stick is None else place.shape[stick]
        width, meant = sticks(extent) * LANES * bytes_, extent * bytes_
        ours = [a for a in self.accesses if a.fills and len(a.starts) == 1 and a.op.opview.element_type == place.view.element]
        filled = {(int(a.starts[0]) + k * a.stride, a.width, a.meant) for a in ours for k in range(a.rows)}
        steps = [[k * place.dims[d].stride for k in range(place.shape[d])] for d in rows_of(place.shape, stick)]
        return len(starts) == 1 and all(((int(starts[0]) + sum(at)) * bytes_, width, meant) in filled for at in product(*steps))

    def _is_whole(self, place: Place, stick: int | None) -> bool:
        """Whether all rows of a place are accessed at once."""
        count = prod(place.shape[d] for d in rows_of(place.shape, stick))
        return count == 1 or (count == even(count) and place.view.operation not in self.by_rows and _distance(place, stick) is not None)

    def _tiles(self, place: Place, stick: int | None, *, fills: bool = False) -> Iterator[tuple[int, ir.Value]]:
        """The access tiles of a place, with the row of each: one, or one for each row. Raises Unsupported."""
        view, rows = place.view.operation, rows_of(place.shape, stick)
        count = prod(place.shape[d] for d in rows)
        if self._is_whole(place, stick):
            yield 0, self._tile(place, stick, 0, count, _distance(place, stick), fills)
            return
        if count > MOST_PIECES:
            raise refused(view, f"has {count} rows in the scratchpad that have to be moved one by one, more than {MOST_PIECES}; the "
                          "nearest supported form accesses the same even number of rows each time")  # fmt: skip
        for row, at in enumerate(product(*(range(place.shape[d]) for d in rows))):
            shift = sum(k * place.dims[d].stride for k, d in zip(at, rows, strict=True))
            yield row, self._tile(place, stick, shift, 1, None, fills)

    def _tile(self, place: Place, stick: int | None, shift: int, count: int, distance: int | None, fills: bool) -> ir.Value:
        """The access tile of so many rows, `shift` elements behind the first one of a place."""
        view, bytes_ = place.view.operation, element_bytes(place.element)
        extent = 1 if stick is None else place.shape[stick]
        width = sticks(extent) * LANES
        distance = width if count == 1 or distance is None else distance
        starts = place.starts(everywhere=self._on_some_tiles(place)) + shift
        if distance % LANES or distance < width or (starts % LANES).any():
            raise refused(view, f"expects rows in the scratchpad that begin at multiples of {LANES} elements")
        if (starts < 0).any():
            raise refused(view, "lies before the scratchpad")
        base = index_sum(place.base, shift)
        for dim in place.dims:
            base = index_sum(base, times(dim.first, dim.stride))
        number = {_NUMBER: integer_attribute(len(self.accesses))}
        self.accesses.append(Access(view, starts * bytes_, count, distance * bytes_, width * bytes_, extent * bytes_, fills))
        shape = [width // LANES, count, LANES]
        memory = ktdp.construct_memory_view(base, shape, [LANES, distance, 1], place.element, "ct_local", attributes=number)
        return ktdp.construct_access_tile(memory, [0, 0, 0], shape)

    def state(self, function: func.FuncOp, lx_bytes: int) -> list[Access]:
        """Say which bytes are the author's, and return the accesses.

        Raises Uneven where the corelets would get in each other's way, and Unsupported where rows do not help, or there are too few bytes.
        """
        views = [op for op in operations(function) if is_a(op, ktdp.ConstructMemoryViewOp) and _NUMBER in op.attributes]
        used = [self.accesses[ir.IntegerAttr(v.attributes[_NUMBER]).value] for v in views]
        for k, a in enumerate(used):
            if a.high > lx_bytes:
                raise refused(a.op, f"reaches byte {a.high} of the scratchpad, which has {lx_bytes}")
            for b in used[:k]:
                if a.clashes(b) or a.covers(b) or b.covers(a):
                    if uneven := {c.op for c in (a, b) if c.rows > 1}:
                        raise Uneven(uneven)
                    if a.clashes(b):
                        raise refused(a.op, "shares bytes of the scratchpad with an access that has other rows, which is not pinned yet")
        check_parts(used)
        regions: list[tuple[int, int]] = []
        for low, high in sorted((a.low, a.high) for a in used):
            if regions and low < regions[-1][1]:
                regions[-1] = regions[-1][0], max(high, regions[-1][1])
            else:
                regions.append((low, high))
        kept = [kt.ResidentAttr.build(f"lx{low}", low, high - low) for low, high in regions]
        for view, access in zip(views, used, strict=True):
            del view.attributes[_NUMBER]
            view.attributes[RESIDENT] = next(r for r, (low, high) in zip(kept, regions, strict=True) if low <= access.low < high)
        if kept:
            function.operation.attributes[RESIDENTS] = ir.ArrayAttr.get(kept)
        return used


def _distance(place: Place, stick: int | None) -> int | None:
    """How far the rows of a place are apart; None where they have no one distance."""
    return place.distance([Row(place.shape[d], place.dims[d]) for d in rows_of(place.shape, stick)])


def check_parts(accesses: Sequence[Access]) -> None:
    """Raise Unsupported where an access of less than whole entries shares one with what is beside it."""
    partial = [a for a in accesses if a.meant != a.width]
    for a in partial:
        for b in accesses:
            if a.covers(b):
                what = f"has {a.meant} bytes of rows of {a.width} in the scratchpad, of which another access has others"
                raise refused(a.op, f"{what}, which is not pinned yet")
