"""Operands of laid-out ops: each flat tensor in the physical forms that ops read, from device memory, linear memory or a constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ktir.analysis.flat import IndexedBy, Memory, Node, dtype_of, refuse, shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import constant, elementwise, fill, index_constant, moved_by
from ktir.layout import Layout
from ktir.mlir import arith, ir, linalg, tensor
from ktir.passes.layouts.device_arguments import DeviceArguments, DeviceView, element_type, encoding, strided_view
from ktir.passes.layouts.layout_plan import LayoutPlan
from ktir.passes.layouts.row_merging import Groups, Use
from ktir.passes.layouts.stick_roles import Stick, pool_memory
from ktir.target import LANES


@dataclass
class Tensor:
    """A laid-out value and what its pad lanes hold (None = anything)."""

    value: ir.Value
    layout: Layout
    pad: float | None


_Form = tuple[ir.Value, Stick, Groups]
"""A tensor of the flat function in a physical form: dimension in the stick, rows."""


class PhysicalTensors:
    """The tensors of one function in physical forms, made where they are asked for; views are made of arguments of `block`."""

    def __init__(self, plan: LayoutPlan, block: ir.Block) -> None:
        self.plan = plan
        self.arguments = DeviceArguments(plan.buffers, block)
        self.tensors: dict[_Form, Tensor] = {}
        self.pools: dict[ir.Value, tuple[ir.Value, Memory]] = {}

    def is_packed(self, node: Node) -> bool:
        """Whether the host packs what a load reads."""
        assert node.memory is not None
        in_place = self.plan.buffers.is_in_place(node.memory.argument)
        return self.plan.buffers.is_packed(node.memory) and not in_place

    def layout(self, shape: Sequence[int], stick: Stick, groups: Groups, dtype: str) -> Layout:
        """The layout of a tensor whose rows are `groups`; there is one row at least."""
        rows = [prod(shape[d] if d >= 0 else ~d for d in group) for group in groups]
        return Layout.rows(rows or [1], 1 if stick is None else shape[stick], dtype)

    def operand(self, node: Node, i: int) -> tuple[Tensor, Use]:
        """Operand `i` of an op as it reads it."""
        use = self.plan.rows.use(node, i)
        form = (use.value, use.stick, use.groups)
        if form not in self.tensors:
            maker = self.plan.roles.makers[use.value]
            with maker.op.location:
                self.tensors[form] = self._filled(maker, use) if maker.kind == "fill" else self._loaded(maker, use)
        return self.tensors[form], use

    def _filled(self, maker: Node, use: Use) -> Tensor:
        scalar = maker.op.operands[0].owner.clone().results[0]
        layout = self.layout(shape_of(use.value), use.stick, use.groups, str(scalar.type))
        attribute = scalar.owner.attributes["value"]
        pad = ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
        if use.value in self.plan.zero_pads and layout.size[-1] % LANES and pad != 0.0:
            last = len(layout.device_size) - 1

            def body(_: list[ir.Value]) -> ir.Value:
                return masked(scalar.owner.clone().results[0], layout.size[-1], 0, last, 0.0)

            return Tensor(elementwise([], empty(layout), body), layout, 0.0)
        return Tensor(fill(scalar, empty(layout)), layout, pad)

    def _loaded(self, maker: Node, use: Use) -> Tensor:
        if maker.kind == "load":
            assert maker.memory is not None
            view = self._view(maker.memory, use.stick, use.groups, packed=self.is_packed(maker))
        else:
            base, memory = self.pools[use.value]
            view = self._strided(base, memory, use.stick, use.groups)
        layout = self.layout(shape_of(use.value), use.stick, use.groups, dtype_of(use.value))
        loaded = ktdp.load(_whole(view, layout), element_type(layout.dtype), encoding(layout, "zero"))
        return Tensor(loaded, layout, 0.0)

    def _view(self, memory: Memory, stick: Stick, groups: Groups, *, packed: bool) -> ir.Value:
        """The view of device memory that a load or store of all of `memory` goes through."""
        if not packed and memory.argument not in self.plan.in_place:
            base = self.arguments.linear(memory.argument, memory.element, memory.op.location)
            return self._strided(base, memory, stick, groups)
        return self.arguments.packed(self._device_view(memory, stick, groups), memory.op.location)

    def _device_view(self, memory: Memory, stick: Stick, groups: Groups) -> DeviceView:
        dims = [d for group in groups for d in group] + ([] if stick is None else [stick])
        sizes = tuple(memory.sizes[d] if d >= 0 else ~d for d in dims)
        strides = tuple(memory.strides[d] if d >= 0 else 0 for d in dims)
        layout = self.layout(memory.sizes, stick, groups, memory.element)
        return DeviceView(memory.argument, memory.offset, sizes, strides, layout)

    def _strided(self, base: ir.Value, memory: Memory, stick: Stick, groups: Groups) -> ir.Value:
        layout = self.layout(memory.sizes, stick, groups, memory.element)
        rows = [memory.strides[group[-1]] for group in groups] or [LANES]
        return strided_view(base, memory.offset, layout, rows, 1 if stick is None else memory.strides[stick])

    def store(self, node: Node) -> ir.Operation:
        """Build a store, or a scatter."""
        assert node.memory is not None
        source, use = self.operand(node, 0)
        if node.kind == "scatter":
            tile = self._indirect_tile(node, use.stick, source.layout)
            return ktdp.store(source.value, tile, ordered="ktir.ordered" in node.op.attributes)
        view = self._view(node.memory, use.stick, use.groups, packed=self.is_packed(node))
        return ktdp.store(source.value, _whole(view, source.layout))

    def keep(self, value: ir.Value, made: Tensor) -> ir.Operation | None:
        """Note how an op has made `value`. The store of it where other layouts of it are read."""
        self.tensors[(value, self.plan.roles.made(value), self.plan.rows.made(value))] = made
        relaid = self.plan.roles.relaid(value)
        return self._store_relaid(value, made, relaid) if relaid else None

    def _store_relaid(self, value: ir.Value, made: Tensor, read: Sequence[Stick]) -> ir.Operation:
        """Put a tensor into linear memory, from where it is loaded in other layouts."""
        stick = self.plan.roles.made(value)
        memory = pool_memory(value, stick, read)
        base = self.arguments.pool(memory.reach, memory.element, memory.op.location)
        self.pools[value] = base, memory
        view = self._strided(base, memory, stick, self.plan.rows.made(value))
        return ktdp.store(made.value, _whole(view, made.layout))

    def gather(self, node: Node) -> Tensor:
        """Build a gather."""
        assert node.memory is not None
        stick = self.plan.roles.made(node.result)
        layout = self.layout(shape_of(node.result), stick, self.plan.rows.made(node.result), dtype_of(node.result))
        loaded = ktdp.load(self._indirect_tile(node, stick, layout), element_type(layout.dtype), encoding(layout, "zero"))
        return Tensor(loaded, layout, 0.0)

    def _indirect_tile(self, node: Node, stick: Stick, layout: Layout) -> ir.Value:
        """The indirect tile in sticks: variables (sticks, rows.., lanes); its base has the dimension of variable `stick` in the stick."""
        memory, rank = node.memory, len(layout.device_size)
        assert memory is not None
        rows = [d for d in range(len(shape_of(node.tensors[0]))) if d != stick]
        variable = {d: ir.AffineExpr.get_dim(1 + i) for i, d in enumerate(rows)}
        in_stick = next((d for d, s in enumerate(node.subscripts) if stick is not None and s == stick), None)
        if in_stick is not None:  # the tile may have fewer columns than the base
            sizes = tuple(layout.size[-1] if d == in_stick else n for d, n in enumerate(memory.sizes))
            memory = replace(memory, sizes=sizes)
        dims = tuple((d,) for d in range(len(memory.sizes)) if d != in_stick)
        base = self._view(memory, in_stick, dims, packed=self.is_packed(node))
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
        if self.plan.buffers.is_packed(memory):
            strides = [prod(memory.sizes[d + 1 :]) for d in range(len(memory.sizes))]
            layout = Layout.linear(prod(memory.sizes), memory.element)
            host = DeviceView(memory.argument, memory.offset, memory.sizes, memory.strides, layout)
            base = self.arguments.indices(host, memory.op.location)
        else:
            base = self.arguments.linear(memory.argument, memory.element, memory.op.location)
            base = moved_by(base, memory.offset)
        return ktdp.construct_memory_view(base, list(memory.sizes), strides, element_type(memory.element))


def empty(layout: Layout) -> ir.Value:
    """A tensor of `layout` without contents."""
    return tensor.EmptyOp(list(layout.device_size), element_type(layout.dtype), encoding=encoding(layout)).result


def _whole(view: ir.Value, layout: Layout) -> ir.Value:
    """The tile of a whole view."""
    return ktdp.construct_access_tile(view, [0] * len(layout.device_size), list(layout.device_size))


def masked(value: ir.Value, columns: int, stick_loop: int, lane_loop: int, fill: float) -> ir.Value:
    """`value` where 64*stick + lane < columns, else `fill`, inside a body."""
    stick = linalg.IndexOp(stick_loop).result
    lane = linalg.IndexOp(lane_loop).result
    lanes = index_constant(LANES)
    position = arith.AddIOp(arith.MulIOp(stick, lanes).result, lane).result
    limit = index_constant(columns)
    live = arith.CmpIOp(arith.CmpIPredicate.ult, position, limit).result
    other = constant(value.type, fill)
    return arith.SelectOp(live, value, other).result
