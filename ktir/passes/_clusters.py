"""Which ops of a laid-out function share a kernel.

Ops of one kernel have the same row loops, the kernel's axes. Which loop runs along which axis follows from the values that one op makes
and another one reads; where nothing ties two ops together, loops of equal extent are one axis. An op joins the kernel that makes most of
what it reads, the last one where that decides nothing, never one before which something must have happened that a later kernel does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from ktir.cost.tiles import WEIGHT_BUFFERS
from ktir.dialects.structured import Generic
from ktir.mlir import ir
from ktir.passes._axes import matmul_row_loop, row_loops, second_operand_source
from ktir.passes._columns import extents, is_local
from ktir.passes._levels import tensor_bytes
from ktir.passes._memory_order import Region, regions
from ktir.target import DATASHEET, LANES, STICK_BYTES

NO_ROW = -1
"""The row axis of a kernel whose matmuls have no rows."""


def row_extents(value: ir.Value) -> list[int]:
    """Extents of the rows of a physical tensor [sticks, rows.., lanes]; none where there is a single position."""
    rows = list(ir.RankedTensorType(value.type).shape)[1:-1]
    return rows if prod(rows) > 1 else []


def index_dims(access: ir.Operation) -> list[int]:
    """Dims of the tile of a load or store along which an index view is read."""
    tile = access.operands[-1].owner
    if tile.name != "ktdp.construct_indirect_access_tile":
        return []
    maps = [m for m, view in tile.opview.subscripts if view is not None]
    return sorted({d for m in maps for e in m.results for d in _dims(e)})


def _dims(e: ir.AffineExpr) -> set[int]:
    if isinstance(e, ir.AffineDimExpr):
        return {ir.AffineDimExpr(e).position}
    return _dims(e.lhs) | _dims(e.rhs) if isinstance(e, ir.AffineBinaryExpr) else set()


class Item:
    """An op or a store, with what it needs of others. Stores have no `generic`."""

    def __init__(self, op: ir.Operation, number: int, made: dict[ir.Value, Item], written: set[ir.Value]) -> None:
        self.op, self.number = op, number
        self.generic = Generic(op) if op.name == "linalg.generic" else None
        self.value: ir.Value = op.results[0] if self.generic else op.operands[0]
        g = self.generic
        self.sources: list[ir.Value] = [op.operands[0]]
        """What it reads: tensors that others make, or that are loaded."""
        if g is not None:
            self.sources = [second_operand_source(g) if g.is_contraction and i == 1 else v for i, v in enumerate(g.inputs)]
        self.producers = [made[v] for v in self.sources if v in made]
        self.ancestors: frozenset[int] = frozenset({self.number}).union(*(p.ancestors for p in self.producers))
        self.reads: list[tuple[int, Region]] = [
            (i, r) for i, v in enumerate(self.sources) if _is_load(v) for r in regions(v.owner.operation) if r.argument in written
        ]
        """Operands that are read from memory that the program writes."""
        self.writes: list[Region] = [] if g is not None else regions(op)[:1]
        if g is None:
            self.reads += [(-1, r) for r in regions(op)[1:] if r.argument in written]

    @cached_property
    def loops(self) -> list[int]:
        """The row loops of an op; none where all have one trip."""
        assert self.generic is not None
        return row_loops(self.generic) if prod(self.extent(loop) for loop in row_loops(self.generic)) > 1 else []

    def extent(self, loop: int) -> int:
        """Trips of a row loop."""
        g = self.generic
        assert g is not None
        shape = ir.RankedTensorType(self.value.type).shape
        return next(shape[d] for d in range(len(shape)) if g.loop_of(len(g.inputs), d) == loop)


def _is_load(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "ktdp.load"


def items_of(ops: Sequence[ir.Operation]) -> list[Item]:
    """The ops and stores of a function, in order."""
    written = {r.argument for op in ops if op.name == "ktdp.store" for r in regions(op)[:1]}
    made: dict[ir.Value, Item] = {}
    items: list[Item] = []
    for op in ops:
        if op.name in ("linalg.generic", "ktdp.store"):
            item = Item(op, len(items), made, written)
            items.append(item)
            if item.generic is not None:
                made[item.value] = item
    return items


@dataclass
class Fit:
    """How an item joins a cluster: the axis of each of its row loops, and the row axis that the cluster then has."""

    axes: list[int]
    row: int | None


@dataclass
class Cluster:
    """Items of one kernel. `columns`: the sticks that every result has, where ops work on the same sticks; 0 = whole rows."""

    extents: list[int]
    columns: int = 0
    row: int | None = None
    items: list[Item] = field(default_factory=list)
    axes: dict[ir.Value, list[int | None]] = field(default_factory=dict)
    """Per dim of a value that the kernel makes the axis that it runs along."""
    loaded: dict[ir.Value, list[int | None]] = field(default_factory=dict)
    """The same for values that it reads."""
    indexed: set[int | None] = field(default_factory=set)
    """Axes along which gathers and scatters read their indices."""
    loops: dict[int, list[int]] = field(default_factory=dict)
    """Per op (its number) the axis of each row loop."""
    bytes: int = 0
    """Scratchpad for two rows of everything."""

    @property
    def compute(self) -> list[Item]:
        """The ops, in program order."""
        return sorted((i for i in self.items if i.generic is not None), key=lambda i: i.number)

    @property
    def stores(self) -> list[Item]:
        """The stores, in program order."""
        return sorted((i for i in self.items if i.generic is None), key=lambda i: i.number)

    @property
    def order(self) -> list[int]:
        """The axes, outer to inner. The row axis is the last one: a matmul's rows, else that of indices, else the longest."""
        axes = list(range(len(self.extents)))
        if self.row == NO_ROW or not axes:
            return axes
        row = self.row if self.row is not None else max(axes, key=lambda a: (a in self.indexed, self.extents[a], a))
        return [*(a for a in axes if a != row), row]

    @property
    def rows(self) -> list[int]:
        """Extents of the axes in order: `ktir.rows`."""
        extents = [self.extents[a] for a in self.order]
        return [*extents, 1] if self.row == NO_ROW or not extents else extents

    def add(self, item: Item, fit: Fit) -> None:
        """Take an item in."""
        self.bytes += sum(self._new_bytes(item))
        self.items.append(item)
        self.row = fit.row
        g = item.generic
        if g is None:
            self.indexed.update(self.axes.get(item.value, [None])[d] for d in index_dims(item.op) if item.value in self.axes)
            return
        self.loops[item.number] = fit.axes
        self.axes[item.value] = self.operand_axes(item, len(g.inputs))
        for i, value in enumerate(item.sources):
            if value not in self.axes:
                walked = self.operand_axes(item, i)
                self.loaded.setdefault(value, walked)
                self.indexed.update(walked[d] for d in (index_dims(value.owner.operation) if _is_load(value) else []))

    def operand_axes(self, item: Item, operand: int) -> list[int | None]:
        """Per dim of an operand of an op of the kernel the axis that it runs along."""
        g = item.generic
        assert g is not None
        axis: dict[int | None, int] = dict(zip(item.loops, self.loops[item.number], strict=True))
        dims = [axis.get(g.loop_of(operand, d)) for d in range(len(g.maps[operand].results))]
        return [*dims[:-3], None, None] if g.is_contraction and operand == 1 else dims

    def fit(self, item: Item) -> Fit | None:
        """How an item can join, as far as values and the scratchpad go; None if it cannot."""
        if self.items and self.bytes + sum(self._new_bytes(item)) > DATASHEET.lx_planned_bytes:
            return None
        if item.generic is None:
            return self._fit_store(item)
        if len(item.loops) != len(self.extents) or (self.columns and not self._fits_columns(item)):
            return None
        axes = self._tied(item)
        if axes is None or not self._match_rest(item, axes):
            return None
        wanted = self.row
        if item.generic.is_contraction and item.loops:
            loop = matmul_row_loop(item.generic)
            wanted = NO_ROW if loop is None else axes[loop]
        if self.row not in (None, wanted):
            return None
        return Fit([axes[loop] for loop in item.loops], wanted)

    def _fits_columns(self, item: Item) -> bool:
        g = item.generic
        assert g is not None
        if g.is_contraction:
            batches = g.contraction is not None and g.contraction.batch
            return not batches and item.sources[0] not in self.axes and extents(g)[1] == self.columns
        return is_local(g, self.columns)

    def _tied(self, item: Item) -> dict[int, int] | None:
        """Axes of the loops that walk values made here; None where that contradicts itself."""
        g = item.generic
        assert g is not None
        tied: dict[int, int] = {}
        for i, value in enumerate(item.sources):
            known = self.axes.get(value)
            if known is None:
                continue
            if g.is_contraction and i == 1:
                return None  # each row needs all rows of it
            for d, axis in enumerate(known):
                loop = g.loop_of(i, d)
                loop = loop if loop in item.loops else None
                if (loop is None) != (axis is None):
                    return None
                if loop is not None and axis is not None and tied.setdefault(loop, axis) != axis:
                    return None
        return tied if len(set(tied.values())) == len(tied) else None

    def _match_rest(self, item: Item, axes: dict[int, int]) -> bool:
        """Give the other loops axes of their extent: that of the rows, those of what both read, the next one."""
        for loop, axis in self._wishes(item):
            if loop not in axes and axis not in axes.values() and item.extent(loop) == self.extents[axis]:
                axes[loop] = axis
        for loop in item.loops:
            if loop not in axes:
                axis = next((a for a, n in enumerate(self.extents) if a not in axes.values() and n == item.extent(loop)), None)
                if axis is None:
                    return False
                axes[loop] = axis
        return all(item.extent(loop) == self.extents[axis] for loop, axis in axes.items())

    def _wishes(self, item: Item) -> Iterator[tuple[int, int]]:
        g, row = item.generic, self.row
        assert g is not None
        if g.is_contraction and row is not None and (loop := matmul_row_loop(g)) is not None:
            yield loop, row
        for i, value in enumerate(item.sources):
            for d, axis in enumerate(self.loaded.get(value, [])):
                loop = g.loop_of(i, d)
                if loop is not None and loop in item.loops and axis is not None and not (g.is_contraction and i == 1):
                    yield loop, axis

    def _fit_store(self, item: Item) -> Fit | None:
        return Fit([], self.row) if item.value in self.axes else self._fit_copy(item)

    def _fit_copy(self, item: Item) -> Fit | None:
        """A tensor that is stored as it is loaded or filled has the axes in order as its rows, so the last one is the row axis."""
        innermost = len(self.extents) - 1 if self.extents else None
        if self.columns or row_extents(item.value) != self.extents or self.row not in (None, innermost):
            return None
        return Fit([], innermost)

    def _new_bytes(self, item: Item) -> Iterator[int]:
        if item.generic is None:
            return
        yield 2 * tensor_bytes(item.value) // prod(row_extents(item.value))
        for i, value in enumerate(item.sources):
            if item.generic.is_contraction and i == 1:
                yield WEIGHT_BUFFERS * LANES * STICK_BYTES
            elif value not in self.axes and value not in self.loaded:
                yield 4 * tensor_bytes(value) // prod(row_extents(value))
