"""What a whole kernel takes under a division: all its matmuls, vector ops, loads and stores, as the units of a core work side by side."""

from __future__ import annotations

from math import prod

from ktir.cost.estimate import Cost, Term, combine, delivery_cycles, half, kernel_start, multiply_cycles, stage_latency
from ktir.passes._items import Item
from ktir.passes._work import KernelFacts, Work
from ktir.target import Target

_TRIPS = 8
"""Blocks of rows that a share is cut into, at most, so that loads, compute and stores overlap."""


def kernel_price(facts: KernelFacts, work: Work, target: Target) -> Cost:
    """Cycles of a kernel, by unit."""
    return _Price(facts, work, target).cost()


class _Price:
    def __init__(self, facts: KernelFacts, work: Work, target: Target) -> None:
        self.facts, self.work, self.target = facts, work, target
        self.parts = dict(zip(facts.names, work.parts, strict=True)) | {"n": work.column_parts}
        self.trips = max(1, min(_TRIPS, prod(work.shares) // 2))

    def cost(self) -> Cost:
        """All terms together."""
        terms = [self._matmul(item) if item.is_contraction else self._vector(item) for item in self.facts.ops]
        loads, stores = list(self._loads()), list(self._stores())
        waits = sum(t.cycles / max(t.times, self.trips) for t in (*loads, *stores) if t.unit in ("ring", "stores"))
        terms += [*loads, *stores, Term("fill", "the first blocks come, the last ones leave", waits)]
        terms += [
            Term("start", "latency of memory and units, launch", kernel_start(self.target)),
            Term("start", "an op waits for the op before it", max(len(self.facts.ops) - 1, 0) * stage_latency(self.target)),
        ]
        return combine(terms)

    def _rows(self, item: Item) -> int:
        """Rows of one core that an op walks."""
        axes = self.facts.axes[item.number]
        return prod(self.work.shares[axes[loop]] for loop in item.loops)

    def _sticks(self, item: Item) -> int:
        """Sticks of one core that an op walks in a row."""
        if item.kind == "reduction":
            return max(source.shape[0] for source in item.sources)
        return self.work.stick_share if self.facts.columns else item.value.shape[0]

    def _matmul(self, item: Item) -> Term:
        rows, depth = self._rows(item), self.work.depth_share or item.matmul_extents[2]
        most = 2 * self.target.pt_accumulator_rows
        trips = -(-rows // most)
        blocks = trips * self._sticks(item) * depth
        per_corelet = half(-(-rows // trips), self.target.corelets)
        return Term(
            "PT", "matmul", multiply_cycles(per_corelet, blocks, self.target) + trips * self._sticks(item) * self.target.pt_fill_cycles
        )

    def _vector(self, item: Item) -> Term:
        sticks = half(self._rows(item), self.target.corelets) * self._sticks(item)
        return Term("SFP", "vector ops", sticks * max(item.work, 1), 0.0, sticks)

    def _loads(self) -> list[Term]:
        """Loads, a second operand in as many transfers as it has blocks."""
        terms = []
        cores = self.work.cores
        blocks = {i.sources[1]: i.matmul_extents[2] * self._sticks(i) for i in self.facts.contractions}
        for (tensor, names), size in self.facts.loads().items():
            moved = tensor.moved or size
            own = prod(self.parts[name] for name in names)
            members = max(cores // own, 1)
            cycles = moved / self.target.dram_bytes_per_cycle
            terms.append(Term("dram", "load", cycles, moved))
            ring = max(cycles, tensor.pieces / own)
            if members > 1:
                ring = max(ring, delivery_cycles(moved / own, members, self.target))
            terms.append(Term("ring", "load", ring, moved / own, blocks.get(tensor, 0)))
        return terms

    def _stores(self) -> list[Term]:
        terms = []
        for item in self.facts.stores:
            moved = item.moved or item.value.bytes
            cycles = moved / self.target.dram_bytes_per_cycle
            terms += [Term("dram", "store", cycles, moved), Term("stores", "store", max(cycles, item.pieces / self.work.cores))]
        return terms
