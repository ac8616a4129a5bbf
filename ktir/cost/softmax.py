"""The price of a softmax with its matmuls on one core, as one row of scores at a time or over blocks of keys."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.cost.estimate import half, multiply_cycles
from ktir.target import Target


@dataclass(frozen=True)
class Matrix:
    """The second operand of a matmul: blocks of 64x64 and bytes of one; a core takes `taken` of them one after the other. `members` cores
    take the same at once. `output` sticks come out of it per row, for `parts` parts of the keys each."""

    blocks: int
    bytes: int
    taken: int
    members: int
    output: int
    over_keys: bool


@dataclass(frozen=True)
class SoftmaxWork:
    """What a core does. `rows`: of its share, at each of `positions` batch positions; `row_bytes`: moved per row besides the matrices;
    cycles of the vector unit `per_key_stick` of a row and `per_part` of its keys."""

    cores: int
    rows: int
    positions: int
    row_bytes: int
    matrices: tuple[Matrix, ...]
    per_key_stick: int
    per_part: int
    key_sticks: int


@dataclass(frozen=True)
class SoftmaxPrice:
    """Cycles, what bounds them, and bytes that cross the memory channel; cycles of the bounds by name."""

    cycles: float
    bound: str
    bytes: int
    terms: dict[str, float]

    def __str__(self) -> str:
        return f"{self.cycles:,.0f} cycles, bound by {self.bound}, {self.bytes:,} bytes moved"


def softmax_price(work: SoftmaxWork, rows: int, parts: int, kept: frozenset[int], target: Target) -> SoftmaxPrice:
    """The price with blocks of `rows` rows and `parts` parts of keys; the matrices `kept` stay in the scratchpad for all blocks.

    PT and SFP take turns, for each needs what the other one made of a block; memory works at the same time.
    """
    blocks = -(-work.rows // rows) * work.positions
    own = half(rows, target.corelets)
    pt = sum(multiply_cycles(own, m.blocks, target) for m in work.matrices)
    drains = sum(m.output * (parts if m.over_keys else 1) for m in work.matrices) * (own + target.pt_fill_cycles)
    vector = own * (work.per_key_stick * work.key_sticks + work.per_part * parts)
    moved = work.row_bytes * work.rows * work.positions * work.cores
    ring = 0.0
    first = 0.0
    for i, m in enumerate(work.matrices):
        times = m.taken if i in kept else blocks
        moved += m.bytes * times * work.cores // m.members
        ring += m.bytes * times * target.multicast_slowdown(m.members) / target.ring_bytes_per_cycle
        first += m.bytes * work.cores / m.members / target.dram_bytes_per_cycle if i in kept and blocks > 1 else 0.0
    compute = blocks * (pt + drains + vector) + first / 2
    terms = {"compute": compute, "memory": moved / target.dram_bytes_per_cycle, "ring": ring}
    bound = max(terms, key=lambda name: terms[name])
    return SoftmaxPrice(terms[bound], bound, moved, terms)
