"""Which ops of a laid-out function share a kernel.

Ops of one kernel have the same row loops, the kernel's axes. Which loop runs along which axis follows from the values that one op makes
and another one reads; where nothing ties two ops together, loops of equal extent are one axis. An op joins the kernel that makes most of
what it reads, the last one where that decides nothing, never one before which something must have happened that a later kernel does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ktir.analysis.items import Contraction, Item, Op, Store, Tensor
from ktir.cost.tiles import WEIGHT_BUFFERS
from ktir.target import LANES, STICK_BYTES

NO_ROW = -1
"""The row axis of a kernel whose matmuls have no rows."""


@dataclass
class Fit:
    """How an item joins a cluster: the axis of each of its row loops, and the row axis that the cluster then has."""

    axes: list[int]
    row: int | None


@dataclass
class Cluster:
    """Items of one kernel. `columns`: the sticks that every result has, where ops work on the same sticks; 0 = whole rows."""

    extents: list[int]
    lx_bytes: int
    """Scratchpad that there is."""
    columns: int = 0
    row: int | None = None
    items: list[Item] = field(default_factory=list)
    axes: dict[Tensor, list[int | None]] = field(default_factory=dict)
    """Per dim of a value that the kernel makes the axis that it runs along."""
    loaded: dict[Tensor, list[int | None]] = field(default_factory=dict)
    """The same for values that it reads."""
    indexed: set[int | None] = field(default_factory=set)
    """Axes along which gathers and scatters read their indices."""
    loops: dict[int, list[int]] = field(default_factory=dict)
    """Per op (its number) the axis of each row loop."""
    bytes: int = 0
    """Scratchpad for two rows of everything."""

    @property
    def compute(self) -> list[Op]:
        """The ops, in program order."""
        return sorted((i for i in self.items if not isinstance(i, Store)), key=lambda i: i.number)

    @property
    def stores(self) -> list[Store]:
        """The stores, in program order."""
        return sorted((i for i in self.items if isinstance(i, Store)), key=lambda i: i.number)

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
        if isinstance(item, Store):
            self.indexed.update(self.axes[item.value][d] for d in item.index_dims if item.value in self.axes)
            return
        self.loops[item.number] = fit.axes
        self.axes[item.value] = self.operand_axes(item, -1)
        for i, value in enumerate(item.sources):
            if value not in self.axes:
                walked = self.operand_axes(item, i)
                self.loaded.setdefault(value, walked)
                self.indexed.update(walked[d] for d in value.index_dims)

    def operand_axes(self, item: Op, operand: int) -> list[int | None]:
        """Per dim of an operand of an op of the kernel the axis that it runs along."""
        axis: dict[int | None, int] = dict(zip(item.loops, self.loops[item.number], strict=True))
        return [axis.get(loop) for loop in item.walks[operand]]

    def fit(self, item: Item) -> Fit | None:
        """How an item can join, as far as values and the scratchpad go; None if it cannot."""
        too_large = self.items and self.bytes + sum(self._new_bytes(item)) > self.lx_bytes
        if too_large and not self._is_stick_local(item):
            return None
        if isinstance(item, Store):
            return self._fit_store(item)
        if len(item.loops) != len(self.extents) or (self.columns and not self._fits_columns(item)):
            return None
        axes = self._tied(item)
        if axes is None or not self._match_rest(item, axes):
            return None
        wanted = self.row
        if isinstance(item, Contraction) and item.loops:
            wanted = NO_ROW if item.matmul_row is None else axes[item.matmul_row]
        if self.row not in (None, wanted):
            return None
        return Fit([axes[loop] for loop in item.loops], wanted)

    def _is_stick_local(self, item: Item) -> bool:
        """Whether all ops, with `item`, work on each stick by itself: some sticks of a row are then enough at a time."""
        items = [*self.items, item]
        ops = [i for i in items if not isinstance(i, Store)]
        sticks = max((op.value.shape[0] for op in ops), default=0)
        direct = not any((isinstance(i, Store) and i.index_dims) or any(s.index_dims for s in i.sources) for i in items)
        return direct and all(op.is_local(sticks) for op in ops)

    def _fits_columns(self, item: Op) -> bool:
        if isinstance(item, Contraction):
            return not item.has_batches and item.sources[0] not in self.axes and item.value.shape[0] == self.columns
        return item.is_local(self.columns)

    def _tied(self, item: Op) -> dict[int, int] | None:
        """Axes of the loops that walk values made here; None where that contradicts itself."""
        tied: dict[int, int] = {}
        for i, value in enumerate(item.sources):
            known = self.axes.get(value)
            if known is None:
                continue
            if isinstance(item, Contraction) and i == 1:
                return None  # each row needs all rows of it
            for walked, axis in zip(item.walks[i], known, strict=True):
                loop = walked if walked in item.loops else None
                if (loop is None) != (axis is None):
                    return None
                if loop is not None and axis is not None and tied.setdefault(loop, axis) != axis:
                    return None
        return tied if len(set(tied.values())) == len(tied) else None

    def _match_rest(self, item: Op, axes: dict[int, int]) -> bool:
        """Give the other loops axes of their extent: that of the rows, those of what both read, the next one."""
        for loop, axis in self._wishes(item):
            if loop not in axes and axis not in axes.values() and item.extents[loop] == self.extents[axis]:
                axes[loop] = axis
        for loop in item.loops:
            if loop not in axes:
                axis = next((a for a, n in enumerate(self.extents) if a not in axes.values() and n == item.extents[loop]), None)
                if axis is None:
                    return False
                axes[loop] = axis
        return all(item.extents[loop] == self.extents[axis] for loop, axis in axes.items())

    def _wishes(self, item: Op) -> Iterator[tuple[int, int]]:
        if self.row not in (None, NO_ROW) and isinstance(item, Contraction) and item.matmul_row is not None:
            yield item.matmul_row, self.row
        for i, value in enumerate(item.sources):
            if value in self.loaded and not (isinstance(item, Contraction) and i == 1):
                for loop, axis in zip(item.walks[i], self.loaded[value], strict=True):
                    if loop is not None and loop in item.loops and axis is not None:
                        yield loop, axis

    def _fit_store(self, item: Store) -> Fit | None:
        return Fit([], self.row) if item.value in self.axes else self._fit_copy(item)

    def _fit_copy(self, item: Store) -> Fit | None:
        """A tensor that is stored as it is loaded or filled has the axes in order as its rows, so the last one is the row axis."""
        innermost = len(self.extents) - 1 if self.extents else None
        if self.columns or item.value.rows != self.extents or self.row not in (None, innermost):
            return None
        return Fit([], innermost)

    def _new_bytes(self, item: Item) -> Iterator[int]:
        if isinstance(item, Store):
            return
        yield 2 * item.value.row_bytes
        for i, value in enumerate(item.sources):
            if isinstance(item, Contraction) and i == 1:
                yield WEIGHT_BUFFERS * LANES * STICK_BYTES
            elif value not in self.axes and value not in self.loaded:
                yield 4 * value.row_bytes
