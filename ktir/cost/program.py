"""The price of a kernel of the instruction stream, from its words: the same terms as those of a division, now of what was really made."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from math import prod

import numpy as np

from ktir.cost.estimate import Cost, Term, combine, delivery_cycles, kernel_start, stage_latency, widening_waits
from ktir.isa.access import Access
from ktir.isa.cycles import (
    MOVES,
    adds_over_ring,
    array_cycles,
    lane_products,
    op_cycles,
    per_lane,
    ring_cycles,
    ring_route,
    turnaround_cycles,
)
from ktir.isa.descriptor import LEVELS, Bound, Descriptor
from ktir.isa.granules import ElementPrice
from ktir.isa.instructions import Does
from ktir.isa.kinds import KINDS
from ktir.isa.program import Kernel, Word, drained_rows
from ktir.target import LANES, STICK_BYTES, Target


@dataclass(frozen=True)
class Transfer:
    """All runs of one word that moves data between memory and scratchpad.

    Bytes: `moved` over the memory channel, `received` by the core that gets most. `fragments`: cycles of LX on the slowest core.
    """

    loads: bool
    argument: int
    runs: int
    moved: int
    received: int
    members: int
    fragments: int = 0
    indices: bool = False
    """Whether these are the indices that the word reads."""

    @property
    def reads(self) -> bool:
        """Whether it loads."""
        return self.indices or self.loads


@dataclass(frozen=True)
class KernelWork:
    """What a kernel does: transfers, multiplications and vector ops that count, and its price."""

    transfers: tuple[Transfer, ...]
    multiplications: int
    lane_products: int
    """Of these, how many take a time of their own: one of each pair."""
    vector_ops: int
    cost: Cost

    @property
    def flops(self) -> int:
        """Floating-point operations, those on dead rows and lanes included."""
        return 2 * self.multiplications + self.vector_ops


def kernel_work(kernel: Kernel, target: Target) -> KernelWork:
    """Count and price a kernel."""
    counted = _Counter(kernel, target)
    for words in kernel.units.values():
        counted.unit(words)
    return counted.result()


@dataclass
class _Product:
    """Of sums in PT: the source of its words, the rows of a corelet, and how often weights are loaded and sums drained."""

    source: int
    rows: int = 0
    blocks: int = 0
    drains: int = 0

    def widening_waits(self, widened: float, target: Target) -> float:
        """Cycles in which PT waits for blocks of weights that are widened first; `widened`: what the vector unit takes for all of them."""
        return widening_waits(self.rows, self.drains, self.blocks / self.drains, widened / self.blocks, target)


class _Counter:
    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel, self.target = kernel, target
        self.over_ring = adds_over_ring(kernel)
        self.transfers: list[Transfer] = []
        self.busy: dict[str, float] = {"weights": 0, "rows": 0, "drains": 0, "SFP": 0, "LX": 0}
        self.widened = Counter[int]()
        """Per source cycles of the vector unit for elements of one byte, of all runs."""
        self.products: list[_Product] = []
        self.multiplications = self.lane_products = 0
        self.vector_ops = 0
        self.stages = 0
        self.sent, self.way = 0.0, 0
        """Cycles of the ring for what cores send each other; the hops of the longest way."""

    def unit(self, words: list[Word]) -> None:
        """Count one unit's words, each as often as its loops run it."""
        loops: list[tuple[int, int]] = []
        drained = drained_rows(words)
        for i, w in enumerate(words):
            if w.does is Does.LOOP:
                loops.append((w["level"], w["trips"]))
            elif w.does is Does.END_LOOP:
                loops.pop()
            elif w.does is Does.REPEAT:
                self._rep(w, prod(trips for _, trips in loops), words[i + 1 : i + 1 + w.held])
            elif not w.opcode.body_only:
                self._word(w, dict(loops), drained.get(i, 0))

    def _word(self, w: Word, trips: dict[int, int], drained: int) -> None:
        runs = prod(trips.values())
        match w.does:
            case Does.MOVE:
                self._transfer(w, trips)
            case Does.SEND:
                load, hops = ring_route(self.kernel.groups[w["group"]], self.target.cores)
                self.sent += runs * self._ring(w) * load
                self.way = max(self.way, hops)
            case Does.PUSH:
                self.busy["LX"] += runs * self._sticks(w)
            case Does.WEIGHTS:
                self.busy["weights"] += runs * LANES * array_cycles(w, self.over_ring, self.target)
                if not self.products or self.products[-1].drains:
                    self.products.append(_Product(w.source))
                self.products[-1].blocks += runs
            case Does.MULTIPLY:
                self.products[-1].rows = w["rows"]
                self.busy["rows"] += runs * w["rows"] * array_cycles(w, self.over_ring, self.target)
                lanes = runs * lane_products(w) * self.kernel.cores * self.target.corelets
                self.lane_products += lanes
                self.multiplications += lanes * per_lane(w)
            case Does.DRAIN:
                self.products[-1].drains += runs
                self.busy["drains"] += runs * (drained * array_cycles(w, self.over_ring, self.target) + self.target.pt_fill_cycles)
            case Does.HALT | Does.WAIT | Does.SIGNAL | Does.TOGETHER | Does.FILL | Does.RECEIVE | Does.PULL:
                pass  # what they take is behind that of others
            case _:
                raise AssertionError(w.op)

    def _sticks(self, w: Word) -> int:
        return self.kernel.descriptors[w["lx"]].bytes // STICK_BYTES

    def _ring(self, w: Word) -> float:
        """Cycles of a link of the ring for what a word sends."""
        d = self.kernel.descriptors[w["src"]]
        return d.bytes / d.entry_bytes * ring_cycles(d.entry_bytes // STICK_BYTES, self.target)

    def _rep(self, w: Word, runs: int, body: list[Word]) -> None:
        self.stages += 1
        opens = any(op.does is Does.FUNCTION and KINDS[op["kind"]].opens for op in body)
        for op, part in zip(body, w.parts, strict=True):
            count = runs * w["groups"] * (w["sticks"] if part == "each" else 1)
            self.busy["SFP"] += count * op_cycles(op, self.target)
            if opens:
                self.widened[w.source] += count * op_cycles(op, self.target)
            if op.does not in MOVES:
                self.vector_ops += count * LANES * self.kernel.cores * self.target.corelets

    def _transfer(self, w: Word, trips: dict[int, int]) -> None:
        loads = self.kernel.descriptors[w["dst"]].space == "lx"
        d = self.kernel.descriptors[w["src" if loads else "dst"]]
        if d.element or w["index"] is not None:
            self._elements(w, d, trips, loads)
            return
        per_core = self._bytes(d, trips)
        readers = list(range(self.kernel.cores))
        if w["group"] is not None:
            readers = sorted(set(self.kernel.groups[w["group"]]))
        moved = sum(per_core[core] for core in readers)
        members = -(-self.kernel.cores // len(readers))
        self.transfers.append(Transfer(loads, d.arg or 0, prod(trips.values()), moved, max(per_core), members))

    def _elements(self, w: Word, d: Descriptor, trips: dict[int, int], loads: bool) -> None:
        """A transfer by elements, run after run as the machine prices it, and the reading of its indices."""
        readers = sorted(set(self.kernel.groups[w["group"]])) if w["group"] is not None else list(range(self.kernel.cores))
        dim = w["dim"] if w["index"] is not None else None
        self._price(loads, ElementPrice(Access(w["src" if loads else "dst"], d, self.kernel), readers, self.target, dim), trips)
        if w["index"] is not None:
            indices = Access(w["index"], self.kernel.descriptors[w["index"]], self.kernel)
            self._price(loads, ElementPrice(indices, readers, self.target, lanes=1), trips, indices=True)

    def _price(self, loads: bool, price: ElementPrice, trips: dict[int, int], *, indices: bool = False) -> None:
        granules, pieces = np.zeros(len(price.owners), np.int64), 0
        for at in itertools.product(*(range(n) for n in trips.values())):
            counters = [0] * LEVELS
            for level, counter in zip(trips, at, strict=True):
                counters[level] = counter
            touched, fragments = price.of(tuple(counters))
            granules += touched
            pieces += 0 if indices else int(fragments.max())
        moved = granules * self.target.dram_granule_bytes
        argument, members = price.access.descriptor.arg or 0, -(-self.kernel.cores // len(granules))
        found = Transfer(loads, argument, prod(trips.values()), int(moved.sum()), int(moved.max()), members, pieces, indices)
        self.transfers.append(found)

    def _bytes(self, d: Descriptor, trips: dict[int, int]) -> list[int]:
        """What all runs move, of each core: sticks with live lanes alone, where lanes are bounded."""
        if not any(b.lanes for b in d.bounds):
            return [self._entries(d, core, trips) * d.entry_bytes for core in range(self.kernel.cores)]
        access = Access(0, d, self.kernel)
        levels = sorted({b.level for b in d.bounds if b.level in trips})
        sticks = np.zeros(self.kernel.cores, np.int64)
        for at in itertools.product(*(range(trips[level]) for level in levels)):
            counters = [0] * LEVELS
            for level, counter in zip(levels, at, strict=True):
                counters[level] = counter
            lanes = access.lanes(tuple(counters))
            live = np.full((1, access.entries), LANES) if lanes is None else lanes
            for stick in range(access.width):
                sticks += np.count_nonzero(live > stick * (LANES // access.width), axis=1)
        others = prod(n for level, n in trips.items() if level not in levels)
        return [int(n) * others * STICK_BYTES for n in sticks]

    def _entries(self, d: Descriptor, core: int, trips: dict[int, int]) -> int:
        """Live entries of all runs on a core."""
        bounds = [b for b in d.bounds if not b.lanes]
        levels = sorted({b.level for b in bounds if b.level in trips})
        free = prod(n for i, n in enumerate(d.extent) if i not in {b.dim for b in bounds})
        others = prod(n for level, n in trips.items() if level not in levels)
        total = 0
        for counters in itertools.product(*(range(trips[level]) for level in levels)):
            at = dict(zip(levels, counters, strict=True))
            total += prod(self._live(b, d, core, at.get(b.level, 0) if b.level is not None else 0) for b in bounds)
        return total * free * others

    def _live(self, b: Bound, d: Descriptor, core: int, counter: int) -> int:
        limit = (self.kernel.tables[b.table][core] if b.table is not None else b.limit) - b.level_step * counter
        if b.dim is None:
            return int(limit > 0)
        return min(max(-(-limit // b.dim_step), 0), d.extent[b.dim])

    def _start(self) -> int:
        """Latency of what the kernel uses: memory, and the units between."""
        if self.transfers:
            return kernel_start(self.target)
        return kernel_start(self.target) - self.target.dram_latency if self.stages else 0

    def result(self) -> KernelWork:
        """Price what was counted."""
        t = self.target
        terms = [
            Term("PT", "weights", self.busy["weights"]),
            Term("PT", "rows", self.busy["rows"]),
            Term("PT", "drains", self.busy["drains"]),
            Term("PT", "weights are widened", sum(p.widening_waits(self.widened[p.source], t) for p in self.products)),
            Term("SFP", "vector ops", self.busy["SFP"]),
            Term("LX", "operands to PT and SFP", self.busy["LX"]),
        ]
        first: dict[int, float] = {}
        last: dict[int, float] = {}
        for x in self.transfers:
            cycles = x.moved / t.dram_bytes_per_cycle
            terms.append(Term("dram", f"{'read' if x.reads else 'write'} argument {x.argument}", cycles, x.moved))
            if x.reads:
                cycles = max(cycles, x.fragments)
                if x.members > 1:
                    cycles = max(cycles, delivery_cycles(x.received, x.members, t))
                terms.append(Term("ring", f"argument {x.argument}", cycles, x.received, x.members))
            else:
                cycles = max(cycles, x.fragments)
                terms.append(Term("stores", f"argument {x.argument}", cycles, x.moved))
            if x.reads:
                first.setdefault(x.argument, cycles / max(x.runs, 1))
            else:
                last[x.argument] = cycles / max(x.runs, 1)
        if t.dram_turnaround:
            read, written = (sum(x.moved for x in self.transfers if x.reads is kind) for kind in (True, False))
            terms.append(Term("dram", "turnaround between reads and writes", turnaround_cycles(read, written, t)))
        terms += [
            Term("fill", "the first blocks come, the last ones leave", sum(first.values()) + sum(last.values())),
            Term("ring", "entries from core to core", self.sent + self.way),
            Term("start", "latency of memory and units, launch", self._start()),
            Term("start", "an op waits for the op before it", max(self.stages - 1, 0) * stage_latency(t)),
        ]
        return KernelWork(tuple(self.transfers), self.multiplications, self.lane_products, self.vector_ops, combine(terms))
