"""Softmax over blocks of keys: a loop that carries, per row, the largest score so far, the sums of weights and their products so far.

The scores of a row never exist as a whole. Stores along the keys, of the weights themselves, need a second loop over them.

Where that is pipelined, blocks of rows are a chain: the first scores of one are multiplied while the weights of the last keys of the one
before are computed, so that PT does not wait for the vector unit there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ktir.analysis.axes import sticks_of
from ktir.analysis.scalars.expressions import Emission, Leaf, Tree, Trees, leaves
from ktir.analysis.softmax import PRODUCT, Product, Softmax, unmasked
from ktir.cost.softmax import Sticks
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, index_constant, index_sum
from ktir.mlir import ir, is_a, linalg, scf
from ktir.passes.tiling.blocks import Blocks, Input, Part, pointwise
from ktir.passes.tiling.key_ops import along_keys, inputs_of, scores_of
from ktir.passes.tiling.key_weights import added, begun, largest_of, lowest_of, started, with_nan
from ktir.passes.tiling.pipelined_softmax import Scored, Underway, last_of, over_keys, part_at, part_of, started_with, until_last
from ktir.passes.tiling.plan.tile_facts import TileFacts
from ktir.passes.tiling.plan.tile_plan import Keys, TilePlan
from ktir.target import LANES

State = list[ir.Value]
"""What the loop carries: the largest score, the sums, the products."""
Step = Callable[[Blocks, State], State]
"""What one block of keys does to that."""


Emit = Callable[[Blocks, ir.Operation], None]
"""Builds an op of a block of rows that is not along the keys."""


def rows_of(blocks: Blocks, keys: Keys, emit: Emit) -> None:
    """The ops of the kernel in a block of rows."""
    s = keys.softmax
    enter(blocks, s.before, emit)
    with s.most.op.location:
        state = _over_keys(blocks, keys, lambda b, state: _update(b, s, state), lambda: initial(blocks, s), pipelined=keys.pipelined)
    leave(blocks, keys, state, emit)


def enter(blocks: Blocks, before: Iterable[ir.Operation], emit: Emit) -> None:
    """What stands in front of the keys."""
    for op in before:
        with op.location:
            emit(blocks, op)


def leave(blocks: Blocks, keys: Keys, state: State, emit: Emit) -> None:
    """What follows from the finished state."""
    s = keys.softmax
    with s.most.op.location:
        unfinished = _finish(blocks, s, state)
    for op in s.after:
        done = False
        for p in s.products:
            if p.contraction.op.results[0] in list(op.operands) and p in unfinished:
                done = _continues(p, op, s.after)
                _finish_product(blocks, p, unfinished.pop(p), op if done else None)
        if done:
            continue
        with op.location:
            if is_a(op, ktdp.StoreOp) and op.operands[0] not in blocks.plan.stored:
                blocks.store_rows(op, blocks.built[op.operands[0]], 0)
            else:
                emit(blocks, op)
    if s.again:
        with s.again[-1].location:
            _over_keys(blocks.inside(seen=None), keys, lambda b, _: _again(b, s), list)


def initial(blocks: Blocks, s: Softmax, fill: Callable[[Blocks, ir.Value, float], ir.Value] = started) -> State:
    """The state of rows that have seen nothing."""
    products = [p.contraction.op.results[0] for p in s.products]
    zeros = [*(g.op.results[0] for g, _ in s.sums), *products]
    return [fill(blocks, s.most.op.results[0], lowest_of(s)), *(fill(blocks, v, 0.0) for v in zeros)]


def seen_parts(blocks: Blocks, keys: Keys) -> tuple[int, int]:
    """The first whole block of keys that is seen, and how many are."""
    s, sticks = keys.softmax, keys.sticks
    seen = blocks.seen or Sticks(0, s.sticks)
    start = seen.first // sticks
    return start, min(-(-seen.end // sticks), s.columns // LANES // sticks) - start


def _over_keys(blocks: Blocks, keys: Keys, step: Step, begin: Callable[[], State], *, pipelined: bool = False) -> State:
    """The keys in blocks of whole sticks, then the rest; what a block has built is forgotten after it."""
    start, trips = seen_parts(blocks, keys)
    if trips > 1 and pipelined:
        state = over_keys(blocks, keys, start, trips, begin)
    elif trips > 1:
        loop = scf.ForOp(*(index_constant(n) for n in (start, start + trips, 1)), begin())
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(step(blocks.inside(part=part_of(loop.induction_variable, keys.sticks)), list(loop.inner_iter_args)))
        state = list(loop.results)
    else:
        state = begin()
        if trips == 1:
            state = step(blocks.inside(part=part_of(start, keys.sticks)), state)
    return _rest(blocks, keys, step, state)


def has_rest(keys: Keys) -> bool:
    """Whether there are keys behind the whole blocks of them."""
    return keys.softmax.columns % (keys.sticks * LANES) > 0


def rest_of_keys(blocks: Blocks, keys: Keys, state: State) -> State:
    """The state with what is left of the keys behind the whole blocks of them."""
    return _rest(blocks, keys, lambda b, state: _update(b, keys.softmax, state), state)


def _rest(blocks: Blocks, keys: Keys, step: Step, state: State) -> State:
    s, sticks = keys.softmax, keys.sticks
    whole = s.columns // LANES // sticks
    first = whole * sticks
    if (blocks.seen or Sticks(0, s.sticks)).end <= first:
        return state
    end = s.columns - first * LANES if s.columns % LANES else None
    return step(blocks.inside(part=Part(first, s.sticks - first, end, whole)), state)


def _update(blocks: Blocks, s: Softmax, state: State) -> State:
    """The state after one more block of keys."""
    return added(blocks, s, scores_of(blocks, s.inside, unmasked(s.scores)), state)


def _again(blocks: Blocks, s: Softmax) -> State:
    """What is stored along the keys, from the finished sums."""
    along_keys(blocks, s.again)
    return []


def _finish(blocks: Blocks, s: Softmax, state: State) -> dict[Product, ir.Value]:
    """Notes the finished largest score and sums; the products, which may still have to be divided."""
    most, *rest = state
    blocks.built[s.most.op.results[0]] = most
    for (g, _), value in zip(s.sums, rest, strict=False):
        blocks.built[g.op.results[0]] = with_nan(blocks, s, value, most) if s.undefined else value
    return dict(zip(s.products, rest[len(s.sums) :], strict=True))


def _continues(p: Product, op: ir.Operation, after: Sequence[ir.Operation]) -> bool:
    """Whether an op computes element by element of a finished product alone, which nothing else reads: it is one op with the division."""
    result = p.contraction.op.results[0]
    if p.finish is None or not is_a(op, linalg.GenericOp) or sum(v == result for other in after for v in other.operands) > 1:
        return False
    g = Generic(op)
    return g.is_pointwise and list(g.inputs) == [result] and set(leaves(_of_own(g))) == {Leaf(result, True, True)}


def _of_own(g: Generic) -> Tree:
    return Trees().of_scalar(g, g.yielded, through=False)


def _finish_product(blocks: Blocks, p: Product, value: ir.Value, op: ir.Operation | None) -> None:
    """The product that the next op reads, divided by the sum if its weights were; with `op`, what that computes of it."""
    tree, result = p.finish, p.contraction.op.results[0]
    wanted = result if op is None else op.results[0]
    if tree is not None:
        inputs, then = [Input(PRODUCT, value), *inputs_of(blocks, tree)], None if op is None else _of_own(Generic(op))

        def body(x: dict[Tree, ir.Value]) -> ir.Value:
            finished = Emission(x)(tree)
            return finished if then is None else Emission({Leaf(result, True, True): finished})(then)

        with p.contraction.op.location:
            value = pointwise(inputs, sticks_of(value), blocks.plan.block_rows, body, element_of(wanted))
    blocks.built[wanted] = value


class Run(NamedTuple):
    """Blocks of rows that see the same keys: number `first`, and every `step` up to `last`. `at` goes to one of them, and `load` what they
    need besides and others have not loaded."""

    first: int
    last: int
    step: int
    at: Callable[[int | ir.Value], Blocks]
    load: Callable[[], None] = lambda: None


def over_positions(facts: TileFacts, plan: TilePlan, depth: int) -> bool:
    """Whether the rows at one batch position follow those at another one: there is one block of them, and no matrix of it stays."""
    keys = plan.keys
    stay = any(m.op in plan.loaded_whole and m.depth == depth for m in facts.matmuls)
    return keys is not None and keys.pipelined and not keys.seen and facts.trips(plan.block_rows) == 1 and not stay


def in_chain(keys: Keys, runs: Iterator[Run], emit: Emit) -> None:
    """All runs, one after the other. Each is asked for while the one before it is built, where its loads are to stand."""
    chain = _Chain(keys, emit)
    under: Underway | None = None
    run = next(runs, None)
    this = chain.entered(run)
    while run is not None and this is not None:
        if seen_parts(this, keys)[1] == 0:  # no whole block of keys
            if under is not None:
                chain.end(under)
                under = None
            this.along(run.first, run.last + run.step, run.step, lambda row, run=run: rows_of(run.at(row), keys, emit))
            run = next(runs, None)
            this = chain.entered(run)
            continue
        scored = chain.begin(under, this)
        # loads of the next rows stand in front of what waits for others, but not of a loop that has loads of its own
        following = next(runs, None) if run.first == run.last else None
        started = chain.started(this, scored)
        after = chain.entered(following)
        under = until_last(started, keys, seen_parts(this, keys)[1])
        if run.first < run.last:
            under = chain.others(under, run)
            following = next(runs, None)
            after = chain.entered(following)
        run, this = following, after
    if under is not None:
        chain.end(under)


class _Chain:
    def __init__(self, keys: Keys, emit: Emit) -> None:
        self.keys, self.s, self.emit = keys, keys.softmax, emit
        self.late = list(self.s.before) if has_rest(keys) else _read_late(self.s)

    def entered(self, run: Run | None) -> Blocks | None:
        """The first rows of a run, in front of their keys if there are whole blocks of these."""
        if run is None:
            return None
        this = run.at(run.first)
        if seen_parts(this, self.keys)[1]:
            enter(this, self.s.before, self.emit)
        run.load()  # the keys seen before need no more than the rows
        this.whole.update(run.at(run.first).whole)
        return this

    def begin(self, under: Underway | None, this: Blocks) -> Scored:
        """The first scores of the rows `this`, beside the last keys of the rows `under` way."""
        s = self.s
        following = this.inside(part=part_at(this, self.keys, seen_parts(this, self.keys)[0]))
        scored = None if under is None else self.end(under, following)
        if scored is not None:
            return scored
        with s.most.op.location:
            scores = scores_of(following, s.inside, unmasked(s.scores))
            return scores, largest_of(following, s, scores)

    def started(self, this: Blocks, scored: Scored) -> Underway:
        """The rows with their first scores."""
        with self.s.most.op.location:
            return started_with(this, seen_parts(this, self.keys)[0], *scored, initial(this, self.s, begun))

    def others(self, under: Underway, run: Run) -> Underway:
        """The rows of a run behind its first ones."""
        loop = scf.ForOp(*(index_constant(n) for n in (run.first, run.last, run.step)), under.values)
        with ir.InsertionPoint(loop.body):
            number = loop.induction_variable
            before = under.at(self._again(run.at(number)), loop.inner_iter_args)
            this = run.at(index_sum(number, run.step))
            enter(this, self.s.before, self.emit)
            started = self.started(this, self.begin(before, this))
            scf.YieldOp(until_last(started, self.keys, seen_parts(this, self.keys)[1]).values)
        return under.at(self._again(run.at(run.last)), loop.results)

    def end(self, under: Underway, following: Blocks | None = None) -> Scored | None:
        """The last keys of the rows `under` way; the scores that come next, where others follow."""
        with self.s.most.op.location:
            state, scored = last_of(under, self.keys, following)
            state = rest_of_keys(under.blocks, self.keys, state)
        leave(under.blocks, self.keys, state, self.emit)
        return scored

    def _again(self, blocks: Blocks) -> Blocks:
        """The rows before, of which what is not carried is loaded and computed anew."""
        enter(blocks, self.late, self.emit)
        return blocks


def _read_late(s: Softmax) -> list[ir.Operation]:
    """Ops in front of the keys whose results are read with the last keys, or behind them."""
    trees = [s.exponential.shift, *(t for _, t in s.sums), *(t for p in s.products for t in (p.operand, p.finish) if t is not None)]
    read = {leaf.value for t in trees for leaf in leaves(t)} | {v for op in s.after for v in op.operands}
    found = []
    for op in reversed(s.before):
        if any(v in read for v in op.results):
            read.update(op.operands)
            found.append(op)
    return found[::-1]
