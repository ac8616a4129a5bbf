"""The scratchpad as an author uses it: each view stays at its bytes, and what the compiler places keeps away from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ktir.analysis.attributes.residents import RESIDENT, RESIDENTS
from ktir.analysis.points import Numbers
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import elementwise, index_sum
from ktir.mlir import func, integer_attribute, ir, is_a, operations, tensor
from ktir.passes.flat.integers.intervals import width_of
from ktir.passes.pinning.values.elements import Apply, Leaf, Value
from ktir.passes.pinning.values.places import Place, Row, even, sticks, times
from ktir.passes.pinning.values.tensors import Made, choose_stick, physical_shape, pointwise, rows_of
from ktir.target import LANES, element_bytes

_NUMBER = "ktir.access"
"""On a view, until all are known: which access it is."""
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


class AuthorScratchpad:
    """Writes loads and stores of the author's views, and says in the end what he uses."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []
        self.idle: ir.Value | None = None
        """The guard of cores without a tile of their own, whose scratchpad nobody reads."""

    def loaded(self, op: ir.Operation, place: Place) -> Value:
        """What a load gives: a copy, since the author may write there while it is in use."""
        stick, tile = self._tile(op, place)
        found = ktdp.load(tile, place.element)
        made = elementwise([found], tensor.EmptyOp(list(ir.RankedTensorType(found.type).shape), place.element).result)
        return Value(place.shape, Leaf(place.element, Made(made, place.shape, stick), tuple(range(len(place.shape)))))

    def stored(self, op: ir.Operation, value: Value, place: Place) -> None:
        """Write a value: what is computed for it alone is computed there."""
        if value.shape != place.shape:
            raise refused(op, "stores a tensor whose dims were joined, which is not pinned yet")
        stick, tile = self._tile(op, place)
        if choose_stick(value, stick) != stick:
            raise refused(op, "stores a tensor with another dim in its sticks than the scratchpad has, which is not pinned yet")
        made = pointwise(value, stick, op)
        if not isinstance(value.element, Apply) or list(made.uses):
            made = elementwise([made], tensor.EmptyOp(physical_shape(place.shape, stick), place.element).result)
        ktdp.store(made, tile)

    def _tile(self, op: ir.Operation, place: Place) -> tuple[int | None, ir.Value]:
        """Which dim lies in the sticks, and the access tile. Raises Unsupported for what is not whole sticks of an even number of rows."""
        view, bytes_ = place.view.operation, element_bytes(place.element)
        if (width_of(place.view.element) or 32) < 32:
            raise refused(
                view, f"keeps {place.view.element} in the scratchpad, where the device has 32 bits; the nearest supported form is i32"
            )
        stick = next((d for d, dim in enumerate(place.dims) if dim.stride == 1 and dim.extent != 1), None)
        if stick is None and prod(place.shape) != 1:
            raise refused(view, "expects tiles of the scratchpad whose elements are side by side, others are not pinned yet")
        extent = 1 if stick is None else place.shape[stick]
        width = sticks(extent) * LANES
        some_tiles = place.guard is not None and (self.idle is None or place.guard != self.idle)
        if some_tiles or any(d.room is not None for d in place.dims):
            raise refused(op, "accesses the scratchpad on some tiles only, or clipped, which is not pinned yet")
        rows = rows_of(place.shape, stick)
        count = prod(place.shape[d] for d in rows)
        distance = place.merged([Row(place.shape[d], place.dims[d]) for d in rows])[1] if count > 1 else width
        starts = place.starts()
        if count != even(count) or distance % LANES or distance < width or (starts % LANES).any():
            raise refused(view, f"expects an even number of rows in the scratchpad that begin at multiples of {LANES} elements")
        if (starts < 0).any():
            raise refused(view, "lies before the scratchpad")
        base = place.base
        for dim in place.dims:
            base = index_sum(base, times(dim.first, dim.stride))
        number = {_NUMBER: integer_attribute(len(self.accesses))}
        self.accesses.append(Access(view, starts * bytes_, count, distance * bytes_, width * bytes_, extent * bytes_))
        shape = [width // LANES, count, LANES]
        memory = ktdp.construct_memory_view(base, shape, [LANES, distance, 1], place.element, "ct_local", attributes=number)
        return stick, ktdp.construct_access_tile(memory, [0, 0, 0], shape)

    def state(self, function: func.FuncOp, lx_bytes: int) -> list[Access]:
        """Say which bytes are the author's, and return the accesses.

        Raises Unsupported where the corelets would get in each other's way, or there are too few.
        """
        views = [op for op in operations(function) if is_a(op, ktdp.ConstructMemoryViewOp) and _NUMBER in op.attributes]
        used = [self.accesses[ir.IntegerAttr(v.attributes[_NUMBER]).value] for v in views]
        for k, a in enumerate(used):
            if a.high > lx_bytes:
                raise refused(a.op, f"reaches byte {a.high} of the scratchpad, which has {lx_bytes}")
            if any(a.clashes(b) for b in used[:k]):
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


def check_parts(accesses: Sequence[Access]) -> None:
    """Raise Unsupported where an access of less than whole entries shares one with what is beside it."""
    partial = [a for a in accesses if a.meant != a.width]
    for a in partial:
        for b in accesses:
            if a.covers(b):
                what = f"has {a.meant} bytes of rows of {a.width} in the scratchpad, of which another access has others"
                raise refused(a.op, f"{what}, which is not pinned yet")
