"""The price of a division of a kernel with a softmax between its matmuls, before there is IR of what a core does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import prod

from ktir.cost.estimate import Cost, Term, combine, kernel_start
from ktir.cost.problem import Operand, Problem
from ktir.cost.softmax import Matrix, SoftmaxPrice, SoftmaxWork, Sticks, Visible, softmax_price
from ktir.cost.tiles import BLOCK_BYTES, ROW_BUFFERS, WEIGHT_BUFFERS
from ktir.target import LANES, Target

KEY_STICKS = (1, 2, 4, 8, 16)
"""Sticks of keys that a block may have."""
RESCALE = 10
"""Cycles per row of the vector unit for the factor, the largest score and a sum of a block of keys."""


def attention_cost(
    problem: Problem, splits: tuple[int, ...], shares: tuple[int, ...], sizes: dict[str, int], target: Target
) -> Cost | None:
    """The price of the best blocks of rows and keys; None if none fit the scratchpad. `sizes`: bytes of each operand."""
    kernel = _Kernel(problem, splits, shares, sizes, target)
    found = min(kernel.prices(), key=lambda f: (f[0].cycles, f[0].bytes, f[1]), default=None)
    if found is None:
        return None
    price, rows, sticks, kept = found
    work = kernel.work
    first = next(m for m, outputs in zip(work.matrices, kernel.scores.outputs, strict=True) if not outputs)
    stays = work.matrices.index(first) in kept  # half of the wait for it is in the price
    wait = first.bytes // 2 if stays else first.bytes * sticks // kernel.scores.sticks
    begin = rows * work.row_bytes * work.cores + wait * work.cores // first.members
    return combine(
        [
            Term("SFP", "matmuls and the softmax between them", price.terms["compute"]),
            Term("dram", "all operands", price.terms["memory"], price.bytes),
            Term("ring", "matrices", price.terms["ring"]),
            Term("fill", "the first block comes, the last one leaves", begin / target.dram_bytes_per_cycle),
            Term("start", "latency of memory and units, launch", kernel_start(target)),
        ]
    )


def takes_whole_rows(problem: Problem, splits: tuple[int, ...], shares: tuple[int, ...], sizes: dict[str, int], target: Target) -> bool:
    """Whether no blocks are better than some that have all keys, so that nothing is scaled anew."""
    kernel = _Kernel(problem, splits, shares, sizes, target)
    prices = [(price.cycles, price.bytes, sticks < kernel.scores.sticks) for price, _, sticks, _ in kernel.prices()]
    return bool(prices) and not min(prices)[2]


class _Kernel:
    """What a core does under a division."""

    def __init__(self, problem: Problem, splits: tuple[int, ...], shares: tuple[int, ...], sizes: dict[str, int], target: Target) -> None:
        assert problem.scores is not None
        self.scores, self.sizes, self.target = problem.scores, sizes, target
        names = [loop.name for loop in problem.loops]
        self.splits, self.shares = dict(zip(names, splits, strict=True)), dict(zip(names, shares, strict=True))
        self.extents = {loop.name: loop.extent for loop in problem.loops}
        count = len(self.scores.outputs)
        matrices = tuple(self._matrix(o, n) for o, n in zip(problem.inputs, self.scores.outputs, strict=False))
        (row,) = (name for name in names if name != "keys" and name not in self.scores.batches)
        others = [*problem.inputs[count:], problem.output]
        moved = sum(
            self.sizes[o.name] / prod(self.extents[x] for x in o.loops if x != "keys") / self._members(o) for o in others if row in o.loops
        )
        positions = prod(self.shares[name] for name in self.scores.batches)
        self.row_parts = self.splits[row]
        parts = target.sfp_lane_reduction_cycles * 2 + 2 * sum(self.scores.outputs) + RESCALE
        cycles = round(problem.vector_cycles)
        self.work = SoftmaxWork(prod(splits), self.shares[row], positions, moved, matrices, cycles, parts, self.scores.sticks)

    def _members(self, operand: Operand) -> int:
        """Cores that read the same of an operand."""
        return prod(n for name, n in self.splits.items() if name not in operand.loops)

    def _matrix(self, operand: Operand, output: int) -> Matrix:
        own = [name for name in self.scores.batches if name in operand.loops]
        size = self.sizes[operand.name] // prod(self.extents[name] for name in own)
        outer = self.scores.batches[: self.scores.batches.index(own[-1]) + 1] if own else ()
        members = self._members(operand)
        taken = prod(self.shares[name] for name in outer)
        return Matrix(max(size // BLOCK_BYTES, 1), size, taken, members, output or self.scores.sticks, bool(output))

    def prices(self) -> Iterator[tuple[SoftmaxPrice, int, int, frozenset[int]]]:
        """Price, rows and sticks of keys of all blocks that fit, and the matrices that stay: keys some at a time, or all of them."""
        whole, work = self.scores.sticks, self.work
        hulls: dict[int, list[Sticks]] = {}
        for sticks in (*(n for n in KEY_STICKS if n < whole), whole):
            per_row = self.scores.row_bytes + sticks * self.scores.stick_bytes
            for kept in subsets(len(work.matrices)):
                held = sum(work.matrices[i].bytes * (ROW_BUFFERS if work.matrices[i].taken > 1 else 1) for i in kept)
                streamed = [n for i, n in enumerate(self.scores.outputs) if i not in kept]
                held += sum(streamed_blocks(n, sticks, pipelined=sticks < whole) for n in streamed) * BLOCK_BYTES
                most = min((self.target.lx_planned_bytes - held) // per_row // 2 * 2, 2 * self.target.pt_accumulator_rows)
                if most >= 2:
                    rows = -(-work.rows // -(-work.rows // most))
                    rows += rows % 2
                    pieces = bool(self.scores.seen) and sticks < whole
                    if pieces:
                        if rows not in hulls:
                            hulls[rows] = list(self._hulls(rows))
                        seen = Visible.of_hulls(hulls[rows], sticks, whole)
                    else:
                        seen = Visible.of_all(-(-work.rows // rows), -(-whole // sticks), whole)
                    turns = seen.turns(chained=pieces, rest=not pieces and whole % sticks > 0) if sticks < whole else 1.0
                    yield softmax_price(work, rows, seen, kept, self.target, turns=turns, pieces=pieces), rows, sticks, kept

    def _hulls(self, rows: int) -> Iterator[Sticks]:
        """Per block of a core's rows the keys that some core's block sees there: all cores run the same text."""
        share, seen = self.work.rows, self.scores.seen
        for first in range(0, share, rows):
            starts = (core * share + first for core in range(self.row_parts))
            yield Sticks.around(x for start in starts for x in seen[start // LANES : -(-min(start + rows, start - first + share) // LANES)])


def streamed_blocks(output: int, sticks: int, *, pipelined: bool) -> int:
    """Blocks of 64x64 that a matrix takes of the scratchpad where it streams by, of which `output` sticks come out (0: scores), with so
    many sticks of keys at once. Pipelined rows load it for the first scores, in the loop over the keys, and from rows to rows; the products
    of weights a part of the keys at once, and alone at the end."""
    if not pipelined:
        return WEIGHT_BUFFERS
    return WEIGHT_BUFFERS + 2 * ROW_BUFFERS * (output + 1) * sticks if output else 3 * WEIGHT_BUFFERS


def subsets(count: int) -> Iterator[frozenset[int]]:
    """Every choice of some of `count` things, the smaller ones first."""
    for size in range(count + 1):
        for chosen in combinations(range(count), size):
            yield frozenset(chosen)
