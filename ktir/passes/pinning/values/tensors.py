"""Tensors of a pinned kernel: which dim of each lies in the sticks, and the ops that make them.

Nobody decides on layouts beforehand. Who needs a tensor says which dim it wants in the sticks (a reduction the reduced one, a store
the one that is contiguous there), and the tensor is made so where the author made it: what was loaded is loaded so, what is
computed element by element is computed so. Only what a reduction gave is as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product, takewhile
from math import prod
from typing import ClassVar

from ktir.arithmetic.integers import PREDICATES
from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.dialects.structured import COMBINERS, IDENTITY, affine_map, constant, fill, filled, generic, index_constant
from ktir.mlir import arith, ir, linalg, tensor
from ktir.passes.pinning.values.elements import (
    Apply,
    Below,
    Element,
    Leaf,
    Number,
    Value,
    distinct,
    is_uniform,
    number,
    replaced,
    scalar,
    true,
)
from ktir.passes.pinning.values.places import MOST_PIECES, Place, Row, even, is_cut, placed, sticks
from ktir.passes.pinning.values.rows import assembled, copied, physical_shape, repeated, rows_of, runs, taken
from ktir.target import FORMATS, LANES

Rows = tuple[tuple[int, int | None], ...]
"""The extent of each dim that rows walk, and which of a tensor's own dims it is; None for one that it lacks."""
INPUTS = 3
"""Tensors that the vector unit reads at once."""


@dataclass(eq=False)
class Loaded:
    """What the author loads from `place`; it is loaded at `anchor` in each form that somebody asks for."""

    within: ClassVar[tuple[Element, ...]] = ()
    """What it is made of by the same dims, where its form is that of these."""
    place: Place
    anchor: ir.Operation
    bounds: tuple[int, int] | None = None
    """What integers there are known to be."""
    is_position: bool = False
    """Whether they are 0, 1, 2, … along the only dim."""
    forms: dict[tuple[int | None, Rows, int], ir.Value] = field(default_factory=dict)

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks."""
        return self.place.in_rows

    def physical(self, stick: int | None, rows: Rows, op: ir.Operation, multiple: int = 2) -> ir.Value:
        """`rows`: extent and own dim of each, None for one that it lacks; there are zeros up to a `multiple` of them."""
        key = (stick, rows, multiple)
        if key not in self.forms:
            with ir.InsertionPoint(self.anchor), self.anchor.location:
                walked = [Row(n, None if d is None else self.place.dims[d]) for n, d in rows]
                try:
                    self.forms[key] = ktdp.load(self.place.tile(stick, walked, multiple), self.place.element)
                except Unsupported:
                    parts = self.parts_of(rows) if multiple == 2 else None
                    if parts is None:
                        raise
                    self.forms[key] = parts.physical(stick, rows, op)
        return self.forms[key]

    def parts_of(self, rows: Rows) -> Joined | None:
        """The same by positions of the outermost row dim, where one walk does not reach all rows; None where that helps nothing."""
        walked = [(n, d) for n, d in rows if n != 1]
        if len(walked) < 2 or prod(n for n, _ in walked[:-1]) > MOST_PIECES:
            return None
        extent, dim = walked[0]
        if dim is None:  # the same rows for each position of a dim that it lacks
            inner = next((d for _, d in walked if d is not None), None)
            return (
                None if inner is None else Joined(self.place.shape, inner, [(0, Loaded(self.place, self.anchor, self.bounds))], self.anchor)
            )
        parts = [(k, Loaded(self.place.narrowed(dim, k, 1), self.anchor, self.bounds)) for k in range(extent)]
        return Joined(self.place.shape, dim, parts, self.anchor)


@dataclass(eq=False)
class Joined:
    """What the author loads from several parts, which lie side by side along `dim`: each is loaded to its own rows, or sticks, of it."""

    within: ClassVar[tuple[Element, ...]] = ()
    shape: tuple[int, ...]
    dim: int
    parts: list[tuple[int, Loaded]]
    """The first position of each."""
    anchor: ir.Operation
    forms: dict[tuple[int | None, Rows], ir.Value] = field(default_factory=dict)

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks: along which parts meet inside of one."""
        inside = is_cut([(first, part.place.shape[self.dim]) for first, part in self.parts], self.shape[self.dim])
        return tuple({d for _, part in self.parts for d in part.in_rows} | ({self.dim} if inside else set()))

    def physical(self, stick: int | None, rows: Rows, op: ir.Operation) -> ir.Value:
        if (stick, rows) not in self.forms:
            with ir.InsertionPoint(self.anchor), self.anchor.location:
                self.forms[stick, rows] = self._joined(stick, rows, op)
        return self.forms[stick, rows]

    def _joined(self, stick: int | None, rows: Rows, op: ir.Operation) -> ir.Value:
        shape = [1 if stick is None else sticks(self.shape[stick]), even(prod(n for n, _ in rows)), LANES]
        type_ = self.parts[0][1].place.element
        pieces = [(at, piece, walked, prod(n for n, _ in walked)) for at, piece, walked in self._pieces(stick, rows)]
        gaps = sum(part.place.shape[self.dim] for _, part in self.parts) != self.shape[self.dim]
        behind = {(at[0], at[1] + count) for at, _, _, count in pieces if count % 2 and count != 1 and at[1] + count < shape[1]}
        spoils = gaps and not behind <= {(at[0], at[1]) for at, *_ in pieces}  # a row more would lie where nothing is
        odd = shape[1] != 1 and any(count % 2 for *_, count in pieces) and not spoils
        buffer = [shape[0], shape[1] + 2, LANES] if odd else shape
        short = shape[1] != prod(n for n, _ in rows) and pieces[-1][3] in (
            1,
            even(pieces[-1][3]),
        )  # nobody moves the row that makes it even
        whole = filled(buffer, type_, 0) if gaps or short else tensor.EmptyOp(buffer, type_).result
        for at, piece, walked, count in pieces:
            value = piece.physical(stick, walked, op)
            for row, part in ((k, copied(v)) for k, v in runs(value, 0, count)) if spoils else [(0, value)]:
                sizes = list(ir.RankedTensorType(part.type).shape)
                whole = tensor.InsertSliceOp(part, whole, [], [], [], [at[0], at[1] + row, 0], sizes, [1, 1, 1]).result
        if odd:
            rows_ = ir.RankedTensorType.get(shape, type_)
            whole = tensor.ExtractSliceOp(rows_, whole, [], [], [], [0, 0, 0], shape, [1, 1, 1]).result
        return whole

    def _pieces(self, stick: int | None, rows: Rows) -> Iterator[tuple[list[int], Loaded, Rows]]:
        """What is moved at once, to where, and the rows that it walks."""
        placed_ = [
            (at, piece)
            for first, part in self.parts
            for at, place in placed(part.place, self.dim, first, self.shape, stick, [(n, d) for n, d in rows if n != 1])
            for at, piece in self._by_sticks(at, place, stick)
        ]
        placed_.sort(key=lambda p: (p[0][1], p[0][0]))  # each may move a row more, over which the next one comes
        outer = next((k for k, (_, d) in enumerate(rows) if d == self.dim), 0)  # a piece has one position of what is outside of its dim
        for at, piece in placed_:
            walked = tuple(((1 if k < outer else n) if d is None else piece.place.shape[d], d) for k, (n, d) in enumerate(rows))
            apart = piece.place.distance([Row(n, None if d is None else piece.place.dims[d]) for n, d in walked])
            inner = piece.parts_of(walked) if apart is None else None
            if inner is None:
                yield at, piece, walked
            else:
                for there, smaller, own_rows in inner._pieces(stick, walked):
                    yield [a + b for a, b in zip(at, there, strict=True)], smaller, own_rows

    def _by_sticks(self, at: list[int], place: Place, stick: int | None) -> Iterator[tuple[list[int], Loaded]]:
        """What is moved at once, and to where: memory fills the scratchpad one byte after the other, but rows of several sticks lie apart
        there."""
        if stick is None or stick == self.dim:
            yield at, Loaded(place, self.anchor)
            return
        extent = self.shape[stick]
        for k in range(0, extent, LANES):
            yield [at[0] + k // LANES, *at[1:]], Loaded(place.narrowed(stick, k, min(LANES, extent - k)), self.anchor)


@dataclass(eq=False)
class Made:
    """A tensor that exists in one form."""

    within: ClassVar[tuple[Element, ...]] = ()
    in_rows: ClassVar[tuple[int, ...]] = ()
    value: ir.Value
    shape: tuple[int, ...]
    stick: int | None

    def physical(self, stick: int | None, rows: Rows, op: ir.Operation) -> ir.Value:
        own, made = [d for _, d in rows if d is not None], list(rows_of(self.shape, self.stick))
        if stick != self.stick or sorted(own) != [d for d in made if own]:
            raise refused(op, "reads a tensor that was made with other dims in its sticks and rows, which is not pinned yet")
        if own != sorted(own):
            walked = dict(zip(own, made, strict=True))
            return self._ordered(own, op).physical(stick, tuple((n, None if d is None else walked[d]) for n, d in rows), op)
        if len(own) != len(rows):
            return self._spread(rows, op)
        type_ = ir.RankedTensorType(self.value.type)
        shape = physical_shape(self.shape, self.stick)
        if list(type_.shape) == shape:
            return self.value
        row = ir.RankedTensorType.get(shape, type_.element_type)  # a row that a loop updates has a second one beside it
        return tensor.ExtractSliceOp(row, self.value, [], [], [], [0, 0, 0], shape, [1, 1, 1]).result

    def _ordered(self, own: list[int], op: ir.Operation) -> Made:
        """The same with rows that walk its dims in this order, at the insertion point."""
        made = rows_of(self.shape, self.stick)
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(reversed(own), reversed(made), strict=True))))
        outer, count = own[: len(own) - same], prod(self.shape[d] for d in own[len(own) - same :])
        if prod(self.shape[d] for d in outer) > MOST_PIECES:
            raise refused(op, f"reads rows of a tensor in another order, from more than {MOST_PIECES} places, which is not pinned yet")
        shape, steps = list(self.shape), {d: prod(self.shape[e] for e in made if e > d) for d in made}
        for d, walked in zip(own, made, strict=True):
            shape[walked] = self.shape[d]

        def pieces() -> Iterator[tuple[int, int, ir.Value]]:
            for k, index in enumerate(product(*(range(self.shape[d]) for d in outer))):
                at = sum(i * steps[d] for d, i in zip(outer, index, strict=True))
                yield from ((0, k * count + row, copied(piece)) for row, piece in runs(self.value, at, count))

        whole = assembled(pieces(), ir.RankedTensorType(self.value.type).element_type, tuple(shape), self.stick)
        return Made(whole, tuple(shape), self.stick)

    def _spread(self, rows: Rows, op: ir.Operation) -> ir.Value:
        """Its rows along dims that it lacks, at the insertion point."""
        inner = len(list(takewhile(lambda r: (r[1] is None) == (rows[-1][1] is None), reversed(rows))))
        outer, count = rows[: len(rows) - inner], prod(n for n, _ in rows[len(rows) - inner :])
        if prod(n for n, _ in outer) > MOST_PIECES:
            raise refused(op, f"reads rows of a tensor along dims that it lacks in more than {MOST_PIECES} places, which is not pinned yet")
        own, lanes = rows_of(self.shape, self.stick), physical_shape(self.shape, self.stick)[0]
        steps = {d: prod(self.shape[e] for e in own if e > d) for d in own}

        def pieces() -> Iterator[tuple[int, int, ir.Value]]:
            for k, index in enumerate(product(*(range(n) for n, _ in outer))):
                at = sum(i * steps[d] for (_, d), i in zip(outer, index, strict=True) if d is not None)
                if rows[-1][1] is None:
                    found = repeated(taken(self.value, [0, at, 0], [lanes, 1, LANES]), count)
                else:
                    found = ((row, copied(piece)) for row, piece in runs(self.value, at, count))
                yield from ((0, k * count + row, piece) for row, piece in found)

        shape = (prod(n for n, _ in rows), lanes * LANES)
        return assembled(pieces(), ir.RankedTensorType(self.value.type).element_type, shape, 1)


@dataclass(eq=False)
class Shared:
    """A value that several ops read: it is computed once, at `anchor`, in each form that somebody asks for."""

    in_rows: ClassVar[tuple[int, ...]] = ()
    value: Value
    anchor: ir.Operation
    op: ir.Operation
    forms: dict[int | None, Made] = field(default_factory=dict)

    @property
    def within(self) -> tuple[Element, ...]:
        """What it is made of, by the same dims."""
        return (self.value.element,)

    def physical(self, stick: int | None, rows: Rows, op: ir.Operation) -> ir.Value:
        if stick not in self.forms:
            with ir.InsertionPoint(self.anchor), self.op.location:
                self.forms[stick] = Made(pointwise(self.value, stick, self.op), self.value.shape, stick)
        return self.forms[stick].physical(stick, rows, op)


@dataclass(eq=False)
class Reshaped:
    """A value with other dims: its rows follow each other as they did, so nothing moves where one dim that both have lies in the sticks, or
    none. It is computed at `anchor`, in each form that somebody asks for."""

    within: ClassVar[tuple[Element, ...]] = ()
    value: Value
    shape: tuple[int, ...]
    anchor: ir.Operation
    op: ir.Operation
    forms: dict[int | None, Made] = field(default_factory=dict)

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The dims that cannot lie in the sticks."""
        own = {self.own(d) for d in range(len(self.shape))}
        fixed = {d for d in _in_rows(self.value.element) if d in own}
        return tuple(d for d, n in enumerate(self.shape) if n != 1 and (self.own(d) is None or self.own(d) in fixed))

    def own(self, dim: int) -> int | None:
        """The same dim of the value; None if it has none."""
        before = prod(self.shape[:dim])
        found = (d for d, n in enumerate(self.value.shape) if n == self.shape[dim] != 1 and prod(self.value.shape[:d]) == before)
        return next(found, None)

    def physical(self, stick: int | None, rows: Rows, op: ir.Operation) -> ir.Value:
        lanes = None if stick is None or self.shape[stick] == 1 else stick
        if lanes is not None and self.own(lanes) is None:
            raise refused(op, "wants a dim in its sticks that was joined or split, which is not pinned yet")
        if lanes not in self.forms:
            with ir.InsertionPoint(self.anchor), self.op.location:
                made = pointwise(self.value, None if lanes is None else self.own(lanes), self.op)
                self.forms[lanes] = Made(made, self.shape, lanes)
        return self.forms[lanes].physical(lanes, rows, op)


def reshaped(value: Value, shape: tuple[int, ...], op: ir.Operation) -> Value:
    """A value with other dims, at the insertion point."""
    if is_uniform(value.element):
        return Value(shape, value.element)
    return Value(shape, Leaf(value.type, Reshaped(value, shape, place_here(), op), tuple(range(len(shape)))))


def whole_dims(value: ir.Value, found: Value, op: ir.Operation) -> Value:
    """A value with the author's dims, where those that he has joined stayed apart."""
    if not isinstance(value.type, ir.RankedTensorType) or tuple(ir.RankedTensorType(value.type).shape) == found.shape:
        return found
    return reshaped(found, tuple(ir.RankedTensorType(value.type).shape), op)


def common_dims(
    operands: Sequence[ir.Value], values: Sequence[Value], shape: tuple[int, ...], op: ir.Operation
) -> tuple[list[Value], tuple[int, ...]]:
    """What is computed element by element, with the same dims: the author's, or those that he has joined in one way, which stay apart."""
    shapes = {v.shape for v in values if not is_uniform(v.element)}
    if len(shapes) > 1:
        return [whole_dims(o, v, op) for o, v in zip(operands, values, strict=True)], shape
    return list(values), shapes.pop() if shapes else shape


def fixed(element: Element) -> Iterator[Leaf]:
    """The leaves of a tree whose form is given, by the dims of the tree's value."""
    for leaf in element.leaves():
        if isinstance(leaf.source, Made):
            yield leaf
        for inner in leaf.source.within:
            yield from fixed(inner.moved(dict(enumerate(leaf.walk))))


def _in_rows(element: Element) -> Iterator[int | None]:
    """The dims of a tree's value that cannot lie in the sticks of what it loads."""
    for leaf in element.leaves():
        yield from (leaf.walk[d] for d in leaf.source.in_rows)
        for inner in leaf.source.within:
            yield from _in_rows(inner.moved(dict(enumerate(leaf.walk))))


def choose_stick(value: Value, wanted: int | None) -> int | None:
    """The dim of a value that lies in its sticks: `wanted`, unless what it is made of has another one there, or that one in its rows."""
    given = [leaf for leaf in fixed(value.element)]
    for leaf in given:
        if leaf.source.stick is not None and leaf.walk[leaf.source.stick] is not None:
            return leaf.walk[leaf.source.stick]
    taken = {leaf.walk[d] for leaf in given for d in rows_of(leaf.source.shape, leaf.source.stick)} | set(_in_rows(value.element))
    if wanted not in taken:
        return wanted
    return next((d for d in reversed(range(len(value.shape))) if d not in taken and value.shape[d] != 1), None)


def pointwise(value: Value, stick: int | None, op: ir.Operation) -> ir.Value:
    """The tensor of a value, at the insertion point. Raises Unsupported, which names `op`."""
    element = _limited(Value(value.shape, _masked(value.element, stick)), op)
    leaves = distinct(element)
    if isinstance(element, Leaf) and element.walk == tuple(range(len(value.shape))):
        rows = tuple((value.shape[d], d) for d in rows_of(value.shape, stick))
        return element.source.physical(stick, rows, op)
    shape = physical_shape(value.shape, stick)
    init = tensor.EmptyOp(shape, value.type).result
    if not leaves:
        if not isinstance(element, Number):
            identity = affine_map(3, [0, 1, 2])
            return generic([], init, [identity], ["parallel"] * 3, lambda a: scalar(element, {}, _constant, _below(0)), loc=op.location)
        return fill(_constant(element), init)
    inputs, maps = _operands(value.shape, leaves, stick, op, (0, 1, 2))

    def body(arguments: list[ir.Value]) -> ir.Value:
        return scalar(element, dict(zip(leaves, arguments, strict=False)), _constant, _below(0))

    return generic(inputs, init, [*maps, affine_map(3, [0, 1, 2])], ["parallel"] * 3, body, loc=op.location)


def reduction(value: Value, dim: int, combine: ir.Operation, result: ir.Type, op: ir.Operation) -> ir.Value:
    """The tensor [1, rows, 64] of what `combine` makes of a value along `dim`, which lies in the sticks."""
    if combine.name not in COMBINERS:
        raise refused(op, f"combines with '{combine.name}', for which the vector unit has no reduction")
    if choose_stick(value, dim) != dim:
        raise refused(op, "reduces a dim that lies in the rows of what it reads, which is not pinned yet")
    element = _limited(Value(value.shape, _masked(value.element, dim)), op)
    leaves = distinct(element)
    if not any(leaf.walk and dim in leaf.walk and set(rows_of(value.shape, dim)) <= set(leaf.walk) for leaf in leaves):
        whole = Made(pointwise(Value(value.shape, element), dim, op), value.shape, dim)  # every loop needs a tensor that it walks
        element = Leaf(value.type, whole, tuple(range(len(value.shape))))
        leaves = [element]
    inputs, maps = _operands(value.shape, leaves, dim, op, (1, 0, 2))
    extent, identity = value.shape[dim], IDENTITY[COMBINERS[combine.name]]
    rows = physical_shape(value.shape, dim)[1]
    init = fill(constant(result, identity), tensor.EmptyOp([1, rows, LANES], result).result)

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapped = scalar(element, dict(zip(leaves, arguments, strict=False)), _constant, _below(1))
        if extent % LANES:
            mapped = arith.SelectOp(_lanes_below(1, extent), mapped, constant(result, identity)).result
        attributes = {name: combine.attributes[name] for name in combine.attributes}
        return ir.Operation.create(combine.name, results=[result], operands=[arguments[-1], mapped], attributes=attributes).results[0]

    maps.append(affine_map(3, [None, 0, None]))
    return generic(inputs, init, maps, ["parallel", "reduction", "reduction"], body, loc=op.location)


def _masked(element: Element, stick: int | None) -> Element:
    """The tree, where the lanes tell on which side of a number the position along the dim in the sticks is: nothing is read for that."""
    if not isinstance(element, Apply):
        return element
    operands = tuple(_masked(o, stick) for o in element.operands)
    if element.op.name == arith.CmpIOp.OPERATION_NAME and _is_position(operands[0], stick) and isinstance(operands[1], Number):
        predicate, number = PREDICATES[ir.IntegerAttr(element.op.attributes["predicate"]).value], int(operands[1].value.value)
        if predicate in _BELOW and (predicate[0] == "s" or number >= 0):
            assert stick is not None
            return Below(element.type, stick, max(0, number + _BELOW[predicate]))
    return Apply(element.type, element.op, operands)


_BELOW = {"ult": 0, "slt": 0, "ule": 1, "sle": 1}
"""Predicates that lanes answer, and what is added to the number."""


def _is_position(element: Element, dim: int | None) -> bool:
    return isinstance(element, Leaf) and element.walk == (dim,) and isinstance(element.source, Loaded) and element.source.is_position


def _below(loop: int) -> Callable[[Below], ir.Value]:
    return lambda element: _lanes_below(loop, element.limit)


def _lanes_below(loop: int, limit: int) -> ir.Value:
    """Whether the position along the dim in the sticks, which `loop` walks, is less than a number."""
    stick, lane = (linalg.IndexOp(d).result for d in (loop, 2))
    at = arith.AddIOp(arith.MulIOp(stick, index_constant(LANES)).result, lane).result
    return arith.CmpIOp(arith.CmpIPredicate.ult, at, index_constant(limit)).result


def _constant(number: Number) -> ir.Value:
    return arith.ConstantOp(number.type, number.value).result


def _operands(
    shape: Sequence[int], leaves: Sequence[Leaf], stick: int | None, op: ir.Operation, loops: tuple[int, int, int]
) -> tuple[list[ir.Value], list[ir.AffineMap]]:
    """Tensors and maps of leaves; `loops`: which one walks sticks, rows and lanes."""
    inputs, maps = [], []
    rows = rows_of(shape, stick)
    for leaf in leaves:
        if str(leaf.type) not in FORMATS:
            raise refused(op, f"reads elements of type {leaf.type}, but the vector unit has {', '.join(FORMATS)} in memory")
        own = {d: k for k, d in enumerate(leaf.walk) if d is not None}
        in_stick = own.get(stick) if stick is not None else None
        walked = tuple((shape[d], own.get(d)) for d in rows)
        by_row = any(d is not None for _, d in walked)
        inputs.append(leaf.source.physical(in_stick, walked if by_row else (), op))
        by_stick = in_stick is not None
        walks_rows = by_row or not rows
        maps.append(affine_map(3, [loops[0] if by_stick else None, loops[1] if walks_rows else None, loops[2] if by_stick else None]))
    return inputs, maps


def _limited(value: Value, op: ir.Operation) -> Element:
    """The tree with no more tensors than the vector unit reads at once: parts of it become tensors of their own, one that is true or false
    as numbers."""
    element = value.element
    if str(value.type) not in FORMATS:
        raise refused(op, f"makes elements of type {value.type}, but the vector unit has {', '.join(FORMATS)} in memory")
    walk = tuple(range(len(value.shape)))
    while len(distinct(element)) > INPUTS:
        parts = [p for p in _parts(element) if 2 <= len(distinct(p)) <= INPUTS and str(p.type) in FORMATS]
        truths = [p for p in _parts(element) if 2 <= len(distinct(p)) <= INPUTS and str(p.type) == "i1"]
        if not parts and truths:
            held = Shared(Value(value.shape, number(truths[-1])), place_here(), op)
            element = replaced(element, {truths[-1]: true(Leaf(ir.F32Type.get(), held, walk))})
            continue
        if not parts:
            wide = next((p.type for p in _parts(element) if str(p.type) not in (*FORMATS, "i1")), None)
            if wide is not None:
                raise refused(op, f"computes {wide}, but the vector unit has {', '.join(FORMATS)}")
            raise refused(op, f"reads {len(distinct(element))} tensors at once, but the vector unit has {INPUTS} inputs")
        part = max(parts, key=lambda p: len(distinct(p)))
        anchor = place_here()
        shared = Shared(Value(value.shape, part), anchor, op)
        element = replaced(element, {part: Leaf(part.type, shared, walk)})
    return element


def _parts(element: Element) -> Iterator[Apply]:
    if isinstance(element, Apply):
        for operand in element.operands:
            yield from _parts(operand)
        yield element


def place_here() -> ir.Operation:
    """A place in the kernel to come back to; nobody uses what the op makes."""
    return arith.ConstantOp(ir.IndexType.get(), 0).operation
