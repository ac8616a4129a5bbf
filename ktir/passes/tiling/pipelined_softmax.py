"""Software pipelining of a softmax over blocks of keys: the matrix array is at the scores of the next block while the vector unit makes
weights of this one's.

A trip of the loop has two phases. In the first one each stick of weights is computed beside the products for the same stick of the next
scores, which take its place. In the second one what else the vector unit has to do stands beside blocks of the products of weights: the
factor and the sums of this block, the largest score of the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ktir.analysis.softmax import WEIGHT, Softmax, unmasked
from ktir.dialects.structured import element_of, index_constant, index_sum
from ktir.mlir import ir, scf
from ktir.passes.tiling.blocks import Blocks, Part, insert_stick, stick, times
from ktir.passes.tiling.key_ops import Beside, Tasks, scores_of, type_of
from ktir.passes.tiling.key_pieces import load_part
from ktir.passes.tiling.key_weights import copied, factor_of, larger, largest_of, operand_of, product_with, sum_of, sum_with, weight_of
from ktir.passes.tiling.tile_plan import Keys


def over_keys(blocks: Blocks, keys: Keys, first: int, trips: int, initial: Callable[[], list[ir.Value]]) -> list[ir.Value]:
    """The state after `trips` blocks of keys, two or more, from block `first` on."""
    s, sticks = keys.softmax, keys.sticks
    begin = blocks.inside(part=part_of(first, sticks))
    scores = scores_of(begin, s.inside, unmasked(s.scores))
    before, *rest = initial()  # behind the loads, which then do not wait for those who still read the last state
    most = larger(blocks, before, largest_of(begin, s, scores))
    loop = scf.ForOp(*(index_constant(n) for n in (first, first + trips - 1, 1)), [scores, before, most, *rest])
    with ir.InsertionPoint(loop.body):
        number = loop.induction_variable
        scores, before, most, *rest = loop.inner_iter_args
        this, following = _loaded(blocks, keys, number), blocks.inside(part=part_of(index_sum(number, 1), sticks))
        weights = _Weights(this, s, scores, most)
        scores = scores_of(following, s.inside, unmasked(s.scores), scores, weights)
        scf.YieldOp([scores, *_Second(this, s, weights.made, before, most).build(rest, following, scores)])
    scores, before, most, *rest = loop.results
    last = blocks.inside(part=part_of(first + trips - 1, sticks))
    weight = weight_of(last, s, scores, most)
    made = [weight, *(operand_of(last, p, weight) for p in s.products if p.operand != WEIGHT)]
    _, *state = _Second(last, s, made, before, most).build(rest)
    return state


def part_of(number: int | ir.Value, sticks: int) -> Part:
    """A block of keys of so many sticks, all of which there are."""
    return Part(times(number, sticks), sticks, number=number)


def _loaded(blocks: Blocks, keys: Keys, number: int | ir.Value) -> Blocks:
    """The place of a block of keys, with what the products take of second operands that do not stay: loaded ahead of the next scores'."""
    products = [blocks.facts.matmul_of[p.contraction.op] for p in keys.softmax.products]
    streamed = [m for m in products if m.op not in blocks.whole]
    this = blocks.inside(part=part_of(number, keys.sticks), in_part=frozenset(m.op for m in streamed))
    for m in streamed:
        with m.op.location:
            load_part(this, m, keys)
    return this


class _Weights(Beside):
    """The weights of a block of keys, and what products take of them, stick by stick beside the next scores."""

    def __init__(self, blocks: Blocks, s: Softmax, scores: ir.Value, most: ir.Value) -> None:
        self.blocks, self.s, self.scores, self.most = blocks, s, scores, most
        self.operands = [p for p in s.products if p.operand != WEIGHT]
        types = [type_of(s.exponential.tree), *(element_of(p.contraction.inputs[0]) for p in self.operands)]
        assert blocks.part is not None
        self.made = [blocks.empty(blocks.part.count, t) for t in types]

    def tasks(self, number: ir.Value, made: list[ir.Value]) -> Tasks:
        """The weights of a stick, and what is made of them."""

        def weight() -> None:
            made[0] = insert_stick(weight_of(self.blocks, self.s, stick(self.scores, number), self.most), made[0], number)

        def operand(i: int) -> None:
            of_stick = operand_of(self.blocks, self.operands[i], stick(made[0], number))
            made[i + 1] = insert_stick(of_stick, made[i + 1], number)

        return _tasks(self.s, weight, *(partial(operand, i) for i in range(len(self.operands))))


class _Second:
    """The second phase: products and sums of the weights `made`, with the factor between the largest scores `before` and `most`."""

    def __init__(self, blocks: Blocks, s: Softmax, made: Sequence[ir.Value], before: ir.Value, most: ir.Value) -> None:
        self.blocks, self.s, self.before, self.most = blocks, s, before, most
        self.weight, *operands = made
        others = iter(operands)
        self.first = [self.weight if p.operand == WEIGHT else next(others) for p in s.products]
        self.factor: ir.Value | None = None

    def build(self, rest: Sequence[ir.Value], following: Blocks | None = None, scores: ir.Value | None = None) -> list[ir.Value]:
        """The largest score before the next block of keys and with it, of which `scores` are there already, then the sums and products."""
        s, sums = self.s, list(rest)[: len(self.s.sums)]
        largest = [] if following is None or scores is None else self._largest(following, scores)
        tasks = _tasks(s, self._factor, *(task for i in range(len(sums)) for task in self._sum(sums, i)), *largest)
        products = [
            product_with(self.blocks, p, first, old, self._known_factor, tasks)
            for p, first, old in zip(s.products, self.first, list(rest)[len(sums) :], strict=True)
        ]
        while tasks:
            tasks.popleft()()
        return [self.before, self.most, *sums, *products]

    def _factor(self) -> None:
        self.factor = factor_of(self.blocks, self.s, self.before, self.most)

    def _known_factor(self) -> ir.Value:
        assert self.factor is not None
        return self.factor

    def _sum(self, sums: list[ir.Value], i: int) -> list[Callable[[], None]]:
        g, tree = self.s.sums[i]
        of_block: list[ir.Value] = []

        def add() -> None:
            sums[i] = sum_with(self.blocks, g, of_block[0], sums[i], self._known_factor())

        return [lambda: of_block.append(sum_of(self.blocks, g, tree, self.weight)), add]

    def _largest(self, following: Blocks, scores: ir.Value) -> list[Callable[[], None]]:
        of_block: list[ir.Value] = []

        def keep() -> None:
            self.before = copied(self.blocks, self.most)

        def take() -> None:
            self.most = larger(self.blocks, self.most, of_block[0])

        return [keep, lambda: of_block.append(largest_of(following, self.s, scores)), take]


def _tasks(s: Softmax, *tasks: Callable[[], None]) -> Tasks:
    """Tasks that belong to the softmax, wherever they stand."""

    def at_softmax(task: Callable[[], None]) -> None:
        with s.most.op.location:
            task()

    return deque(partial(at_softmax, task) for task in tasks)
