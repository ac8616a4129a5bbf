"""Logical -> laid-out KTIR: every tensor gets its stick layout, and padding is made harmless.

At most one dimension of a tensor lies *in the stick*, the others are *rows*: tensor<sticks x row0 x row1 x .. x 64>. What lies in the
stick is chosen for all ops together (`_stick_roles`); where an op makes a tensor in another layout than an op reads, it goes through linear
memory. Row dimensions that every op walks together are one (`_row_merging`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from ktir.dialects import ktdp
from ktir.dialects.structured import IDENTITY, Generic, affine_map, clone_ops, generic, number
from ktir.layout import Digit, Layout
from ktir.mlir import arith, func, ir, linalg, operations, tensor
from ktir.passes._buffers import Buffers
from ktir.passes._caller_arguments import Callers
from ktir.passes._calls import calls_of
from ktir.passes._device_arguments import DeviceArgument, DeviceArguments, DeviceView, element_type, encoding, memory_view, strided_view
from ktir.passes._flat import IndexedBy, Memory, Node, read, refuse, shape_of
from ktir.passes._host_tensors import note_host_tensors
from ktir.passes._levels import require_level, set_level
from ktir.passes._pads import folded_pad, unsafe_divisions
from ktir.passes._physical_items import zero_pads
from ktir.passes._plan_attributes import PLAN, STICK, copy_kernel
from ktir.passes._row_merging import Groups, RowMerging, Use
from ktir.passes._stick_roles import Stick, StickRoles, pool_memory, stick_text
from ktir.pipeline import Pass
from ktir.target import LANES

__all__ = ["AssignLayoutsPass", "memory_view"]


@dataclass(frozen=True)
class AssignLayoutsPass(Pass):
    """Give every tensor a stick layout and mask padding where it would be read.

    Expects: the logical level without shape ops. Guarantees: the laid-out level. Remarks name what goes through memory to get another
    layout, with its bytes, and the weights that could be arranged once instead of at each launch.
    """

    name: ClassVar[str] = "ktir-assign-layouts"
    description: ClassVar[str] = "logical -> laid-out: stick layouts, masks against padding"
    tolerance: ClassVar[float] = 2.0**-10  # a reduction may add its sticks in another order than along the host dimension

    def allowed(self, module: ir.Module) -> float:
        """The tolerance where floats are summed; else nothing."""
        return self.tolerance if any(op.name == "linalg.generic" and Generic(op).sums_floats for op in operations(module)) else 0.0

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module."""
        require_level(module, self.name, "logical")
        note_host_tensors(module)
        callers = Callers(module)
        for name, function in callers.functions.items():
            callers.given[name] = callers.rewritten(function) if calls_of(function) else _Rewriter(self, function).rewrite()
        set_level(module, "laid-out")


@dataclass
class _Tensor:
    """A laid-out value and what its pad lanes hold (None = anything)."""

    value: ir.Value
    layout: Layout
    pad: float | None


_Form = tuple[ir.Value, Stick, Groups]
"""A tensor of the flat function in a physical form: dimension in the stick, rows."""


class _Rewriter:
    """Rebuilds one function on physical shapes."""

    def __init__(self, options: AssignLayoutsPass, source: func.FuncOp) -> None:
        if "grid" in source.attributes:
            raise refuse(source.operation, "expects a logical function without grid")
        self.options = options
        self.source = source
        self.nodes = read(source)
        self.buffers = Buffers(source, self.nodes)
        self.roles = StickRoles(source, self.nodes, self.buffers)
        self.rows = RowMerging(self.roles)
        self.tensors: dict[_Form, _Tensor] = {}
        self.pools: dict[ir.Value, tuple[ir.Value, Memory]] = {}
        self.zero_pads = zero_pads(self.roles)
        self.in_place = {a for a in range(len(self.buffers.attributes)) if self.buffers.is_in_place(a) and self._has_one_form(a)}

    def rewrite(self) -> list[DeviceArgument]:
        """Build the laid-out function in place of the source; returns its arguments."""
        source = self.source
        visibility = source.attributes["sym_visibility"] if "sym_visibility" in source.attributes else None
        with ir.InsertionPoint(source), source.location:
            function = func.FuncOp(source.name.value, ([], []))
        function.attributes["sym_visibility"] = ir.StringAttr.get("public")
        block = function.add_entry_block()
        self.arguments = DeviceArguments(self.buffers, block)
        with ir.InsertionPoint(block):
            for node in self.nodes:
                with node.op.location:
                    self._build(node)
            with source.regions[0].blocks[0].operations[-1].operation.location:
                func.ReturnOp([])
        types = [a.type for a in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([a.attribute for a in self.arguments.given])
        if PLAN in source.attributes:
            function.attributes[PLAN] = source.attributes[PLAN]
        self._remark()
        self._remark_wide_matmuls()
        source.operation.erase()
        del function.attributes["sym_visibility"]
        if visibility is not None:
            function.attributes["sym_visibility"] = visibility
        return self.arguments.given

    def _has_one_form(self, argument: int) -> bool:
        """Whether all accesses of a buffer that is read and written see it in one physical form, so that the host can pack it."""
        forms = set()
        for node in self.nodes:
            if node.memory is None or node.memory.argument != argument:
                continue
            users = [(node, 0)] if node.kind == "store" else self.roles.users[node.result]
            forms |= {(use.stick, use.groups) for use in (self.rows.use(*user) for user in users)}
        rows = [d for group in (next(iter(forms))[1] if len(forms) == 1 else ()) for d in group]
        return len(forms) == 1 and rows == sorted(rows) and min(rows, default=0) >= 0

    def _build(self, node: Node) -> None:
        if node.kind == "load":
            if not self._is_packed(node):
                for user in self.roles.users[node.result]:
                    self._operand(*user)  # here, since what lies there may change before it is used
        elif node.kind in ("store", "scatter"):
            self._store(node)
            copy_kernel(node.op, _last_op())
        elif node.kind != "fill":
            build = {"gather": self._gather, "pointwise": self._pointwise, "reduction": self._reduction, "contraction": self._contraction}
            made = build[node.kind](node)
            value = node.result
            self.tensors[(value, self.roles.made(value), self.rows.made(value))] = made
            if node.kind != "gather":
                copy_kernel(node.op, made.value.owner)
            if relaid := self.roles.relaid(value):
                self._store_relaid(value, made, relaid)
                copy_kernel(node.op, _last_op())

    def _is_packed(self, node: Node) -> bool:
        assert node.memory is not None
        in_place = self.buffers.is_in_place(node.memory.argument)
        return self.buffers.is_packed(node.memory) and not in_place

    # Physical forms

    def _layout(self, shape: Sequence[int], stick: Stick, groups: Groups, dtype: str) -> Layout:
        """The layout of a tensor whose rows are `groups`; there is one row at least."""
        rows = [prod(shape[d] if d >= 0 else ~d for d in group) for group in groups]
        return Layout.rows(rows or [1], 1 if stick is None else shape[stick], dtype)

    def _operand(self, node: Node, i: int) -> tuple[_Tensor, Use]:
        """Operand `i` of an op as it reads it."""
        use = self.rows.use(node, i)
        form = (use.value, use.stick, use.groups)
        if form not in self.tensors:
            maker = self.roles.makers[use.value]
            with maker.op.location:
                self.tensors[form] = self._filled(maker, use) if maker.kind == "fill" else self._loaded(maker, use)
        return self.tensors[form], use

    def _filled(self, maker: Node, use: Use) -> _Tensor:
        scalar = maker.op.operands[0].owner.clone().results[0]
        layout = self._layout(shape_of(use.value), use.stick, use.groups, str(scalar.type))
        attribute = scalar.owner.attributes["value"]
        pad = ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
        empty = _empty(layout)
        if use.value in self.zero_pads and layout.size[-1] % LANES and pad != 0.0:
            rank = len(layout.device_size)

            def body(_: list[ir.Value]) -> ir.Value:
                return _masked(scalar.owner.clone().results[0], layout.size[-1], 0, rank - 1, 0.0)

            value = generic([], empty, [affine_map(rank, list(range(rank)))], ["parallel"] * rank, body, loc=maker.op.location)
            return _Tensor(value, layout, 0.0)
        return _Tensor(linalg.fill(scalar, outs=[empty]), layout, pad)

    def _loaded(self, maker: Node, use: Use) -> _Tensor:
        if maker.kind == "load":
            assert maker.memory is not None
            view = self._view(maker.memory, use.stick, use.groups, packed=self._is_packed(maker))
        else:
            base, memory = self.pools[use.value]
            view = self._strided(base, memory, use.stick, use.groups)
        layout = self._layout(shape_of(use.value), use.stick, use.groups, _dtype_of_view(view))
        loaded = ktdp.load(_whole(view, layout), element_type(layout.dtype), encoding(layout, "zero"))
        return _Tensor(loaded, layout, 0.0)

    # Memory

    def _view(self, memory: Memory, stick: Stick, groups: Groups, *, packed: bool) -> ir.Value:
        """The view of device memory that a load or store of all of `memory` goes through."""
        if not packed and memory.argument not in self.in_place:
            base = self.arguments.linear(memory.argument, memory.element, memory.op.location)
            return self._strided(base, memory, stick, groups)
        return self.arguments.packed(self._device_view(memory, stick, groups), memory.op.location)

    def _device_view(self, memory: Memory, stick: Stick, groups: Groups) -> DeviceView:
        dims = [d for group in groups for d in group] + ([] if stick is None else [stick])
        sizes = tuple(memory.sizes[d] if d >= 0 else ~d for d in dims)
        strides = tuple(memory.strides[d] if d >= 0 else 0 for d in dims)
        layout = self._layout(memory.sizes, stick, groups, memory.element)
        return DeviceView(memory.argument, memory.offset, sizes, strides, layout)

    def _strided(self, base: ir.Value, memory: Memory, stick: Stick, groups: Groups) -> ir.Value:
        layout = self._layout(memory.sizes, stick, groups, memory.element)
        rows = [memory.strides[group[-1]] for group in groups] or [LANES]
        return strided_view(base, memory.offset, layout, rows, 1 if stick is None else memory.strides[stick])

    def _store(self, node: Node) -> None:
        assert node.memory is not None
        source, use = self._operand(node, 0)
        if node.kind == "scatter":
            ktdp.store(source.value, self._indirect_tile(node, use.stick, source.layout))
            if "ktir.ordered" in node.op.attributes:
                _last_op().attributes["ktir.ordered"] = node.op.attributes["ktir.ordered"]
            return
        view = self._view(node.memory, use.stick, use.groups, packed=self._is_packed(node))
        ktdp.store(source.value, _whole(view, source.layout))

    def _store_relaid(self, value: ir.Value, made: _Tensor, read: Sequence[Stick]) -> None:
        """Put a tensor into linear memory, from where it is loaded in other layouts."""
        stick = self.roles.made(value)
        memory = pool_memory(value, stick, read)
        base = self.arguments.pool(memory.reach, memory.element, memory.op.location)
        self.pools[value] = base, memory
        view = self._strided(base, memory, stick, self.rows.made(value))
        ktdp.store(made.value, _whole(view, made.layout))

    def _gather(self, node: Node) -> _Tensor:
        assert node.memory is not None
        stick = self.roles.made(node.result)
        layout = self._layout(shape_of(node.result), stick, self.rows.made(node.result), node.memory.element)
        loaded = ktdp.load(self._indirect_tile(node, stick, layout), element_type(layout.dtype), encoding(layout, "zero"))
        return _Tensor(loaded, layout, 0.0)

    def _indirect_tile(self, node: Node, stick: Stick, layout: Layout) -> ir.Value:
        """The indirect tile in sticks: variables (sticks, rows.., lanes); its base has the dimension of variable `stick` in the stick."""
        memory, rank = node.memory, len(layout.device_size)
        assert memory is not None
        rows = [d for d in range(len(shape_of(node.tensors[0]))) if d != stick]
        variable = {d: ir.AffineExpr.get_dim(1 + i) for i, d in enumerate(rows)}
        in_stick = next((d for d, s in enumerate(node.subscripts) if stick is not None and s == stick), None)
        if in_stick is not None:  # the tile may have fewer columns than the base
            sizes = tuple(layout.size[-1] if d == in_stick else n for d, n in enumerate(memory.sizes))
            memory = Memory(memory.argument, memory.offset, sizes, memory.strides, memory.element, memory.op)
        dims = tuple((d,) for d in range(len(memory.sizes)) if d != in_stick)
        base = self._view(memory, in_stick, dims, packed=self._is_packed(node))
        subscripts: list[ir.AffineExpr | tuple[ir.Value, Sequence[ir.AffineExpr]]] = [ir.AffineExpr.get_dim(0)]
        for (d,) in dims:
            s = node.subscripts[d]
            if isinstance(s, IndexedBy):
                subscripts.append((self._index_view(s.memory), [variable[v] for v in s.variables]))
            else:
                subscripts.append(variable[s])
        subscripts.append(ir.AffineExpr.get_dim(rank - 1))
        return ktdp.construct_indirect_access_tile(base, subscripts, list(layout.device_size))

    def _index_view(self, memory: Memory) -> ir.Value:
        """The view of linear memory that indices are read from."""
        if memory.element != "i32":
            raise refuse(memory.op, f"is read as indices of type {memory.element}, which is not supported; i32 is")
        strides = list(memory.strides)
        if self.buffers.is_packed(memory):
            strides = [prod(memory.sizes[d + 1 :]) for d in range(len(memory.sizes))]
            layout = Layout.linear(prod(memory.sizes), memory.element)
            host = DeviceView(memory.argument, memory.offset, memory.sizes, memory.strides, layout)
            base = self.arguments.indices(host, memory.op.location)
        else:
            base = self.arguments.linear(memory.argument, memory.element, memory.op.location)
            if memory.offset:
                base = arith.AddIOp(base, arith.ConstantOp(ir.IndexType.get(), memory.offset).result).result
        return ktdp.construct_memory_view(base, list(memory.sizes), strides, element_type(memory.element))

    # Ops

    def _inputs(self, node: Node) -> tuple[list[_Tensor], list[list[int | None]], int]:
        """Physical operands, per operand its map over the loops (s, rows.., l), and how many row loops there are."""
        places = {group[0]: 1 + i for i, group in enumerate(self.rows.of_op(node))}
        rows = max(1, len(places))
        tensors, maps = [], []
        for i in range(node.reads):
            operand, use = self._operand(node, i)
            tensors.append(operand)
            inside = use.stick is not None
            own: list[int | None] = [places[loop] for loop in use.loops] or [None if places else 1]
            maps.append([0 if inside else None, *own, rows + 1 if inside else None])
        return tensors, maps, rows

    def _result_layout(self, node: Node) -> Layout:
        value = node.result
        dtype = str(ir.RankedTensorType(value.type).element_type)
        return self._layout(shape_of(value), self.roles.made(value), self.rows.made(value), dtype)

    def _pointwise(self, node: Node) -> _Tensor:
        g = node.generic
        assert g is not None
        inputs, maps, rows = self._inputs(node)
        layout = self._result_layout(node)
        pad = folded_pad(g, _shown_pads(inputs, maps))
        mask = node.result in self.zero_pads and layout.size[-1] % LANES != 0 and not _is_zero(pad)
        divisions = unsafe_divisions(g, _shown_pads(inputs, maps), layout.size[-1])

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            _clone_with_divisors(g.body_ops, mapping, divisions, lambda v: _masked(v, layout.size[-1], 0, rows + 1, 1.0))
            value = _yielded(g, mapping)
            return _masked(value, layout.size[-1], 0, rows + 1, 0.0) if mask else value

        loops = rows + 2
        value = generic(
            [t.value for t in inputs],
            _empty(layout),
            [*(affine_map(loops, m) for m in maps), affine_map(loops, list(range(loops)))],
            ["parallel"] * loops,
            body,
            loc=g.op.location,
        )
        return _Tensor(value, layout, 0.0 if mask else pad)

    def _reduction(self, node: Node) -> _Tensor:
        g = node.generic
        assert g is not None
        inputs, maps, rows = self._inputs(node)
        columns = node.extent(g.iterators.index("reduction"))
        layout = self._result_layout(node)
        combiner = g.combiner
        assert combiner is not None
        identity = IDENTITY[combiner]
        pad = folded_pad(g, _shown_pads(inputs, maps), g.mapped)
        mask = columns % LANES != 0 and (pad is None or np.float64(pad).tobytes() != np.float64(identity).tobytes())
        divisions = unsafe_divisions(g, _shown_pads(inputs, maps), columns)
        physical = {0: rows, **{r: r - 1 for r in range(1, rows + 1)}, rows + 1: rows + 1, None: None}  # reduced loops last: (rows.., s, l)

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            *mapped, combine = g.body_ops
            _clone_with_divisors(mapped, mapping, divisions, lambda v: _masked(v, columns, rows, rows + 1, 1.0))
            if mask:
                value = mapping.get(g.mapped, g.mapped)
                mapping[g.mapped] = _masked(value, columns, rows, rows + 1, identity)
            clone_ops([combine], mapping)
            return mapping[g.yielded]

        loops = rows + 2
        element = element_type(layout.dtype)
        scalar = arith.ConstantOp(element, number(element, identity)).result
        init = linalg.fill(scalar, outs=[_empty(layout)])
        value = generic(
            [t.value for t in inputs],
            init,
            [*(affine_map(loops, [physical[i] for i in m]) for m in maps), affine_map(loops, [None, *range(rows), None])],
            ["parallel"] * rows + ["reduction"] * 2,
            body,
            loc=g.op.location,
        )
        return _Tensor(value, layout, None)

    def _contraction(self, node: Node) -> _Tensor:
        g, loops_of = node.generic, node.contraction
        assert g is not None
        assert loops_of is not None
        (a, a_use), (b, b_use) = (self._operand(node, i) for i in (0, 1))
        layout = self._result_layout(node)
        transposed = b_use.stick is not None and node.loops[1][b_use.stick] in loops_of.reduced
        groups = self.rows.of_op(node)
        rows = max(1, len(groups))
        # loops (n, rows.., j, k, i): output sticks, rows, output lanes; K in sticks and lanes, reduced
        places = {group[0]: 1 + i for i, group in enumerate(groups)}
        n, j, k, i = 0, rows + 1, rows + 2, rows + 3
        inner = (n, j) if transposed else (k, i)
        split = next(1 + p for p, loop in enumerate(b_use.loops) if loop not in places)
        b_block = self._blocks(b, split, (layout if transposed else a.layout).device_size[0])
        b_rows = [at for loop in b_use.loops for at in ((places[loop],) if loop in places else inner)]
        maps = [
            [k, *([places[loop] for loop in a_use.loops] or [1]), i],
            [k, *b_rows, i] if transposed else [n, *b_rows, j],
            list(range(rows + 2)),
        ]
        scalar = arith.ConstantOp(ir.F32Type.get(), ir.FloatAttr.get(ir.F32Type.get(), 0.0)).result
        empty = tensor.EmptyOp(list(layout.device_size), ir.F32Type.get(), encoding=encoding(layout)).result

        def body(arguments: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(g.body.arguments, arguments, strict=True))
            clone_ops(g.body_ops, mapping)
            return mapping[g.yielded]

        iterators = ["parallel"] * (rows + 2) + ["reduction"] * 2
        affine = [affine_map(rows + 4, m) for m in maps]
        value = generic([a.value, b_block], linalg.fill(scalar, outs=[empty]), affine, iterators, body, loc=g.op.location)
        return _Tensor(value, layout, None)

    def _blocks(self, b: _Tensor, dim: int, blocks: int) -> ir.Value:
        """Pad rows `dim` of a second operand to whole blocks of 64 with zeros and split them: [s, .., blocks, 64, .., 64]."""
        shape, value, size = list(b.layout.device_size), b.value, b.layout.size
        padded, digits, row = blocks * LANES, list(b.layout.digits), b.layout.digits[dim].dim
        if padded != shape[dim]:
            layout = Layout(size, (*digits[:dim], Digit(row, 1, padded), *digits[dim + 1 :]), b.layout.dtype)
            result = ir.RankedTensorType.get(list(layout.device_size), element_type(layout.dtype), encoding(layout))
            none = [0] * len(shape)
            high = [padded - shape[dim] if d == dim else 0 for d in range(len(shape))]
            pad = tensor.PadOp(result, value, [], [], none, high)
            block = ir.Block.create_at_start(
                pad.operation.regions[0], [ir.IndexType.get()] * len(shape), [ir.Location.current] * len(shape)
            )
            with ir.InsertionPoint(block):
                zero = arith.ConstantOp(element_type(layout.dtype), ir.FloatAttr.get(element_type(layout.dtype), 0.0)).result
                tensor.YieldOp(zero)
            value = pad.result
        layout = Layout(size, (*digits[:dim], Digit(row, LANES, blocks), Digit(row, 1, LANES), *digits[dim + 1 :]), b.layout.dtype)
        split = [[d] if d < dim else [d, d + 1] if d == dim else [d + 1] for d in range(len(shape))]
        result = ir.RankedTensorType.get(list(layout.device_size), element_type(layout.dtype), encoding(layout))
        return tensor.ExpandShapeOp(result, value, split, [], list(layout.device_size)).result

    # Remarks

    def _remark_wide_matmuls(self) -> None:
        for view in self.source.regions[0].blocks[0].operations:
            op = view.operation
            if op.name == "linalg.generic" and Generic(op).is_wide_matmul:
                text = "matmul of f32 operands runs on the vector unit, a product and a sum per element; the array takes f16"
                self.options.remark("missed", text, op.location)

    def _remark(self) -> None:
        roles = self.roles
        for node in self.nodes:
            if node.kind == "load" and self._is_packed(node):
                self._remark_packed(node)
            if node.kind in ("load", "fill", "store", "scatter") or not (relaid := roles.relaid(node.result)):
                continue
            moved = roles.relayout_bytes(node.result, roles.made(node.result), relaid)
            text = f"tensor<{'x'.join(map(str, shape_of(node.result)))}> is made with {stick_text(roles.made(node.result))} and read with "
            text += f"{' and '.join(stick_text(s) for s in relaid)}: {moved} bytes through memory"
            other = None if STICK in node.op.attributes else roles.runner_up(node)  # a plan has compared them
            if other is not None:
                text += f"; with {stick_text(other[0][-1])} at this op the program moves {other[1]} bytes, so {roles.cost}"
            self.options.remark("passed", text, node.op.location)
        exact = "no choice moves fewer" if roles.cost == roles.bound else f"no choice moves fewer than {roles.bound}"
        if roles.cost:
            self.options.remark("analysis", f"relayouts and linear memory: {roles.cost} bytes; {exact}", self.source.location)

    def _remark_packed(self, node: Node) -> None:
        memory = node.memory
        assert memory is not None
        for user in self.roles.users[node.result]:
            stick = self.roles.chosen[user[0]][user[1]]
            if stick is not None and memory.strides[stick] != 1 and 1 in memory.strides and memory.sizes[stick] > 1:
                name = self.buffers.name(memory.argument)
                self.options.remark(
                    "missed", f"'{name}' is transposed by the host at each launch; it can be arranged before", node.op.location
                )
                return


def _dtype_of_view(view: ir.Value) -> str:
    return str(ir.MemRefType(view.type).element_type)


def _empty(layout: Layout) -> ir.Value:
    return tensor.EmptyOp(list(layout.device_size), element_type(layout.dtype), encoding=encoding(layout)).result


def _whole(view: ir.Value, layout: Layout) -> ir.Value:
    """The tile of a whole view."""
    return ktdp.construct_access_tile(view, [0] * len(layout.device_size), list(layout.device_size))


def _last_op() -> ir.Operation:
    """The op made last."""
    return list(ir.InsertionPoint.current.block.operations)[-1].operation


def _yielded(g: Generic, mapping: dict[ir.Value, ir.Value]) -> ir.Value:
    """What the body's copy yields; a constant from outside is copied too."""
    owner = g.yielded.owner
    if g.yielded not in mapping and not isinstance(owner, ir.Block):
        mapping[g.yielded] = owner.clone().results[0]
    return mapping[g.yielded]


def _shown_pads(inputs: list[_Tensor], maps: list[list[int | None]]) -> list[float | None]:
    """What operands show in pad lanes; column and scalar operands show data."""
    return [t.pad if m[-1] is not None else None for t, m in zip(inputs, maps, strict=True)]


def _clone_with_divisors(
    ops: Sequence[ir.Operation],
    mapping: dict[ir.Value, ir.Value],
    divisions: Collection[ir.Operation],
    masked: Callable[[ir.Value], ir.Value],
) -> None:
    """Clone the ops of a body; the divisors of `divisions` get a number in pad lanes by which anything can be divided."""
    for op in ops:
        clone_ops([op], mapping)
        if op in divisions:
            clone = mapping[op.results[0]].owner.operation
            with ir.InsertionPoint(clone), clone.location:
                clone.operands[1] = masked(clone.operands[1])


def _is_zero(pad: float | None) -> bool:
    return pad == 0.0


def _masked(value: ir.Value, columns: int, stick_loop: int, lane_loop: int, fill: float) -> ir.Value:
    """`value` where 64*stick + lane < columns, else `fill`, inside a body."""
    index = ir.IndexType.get()
    stick = linalg.IndexOp(stick_loop).result
    lane = linalg.IndexOp(lane_loop).result
    lanes = arith.ConstantOp(index, LANES).result
    position = arith.AddIOp(arith.MulIOp(stick, lanes).result, lane).result
    limit = arith.ConstantOp(index, columns).result
    live = arith.CmpIOp(arith.CmpIPredicate.ult, position, limit).result
    other = arith.ConstantOp(value.type, number(value.type, fill)).result
    return arith.SelectOp(live, value, other).result
