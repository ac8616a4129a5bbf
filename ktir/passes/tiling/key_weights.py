"""What a block of keys adds to a softmax: its largest score, its weights exp(score - largest so far), their sums and products.

What was summed up before is multiplied by exp(largest before - largest now). Scores that are all -inf have weight 0: what they are shifted
by is held at the lowest finite number, with which the largest score begins where that is seen by nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ktir.analysis.axes import sticks_of
from ktir.analysis.scalars.expressions import Emission, Hole, Node, Tree, leaves
from ktir.analysis.softmax import WEIGHT, Product, Softmax, unmasked
from ktir.dialects.structured import Generic, constant, element_of, filled
from ktir.mlir import arith, ir, is_a, math
from ktir.passes.tiling.blocks import Blocks, Body, Input, Part, pointwise, reduced, stick
from ktir.passes.tiling.key_ops import Blockwise, Tasks, inputs_of, type_of
from ktir.target import LANES, held

_SCORE, _OLD, _NEW, _FACTOR, _SUM = (Hole(name) for name in ("score", "old", "new", "factor", "sum"))


def started(blocks: Blocks, like: ir.Value, value: float) -> ir.Value:
    """A block of a reduction that has seen nothing."""
    return filled([sticks_of(like), blocks.plan.block_rows, LANES], element_of(like), value)


def begun(blocks: Blocks, like: ir.Value, value: float) -> ir.Value:
    """The same, which the vector unit writes: loads stand behind no fill that waits for those who read what was there before."""
    element = element_of(like)
    return pointwise([], sticks_of(like), blocks.plan.block_rows, lambda _: constant(element, value), element)


def added(blocks: Blocks, s: Softmax, score: ir.Value, state: Sequence[ir.Value]) -> list[ir.Value]:
    """The largest score, the sums and the products with one more block of keys."""
    block = largest_of(blocks, s, score)
    old, *rest = state
    factor = factor_of(blocks, s, old, block, more=True)
    most = larger(blocks, old, block)
    weight = weight_of(blocks, s, score, most)
    sums = [sum_with(blocks, g, sum_of(blocks, g, tree, weight), a, factor) for (g, tree), a in zip(s.sums, rest, strict=False)]
    products = [
        product_with(blocks, p, operand_of(blocks, p, weight), a, lambda: factor)
        for p, a in zip(s.products, rest[len(sums) :], strict=True)
    ]
    return [most, *sums, *products]


def larger(blocks: Blocks, old: ir.Value, block: ir.Value) -> ir.Value:
    """The largest score so far."""
    return _column(blocks, [_row(_OLD, old), _row(_NEW, block)], lambda x: arith.MaximumFOp(x[_OLD], x[_NEW]).result, element_of(old))


def copied(blocks: Blocks, column: ir.Value) -> ir.Value:
    """A number per row in a place of its own."""
    return _column(blocks, [_row(_OLD, column)], lambda x: x[_OLD], element_of(column))


def lowest_of(s: Softmax) -> float:
    """What the largest score of a row begins with."""
    return held(element_of(s.most.op.results[0])).lowest if s.from_finite else float("-inf")


def with_nan(blocks: Blocks, s: Softmax, total: ir.Value, most: ir.Value) -> ir.Value:
    """The sum, NaN where the largest score is no number but -inf, as exp(-inf - -inf) is; the sum is 0 there."""

    def of_sum(x: dict[Tree, ir.Value]) -> ir.Value:
        zero, nan = (constant(element_of(total), value) for value in (0.0, float("nan")))
        return arith.SelectOp(arith.CmpFOp(arith.CmpFPredicate.OEQ, x[_SUM], zero).result, nan, x[_SUM]).result

    def body(x: dict[Tree, ir.Value]) -> ir.Value:
        most = _wide(x[_NEW])
        return arith.AddFOp(x[_SUM], arith.SubFOp(most, most).result).result

    if s.from_finite:
        return _column(blocks, [_row(_SUM, total)], of_sum, element_of(total))
    return _column(blocks, [_row(_SUM, total), _row(_NEW, most)], body, element_of(total))


def _row(name: Tree, value: ir.Value) -> Input:
    """An operand that is a number per row."""
    return Input(name, value, False, False)


def _column(blocks: Blocks, inputs: Sequence[Input], body: Body, element: ir.Type) -> ir.Value:
    return pointwise(inputs, 1, blocks.plan.block_rows, body, element)


def largest_of(blocks: Blocks, s: Softmax, score: ir.Value) -> ir.Value:
    """The largest score of the block."""
    tree = s.scores
    masked = isinstance(tree, Node) and unmasked(tree) != tree
    whole = tree.with_operands((tree.operands[0], _SCORE, tree.operands[2])) if isinstance(tree, Node) and masked else _SCORE
    init = started(blocks, s.most.op.results[0], float("-inf"))
    return reduced([Input(_SCORE, score)], init, _seen(blocks, whole), lambda a, b: arith.MaximumFOp(a, b).result)


def _seen(blocks: Blocks, tree: Tree) -> Body:
    """The body of a reduction over the live columns of the block."""
    assert blocks.part is not None
    end = blocks.part.end
    return lambda x: Emission(x, end=end, loops=(1, 2))(tree)


def _shift_inputs(blocks: Blocks, s: Softmax) -> list[Input]:
    """What else than the largest score a shift is computed from."""
    largest = s.most.op.results[0]
    return [_row(leaf, blocks.built[leaf.value]) for leaf in leaves(s.exponential.above[1]) if leaf.value != largest]


def _shifted_by(s: Softmax, x: dict[Tree, ir.Value], most: ir.Value) -> Emission:
    """Builds what is shifted by that of a largest score."""
    largest, finite = s.most.op.results[0], most if s.from_finite else _finite(most)
    return Emission({leaf: finite if leaf.value == largest else x[leaf] for leaf in leaves(s.exponential.above[1])})


def factor_of(blocks: Blocks, s: Softmax, old: ir.Value, new: ir.Value, *, more: bool = False) -> ir.Value:
    """What sums so far are multiplied by, in f32; 0 where there was nothing but -inf. `new`: the largest score now, or that of `more` keys
    alone."""
    e, f32 = s.exponential, ir.F32Type.get()

    def body(x: dict[Tree, ir.Value]) -> ir.Value:
        shifts = []
        for most in (x[_OLD], arith.MaximumFOp(x[_OLD], x[_NEW]).result if more else x[_NEW]):
            shifts.append(_wide(_shifted_by(s, x, most)(e.above[1])))
        difference = arith.SubFOp(*shifts).result
        for factor in e.factors:
            difference = arith.MulFOp(difference, constant(f32, factor)).result
        return (math.ExpOp if is_a(e.tree, math.ExpOp) else math.Exp2Op)(difference).result

    return _column(blocks, [_row(_OLD, old), _row(_NEW, new), *_shift_inputs(blocks, s)], body, f32)


def weight_of(blocks: Blocks, s: Softmax, score: ir.Value, most: ir.Value) -> ir.Value:
    """exp(score - shift) of some sticks of scores."""
    e = s.exponential

    def body(x: dict[Tree, ir.Value]) -> ir.Value:
        emission = _shifted_by(s, x, x[_NEW])
        emission.known[e.score] = x[_SCORE] if type_of(e.score) == x[_SCORE].type else _wide(x[_SCORE])
        return emission(e.above[0])

    inputs = [Input(_SCORE, score), _row(_NEW, most), *_shift_inputs(blocks, s)]
    return pointwise(inputs, sticks_of(score), blocks.plan.block_rows, body, type_of(e.tree))


def operand_of(blocks: Blocks, p: Product, weight: ir.Value) -> ir.Value:
    """What a product takes of some sticks of weights."""
    if p.operand == WEIGHT:
        return weight
    assert blocks.part is not None
    end = blocks.part.end
    inputs = [Input(WEIGHT, weight), *inputs_of(blocks, p.operand)]
    with p.contraction.op.location:
        element = element_of(p.contraction.inputs[0])
        return pointwise(inputs, sticks_of(weight), blocks.plan.block_rows, lambda x: Emission(x, end=end)(p.operand), element)


def sum_of(blocks: Blocks, g: Generic, tree: Tree, weight: ir.Value) -> ir.Value:
    """The sum of a block of weights."""
    inputs = [Input(WEIGHT, weight), *inputs_of(blocks, tree)]
    with g.op.location:
        return reduced(inputs, started(blocks, g.op.results[0], 0.0), _seen(blocks, tree), lambda a, b: arith.AddFOp(a, b).result)


def sum_with(blocks: Blocks, g: Generic, block: ir.Value, old: ir.Value, factor: ir.Value) -> ir.Value:
    """The sum so far with that of a block."""
    with g.op.location:
        return _column(blocks, [_row(_OLD, old), _row(_FACTOR, factor), _row(_NEW, block)], _rescaled, element_of(old))


def product_with(
    blocks: Blocks, p: Product, first: ir.Value, old: ir.Value, factor: Callable[[], ir.Value], tasks: Tasks | None = None
) -> ir.Value:
    """The product so far with that of a block, of which `first` is what it takes of the weights. `factor` is asked for where a stick of it
    is finished; each of `tasks` stands beside a block, as far as there are some."""
    part, rows = blocks.part, blocks.plan.block_rows
    assert part is not None

    def finish(accumulator: ir.Value, so_far: ir.Value, n: ir.Value) -> ir.Value:
        inputs = [Input(_OLD, stick(so_far, n)), _row(_FACTOR, factor()), Input(_NEW, accumulator)]
        return pointwise(inputs, 1, rows, _rescaled, element_of(old))

    with p.contraction.op.location:
        whole = Blockwise(blocks, blocks.facts.matmul_of[p.contraction.op], first, Part(0, sticks_of(old)), part)
        return whole.beside(old, finish, deque() if tasks is None else tasks)


def _rescaled(x: dict[Tree, ir.Value]) -> ir.Value:
    return arith.AddFOp(arith.MulFOp(x[_OLD], x[_FACTOR]).result, x[_NEW]).result


def _finite(most: ir.Value) -> ir.Value:
    """At least the lowest finite number: -inf minus that is -inf, where -inf minus -inf were NaN."""
    return arith.MaximumFOp(most, constant(most.type, held(most.type).lowest)).result


def _wide(scalar: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    return scalar if scalar.type == f32 else arith.ExtFOp(f32, scalar).result
