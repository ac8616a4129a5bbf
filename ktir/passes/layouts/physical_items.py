"""What a flat logical function becomes under a choice of layouts, as items: the ops and stores that `ktir-assign-layouts` would make."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ktir.analysis.flat import IndexedBy, Memory, Node, dtype_of, shape_of
from ktir.analysis.items import Contraction, Item, Op, Pointwise, Reduction, Store, Tensor, Walk
from ktir.analysis.memory_order import Region
from ktir.analysis.pads import folded_pad, unsafe_divisions
from ktir.analysis.seen_keys import keys_of_rows
from ktir.cost.bodies import pairing_cycles, stick_cycles, widening_cycles
from ktir.cost.softmax import Sticks
from ktir.mlir import ir
from ktir.passes.layouts.many_keys import mark_many_keys
from ktir.passes.layouts.row_merging import NO_ROW, Groups, RowMerging, Use
from ktir.passes.layouts.stick_roles import GRANULE, Stick, StickRoles, access_bytes, pool_memory
from ktir.target import LANES, STICK_BYTES, Target, element_bytes


def zero_pads(roles: StickRoles) -> set[ir.Value]:
    """Values whose pad lanes meet the K loop of a contraction: garbage times zero may be NaN, so both sides must be zero."""
    needed = set()
    for node in roles.nodes:
        if node.contraction is not None:
            for i in (0, 1):
                stick = roles.chosen[node][i]
                if stick is not None and node.loops[i][stick] in node.contraction.reduced:
                    needed.add(node.tensors[i])
    return needed


@dataclass(eq=False)
class _Form:
    """A tensor in one physical form, and what its pad lanes hold (None = anything)."""

    tensor: Tensor
    pad: float | None
    maker: Op | None = None


class PhysicalItems:
    """The items of a function, in order, with the node that each comes from."""

    def __init__(self, roles: StickRoles, target: Target) -> None:
        self.roles, self.target = roles, target
        self.rows = RowMerging(roles)
        self.items: list[Item] = []
        self.of_node: dict[Node, Item] = {}
        self._zero_pads = zero_pads(roles)
        self._written = {n.memory.argument for n in roles.nodes if n.kind in ("store", "scatter") and n.memory is not None}
        self._forms: dict[tuple[ir.Value, Stick, Groups], _Form] = {}
        for node in roles.nodes:
            self._build(node)
        mark_many_keys(self.of_node)

    def _build(self, node: Node) -> None:
        if node.is_source:
            return
        if node.kind == "gather":
            self._forms[self._made(node.result)] = self._gathered(node)
            self._relaid(node, self._forms[self._made(node.result)])
            return
        if node.kind in ("store", "scatter"):
            self.of_node[node] = self._store(node)
            return
        build = {"pairs": self._pairs, "pointwise": self._pointwise, "reduction": self._reduction, "contraction": self._contraction}
        form = build[node.kind](node)
        assert form.maker is not None
        self.of_node[node] = form.maker
        self._forms[self._made(node.result)] = form
        self._relaid(node, form)

    # Tensors

    def _made(self, value: ir.Value) -> tuple[ir.Value, Stick, Groups]:
        return value, self.roles.made(value), self.rows.made(value)

    def _tensor(self, name: Hashable, shape: Sequence[int], stick: Stick, groups: Groups, dtype: str) -> Tensor:
        rows = [prod(shape[d] if d >= 0 else ~d for d in group) for group in groups] or [1]
        physical = (1 if stick is None else -(-shape[stick] // LANES), *rows, LANES)
        return Tensor(physical, prod(physical) * element_bytes(dtype), name)

    def _operand(self, node: Node, i: int) -> tuple[_Form, Use]:
        use = self.rows.use(node, i)
        key = (use.value, use.stick, use.groups)
        if key not in self._forms:
            self._forms[key] = self._source(use, key)
        return self._forms[key], use

    def _source(self, use: Use, key: Hashable) -> _Form:
        """A load or a fill."""
        maker = self.roles.makers[use.value]
        tensor = self._tensor(key, shape_of(use.value), use.stick, use.groups, dtype_of(use.value))
        if maker.kind == "fill":
            attribute = maker.op.operands[0].owner.attributes["value"]
            pad = ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
            return _Form(tensor, 0.0 if use.value in self._zero_pads else pad)
        tensor.loaded = True
        if maker.kind == "load":
            assert maker.memory is not None
            tensor.strides = self._strides(maker.memory, use)
            if not self._is_packed(maker.memory):
                tensor.moved, tensor.pieces, tensor.sharing = _transfer(maker.memory, use.stick)
            if maker.memory.argument in self._written:
                tensor.regions = (self._region(maker.memory, use.stick, use.groups),)
        else:
            memory = pool_memory(use.value, self.roles.made(use.value), self.roles.relaid(use.value))
            tensor.moved, tensor.pieces, tensor.sharing = _transfer(memory, use.stick)
            tensor.regions = (_strided(("pool", use.value), memory, use.stick, use.groups),)
        return _Form(tensor, 0.0)

    def _strides(self, memory: Memory, use: Use) -> tuple[int, ...]:
        """Elements from one position of each dim of a tensor to the next, as it lies in memory; none for what the host packs densely."""
        if self._is_packed(memory):
            return ()
        rows = [memory.strides[group[-1]] if group[-1] >= 0 else 0 for group in use.groups] or [LANES]
        within = (0, 0) if use.stick is None else (memory.strides[use.stick] * LANES, memory.strides[use.stick])
        return within[0], *rows, within[1]

    def _is_packed(self, memory: Memory) -> bool:
        return self.roles.buffers.is_packed(memory)

    def _region(self, memory: Memory, stick: Stick, groups: Groups) -> Region:
        argument: Hashable = memory.argument
        if self._is_packed(memory) and not self.roles.buffers.is_in_place(memory.argument):
            argument = (memory.argument, memory.offset, memory.sizes, memory.strides, stick, groups)
        return _strided(argument, memory, stick, groups)

    def _relaid(self, node: Node, form: _Form) -> None:
        value = node.result
        if relaid := self.roles.relaid(value):
            stick = self.roles.made(value)
            memory = pool_memory(value, stick, relaid)
            item = self._add_store(form, [_strided(("pool", value), memory, stick, self.rows.made(value))], [])
            item.moved, item.pieces, item.sharing = _transfer(memory, stick)

    # Items

    def _store(self, node: Node) -> Store:
        form, use = self._operand(node, 0)
        assert node.memory is not None
        if node.kind == "scatter":
            indices = self._indices(node)
            written = Region(node.memory.argument, node.memory.offset, _dims(node.memory), indirect=True)
            reads = [(-1, r) for r in indices if r.argument in self._written]
            item = self._add_store(form, [written], reads)
            item.indirect, item.index_dims = True, self._index_dims(node, use.stick)
            item.ordered = "ktir.ordered" in node.op.attributes
            return item
        item = self._add_store(form, [self._region(node.memory, use.stick, use.groups)], [])
        if not self._is_packed(node.memory):
            item.moved, item.pieces, item.sharing = _transfer(node.memory, use.stick)
        return item

    def _add_store(self, form: _Form, writes: list[Region], reads: list[tuple[int, Region]]) -> Store:
        value = form.tensor
        producers = [] if form.maker is None else [form.maker]
        reads = [*((0, r) for r in value.regions), *reads]
        item = Store(len(self.items), [value], value, producers, reads, writes)
        self.items.append(item)
        return item

    def _gathered(self, node: Node) -> _Form:
        value, stick, groups = self._made(node.result)
        assert node.memory is not None
        tensor = self._tensor((value, stick, groups), shape_of(value), stick, groups, dtype_of(node.result))
        tensor.loaded = tensor.indirect = True
        tensor.index_dims = self._index_dims(node, stick)
        base = Region(node.memory.argument, node.memory.offset, _dims(node.memory), indirect=True)
        tensor.regions = tuple(r for r in (base, *self._indices(node)) if r.argument in self._written)
        return _Form(tensor, 0.0)

    def _indices(self, node: Node) -> list[Region]:
        return [Region(s.memory.argument, s.memory.offset, _dims(s.memory)) for s in node.subscripts if isinstance(s, IndexedBy)]

    def _index_dims(self, node: Node, stick: Stick) -> tuple[int, ...]:
        rows = [d for d in range(len(shape_of(node.tensors[0]))) if d != stick]
        walked = {v for s in node.subscripts if isinstance(s, IndexedBy) for v in s.variables}
        return tuple(1 + i for i, d in enumerate(rows) if d in walked)

    def _inputs(self, node: Node) -> tuple[list[_Form], list[Walk], int]:
        """Operands, per operand the loops (s, rows.., l) that walk it, and how many row loops there are."""
        found = [self._operand(node, i) for i in range(node.reads)]
        places = self.rows.places(node)
        return [form for form, _ in found], [tuple(use.walk(places)) for _, use in found], max(1, len(places))

    def _pointwise(self, node: Node) -> _Form:
        assert node.generic is not None
        forms, walks, rows = self._inputs(node)
        shown = [f.pad if walk[-1] is not None else None for f, walk in zip(forms, walks, strict=True)]
        pad = self._folded(node, shown)
        columns = self._columns(node.result)
        masked = node.result in self._zero_pads and columns % LANES != 0 and pad != 0.0
        positional = masked or bool(unsafe_divisions(node.generic, shown, columns))
        made = self._item(Pointwise, node, forms, [*walks, tuple(range(rows + 2))], range(1, rows + 1), positional=positional)
        return _Form(made.value, 0.0 if masked else pad, made)

    def _pairs(self, node: Node) -> _Form:
        (form, *_), ((_, *others), *_), rows = self._inputs(node)
        walks: list[Walk] = [(None, *others), (None, *others), tuple(range(rows + 2))]
        made = self._item(Pointwise, node, [form, form], walks, range(1, rows + 1), positional=True)
        return _Form(made.value, None, made)

    def _work(self, node: Node) -> int:
        if node not in self.roles.work:
            g = node.generic
            self.roles.work[node] = pairing_cycles(dtype_of(node.result), self.target) if g is None else stick_cycles(g, self.target)
        return self.roles.work[node]

    def _folded(self, node: Node, shown: list[float | None]) -> float | None:
        """What the result's pad lanes hold; column and scalar operands show data there. The same for all choices of layouts."""
        key = node, tuple(shown)
        if key not in self.roles.pads:
            assert node.generic is not None
            self.roles.pads[key] = folded_pad(node.generic, shown)
        return self.roles.pads[key]

    def _reduction(self, node: Node) -> _Form:
        forms, walks, rows = self._inputs(node)
        physical = {0: rows, **{r: r - 1 for r in range(1, rows + 1)}, rows + 1: rows + 1, None: None}  # (rows.., s, l)
        walks = [tuple(physical[loop] for loop in walk) for walk in walks]
        kind = partial(Reduction, find=partial(self._seen, node))
        made = self._item(kind, node, forms, [*walks, (None, *range(rows), None)], range(rows))
        return _Form(made.value, None, made)

    def _seen(self, node: Node) -> tuple[Sticks, ...]:
        """What rows of scores see, if it is that: the same for all choices of layouts."""
        if node not in self.roles.seen:
            assert node.generic is not None
            self.roles.seen[node] = keys_of_rows(node.generic)
        return self.roles.seen[node]

    def _contraction(self, node: Node) -> _Form:
        assert node.generic is not None
        assert node.contraction is not None
        (a, a_use), (b, b_use) = (self._operand(node, i) for i in (0, 1))
        places = dict(self.rows.places(node))
        rows, taps = max(1, len(places)), node.contraction.reduced[:-1]
        n, j, k, i = 0, rows + 1, rows + len(taps) + 2, rows + len(taps) + 3
        second = (None, *(places.get(loop) for loop in b_use.loops), None)
        places.update({NO_ROW: 1, **{tap: rows + 2 + t for t, tap in enumerate(taps)}})
        first = (k, *([places[loop] for loop in a_use.loops] or [1]), i)
        others = [self._operand(node, number) for number in range(2, node.reads)]
        walks = [use.factor_walk(places, n, j) for _, use in others]
        loops = range(1, rows + 1)
        row = max((loop for loop in loops if loop in first and loop not in second), default=None)
        widening = widening_cycles(node.generic, self.target)
        batches = any(loop in first and loop in second for loop in loops)
        kind = partial(Contraction, matmul_row=row, has_batches=batches, widening=widening)
        made = self._item(kind, node, [a, b, *(form for form, _ in others)], [first, second, *walks, (n, *loops, j)], loops)
        return _Form(made.value, None, made)

    def _columns(self, value: ir.Value) -> int:
        stick = self.roles.made(value)
        return 1 if stick is None else shape_of(value)[stick]

    def _item(
        self, kind: Callable[..., Op], node: Node, forms: list[_Form], walks: list[Walk], row_loops: range, *, positional: bool = False
    ) -> Op:
        value, stick, groups = self._made(node.result)
        tensor = self._tensor((value, stick, groups), shape_of(value), stick, groups, dtype_of(value))
        tensor.made = True
        item = kind(
            len(self.items),
            [f.tensor for f in forms],
            tensor,
            [f.maker for f in forms if f.maker is not None],
            [(i, r) for i, f in enumerate(forms) for r in f.tensor.regions],
            walks=walks,
            row_loops=tuple(row_loops),
            work=self._work(node),
            positional=positional,
        )
        self.items.append(item)
        return item


def _transfer(memory: Memory, stick: Stick) -> tuple[int, int, int]:
    """Bytes that an access to linear memory moves, the pieces in which the scratchpad takes or sends them, sticks or elements, and the rows
    that share what is moved.

    Elements far from their neighbours in the stick are moved in granules, which they share with those of the next rows where these lie next
    to them.
    """
    elements, size = prod(memory.sizes), element_bytes(memory.element)
    moved = access_bytes(memory, stick)
    if stick is not None and memory.strides[stick] in (0, 1):
        sticks = -(-memory.sizes[stick] // LANES) * max(size * LANES // STICK_BYTES, 1)
        return moved, elements // memory.sizes[stick] * sticks, 1
    rows = [d for d in range(len(memory.sizes)) if d != stick and memory.sizes[d] > 1]
    step = abs(memory.strides[rows[-1]]) * size if rows else 0
    if 0 < step < GRANULE and moved == elements * GRANULE:
        sharing = min(memory.sizes[rows[-1]], GRANULE // step)
        return max(moved // sharing, elements * size), elements, sharing
    return moved, elements, 1


def _dims(memory: Memory) -> tuple[tuple[int, int], ...]:
    return tuple(zip(memory.strides, memory.sizes, strict=True))


def _strided(argument: Hashable, memory: Memory, stick: Stick, groups: Groups) -> Region:
    """What a view in rows and sticks shows, in the order of its positions."""
    dims = [
        (memory.strides[group[-1]] if group[-1] >= 0 else 0, prod(memory.sizes[d] if d >= 0 else ~d for d in group)) for group in groups
    ]
    if stick is not None:
        dims.append((memory.strides[stick], memory.sizes[stick]))
    return Region(argument, memory.offset, tuple(dims))
