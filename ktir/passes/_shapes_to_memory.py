"""What only moves elements becomes memory: reshapes, slices, transposes, broadcasts, concatenations, pads, index tensors.

A tensor of the flat program is either computed, an SSA value, or lies in memory, a window of a buffer. What moves the elements of a load is
another window of its buffer; what moves those of a computed tensor a window of the pool that it is stored to, or, for transposes and
broadcasts, another indexing map. Places are found when a tensor is used, so what nobody uses is not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, generic
from ktir.layout import LANES
from ktir.mlir import arith, func, ir, linalg, tensor
from ktir.passes import _windows
from ktir.passes._new_arguments import NewArguments
from ktir.passes._stick_roles import refuse
from ktir.passes._windows import Window, box_of, moved, moved_back, shape, source

INSERT, PAD, MATERIALIZE = "tensor.insert_slice", "tensor.pad", "ktir.materialize"
_DEAD = ("tensor.empty", "arith.constant", "arith.addi", "linalg.fill", "linalg.generic", "ktdp.load", "ktdp.construct_access_tile",
         "ktdp.construct_memory_view", "ktdp.construct_indirect_access_tile", MATERIALIZE, INSERT, PAD,
         _windows.EXPAND, _windows.COLLAPSE, _windows.EXTRACT)  # fmt: skip
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
        self.loads: dict[tuple[ir.Value, Window, ir.Operation | None], ir.Value] = {}

    def run(self) -> None:
        """Rewrite all ops, in their order."""
        ops = [o.operation for o in self.block.operations]
        if not any(op.name in (INSERT, PAD, MATERIALIZE, _windows.EXTRACT, _windows.EXPAND, _windows.COLLAPSE) for op in ops):
            return
        self.order = {op: i for i, op in enumerate(ops)}
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
        op = value.owner.operation
        if op.name == "ktdp.load":
            view = _windows.direct_view(op.operands[0].owner.operation)
            if view is not None:
                base, window = _windows.window_of_view(view.operation)
                return InMemory(base, window, element_of(value), op)
        elif (given := source(op)) is not None:
            before = self.place(given)
            dims = _windows.moved_dims(op)
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
        with ir.InsertionPoint(user), user.location:
            copy = self._materialized(value, place)
            pool = self._pool(copy, like=value)
            self._put(copy, pool.base, pool.window)
        return pool

    def _pool(self, value: ir.Value, like: ir.Value | None = None) -> InMemory:
        """A new pool for `value`, of the coarsest shape in which the uses (of `like`) need it: its last extents may have to be one, since
        only the last one of a pool is followed by a gap."""
        sizes = shape(value)
        best: tuple[int, int, Window] | None = None
        for joined in range(max(len(sizes), 1)):
            cut = len(sizes) - 1 - joined
            coarse = (*sizes[:cut], prod(sizes[cut:])) if sizes else ()
            groups = [*([d] for d in range(cut)), list(range(cut, len(sizes)))] if sizes else []
            window = Window.dense(coarse, LANES).expand(groups, sizes)
            copies = _copies(like or value, window)
            if best is None or copies < best[0]:
                best = (copies, joined, window)
            if not copies:
                break
        assert best is not None
        _, joined, window = best
        cut = len(sizes) - 1 - joined
        coarse = (*sizes[:cut], prod(sizes[cut:])) if sizes else ()
        element = element_of(value)
        return InMemory(self.arguments.add("pool", coarse, element, value.owner.location), window, element)

    # Access to memory, at the insertion point

    def _view(self, base: ir.Value, window: Window, element: ir.Type) -> ir.Value:
        if window.offset:
            index = ir.IndexType.get()
            base = arith.AddIOp(base, arith.ConstantOp(index, ir.IntegerAttr.get(index, window.offset)).result).result
        return ktdp.construct_memory_view(base, window.sizes, window.strides, element)

    def _put(self, value: ir.Value, base: ir.Value, window: Window) -> None:
        view = self._view(base, window, element_of(value))
        ktdp.store(value, ktdp.construct_access_tile(view, [0] * len(window.sizes), window.sizes))

    def _got(self, place: InMemory, user: ir.Operation) -> ir.Value:
        """A load of the window; a load of the program's own stays where it is."""
        key = (place.base, place.window, place.load)
        if key not in self.loads:
            with ir.InsertionPoint(place.load or user), (place.load or user).location:
                view = self._view(place.base, place.window, place.element)
                tile = ktdp.construct_access_tile(view, [0] * len(place.window.sizes), place.window.sizes)
                self.loads[key] = ktdp.load(tile, place.element)
        return self.loads[key]

    def _operand(self, value: ir.Value, user: ir.Operation, *, repeat: bool = False) -> Computed:
        """`value` as an SSA value without the dims that only repeat; with `repeat` the load has those, at stride 0."""
        place = self.place(value)
        if isinstance(place, Computed):
            return Computed(value, tuple(range(len(place.dims)))) if repeat else place
        window = place.window
        kept = [d for d in range(len(window.sizes)) if window.strides[d] or repeat]
        dims = tuple(kept.index(d) if d in kept else None for d in range(len(window.sizes)))
        owner = value.owner.operation
        if len(kept) == len(window.sizes) and owner.name == "ktdp.load":
            return Computed(value, dims)
        small = Window(window.offset, tuple(window.sizes[d] for d in kept), tuple(window.strides[d] for d in kept))
        return Computed(self._got(InMemory(place.base, small, place.element, place.load), user), dims)

    def _materialized(self, value: ir.Value, place: Place) -> ir.Value:
        """A computed copy of `value`, made at the insertion point."""
        user = ir.InsertionPoint.current.ref_operation.operation
        self.places.setdefault(value, place)
        given = self._operand(value, user)
        sizes = shape(value)
        loops = [given.dims.index(d) for d in range(len(shape(given.value)))]
        init = tensor.empty(list(sizes), element_of(value))
        maps = [affine_map(len(sizes), loops), affine_map(len(sizes), range(len(sizes)))]
        return generic([given.value], init, maps, ["parallel"] * len(sizes), lambda a: a[0], loc=ir.Location.current)

    # Users

    def _generic(self, op: ir.Operation) -> None:
        if _windows.moved_dims(op) is not None:
            return
        g = Generic(op)
        contraction = g.contraction
        for i, value in enumerate(g.inputs):
            loops = [g.loop_of(i, d) for d in range(len(g.maps[i].results))]
            given = self._operand(value, op)
            if contraction is not None and i == 0 and any(loops[d] in contraction.batch for d, k in enumerate(given.dims) if k is None):
                given = self._operand(value, op, repeat=True)  # else its batch loop would be one of the columns
            if given.value == value and given.is_whole:
                continue
            results = [loops[given.dims.index(d)] for d in range(len(shape(given.value)))]
            maps = [m.value for m in map(ir.AffineMapAttr, ir.ArrayAttr(op.attributes["indexing_maps"]))]
            maps[i] = affine_map(len(g.iterators), results)
            op.operands[i] = given.value
            op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps])

    def _store(self, op: ir.Operation) -> None:
        value, tile = op.operands
        owner = value.owner.operation
        if source(owner) is None and owner.name not in (INSERT, PAD):
            return
        view = _windows.direct_view(tile.owner.operation)
        if view is not None and self._stored_backwards(op, view):
            return
        with ir.InsertionPoint(op), op.location:
            op.operands[0] = self._materialized(value, self.place(value))

    def _stored_backwards(self, op: ir.Operation, view: ir.Operation) -> bool:
        """Store what is behind the reshapes of a stored value, through a view that is reshaped the other way."""
        base, window = _windows.window_of_view(view)
        value: ir.Value = op.operands[0]
        back: Window | None = window
        while back is not None and (given := source(value.owner.operation)) is not None:
            back = moved_back(value.owner.operation, back)
            value = given
        if back is None or isinstance(self.place(value), InMemory):
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
        return self._pool(op.results[0], like=last.results[0])

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
        buffer = self._pool(result)
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
        """Whether no op of the program writes to a buffer."""
        number = list(self.block.arguments).index(base)
        role = ir.StringAttr(ir.DictAttr(self.arguments.attributes[number])["ktir.role"]).value
        return role in ("input", "iota")


def element_of(value: ir.Value) -> ir.Type:
    """Element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


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


def erase_dead(function: func.FuncOp) -> None:
    """Erase ops whose results nobody uses and that do nothing else, the last ones first."""
    for op in reversed([o.operation for o in function.regions[0].blocks[0].operations]):
        if op.name in _DEAD and not any(list(r.uses) for r in op.results):
            op.erase()
