"""The price of a softmax with its matmuls on one core, as one row of scores at a time or over blocks of keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

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
    row_bytes: float
    matrices: tuple[Matrix, ...]
    per_key_stick: int
    per_part: int
    key_sticks: int


@dataclass(frozen=True)
class Sticks:
    """Sticks of keys, one after the other."""

    first: int
    count: int
    open: tuple[int, int] = (0, 0)
    """The first one of which a mask hides no key from any row, and the one behind the last."""

    @property
    def end(self) -> int:
        """The stick after the last one."""
        return self.first + self.count

    @staticmethod
    def around(several: Iterable[Sticks]) -> Sticks:
        """All sticks from the first one to the last one of several."""
        some = [s for s in several if s.count]
        first = min((s.first for s in some), default=0)
        return Sticks(first, max((s.end for s in some), default=0) - first)


class Visible(NamedTuple):
    """What a core's blocks of rows see at a batch position: how many blocks there are, and all together their parts and sticks of keys."""

    blocks: int
    parts: int
    sticks: int

    def turns(self, *, chained: bool, rest: bool) -> float:
        """The share of the parts in which nothing is multiplied beside the vector unit: the last one of each block, or of all blocks where
        they are `chained`; and what is left of the keys, if there is a `rest` behind whole parts."""
        return min(((1 if chained else self.blocks) + rest * self.blocks) / self.parts, 1.0) if self.parts else 1.0

    @staticmethod
    def of_hulls(hulls: Iterable[Sticks], sticks: int, whole: int) -> Visible:
        """Of blocks of rows that see these keys, in parts of `sticks` sticks of the `whole` ones."""
        parts = [(h.first // sticks, -(-h.end // sticks)) if h.count else (0, 0) for h in hulls]
        return Visible(
            len(parts), sum(end - first for first, end in parts), sum(min(end * sticks, whole) - first * sticks for first, end in parts)
        )

    @staticmethod
    def of_all(blocks: int, parts: int, whole: int) -> Visible:
        """Of blocks of rows that see all keys."""
        return Visible(blocks, blocks * parts, blocks * whole)


@dataclass(frozen=True)
class SoftmaxPrice:
    """Cycles, what bounds them, and bytes that cross the memory channel; cycles of the bounds by name."""

    cycles: float
    bound: str
    bytes: int
    terms: dict[str, float]

    def __str__(self) -> str:
        return f"{self.cycles:,.0f} cycles, bound by {self.bound}, {self.bytes:,} bytes moved"


_SEEN_BETWEEN = 0.5
"""Of what is done once per row and part of the keys, the share that PT waits for though it works beside: measured on attention of 2048
keys."""


def softmax_price(
    work: SoftmaxWork, rows: int, seen: Visible, kept: frozenset[int], target: Target, *, turns: float = 1.0, pieces: bool = False
) -> SoftmaxPrice:
    """The price with blocks of `rows` rows that see so many keys; the matrices `kept` stay in the scratchpad for all blocks.

    PT and SFP take turns in the share `turns` of the parts of the keys, for each needs what the other one made of it; in all others scores
    of the next part are computed at the same time. Memory works at the same time, but a matrix that streams by is not there before PT
    takes it, and the first rows wait for what is kept: for half of it, or half as long where it comes in `pieces`.
    """
    blocks = seen.blocks * work.positions
    share = seen.sticks / (seen.blocks * work.key_sticks)
    own = half(rows, target.corelets)
    pt = 0.0
    outputs = sum(m.output * (seen.parts if m.over_keys else share * seen.blocks) for m in work.matrices)
    drains = outputs * work.positions * (own + target.pt_fill_cycles)
    vector = own * work.per_key_stick * seen.sticks * work.positions
    between = own * work.per_part * seen.parts * work.positions
    moved = round(work.row_bytes * work.rows * work.positions * work.cores)
    ring = 0.0
    first = 0.0
    for i, m in enumerate(work.matrices):
        times = m.taken if i in kept else blocks * share
        bytes_ = round(m.bytes * times * work.cores) // m.members
        moved += bytes_
        multiplied = multiply_cycles(own, m.blocks, target) * share * blocks
        pt += multiplied if i in kept and blocks > 1 else max(multiplied, bytes_ / target.dram_bytes_per_cycle)
        ring += m.bytes * times * target.multicast_slowdown(m.members) / target.ring_bytes_per_cycle
        first += m.bytes * work.cores / m.members / target.dram_bytes_per_cycle if i in kept and blocks > 1 else 0.0
    together = max(pt + drains + _SEEN_BETWEEN * between, vector + between)
    compute = together * (1 - turns) + (pt + drains + vector + between) * turns + first / (4 if pieces else 2)
    terms = {"compute": compute, "memory": moved / target.dram_bytes_per_cycle, "ring": ring}
    bound = max(terms, key=lambda name: terms[name])
    return SoftmaxPrice(terms[bound], bound, moved, terms)
