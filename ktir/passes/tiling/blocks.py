"""Blocks of a tiled kernel: what is loaded, computed and stored for R rows of a core's share at one batch position, and ops on them.

A tensor is [sticks, R, lanes] there, or [sticks, 1, lanes] where all rows read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ktir.analysis.axes import row_loops
from ktir.analysis.scalars.expressions import Tree
from ktir.cost.softmax import Sticks
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.byte_pairs import makes_pairs, paired
from ktir.dialects.structured import Generic, affine_map, element_of, fill, generic, index_constant, index_sum
from ktir.mlir import arith, ir, is_a, linalg, scf, tensor
from ktir.passes.tiling.plan.tile_facts import TileFacts
from ktir.passes.tiling.plan.tile_plan import TilePlan
from ktir.passes.tiling.plan.tile_views import IndirectWindow, Place, Window, first_stick, line_view, tile_of, window
from ktir.target import LANES

Taps = Mapping[int, ir.Value]
"""Dim of a tensor that walks the places of a window -> the place."""


@dataclass(frozen=True)
class Part:
    """Consecutive sticks of a tensor, of whose columns only `end` are live unless that is None."""

    first: int | ir.Value
    count: int
    end: int | None = None
    number: int | ir.Value = 0
    """Of parts of keys, which one it is."""
    open: bool = False
    """Of parts of keys, whether no mask hides one of them from any row of the block."""


@dataclass(frozen=True)
class Blocks:
    """A place among the loops of a tiled kernel: where their counters stand, and what has been built that is seen there."""

    facts: TileFacts
    plan: TilePlan
    built: dict[ir.Value, ir.Value]
    """A value of the divided kernel -> its block."""
    whole: dict[ir.Operation, ir.Value] = field(default_factory=dict)
    """Contraction -> its second operand, where that is in LX as a whole."""
    in_part: frozenset[ir.Operation] = frozenset()
    """Contractions of which `whole` has what the part of the keys takes of the second operand."""
    vectors: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Row vectors along the keys of which blocks see parts, as a whole."""
    position: Mapping[int, ir.Value] = field(default_factory=dict)
    """Batch axis that is a loop -> its counter, where the loop is open."""
    row: int | ir.Value = 0
    """First row of the block; 0 outside of the loop over blocks."""
    part: Part | None = None
    """What is seen of tensors that are seen in parts."""
    seen: Sticks | None = None
    """Keys that the block of rows sees; None: all of them."""

    def inside(self, **changes: Any) -> Blocks:
        """A place further inside: what is built there is not seen outside."""
        return replace(self, **{"built": dict(self.built), "whole": dict(self.whole), **changes})

    def along(self, start: int, stop: int, step: int, build: Callable[[ir.Value], None]) -> None:
        """A loop that carries nothing; `build` gets its counter."""
        loop = scf.ForOp(*(index_constant(v) for v in (start, stop, step)))
        with ir.InsertionPoint(loop.body):
            build(loop.induction_variable)
            scf.YieldOp([])

    # Memory

    def place(self, value: ir.Value) -> Place:
        """Where a block of a loaded or stored value lies."""
        row, own = self.facts.row_axis, self.facts.tensors[value]
        batches = {d: self.position.get(a) for d, a in enumerate(own.axes) if a is not None and a != row}
        if value in self.facts.second_operands:
            return Place(batches, len(own.axes) - 2, LANES)
        if (tap := self.facts.factors.get(value)) is not None:
            return Place(batches, len(own.axes) - 2, tap.extent)
        dim = own.axes.index(row) if row in own.axes else None
        return Place(batches, dim, self.plan.block_rows if own.has_rows else 1)

    def window(self, access: ir.Operation, value: ir.Value, inside: str = "", taps: Taps | None = None) -> Window | IndirectWindow:
        """The memory behind a load or store of `value` at the batch position, and at one of `taps`; `inside` as of a place."""
        place = self.place(value)
        place = replace(place, batches={**place.batches, **(taps or {})}, inside=inside or place.inside)
        return window(tile_of(access), place, self.built)

    def load(self, op: ir.Operation) -> None:
        """Load the block, or what its windows lie in."""
        value = op.results[0]
        type_ = ir.RankedTensorType(value.type)
        if (cover := self.plan.covers.get(value)) is not None:
            leader = cover.leader
            if leader not in self.built:
                op = leader.owner.operation
                self.built[leader] = self.load_lines(op, self.no_lines(op), None, cover.lines)
            self.built[value] = self.built[leader]
            return
        rows = self.place(value).rows
        part = self._sticks(value)
        first = self.row if rows > 1 and value not in self.facts.factors else 0
        tile = self.window(op, value).tile(part.first, first, [part.count, rows, type_.shape[-1]])
        self.built[value] = ktdp.load(tile, type_.element_type)

    def _sticks(self, value: ir.Value) -> Part:
        """Which sticks of a tensor a block has."""
        if self.part is not None and value in self.plan.in_parts:
            return self.part
        return Part(0, ir.RankedTensorType(value.type).shape[0])

    def no_lines(self, op: ir.Operation) -> ir.Value:
        """What the lines of a cover are loaded into: [lines, rows of one stick after those of another, lanes]."""
        value = op.results[0]
        cover, (sticks, *_, lanes) = self.plan.covers[value], ir.RankedTensorType(value.type).shape
        return tensor.EmptyOp([cover.lines, sticks * cover.pitch(self.plan.block_rows), lanes], element_of(value)).result

    def load_lines(self, op: ir.Operation, into: ir.Value, first: ir.Value | None, count: int) -> ir.Value:
        """The cover with `count` lines of it loaded, from line `first` on, stick by stick: a load fills the scratchpad in one go."""
        sticks = ir.RankedTensorType(op.results[0].type).shape[0]

        def line(number: int | ir.Value, so_far: ir.Value) -> ir.Value:
            number = number if first is None else index_sum(number, first)
            return filled_along(sticks, so_far, lambda stick, whole: self._load_line(op, whole, number, stick))

        return filled_along(count, into, line)

    def _load_line(self, op: ir.Operation, into: ir.Value, number: int | ir.Value, stick: int | ir.Value) -> ir.Value:
        value = op.results[0]
        cover, lanes = self.plan.covers[value], ir.RankedTensorType(value.type).shape[-1]
        pitch, view = cover.pitch(self.plan.block_rows), tile_of(op).operands[0].owner.opview
        place = replace(self.place(value), rows=pitch)
        end = (self.facts.trips(self.plan.block_rows) - 1) * self.plan.block_rows * cover.step + pitch
        memory = line_view(view, place, self.built, times(number, cover.line), cover.unit, cover.step, cover.reach, end)
        at = [index_constant(n) if isinstance(n, int) else n for n in (number, times(stick, pitch))]
        first = index_sum(first_stick(tile_of(op).opview, self.built), stick)
        tile = ktdp.construct_access_tile(memory, [first, times(self.row, cover.step), 0], [1, pitch, lanes])
        return insert_part(ktdp.load(tile, element_of(value)), into, at)

    def windowed(self, value: ir.Value, number: int | ir.Value, taps: Taps) -> ir.Value:
        """One stick of the block of a tensor that is loaded with all its windows: the window at `taps`."""
        cover = self.plan.covers[value]
        at = {d: self.position[a] for d, a in enumerate(self.facts.tensors[value].axes) if d in cover.across and a is not None}
        line, begin = cover.begins[value]
        line: int | ir.Value
        row = index_sum(times(number, cover.pitch(self.plan.block_rows)), begin)
        for dim, counter in {**at, **taps}.items():
            if dim in cover.inside:
                row = index_sum(row, times(counter, cover.inside[dim][0]))
            else:
                line = index_sum(line, times(counter, cover.across[dim][0]))
        first = [index_constant(n) if isinstance(n, int) else n for n in (line, row)]
        return part(self.built[value], first, [1, self.plan.block_rows, LANES], cover.step)

    def operand(self, value: ir.Value) -> ir.Value:
        """What an op on each element reads of a value in this block."""
        if value in self.plan.covers:
            return self.windowed(value, 0 if self.part is None else self.part.first, {})
        block = self.built[value]
        if self.part is None or value in self.plan.in_parts or ir.RankedTensorType(block.type).shape[0] == 1:
            return block
        first = self.part.first
        shape = [self.part.count, *list(ir.RankedTensorType(block.type).shape)[1:]]
        return part(block, [index_constant(first) if isinstance(first, int) else first], shape)

    def load_sticks(self, op: ir.Operation, number: ir.Value, count: int = 1, taps: Taps | None = None) -> ir.Value:
        """Load some sticks of the block, at one of `taps`."""
        value = op.results[0]
        rows, lanes = self.place(value).rows, ir.RankedTensorType(value.type).shape[-1]
        with op.location:
            tile = self.window(op, value, taps=taps).tile(number, self.row if rows > 1 else 0, [count, rows, lanes])
            return ktdp.load(tile, ir.RankedTensorType(value.type).element_type)

    def store(self, op: ir.Operation) -> None:
        """Store the block."""
        block = self.built[op.operands[0]]
        rows = ir.RankedTensorType(block.type).shape[1]
        _store(op, self.window(op, op.operands[0]), block, self._sticks(op.operands[0]).first, self.row if rows > 1 else 0)

    def store_rows(self, op: ir.Operation, block: ir.Value, number: int | ir.Value) -> None:
        """Store the sticks of a block from `number` on, at most `plan.stored_rows` at a time, or as many as divide the block best.

        Where rows are clipped in each trip of the loop over blocks it is stored at once, since a bound follows one loop.
        """
        sticks, rows, _ = ir.RankedTensorType(block.type).shape
        most = self.plan.stored_rows
        some = max((n for n in range(most // 2, most + 1, 2) if rows % n == 0), default=rows)
        place = self.window(op, op.operands[0])
        first_block = isinstance(self.row, int)
        if rows <= 2 * some or (place.clips_rows and not first_block):
            _store(op, place, block, number, self.row if rows > 1 else 0)
            return

        def some_rows(first: ir.Value) -> None:
            at = index_sum(first, self.row)
            assert not isinstance(at, int)
            _store(op, place, part(block, [index_constant(0), first], [sticks, some, LANES]), number, at)

        self.along(0, rows, some, some_rows)

    # Compute ops

    def empty(self, sticks: int, element: ir.Type) -> ir.Value:
        """A block without content."""
        return tensor.EmptyOp([sticks, self.plan.block_rows, LANES], element).result

    def init(self, init: ir.Value) -> ir.Value:
        """What an op on a block accumulates into or overwrites."""
        op = init.owner
        type_ = ir.RankedTensorType(init.type)
        empty = tensor.EmptyOp([self._sticks(init).count, self.plan.block_rows, type_.shape[-1]], type_.element_type).result
        if is_a(op, tensor.EmptyOp):
            return empty
        return fill(op.operands[0].owner.clone().results[0], empty)


def _store(op: ir.Operation, place: Window | IndirectWindow, block: ir.Value, stick: int | ir.Value, row: int | ir.Value) -> None:
    tile = place.tile(stick, row, list(ir.RankedTensorType(block.type).shape))
    ktdp.store(block, tile, ordered="ktir.ordered" in op.attributes)


def rebuilt(g: Generic, inputs: list[ir.Value], init: ir.Value) -> ir.Value:
    """The same op on blocks: of its row loops, one over the block's rows is left."""
    if makes_pairs(g):
        with g.op.location:
            return paired(inputs[0], init)
    rows = row_loops(g)
    others = [loop for loop in range(len(g.iterators)) if loop not in rows]
    at = 1 if g.is_pointwise else 0
    number = {loop: i + (i >= at) for i, loop in enumerate(others)}
    maps = []
    for i, operand in enumerate([*inputs, init]):
        first, last = (g.loop_of(i, d) for d in (0, len(g.maps[i].results) - 1))
        row = at if ir.RankedTensorType(operand.type).shape[1] > 1 else None
        maps.append(affine_map(len(others) + 1, [_numbered(number, first), row, _numbered(number, last)]))
    iterators = [g.iterators[loop] for loop in others]
    iterators.insert(at, "parallel")

    _refuse_rows(g, rows)
    return generic(inputs, init, maps, iterators, lambda scalars: g.copy_body(scalars, number), loc=g.op.location)


def filled_along(count: int, into: ir.Value, fill_: Callable[[int | ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """A tensor that `fill_` fills part by part, in a loop if there are several."""
    if count == 1:
        return fill_(0, into)
    return carried_along(0, count, 1, into, fill_)


def carried_along(start: int, stop: int, step: int, carried: ir.Value, build: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """A loop that carries one value; `build` gets its counter and what is carried."""
    loop = scf.ForOp(*(index_constant(v) for v in (start, stop, step)), [carried])
    with ir.InsertionPoint(loop.body):
        scf.YieldOp([build(loop.induction_variable, loop.inner_iter_args[0])])
    return loop.results[0]


def times(number: int | ir.Value, factor: int) -> int | ir.Value:
    """An index times a number; an op at the insertion point where it takes one."""
    if isinstance(number, int) or factor == 1:
        return number if factor == 1 else number * factor
    return arith.MulIOp(number, index_constant(factor)).result


def part(value: ir.Value, first: list[ir.Value], shape: list[int], step: int = 1) -> ir.Value:
    """The slice of `shape` that starts at `first` in the leading dims, of every `step`-th row."""
    result = ir.RankedTensorType.get(shape, ir.RankedTensorType(value.type).element_type)
    starts = [ir.ShapedType.get_dynamic_stride_or_offset()] * len(first) + [0] * (len(shape) - len(first))
    return tensor.ExtractSliceOp(result, value, first, [], [], starts, shape, [1, step, 1]).result


def stick(value: ir.Value, number: ir.Value) -> ir.Value:
    """One stick of a block, all its rows."""
    return part(value, [number], [1, *list(ir.RankedTensorType(value.type).shape)[1:]])


def insert_part(slice_: ir.Value, whole: ir.Value, first: list[ir.Value]) -> ir.Value:
    """`whole` with the slice that starts at `first` in the leading dims replaced."""
    shape = list(ir.RankedTensorType(slice_.type).shape)
    starts = [ir.ShapedType.get_dynamic_stride_or_offset()] * len(first) + [0] * (len(shape) - len(first))
    return tensor.InsertSliceOp(slice_, whole, first, [], [], starts, shape, [1] * len(shape)).result


def insert_stick(block: ir.Value, whole: ir.Value, number: ir.Value) -> ir.Value:
    """`whole` with one stick replaced."""
    return insert_part(block, whole, [number])


def _numbered(number: dict[int, int], loop: int | None) -> int | None:
    return None if loop is None else number[loop]


def _refuse_rows(g: Generic, rows: Collection[int]) -> None:
    """Raise Unsupported for a body that asks for its place along a row loop, of which one is left."""
    for op in g.body_ops:
        if is_a(op, linalg.IndexOp) and (loop := ir.IntegerAttr(op.attributes["dim"]).value) in rows:
            raise refused(op, f"expects a loop over sticks or lanes, but got loop {loop}, one over rows")


class Input(NamedTuple):
    """An operand of an op on blocks: what its tree calls it, and whether its sticks and lanes are walked; else it is a number per row."""

    name: Tree
    value: ir.Value
    stick: bool = True
    lane: bool = True


Body = Callable[[dict[Tree, ir.Value]], ir.Value]
"""Builds a body from the scalars of the inputs."""


def pointwise(inputs: Sequence[Input], sticks: int, rows: int, body: Body, element: ir.Type) -> ir.Value:
    """An op over [sticks, rows, lanes]."""
    maps = [affine_map(3, _walked(x, 0, 1, 2)) for x in inputs]
    init = tensor.EmptyOp([sticks, rows, LANES], element).result
    return _generic(inputs, init, [*maps, affine_map(3, [0, 1, 2])], ["parallel"] * 3, body)


def reduced(inputs: Sequence[Input], init: ir.Value, body: Body, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """A reduction over sticks and lanes; `combine` takes the accumulator and the scalar of the body."""
    maps = [affine_map(3, _walked(x, 1, 0, 2)) for x in inputs]
    result = affine_map(3, [None, 0, None])

    def whole(names: dict[Tree, ir.Value], accumulator: ir.Value) -> ir.Value:
        return combine(accumulator, body(names))

    return _generic(inputs, init, [*maps, result], ["parallel", "reduction", "reduction"], whole)


def _generic(
    inputs: Sequence[Input], init: ir.Value, maps: Sequence[ir.AffineMap], iterators: Sequence[str], body: Callable[..., ir.Value]
) -> ir.Value:
    def build(arguments: list[ir.Value]) -> ir.Value:
        names = {x.name: a for x, a in zip(inputs, arguments, strict=False)}
        return body(names, arguments[-1]) if "reduction" in iterators else body(names)

    return generic([x.value for x in inputs], init, maps, iterators, build, loc=ir.Location.current)


def _walked(x: Input, stick: int, row: int, lane: int) -> list[int | None]:
    rows = ir.RankedTensorType(x.value.type).shape[1] > 1
    return [stick if x.stick else None, row if rows else None, lane if x.lane else None]
