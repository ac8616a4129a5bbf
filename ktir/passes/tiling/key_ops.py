"""Ops along the keys, for one block of them: what scores are computed from, products of weights, and what is stored along the keys.

What one op alone reads of a contraction is computed on its accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ktir.analysis.axes import k_in_stick, sticks_of
from ktir.analysis.scalars.expressions import Emission, Leaf, Live, Node, Tree, Trees, leaves, nodes
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, filled, index_constant
from ktir.mlir import arith, ir, is_a, linalg, scf
from ktir.passes.tiling.block_ops import Input, pointwise
from ktir.passes.tiling.blocks import Blocks, Part, insert_stick, part, stick
from ktir.passes.tiling.contractions import Weights, multiply
from ktir.passes.tiling.key_pieces import in_piece
from ktir.passes.tiling.tile_facts import Matmul
from ktir.target import LANES

Finish = Callable[[ir.Value, ir.Value, ir.Value], ir.Value]
"""What becomes of an output stick: from the finished accumulator, the result so far and the stick's number in the block."""


def product(blocks: Blocks, m: Matmul, first: ir.Value, columns: Part, steps: Part, whole: ir.Value, finish: Finish) -> ir.Value:
    """`first` times the second operand, of which `columns` are wanted and `steps` are the sticks of the reduced loop, into `whole`."""
    weights = Weights.of(blocks, m, _inside(m.g, columns, steps))
    assert blocks.plan.keys is not None
    columns, steps = in_piece(m, blocks.plan.keys, columns, steps)
    zero, one = index_constant(0), index_constant(1)
    outer = scf.ForOp(zero, index_constant(columns.count), one, [whole])
    with ir.InsertionPoint(outer.body):
        n = outer.induction_variable
        cleared = filled([1, blocks.plan.block_rows, LANES], ir.F32Type.get(), 0.0)
        inner = scf.ForOp(zero, index_constant(steps.count), one, [cleared])
        with ir.InsertionPoint(inner.body):
            k = inner.induction_variable
            at = [_moved(columns.first, n), _moved(steps.first, k)]
            second, _ = weights.block(*(at[::-1] if k_in_stick(m.g) else at))
            scf.YieldOp([multiply(m.g, stick(first, k), second, inner.inner_iter_args[0])])
        so_far = outer.inner_iter_args[0]
        scf.YieldOp([insert_stick(finish(inner.results[0], so_far, n), so_far, n)])
    return outer.results[0]


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


def scores_of(blocks: Blocks, ops: Sequence[ir.Operation], tree: Tree) -> ir.Value:
    """The block of scores, and with it everything else along the keys that is needed."""
    of_product = along_keys(blocks, ops, tree)
    if isinstance(tree, Leaf):
        return blocks.built[tree.value]
    return of_tree(blocks, tree) if of_product is None else of_product


def along_keys(blocks: Blocks, ops: Sequence[ir.Operation], scores: Tree | None = None) -> ir.Value | None:
    """Build ops along the keys; `scores` count as one that reads others. Returns these if they are computed on accumulators."""
    assert blocks.part is not None
    built = blocks.built
    found: ir.Value | None = None
    trees: dict[ir.Value | None, Tree] = {}
    for op in ops:
        if is_a(op, linalg.GenericOp) and (g := Generic(op)).is_pointwise:
            trees[op.results[0]] = Trees().of_scalar(g, g.yielded, through=False)
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
                made = _of_contraction(blocks, m, tree)
                if target is None and tree is not None:
                    found = made
                else:
                    built[m.result if target is None else target] = made
            elif op.results[0] not in built:
                built[op.results[0]] = of_tree(blocks, trees[op.results[0]], element_of(op.results[0]))
    return found


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


def _of_contraction(blocks: Blocks, m: Matmul, tree: Tree | None) -> ir.Value:
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
    return product(blocks, m, blocks.built[first], blocks.part, Part(0, sticks_of(first)), blocks.empty(blocks.part.count, element), finish)


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
