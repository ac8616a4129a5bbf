"""Laid-out KTIR -> an entry function that calls kernels, each a barrier.

Ops of one kernel work row by row on the same rows, so that a core never needs another core's rows. A new kernel starts where the rows are
others, where an op reads all rows of a tensor that the kernel has just computed (the second operand of a matmul), or memory that it has
written. Tensors that live across kernels go through the pool in global memory.

A matmul with what follows it element by element becomes a kernel of its own where dealing out its columns too saves more than the traffic
and the barrier that this costs: its ops work stick by stick on the same sticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.analysis.attributes.plan_attributes import KERNEL, PLAN, PlannedKernel, plan_of
from ktir.analysis.axes import SECOND_OPERAND
from ktir.analysis.calls import calls_of, hand_down_memory, planned, set_type
from ktir.analysis.items import Item, Op, Store, Tensor, items_of
from ktir.analysis.memory_order import regions
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Generic, affine_map, elementwise, renumber, set_maps
from ktir.mlir import func, integer_attribute, ir, is_a, tensor
from ktir.passes.kernels.clustering import Clustering
from ktir.passes.kernels.clusters import Cluster
from ktir.passes.kernels.row_order import rows_before_lanes
from ktir.pipeline import Pass
from ktir.target import Target


@dataclass(frozen=True)
class FormKernelsPass(Pass):
    """Split each laid-out function with ops into kernels.

    Expects: the laid-out level. Guarantees: in place of each function with ops one with the same arguments plus the pool, and kernels
    with the attribute `ktir.rows`, and `ktir.columns` (sticks) where columns may be dealt out too; the row loops of every op are the axes
    that `ktir.rows` lists, in its order; values do not change. `cores` of `target` will share the work, `lx_bytes` is what
    a kernel has of the scratchpad of each; where `work_div` (or a `ktir.hint`) wants columns dealt out, every matmul without batches gets
    such a kernel.
    """

    name: ClassVar[str] = "ktir-form-kernels"
    description: ClassVar[str] = "laid-out: cluster ops into kernels of one set of rows"
    target: str = ""
    cores: int | None = None
    lx_bytes: int | None = None
    work_div: str = ""

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module that has ops."""
        require_level(module, self.name, Level.LAID_OUT, kernels=False)
        target = machine(module, self.target, self.cores, self.lx_bytes)
        for function in planned(module):
            if not calls_of(function):
                _Splitter(function, self, target).split()
        hand_down_memory(module)


class _Splitter:
    def __init__(self, source: func.FuncOp, options: FormKernelsPass, target: Target) -> None:
        self.source = source
        self.options, self.target = options, target
        _copy_what_cannot_wait(source)
        self.ops = [o.operation for o in source.regions[0].blocks[0].operations]
        self.arguments = list(source.regions[0].blocks[0].arguments)
        self.attributes = list(ir.ArrayAttr(source.attributes["arg_attrs"])) if self.arguments else []
        self.items = items_of(self.ops, target)

    def split(self) -> None:
        planned = plan_of(self.source)
        columns = {i: kernel.columns for i, kernel in enumerate(planned)}
        found = Clustering(self.items, self.target, self.options.work_div, columns)
        for item in found.not_planned:
            self.options.remark("missed", "is not in the kernel that the plan has for it, which cannot take it", _op(item).location)
        if not found.clusters:
            raise Unsupported("'func.func' op computes nothing", location_text(self.source.location))
        for item, text in found.notes:
            self.options.remark("passed", text, _op(item).location)
        cluster_of = {_op(item).results[0]: number for item, number in found.home.items() if not isinstance(item, Store)}
        crossing = [_value(tensor_) for tensor_ in found.crossing()]
        name = self.source.name.value
        index = ir.IndexType.get()
        names = {ir.StringAttr(ir.DictAttr(a)["ktir.name"]).value for a in self.attributes}
        free = (pool for pool in map("pool{}".format, count()) if pool not in names)
        pool_attributes = [
            ir.DictAttr.get(
                {
                    "ktir.name": ir.StringAttr.get(next(free)),
                    "ktir.role": ir.StringAttr.get("pool"),
                    "ktir.layout": ir.RankedTensorType(v.type).encoding,
                }
            )
            for v in crossing
        ]
        all_attributes = [*self.attributes, *pool_attributes]
        with ir.InsertionPoint(self.source), self.source.location:
            entry = func.FuncOp(name + "_entry", ([index] * len(all_attributes), []))
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(all_attributes)
        block = entry.add_entry_block([self.source.location] * len(all_attributes))
        outer = dict(zip([*self.arguments, *crossing], block.arguments, strict=True))
        stated = found.stated
        for i, cluster in enumerate(found.clusters):
            kernel = _Kernel(cluster, cluster_of, i, crossing)
            with ir.InsertionPoint(self.source):
                used = kernel.build(f"{name}_kernel{i}", planned[stated[i]] if i in stated else None)
            with ir.InsertionPoint(block), kernel.location:
                func.CallOp([], f"{name}_kernel{i}", [outer[v] for v in used])
        with ir.InsertionPoint(block), self.source.location:
            func.ReturnOp([])
        visibility = self.source.attributes["sym_visibility"] if "sym_visibility" in self.source.attributes else None
        self.source.operation.erase()
        entry.attributes["sym_name"] = ir.StringAttr.get(name)
        if visibility is not None:
            entry.attributes["sym_visibility"] = visibility


def _op(item: Item) -> ir.Operation:
    assert item.op is not None
    return item.op


def _value(tensor_: Tensor) -> ir.Value:
    assert isinstance(tensor_.name, ir.Value)
    return tensor_.name


# Before kernels are formed


def _copy_what_cannot_wait(function: func.FuncOp) -> None:
    """Make a value of what is read from memory that is overwritten before the value is used for the last time, or by that use at places
    other than those that it was read from."""
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    position = {op: i for i, op in enumerate(ops)}
    stores = [(i, regions(op)[0]) for i, op in enumerate(ops) if is_a(op, ktdp.StoreOp)]
    written = {r.argument for _, r in stores}
    waiting: list[ir.Value] = []
    for i, op in enumerate(ops):
        if is_a(op, ktdp.LoadOp):
            last = max((position[u] for u in _users(op.results[0])), default=i)
            own = [r for r in regions(op) if r.argument in written]
            if any(i < at <= last and r.overlaps(s) and (at < last or not r.same_elements(s)) for at, s in stores for r in own):
                waiting.append(op.results[0])
    for value in waiting:
        _copy(value)


def _users(value: ir.Value) -> list[ir.Operation]:
    """Ops and stores that read a value, or blocks of it."""
    users = [u.owner.operation for u in value.uses]
    return [x for u in users for x in (_users(u.results[0]) if u.name in SECOND_OPERAND else [u])]


def _copy(value: ir.Value) -> None:
    """Compute a copy of a loaded value for all that use it."""
    users = [(u.owner, u.operand_number) for u in value.uses]
    type_ = ir.RankedTensorType(value.type)
    with ir.InsertionPoint.after(value.owner.operation), value.owner.location:
        init = tensor.EmptyOp(list(type_.shape), type_.element_type, encoding=type_.encoding).result
        copied = elementwise([value], init)
    for reader, number in users:
        reader.operands[number] = copied


# One kernel


class _Kernel:
    """Builds one kernel function by cloning what its ops need."""

    def __init__(self, cluster: Cluster, cluster_of: dict[ir.Value, int], number: int, crossing: Sequence[ir.Value]) -> None:
        self.cluster, self.cluster_of, self.number, self.crossing = cluster, cluster_of, number, crossing
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.used: list[ir.Value] = []
        self.location = _op((cluster.compute or cluster.stores)[0]).location

    def build(self, name: str, planned: PlannedKernel | None) -> list[ir.Value]:
        """Make the function; returns the outer arguments (or crossing values) that it takes, in order."""
        with self.location:
            function = func.FuncOp(name, ([], []))
        self.block = function.add_entry_block()
        with ir.InsertionPoint(self.block):
            for item in self.cluster.compute:
                op, value = _op(item), _value(item.value)
                self._clone(op)
                self._order_loops(item)
                if value in self.crossing:
                    with op.location:
                        ktdp.store(self.mapping[value], self._pool_tile(value))
            for item in self.cluster.stores:
                self._clone(_op(item))
            with self.location:
                func.ReturnOp([])
        rows_before_lanes(function)
        set_type(function)
        function.attributes["ktir.rows"] = ir.DenseI64ArrayAttr.get(self.cluster.rows)
        if self.cluster.columns:
            function.attributes["ktir.columns"] = integer_attribute(self.cluster.columns)
        if planned is not None:
            function.attributes[PLAN] = planned.attribute()
        return self.used

    def _order_loops(self, item: Op) -> None:
        """Interchange the row loops of a clone so that they come in the order of the axes."""
        axes = self.cluster.loops[item.number]
        places = sorted(range(len(axes)), key=lambda i: self.cluster.order.index(axes[i]))
        if places == list(range(len(axes))):
            return
        loops = item.loops
        moved = {loops[place]: loops[i] for i, place in enumerate(places)}
        clone = self.mapping[_value(item.value)].owner
        g = Generic(clone)
        loops = len(g.iterators)
        interchange = affine_map(loops, [moved.get(loop, loop) for loop in range(loops)])
        set_maps(clone, [ir.AffineMap.get(loops, 0, [e.compose(interchange) for e in m.results]) for m in g.maps])
        renumber(g.body_ops, moved)

    def _clone(self, op: ir.Operation) -> None:
        if op.name in SECOND_OPERAND and op.operands[0].owner.name not in SECOND_OPERAND:
            operands = [self._own_load(op.operands[0])]
        else:
            for operand in op.operands:
                self._value(operand)
            operands = [self.mapping[operand] for operand in op.operands]
        clone = op.clone()
        if KERNEL in clone.attributes:
            del clone.attributes[KERNEL]
        for i, operand in enumerate(operands):
            clone.operands[i] = operand
        self.mapping.update(zip(op.results, clone.results, strict=True))

    def _value(self, value: ir.Value) -> None:
        if value in self.mapping:
            return
        if isinstance(value.owner, ir.Block):
            self.mapping[value] = self._argument(value)
        elif self._is_elsewhere(value):
            self.mapping[value] = self._pool_load(value)
        else:
            self._clone(value.owner)

    def _own_load(self, value: ir.Value) -> ir.Value:
        """A load of its own for a contraction's second operand: each core reads that as a whole, but its rows only as anything else."""
        if self._is_elsewhere(value):
            return self._pool_load(value)
        load = value.owner.operation
        for operand in load.operands:
            self._value(operand)
        clone = load.clone()
        clone.operands[0] = self.mapping[load.operands[0]]
        return clone.results[0]

    def _is_elsewhere(self, value: ir.Value) -> bool:
        return value in self.cluster_of and self.cluster_of[value] != self.number

    def _pool_load(self, value: ir.Value) -> ir.Value:
        type_ = ir.RankedTensorType(value.type)
        with value.owner.location:
            return ktdp.load(self._pool_tile(value), type_.element_type, type_.encoding)

    def _argument(self, value: ir.Value) -> ir.Value:
        self.used.append(value)
        return self.block.add_argument(ir.IndexType.get(), self.location)

    def _pool_tile(self, value: ir.Value) -> ir.Value:
        """A tensor of the pool, whole; it lies there as it is computed."""
        type_ = ir.RankedTensorType(value.type)
        layout = kt.LayoutAttr(type_.encoding)
        padded = kt.LayoutAttr.build(list(layout.size), list(layout.device), list(layout.strides), type_.element_type, pad="zero")
        sizes = list(type_.shape)
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        view = ktdp.construct_memory_view(self._argument(value), sizes, strides, type_.element_type, attributes={"ktir.layout": padded})
        return ktdp.construct_access_tile(view, [0] * len(sizes), sizes)
