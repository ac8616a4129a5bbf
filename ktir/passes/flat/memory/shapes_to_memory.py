"""What only moves elements becomes memory: reshapes, slices, transposes, broadcasts, concatenations, pads, index tensors.

A tensor of the flat program is either computed, an SSA value, or lies in memory, a window of a buffer. What moves the elements of a load is
another window of its buffer; what moves those of a computed tensor a window of the pool that it is stored to, or, for transposes and
broadcasts, another indexing map. Places are found when a tensor is used, so what nobody uses is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from ktir.analysis.flat import refuse
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.op_facts import ADDRESSES, PLACES
from ktir.dialects.structured import Generic, affine_map, element_of, fill, loop_extents, maps_of, set_maps
from ktir.mlir import arith, func, ir, is_a, linalg, named, names, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.new_arguments import NewArguments
from ktir.passes.flat.memory.places import Computed, Places, is_computed_tile, spread
from ktir.passes.flat.memory.pools import InMemory, Pools, put
from ktir.passes.flat.memory.windows import Window, box_of, moved_back, shape, source

_DEAD = names(
    *ADDRESSES, *PLACES, ktdp.LoadOp, tensor.EmptyOp, linalg.FillOp, linalg.GenericOp, kt.MaterializeOp, tensor.InsertSliceOp, tensor.PadOp,
    tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractSliceOp,
)  # fmt: skip
"""Ops that go when nobody uses their results."""


class ShapesToMemory:
    """The rewriting of one function, in place."""

    def __init__(self, function: func.FuncOp, arguments: NewArguments) -> None:
        self.function = function
        self.pools = Pools(arguments)
        self.places = Places(self.pools)
        self.stored: set[ir.Value] = set()
        """Tiles of stores whose values are made where they are to be."""

    def run(self) -> None:
        """Rewrite all ops, in their order."""
        ops = [o.operation for o in self.function.regions[0].blocks[0].operations]
        if not any(moves_elements(op) for op in ops):
            return
        visits: dict[str, Callable[[ir.Operation], None]] = named(
            {
                linalg.GenericOp: self._generic,
                ktdp.StoreOp: self._store,
                tensor.InsertSliceOp: self._insert,
                tensor.PadOp: self._pad,
                kt.MaterializeOp: self._materialize,
                kt.PairBytesOp: self._pair,
            }
        )
        for op in ops:
            if op.name in visits:
                visits[op.name](op)
        erase_dead(self.function)

    def _generic(self, op: ir.Operation) -> None:
        if windows.moved_dims(op) is not None:
            return
        g = Generic(op)
        given = [self._given(g, i) for i in range(len(g.inputs))]
        bare = {i for i, kind in enumerate(g.iterators) if kind == "reduction"}.difference(*(_walked(loops, v) for loops, v in given))
        for i, value in enumerate(g.inputs):
            loops, found = given[i]
            if bare & set(loops):  # a reduced loop has its extent from an operand that walks it
                found = self._given(g, i, repeat=True)[1]
                bare -= set(loops)
            if found.value != value or not found.is_whole:
                self._give(op, i, found, loops)

    def _given(self, g: Generic, i: int, *, repeat: bool = False) -> tuple[Sequence[int], Computed]:
        """Operand i as an SSA value, and the loop of each of its dims."""
        value = g.inputs[i]
        if any(not isinstance(e, ir.AffineDimExpr) for e in g.maps[i].results):
            return range(len(g.iterators)), self._by_map(value, g, i, repeat=repeat)
        loops = [ir.AffineDimExpr(e).position for e in g.maps[i].results]
        found = self.places.operand(value, g.op, repeat=repeat)
        missing = set(loops) - _walked(loops, found)
        contraction = g.contraction
        if contraction is not None and missing and not (i == 1 and missing <= set(contraction.batch)):
            found = self.places.operand(value, g.op, repeat=True)  # only a batch loop may become one of rows
        return loops, found

    def _by_map(self, value: ir.Value, g: Generic, i: int, *, repeat: bool) -> Computed:
        """An operand that is read at sums or divisions of loops, as a tensor over all loops."""
        extents = loop_extents(g.op)
        place = self.places.addressed(
            self.places.stored(value, self.places.of(value)), list(g.maps[i].results), extents, g.op, g.op.results[0]
        )
        return self.places.without_repeats(place, g.op, repeat=repeat)

    def _give(self, op: ir.Operation, i: int, given: Computed, loops: Sequence[int]) -> None:
        """Make `given` operand i, where `loops` walk the dims that it stands for."""
        maps = maps_of(op)
        results = [loops[given.dims.index(d)] for d in range(len(shape(given.value)))]
        maps[i] = affine_map(maps[i].n_dims, results)
        op.operands[i] = given.value
        set_maps(op, maps)

    def _store(self, op: ir.Operation) -> None:
        value, tile = op.operands
        if tile in self.stored:
            op.erase()
            return
        if is_computed_tile(tile.owner.operation):
            raise refuse(op, "stores at computed addresses, which is not supported; the nearest supported form is a strided view")
        view = windows.direct_view(tile.owner.operation)
        if view is not None and self._stored_backwards(op, view):
            return
        given = self.places.operand(value, op)
        if given.value != value or not given.is_whole:
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = spread(given, shape(value), element_of(value))

    def _stored_backwards(self, op: ir.Operation, view: ir.Operation) -> bool:
        """Store what is behind the reshapes of a stored value, through a view that is reshaped the other way."""
        base, window = windows.window_of_view(view)
        value: ir.Value = op.operands[0]
        back: Window | None = window
        while back is not None and not isinstance(value.owner, ir.Block) and (given := source(value.owner.operation)) is not None:
            back = moved_back(value.owner.operation, back)
            value = given
        if back is None or value == op.operands[0] or isinstance(self.places.of(value), InMemory):
            return False
        with ir.InsertionPoint(op), op.location:
            put(value, base, back)
        op.erase()
        return True

    def _insert(self, op: ir.Operation) -> None:
        """A part of a whole: a store into the whole's buffer, which the last insertion of a chain has with the first one."""
        part, whole = op.operands[0], op.operands[1]
        buffer = self._whole(op)
        offsets, sizes, steps, kept = box_of(op)
        first = whole.owner.operation
        with ir.InsertionPoint(op), op.location:
            if not is_a(first, tensor.InsertSliceOp) or not _is_link(first):
                self._fill(whole, buffer, op)
            put(self._ready(part, op), buffer.base, buffer.window.slice(offsets, sizes, steps, kept))
        self.places.found[op.results[0]] = buffer

    def _whole(self, op: ir.Operation) -> InMemory:
        """The buffer of the whole that `op` inserts into."""
        before = op.operands[1].owner.operation
        if is_a(before, tensor.InsertSliceOp) and _is_link(before):
            place = self.places.found[before.results[0]]
            assert isinstance(place, InMemory)
            return place
        last = op
        while _is_link(last):
            last = next(iter(last.results[0].uses)).owner.operation
        return self._buffer(last.results[0])

    def _buffer(self, value: ir.Value) -> InMemory:
        """Memory for a tensor that is made part by part: the output that it is stored to, if nothing else touches that, or a pool."""
        uses = [use.owner.operation for use in value.uses]
        if len(uses) == 1 and is_a(uses[0], ktdp.StoreOp):
            view = windows.direct_view(uses[0].operands[1].owner.operation)
            if view is not None:
                base, window = windows.window_of_view(view)
                if self.pools.role(base) == "output" and len(list(base.uses)) == 1 and len(list(view.results[0].uses)) == 1:
                    self.stored.add(uses[0].operands[1])
                    return InMemory(base, window, element_of(value))
        return self.pools.new(value)

    def _fill(self, whole: ir.Value, buffer: InMemory, user: ir.Operation) -> None:
        """Put what a whole holds before anything is inserted; nothing for a tensor without content."""
        if not is_a(whole.owner, tensor.EmptyOp):
            put(self._ready(whole, user), buffer.base, buffer.window)

    def _ready(self, value: ir.Value, user: ir.Operation) -> ir.Value:
        """`value` as a computed tensor."""
        place = self.places.of(value)
        if isinstance(place, Computed) and place.is_whole:
            return place.value
        return self.places.materialized(value, place)

    def _pad(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        scalar = list(block.operations)[-1].operands[0]
        maker = scalar.owner.operation
        result = op.results[0]
        low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
        inner = shape(op.operands[0])
        if not is_a(maker, arith.ConstantOp):
            raise refuse(op, "pads with a value that is no constant, which is not supported")
        buffer = self._buffer(result)
        with ir.InsertionPoint(op), op.location:
            scalar = maker.clone().results[0]
            borders = list(_borders(low, inner, shape(result)))
            if any(prod(sizes) == 1 for _, sizes in borders):  # no tensor of the level has a single element
                borders = [([0] * len(low), list(shape(result)))]
            for first, sizes in borders:
                kept = [d for d, n in enumerate(sizes) if n > 1]
                border = fill(scalar, tensor.empty([sizes[d] for d in kept], element_of(result)))
                put(border, buffer.base, buffer.window.slice(first, sizes, [1] * len(low), kept))
            box = buffer.window.slice(low, inner, [1] * len(low), range(len(low)))
            put(self._ready(op.operands[0], op), buffer.base, box)
        self.places.found[result] = buffer

    def _pair(self, op: ir.Operation) -> None:
        with ir.InsertionPoint(op), op.location:
            op.operands[0] = self._ready(op.operands[0], op)

    def _materialize(self, op: ir.Operation) -> None:
        """Memory that indices are read from, or data: where the tensor lies, unless that may be written, else a pool."""
        value = op.operands[0]
        place = self.places.stored(value, self.places.of(value))
        if place.load is not None and not self.pools.is_constant(place.base):
            place = self.places.copied(value, place, op)
        with ir.InsertionPoint(op), op.location:
            view = windows.view_of(place.base, place.window, place.element)
        op.results[0].replace_all_uses_with(view)


def _borders(low: Sequence[int], inner: Sequence[int], whole: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Boxes, as first elements and sizes, that are `whole` without the box `inner` which begins at `low`, none of them twice."""
    first, sizes = [0] * len(whole), list(whole)
    for d, (before, n) in enumerate(zip(low, inner, strict=True)):
        for start, extent in ((0, before), (before + n, whole[d] - before - n)):
            if extent:
                yield [*first[:d], start, *first[d + 1 :]], [*sizes[:d], extent, *sizes[d + 1 :]]
        first[d], sizes[d] = before, n


def _walked(loops: Sequence[int], given: Computed) -> set[int]:
    """Which of the `loops` of an operand's dims `given` has."""
    return {loops[d] for d, k in enumerate(given.dims) if k is not None}


def _is_link(op: ir.Operation) -> bool:
    """Whether the result of an insertion is only what the next one inserts into."""
    uses = list(op.results[0].uses)
    return len(uses) == 1 and is_a(uses[0].owner, tensor.InsertSliceOp) and uses[0].operand_number == 1


def moves_elements(op: ir.Operation) -> bool:
    """Whether an op is none of the flat form because it moves elements: it has other names, reads at other addresses or by other maps."""
    if is_a(op, linalg.GenericOp):
        return any(not isinstance(e, ir.AffineDimExpr) for m in Generic(op).maps for e in m.results)
    return is_a(
        op, tensor.InsertSliceOp, tensor.PadOp, kt.MaterializeOp, tensor.ExtractSliceOp, tensor.ExpandShapeOp, tensor.CollapseShapeOp
    ) or is_computed_tile(op)


def erase_dead(function: func.FuncOp) -> None:
    """Erase ops whose results nobody uses and that do nothing else, the last ones first."""
    for op in reversed([o.operation for o in function.regions[0].blocks[0].operations]):
        if op.name in _DEAD and not any(list(r.uses) for r in op.results):
            op.erase()
