"""Ops along the keys, for one block of them: what scores are computed from, products of weights, and what is stored along the keys.

What one op alone reads of a contraction is computed on its accumulators.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

from ktir.analysis.axes import k_in_stick, sticks_of
from ktir.analysis.scalars.expressions import Emission, Leaf, Live, Node, Tree, Trees, leaves, nodes, shown
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, filled, index_constant
from ktir.mlir import arith, ir, is_a, linalg, scf
from ktir.passes.tiling.blocks import Blocks, Input, Part, insert_stick, part, pointwise, stick, times
from ktir.passes.tiling.contractions import Weights, multiply
from ktir.passes.tiling.key_pieces import in_piece
from ktir.passes.tiling.plan.tile_facts import Matmul
from ktir.target import LANES

Task = Callable[[], None]
Tasks = deque[Task]
"""Ops of the vector unit, each built by a call, that stand beside blocks which the matrix array multiplies."""


class Beside(Protocol):
    """What the vector unit does at each stick of a product meanwhile; it makes tensors, stick by stick."""

    made: list[ir.Value]

    def tasks(self, number: ir.Value, made: list[ir.Value]) -> Tasks:
        """What is done at a stick; it replaces the tensors `made` by those with this stick."""
        ...


Finish = Callable[[ir.Value, ir.Value, ir.Value], ir.Value]
"""What becomes of an output stick: from the finished accumulator, the result so far and the stick's number in the block."""


class Blockwise:
    """`first` times the second operand, of which `columns` are wanted and `steps` are the sticks of the reduced loop."""

    def __init__(self, blocks: Blocks, m: Matmul, first: ir.Value, columns: Part, steps: Part) -> None:
        self.weights = Weights.of(blocks, m, _inside(m.g, columns, steps))
        self.columns, self.steps = in_piece(blocks, m, columns, steps)
        self.blocks, self.m, self.first = blocks, m, first

    def into(self, whole: ir.Value, finish: Finish, beside: Beside | None = None, *, number: int = 0) -> ir.Value:
        """The product from stick `number` on, put into `whole` stick by stick; `beside` has done its part then."""
        if number == self.columns.count:
            return whole
        loop = scf.ForOp(*(index_constant(n) for n in (number, self.columns.count, 1)), [whole, *(beside.made if beside else ())])
        with ir.InsertionPoint(loop.body):
            n, (so_far, *made) = loop.induction_variable, loop.inner_iter_args
            total = self.sums(n, tasks := beside.tasks(n, made) if beside else deque())
            while tasks:
                tasks.popleft()()
            scf.YieldOp([insert_stick(finish(total, so_far, n), so_far, n), *made])
        if beside is not None:
            beside.made = list(loop.results)[1:]
        return loop.results[0]

    def beside(self, whole: ir.Value, finish: Finish, tasks: Tasks) -> ir.Value:
        """The product, put into `whole`, with all of `tasks` beside its blocks."""
        number, tasks = 0, _dealt(tasks, self.columns.count * self.steps.count)
        while tasks and number < self.columns.count:
            n = index_constant(number)
            whole = insert_stick(finish(self.sums(n, tasks), whole, n), whole, n)
            number += 1
        return self.into(whole, finish, number=number)

    def sums(self, n: ir.Value, tasks: Tasks) -> ir.Value:
        """One stick of the product in PT. Each of `tasks` stands behind a block, where both of them run at the same time."""
        total = filled([1, self.blocks.plan.block_rows, LANES], ir.F32Type.get(), 0.0)
        at_once = self._loaded(n) if tasks and self.weights.memory is not None else None
        number = 0
        while tasks and number < self.steps.count:
            total = self._block(n, index_constant(number), total, at_once)
            tasks.popleft()()
            number += 1
        if number == self.steps.count:
            return total
        loop = scf.ForOp(*(index_constant(k) for k in (number, self.steps.count, 1)), [total])
        with ir.InsertionPoint(loop.body):
            scf.YieldOp([self._block(n, loop.induction_variable, loop.inner_iter_args[0], at_once)])
        return loop.results[0]

    def _block(self, n: ir.Value, k: ir.Value, total: ir.Value, at_once: ir.Value | None) -> ir.Value:
        g, column = self.m.g, _moved(self.columns.first, n)
        with g.op.location:
            if at_once is not None:
                row = arith.MulIOp(k, index_constant(LANES)).result
                place = [k, index_constant(0)] if k_in_stick(g) else [index_constant(0), row]
                second = self.weights.factor.made(part(at_once, place, [1, LANES, LANES]), column)
            else:
                step = _moved(self.steps.first, k)
                second, _ = self.weights.block(step, column) if k_in_stick(g) else self.weights.block(column, step)
            return multiply(g, stick(self.first, k), second, total)

    def _loaded(self, n: ir.Value) -> ir.Value:
        """All blocks of a stick of columns, which stream by."""
        column, count = _moved(self.columns.first, n), self.steps.count
        assert self.weights.memory is not None
        with self.m.g.op.location:
            if k_in_stick(self.m.g):
                row = arith.MulIOp(column, index_constant(LANES)).result
                tile = self.weights.memory.tile(self.steps.first, row, [count, LANES, LANES])
            else:
                tile = self.weights.memory.tile(column, times(self.steps.first, LANES), [1, count * LANES, LANES])
            return ktdp.load(tile, self.weights.element)


def _dealt(tasks: Tasks, blocks: int) -> Tasks:
    """Tasks for so many blocks: the first one beside the first block, the others, as many as there are, over all of them."""
    last = max(blocks - 1, 1)
    queue = list(tasks)
    tasks.clear()
    ends = [1 + i * (len(queue) - 1) // last if blocks > 1 else len(queue) for i in range(blocks)]
    return deque(partial(_all, queue[begin:end]) for begin, end in pairwise([0, *ends]) if queue)


def _all(tasks: Sequence[Task]) -> None:
    for task in tasks:
        task()


def _inside(g: Generic, columns: Part, steps: Part) -> str:
    """Where a part of the keys that a counter moves ends inside of the second operand: its `rows` or its `lanes`."""
    if not isinstance(columns.first, int):
        return "rows" if k_in_stick(g) else "lanes"
    if not isinstance(steps.first, int):
        return "lanes" if k_in_stick(g) else "rows"
    return ""


def _moved(first: int | ir.Value, by: ir.Value) -> ir.Value:
    if isinstance(first, int):
        return by if first == 0 else arith.AddIOp(by, index_constant(first)).result
    return arith.AddIOp(first, by).result


def scores_of(
    blocks: Blocks, ops: Sequence[ir.Operation], tree: Tree, into: ir.Value | None = None, beside: Beside | None = None
) -> ir.Value:
    """The block of scores, and with it everything else along the keys that is needed; `into` scores that nothing reads from then on, with
    `beside` while the product is made."""
    assert blocks.part is not None
    tree = shown(tree) if blocks.part.open else tree
    of_product = along_keys(blocks, ops, tree, into, beside)
    if isinstance(tree, Leaf):
        return blocks.built[tree.value]
    return of_tree(blocks, tree) if of_product is None else of_product


def along_keys(
    blocks: Blocks, ops: Sequence[ir.Operation], scores: Tree | None = None, into: ir.Value | None = None, beside: Beside | None = None
) -> ir.Value | None:
    """Build ops along the keys; `scores` count as one that reads others. Returns these if they are computed on accumulators."""
    assert blocks.part is not None
    built = blocks.built
    found: ir.Value | None = None
    trees: dict[ir.Value | None, Tree] = {}
    for op in ops:
        if is_a(op, linalg.GenericOp) and (g := Generic(op)).is_pointwise:
            trees[op.results[0]] = Trees().of_scalar(g, g.yielded, through=False)
    if scores is not None and blocks.part.open:
        behind = _behind_contractions(ops)
        trees = {v: t if v in behind else shown(t) for v, t in trees.items()}
        ops = _needed(ops, trees, scores)
        trees = {v: t for v, t in trees.items() if any(v == op.results[0] for op in ops)}
    if scores is not None and not isinstance(scores, Leaf):
        trees[None] = scores
    for op in ops:
        with op.location:
            if is_a(op, ktdp.LoadOp):
                _load(blocks, op)
            elif is_a(op, ktdp.StoreOp):
                blocks.store(op)
            elif (m := blocks.facts.matmul_of.get(op)) is not None:
                target, tree = _reader(m.result, trees, blocks)
                result = m.result if target is None else target
                is_score = (tree is not None and target is None) or (isinstance(scores, Leaf) and scores.value in (result, m.result))
                made = _of_contraction(blocks, m, tree, into if is_score else None, beside)
                if target is None and tree is not None:
                    found = made
                else:
                    built[result] = made
            elif op.results[0] not in built:
                built[op.results[0]] = of_tree(blocks, trees[op.results[0]], element_of(op.results[0]))
    return found


def _behind_contractions(ops: Sequence[ir.Operation]) -> set[ir.Value]:
    """What contractions are computed from."""
    found: set[ir.Value] = set()
    for op in reversed(ops):
        contracts = is_a(op, linalg.GenericOp) and Generic(op).is_contraction
        if contracts or any(v in found for v in op.results):
            found.update(op.operands)
    return found


def _needed(ops: Sequence[ir.Operation], trees: Mapping[ir.Value | None, Tree], scores: Tree) -> list[ir.Operation]:
    """Those of ops along the keys that scores are computed from."""
    wanted = {leaf.value for leaf in leaves(scores)}
    found = []
    for op in reversed(ops):
        if len(op.results) == 1 and op.results[0] in wanted:
            found.append(op)
            wanted |= {leaf.value for leaf in leaves(trees[op.results[0]])} if op.results[0] in trees else set(op.operands)
    return found[::-1]


def _reader(accumulator: ir.Value, trees: dict[ir.Value | None, Tree], blocks: Blocks) -> tuple[ir.Value | None, Tree | None]:
    """The one result (None: the scores) that is computed from an accumulator, and its tree, if that can be done stick by stick."""
    readers = [(v, t) for v, t in trees.items() if any(leaf.value == accumulator for leaf in leaves(t))]
    if len(readers) != 1:
        return None, None
    value, tree = readers[0]
    ready = all(v == accumulator or v in blocks.built or is_a(v.owner, ktdp.LoadOp) for v in (leaf.value for leaf in leaves(tree)))
    if (
        not ready
        or any(isinstance(t, Live) for t in nodes(tree))
        or not all(leaf.stick for leaf in leaves(tree) if leaf.value == accumulator)
    ):
        return None, None
    return value, tree


def _of_contraction(blocks: Blocks, m: Matmul, tree: Tree | None, into: ir.Value | None, beside: Beside | None) -> ir.Value:
    """A contraction whose result lies along the keys, with what is computed on its accumulators."""
    assert blocks.part is not None
    accumulated = Leaf(m.result, True, True)
    tree = tree or accumulated
    others = [leaf for leaf in leaves(tree) if leaf.value != m.result]
    for leaf in others:
        if leaf.value not in blocks.built:
            _load(blocks, leaf.value.owner.operation)
    element = type_of(tree)

    def finish(accumulator: ir.Value, _: ir.Value, n: ir.Value) -> ir.Value:
        inputs = [Input(accumulated, accumulator)]
        for leaf in others:
            value = blocks.built[leaf.value]
            inputs.append(Input(leaf, stick(value, n) if leaf.stick else value, leaf.stick, leaf.lane))
        return pointwise(inputs, 1, blocks.plan.block_rows, lambda x: Emission(x)(tree), element)

    first = m.g.inputs[0]
    whole = blocks.empty(blocks.part.count, element) if into is None else into
    return Blockwise(blocks, m, blocks.built[first], blocks.part, Part(0, sticks_of(first))).into(whole, finish, beside)


def _load(blocks: Blocks, op: ir.Operation) -> None:
    value = op.results[0]
    if value in blocks.vectors:
        assert blocks.part is not None
        first = blocks.part.first
        place = index_constant(first) if isinstance(first, int) else first
        lanes = ir.RankedTensorType(value.type).shape[-1]
        blocks.built[value] = part(blocks.vectors[value], [place], [blocks.part.count, 1, lanes])
    elif value not in blocks.built:
        blocks.load(op)


def of_tree(blocks: Blocks, tree: Tree, element: ir.Type | None = None) -> ir.Value:
    """An op on blocks that computes a tree of built tensors."""
    part = blocks.part
    assert part is not None
    end = part.end
    operands, result = inputs_of(blocks, tree), element or type_of(tree)
    return pointwise(operands, part.count, blocks.plan.block_rows, lambda x: Emission(x, end=end)(tree), result)


def inputs_of(blocks: Blocks, tree: Tree) -> list[Input]:
    """The leaves of a tree as operands."""
    return [Input(leaf, blocks.built[leaf.value], leaf.stick, leaf.lane) for leaf in leaves(tree)]


def type_of(tree: Tree) -> ir.Type:
    """The type of a tree's scalar."""
    if isinstance(tree, Leaf):
        return element_of(tree.value)
    assert isinstance(tree, Node)
    return tree.op.results[0].type
