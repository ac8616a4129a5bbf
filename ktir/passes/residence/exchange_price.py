"""Whether a tensor should go from core to core over the ring: what it takes there, and what the kernels around it no longer wait for.

A kernel takes as long as its units or the memory channel, whichever is slower, so what it moves meanwhile may cost nothing; an exchange
is a kernel of its own, which nothing hides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil, prod

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.cost.bodies import stick_cycles
from ktir.cost.estimate import half, multiply_cycles, stage_latency
from ktir.dialects.structured import Generic
from ktir.isa.cycles import ring_cycles
from ktir.mlir import func, ir, is_a, linalg
from ktir.passes.residence.pool_accesses import PoolAccess
from ktir.passes.residence.rounds import Round
from ktir.target import LANES, Target

SURE = 1.5
"""How many times what it takes an exchange must save: other cores' latency and other ops may hide what memory takes as well."""


def exchange_cycles(rounds: Sequence[Round], sticks: int, target: Target) -> tuple[int, int]:
    """Cycles for the entries of an exchange, of `sticks` sticks each, and until the last one has arrived."""
    return ceil(sum(r.crossing for r in rounds) * ring_cycles(sticks, target)), max(r.hops for r in rounds) + 1


class Traffic:
    """What the kernels of a program take, and how much of it is for the memory of which argument."""

    def __init__(self, kernels: Sequence[func.FuncOp], accesses: Mapping[int, Sequence[PoolAccess]], target: Target) -> None:
        self.target = target
        self.compute = [_compute_cycles(kernel, target) for kernel in kernels]
        self.memory: list[dict[int, float]] = [{} for _ in kernels]
        """Per kernel: argument -> cycles of the memory channel."""
        self.reads: list[set[int]] = [set() for _ in kernels]
        """Per kernel the arguments that it reads."""
        for argument, found in accesses.items():
            for access in found:
                cycles = _bytes(access) / target.dram_bytes_per_cycle
                self.memory[access.kernel][argument] = self.memory[access.kernel].get(argument, 0.0) + cycles
                if not access.writes:
                    self.reads[access.kernel].add(argument)

    def saved(self, arguments: Collection[int], elsewhere: Collection[int]) -> float:
        """Cycles that all kernels together save if `arguments` are not in memory, where those `elsewhere` are not either."""
        before, after = set(elsewhere), {*elsewhere, *arguments}
        return sum(self._cycles(k, before) - self._cycles(k, after) for k in range(len(self.compute)))

    def _cycles(self, kernel: int, elsewhere: Collection[int]) -> float:
        memory = sum(cycles for argument, cycles in self.memory[kernel].items() if argument not in elsewhere)
        waits = self.target.dram_latency if self.reads[kernel].difference(elsewhere) else 0
        return max(self.compute[kernel], memory) + waits


def _bytes(access: PoolAccess) -> int:
    """Bytes that an access moves, each once for the whole chip; where its entries are not known, those of a core for each core."""
    if access.footprint is not None:
        return access.footprint.entry_count() * LANES * access.element_bytes
    return prod(access.op.operands[-1].type.shape) * access.element_bytes * access.cores


def _compute_cycles(kernel: func.FuncOp, target: Target) -> float:
    """Cycles of the slower one of PT and the vector unit, and of the ops of a batch position that wait for each other."""
    multiplied, vector, stages = 0.0, 0.0, 0
    for op in kernel.regions[0].blocks[0].operations:
        if not is_a(op, linalg.GenericOp):
            continue
        g = Generic(op.operation)
        stages += 1
        shapes = [list(ir.RankedTensorType(v.type).shape)[:-1] for v in (*g.inputs, op.operation.results[0])]
        if g.is_contraction:
            sticks, *rows = shapes[-1]
            multiplied += multiply_cycles(half(prod(rows), target.corelets), sticks * shapes[0][0], target)
        else:
            vector += half(max(prod(s) for s in shapes), target.corelets) * stick_cycles(g, target)
    positions = prod(KernelFunction(kernel).work.row_shares[:-1])
    return max(multiplied, vector) + positions * stages * stage_latency(target)
