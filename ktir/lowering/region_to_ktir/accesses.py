"""Loads and stores: from an index expression to views, tiles, slices and copies. The ladder, best rung first:

| rung | the load becomes |
|---|---|
| `view` | memory: a view of exactly the elements, dims are loop variables or digits of them |
| `gather` | memory: an indirect tile through index tables, one per dim that data addresses |
| `value` | a tensor of the region: as it is, whole dims in any order |
| `slice` | a tensor of the region: reshaped, a box of it, digits collapsed to loop variables |
| `transpose` | the same after a copy in another order of dims |
| `affine map`, `quasi-affine map` | a tensor of the region: a copying generic with that map on its one-dimensional form |
| `quasi-affine tile` | memory: an indirect tile without tables on a one-dimensional view |
| `index table` | the linear index is computed as a tensor, then a gather |

Every rung ends in a tensor that is labelled by loop variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ktir.lowering.region_to_ktir.dtypes import ELEMENTS, literal
from ktir.lowering.region_to_ktir.indices import Index
from ktir.lowering.region_to_ktir.nodes import Node, Operand, index_node, tensor_of
from ktir.lowering.region_to_ktir.radix import Affine, Digit, Dim, Irregular, Loops, Match, Place, matched, refined
from ktir.lowering.region_to_ktir.region import Buffer
from ktir.lowering.region_to_ktir.text import Memory, Subscript, Tensor, Writer, affine_map, affine_text

Report = Callable[[str, str, str], None]
"""Told of every access: buffer, rung, reason why no better one."""


class NoAccess(Exception):
    """The access has no form; the text says why."""


@dataclass
class Table:
    """An index from data: the value of a symbol of later indices, below `size`."""

    node: Node
    size: int
    memory: Memory | None = None
    labels: tuple[str, ...] = ()


@dataclass
class Storage:
    """Where the buffers of a region are: base addresses of those in memory, current values of the others."""

    bases: dict[str, str]
    values: dict[str, Tensor] = field(default_factory=dict)
    memories: dict[tuple[str, tuple[int, ...]], Memory] = field(default_factory=dict)
    """Values that were put into memory to be gathered from, by name and shape."""
    parts: dict[str, dict[Index, int]] = field(default_factory=dict)
    """Of each value, where it was stored to, and how many elements each time."""
    inserts: dict[str, list[Callable[[Tensor], Tensor]]] = field(default_factory=dict)
    """Of each value that was stored to in parts, what puts each of these into a tensor of its shape."""
    filled: dict[str, Tensor] = field(default_factory=dict)
    """Values with gaps, by name -> the same without."""

    def is_whole(self, buffer: Buffer) -> bool:
        """Whether every element of a buffer has been written, so that it may be read where its reader does not look."""
        return buffer.name in self.bases or sum(self.parts.get(buffer.name, {}).values()) >= prod(n for n, _ in buffer.dims)


def stride_order(buffer: Buffer) -> list[int]:
    """Positions of the dims of a buffer, largest stride first."""
    return sorted(range(len(buffer.dims)), key=lambda k: -buffer.dims[k][1])


def _descending(buffer: Buffer) -> list[Dim]:
    return [Dim(*buffer.dims[k]) for k in stride_order(buffer)]


def span(buffer: Buffer) -> int:
    """Number of elements from the first to the last one in memory."""
    return 1 + sum((n - 1) * s for n, s in buffer.dims)


def _is_dense(buffer: Buffer) -> bool:
    """Whether the elements lie without gaps, so that they are one dim in the order of memory."""
    stride = 1
    for dim in reversed(_descending(buffer)):
        if dim.stride != stride:
            return False
        stride *= dim.size
    return True


@dataclass(frozen=True)
class _Addresses:
    """How the accesses of one nest reach elements: views, and indirect tiles through tables."""

    _writer: Writer
    _storage: Storage
    _loops: Loops
    _tables: Mapping[str, Table]
    _report: Report

    def _view(self, buffer: Buffer, form: Affine, order: Sequence[Digit]) -> Memory:
        """A view of the elements that an affine form reaches, one dim per digit."""
        if form.least < 0 or form.greatest >= span(buffer):
            raise NoAccess(f"elements {form.least} to {form.greatest} of '{buffer.name}', which has {span(buffer)}")
        base, offset = self._storage.bases[buffer.name], buffer.offset + form.constant
        return self._writer.view(base, offset, [d.size for d in order], [form.terms.get(d, 0) for d in order], ELEMENTS[buffer.dtype])

    def _flat_view(self, buffer: Buffer) -> Memory:
        return self._writer.view(self._storage.bases[buffer.name], buffer.offset, [span(buffer)], [1], ELEMENTS[buffer.dtype])

    def _materialize(self, table: Table) -> Loops:
        """Put an index from data into memory; the loops that it depends on."""
        node = table.node
        if table.memory is None:
            if node.operand is not None and node.operand.memory is not None:
                table.memory, table.labels = node.operand.memory, node.operand.labels
            else:
                table.labels = tuple(v for v, _ in self._loops if v in node.variables)
                dtype = node.dtype if node.dtype in ("int32", "int64") else "int64"
                tensor = tensor_of(self._writer, node, self._loops, table.labels, dtype)
                table.memory = self._writer.materialize(tensor)
        trips = dict(self._loops)
        return [(v, trips[v]) for v in table.labels]

    def _indirect(
        self, buffer: Buffer, index: Index, data: Mapping[str, int], every: Sequence[str] = ()
    ) -> tuple[Memory, list[int], tuple[str, ...], list[Subscript]]:
        """A view with a dim per digit of the index, and the subscripts that address it; a tile over the variables that occur, and
        over those in `every`.
        """
        form, _ = refined(index, self._loops, data)
        if any(c < 0 for c in form.terms.values()):
            raise Irregular("reversed")
        if form.least < 0 or form.greatest >= span(buffer):  # an integer that is known only at run time, plus a loop variable
            raise Irregular("index-misfit")
        order = sorted(form.terms, key=lambda d: -form.terms[d])
        loops = self._walked(order, data, every)
        places = [Place(0, d, 1) for d in order]
        view = self._view(buffer, form, order)
        return view, [n for _, n in loops], tuple(v for v, _ in loops), self._subscripts(places, loops, data)

    def _walked(self, digits: Sequence[Digit], data: Mapping[str, int], every: Sequence[str] = ()) -> Loops:
        """The loops that digits depend on, and those in `every`."""
        used = set(every)
        for digit in digits:
            used |= {v for v, _ in self._materialize(self._tables[digit.variable])} if digit.variable in data else {digit.variable}
        return [loop for loop in self._loops if loop[0] in used]

    def _subscripts(self, places: Sequence[Place], loops: Loops, data: Mapping[str, int]) -> list[Subscript]:
        positions = {v: k for k, (v, _) in enumerate(loops)}
        result = []
        for place in places:
            digit = place.digit
            if digit is None:
                result.append(Subscript(str(place.offset)))
            elif digit.variable in data:
                table = self._tables[digit.variable]
                result.append(Subscript(table=table.memory, arguments=tuple(positions[v] for v in table.labels)))
            else:
                trips = loops[positions[digit.variable]][1]
                text = f"d{positions[digit.variable]}"
                text = f"({text} floordiv {digit.low})" if digit.low != 1 else text
                text = f"({text} mod {digit.size})" if digit.high != trips else text
                text = f"{text} * {place.step}" if place.step != 1 else text
                result.append(Subscript(f"{text} + {place.offset}" if place.offset else text))
        return result

    def _permuted(self, value: Tensor, order: Sequence[int]) -> Tensor:
        return value if list(order) == sorted(order) else self._writer.transpose(value, order)

    def _flattened(self, buffer: Buffer, value: Tensor) -> Tensor:
        """The value of a buffer in one dim, in the order of memory; one without dims as it is."""
        return self._writer.reshape(self._permuted(value, stride_order(buffer)), [prod(value.shape)] if value.shape else [])


class _Loads(_Addresses):
    def load(self, buffer: Buffer, index: Index, order: Sequence[str] = ()) -> Operand:
        """The elements of a buffer at an index that is inside of it at every point. A view of memory has its dims in the `order` given,
        or in that of the loops and with all row loops.
        """
        loops = [loop for loop in self._loops if loop[0] in index.variables]
        if order:
            loops.sort(key=lambda loop: order.index(loop[0]))
        data = {name: t.size for name, t in self._tables.items() if name in index.variables}
        if buffer.name not in self._storage.values:
            if buffer.name not in self._storage.bases:
                raise NoAccess(f"a read of '{buffer.name}' before it is written")
            return self._from_memory(buffer, index, loops, data, rows=not order)
        return self._from_value(buffer, self._storage.values[buffer.name], index, loops, data)

    def _from_memory(self, buffer: Buffer, index: Index, loops: Loops, data: Mapping[str, int], *, rows: bool) -> Operand:
        try:
            if data:
                return self._gather(buffer, index, data)
            form, chains = refined(index, loops)
            digits = {v: chains.digits(v) for v, _ in loops}
            if rows and all(len(d) == 1 for d in digits.values()):
                loops = self._with_rows(loops)
                digits = {v: digits.get(v) or [Digit(v, 1, n)] for v, n in loops}
            order = [d for v, _ in loops for d in digits[v]]
            view = self._view(buffer, form, order)
            tensor = self._writer.load(self._writer.tile(view), view.shape, view.element)
        except Irregular as failure:
            return self._irregular(buffer, index, loops, data, failure.reason)
        self._report(buffer.name, "view", "")
        whole = view if len(order) == len(loops) else None
        return Operand(self._writer.reshape(tensor, [n for _, n in loops]), tuple(v for v, _ in loops), whole)

    def _with_rows(self, loops: Loops) -> Loops:
        """An input that some of the row loops walk gets all of them, with stride 0, so that rows can be flattened; all loops but the
        last are rows.
        """
        rows = {v for v, _ in self._loops[:-1]}
        used = {v for v, _ in loops}
        return [loop for loop in self._loops if loop[0] in used | (rows if used & rows else set())]

    def _irregular(self, buffer: Buffer, index: Index, loops: Loops, data: Mapping[str, int], reason: str) -> Operand:
        """A load from memory whose index is no affine form."""
        view = self._flat_view(buffer)
        if not data and index.is_quasi_affine:
            self._report(buffer.name, "quasi-affine tile", reason)
            names = {v: f"d{k}" for k, (v, _) in enumerate(loops)}
            subscripts, loops_ = [Subscript(affine_text(index, names))], loops
        else:
            self._report(buffer.name, "index table", reason)
            table = Table(index_node(index, {name: self._tables[name].node for name in data}), span(buffer))
            loops_ = self._materialize(table)
            subscripts = [Subscript(table=table.memory, arguments=tuple(range(len(loops_))))]
        extents = [n for _, n in loops_]
        tile = self._writer.indirect_tile(view, extents, subscripts)
        return Operand(self._writer.load(tile, extents, view.element), tuple(v for v, _ in loops_))

    def _gather(self, buffer: Buffer, index: Index, data: Mapping[str, int]) -> Operand:
        view, extents, labels, subscripts = self._indirect(buffer, index, data)
        tile = self._writer.indirect_tile(view, extents, subscripts)
        self._report(buffer.name, "gather", "")
        return Operand(self._writer.load(tile, extents, view.element), labels)

    def _from_value(self, buffer: Buffer, value: Tensor, index: Index, loops: Loops, data: Mapping[str, int]) -> Operand:
        try:
            match = _in_order(matched(index, loops, _descending(buffer), data), buffer)
        except Irregular as failure:
            return self._from_flat(buffer, value, index, loops, data, failure.reason)
        if data:
            return self._gather_value(buffer, value, match, data)
        return self._boxed(buffer, value, match)

    def _from_flat(self, buffer: Buffer, value: Tensor, index: Index, loops: Loops, data: Mapping[str, int], reason: str) -> Operand:
        """A load that does not fit the dims of the value: from its one-dimensional form."""
        if not _is_dense(buffer):
            raise NoAccess(f"an access to '{buffer.name}' of strides {list(buffer.stride)} ({reason})")
        size = prod(value.shape)
        flat = self._flattened(buffer, value)
        if not data:
            try:
                return self._boxed(buffer, flat, matched(index, loops, [Dim(size, 1)] if value.shape else []))
            except Irregular:
                pass
            if index.is_quasi_affine:
                return self._mapped(buffer, flat, index, loops, reason)
        self._report(buffer.name, "index table", reason)
        table = Table(index_node(index, {name: self._tables[name].node for name in data}), size)
        table_loops = self._materialize(table)
        extents = [n for _, n in table_loops]
        subscript = Subscript(table=table.memory, arguments=tuple(range(len(extents))))
        whole = self._without_gaps(buffer, value)
        memory = self._in_memory(flat if whole is value else self._flattened(buffer, whole))
        tile = self._writer.indirect_tile(memory, extents, [subscript] if value.shape else [])
        return Operand(self._writer.load(tile, extents, value.element), tuple(v for v, _ in table_loops))

    def _mapped(self, buffer: Buffer, flat: Tensor, index: Index, loops: Loops, reason: str) -> Operand:
        self._report(buffer.name, "affine map" if index.is_affine else "quasi-affine map", reason)
        names = {v: f"d{k}" for k, (v, _) in enumerate(loops)}
        maps = [affine_map(len(loops), [affine_text(index, names)]), affine_map(len(loops), range(len(loops)))]
        init = self._writer.empty([n for _, n in loops], flat.element)
        (result,) = self._writer.generic([flat], [init], maps, ["parallel"] * len(loops), lambda arguments: arguments[:1])
        return Operand(result, tuple(v for v, _ in loops))

    def _in_memory(self, value: Tensor) -> Memory:
        key = (value.name, value.shape)
        if key not in self._storage.memories:
            self._storage.memories[key] = self._writer.materialize(value)
        return self._storage.memories[key]

    def _gather_value(self, buffer: Buffer, value: Tensor, match: Match, data: Mapping[str, int]) -> Operand:
        self._report(buffer.name, "gather", "")
        loops = self._walked([p.digit for p in match.places if p.digit is not None], data)
        extents = [n for _, n in loops]
        memory = self._in_memory(self._part(self._without_gaps(buffer, value), match))
        tile = self._writer.indirect_tile(memory, extents, self._subscripts(match.places, loops, data))
        return Operand(self._writer.load(tile, extents, value.element), tuple(v for v, _ in loops))

    def _without_gaps(self, buffer: Buffer, value: Tensor) -> Tensor:
        """A value of which nothing is unwritten: zeros where nobody has stored yet. A gather may choose any element."""
        inserts = self._storage.inserts.get(buffer.name)
        if self._storage.is_whole(buffer) or inserts is None:
            return value
        if value.name not in self._storage.filled:
            whole = self._writer.filled(value.shape, value.element, literal(0, buffer.dtype))
            for insert in inserts:
                whole = insert(whole)
            self._storage.filled[value.name] = whole
        return self._storage.filled[value.name]

    def _part(self, value: Tensor, match: Match) -> Tensor:
        """The part of a value that a match cuts, cut."""
        sizes = [n for _, n in match.boxes]
        if tuple(sizes) != value.shape:
            ones = [1] * len(sizes)
            value = self._writer.slice(value, [low for low, _ in match.boxes], sizes, ones, [True] * len(sizes))
        return self._writer.reshape(value, match.sizes)

    def _boxed(self, buffer: Buffer, value: Tensor, match: Match) -> Operand:
        """A box of a value, its dims cut, as a tensor labelled by variables."""
        tensor = self._part(value, match)
        whole = _is_whole(match)
        if not whole:
            sizes = [p.digit.size if p.digit else 1 for p in match.places]
            kept = [p.digit is not None for p in match.places]
            tensor = self._writer.slice(tensor, [p.offset for p in match.places], sizes, [p.step for p in match.places], kept)
        digits = [p.digit for p in match.places if p.digit is not None]
        labels = tuple(dict.fromkeys(d.variable for d in digits))
        wanted = sorted(digits, key=lambda d: (labels.index(d.variable), -d.low))
        rung = "value" if whole and len(digits) == len(labels) and tensor is value else "slice"
        if wanted != digits:
            labels = tuple(v for v, _ in self._loops if v in labels)  # dims change places: they are as the loops walk them
            wanted = sorted(digits, key=lambda d: (labels.index(d.variable), -d.low))
            tensor = self._writer.transpose(tensor, [digits.index(d) for d in wanted])
            rung = "transpose"
        self._report(buffer.name, rung, "")
        every = [d for v in labels for d in match.digits[v]]
        if len(every) > len(wanted):
            tensor = self._writer.broadcast(tensor, [d.size for d in every], [k for k, d in enumerate(every) if d not in wanted])
        return Operand(self._writer.reshape(tensor, [prod(d.size for d in match.digits[v]) for v in labels]), labels)


class _Stores(_Addresses):
    def store(self, buffer: Buffer, index: Index, node: Node, mode: str) -> None:
        """Write a node, at every point of the loops, to a buffer."""
        data = {name: t.size for name, t in self._tables.items() if name in index.variables}
        if buffer.name in self._storage.bases:
            self._to_memory(buffer, index, node, data, mode)
        else:
            self._to_value(buffer, index, node)

    def _to_memory(self, buffer: Buffer, index: Index, node: Node, data: Mapping[str, int], mode: str) -> None:
        every = [v for v, _ in self._loops]
        reason = ""
        try:
            if not data and not mode:
                form, chains = refined(index, self._loops)
                order = [d for v in every for d in chains.digits(v)]
                view = self._view(buffer, form, order)
                tensor = self._writer.reshape(self._tensor(node, every, buffer.dtype), view.shape)
                self._writer.store(tensor, self._writer.tile(view))
                return
            view, extents, _, subscripts = self._indirect(buffer, index, data, every)
        except Irregular as failure:
            reason = failure.reason
            view, extents = self._flat_view(buffer), [n for _, n in self._loops]
            if not data and index.is_quasi_affine:
                names = {v: f"d{k}" for k, v in enumerate(every)}
                subscripts = [Subscript(affine_text(index, names))]
            else:
                table = Table(index_node(index, {name: self._tables[name].node for name in data}), span(buffer))
                positions = tuple(every.index(v) for v, _ in self._materialize(table))
                subscripts = [Subscript(table=table.memory, arguments=positions)]
        self._report(buffer.name, "scatter", reason)
        tensor = self._tensor(node, every, buffer.dtype)
        tile = self._writer.indirect_tile(view, extents, subscripts)
        if mode:
            self._writer.scatter_add(tensor, tile)
        else:
            self._writer.store(tensor, tile, ordered=bool(data))

    def _tensor(self, node: Node, labels: Sequence[str], dtype: str) -> Tensor:
        return tensor_of(self._writer, node, self._loops, labels, dtype)

    def _to_value(self, buffer: Buffer, index: Index, node: Node) -> None:
        """The new value of a temporary: the stored one, or the old one with a box replaced."""
        shape = [n for n, _ in buffer.dims]
        order = stride_order(buffer)
        self._storage.parts.setdefault(buffer.name, {})[index] = prod(n for v, n in self._loops if v in index.variables)
        try:
            match = _in_order(matched(index, self._loops, _descending(buffer)), buffer)
        except Irregular as failure:
            if not _is_dense(buffer) or not shape:
                raise NoAccess(f"a store to '{buffer.name}' at index {index} ({failure.reason})") from None
            self._to_flat(buffer, index, node, order)
            return
        old = self._storage.values.get(buffer.name)
        self._storage.values[buffer.name] = self._replaced(buffer, shape, old, match, node)

    def _to_flat(self, buffer: Buffer, index: Index, node: Node, order: Sequence[int]) -> None:
        """A store that does not fit the dims: to the one-dimensional form of the buffer in the order of memory."""
        shape = [buffer.dims[d][0] for d in order]
        old = self._storage.values.get(buffer.name)
        back = [list(order).index(d) for d in range(len(order))]

        def unflattened(value: Tensor) -> Tensor:
            return self._permuted(self._writer.reshape(value, shape), back)

        inserts = self._storage.inserts.setdefault(buffer.name, [])
        known = len(inserts)
        if old is not None:
            old = self._flattened(buffer, old)
        try:
            flat = self._replaced(buffer, [prod(shape)], old, matched(index, self._loops, [Dim(prod(shape), 1)]), node)
        except Irregular as failure:
            if old is None or not index.is_quasi_affine:
                raise NoAccess(f"a store to '{buffer.name}' at index {index} ({failure.reason})") from None
            self._report(buffer.name, "scatter", failure.reason)
            new = unflattened(self._scattered(old, index, node, buffer.dtype))
            inserts[:] = [lambda _: new]
        else:
            new = unflattened(flat)
            inserts[known:] = [lambda into, each=each: unflattened(each(self._flattened(buffer, into))) for each in inserts[known:]]
        self._storage.values[buffer.name] = new

    def _scattered(self, old: Tensor, index: Index, node: Node, dtype: str) -> Tensor:
        """A one-dimensional tensor with the elements at an index that is no box replaced: in memory of its own, read back."""
        every = [v for v, _ in self._loops]
        memory = self._writer.materialize(old)
        place = Subscript(affine_text(index, {v: f"d{k}" for k, v in enumerate(every)}))
        tile = self._writer.indirect_tile(memory, [n for _, n in self._loops], [place])
        self._writer.store(self._tensor(node, every, dtype), tile)
        return self._writer.load(self._writer.tile(memory), old.shape, old.element)

    def _replaced(self, buffer: Buffer, shape: Sequence[int], old: Tensor | None, match: Match, node: Node) -> Tensor:
        """A tensor of `shape` with what a match walks replaced by the values of a node."""
        tensor = self._arranged(node, [p.digit for p in match.places if p.digit is not None], buffer.dtype)
        boxed = [n for _, n in match.boxes]
        if boxed == list(shape) and _is_whole(match):
            return self._writer.reshape(tensor, shape)
        self._report(buffer.name, "insert", "")
        old = old or self._writer.empty(shape, tensor.element)
        if boxed != list(shape):
            if not _is_whole(match):
                raise NoAccess(f"a store to parts of a part of '{buffer.name}'")
            tensor = self._writer.reshape(tensor, boxed)

            def insert(into: Tensor) -> Tensor:
                return self._writer.insert(tensor, into, [low for low, _ in match.boxes], boxed, [1] * len(boxed))

        else:
            sizes = [p.digit.size if p.digit else 1 for p in match.places]

            def insert(into: Tensor) -> Tensor:
                cut = self._writer.reshape(into, match.sizes)
                made = self._writer.insert(tensor, cut, [p.offset for p in match.places], sizes, [p.step for p in match.places])
                return self._writer.reshape(made, shape)

        self._storage.inserts.setdefault(buffer.name, []).append(insert)
        return insert(old)

    def _arranged(self, node: Node, digits: Sequence[Digit], dtype: str) -> Tensor:
        """The values of a node with a dim per digit, in this order."""
        labels = tuple(dict.fromkeys(d.variable for d in digits))
        order = sorted(digits, key=lambda d: (labels.index(d.variable), -d.low))
        tensor = self._writer.reshape(self._tensor(node, labels, dtype), [d.size for d in order])
        return tensor if order == list(digits) else self._writer.transpose(tensor, [order.index(d) for d in digits])


class Accesses(_Loads, _Stores):
    """Loads and stores of one nest."""

    def within(self, loops: Loops) -> Accesses:
        """The same for other loops."""
        return Accesses(self._writer, self._storage, loops, self._tables, self._report)

    def of(self, values: dict[str, Tensor]) -> Accesses:
        """The same with nothing but these values."""
        return Accesses(self._writer, Storage({}, values), self._loops, self._tables, self._report)


def _in_order(match: Match, buffer: Buffer) -> Match:
    """A match of dims by descending stride as one of the dims in torch's order."""
    starts, at = [], 0
    for cut in match.cuts:
        starts.append(at)
        at += len(cut)
    where = {dim: k for k, dim in enumerate(stride_order(buffer))}
    boxes = tuple(match.boxes[where[d]] for d in range(len(match.cuts)))
    cuts = [match.cuts[where[d]] for d in range(len(match.cuts))]
    places = [match.places[starts[where[d]] + i] for d, cut in enumerate(cuts) for i in range(len(cut))]
    return Match(boxes, tuple(cuts), tuple(places), match.digits)


def _is_whole(match: Match) -> bool:
    """Every element of what is cut is reached."""
    return all(
        p.digit is not None and p.offset == 0 and p.step == 1 and p.digit.size == n for n, p in zip(match.sizes, match.places, strict=True)
    )
