"""Softmax over blocks of keys: a loop that carries, per row, the largest score so far, the sums of weights and their products so far.

The scores of a row never exist as a whole. Stores along the keys, of the weights themselves, need a second loop over them.
"""

from __future__ import annotations

from collections.abc import Callable

from ktir.analysis.axes import sticks_of
from ktir.analysis.scalars.expressions import Emission
from ktir.analysis.softmax import PRODUCT, Product, Softmax, unmasked
from ktir.cost.softmax import Sticks
from ktir.dialects import ktdp
from ktir.dialects.structured import element_of, index_constant
from ktir.mlir import ir, is_a, scf
from ktir.passes.tiling.blocks import Blocks, Input, Part, pointwise
from ktir.passes.tiling.key_ops import along_keys, inputs_of, scores_of
from ktir.passes.tiling.key_weights import added, started, with_nan
from ktir.passes.tiling.pipelined_softmax import over_keys, part_of
from ktir.passes.tiling.tile_plan import Keys
from ktir.target import LANES

State = list[ir.Value]
"""What the loop carries: the largest score, the sums, the products."""
Step = Callable[[Blocks, State], State]
"""What one block of keys does to that."""


def build(blocks: Blocks, keys: Keys, emit: Callable[[Blocks, ir.Operation], None]) -> None:
    """The ops of the kernel in a block of rows; `emit` builds those that are not along the keys."""
    s = keys.softmax
    for op in s.before:
        with op.location:
            emit(blocks, op)
    with s.most.op.location:
        state = _over_keys(blocks, keys, lambda b, state: _update(b, s, state), lambda: _initial(blocks, s), pipelined=keys.pipelined)
        unfinished = _finish(blocks, s, state)
    for op in s.after:
        for p in s.products:
            if p.contraction.op.results[0] in list(op.operands) and p in unfinished:
                _finish_product(blocks, p, unfinished.pop(p))
        with op.location:
            if is_a(op, ktdp.StoreOp) and op.operands[0] not in blocks.plan.stored:
                blocks.store_rows(op, blocks.built[op.operands[0]], 0)
            else:
                emit(blocks, op)
    if s.again:
        with s.again[-1].location:
            _over_keys(blocks.inside(seen=None), keys, lambda b, _: _again(b, s), list)


def _initial(blocks: Blocks, s: Softmax) -> State:
    products = [p.contraction.op.results[0] for p in s.products]
    zeros = [*(g.op.results[0] for g, _ in s.sums), *products]
    return [started(blocks, s.most.op.results[0], float("-inf")), *(started(blocks, v, 0.0) for v in zeros)]


def _over_keys(blocks: Blocks, keys: Keys, step: Step, initial: Callable[[], State], *, pipelined: bool = False) -> State:
    """The keys in blocks of whole sticks, then the rest; what a block has built is forgotten after it."""
    s, sticks = keys.softmax, keys.sticks
    seen = blocks.seen or Sticks(0, s.sticks)
    start, whole = seen.first // sticks, s.columns // LANES // sticks
    trips = min(-(-seen.end // sticks), whole) - start
    if trips > 1 and pipelined:
        state = over_keys(blocks, keys, start, trips, initial)
    elif trips > 1:
        loop = scf.ForOp(*(index_constant(n) for n in (start, start + trips, 1)), initial())
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(step(blocks.inside(part=part_of(loop.induction_variable, sticks)), list(loop.inner_iter_args)))
        state = list(loop.results)
    else:
        state = initial()
        if trips == 1:
            state = step(blocks.inside(part=part_of(start, sticks)), state)
    first = whole * sticks
    if seen.end <= first:
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
        blocks.built[g.op.results[0]] = with_nan(blocks, value, most) if s.undefined else value
    return dict(zip(s.products, rest[len(s.sums) :], strict=True))


def _finish_product(blocks: Blocks, p: Product, value: ir.Value) -> None:
    """The product that the next op reads, divided by the sum if its weights were."""
    tree = p.finish
    if tree is not None:
        inputs = [Input(PRODUCT, value), *inputs_of(blocks, tree)]
        with p.contraction.op.location:
            value = pointwise(inputs, sticks_of(value), blocks.plan.block_rows, lambda x: Emission(x)(tree), element_of(value))
    blocks.built[p.contraction.op.results[0]] = value
