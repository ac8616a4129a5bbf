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

from ktir.cost.estimate import kernel_start
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import affine_map, generic
from ktir.mlir import func, ir, tensor
from ktir.passes._axes import SECOND_OPERAND
from ktir.passes._clusters import Cluster, Fit, Item, items_of, row_extents
from ktir.passes._columns import column_division, extents, row_division, wishes
from ktir.passes._levels import require_level, tensor_bytes
from ktir.passes._memory_order import regions
from ktir.pipeline import Pass
from ktir.target import DATASHEET


@dataclass(frozen=True)
class FormKernelsPass(Pass):
    """Split each laid-out function into kernels.

    Expects: the laid-out level, one function per program. Guarantees: an entry function with the same arguments plus the pool, and kernels
    with the attribute `ktir.rows`, and `ktir.columns` (sticks) where columns may be dealt out too; the row loops of every op are the axes
    that `ktir.rows` lists, in its order; values do not change. `cores` are those that the work will be divided over; where `work_div` (or a
    `ktir.hint`) wants columns dealt out, every matmul without batches gets such a kernel.
    """

    name: ClassVar[str] = "ktir-form-kernels"
    description: ClassVar[str] = "laid-out: cluster ops into kernels of one set of rows"
    cores: int = DATASHEET.cores
    work_div: str = ""

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module."""
        require_level(module, self.name, "laid-out", kernels=False)
        for op in list(module.body.operations):
            if isinstance(op, func.FuncOp) and "ktir.rows" not in op.attributes:
                _Splitter(op, self).split()


class _Splitter:
    def __init__(self, source: func.FuncOp, options: FormKernelsPass) -> None:
        self.source = source
        self.options = options
        _copy_what_cannot_wait(source)
        self.ops = [o.operation for o in source.regions[0].blocks[0].operations]
        self.arguments = list(source.regions[0].blocks[0].arguments)
        self.attributes = list(ir.ArrayAttr(source.attributes["arg_attrs"])) if self.arguments else []
        self.items = items_of(self.ops)
        self.clusters: list[Cluster] = []
        self.home: dict[Item, int] = {}
        """The cluster of each item, by number."""

    def split(self) -> None:
        for item in self.items:
            self._place(item)
        if not self.clusters:
            raise Unsupported("'func.func' op computes nothing", location_text(self.source.location))
        cluster_of = {item.value: number for item, number in self.home.items() if item.generic is not None}
        crossing = self._crossing(cluster_of)
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
        for i, cluster in enumerate(self.clusters):
            kernel = _Kernel(cluster, cluster_of, i, crossing)
            with ir.InsertionPoint(self.source):
                used = kernel.build(f"{name}_kernel{i}")
            with ir.InsertionPoint(block), kernel.location:
                func.CallOp([], f"{name}_kernel{i}", [outer[v] for v in used])
        with ir.InsertionPoint(block), self.source.location:
            func.ReturnOp([])
        self.source.operation.erase()
        entry.attributes["sym_name"] = ir.StringAttr.get(name)

    def _place(self, item: Item) -> None:
        """Put an item into a kernel, a new one if none can take it."""
        first = self._first_legal(item)
        fits = [(i, fit) for i in range(first, len(self.clusters)) if (fit := self._fit(item, i)) is not None]
        found = min(fits, key=lambda f: self._distance(item, f[0]), default=None)
        if item.generic is not None:
            current = None if found is None else self.clusters[found[0]]
            if (current is None or not current.columns) and (columns := self._own_columns(item, current)):
                found = self._new(item, columns)
        number, fit = found or self._new(item, 0)
        self.clusters[number].add(item, fit)
        self.home[item] = number

    def _new(self, item: Item, columns: int) -> tuple[int, Fit]:
        """An empty cluster for an item."""
        cluster = _empty(item, columns)
        fit = cluster.fit(item)
        assert fit is not None
        self.clusters.append(cluster)
        return len(self.clusters) - 1, fit

    def _first_legal(self, item: Item) -> int:
        """The first cluster that runs late enough: after what the item reads and what must not be touched again after it."""
        first = max((self.home[p] for p in item.producers), default=0)
        for earlier in self._conflicting(item):
            first = max(first, self.home[earlier] + (not _may_share(earlier, item)))
        return first

    def _conflicting(self, item: Item) -> list[Item]:
        """Earlier items that touch the same memory, one of the two writing."""
        own = [r for _, r in item.reads]
        found = []
        for earlier in self.items[: item.number]:
            theirs = [r for _, r in earlier.reads]
            pairs = [(a, b) for a in item.writes for b in (*theirs, *earlier.writes)] + [(a, b) for a in own for b in earlier.writes]
            if any(a.overlaps(b) for a, b in pairs):
                found.append(earlier)
        return found

    def _fit(self, item: Item, number: int) -> Fit | None:
        """How an item can join a cluster: values, scratchpad, and memory that an op of the cluster touches as well."""
        cluster = self.clusters[number]
        fit = cluster.fit(item)
        if fit is None or not item.writes:
            return fit
        for earlier in self._conflicting(item):
            if self.home[earlier] == number and not _same_rows(cluster, earlier, item):
                return None
        return fit

    def _distance(self, item: Item, number: int) -> tuple[bool, int, int, int]:
        """Order of preference: where columns are dealt out, for a matmul; little that crosses kernels; much that is read by both; the
        latest."""
        cluster = self.clusters[number]
        whole = item.generic is not None and item.generic.is_contraction and not cluster.columns
        crosses = sum(tensor_bytes(p.value) for p in item.producers if self.home[p] != number)
        shared = sum(tensor_bytes(v) for v in item.sources if v in cluster.loaded)
        return whole, crosses, -shared, -number

    def _own_columns(self, item: Item, current: Cluster | None) -> int:
        """The sticks of columns of a kernel that starts with an item; 0 if dealing out columns does not pay.

        What such a kernel computes and reads through global memory, instead of in the kernel `current`, is the price of it.
        """
        g = item.generic
        if g is None or g.contraction is None or g.contraction.batch or extents(g)[1] < 2:
            return 0
        if (parts := dict(wishes(self.options.work_div).work_div).get("n")) is not None:
            return extents(g)[1] if parts > 1 else 0
        cluster = _empty(item, extents(g)[1])
        saved = 0.0
        for other in self.items[item.number :]:
            if other.generic is None:
                continue
            fit = cluster.fit(other)
            if fit is None:
                break
            cluster.add(other, fit)
            if other.generic.is_contraction:
                shape = extents(other.generic)
                rows, columns = (price(*shape, self.options.cores) for price in (row_division, column_division))
                saved += rows.cost.cycles - columns.cost.cycles
        moved = 0
        for other in cluster.items:
            readers = (u.owner for u in other.value.uses if u.owner.name == "linalg.generic")
            if any(r.results[0] not in cluster.axes for r in readers):
                moved += tensor_bytes(other.value)
        if current is not None:
            moved += sum(tensor_bytes(v) for v in {v for other in cluster.items for v in other.sources if v in current.axes})
        price = 2 * moved / DATASHEET.dram_bytes_per_cycle + 2 * kernel_start(DATASHEET)
        if saved <= price:
            return 0
        self.options.remark(
            "passed",
            f"kernel of its own, so that its {cluster.columns} sticks of columns are dealt out: saves {saved:.0f} cycles for {price:.0f}",
            g.op.location,
        )
        return cluster.columns

    def _crossing(self, cluster_of: dict[ir.Value, int]) -> list[ir.Value]:
        crossing: list[ir.Value] = []
        for i, cluster in enumerate(self.clusters):
            for item in (*cluster.compute, *cluster.stores):
                crossing += [v for v in item.sources if cluster_of.get(v, i) != i and v not in crossing]
        return crossing


def _empty(item: Item, columns: int) -> Cluster:
    if item.generic is None:
        return Cluster(row_extents(item.value))
    return Cluster([item.extent(loop) for loop in item.loops], columns)


def _may_share(earlier: Item, item: Item) -> bool:
    """Whether an item may overwrite in one kernel what an earlier one touched: the same elements, and what was read has been used for what
    is written, or both write."""
    if not item.writes or any(not item.writes[0].same_elements(r) for r in earlier.writes):
        return False
    reads = [r for _, r in earlier.reads if r.overlaps(item.writes[0])]
    return all(item.writes[0].same_elements(r) for r in reads) and (not reads or earlier.number in item.ancestors)


def _same_rows(cluster: Cluster, earlier: Item, item: Item) -> bool:
    """Whether both touch an element in the same row of the kernel, so that one core does both."""
    if item.value not in cluster.axes:
        return False
    own = cluster.axes[item.value]
    if earlier.generic is None:
        return cluster.axes.get(earlier.value) == own
    touched = [i for i, r in earlier.reads if r.overlaps(item.writes[0])]
    return not cluster.columns and all(cluster.operand_axes(earlier, i) == own for i in touched)


# Before kernels are formed


def _copy_what_cannot_wait(function: func.FuncOp) -> None:
    """Make a value of what is read from memory that is overwritten before the value is used for the last time."""
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    position = {op: i for i, op in enumerate(ops)}
    stores = [(i, regions(op)[0]) for i, op in enumerate(ops) if op.name == "ktdp.store"]
    written = {r.argument for _, r in stores}
    waiting: list[ir.Value] = []
    for i, op in enumerate(ops):
        if op.name == "ktdp.load":
            last = max((position[u] for u in _users(op.results[0])), default=i)
            own = [r for r in regions(op) if r.argument in written]
            if any(i < at < last and r.overlaps(s) for at, s in stores for r in own):
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
        identity = affine_map(type_.rank, list(range(type_.rank)))
        copied = generic([value], init, [identity] * 2, ["parallel"] * type_.rank, lambda a: a[0], loc=value.owner.location)
    for reader, number in users:
        reader.operands[number] = copied


# One kernel


class _Kernel:
    """Builds one kernel function by cloning what its ops need."""

    def __init__(self, cluster: Cluster, cluster_of: dict[ir.Value, int], number: int, crossing: Sequence[ir.Value]) -> None:
        self.cluster, self.cluster_of, self.number, self.crossing = cluster, cluster_of, number, crossing
        self.mapping: dict[ir.Value, ir.Value] = {}
        self.used: list[ir.Value] = []
        self.location = (cluster.compute or cluster.stores)[0].op.location

    def build(self, name: str) -> list[ir.Value]:
        """Make the function; returns the outer arguments (or crossing values) that it takes, in order."""
        with self.location:
            function = func.FuncOp(name, ([], []))
        self.block = function.add_entry_block()
        with ir.InsertionPoint(self.block):
            for item in self.cluster.compute:
                self._clone(item.op)
                self._order_loops(item)
                if item.value in self.crossing:
                    with item.op.location:
                        ktdp.store(self.mapping[item.value], self._pool_tile(item.value))
            for item in self.cluster.stores:
                self._clone(item.op)
            with self.location:
                func.ReturnOp([])
        types = [a.type for a in self.block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        i64 = ir.IntegerType.get_signless(64)
        function.attributes["ktir.rows"] = ir.DenseI64ArrayAttr.get(self.cluster.rows)
        if self.cluster.columns:
            function.attributes["ktir.columns"] = ir.IntegerAttr.get(i64, self.cluster.columns)
        return self.used

    def _order_loops(self, item: Item) -> None:
        """Interchange the row loops of a clone so that they come in the order of the axes."""
        axes = self.cluster.loops[item.number]
        places = sorted(range(len(axes)), key=lambda i: self.cluster.order.index(axes[i]))
        if places == list(range(len(axes))):
            return
        loops = item.loops
        moved = {loops[place]: loops[i] for i, place in enumerate(places)}
        clone = self.mapping[item.value].owner
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(clone.attributes["indexing_maps"])]
        number = maps[0].n_dims
        permuted = ir.AffineMap.get(number, 0, [ir.AffineDimExpr.get(moved.get(i, i)) for i in range(number)])
        clone.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(_through(m, permuted)) for m in maps])
        for op in clone.regions[0].blocks[0].operations:
            if op.operation.name == "linalg.index":
                at = ir.IntegerAttr(op.attributes["dim"])
                op.attributes["dim"] = ir.IntegerAttr.get(at.type, moved.get(at.value, at.value))

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
        """A tensor of the pool, whole; it lies there as it is computed."""
        type_ = ir.RankedTensorType(value.type)
        layout = kt.LayoutAttr(type_.encoding)
        padded = kt.LayoutAttr.build(list(layout.size), list(layout.device), list(layout.strides), type_.element_type, pad="zero")
        sizes = list(type_.shape)
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        view = ktdp.construct_memory_view(self._argument(value), sizes, strides, type_.element_type, attributes={"ktir.layout": padded})
        return ktdp.construct_access_tile(view, [0] * len(sizes), sizes)


def _through(map_: ir.AffineMap, permuted: ir.AffineMap) -> ir.AffineMap:
    """A map of loops that have been interchanged."""
    results = [permuted.results[ir.AffineDimExpr(r).position] if isinstance(r, ir.AffineDimExpr) else r for r in map_.results]
    return ir.AffineMap.get(map_.n_dims, 0, results)
