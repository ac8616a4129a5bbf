"""Items, one after the other, into kernels.

An item joins the kernel that makes most of what it reads, the last one where that decides nothing, never one before which something must
have happened that a later kernel does. What becomes the second operand of a matmul must be there before the matmul's kernel, so where
nothing else decides it joins the first kernel that it can. A matmul starts a kernel whose columns are dealt out where that pays. A plan
may say otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Literal

from ktir.analysis.items import Contraction, Item, Store, Tensor
from ktir.cost.estimate import kernel_start
from ktir.passes.kernels.clusters import Cluster, Fit
from ktir.passes.kernels.columns import TAPS, saved_by_columns, wishes
from ktir.target import Target

Move = Literal["cut", "columns", "rows"]
"""What a search wants of an item: a kernel that starts with it, one whose columns are dealt out, or none of its own for its columns."""


@dataclass
class Clustering:
    """Kernels of items. The work will be divided over the cores of `target`; `work_div` is what a user wants of the division."""

    items: Sequence[Item]
    target: Target
    work_div: str = ""
    columns: Mapping[int, int] = field(default_factory=dict)
    """What a plan says of its kernels: the sticks of columns of those whose columns are dealt out."""
    moves: Mapping[int, Move] = field(default_factory=dict)
    """By number of the item."""

    def __post_init__(self) -> None:
        self.clusters: list[Cluster] = []
        self.home: dict[Item, int] = {}
        """The cluster of each item, by number."""
        self.notes: list[tuple[Item, str]] = []
        """Why an item starts a kernel of its own."""
        self.not_planned: list[Item] = []
        """Items that cannot be where the plan has them."""
        self._stated: dict[int, int] = {}
        """The cluster of each of the plan's kernels."""
        self._conflicts: dict[Item, list[Item]] = {}
        self._touching: dict[Hashable, list[Item]] = {}
        """By what is written: items so far that touch it."""
        for item in self.items:
            self._place(item)
            for argument in _touched(item):
                self._touching.setdefault(argument, []).append(item)

    @property
    def stated(self) -> dict[int, int]:
        """The plan's kernel that each cluster is, by their numbers; a cluster that the plan does not have is missing."""
        return {cluster: kernel for kernel, cluster in self._stated.items()}

    @cached_property
    def _readers(self) -> dict[Tensor, list[Item]]:
        """Ops that read a tensor in rows: a contraction's second operand comes from another kernel in any case."""
        found: dict[Tensor, list[Item]] = {}
        for item in self.items:
            for i, value in enumerate(item.sources):
                if not isinstance(item, Store) and not (isinstance(item, Contraction) and i == 1):
                    found.setdefault(value, []).append(item)
        return found

    @cached_property
    def _becomes_second(self) -> set[Item]:
        """Items of which contractions need the result, or what is made of it, as second operand, and nothing else does."""
        readers: dict[Tensor, list[tuple[Item, int]]] = {}
        for item in self.items:
            for i, value in enumerate(item.sources):
                readers.setdefault(value, []).append((item, i))
        found: set[Item] = set()
        for item in reversed(self.items):
            uses = [] if isinstance(item, Store) else [u for u in readers.get(item.value, ()) if not isinstance(u[0], Store)]
            if uses and all(i == 1 if isinstance(reader, Contraction) else reader in found for reader, i in uses):
                found.add(item)
        return found

    def crossing(self) -> list[Tensor]:
        """Tensors that are made in one kernel and used in another one, in order of use."""
        maker = {item.value: number for item, number in self.home.items() if not isinstance(item, Store)}
        found: dict[Tensor, None] = {}
        for i, cluster in enumerate(self.clusters):
            for item in (*cluster.compute, *cluster.stores):
                found.update((v, None) for v in item.sources if maker.get(v, i) != i)
        return list(found)

    def _place(self, item: Item) -> None:
        """Put an item into a kernel, a new one if none can take it."""
        first = self._first_legal(item)
        placed = self._as_planned(item, first) if item.wish is not None else None
        if placed is None:
            placed = self._by_default(item, first)
            if item.wish is not None:
                self.not_planned.append(item)
        number, fit = placed
        self.clusters[number].add(item, fit)
        self.home[item] = number

    def _as_planned(self, item: Item, first: int) -> tuple[int, Fit] | None:
        assert item.wish is not None
        number = self._stated.get(item.wish)
        if number is None:
            columns = self.columns.get(item.wish, 0)
            if _empty(item, columns, self.target).fit(item) is None:
                return None  # a plan that somebody has written may say any number
            self._stated[item.wish] = len(self.clusters)
            return self._new(item, columns)
        fit = self._fit(item, number) if number >= first else None
        return None if fit is None else (number, fit)

    def _by_default(self, item: Item, first: int) -> tuple[int, Fit]:
        move = self.moves.get(item.number)
        if move == "cut":
            return self._new(item, 0)
        fits = [(i, fit) for i in range(first, len(self.clusters)) if (fit := self._fit(item, i)) is not None]
        found = min(fits, key=lambda f: self._distance(item, f[0]), default=None)
        if not isinstance(item, Store) and move != "rows":
            current = None if found is None else self.clusters[found[0]]
            if current is None or not current.columns:
                columns = item.value.shape[0] if move == "columns" else self._own_columns(item, current)
                if columns:
                    found = self._new(item, columns)
        return found or self._new(item, 0)

    def _new(self, item: Item, columns: int) -> tuple[int, Fit]:
        """An empty cluster for an item."""
        cluster = _empty(item, columns, self.target)
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
        if item not in self._conflicts:
            own = [r for _, r in item.reads]
            found = []
            candidates = {e.number: e for argument in _touched(item) for e in self._touching.get(argument, ())}
            for _, earlier in sorted(candidates.items()):
                theirs = [r for _, r in earlier.reads]
                pairs = [(w, r) for w in item.writes for r in theirs] + [(w, r) for w in earlier.writes for r in own]
                if any(w.taken_with(r) for w, r in pairs) or any(w.overlaps(e) for w in item.writes for e in earlier.writes):
                    found.append(earlier)
            self._conflicts[item] = found
        return self._conflicts[item]

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
        latest, or the first."""
        cluster = self.clusters[number]
        whole = isinstance(item, Contraction) and not cluster.columns
        crosses = sum(p.value.bytes for p in item.producers if self.home[p] != number)
        shared = sum(v.bytes for v in item.sources if v in cluster.loaded)
        return whole, crosses, -shared, number if item in self._becomes_second else -number

    def _own_columns(self, item: Item, current: Cluster | None) -> int:
        """The sticks of columns of a kernel that starts with an item; 0 if dealing out columns does not pay.

        What such a kernel computes and reads through global memory, instead of in the kernel `current`, is the price of it.
        """
        sticks = item.value.shape[0]
        if not isinstance(item, Contraction) or item.has_batches or max(item.matmul_extents[1:]) < 2:
            return 0
        asked = dict(wishes(self.work_div).work_div)
        if "n" in asked or "k" in asked:
            return sticks if max(asked.get("n", 1), asked.get("k", 1)) > 1 else 0
        cluster = _empty(item, sticks, self.target)
        saved = 0.0
        for other in self.items[item.number :]:
            if isinstance(other, Store):
                continue
            fit = cluster.fit(other)
            if fit is None:
                break
            cluster.add(other, fit)
            if isinstance(other, Contraction):
                saved += saved_by_columns(other.matmul_shape, self.target, TAPS if other.taps else None)
        moved = 0
        for other in cluster.items:
            if any(r.value not in cluster.axes for r in self._readers.get(other.value, ())):
                moved += other.value.bytes
        if current is not None:
            moved += sum(v.bytes for v in {v for other in cluster.items for v in other.sources if v in current.axes})
        price = 2 * moved / self.target.dram_bytes_per_cycle + 2 * kernel_start(self.target)
        if saved <= price:
            return 0
        why = f"saves {saved:.0f} cycles for {price:.0f}" if isfinite(saved) else "rows alone have parts that are too large"
        text = f"kernel of its own, so that its {cluster.columns} sticks of columns are dealt out: {why}"
        self.notes.append((item, text))
        return cluster.columns


def _touched(item: Item) -> set[Hashable]:
    """What an item touches of the memory that the program writes."""
    return {r.argument for r in (*item.writes, *(r for _, r in item.reads))}


def _empty(item: Item, columns: int, target: Target) -> Cluster:
    extents = item.value.rows if isinstance(item, Store) else [item.extents[loop] for loop in item.loops]
    return Cluster(extents, target.lx_planned_bytes, columns)


def _may_share(earlier: Item, item: Item) -> bool:
    """Whether an item may overwrite in one kernel what an earlier one read: the same elements, which have been used for what is written.
    What an earlier one has written it may not: a kernel stores each result as soon as it is there."""
    if not item.writes or any(w.overlaps(item.writes[0]) for w in earlier.writes):
        return False
    reads = [r for _, r in earlier.reads if item.writes[0].taken_with(r)]
    return all(item.writes[0].same_elements(r) for r in reads) and (not reads or earlier.number in item.ancestors)


def _same_rows(cluster: Cluster, earlier: Item, item: Item) -> bool:
    """Whether both touch an element in the same row of the kernel, so that one core does both."""
    if item.value not in cluster.axes or isinstance(earlier, Store):
        return False
    own = cluster.axes[item.value]
    touched = [i for i, r in earlier.reads if r.overlaps(item.writes[0])]
    return not cluster.columns and all(cluster.operand_axes(earlier, i) == own for i in touched)
