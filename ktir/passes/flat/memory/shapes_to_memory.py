"""What only moves elements becomes memory: reshapes, slices, transposes, broadcasts, concatenations, pads, index tensors.

A tensor of the flat program is either computed, an SSA value, or lies in memory, a window of a buffer. What moves the elements of a load is
another window of its buffer; what moves those of a computed tensor a window of the pool that it is stored to, or, for transposes and
broadcasts, another indexing map. Places are found when a tensor is used, so what nobody uses is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from math import prod

from ktir.analysis.flat import refuse
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, generic, loop_extents
from ktir.layout import LANES
from ktir.mlir import arith, func, ir, linalg, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.addresses import Numbers, digits_of, functions_of, ranges_of
from ktir.passes.flat.memory.new_arguments import NewArguments
from ktir.passes.flat.memory.windows import Window, box_of, moved, moved_back, shape, source

INSERT, PAD, MATERIALIZE = "tensor.insert_slice", "tensor.pad", "ktir.materialize"
_DEAD = ("tensor.empty", "arith.constant", "arith.addi", "linalg.fill", "linalg.generic", "ktdp.load", "ktdp.construct_access_tile",
         "ktdp.construct_memory_view", "ktdp.construct_indirect_access_tile", MATERIALIZE, INSERT, PAD,
         windows.EXPAND, windows.COLLAPSE, windows.EXTRACT)  # fmt: skip
"""Ops that go when nobody uses their results."""


@dataclass(frozen=True)
class Computed:
    """A tensor that is an SSA value: dim i is dim `dims[i]` of `value`, None = repeated."""

    value: ir.Value
    dims: tuple[int | None, ...]

    @property
    def is_whole(self) -> bool:
        return self.dims == tuple(range(len(self.dims)))


@dataclass(frozen=True)
class InMemory:
    """A tensor that is a window of a buffer, read where the program reads it: at the op `load`; None = anywhere from now on."""

    base: ir.Value
    window: Window
    element: ir.Type
    load: ir.Operation | None = None


Place = Computed | InMemory


class ShapesToMemory:
    """The rewriting of one function, in place."""

    def __init__(self, function: func.FuncOp, arguments: NewArguments) -> None:
        self.block: ir.Block = function.regions[0].blocks[0]
        self.function = function
        self.arguments = arguments
        self.places: dict[ir.Value, Place] = {}
        self.pools: dict[ir.Value, InMemory] = {}
        """Computed tensors that are stored, and where."""
        self.copies: dict[tuple[ir.Value, Window, str], tuple[InMemory, ir.Operation]] = {}
        """Copies of constant memory for a collapse, and a store that makes each."""
        self.stored: set[ir.Value] = set()
        """Tiles of stores whose values are made where they are to be."""
        self.loads: dict[tuple[ir.Value, Window, ir.Value | None], ir.Value] = {}

    def run(self) -> None:
        """Rewrite all ops, in their order."""
        ops = [o.operation for o in self.block.operations]
        if not any(moves_elements(op) for op in ops):
            return
        visits: dict[str, Callable[[ir.Operation], None]] = {
            "linalg.generic": self._generic,
            "ktdp.store": self._store,
            INSERT: self._insert,
            PAD: self._pad,
            MATERIALIZE: self._materialize,
        }
        for op in ops:
            if op.name in visits:
                visits[op.name](op)
        erase_dead(self.function)

    # Places

    def place(self, value: ir.Value) -> Place:
        """Where the elements of a tensor are."""
        if value not in self.places:
            self.places[value] = self._find(value)
        return self.places[value]

    def _find(self, value: ir.Value) -> Place:
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is None:
            return Computed(value, tuple(range(len(shape(value)))))
        if op.name == "ktdp.load":
            tile = op.operands[0].owner.operation
            if (view := windows.direct_view(tile)) is not None:
                return InMemory(*windows.window_of_view(view), element_of(value), op)
            if is_computed_tile(tile):
                return self._read_by_address(value, tile)
        elif (given := source(op)) is not None:
            before = self.place(given)
            dims = windows.moved_dims(op)
            if isinstance(before, Computed) and dims is not None:
                return Computed(before.value, tuple(None if d is None else before.dims[d] for d in dims))
            stored = self._stored(given, before)
            window = moved(op, stored.window)
            if window is None:
                stored = self._copied(given, stored, op)
                window = moved(op, stored.window)
                assert window is not None, "a buffer of its own is collapsed in any way"
            return InMemory(stored.base, window, stored.element, stored.load)
        return Computed(value, tuple(range(len(shape(value)))))

    def _stored(self, value: ir.Value, place: Place) -> InMemory:
        """The tensor `value` in memory: a computed one is stored to a pool, behind the op that makes it."""
        if isinstance(place, InMemory):
            return place
        if place.value not in self.pools:
            pool = self._pool(place.value)
            self.pools[place.value] = pool
            maker = place.value.owner.operation
            with ir.InsertionPoint.after(maker), maker.location:
                self._put(place.value, pool.base, pool.window)
        pool = self.pools[place.value]
        return InMemory(pool.base, pool.window.pick(place.dims, shape(value)), pool.element)

    def _copied(self, value: ir.Value, place: InMemory, user: ir.Operation) -> InMemory:
        """The tensor `value` in a pool of its own, copied there before `user`."""
        key = (place.base, place.window, str(user.attributes["reassociation"]) if user.name == windows.COLLAPSE else "")
        pool, made = self.copies.get(key, (None, user))
        if pool is not None and made.is_before_in_block(user) and self._is_constant(place.base):
            return pool
        with ir.InsertionPoint(user), user.location:
            copy = self._materialized(value, place)
            pool = self._pool(value, collapse=user)
            self.copies[key] = pool, self._put(copy, pool.base, pool.window)
        return pool

    def _pool(self, like: ir.Value, sizes: Sequence[int] | None = None, collapse: ir.Operation | None = None) -> InMemory:
        """A new pool for the tensor `like`, or one of other `sizes` in its place, of the coarsest shape in which its uses need it: the last
        extents may have to be one, since only the last one of a pool is followed by a gap. What `collapse` makes of it is a window."""
        sizes = shape(like) if sizes is None else tuple(sizes)
        best: tuple[int, tuple[int, ...], Window] | None = None
        for cut in range(len(sizes) - 1, -1, -1):
            coarse = (*sizes[:cut], prod(sizes[cut:]))
            window = Window.dense(coarse, LANES).expand([*([d] for d in range(cut)), list(range(cut, len(sizes)))], sizes)
            if cut and collapse is not None and moved(collapse, window) is None:
                continue
            copies = _copies(like, window)
            if best is None or copies < best[0]:
                best = (copies, coarse, window)
            if not copies:
                break
        _, coarse, window = best or (0, (), Window(0, (), ()))
        return InMemory(self.arguments.add("pool", coarse, element_of(like), like.owner.location), window, element_of(like))

    def _read_by_address(self, value: ir.Value, tile: ir.Operation) -> InMemory:
        """The load of a tile whose subscripts are functions of its variables alone."""
        load = value.owner.operation
        base, window = windows.window_of_view(tile.operands[0].owner.operation)
        expressions = [m.results[0] for m, _ in tile.opview.subscripts]
        order = [ir.AffineDimExpr(e).position for e in ir.AffineMapAttr(tile.attributes["variables_space_order"]).value.results]
        extents = [0] * len(order)
        for variable, size in zip(order, shape(value), strict=True):
            extents[variable] = size
        found = self._addressed(InMemory(base, window, element_of(value), load), expressions, extents, load, value)
        return replace(found, window=found.window.pick(order, shape(value)))

    def _addressed(
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
        pool = self._pool(value, extents)
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
        copy = self._spread(self._without_repeats(replace(place, window=given), user), given.sizes, place.element)
        self._put(copy, pool.base, target.pick(kept, given.sizes))

    # Access to memory, at the insertion point

    def _view(self, base: ir.Value, window: Window, element: ir.Type) -> ir.Value:
        if window.offset:
            index = ir.IndexType.get()
            base = arith.AddIOp(base, arith.ConstantOp(index, ir.IntegerAttr.get(index, window.offset)).result).result
        return ktdp.construct_memory_view(base, window.sizes, window.strides, element)

    def _put(self, value: ir.Value, base: ir.Value, window: Window) -> ir.Operation:
        """Store a computed tensor; the view."""
        view = self._view(base, window, element_of(value))
        ktdp.store(value, ktdp.construct_access_tile(view, [0] * len(window.sizes), window.sizes))
        return view.owner.operation

    def _got(self, place: InMemory, user: ir.Operation) -> ir.Value:
        """A load of the window; a load of the program's own stays where it is."""
        key = (place.base, place.window, None if self._is_constant(place.base) else place.load and place.load.results[0])
        known = self.loads.get(key)
        if known is None or not known.owner.operation.is_before_in_block(user):
            with ir.InsertionPoint(place.load or user), (place.load or user).location:
                view = self._view(place.base, place.window, place.element)
                tile = ktdp.construct_access_tile(view, [0] * len(place.window.sizes), place.window.sizes)
                self.loads[key] = ktdp.load(tile, place.element)
        return self.loads[key]

    def _operand(self, value: ir.Value, user: ir.Operation, *, repeat: bool = False) -> Computed:
        """`value` as an SSA value without the dims that only repeat; with `repeat` the load has those, at stride 0."""
        place = self.place(value)
        if isinstance(place, Computed):
            return place if not repeat or place.is_whole else self._without_repeats(self._stored(value, place), user, repeat=True)
        all_dims = tuple(range(len(shape(value))))
        if place.load is not None and value == place.load.results[0] and not is_computed_tile(place.load.operands[0].owner.operation):
            if repeat or 0 not in place.window.strides:
                return Computed(self._own(value, place, user), all_dims)
        return self._without_repeats(place, user, repeat=repeat)

    def _own(self, value: ir.Value, place: InMemory, user: ir.Operation) -> ir.Value:
        """A load of the program's own, or an equal one that stands before `user`."""
        known = self.loads.setdefault((place.base, place.window, None), value) if self._is_constant(place.base) else value
        return known if known.owner.operation.is_before_in_block(user) else value

    def _without_repeats(self, place: InMemory, user: ir.Operation, *, repeat: bool = False) -> Computed:
        """A load of `place` without the dims of stride 0, or with them if `repeat`."""
        sizes, strides = place.window.sizes, place.window.strides
        kept = [d for d in range(len(sizes)) if strides[d] or repeat]
        small = place.window.pick(kept, [sizes[d] for d in kept])
        dims = tuple(kept.index(d) if d in kept else None for d in range(len(sizes)))
        return Computed(self._got(replace(place, window=small), user), dims)

    def _materialized(self, value: ir.Value, place: Place) -> ir.Value:
        """A computed copy of `value`, made at the insertion point."""
        user = ir.InsertionPoint.current.ref_operation.operation
        self.places.setdefault(value, place)
        return self._spread(self._operand(value, user), shape(value), element_of(value))

    def _spread(self, given: Computed, sizes: Sequence[int], element: ir.Type) -> ir.Value:
        """A computed tensor of the elements of `given`."""
        loops = [given.dims.index(d) for d in range(len(shape(given.value)))]
        init = tensor.empty(list(sizes), element)
        maps = [affine_map(len(sizes), loops), affine_map(len(sizes), range(len(sizes)))]
        return generic([given.value], init, maps, ["parallel"] * len(sizes), lambda a: a[0], loc=ir.Location.current)

    # Users

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
        found = self._operand(value, g.op, repeat=repeat)
        missing = set(loops) - _walked(loops, found)
        contraction = g.contraction
        if contraction is not None and missing and not (i == 1 and missing <= set(contraction.batch)):
            found = self._operand(value, g.op, repeat=True)  # only a batch loop may become one of rows
        return loops, found

    def _by_map(self, value: ir.Value, g: Generic, i: int, *, repeat: bool) -> Computed:
        """An operand that is read at sums or divisions of loops, as a tensor over all loops."""
        extents = loop_extents(g.op)
        place = self._addressed(self._stored(value, self.place(value)), list(g.maps[i].results), extents, g.op, g.op.results[0])
        return self._without_repeats(place, g.op, repeat=repeat)

    def _give(self, op: ir.Operation, i: int, given: Computed, loops: Sequence[int]) -> None:
        """Make `given` operand i, where `loops` walk the dims that it stands for."""
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
        results = [loops[given.dims.index(d)] for d in range(len(shape(given.value)))]
        maps[i] = affine_map(maps[i].n_dims, results)
        op.operands[i] = given.value
        op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])

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
        given = self._operand(value, op)
        if given.value != value or not given.is_whole:
            with ir.InsertionPoint(op), op.location:
                op.operands[0] = self._spread(given, shape(value), element_of(value))

    def _stored_backwards(self, op: ir.Operation, view: ir.Operation) -> bool:
        """Store what is behind the reshapes of a stored value, through a view that is reshaped the other way."""
        base, window = windows.window_of_view(view)
        value: ir.Value = op.operands[0]
        back: Window | None = window
        while back is not None and not isinstance(value.owner, ir.Block) and (given := source(value.owner.operation)) is not None:
            back = moved_back(value.owner.operation, back)
            value = given
        if back is None or value == op.operands[0] or isinstance(self.place(value), InMemory):
            return False
        with ir.InsertionPoint(op), op.location:
            self._put(value, base, back)
        op.erase()
        return True

    def _insert(self, op: ir.Operation) -> None:
        """A part of a whole: a store into the whole's buffer, which the last insertion of a chain has with the first one."""
        part, whole = op.operands[0], op.operands[1]
        buffer = self._whole(op)
        offsets, sizes, steps, kept = box_of(op)
        first = whole.owner.operation
        with ir.InsertionPoint(op), op.location:
            if first.name != INSERT or not _is_link(first):
                self._fill(whole, buffer, op)
            self._put(self._ready(part, op), buffer.base, buffer.window.slice(offsets, sizes, steps, kept))
        self.places[op.results[0]] = buffer

    def _whole(self, op: ir.Operation) -> InMemory:
        """The buffer of the whole that `op` inserts into."""
        before = op.operands[1].owner.operation
        if before.name == INSERT and _is_link(before):
            place = self.places[before.results[0]]
            assert isinstance(place, InMemory)
            return place
        last = op
        while _is_link(last):
            last = next(iter(last.results[0].uses)).owner.operation
        return self._buffer(last.results[0])

    def _buffer(self, value: ir.Value) -> InMemory:
        """Memory for a tensor that is made part by part: the output that it is stored to, if nothing else touches that, or a pool."""
        uses = [use.owner.operation for use in value.uses]
        if len(uses) == 1 and uses[0].name == "ktdp.store":
            view = windows.direct_view(uses[0].operands[1].owner.operation)
            if view is not None:
                base, window = windows.window_of_view(view)
                if self._role(base) == "output" and len(list(base.uses)) == 1 and len(list(view.results[0].uses)) == 1:
                    self.stored.add(uses[0].operands[1])
                    return InMemory(base, window, element_of(value))
        return self._pool(value)

    def _fill(self, whole: ir.Value, buffer: InMemory, user: ir.Operation) -> None:
        """Put what a whole holds before anything is inserted; nothing for a tensor without content."""
        if whole.owner.operation.name != "tensor.empty":
            self._put(self._ready(whole, user), buffer.base, buffer.window)

    def _ready(self, value: ir.Value, user: ir.Operation) -> ir.Value:
        """`value` as a computed tensor."""
        place = self.place(value)
        if isinstance(place, Computed) and place.is_whole:
            return place.value
        return self._materialized(value, place)

    def _pad(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        scalar = list(block.operations)[-1].operands[0]
        maker = scalar.owner.operation
        result = op.results[0]
        low = list(ir.DenseI64ArrayAttr(op.attributes["static_low"]))
        inner = shape(op.operands[0])
        if maker.name != "arith.constant":
            raise refuse(op, "pads with a value that is no constant, which is not supported")
        buffer = self._buffer(result)
        with ir.InsertionPoint(op), op.location:
            scalar = maker.clone().results[0]
            whole = linalg.fill(scalar, outs=[tensor.empty(list(shape(result)), element_of(result))])
            self._put(whole, buffer.base, buffer.window)
            box = buffer.window.slice(low, inner, [1] * len(low), range(len(low)))
            self._put(self._ready(op.operands[0], op), buffer.base, box)
        self.places[result] = buffer

    def _materialize(self, op: ir.Operation) -> None:
        """Memory that indices are read from, or data: where the tensor lies, unless that may be written, else a pool."""
        value = op.operands[0]
        place = self._stored(value, self.place(value))
        if place.load is not None and not self._is_constant(place.base):
            place = self._copied(value, place, op)
        with ir.InsertionPoint(op), op.location:
            view = self._view(place.base, place.window, place.element)
        op.results[0].replace_all_uses_with(view)

    def _is_constant(self, base: ir.Value) -> bool:
        """Whether no op of the function writes to a buffer."""
        return self._role(base) in ("input", "iota") or (self._role(base) == "shared" and not self._is_stored_to(base))

    def _is_stored_to(self, base: ir.Value) -> bool:
        """Whether a store, also one through another view, goes to a buffer."""
        users = [use.owner.operation for use in base.uses]
        addresses = [user for user in users if user.name == "arith.addi"]
        tiles = [use.owner.operation for user in users if user.name == "ktdp.construct_memory_view" for use in user.results[0].uses]
        stores = any(use.owner.operation.name == "ktdp.store" for tile in tiles for result in tile.results for use in result.uses)
        return stores or any(self._is_stored_to(add.results[0]) for add in addresses)

    def _role(self, base: ir.Value) -> str:
        return ir.StringAttr(ir.DictAttr(self.arguments.attributes[ir.BlockArgument(base).arg_number])["ktir.role"]).value


def element_of(value: ir.Value) -> ir.Type:
    """Element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def _walked(loops: Sequence[int], given: Computed) -> set[int]:
    """Which of the `loops` of an operand's dims `given` has."""
    return {loops[d] for d, k in enumerate(given.dims) if k is not None}


def _is_link(op: ir.Operation) -> bool:
    """Whether the result of an insertion is only what the next one inserts into."""
    uses = list(op.results[0].uses)
    return len(uses) == 1 and uses[0].owner.operation.name == INSERT and uses[0].operand_number == 1


def _copies(value: ir.Value, window: Window) -> int:
    """How many of the ops that move the elements of `value`, directly or in turn, would need a copy if it were `window`."""
    found = 0
    for use in value.uses:
        user = use.owner.operation
        if source(user) is None:
            continue
        then = moved(user, window)
        found += 1 if then is None else _copies(user.results[0], then)
    return found


def moves_elements(op: ir.Operation) -> bool:
    """Whether an op is none of the flat form because it moves elements: it has other names, reads at other addresses or by other maps."""
    if op.name == "linalg.generic":
        return any(not isinstance(e, ir.AffineDimExpr) for m in Generic(op).maps for e in m.results)
    return op.name in (INSERT, PAD, MATERIALIZE, windows.EXTRACT, windows.EXPAND, windows.COLLAPSE) or is_computed_tile(op)


def is_computed_tile(tile: ir.Operation) -> bool:
    """Whether the subscripts of a tile are functions of its variables, not read from memory."""
    return tile.name == "ktdp.construct_indirect_access_tile" and not tile.opview.index_views and not tile.opview.captured


def erase_dead(function: func.FuncOp) -> None:
    """Erase ops whose results nobody uses and that do nothing else, the last ones first."""
    for op in reversed([o.operation for o in function.regions[0].blocks[0].operations]):
        if op.name in _DEAD and not any(list(r.uses) for r in op.results):
            op.erase()
