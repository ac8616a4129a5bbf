"""Laid-out KTIR -> an entry function that calls kernels, each a barrier.

Ops of one kernel work row by row on the same rows, so that a core never needs another core's rows. A new kernel starts where the number of
rows changes, or where an op reads all rows of a tensor that the kernel has just computed (the second operand of a matmul). Tensors that
live across kernels go through the pool in global memory.

A matmul with what follows it element by element becomes a kernel of its own where dealing out its columns too saves more than the traffic
and the barrier that this costs: its ops work stick by stick on the same sticks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ktir.cost.estimate import kernel_start
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic
from ktir.layout import Layout
from ktir.mlir import func, ir
from ktir.passes._axes import SECOND_OPERAND, second_operand_source
from ktir.passes._columns import column_division, extents, is_local, row_division, wishes
from ktir.passes._levels import require_level, tensor_bytes
from ktir.passes.ktir_assign_layouts import memory_view
from ktir.pipeline import Pass
from ktir.target import DATASHEET


@dataclass(frozen=True)
class FormKernelsPass(Pass):
    """Split each laid-out function into kernels.

    Expects: the laid-out level, one function per program. Guarantees: an entry function with the same arguments plus the pool, and kernels
    with the attribute `ktir.rows`, and `ktir.columns` (sticks) where columns may be dealt out too; values do not change. `cores` are those
    that the work will be divided over; where `work_div` (or a `ktir.hint`) wants columns dealt out, every matmul gets such a kernel.
    """

    name: ClassVar[str] = "ktir-form-kernels"
    description: ClassVar[str] = "laid-out: cluster ops into kernels of one row count"
    cores: int = DATASHEET.cores
    work_div: str = ""

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module."""
        require_level(module, self.name, "laid-out", kernels=False)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.rows" not in op.attributes:
                _Splitter(op, self).split()


@dataclass
class _Cluster:
    """Ops of one kernel. `columns`: the sticks that every result has, where ops work on the same sticks; 0 = whole rows."""

    rows: int
    columns: int = 0
    compute: list[ir.Operation] = field(default_factory=list)
    stores: list[ir.Operation] = field(default_factory=list)


def rows_of(value: ir.Value) -> int:
    """Rows of a physical tensor [sticks, rows, lanes]."""
    return ir.RankedTensorType(value.type).shape[1]


class _Splitter:
    def __init__(self, source: func.FuncOp, options: FormKernelsPass) -> None:
        self.source = source
        self.options = options
        self.ops = [o.operation for o in source.regions[0].blocks[0].operations]
        self.arguments = list(source.regions[0].blocks[0].arguments)
        self.attributes = list(ir.ArrayAttr(source.attributes["arg_attrs"])) if self.arguments else []

    def split(self) -> None:
        clusters = self._clusters()
        if not clusters:
            raise Unsupported("'func.func' op computes nothing", location_text(self.source.location))
        cluster_of = {op.results[0]: i for i, c in enumerate(clusters) for op in c.compute}
        crossing = self._crossing(clusters, cluster_of)
        name = self.source.name.value
        index = ir.IndexType.get()
        pool_attributes = [
            ir.DictAttr.get(
                {
                    "ktir.name": ir.StringAttr.get(f"pool{i}"),
                    "ktir.role": ir.StringAttr.get("pool"),
                    "ktir.layout": ir.RankedTensorType(v.type).encoding,
                }
            )
            for i, v in enumerate(crossing)
        ]
        all_attributes = [*self.attributes, *pool_attributes]
        with ir.InsertionPoint(self.source), self.source.location:
            entry = func.FuncOp(name + "_entry", ([index] * len(all_attributes), []))
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(all_attributes)
        block = entry.add_entry_block([self.source.location] * len(all_attributes))
        outer = dict(zip([*self.arguments, *crossing], block.arguments, strict=True))
        for i, cluster in enumerate(clusters):
            kernel = _Kernel(self, cluster, cluster_of, i, crossing)
            with ir.InsertionPoint(self.source):
                used = kernel.build(f"{name}_kernel{i}")
            with ir.InsertionPoint(block), kernel.location:
                func.CallOp([], f"{name}_kernel{i}", [outer[v] for v in used])
        with ir.InsertionPoint(block), self.source.location:
            func.ReturnOp([])
        self.source.operation.erase()
        entry.attributes["sym_name"] = ir.StringAttr.get(name)

    def _clusters(self) -> list[_Cluster]:
        clusters: list[_Cluster] = []
        home: dict[ir.Value, _Cluster] = {}
        for position, op in enumerate(self.ops):
            if op.name == "linalg.generic":
                g = Generic(op)
                current = clusters[-1] if clusters else None
                if current is None or not self._joins(g, current, home):
                    current = _Cluster(rows_of(op.results[0]), self._own_columns(g, position, None, home))
                    clusters.append(current)
                elif not current.columns and (columns := self._own_columns(g, position, current, home)):
                    current = _Cluster(current.rows, columns)
                    clusters.append(current)
                current.compute.append(op)
                home[op.results[0]] = current
            elif op.name == "ktdp.store":
                value = op.operands[0]
                if value not in home:  # a copy of an input
                    clusters.append(_Cluster(rows_of(value)))
                    home[value] = clusters[-1]
                home[value].stores.append(op)
        return clusters

    @staticmethod
    def _joins(g: Generic, cluster: _Cluster, home: dict[ir.Value, _Cluster]) -> bool:
        """Whether a kernel that holds `cluster` can compute an op too."""
        if cluster.rows != rows_of(g.op.results[0]):
            return False
        across = g.is_contraction and home.get(second_operand_source(g)) is cluster
        if not cluster.columns:
            return not across
        if g.is_contraction:
            return not across and home.get(g.inputs[0]) is not cluster and extents(g)[1] == cluster.columns
        return is_local(g, cluster.columns)

    def _own_columns(self, g: Generic, position: int, current: _Cluster | None, home: dict[ir.Value, _Cluster]) -> int:
        """The sticks of columns of a kernel that starts at op number `position`; 0 if dealing out columns does not pay.

        What such a kernel computes and reads through global memory, instead of in the kernel `current`, is the price of it.
        """
        if not g.is_contraction or extents(g)[1] < 2:
            return 0
        if (parts := dict(wishes(self.options.work_div).work_div).get("n")) is not None:
            return extents(g)[1] if parts > 1 else 0
        cluster = _Cluster(rows_of(g.op.results[0]), extents(g)[1])
        inside = {**home}
        saved = 0.0
        for op in self.ops[position:]:
            if op.name != "linalg.generic":
                continue
            other = Generic(op)
            if not self._joins(other, cluster, inside):
                break
            cluster.compute.append(op)
            inside[op.results[0]] = cluster
            if other.is_contraction:
                shape = extents(other)
                rows, columns = (price(*shape, self.options.cores) for price in (row_division, column_division))
                saved += rows.cost.cycles - columns.cost.cycles
        moved = 0
        for op in cluster.compute:
            if any(u.owner.name == "linalg.generic" and inside.get(u.owner.results[0]) is not cluster for u in op.results[0].uses):
                moved += tensor_bytes(op.results[0])
        if current is not None:
            values = {v for op in cluster.compute for v in op.operands if home.get(v) is current}
            moved += sum(tensor_bytes(v) for v in values)
        price = 2 * moved / DATASHEET.dram_bytes_per_cycle + 2 * kernel_start(DATASHEET)
        if saved <= price:
            return 0
        self.options.remark(
            "passed",
            f"kernel of its own, so that its {cluster.columns} sticks of columns are dealt out: saves {saved:.0f} cycles for {price:.0f}",
            g.op.location,
        )
        return cluster.columns

    def _crossing(self, clusters: list[_Cluster], cluster_of: dict[ir.Value, int]) -> list[ir.Value]:
        crossing: list[ir.Value] = []
        for i, cluster in enumerate(clusters):
            for op in cluster.compute:
                g = Generic(op)
                inputs = [g.inputs[0], second_operand_source(g)] if g.is_contraction else g.inputs
                for value in inputs:
                    if cluster_of.get(value, i) != i and value not in crossing:
                        crossing.append(value)
        return crossing


class _Kernel:
    """Builds one kernel function by cloning what its ops need."""

    def __init__(
        self, splitter: _Splitter, cluster: _Cluster, cluster_of: dict[ir.Value, int], number: int, crossing: list[ir.Value]
    ) -> None:
        self.splitter, self.cluster, self.cluster_of, self.number, self.crossing = splitter, cluster, cluster_of, number, crossing
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.used: list[ir.Value] = []
        self.location = (cluster.compute or cluster.stores)[0].location

    def build(self, name: str) -> list[ir.Value]:
        """Make the function; returns the outer arguments (or crossing values) that it takes, in order."""
        with self.location:
            function = func.FuncOp(name, ([], []))
        self.block = function.add_entry_block()
        with ir.InsertionPoint(self.block):
            for op in self.cluster.compute:
                self._clone(op)
                if op.results[0] in self.crossing:
                    with op.location:
                        ktdp.store(self.mapping[op.results[0]], self._pool_tile(op.results[0]))
            for op in self.cluster.stores:
                self._clone(op)
            with self.location:
                func.ReturnOp([])
        types = [a.type for a in self.block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        i64 = ir.IntegerType.get_signless(64)
        function.attributes["ktir.rows"] = ir.DenseI64ArrayAttr.get([self.cluster.rows])
        if self.cluster.columns:
            function.attributes["ktir.columns"] = ir.IntegerAttr.get(i64, self.cluster.columns)
        return self.used

    def _clone(self, op: ir.Operation) -> None:
        if op.name in SECOND_OPERAND and op.operands[0].owner.name not in SECOND_OPERAND:
            operands = [self._own_load(op.operands[0])]
        else:
            for operand in op.operands:
                self._value(operand)
            operands = [self.mapping[operand] for operand in op.operands]
        clone = op.clone()
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
        encoding = kt.LayoutAttr(ir.RankedTensorType(value.type).encoding)
        layout = Layout.rows(encoding.size[0], encoding.size[1], str(encoding.dtype))
        view = memory_view(self._argument(value), layout)
        return ktdp.construct_access_tile(view, [0, 0, 0], list(layout.device_size))
