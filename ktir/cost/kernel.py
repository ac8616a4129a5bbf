"""The price of a whole kernel: its ops one after the other on a block of rows, block after block.

A core's units each work through their part of a block in program order: loads come one after the other, an op starts when its operands
are there, results are stored as they are made. That is what the first block takes. Each further one takes as long as the unit that has most
to do, or as a buffer is occupied from the request of its load to its last use, shared among as many buffers as there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ktir.cost.estimate import Cost, Term
from ktir.isa.cycles import turnaround_cycles
from ktir.target import Target


@dataclass(frozen=True, eq=False)
class Load:
    """A transfer to the scratchpad: bytes over the memory channel and cycles of one transfer, and how many transfers there are.

    `buffers`: transfers that may be under way. `blocks`: weights come in so many, one after the other as they are used. `answers` of memory
    that a transfer waits for; `members`: cores that receive the same.
    """

    what: str
    moved: float
    cycles: float
    times: int
    buffers: int
    blocks: int = 0
    answers: int = 1
    members: int = 1


@dataclass(frozen=True)
class Store:
    """A transfer to memory, of each block. `pieces`: parts that are stored as they are finished. `answers` of memory that it waits for."""

    moved: float
    cycles: float
    pieces: int = 1
    answers: int = 0


@dataclass(frozen=True)
class Stage:
    """An op on one block: cycles of PT and of the vector unit, the loads that it reads, the stages before it whose results it reads."""

    pt: float
    sfp: float
    loads: tuple[Load, ...]
    needs: tuple[int, ...]
    stores: tuple[Store, ...] = ()

    @property
    def cycles(self) -> float:
        """Cycles on a block whose operands are there."""
        return max(self.pt, self.sfp)


def kernel_cost(stages: Sequence[Stage], trips: int, target: Target) -> Cost:
    """Cycles of a kernel of `trips` blocks, by unit."""
    return _Kernel(stages, trips, target).cost()


class _Kernel:
    def __init__(self, stages: Sequence[Stage], trips: int, target: Target) -> None:
        self.stages, self.trips, self.target = stages, trips, target
        self.answer = target.dram_latency + target.signal_cycles
        self.handed_on = target.sfp_latency + target.signal_cycles
        """From the last element of an op to where the next one may read it, or memory take it."""
        self.loads = list(dict.fromkeys(load for stage in stages for load in stage.loads))
        self.stores = [store for stage in stages for store in stage.stores]

    def cost(self) -> Cost:
        """All terms together; `fill` is the time in which nothing but waiting happens."""
        rate, trips = self.target.dram_bytes_per_cycle, self.trips
        terms = [
            Term("PT", "matmuls", sum(s.pt for s in self.stages) * trips),
            Term("SFP", "vector ops", sum(s.sfp for s in self.stages) * trips),
            *(Term("dram", x.what, x.moved * x.times / rate, x.moved * x.times, x.times) for x in self.loads),
            *(Term("dram", "stored", s.moved * trips / rate, s.moved * trips, 1) for s in self.stores),
            *(Term("ring", x.what, x.cycles * x.times, x.moved * x.times, x.members) for x in self.loads),
            *(Term("stores", "stored", s.cycles * trips) for s in self.stores),
        ]
        read, written = sum(x.moved * x.times for x in self.loads), sum(s.moved for s in self.stores) * trips
        if self.target.dram_turnaround:
            lost = turnaround_cycles(read, written, self.target)
            terms.append(Term("dram", "turnaround between reads and writes", lost))
        busy = {unit: sum(t.cycles for t in terms if t.unit == unit) for unit in ("PT", "SFP", "dram", "ring", "stores")}
        cycles = max(self._first() + (trips - 1) * self._further(), *busy.values())
        terms.append(Term("fill", "ops and transfers wait for each other", cycles - max(busy["PT"], busy["SFP"])))
        return Cost(cycles, tuple(terms))

    def _gap(self, load: Load, stage: Stage) -> float:
        """Cycles from one block of weights to the next one, where they are loaded as buffers become free. On its way to memory a request
        may stand behind the store of what is finished."""
        stored = sum(s.moved / s.pieces for s in stage.stores if s.pieces > 1) / self.target.dram_bytes_per_cycle
        each, worked = load.cycles / load.blocks, stage.cycles / load.blocks
        return max(worked, each, (self.answer + stored + each + worked + self.target.signal_cycles) / load.buffers)

    def _taken(self, stage: Stage) -> float:
        """Cycles of an op whose first weights are there; the others come while it runs."""
        taken = [stage.cycles]
        for load in stage.loads:
            if load.blocks:
                late = max(load.blocks - load.buffers, 0)
                taken.append(late * self._gap(load, stage) + (load.blocks - late) * stage.cycles / load.blocks)
                taken.append(load.cycles * (1 - 1 / load.blocks) + stage.cycles / load.blocks)
        return max(taken)

    def _first(self) -> float:
        """The first block, from the launch until its last result is in memory."""
        loaded: set[Load] = set()
        requested = landed = free = stored = answered = 0.0
        done: list[float] = []
        for stage in self.stages:
            ready = max([free, *(done[i] for i in stage.needs)])
            for load in stage.loads:
                if load in loaded:
                    continue
                loaded.add(load)
                requested += load.cycles / max(load.blocks, 1)
                landed = max(landed, requested + self.answer + (load.answers - 1) * self.target.dram_latency)
                ready = max(ready, landed)
            end = ready + self._taken(stage)
            for load in stage.loads:
                if load.blocks:
                    requested += load.cycles * (1 - 1 / load.blocks)
                if load.blocks > load.buffers:  # what is loaded next waits until there is a buffer for the last of the weights
                    requested = max(requested, end - load.buffers * self._gap(load, stage))
            free = end
            done.append(end + (self.handed_on if stage.cycles else 0))
            for store in stage.stores:
                early = done[-1] - (end - ready) * (1 - 1 / store.pieces)
                stored = max(max(stored, early) + store.cycles, done[-1] + store.cycles / store.pieces)
                answered = max(answered, stored + store.answers * self.target.dram_latency)
        return max([answered, free, *done])

    def _further(self) -> float:
        """Each further block."""
        trips = self.trips
        waits = sum(self.handed_on + self.target.signal_cycles for i, s in enumerate(self.stages) if i - 1 in s.needs)
        compute = sum(map(self._taken, self.stages)) + waits
        loads = sum(x.cycles * x.times for x in self.loads) / trips
        stores = sum(s.cycles for s in self.stores)
        moved = (sum(x.moved * x.times for x in self.loads) / trips + sum(s.moved for s in self.stores)) / self.target.dram_bytes_per_cycle
        return max([compute, loads, stores, moved, *self._occupied()])

    def _occupied(self) -> Iterator[float]:
        """Cycles per block for which buffers of streams and of what is stored are in use."""
        passed = 0.0
        until: dict[Load, float] = {}
        for stage in self.stages:
            passed += self._taken(stage)
            until.update((load, passed) for load in stage.loads if not load.blocks and load.times > 1)
            for store in stage.stores:
                moved = (self._taken(stage) + store.cycles) / store.pieces
                yield moved + self.handed_on + self.target.signal_cycles + store.answers * self.target.dram_latency
            passed += self.handed_on + self.target.signal_cycles
        for load, used in until.items():
            answered = self.answer + (load.answers - 1) * self.target.dram_latency + self.target.signal_cycles
            yield (answered + load.cycles + used) / load.buffers * load.times / self.trips
