"""Parts of tensors of a pinned kernel, and tensors that are put together of others.

A part of what is loaded is loaded by itself, one of what is computed element by element is computed of the parts of its operands; of what
exists in one form it is rows, or whole sticks. Put together, tensors become the rows, or whole sticks, of one buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from ktir.diagnostics import refused
from ktir.mlir import ir
from ktir.passes.pinning.values.elements import Apply, Below, Element, Leaf, Number, Value, number, of_type, true
from ktir.passes.pinning.values.places import MOST_PIECES, even
from ktir.passes.pinning.values.rows import assembled, physical_shape, rows_of, runs, taken
from ktir.passes.pinning.values.tensors import Joined, Loaded, Made, Rows, Shared, place_here, pointwise
from ktir.target import LANES


@dataclass(eq=False)
class _InForms:
    """A tensor of a `shape` that is made at `anchor`, in each form that somebody asks for."""

    shape: tuple[int, ...]
    dim: int
    anchor: ir.Operation
    op: ir.Operation
    forms: dict[int | None, Made] = field(default_factory=dict, kw_only=True)

    def physical(self, stick: int | None, rows: Rows, op: ir.Operation) -> ir.Value:
        if stick not in self.forms:
            with ir.InsertionPoint(self.anchor), self.op.location:
                self.forms[stick] = Made(self.made(stick), self.shape, stick)
        return self.forms[stick].physical(stick, rows, op)

    def made(self, stick: int | None) -> ir.Value:
        """The tensor at the insertion point. Raises Unsupported."""
        raise NotImplementedError


@dataclass(eq=False)
class _Part(_InForms):
    """The positions of `dim` from `first` on of a tensor that exists in one form."""

    value: Value
    first: int

    @property
    def within(self) -> tuple[Element, ...]:
        """What it is made of, by the same dims."""
        return (self.value.element,)

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks: along which it begins inside of one."""
        return (self.dim,) if self.first % LANES else ()

    def made(self, stick: int | None) -> ir.Value:
        if stick in self.in_rows:
            raise refused(self.op, f"begins at {self.first}, inside of a stick of what is computed, and no instruction moves lanes; "
                          f"the nearest supported form begins at a multiple of {LANES}, or stores it and loads it again")  # fmt: skip
        whole = pointwise(self.value, stick, self.op)
        if stick == self.dim:
            size = physical_shape(self.shape, stick)
            return taken(whole, [self.first // LANES, 0, 0], size)
        inner, rows = _inner(self.shape, stick, self.dim), ir.RankedTensorType(whole.type).shape[1]
        count, step = self.shape[self.dim] * inner, self.value.shape[self.dim] * inner
        starts = [at + self.first * inner for at in range(0, prod(self.value.shape[d] for d in rows_of(self.value.shape, stick)), step)]
        if len(starts) == 1 and starts[0] + even(count) <= rows and (count == 1 or starts[0] % 2 == 0):
            return taken(whole, [0, starts[0], 0], physical_shape(self.shape, stick))
        if len(starts) > MOST_PIECES:
            raise refused(self.op, f"takes parts of more than {MOST_PIECES} positions of other dims, which is not pinned yet")
        pieces = ((0, k * count + at, piece) for k, start in enumerate(starts) for at, piece in runs(whole, start, count))
        return assembled(pieces, self.value.type, self.shape, stick)


@dataclass(eq=False)
class _Together(_InForms):
    """Tensors one after the other along `dim`."""

    parts: list[tuple[int, Value]]
    """The first position of each."""

    @property
    def within(self) -> tuple[Element, ...]:
        """What it is made of, by the same dims."""
        return tuple(value.element for _, value in self.parts)

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks: along which parts meet inside of one."""
        return (self.dim,) if any(first % LANES for first, _ in self.parts) else ()

    def made(self, stick: int | None) -> ir.Value:
        if stick in self.in_rows:
            raise refused(self.op, "puts tensors together inside of a stick of what is computed, and no instruction moves lanes; "
                          "the nearest supported form stores them side by side")  # fmt: skip
        if stick == self.dim:
            whole_rows = ((first // LANES, 0, pointwise(value, stick, self.op)) for first, value in self.parts)
            return assembled(whole_rows, self.parts[0][1].type, self.shape, stick)
        rows = rows_of(self.shape, stick)
        outer = rows[: rows.index(self.dim)] if self.dim in rows else ()
        if prod(self.shape[d] for d in outer) > MOST_PIECES:
            raise refused(
                self.op, f"puts tensors together inside of more than {MOST_PIECES} positions of other dims, which is not pinned yet"
            )
        return assembled(self._rows(stick, outer), self.parts[0][1].type, self.shape, stick)

    def _rows(self, stick: int | None, outer: Sequence[int]) -> Iterator[tuple[int, int, ir.Value]]:
        """The rows of each part, for each position of the `outer` dims."""
        inner = _inner(self.shape, stick, self.dim)
        for number_, index in enumerate(product(*(range(self.shape[d]) for d in outer))):
            for first, piece in self.parts:
                for d, k in zip(outer, index, strict=True):
                    piece = part_of(piece, d, k, 1, self.op)
                count = prod(piece.shape[d] for d in rows_of(piece.shape, stick))
                for row, value in runs(pointwise(piece, stick, self.op), 0, count):
                    yield 0, (number_ * self.shape[self.dim] + first) * inner + row, value


def together(parts: Sequence[Value], dim: int, shape: tuple[int, ...], op: ir.Operation) -> Value:
    """Tensors one after the other along a dim, at the insertion point."""
    if str(parts[0].type) == "i1":
        found = together([Value(p.shape, number(p.element)) for p in parts], dim, shape, op)
        return Value(shape, true(found.element))
    firsts = [sum(p.shape[dim] for p in parts[:k]) for k in range(len(parts))]
    placed = [(first, p) for first, p in zip(firsts, parts, strict=True) if p.shape[dim]]
    if len(placed) == 1:
        return placed[0][1]
    return Value(shape, Leaf(parts[0].type, _Together(shape, dim, place_here(), op, placed), tuple(range(len(shape)))))


def inserted(new: Value, old: Value, box: Sequence[tuple[int, int]], op: ir.Operation) -> Value:
    """A tensor where a box, by the first position and extent of each dim, has become another one. At the insertion point."""
    dim = next((d for d, (_, n) in enumerate(box) if n != old.shape[d]), None)
    if dim is None:
        return Value(old.shape, new.element)
    first, extent = box[dim]
    inside = [(0, extent) if d == dim else span for d, span in enumerate(box)]
    middle = inserted(new, part_of(old, dim, first, extent, op), inside, op)
    end = first + extent
    parts = [part_of(old, dim, 0, first, op)] * (first > 0) + [middle]
    parts += [part_of(old, dim, end, old.shape[dim] - end, op)] * (end < old.shape[dim])
    return together(parts, dim, old.shape, op)


def part_of(value: Value, dim: int, first: int, extent: int, op: ir.Operation) -> Value:
    """The positions of a dim from `first` on, at the insertion point."""
    shape = tuple(extent if d == dim else n for d, n in enumerate(value.shape))
    return value if shape == value.shape else Value(shape, part(value.element, dim, first, extent, op))


def part(element: Element, dim: int, first: int, extent: int, op: ir.Operation) -> Element:
    """The tree for the positions of a dim of its value from `first` on. `op` asks for it."""
    if isinstance(element, Apply):
        return Apply(element.type, element.op, tuple(part(o, dim, first, extent, op) for o in element.operands))
    if isinstance(element, Below):
        return Below(element.type, dim, max(0, element.limit - first)) if element.dim == dim else element
    if isinstance(element, Number) or dim not in element.walk:
        return element
    source, own_dim = element.source, element.walk.index(dim)
    if isinstance(source, Shared):
        return part(source.value.element.moved(dict(enumerate(element.walk))), dim, first, extent, op)
    if isinstance(source, Loaded):
        return Leaf(element.type, _loaded(source, own_dim, first, extent), element.walk)
    if isinstance(source, Joined):
        joined = _joined(source, own_dim, first, extent)
        return Leaf(element.type, joined, element.walk) if joined.parts else of_type(element.type, 0)
    shape = tuple(extent if d == own_dim else n for d, n in enumerate(source.shape))
    if isinstance(source, _Together):
        parts = list(_parts(source, own_dim, first, extent, op))
        if len(parts) == 1:
            return parts[0][1].element.moved(dict(enumerate(element.walk)))
        return Leaf(element.type, _Together(shape, source.dim, place_here(), source.op, parts), element.walk)
    whole = Value(source.shape, Leaf(element.type, source, tuple(range(len(source.shape)))))
    return Leaf(element.type, _Part(shape, own_dim, place_here(), op, whole, first), element.walk)


def position(element: Element, dim: int, at: int, op: ir.Operation) -> Element:
    """The tree at one position of a dim, which it then lacks."""
    dims: dict[int, int | None] = {d: d for leaf in element.leaves() for d in leaf.walk if d is not None}
    return part(element, dim, at, 1, op).moved(dims | {dim: None})


def _loaded(source: Loaded, dim: int, first: int, extent: int) -> Loaded:
    with ir.InsertionPoint(source.anchor), source.anchor.location:
        return Loaded(source.place.narrowed(dim, first, extent), source.anchor, source.bounds)


def _joined(source: Joined, dim: int, first: int, extent: int) -> Joined:
    shape = tuple(extent if d == dim else n for d, n in enumerate(source.shape))
    if dim != source.dim:
        return Joined(shape, source.dim, [(at, _loaded(p, dim, first, extent)) for at, p in source.parts], source.anchor)
    spans = [(at, p, *_overlap(at, p.place.shape[dim], first, extent)) for at, p in source.parts]
    parts = [(low - first, _loaded(p, dim, low - at, high - low)) for at, p, low, high in spans if low < high]
    return Joined(shape, dim, parts, source.anchor)


def _parts(source: _Together, dim: int, first: int, extent: int, op: ir.Operation) -> Iterator[tuple[int, Value]]:
    """What a part of tensors put together is of."""
    for at, value in source.parts:
        if dim != source.dim:
            yield at, part_of(value, dim, first, extent, op)
            continue
        low, high = _overlap(at, value.shape[dim], first, extent)
        if low < high:
            yield low - first, part_of(value, dim, low - at, high - low, op)


def _overlap(at: int, count: int, first: int, extent: int) -> tuple[int, int]:
    return max(at, first), min(at + count, first + extent)


def _inner(shape: Sequence[int], stick: int | None, dim: int) -> int:
    """Rows of one position of a dim."""
    return prod(shape[d] for d in rows_of(shape, stick) if d > dim)
