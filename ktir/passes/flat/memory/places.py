"""Where the elements of a tensor are: in an SSA value, or in a window of a buffer. Places are found when a tensor is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, product

from ktir.analysis.flat import refuse
from ktir.dialects import ktdp
from ktir.dialects.structured import element_of, elementwise
from ktir.mlir import ir, is_a, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.addresses import Numbers, digits_of, functions_of, ranges_of
from ktir.passes.flat.memory.pools import InMemory, Pools, put
from ktir.passes.flat.memory.windows import Window, moved, shape, source


@dataclass(frozen=True)
class Computed:
    """A tensor that is an SSA value: dim i is dim `dims[i]` of `value`, None = repeated."""

    value: ir.Value
    dims: tuple[int | None, ...]

    @property
    def is_whole(self) -> bool:
        return self.dims == tuple(range(len(self.dims)))


Place = Computed | InMemory


@dataclass(frozen=True)
class Places:
    """The places of a function's tensors, as far as they have been asked for."""

    pools: Pools
    found: dict[ir.Value, Place] = field(default_factory=dict)
    homes: dict[ir.Value, InMemory] = field(default_factory=dict)
    """Computed tensors that are stored, and where."""
    copies: dict[tuple[ir.Value, Window, str], tuple[InMemory, ir.Operation]] = field(default_factory=dict)
    """Copies of constant memory for a collapse, and a store that makes each."""

    def of(self, value: ir.Value) -> Place:
        """Where the elements of a tensor are."""
        if value not in self.found:
            self.found[value] = self._find(value)
        return self.found[value]

    def _find(self, value: ir.Value) -> Place:
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is None:
            return Computed(value, tuple(range(len(shape(value)))))
        if is_a(op, ktdp.LoadOp):
            tile = op.operands[0].owner.operation
            if (view := windows.direct_view(tile)) is not None:
                return InMemory(*windows.window_of_view(view), element_of(value), op)
            if is_computed_tile(tile):
                return self._read_by_address(value, tile)
        elif (given := source(op)) is not None:
            before = self.of(given)
            dims = windows.moved_dims(op)
            if isinstance(before, Computed) and dims is not None:
                return Computed(before.value, tuple(None if d is None else before.dims[d] for d in dims))
            stored = self.stored(given, before)
            window = moved(op, stored.window)
            if window is None:
                stored = self.copied(given, stored, op)
                window = moved(op, stored.window)
                assert window is not None, "a buffer of its own is collapsed in any way"
            return InMemory(stored.base, window, stored.element, stored.load)
        return Computed(value, tuple(range(len(shape(value)))))

    def stored(self, value: ir.Value, place: Place) -> InMemory:
        """The tensor `value` in memory: a computed one is stored to a pool, behind the op that makes it."""
        if isinstance(place, InMemory):
            return place
        if place.value not in self.homes:
            pool = self.pools.new(place.value)
            self.homes[place.value] = pool
            maker = place.value.owner.operation
            with ir.InsertionPoint.after(maker), maker.location:
                put(place.value, pool.base, pool.window)
        pool = self.homes[place.value]
        return InMemory(pool.base, pool.window.pick(place.dims, shape(value)), pool.element)

    def copied(self, value: ir.Value, place: InMemory, user: ir.Operation) -> InMemory:
        """The tensor `value` in a pool of its own, copied there before `user`."""
        key = (place.base, place.window, str(user.attributes["reassociation"]) if is_a(user, tensor.CollapseShapeOp) else "")
        pool, made = self.copies.get(key, (None, user))
        if pool is not None and made.is_before_in_block(user) and self.pools.is_constant(place.base):
            return pool
        with ir.InsertionPoint(user), user.location:
            copy = self.materialized(value, place)
            pool = self.pools.new(value, collapse=user)
            self.copies[key] = pool, put(copy, pool.base, pool.window)
        return pool

    def _read_by_address(self, value: ir.Value, tile: ir.Operation) -> InMemory:
        """The load of a tile whose subscripts are functions of its variables alone."""
        load = value.owner.operation
        base, window = windows.window_of_view(tile.operands[0].owner.operation)
        expressions = [m.results[0] for m, _ in tile.opview.subscripts]
        order = tile.opview.order
        extents = [0] * len(order)
        for variable, size in zip(order, shape(value), strict=True):
            extents[variable] = size
        found = self.addressed(InMemory(base, window, element_of(value), load), expressions, extents, load, value)
        return replace(found, window=found.window.pick(order, shape(value)))

    def addressed(
        self, place: InMemory, expressions: Sequence[ir.AffineExpr], extents: Sequence[int], user: ir.Operation, value: ir.Value
    ) -> InMemory:
        """The tensor over loops of `extents` whose elements lie at `expressions` of `place`: a window of it, or a copy in a pool."""
        found = functions_of(expressions, place.window.strides, extents)
        if found is None:
            raise refuse(user, "reads at an address that depends on several loops in one division, which is not supported")
        constant, functions = found
        offset = place.window.offset + constant
        digits = [digits_of(f) for f in functions]
        if all(d is not None and len(d) == 1 for d in digits):
            strides = tuple(d[0][1] for d in digits if d is not None)
            return replace(place, window=Window(offset, tuple(extents), strides))
        pool = self.pools.new(value, extents)
        with ir.InsertionPoint(user), user.location:
            for part in product(*(ranges_of(f) for f in functions)):
                self._copy_part(place, offset, functions, part, pool, user)
        return pool

    def _copy_part(
        self,
        place: InMemory,
        offset: int,
        functions: Sequence[Numbers],
        part: Sequence[tuple[int, int]],
        pool: InMemory,
        user: ir.Operation,
    ) -> None:
        """Copy a box of loops in which the address has digits to a pool."""
        cuts = [digits_of(f[a:b] - f[a]) for f, (a, b) in zip(functions, part, strict=True)]
        flat = [d for digits in cuts for d in digits or []]
        offset += sum(int(f[a]) for f, (a, _) in zip(functions, part, strict=True))
        sizes = [n for n, _ in flat]
        first, lengths = [a for a, _ in part], [b - a for a, b in part]
        ends = list(accumulate(len(digits or []) for digits in cuts))
        groups = [list(range(end - len(digits or []), end)) for end, digits in zip(ends, cuts, strict=True)]
        target = pool.window.slice(first, lengths, [1] * len(part), range(len(part))).expand(groups, sizes)
        kept = [i for i, n in enumerate(sizes) if n > 1]
        given = Window(offset, tuple(sizes[i] for i in kept), tuple(flat[i][1] for i in kept))
        copy = spread(self.without_repeats(replace(place, window=given), user), given.sizes, place.element)
        put(copy, pool.base, target.pick(kept, given.sizes))

    def operand(self, value: ir.Value, user: ir.Operation, *, repeat: bool = False) -> Computed:
        """`value` as an SSA value without the dims that only repeat; with `repeat` the load has those, at stride 0."""
        place = self.of(value)
        if isinstance(place, Computed):
            return place if not repeat or place.is_whole else self.without_repeats(self.stored(value, place), user, repeat=True)
        all_dims = tuple(range(len(shape(value))))
        if place.load is not None and value == place.load.results[0] and not is_computed_tile(place.load.operands[0].owner.operation):
            if repeat or 0 not in place.window.strides:
                return Computed(self.pools.own(value, place, user), all_dims)
        return self.without_repeats(place, user, repeat=repeat)

    def without_repeats(self, place: InMemory, user: ir.Operation, *, repeat: bool = False) -> Computed:
        """A load of `place` without the dims of stride 0, or with them if `repeat`."""
        sizes, strides = place.window.sizes, place.window.strides
        kept = [d for d in range(len(sizes)) if strides[d] or repeat]
        small = place.window.pick(kept, [sizes[d] for d in kept])
        dims = tuple(kept.index(d) if d in kept else None for d in range(len(sizes)))
        return Computed(self.pools.got(replace(place, window=small), user), dims)

    def materialized(self, value: ir.Value, place: Place) -> ir.Value:
        """A computed copy of `value`, made at the insertion point."""
        user = ir.InsertionPoint.current.ref_operation.operation
        self.found.setdefault(value, place)
        return spread(self.operand(value, user), shape(value), element_of(value))


def spread(given: Computed, sizes: Sequence[int], element: ir.Type) -> ir.Value:
    """A computed tensor of the elements of `given`."""
    loops = [given.dims.index(d) for d in range(len(shape(given.value)))]
    return elementwise([given.value], tensor.empty(list(sizes), element), walks=[loops])


def is_computed_tile(tile: ir.Operation) -> bool:
    """Whether the subscripts of a tile are functions of its variables, not read from memory."""
    return is_a(tile, ktdp.ConstructIndirectAccessTileOp) and not tile.opview.index_views and not tile.opview.captured
