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
from itertools import groupby
from typing import NamedTuple

from ktir.analysis.softmax import WEIGHT, Softmax, unmasked
from ktir.dialects.structured import element_of, index_constant, index_sum
from ktir.mlir import ir, scf
from ktir.passes.tiling.blocks import Blocks, Part, insert_stick, stick, times
from ktir.passes.tiling.key_ops import Beside, Task, Tasks, scores_of, type_of
from ktir.passes.tiling.key_pieces import load_part
from ktir.passes.tiling.key_weights import (
    copied,
    factor_of,
    larger,
    largest_of,
    operand_of,
    product_with,
    sum_of,
    sum_with,
    weight_of,
)
from ktir.passes.tiling.plan.tile_plan import Keys


class Underway(NamedTuple):
    """A block of rows of which block `number` of the keys is next, whose `scores` are there: the largest score before it and with it, and
    the sums and products so far."""

    blocks: Blocks
    number: int
    scores: ir.Value
    before: ir.Value
    most: ir.Value
    rest: Sequence[ir.Value]

    @property
    def values(self) -> list[ir.Value]:
        """What a loop over blocks of rows or keys carries."""
        return [self.scores, self.before, self.most, *self.rest]

    def at(self, blocks: Blocks, values: Sequence[ir.Value]) -> Underway:
        """The same of other rows."""
        scores, before, most, *rest = values
        return Underway(blocks, self.number, scores, before, most, rest)


def over_keys(blocks: Blocks, keys: Keys, first: int, trips: int, initial: Callable[[], list[ir.Value]]) -> list[ir.Value]:
    """The state after `trips` blocks of keys, two or more, from block `first` on."""
    begin = blocks.inside(part=part_at(blocks, keys, first))
    scores = scores_of(begin, keys.softmax.inside, unmasked(keys.softmax.scores))
    begun = started_with(blocks, first, scores, largest_of(begin, keys.softmax, scores), initial())
    state, _ = last_of(until_last(begun, keys, trips), keys)
    return state


def started_with(blocks: Blocks, first: int, scores: ir.Value, block: ir.Value, state: Sequence[ir.Value]) -> Underway:
    """Rows that have seen nothing, which is `state`, and have the scores of the first block of keys, with the largest one of these.

    The state is made behind the loads, which then do not wait for those who still read the last one.
    """
    before, *rest = state
    return Underway(blocks, first, scores, before, larger(blocks, before, block), rest)


def until_last(begun: Underway, keys: Keys, trips: int) -> Underway:
    """All but the last one of `trips` blocks of keys: a loop for those in front of such as are seen by all rows, and one for others."""
    under = begun
    following = range(begun.number + 1, begun.number + trips)
    for is_open, numbers in groupby(following, lambda number: part_at(begun.blocks, keys, number).open):
        under = _several(under, keys, len(list(numbers)), is_open)
    return under


def _several(begun: Underway, keys: Keys, trips: int, is_open: bool) -> Underway:
    """So many blocks of keys, with the scores of the ones that follow."""
    s, sticks, blocks, first = keys.softmax, keys.sticks, begun.blocks, begun.number
    with s.most.op.location:
        loop = scf.ForOp(*(index_constant(n) for n in (first, first + trips, 1)), begun.values)
    with ir.InsertionPoint(loop.body), s.most.op.location:
        number = loop.induction_variable
        scores, before, most, *rest = loop.inner_iter_args
        this, following = _loaded(blocks, keys, number), blocks.inside(part=part_of(index_sum(number, 1), sticks, is_open))
        weights = _Weights(this, s, scores, most)
        scores = scores_of(following, s.inside, unmasked(s.scores), scores, weights)
        largest = _Largest(following, s, scores, most)
        rest = _Second(this, s, weights.made, before, most).build(rest, [largest.keep, largest.measure, largest.take])
        scf.YieldOp([scores, largest.before, largest.most, *rest])
    return begun._replace(number=first + trips).at(blocks, loop.results)


Scored = tuple[ir.Value, ir.Value]
"""Scores of a block of keys, and the largest one of each row."""


def last_of(under: Underway, keys: Keys, following: Blocks | None = None) -> tuple[list[ir.Value], Scored | None]:
    """The state after the last block of keys, and the scores that come next: of the block of rows and keys `following`."""
    s, blocks = keys.softmax, under.blocks
    if following is None:
        this = blocks.inside(part=part_of(under.number, keys.sticks))
        weight = weight_of(this, s, under.scores, under.most)
        made = [weight, *(operand_of(this, p, weight) for p in s.products if p.operand != WEIGHT)]
        return [under.most, *_Second(this, s, made, under.before, under.most).build(under.rest)], None
    this = _loaded(blocks, keys, under.number)
    weights = _Weights(this, s, under.scores, under.most)
    scores = scores_of(following, s.inside, unmasked(s.scores), under.scores, weights)
    largest = _Largest(following, s, scores, under.most)
    rest = _Second(this, s, weights.made, under.before, under.most).build(under.rest, [largest.measure])
    return [under.most, *rest], (scores, largest.of_block)


def part_of(number: int | ir.Value, sticks: int, is_open: bool = False) -> Part:
    """A block of keys of so many sticks, all of which there are."""
    return Part(times(number, sticks), sticks, number=number, open=is_open)


def part_at(blocks: Blocks, keys: Keys, number: int) -> Part:
    """A block of keys that the rows of a block see."""
    first, end = blocks.seen.open if blocks.seen is not None else (0, 0)
    return part_of(number, keys.sticks, first <= number * keys.sticks and (number + 1) * keys.sticks <= end)


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

    factor: ir.Value

    def __init__(self, blocks: Blocks, s: Softmax, made: Sequence[ir.Value], before: ir.Value, most: ir.Value) -> None:
        self.blocks, self.s, self.before, self.most = blocks, s, before, most
        self.weight, *operands = made
        others = iter(operands)
        self.first = [self.weight if p.operand == WEIGHT else next(others) for p in s.products]

    def build(self, rest: Sequence[ir.Value], largest: Sequence[Task] = ()) -> list[ir.Value]:
        """The sums and products with the block of keys; `largest` finds the largest one of the next scores.

        One temporary number per row is alive at a time.
        """
        s, sums = self.s, list(rest)[: len(self.s.sums)]
        tasks = _tasks(s, self._factor, *(task for i in range(len(sums)) for task in self._sum(sums, i)), *largest)
        products = [
            product_with(self.blocks, p, first, old, lambda: self.factor, tasks)
            for p, first, old in zip(s.products, self.first, list(rest)[len(sums) :], strict=True)
        ]
        while tasks:
            tasks.popleft()()
        return [*sums, *products]

    def _factor(self) -> None:
        self.factor = factor_of(self.blocks, self.s, self.before, self.most)

    def _sum(self, sums: list[ir.Value], i: int) -> tuple[Task, Task]:
        g, tree = self.s.sums[i]
        of_block: list[ir.Value] = []

        def add() -> None:
            sums[i] = sum_with(self.blocks, g, of_block[0], sums[i], self.factor)

        return lambda: of_block.append(sum_of(self.blocks, g, tree, self.weight)), add


class _Largest:
    """The largest score of each row in the block of keys that comes next, and with those so far, `old`, in whose place it comes."""

    before: ir.Value
    most: ir.Value
    of_block: ir.Value

    def __init__(self, blocks: Blocks, s: Softmax, scores: ir.Value, old: ir.Value) -> None:
        self.blocks, self.s, self.scores, self.old = blocks, s, scores, old

    def measure(self) -> None:
        """That of the block alone."""
        self.of_block = largest_of(self.blocks, self.s, self.scores)

    def keep(self) -> None:
        """A copy of the old one is that before."""
        self.before = copied(self.blocks, self.old)

    def take(self) -> None:
        """That of all so far."""
        self.most = larger(self.blocks, self.old, self.of_block)


def _tasks(s: Softmax, *tasks: Task) -> Tasks:
    """Tasks that belong to the softmax, wherever they stand."""

    def at_softmax(task: Task) -> None:
        with s.most.op.location:
            task()

    return deque(partial(at_softmax, task) for task in tasks)
