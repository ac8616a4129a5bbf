"""What the cost model needs to know of a kernel: its axes, its ops, what it reads and stores; and the problems that it poses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ktir.analysis.axes import Axes
from ktir.analysis.items import Contraction, Op, Pointwise, Reduction, Store, Tensor, Walk, items_of
from ktir.cost.problem import Loop, Operand, Problem
from ktir.mlir import func, ir
from ktir.passes.kernels.clusters import Cluster
from ktir.passes.kernels.columns import TAPS
from ktir.target import LANES, Target

Reading = tuple[Tensor, tuple[str, ...]]
"""A tensor, and the names of the axes (and columns) along which a kernel reads it."""


@dataclass(frozen=True, eq=False)
class KernelFacts:
    """What the cost model needs to know of a kernel."""

    name: str
    target: Target
    extents: tuple[int, ...]
    """Of the axes; the last one is the row axis."""
    columns: int
    """Sticks of every result where columns may be dealt out, else 0."""
    ops: tuple[Op, ...]
    stores: tuple[Store, ...]
    axes: Mapping[int, Mapping[int | None, int]]
    """Per op (its number) the axis of each row loop."""
    stored_axes: Mapping[int, Walk]
    """Per store (its number) the axis along each dim of what it stores."""

    @staticmethod
    def of_kernel(kernel: func.FuncOp, target: Target) -> KernelFacts:
        """The facts of a formed kernel, whose ops have their row loops in the order of the axes."""
        axes = Axes.of(kernel.operation)
        columns = ir.IntegerAttr(kernel.attributes["ktir.columns"]).value if "ktir.columns" in kernel.attributes else 0
        items = items_of([o.operation for o in kernel.regions[0].blocks[0].operations], target)
        ops = tuple(i for i in items if not isinstance(i, Store))
        stores = tuple(i for i in items if isinstance(i, Store))
        loops: dict[int, Mapping[int | None, int]] = {i.number: {loop: axis for axis, loop in enumerate(i.row_loops)} for i in ops}
        made = {item.value: tuple(loops[item.number].get(loop) for loop in item.walks[-1]) for item in ops}
        stored = {item.number: made.get(item.value) or tuple(_copied(item, axes.extents)) for item in stores}
        return KernelFacts(kernel.name.value, target, axes.extents, columns, ops, stores, loops, stored)

    @staticmethod
    def of_cluster(cluster: Cluster, name: str, crossing: Collection[Tensor], target: Target) -> KernelFacts:
        """The facts of a kernel that is not formed yet; what `crossing` has of its tensors is stored for other kernels."""
        place = {axis: i for i, axis in enumerate(cluster.order)}
        extents = tuple(cluster.rows)
        loops: dict[int, Mapping[int | None, int]] = {}
        for item in cluster.compute:
            loops[item.number] = {loop: place[axis] for loop, axis in zip(item.loops, cluster.loops[item.number], strict=True)}
        made = {i.value: tuple(None if a is None else place[a] for a in cluster.axes[i.value]) for i in cluster.compute}
        left = (item.value for item in cluster.compute if item.value in crossing)
        stores = (*cluster.stores, *(Store(~i, [value], value) for i, value in enumerate(left)))
        stored = {item.number: made.get(item.value) or tuple(_copied(item, extents)) for item in stores}
        return KernelFacts(name, target, extents, cluster.columns, tuple(cluster.compute), stores, loops, stored)

    @property
    def has_batches(self) -> bool:
        """Whether there are other axes than the row axis."""
        return len(self.extents) > 1

    @cached_property
    def names(self) -> list[str]:
        """Of the axes: `m` is the row axis."""
        return [*(f"b{i}" for i in range(len(self.extents) - 1)), "m"]

    @cached_property
    def contractions(self) -> list[Contraction]:
        """The matmuls."""
        return [item for item in self.ops if isinstance(item, Contraction)]

    @cached_property
    def whole(self) -> list[int]:
        """Axes that must not be cut: where indices name an element several times, the last value stays."""
        found = {self.stored_axes[s.number][d] for s in self.stores if s.ordered for d in s.index_dims}
        return sorted(axis for axis in found if axis is not None)

    @cached_property
    def whole_depth(self) -> str | None:
        """Why the reduced loop of the matmuls must not be cut; None if it may."""
        depths = sorted({item.matmul_extents[2] for item in self.contractions})
        if len(depths) > 1:
            return f"the matmuls of this kernel have reduced loops of {', '.join(map(str, depths))} sticks"
        if any(item.sources[0] in self.made for item in self.contractions):
            return "a matmul of this kernel reads what the kernel computes"
        if any(item.taps for item in self.contractions):
            return TAPS
        return None

    @cached_property
    def multiplies_alone(self) -> bool:
        """Whether the kernel is one matmul of what it loads, and stores that, or what one op makes of each element."""
        if len(self.contractions) != 1 or len(self.ops) > 2 or self.contractions[0].taps:
            return False
        (item,), others = self.contractions, [op for op in self.ops if not isinstance(op, Contraction)]
        stored = {store.value for store in self.stores}
        if item.sources[0] in self.made or not others:
            return not others and item.value in stored
        (other,) = others
        fused = isinstance(other, Pointwise) and not other.positional and item.value in other.sources and item.value not in stored
        return fused and other.walks[other.sources.index(item.value)] == other.walks[-1] and other.value in stored

    def walked(self, item: Op, operand: int) -> tuple[str, ...]:
        """Names of the axes that an operand of an op runs along (the result is operand -1)."""
        axes = self.axes[item.number]
        return tuple(dict.fromkeys(self.names[axes[loop]] for loop in item.walks[operand] if loop in axes))

    def loops(self) -> list[Loop]:
        """The axes; the row axis first: where two divisions cost the same, the one with fewer parts of rows is taken."""
        rows, *batches = reversed(list(zip(self.names, self.extents, strict=True)))
        return [Loop(*rows), *(Loop(name, extent, even=True) for name, extent in reversed(batches))]

    def reading(self, item: Op, operand: int) -> Reading:
        """How an op reads an operand."""
        return item.sources[operand], (*self.walked(item, operand), *self._dealt(item, operand))

    @cached_property
    def made(self) -> set[Tensor]:
        """What the kernel computes."""
        return {item.value for item in self.ops}

    @cached_property
    def loads(self) -> dict[Reading, int]:
        """What is read from memory, once for each way of reading, in bytes."""
        found: dict[Reading, int] = {}
        for item in self.ops:
            for i, value in enumerate(item.sources):
                if value.loaded or (value.made and value not in self.made):
                    found[self.reading(item, i)] = value.loaded_bytes
        for item in self.stores:
            if item.value.loaded:
                names = (self.names[axis] for axis in self.stored_axes[item.number] if axis is not None)
                found[item.value, tuple(dict.fromkeys(names))] = item.value.bytes
        return found

    def _dealt(self, item: Op, operand: int) -> tuple[str, ...]:
        """Name of the columns, where they are dealt out and a core reads those of an operand that are its own."""
        own = item.walks[operand][0] == 0 or (isinstance(item, Contraction) and operand == 1)
        return ("n",) if self.columns and own else ()

    def vector_work(self) -> int:
        """Cycles of the vector unit in one row."""
        total = 0
        for item in self.ops:
            if isinstance(item, Pointwise):
                total += item.value.shape[0] * item.work
            elif isinstance(item, Reduction):
                total += max(source.shape[0] for source in item.sources) * item.work + self.target.sfp_lane_reduction_cycles
        return total

    def matmul(self) -> Problem:
        """The longest matmul, with all that the kernel reads."""
        item = max(self.contractions, key=lambda i: i.matmul_extents)
        _, sticks, depth, weight_bytes, widening, _ = item.matmul_shape
        first, second = self.walked(item, 0), self.walked(item, 1)
        own = {(item.sources[0], first), (item.sources[1], (*second, *self._dealt(item, 1)))}
        others = [(names, size) for (value, names), size in self.loads.items() if (value, names) not in own]
        operands = (
            self._rows(item, first),
            Operand("weights", (*second, "k", "n"), element_bytes=weight_bytes),
            *(Operand(f"input {i}", names, whole_bytes=size) for i, (names, size) in enumerate(others)),
            Operand("result", (*self.names, "n"), output=True, whole_bytes=sum(item.value.bytes for item in self.stores)),
        )
        loops = (*self.loops(), Loop("n", sticks * LANES, LANES), Loop("k", depth * LANES, LANES, reduction=True))
        cycles = max(1.0, self.vector_work() / sticks)
        return Problem(f"matmul of kernel '{self.name}'", loops, operands, vector_cycles=cycles, widening=widening)

    def _rows(self, item: Contraction, names: tuple[str, ...]) -> Operand:
        """The first operand of a matmul. Parts of one that is seen through windows overlap."""
        if not item.taps or not item.sources[0].strides:
            return Operand("rows", (*names, "k"))
        tensor, along = item.sources[0], self.axes[item.number]
        steps = {d: self.names[along[loop]] for d, loop in enumerate(item.walks[0]) if loop in along}
        halo: dict[str, int] = {}
        for tap, extent in item.taps.items():
            # a tap moves along the axis of which positions lie the least apart of those that are not further apart than it
            fitting = [d for d in steps if 0 < tensor.strides[d] <= (extent - 1) * tensor.strides[tap]]
            if fitting:
                d = max(fitting, key=lambda d: tensor.strides[d])
                halo[steps[d]] = halo.get(steps[d], 0) + -(-(extent - 1) * tensor.strides[tap] // tensor.strides[d])
        return Operand("rows", (*names, "k"), whole_bytes=tensor.loaded_bytes, halo=tuple(halo.items()))

    def vector(self) -> Problem:
        """All ops as one on the vector unit."""
        sticks, columns = max(item.value.shape[0] for item in self.ops or self.stores), "n" if self.columns else "d"
        written = sum(item.value.bytes for item in self.stores)
        operands = (
            *(Operand(f"input {i}", names, whole_bytes=size) for i, ((_, names), size) in enumerate(self.loads.items())),
            Operand("result", (*self.names, columns), output=True, whole_bytes=written),
        )
        loops = (*self.loops(), Loop(columns, sticks * LANES, LANES))
        return Problem(f"kernel '{self.name}'", loops, operands, "vector", max(1.0, self.vector_work() / sticks))


def _copied(item: Store, extents: tuple[int, ...]) -> Iterator[int | None]:
    """Axes of a tensor that is stored as it was loaded or filled: it has the axes in order as its rows."""
    yield None
    for axis in range(len(item.value.shape) - 2):
        yield axis if axis < len(extents) else None
    yield None
