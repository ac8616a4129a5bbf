"""Writes a tiled kernel as its plan says: the loops over batch axes and blocks of rows, and what stands in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ktir.analysis.axes import SECOND_OPERAND
from ktir.analysis.partial_sums import contribution, parts_of, summed
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, clone_ops, index_constant, index_sum
from ktir.mlir import func, ir, is_a, linalg, names, scf, tensor
from ktir.passes.general.replaced import replaced
from ktir.passes.tiling import contractions, online_softmax
from ktir.passes.tiling.blocks import Blocks, Part, rebuilt, times
from ktir.passes.tiling.key_pieces import Pieces
from ktir.passes.tiling.plan.tile_facts import TileFacts
from ktir.passes.tiling.plan.tile_plan import Keys, TilePlan
from ktir.passes.tiling.plan.tile_views import direct, is_block, tile_of

TOLERANCE = "ktir.tolerance"
"""On a kernel: the relative difference from its divided form."""

_LAID_ASIDE = names(
    *SECOND_OPERAND, func.ReturnOp, ktdp.ConstructAccessTileOp, ktdp.ConstructIndirectAccessTileOp, ktdp.StoreOp, tensor.EmptyOp,
    linalg.FillOp, linalg.GenericOp, ktdp.LoadOp, ktdp.InterTileProduceOp, ktdp.InterTileReduceOp,
)  # fmt: skip
"""Ops that are built where what they are for is built."""


def write(facts: TileFacts, plan: TilePlan, tolerance: float) -> None:
    """Put the tiled kernel in the place of the divided one; sums in parts differ from it by `tolerance`."""
    with replaced(facts.source) as (function, arguments):
        if plan.keys is not None or plan.k_parts > 1:
            function.attributes[TOLERANCE] = ir.FloatAttr.get(ir.F64Type.get(), tolerance)
        blocks = Blocks(facts, plan, arguments)
        _prologue(blocks)
        _nest(blocks, list(facts.loops.items()), 0)
        func.ReturnOp([])


def _prologue(blocks: Blocks) -> None:
    """Clone addresses and the views that are used as they are; then load what no loop changes, for a load of several windows may be that
    of a later one. A block that is all there is loads it where it is first used instead, so that work on what was loaded before begins.
    """
    used = _block_views(blocks)
    for op in blocks.facts.ops:
        if is_a(op, ktdp.ConstructMemoryViewOp):
            if op.results[0] in used:
                clone_ops([op], blocks.built)
        elif is_a(op, linalg.FillOp) and op.results[0] in blocks.facts.tensors and op.results[0] not in blocks.plan.in_parts:
            with op.location:
                blocks.built[op.results[0]] = blocks.init(op.results[0])
        elif op.name not in _LAID_ASIDE:
            clone_ops([op], blocks.built)
    for op in blocks.facts.ops:
        if is_a(op, ktdp.LoadOp) and (not blocks.plan.is_one_block(blocks.facts) or op.results[0] in blocks.plan.covers):
            _load_at(blocks, op, 0)


def _block_views(blocks: Blocks) -> set[ir.Value]:
    """Views of the divided level that are views of blocks as they stand."""
    found = set()
    for op in blocks.facts.ops:
        if is_a(op, ktdp.LoadOp, ktdp.StoreOp) and direct(tile := tile_of(op)):
            view = tile.operands[0]
            value = op.results[0] if is_a(op, ktdp.LoadOp) else op.operands[0]
            if is_block(view.owner.opview, blocks.place(value)):
                found.add(view)
    return found


def _nest(blocks: Blocks, loops: Sequence[tuple[int, int]], depth: int) -> None:
    """The loops over `loops`, and inside them that over blocks of rows; `depth` loops are open."""
    if not loops:
        _rows(blocks)
        return
    (axis, trips), *others = loops
    if not others and online_softmax.over_positions(blocks.facts, blocks.plan, depth + 1):

        def at(number: int | ir.Value) -> Blocks:
            counter = index_constant(number) if isinstance(number, int) else number
            return blocks.inside(position={**blocks.position, axis: counter})

        assert blocks.plan.keys is not None
        online_softmax.in_chain(blocks.plan.keys, iter([online_softmax.Run(0, trips - 1, 1, at)]), _op)
        return
    rolling = (
        [] if others else [(v.owner.operation, c.rolling) for v, c in blocks.plan.covers.items() if c.rolling is not None and c.leader == v]
    )
    begun = []
    for op, rolls in rolling:
        with op.location:
            empty = blocks.no_lines(op)
            begun.append(blocks.load_lines(op, empty, None, rolls.before) if rolls.before else empty)
    loop = scf.ForOp(index_constant(0), index_constant(trips), index_constant(1), begun)
    with ir.InsertionPoint(loop.body):
        counter = loop.induction_variable
        inner = blocks.inside(position={**blocks.position, axis: counter})
        seen = []
        for (op, rolls), so_far in zip(rolling, loop.inner_iter_args, strict=True):
            with op.location:
                first = index_sum(times(counter, rolls.step), rolls.before)
                assert not isinstance(first, int)
                seen.append(blocks.load_lines(op, so_far, first, rolls.each))
                inner.built[op.results[0]] = seen[-1]
        for op in inner.facts.ops:
            if is_a(op, ktdp.LoadOp):
                _load_at(inner, op, depth + 1)
        _nest(inner, others, depth + 1)
        scf.YieldOp(seen)


def _rows(blocks: Blocks) -> None:
    """The loop over blocks of rows, the first one before it where the others use what that leaves in the scratchpad."""
    plan = blocks.plan
    if plan.keys is not None and plan.keys.seen:
        _rows_that_see(blocks, plan.keys)
        return
    trips = blocks.facts.trips(plan.block_rows)
    if plan.keys is not None and plan.keys.pipelined and trips > 1:
        last = (trips - 1) * plan.block_rows
        online_softmax.in_chain(plan.keys, iter([online_softmax.Run(0, last, plan.block_rows, lambda row: blocks.inside(row=row))]), _op)
        return
    first = blocks.inside()
    if plan.peels:
        _block(first)
    start, end = plan.block_rows if plan.peels else 0, blocks.facts.share - sum(plan.last)
    if start < end:
        blocks.along(start, end, plan.block_rows, lambda row: _block(blocks.inside(row=row, whole=first.whole)))
    for rows in plan.last:
        _block(blocks.inside(row=end, whole=first.whole, plan=replace(plan, block_rows=rows)))
        end += rows


def _rows_that_see(blocks: Blocks, keys: Keys) -> None:
    """A loop for each run of blocks of rows that see the same keys, behind what these need of matrices that stay."""
    pieces = Pieces(blocks, keys)

    def runs() -> Iterator[online_softmax.Run]:
        row, rows = 0, blocks.plan.block_rows
        for seen, run in groupby(keys.seen):
            count = len(list(run))
            last, at = row + (count - 1) * rows, lambda row, seen=seen: blocks.inside(row=row, seen=seen)
            yield online_softmax.Run(row, last, rows, at, lambda seen=seen: pieces.load(seen))
            row += count * rows

    if keys.pipelined:
        online_softmax.in_chain(keys, runs(), _op)
    else:
        for run in runs():
            run.load()
            blocks.along(run.first, run.last + 1, run.step, lambda row, run=run: _block(run.at(row)))


def _block(blocks: Blocks) -> None:
    """A block of rows."""
    plan = blocks.plan
    if plan.keys is not None:
        online_softmax.rows_of(blocks, plan.keys, _op)
    elif plan.part is not None:
        _in_parts(blocks, plan.part.sticks, plan.part_sticks)
    else:
        _whole_rows(blocks)


def _whole_rows(blocks: Blocks) -> None:
    for op in blocks.facts.ops:
        with op.location:
            _op(blocks, op)


def _in_parts(blocks: Blocks, sticks: int, count: int) -> None:
    """The block, `count` of its sticks at a time, then what is left of them."""
    trips, rest = divmod(sticks, count)
    blocks.along(0, trips * count, count, lambda first: _whole_rows(blocks.inside(part=Part(first, count))))
    if rest:
        _whole_rows(blocks.inside(part=Part(trips * count, rest)))


def _load_at(blocks: Blocks, op: ir.Operation, depth: int) -> None:
    """Load a value if it belongs into the innermost one of `depth` open batch loops."""
    facts, plan, value = blocks.facts, blocks.plan, op.results[0]
    with op.location:
        if (m := facts.second_operands.get(value)) is not None:
            if m.op in plan.loaded_whole and m.depth == depth:
                contractions.load_whole(blocks, m)
        elif value not in plan.in_parts and value not in plan.streamed and value not in blocks.built:
            cover = plan.covers.get(value)
            rolls = cover is not None and cover.rolling is not None
            if not rolls and plan.depth(facts, facts.tensors[value]) == depth:
                blocks.load(op)


def _op(blocks: Blocks, op: ir.Operation) -> None:
    """An op of a block."""
    facts, plan, built = blocks.facts, blocks.plan, blocks.built
    if is_a(op, ktdp.LoadOp):
        value = op.results[0]
        if value not in facts.second_operands and value not in plan.streamed and value not in built:
            blocks.load(op)
    elif is_a(op, ktdp.StoreOp):
        if op.operands[0] not in plan.stored:
            blocks.store(op)
    elif is_a(op, linalg.FillOp) and op.results[0] in facts.tensors and op.results[0] in plan.in_parts:
        built[op.results[0]] = blocks.init(op.results[0])
    elif is_a(op, ktdp.InterTileReduceOp):
        partial = contribution(op.operands[0].owner.operation)
        built[op.results[0]] = summed(built[partial], facts.cores, parts_of(op))
    elif is_a(op, linalg.GenericOp) and op not in plan.in_epilogues:
        m = facts.matmul_of.get(op)
        if m is not None:
            if any(walk[-1] is m for walk in facts.walks):  # others are computed with one of these
                contractions.build(blocks, m)
        else:
            g = Generic(op)
            built[op.results[0]] = rebuilt(g, [blocks.operand(v) for v in g.inputs], blocks.init(g.init))
