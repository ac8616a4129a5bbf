"""The model: a problem under one division -> its price."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ktir.cost.attention import attention_cost, takes_whole_rows
from ktir.cost.estimate import Cost, Term, combine, delivery_cycles, half, kernel_start, multiply_cycles, widening_waits
from ktir.cost.problem import Operand, Problem
from ktir.cost.tiles import (
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    MOST_BLOCKS,
    Share,
    Tiles,
    block_cycles,
    matmul_tiles,
    overlapping_rows,
    part_cycles,
    waits,
)
from ktir.isa.cycles import turnaround_cycles
from ktir.target import LANES, STICK_BYTES, Target


class Division(NamedTuple):
    """Per loop of a problem: into how many parts it is cut, and the units that a part has; the last part may have fewer.

    `padded` = every part is stored and moved as if it were whole.
    """

    splits: tuple[int, ...]
    shares: tuple[int, ...]
    padded: bool = False

    @property
    def cores(self) -> int:
        """Cores that have work."""
        return prod(self.splits)


class Model:
    """Prices divisions of one problem on one target."""

    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.target = problem, target
        number = {loop.name: i for i, loop in enumerate(problem.loops)}
        self.dims = {o.name: tuple(number[x] for x in o.loops) for o in problem.operands}
        """Loop numbers of each operand's dimensions."""
        self.bytes = {o.name: self._whole(o) for o in problem.operands}
        """Bytes of each operand, padding of sticks included."""
        every = range(len(problem.loops))
        self._others = {name: tuple(i for i in every if i not in dims) for name, dims in self.dims.items()}
        self._blocks = [loop.blocks for loop in problem.loops]
        self._units = [loop.unit for loop in problem.loops]
        self._reduced = tuple(i for i, loop in enumerate(problem.loops) if loop.reduction)
        if problem.kind == "matmul":
            self._batches, self._rows, self._columns = (problem.roles[role] for role in "bmn")
            if problem.inputs[0].halo:  # windows are seen at one position of each batch axis at a time
                single = tuple(i for i in self._rows if problem.loops[i].even)
                self._batches, self._rows = (*self._batches, *single), tuple(i for i in self._rows if i not in single)
        self._halo = {o.name: {number[loop]: n for loop, n in o.halo} for o in problem.operands}
        self._once = sum(self.bytes[o.name] for o in problem.operands if not o.resident) / target.dram_bytes_per_cycle
        """Cycles of memory for every byte once."""
        self._start = Term("start", "latency of memory and units, launch", kernel_start(target))

    def _whole(self, operand: Operand) -> int:
        if operand.whole_bytes is not None:
            return operand.whole_bytes
        if operand.layouts:
            return operand.layouts[0].sticks * STICK_BYTES
        loops = (self.problem.loops[i] for i in self.dims[operand.name])
        return prod(loop.blocks * loop.unit for loop in loops) * operand.element_bytes

    def cost(self, division: Division) -> Cost | None:
        """The price, or None if a core's smallest block does not fit its scratchpad."""
        if self.problem.kind == "softmax":
            return attention_cost(self.problem, division.splits, division.shares, self.bytes, self.target)
        return self._matmul(division) if self.problem.kind == "matmul" else self._vector(division)

    def takes_whole_rows(self, division: Division) -> bool:
        """Whether a softmax between matmuls has whole rows of scores under a division."""
        problem, softmax = self.problem, self.problem.kind == "softmax"
        return softmax and takes_whole_rows(problem, division.splits, division.shares, self.bytes, self.target)

    def at_least(self, division: Division) -> float:
        """Cycles that a division takes whatever its blocks are: the work of a core, and every byte once."""
        if self.problem.kind != "matmul":
            return 0.0
        batches, m, n, k = self._shares(division)
        target = self.target
        parts = prod(division.splits[i] for i in self._reduced)
        own = half(m, target.corelets if parts == 1 else target.partial_sum_corelets)
        loads = -(-m // (2 * target.pt_accumulator_rows)) * target.pt_weight_cycles
        sums = (parts - 1) * batches * m * n * LANES * 4 / target.partial_sum_bytes_per_cycle
        return max(batches * n * k * (loads + target.pt_row_cycles * own / target.pt_efficiency), self._once) + sums + self._start.cycles

    def tiles(self, division: Division) -> Tiles | None:
        """How each core cuts its share of a matmul."""
        return self._tiles(division, *self._shares(division)[1:])

    def _tiles(self, division: Division, m: int, n: int, k: int) -> Tiles | None:
        first, second = self.problem.inputs[:2]
        passes, rate = prod(division.shares[i] for i in self._batches), self.target.dram_bytes_per_cycle
        own, weights = (self.bytes[o.name] / rate / passes for o in (first, second))
        alone = self.problem.alone and not self._batches and all(division.splits[i] == 1 for i in self._reduced)
        result = 0.0 if self.problem.output.resident else self.bytes[self.problem.output.name] / rate / passes
        others = sum(self.bytes[o.name] for o in self.problem.inputs[2:] if not o.resident) / rate / passes
        return matmul_tiles(Share(m, n, k, own, weights, result, others, self.problem.widening, alone), self.target)

    def _shares(self, division: Division) -> tuple[int, int, int, int]:
        """A core's batches, rows, sticks of columns, sticks of the reduced loop."""
        shares, units = division.shares, self._units
        b = m = n = k = 1
        for i in self._batches:
            b *= shares[i] * units[i]
        for i in self._rows:
            m *= shares[i] * units[i]
        for i in self._columns:
            n *= shares[i] * units[i]
        for i in self._reduced:
            k *= shares[i] * units[i]
        return b, m, -(-n // LANES), -(-k // LANES)

    # Memory

    def _moved(self, operand: Operand, division: Division) -> float:
        """Bytes of an operand, each once for the whole chip."""
        whole: float = self.bytes[operand.name]
        for i, more in self._halo[operand.name].items():
            whole *= (self._blocks[i] + more * division.splits[i]) / (self._blocks[i] + more)
        if not division.padded:
            return whole
        return whole * prod(division.splits[i] * division.shares[i] / self._blocks[i] for i in self.dims[operand.name])

    def _load(self, operand: Operand, division: Division, reads: int, terms: list[Term]) -> float:
        """Add the terms of an input that is read `reads` times; returns the cycles of all its loads."""
        if operand.resident:
            return 0.0
        moved = self._moved(operand, division) * reads
        cycles = moved / self.target.dram_bytes_per_cycle
        terms.append(Term("dram", operand.name, cycles, moved, reads))
        members = 1
        for i in self._others[operand.name]:
            members *= division.splits[i]
        if members > 1:
            per_core: float = self.bytes[operand.name] * reads
            for i in self.dims[operand.name]:
                per_core *= division.shares[i] / self._blocks[i]
            cycles = max(cycles, delivery_cycles(per_core, members, self.target))
            terms.append(Term("ring", operand.name, cycles, per_core, members))
        else:
            terms.append(Term("ring", operand.name, cycles))
        return cycles

    def _store(self, division: Division, terms: list[Term]) -> float:
        output = self.problem.output
        if output.resident:
            return 0.0
        moved = self._moved(output, division)
        cycles = moved / self.target.dram_bytes_per_cycle
        terms.append(Term("dram", output.name, cycles, moved, 1))
        if self.target.dram_turnaround:
            read = sum(t.bytes for t in terms if t.unit == "dram") - moved
            terms.append(Term("dram", "turnaround between reads and writes", turnaround_cycles(read, moved, self.target)))
        return cycles

    def _partial_sums(self, division: Division, sums: float, terms: list[Term]) -> None:
        parts = 1
        for i in self._reduced:
            parts *= division.splits[i]
        if parts > 1:
            moved = (parts - 1) * sums * 4
            terms.append(Term("partial sums", "parts in a chain", moved / self.target.partial_sum_bytes_per_cycle, moved, parts))

    def _vector_reads(self, operand: Operand, division: Division, trips: int) -> int:
        """How often a kernel of vector ops reads an operand, whose rows it walks in `trips` blocks inside of its batch loops."""
        dims = self.dims[operand.name]
        batches = [i for i, loop in enumerate(self.problem.loops) if loop.even]
        rows = any(loop.unit == 1 and not loop.even and i in dims for i, loop in enumerate(self.problem.loops))
        inner = len(batches) if rows and trips > 1 else max((n for n, i in enumerate(batches, 1) if i in dims), default=0)
        return prod(division.shares[i] for i in batches[:inner] if i not in dims)

    # Kinds

    def _matmul(self, division: Division) -> Cost | None:
        problem, target = self.problem, self.target
        batches, m, n, k = self._shares(division)
        tiles = self._tiles(division, m, n, k)
        if tiles is None:
            return None
        corelets = target.corelets
        for i in self._reduced:
            if division.splits[i] > 1:
                corelets = target.partial_sum_corelets
        rows = half(tiles.rows, corelets)
        passes = batches * tiles.trips
        blocks = passes * n * k
        drains = passes * n
        parts = passes * part_cycles(tiles.rows, n, tiles.k_parts, target)
        feed = blocks * (LANES + rows)
        terms = [
            Term("PT", "blocks of 64x64 weights", multiply_cycles(rows, blocks, target), 0.0, blocks),
            Term("PT", "weights are widened", widening_waits(rows, drains, k, problem.widening, target), 0.0, blocks),
            Term("PT", "drains", drains * (target.pt_fill_cycles + rows), 0.0, drains),
            Term("PT", "sums of parts are added", parts, 0.0, passes * n * (tiles.k_parts - 1)),
            Term("SFP", "epilogue", drains * rows * problem.vector_cycles, 0.0, drains),
            Term("LX", "weights and rows to PT", feed, feed * STICK_BYTES),
        ]
        first, second, *others = problem.inputs
        reads = tiles.row_reads(n)
        own = self._load(first, division, reads, terms) / (batches * reads)
        # weights that stay in the scratchpad must still be read for each batch of their own, which their loops say
        single = bool(first.halo) and batches > 1  # one position after the other: what all use stays, or is loaded for each
        again = batches if single and n * k * BLOCK_BYTES > target.lx_planned_bytes // 2 else 1
        weights = self._load(second, division, tiles.weight_reads * again, terms) / (batches * tiles.weight_reads)
        if single and again == 1:
            terms.append(Term("fill", "weights come before the first position", weights * batches))
        for operand in others:
            self._load(operand, division, 1, terms)
        share = Share(tiles.rows * tiles.trips, n, k, own, weights, self._store(division, terms) / batches)
        filled = tiles.kept and not self._batches  # else they are loaded while the batch before is worked on
        block = block_cycles(tiles.rows, n, k, target, problem.widening)
        waiting = waits(share, tiles.trips, tiles.streamed, filled, block, target, tiles.k_parts)
        terms.append(Term("fill", "the first block comes, the last one leaves", waiting))
        if not self._batches:  # else they leave while the next batch is loaded
            terms.append(Term("tail", "results that leave when all has been loaded", share.result / (tiles.trips * n)))
        self._partial_sums(division, batches * tiles.rows * tiles.trips * n * LANES, terms)
        terms.append(self._start)
        return combine(terms)

    def _vector(self, division: Division) -> Cost:
        problem, target = self.problem, self.target
        rows = prod(share for share, unit in zip(division.shares, self._units, strict=True) if unit == 1)
        sticks = -(-prod(share * unit for share, unit in zip(division.shares, self._units, strict=True) if unit > 1) // LANES)
        points = rows * sticks * LANES
        groups = half(rows, target.corelets) * sticks  # a single row is worked on by both
        width = sum(o.element_bytes for o in problem.inputs) * LANES / STICK_BYTES
        terms = [
            Term("SFP", "sticks", groups * problem.vector_cycles, 0.0, groups),
            Term("LX", "operands to SFP", groups * width, groups * width * STICK_BYTES),
        ]
        outer = prod(share for share, loop in zip(division.shares, problem.loops, strict=True) if loop.even)
        own = max(rows // outer, 1)
        blocks = -(-own // overlapping_rows(own, outer, sticks))
        loads = sum(self._load(o, division, self._vector_reads(o, division, blocks), terms) for o in problem.inputs)
        stores = self._store(division, terms)
        held = 2 * points * (sum(o.element_bytes for o in problem.operands))
        trips = max(-(-held // target.lx_planned_bytes), min(rows * sticks // BLOCK_ENTRIES, half(rows, target.corelets), MOST_BLOCKS), 1)
        terms.append(Term("fill", "the first block comes, the last one leaves", (loads + stores) / trips))
        sums = prod(division.shares[i] * self._units[i] for i in self.dims[problem.output.name])
        self._partial_sums(division, sums, terms)
        terms.append(self._start)
        return combine(terms)


def roofline_cycles(problem: Problem, target: Target) -> float:
    """Cycles that no division can beat: every byte once at the full memory rate, or every iteration on all cores."""
    model = Model(problem, target)
    moved = sum(model.bytes[o.name] for o in problem.operands if not o.resident)
    rate = target.cores * target.corelets * LANES
    if problem.kind == "matmul":
        compute = problem.work / (rate * LANES / target.pt_row_cycles * target.pt_efficiency)
    else:
        compute = problem.work * problem.vector_cycles / rate
    return max(moved / target.dram_bytes_per_cycle, compute)
