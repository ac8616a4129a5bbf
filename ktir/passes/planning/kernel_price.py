"""What a whole kernel takes under a division: all its matmuls, vector ops, loads and stores, in the blocks that `ktir-tile` will cut."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod

from ktir.analysis.items import Contraction, Item, Op, Pointwise, Reduction, Tensor
from ktir.analysis.items import Store as StoreItem
from ktir.cost.estimate import Cost, Term, delivery_cycles, half
from ktir.cost.kernel import Load, Stage, Store, kernel_cost
from ktir.cost.model import Division, Model
from ktir.cost.problem import Problem
from ktir.cost.tiles import (
    ROW_BUFFERS,
    ROW_STICKS,
    WEIGHT_BUFFERS,
    Share,
    block_cycles,
    matmul_tiles,
    overlapping_rows,
    part_cycles,
    stream_buffers,
)
from ktir.passes.division.kernel_facts import KernelFacts, Reading
from ktir.passes.division.softmax_problem import softmax_problem
from ktir.passes.division.work import Work
from ktir.passes.planning.block_room import BlockRoom, Step
from ktir.passes.scratchpad.rotation import rotation
from ktir.target import LANES, Target


def kernel_price(facts: KernelFacts, work: Work, target: Target, resident: Collection[Tensor] = ()) -> Cost:
    """Cycles of a kernel, by unit. What is `resident` lies in the scratchpad and is neither loaded nor stored.

    A softmax over blocks of keys sees those that a mask leaves, and is pipelined: that is the price of its division.
    """
    problem = None if facts.columns or not facts.contractions else softmax_problem(facts)
    by_blocks = None
    if problem is not None:
        own = {name: (n, share) for name, n, share in zip(facts.names, work.parts, work.shares, strict=True)}
        division = tuple(own.get(loop.name, (1, loop.blocks)) for loop in problem.loops)
        by_blocks = _by_blocks_of_keys(replace(problem, name=""), division, target)
    return by_blocks or min((price.cost() for price in _forms(facts, work, target, resident)), key=lambda cost: cost.cycles)


@lru_cache(maxsize=1024)
def _by_blocks_of_keys(problem: Problem, division: tuple[tuple[int, int], ...], target: Target) -> Cost | None:
    """The price of a softmax between matmuls whose loops have so many parts of such shares; None where whole rows of scores are better, or
    no block fits."""
    parts, shares = zip(*division, strict=True)
    model, divided = Model(problem, target), Division(parts, shares)
    return None if model.takes_whole_rows(divided) else model.cost(divided)


def _forms(facts: KernelFacts, work: Work, target: Target, resident: Collection[Tensor]) -> Iterator[_Price]:
    """In the blocks that are best for the longest matmul; where these leave no room for other tensors, in the largest that do."""
    best = _Price(facts, work, target, resident)
    share, once = best.shares["m"], best.outer == 1 and bool(facts.contractions)
    room = BlockRoom(facts, work, best.steps, resident, target)
    if best.rows <= room.rows(best.rows, streamed=best.streamed, once=once and best.row_trips == 1):
        yield best
        return
    forms = (False, True) if once else (False,)
    fitting = [(rows, streamed) for streamed in forms if (rows := room.rows(share, streamed=streamed, once=once)) > 1]
    for rows, streamed in fitting:
        yield _Price(facts, work, target, resident, (min(rows, best.rows), streamed))
    if not fitting:  # `ktir-tile` sees some sticks of a row at a time
        yield best


class _Price:
    def __init__(
        self, facts: KernelFacts, work: Work, target: Target, resident: Collection[Tensor] = (), form: tuple[int, bool] | None = None
    ) -> None:
        """`form`: rows of a block, and whether first operands come stick by stick, where the longest matmul does not say it."""
        self.facts, self.work, self.target, self.resident = facts, work, target, resident
        self.parts = dict(zip(facts.names, work.parts, strict=True)) | {"n": work.column_parts}
        self.shares = dict(zip(facts.names, work.shares, strict=True))
        self.batches = [name for name in facts.names[:-1] if self.shares[name] > 1]
        """Axes that are loops, outer to inner."""
        self.outer = prod(self.shares[name] for name in self.batches)
        self.streamed = self.kept = False
        self.k_parts = 1
        self.rows, self.streamed = form or (self._block_rows(), self.streamed)
        self.row_trips = -(-self.shares["m"] // self.rows)
        self.trips = self.outer * self.row_trips
        self.readers: dict[Tensor, list[Item]] = {}
        for item in (*facts.ops, *facts.stores):
            for value in dict.fromkeys(item.sources):
                self.readers.setdefault(value, []).append(item)
        self.loads: dict[Reading, Load] = {}
        self.steps = self._steps()

    def cost(self) -> Cost:
        """All terms together."""
        found = kernel_cost(self._stages(), self.trips, self.target)
        serial = Term("start", "launch", self.target.launch_cycles), self._partial_sums()
        return found._replace(cycles=found.cycles + sum(t.cycles for t in serial), terms=(*found.terms, *serial))

    def _block_rows(self) -> int:
        """Rows of a block."""
        share = self.shares["m"]
        most = 2 * self.target.pt_accumulator_rows
        if not self.facts.contractions:
            sticks = max((self._own_sticks(tensor, "n" in names) for tensor, names in self.facts.loads), default=1)
            return min(overlapping_rows(share, self.outer, sticks), most)
        if self.outer == 1:
            item = max(self.facts.contractions, key=lambda i: i.matmul_extents)
            rate = self.target.dram_bytes_per_cycle
            first, second, result = (tensor.bytes / rate for tensor in (*item.sources[:2], item.value))
            own = Share(
                share,
                self._columns(item),
                self._depth(item),
                first,
                second,
                result,
                widening=item.widening,
                alone=self.work.sums == 1 and self.facts.multiplies_alone,
            )
            if (tiles := matmul_tiles(own, self.target)) is not None:
                self.streamed, self.kept, self.k_parts = tiles.streamed, tiles.kept, tiles.k_parts
                return min(tiles.rows, share)
        return min(share, most)

    # Ops

    def _steps(self) -> list[Step]:
        """Ops in order; what is computed on each finished stick of a matmul belongs to it."""
        steps: list[Step] = []
        ops = list(self.facts.ops)
        while ops:
            item = ops.pop(0)
            fused = self._fused(item, ops)
            if fused is not None:
                ops.remove(fused)
            steps.append((item, fused))
        return steps

    def _stages(self) -> list[Stage]:
        stages: list[Stage] = []
        made: dict[Tensor, int] = {}
        for item, fused in self.steps:
            stages.append(self._stage(item, fused, made))
            made[item.value] = made[(fused or item).value] = len(stages) - 1
        copied = dict.fromkeys(item.value for item in self.facts.stores if item.value not in made)
        return [*stages, *map(self._copy, copied)]

    def _fused(self, item: Op, later: list[Op]) -> Op | None:
        """The op that is computed on each finished stick of a matmul."""
        if not isinstance(item, Contraction):
            return None
        reader, *others = self.readers.get(item.value, [None])
        if reader not in later or others or reader is None or not isinstance(reader, Pointwise) or reader.positional:
            return None
        if reader.walks[reader.sources.index(item.value)] != reader.walks[-1]:  # it spreads a column, a row or a scalar
            return None
        waiting = {other.value for other in later}
        return None if any(value in waiting for value in reader.sources) else reader

    def _stage(self, item: Op, fused: Op | None, made: dict[Tensor, int]) -> Stage:
        both = [item] if fused is None else [item, fused]
        loads = tuple(x for one in both for i in range(len(one.sources)) if (x := self._load(one, i)) is not None)
        needs = tuple(sorted({made[value] for one in both for value in one.sources if value in made}))
        last = both[-1].value
        stores = self._stores(last, isinstance(item, Contraction))
        own = half(self.rows, self.target.corelets)
        if not isinstance(item, Contraction):
            return Stage(0.0, self._vector(item), loads, needs, stores)
        sticks = self._columns(item)
        depth = self._depth(item)
        pt = block_cycles(self.rows, sticks, depth, self.target, item.widening)
        pt += part_cycles(self.rows, sticks, self.k_parts, self.target)
        vector = own * sticks if fused is None else self._vector(fused)
        return Stage(pt, vector + sticks * depth * item.widening, loads, needs, stores)

    def _vector(self, item: Op) -> float:
        """Cycles of the vector unit on a block, or of what brings it its operands."""
        rows, sticks = half(self._rows(item), self.target.corelets), self._sticks(item)
        summed = isinstance(item, Reduction)
        cycles = rows * (sticks * max(item.work, 1) + summed * self.target.sfp_lane_reduction_cycles)
        loop = len(item.row_loops) if summed else 0
        brought = 0
        for tensor, walk in zip(item.sources, item.walks, strict=False):
            width = tensor.bytes // max(prod(tensor.shape), 1) // 2 or 1
            brought += rows * (sticks if walk[0] == loop else 1) * width
        return max(cycles, brought)

    def _rows(self, item: Op) -> int:
        """Rows of a block that an op walks."""
        return self.rows if len(self.facts.extents) - 1 in self.facts.axes[item.number].values() else 1

    def _columns(self, item: Op) -> int:
        return self.work.stick_share if self.facts.columns else item.value.shape[0]

    def _depth(self, item: Contraction) -> int:
        return self.work.depth_share or item.matmul_extents[2]

    def _sticks(self, item: Op) -> int:
        """Sticks of one core that an op walks in a row."""
        return max(source.shape[0] for source in item.sources) if isinstance(item, Reduction) else self._columns(item)

    def _own_sticks(self, tensor: Tensor, dealt: bool) -> int:
        return -(-tensor.shape[0] // self.work.column_parts) if dealt else tensor.shape[0]

    # Transfers

    def _copy(self, tensor: Tensor) -> Stage:
        """What was loaded, or a constant, and is stored."""
        reading = next((key for key in self.facts.loads if key[0] is tensor), None)
        return Stage(0.0, 0.0, () if reading is None else (self._rows_load(reading),), (), self._stores(tensor, False))

    def _load(self, item: Op, operand: int) -> Load | None:
        value = item.sources[operand]
        if value in self.resident or (not value.loaded and (value in self.facts.made or not value.made)):
            return None
        key = self.facts.reading(item, operand)
        if key not in self.loads:
            matmul = item if isinstance(item, Contraction) else None
            self.loads[key] = self._weights(matmul, key) if matmul and operand == 1 else self._rows_load(key, matmul)
        return self.loads[key]

    def _walked(self, names: tuple[str, ...]) -> tuple[int, int]:
        """Of a tensor along these axes: the parts that a core loads one after the other, and how many transfers that takes."""
        inside = [name for name in self.batches if name in names]
        parts = prod(self.shares[name] for name in inside) * (self.row_trips if "m" in names else 1)
        if "m" in names and not (self.row_trips == 1 and (not inside or inside[-1] != self.batches[-1])):
            return parts, self.trips
        deepest = max((i for i, name in enumerate(self.batches, 1) if name in names), default=0)
        return parts, prod(self.shares[name] for name in self.batches[:deepest])

    def _transfer(self, key: Reading, parts: int, sums: int) -> tuple[float, float, float, int]:
        """Of the transfer of one of `parts` parts: bytes over the channel, cycles, bytes of a core, cores that share them."""
        tensor, names = key
        own = prod(self.parts[name] for name in names) * sums
        moved, members = self._moved(tensor, tensor.bytes) / parts, max(self.work.cores // own, 1)
        cycles = max(moved / self.target.dram_bytes_per_cycle, tensor.pieces / own / parts)
        if members > 1:
            cycles = max(cycles, delivery_cycles(moved / own, members, self.target))
        return moved, cycles, moved / own, members

    def _moved(self, what: Tensor | StoreItem, packed: int) -> float:
        """Bytes of a load or store in blocks, `packed` where it lies in sticks."""
        return what.moved * what.sharing / min(what.sharing, self.rows) if what.moved else packed

    def _rows_load(self, key: Reading, matmul: Contraction | None = None) -> Load:
        tensor, names = key
        parts, times = self._walked(names)
        moved, cycles, own, members = self._transfer(key, parts, 1 if matmul is None else self.work.sums)
        answers = 1 + tensor.indirect
        if matmul is not None and self.streamed:
            again, depth = self._columns(matmul), self._depth(matmul)
            return Load("rows", moved * again, cycles * again, times, ROW_STICKS, again * depth, members=members)
        if matmul is not None and self.k_parts > 1:
            return Load("rows", moved, cycles, times, ROW_BUFFERS, self.k_parts, answers, members)
        return Load("rows", moved, cycles, times, stream_buffers(max(int(own), 1), answers, self.target), 0, answers, members)

    def _weights(self, item: Contraction, key: Reading) -> Load:
        _, names = key
        columns, depth = self._columns(item), self._depth(item)
        parts, times = self._walked(names)
        moved, cycles, _, members = self._transfer(key, parts, self.work.sums)
        if self.outer > 1 and times < self.trips:
            return Load("weights", moved, cycles, times, ROW_BUFFERS, 0, 1, members)
        buffers = rotation([self.trips, columns, depth], WEIGHT_BUFFERS).slots
        return Load("weights", moved, cycles, 1 if self.kept else self.trips, buffers, columns * depth, 1, members)

    def _stores(self, tensor: Tensor, of_matmul: bool) -> tuple[Store, ...]:
        """Stores of a result; those of a matmul whose result is only stored leave stick by stick."""
        found = [item for item in self.facts.stores if item.value is tensor and tensor not in self.resident]
        alone = of_matmul and len(self.readers.get(tensor, [])) == len(found)
        stores = []
        for item in found:
            moved = self._moved(item, tensor.bytes) / self.trips
            cycles = max(moved / self.target.dram_bytes_per_cycle, item.pieces / self.work.cores / self.trips)
            pieces = self._own_sticks(tensor, bool(self.facts.columns)) if alone and not item.indirect else 1
            stores.append(Store(moved, cycles, pieces, int(item.indirect)))
        return tuple(stores)

    def _partial_sums(self) -> Term:
        """What cores that share the reduced loop hand to each other."""
        elements = sum(self.shares["m"] * self._columns(item) * LANES for item in self.facts.contractions) if self.work.sums > 1 else 0
        moved = (self.work.sums - 1) * elements * 4
        return Term("partial sums", "parts in a chain", moved / self.target.partial_sum_bytes_per_cycle, moved, self.work.sums)
