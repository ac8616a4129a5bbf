"""Softmax over blocks of keys: a loop that carries, per row, the largest score so far, the sums of weights and their products so far.

A block of keys takes part with weights exp(score - largest so far); what was summed up before is multiplied by exp(largest before - largest
now). Scores that are all -inf have weight 0: what they are shifted by is held at the lowest finite number. The scores of a row never
exist as a whole. Stores along the keys, of the weights themselves, need a second loop over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ktir.analysis.expressions import Emission, Hole, Leaf, Live, Node, Tree, Trees, leaves, nodes
from ktir.analysis.softmax import PRODUCT, WEIGHT, Product, Softmax, unmasked
from ktir.dialects.structured import Generic, number
from ktir.mlir import arith, ir, linalg, math, scf, tensor
from ktir.passes.tiling.block_ops import Body, Input, element_of, pointwise, reduced, sticks_of
from ktir.passes.tiling.blocks import Blocks, Part, stick
from ktir.passes.tiling.key_products import KeyProducts
from ktir.passes.tiling.online_plan import KeyedPlan
from ktir.passes.tiling.tile_views import index_constant
from ktir.target import LANES

_SCORE, _OLD, _NEW, _FACTOR, _SUM = (Hole(name) for name in ("score", "old", "new", "factor", "sum"))
_LOWEST = {"f16": -65504.0, "f32": -3.4028234663852886e38}
"""Finite: -inf minus that is -inf, where -inf minus -inf were NaN."""

State = list[ir.Value]
"""What the loop carries: the largest score, the sums, the products."""
Step = Callable[[Part, int | None, State], State]


class KeyParts(NamedTuple):
    """Keys in blocks: `trips` of `sticks` whole sticks each, then the rest, of whose columns only `end` are live unless it is None."""

    trips: int
    sticks: int
    rest: Part | None
    end: int | None

    @staticmethod
    def of(softmax: Softmax, sticks: int) -> KeyParts:
        """The keys in blocks of `sticks` sticks."""
        trips = softmax.columns // LANES // sticks
        first = trips * sticks
        rest = Part(first, softmax.sticks - first) if first < softmax.sticks else None
        return KeyParts(trips, sticks, rest, softmax.columns - first * LANES if softmax.columns % LANES else None)


class OnlineSoftmax:
    """Builds the softmax of a block of rows at the insertion point."""

    def __init__(self, plan: KeyedPlan, blocks: Blocks) -> None:
        self.softmax = softmax = plan.softmax
        self.blocks = blocks
        self.blocks.keyed = softmax.keyed
        self.products = KeyProducts(plan, blocks)
        self.parts = KeyParts.of(softmax, plan.sticks)
        self.trees = Trees()
        self.rows = plan.block_rows
        self.largest = softmax.most.op.results[0]

    def build(self, emit: Callable[[ir.Operation], None]) -> None:
        """The ops of the kernel; `emit` builds those that are not along the keys."""
        s = self.softmax
        for op in s.before:
            with op.location:
                emit(op)
        with s.most.op.location:
            self._finish(self._over_keys(self._update, self._initial()))
        for op in s.after:
            for p in s.products:
                if p.contraction.op.results[0] in list(op.operands):
                    self._finish_product(p)
            with op.location:
                emit(op)
        if s.again:
            with s.again[-1].location:
                self._over_keys(self._again, [])

    # The loop over keys

    def _initial(self) -> State:
        s = self.softmax
        products = [p.contraction.op.results[0] for p in s.products]
        zeros = [*(g.op.results[0] for g, _ in s.sums), *products]
        return [self._filled(self.largest, float("-inf")), *(self._filled(v, 0.0) for v in zeros)]

    def _filled(self, like: ir.Value, value: float) -> ir.Value:
        element = element_of(like)
        empty = tensor.EmptyOp([sticks_of(like), self.rows, LANES], element).result
        return linalg.fill(arith.ConstantOp(element, number(element, value)).result, outs=[empty])

    def _over_keys(self, step: Step, state: State) -> State:
        parts = self.parts
        if parts.trips == 1:
            state = self._step(step, Part(0, parts.sticks), None, state)
        elif parts.trips:
            loop = scf.ForOp(*(index_constant(n) for n in (0, parts.trips, 1)), state)
            with ir.InsertionPoint(loop.body):
                first = loop.induction_variable
                if parts.sticks > 1:
                    first = arith.MulIOp(first, index_constant(parts.sticks)).result
                scf.YieldOp(self._step(step, Part(first, parts.sticks), None, list(loop.inner_iter_args)))
            state = list(loop.results)
        return state if parts.rest is None else self._step(step, parts.rest, parts.end, state)

    def _step(self, step: Step, part: Part, end: int | None, state: State) -> State:
        """One block of keys; what it has built is forgotten after it."""
        mapping = self.blocks.mapping
        outside = dict(mapping)
        self.blocks.keys = part
        state = step(part, end, state)
        self.blocks.keys = None
        mapping.clear()
        mapping.update(outside)
        return state

    def _update(self, part: Part, end: int | None, state: State) -> State:
        """The state after one more block of keys."""
        s = self.softmax
        score = self._scores(part, end)
        block = self._largest_of(score, end)
        old, *rest = state
        factor = self._factor(old, block)
        columns = [Input(_OLD, old, False, False), Input(_NEW, block, False, False)]
        most = self._column(columns, lambda x: arith.MaximumFOp(x[_OLD], x[_NEW]).result, element_of(old))
        weight = self._weight(score, most, part)
        sums = [self._sum(g, tree, weight, a, factor, end) for (g, tree), a in zip(s.sums, rest, strict=False)]
        products = [self._product(p, weight, a, factor, part, end) for p, a in zip(s.products, rest[len(sums) :], strict=True)]
        return [most, *sums, *products]

    # Scores

    def _scores(self, part: Part, end: int | None) -> ir.Value:
        """The block of scores, and with it everything else along the keys that is needed."""
        tree = unmasked(self.softmax.scores)
        self._along_keys(self.softmax.inside, part, end, tree)
        if isinstance(tree, Leaf):
            return self.blocks.mapping[tree.value]
        if self._score_of_product is not None:
            return self._score_of_product
        return self._of_tree(tree, part.count, end)

    def _along_keys(self, ops: Sequence[ir.Operation], part: Part, end: int | None, scores: Tree | None = None) -> None:
        """Build ops along the keys. What one alone reads of a contraction is computed on its accumulators; `scores` count as such an op."""
        mapping = self.blocks.mapping
        self._score_of_product: ir.Value | None = None
        trees: dict[ir.Value | None, Tree] = {}
        for op in ops:
            if op.name == "linalg.generic" and (g := Generic(op)).is_pointwise:
                trees[op.results[0]] = self.trees.of_scalar(g, g.yielded, through=False)
        if scores is not None and not isinstance(scores, Leaf):
            trees[None] = scores
        for op in ops:
            with op.location:
                if op.name == "ktdp.load":
                    self._load(op)
                elif op.name == "ktdp.store":
                    self.blocks.store(op)
                elif (g := Generic(op)).is_contraction:
                    target, tree = self._reader(op.results[0], trees)
                    built = self._of_contraction(g, tree, part)
                    if target is None and tree is not None:
                        self._score_of_product = built
                    else:
                        mapping[op.results[0] if target is None else target] = built
                elif op.results[0] not in mapping:
                    mapping[op.results[0]] = self._of_tree(trees[op.results[0]], part.count, end, element_of(op.results[0]))

    def _reader(self, accumulator: ir.Value, trees: dict[ir.Value | None, Tree]) -> tuple[ir.Value | None, Tree | None]:
        """The one result (None: the scores) that is computed from an accumulator, and its tree, if that can be done stick by stick."""
        readers = [(v, t) for v, t in trees.items() if any(leaf.value == accumulator for leaf in leaves(t))]
        if len(readers) != 1:
            return None, None
        value, tree = readers[0]
        others = [leaf.value for leaf in leaves(tree) if leaf.value != accumulator]
        ready = all(v in self.blocks.mapping or v.owner.name == "ktdp.load" for v in others)
        if (
            not ready
            or any(isinstance(t, Live) for t in nodes(tree))
            or not all(leaf.stick for leaf in leaves(tree) if leaf.value == accumulator)
        ):
            return None, None
        return value, tree

    def _of_contraction(self, g: Generic, tree: Tree | None, part: Part) -> ir.Value:
        """A contraction whose result lies along the keys, with what is computed on its accumulators."""
        result = g.op.results[0]
        tree = tree or Leaf(result, True, True)
        others = [leaf for leaf in leaves(tree) if leaf.value != result]
        for leaf in others:
            if leaf.value not in self.blocks.mapping:
                self._load(leaf.value.owner.operation)
        element = self._element(tree)

        def finish(accumulator: ir.Value, _: ir.Value, n: ir.Value) -> ir.Value:
            inputs = [Input(Leaf(result, True, True), accumulator)]
            for leaf in others:
                value = self.blocks.mapping[leaf.value]
                inputs.append(Input(leaf, stick(value, n) if leaf.stick else value, leaf.stick, leaf.lane))
            return pointwise(inputs, 1, self.rows, lambda x: Emission(x)(tree), element)

        whole = tensor.EmptyOp([part.count, self.rows, LANES], element).result
        steps = Part(0, sticks_of(g.inputs[0]))
        return self.products.build(g, self.blocks.mapping[g.inputs[0]], part, steps, whole, finish)

    def _load(self, op: ir.Operation) -> None:
        if op.results[0] not in self.blocks.mapping:
            self.blocks.load(op)

    def _of_tree(self, tree: Tree, sticks: int, end: int | None, element: ir.Type | None = None) -> ir.Value:
        """An op on blocks that computes a tree of built tensors."""
        inputs = [Input(leaf, self.blocks.mapping[leaf.value], leaf.stick, leaf.lane) for leaf in leaves(tree)]
        return pointwise(inputs, sticks, self.rows, lambda x: Emission(x, end=end)(tree), element or self._element(tree))

    @staticmethod
    def _element(tree: Tree) -> ir.Type:
        if isinstance(tree, Leaf):
            return element_of(tree.value)
        assert isinstance(tree, Node)
        return tree.op.results[0].type

    # Per row

    def _column(self, inputs: Sequence[Input], body: Body, element: ir.Type) -> ir.Value:
        return pointwise(inputs, 1, self.rows, body, element)

    def _largest_of(self, score: ir.Value, end: int | None) -> ir.Value:
        """The largest score of the block."""
        tree = self.softmax.scores
        masked = isinstance(tree, Node) and unmasked(tree) != tree
        whole = tree.with_operands((tree.operands[0], _SCORE, tree.operands[2])) if isinstance(tree, Node) and masked else _SCORE

        def body(x: dict[Tree, ir.Value]) -> ir.Value:
            return Emission(x, end=end, loops=(1, 2))(whole)

        init = self._filled(self.largest, float("-inf"))
        return reduced([Input(_SCORE, score)], init, body, lambda a, b: arith.MaximumFOp(a, b).result)

    def _factor(self, old: ir.Value, block: ir.Value) -> ir.Value:
        """What sums so far are multiplied by, in f32; 0 where there was nothing but -inf."""
        e = self.softmax.exponential
        others = [leaf for leaf in leaves(e.shift) if leaf.value != self.largest]
        inputs = [Input(_OLD, old, False, False), Input(_NEW, block, False, False)]
        inputs += [Input(leaf, self.blocks.mapping[leaf.value], False, False) for leaf in others]

        def body(x: dict[Tree, ir.Value]) -> ir.Value:
            shifts = []
            for most in (x[_OLD], arith.MaximumFOp(x[_OLD], x[_NEW]).result):
                known = {leaf: x[leaf] for leaf in others} | {leaf: _finite(most) for leaf in leaves(e.shift) if leaf.value == self.largest}
                shifts.append(_wide(Emission(known)(e.shift)))
            difference = arith.SubFOp(*shifts).result
            for factor in e.factors:
                difference = arith.MulFOp(difference, _constant(factor)).result
            return (math.ExpOp if e.tree.name == "math.exp" else math.Exp2Op)(difference).result

        return self._column(inputs, body, ir.F32Type.get())

    def _weight(self, score: ir.Value, most: ir.Value, part: Part) -> ir.Value:
        """exp(score - shift) of the block."""
        e = self.softmax.exponential
        others = [leaf for leaf in leaves(e.shift) if leaf.value != self.largest]
        inputs = [Input(_SCORE, score), Input(_NEW, most, False, False)]
        inputs += [Input(leaf, self.blocks.mapping[leaf.value], False, False) for leaf in others]

        def body(x: dict[Tree, ir.Value]) -> ir.Value:
            largest = _finite(x[_NEW])
            known = {leaf: x[leaf] for leaf in others} | {leaf: largest for leaf in leaves(e.shift) if leaf.value == self.largest}
            emission = Emission(known)
            emission.known[e.score] = x[_SCORE] if self._element(e.score) == x[_SCORE].type else _wide(x[_SCORE])
            return emission(e.tree)

        return pointwise(inputs, part.count, self.rows, body, self._element(e.tree))

    # What is summed up

    def _sum(self, g: Generic, tree: Tree, weight: ir.Value, old: ir.Value, factor: ir.Value, end: int | None) -> ir.Value:
        inputs = [Input(WEIGHT, weight), *self._others(tree)]
        init = self._filled(g.op.results[0], 0.0)

        def body(x: dict[Tree, ir.Value]) -> ir.Value:
            return Emission(x, end=end, loops=(1, 2))(tree)

        with g.op.location:
            block = reduced(inputs, init, body, lambda a, b: arith.AddFOp(a, b).result)
            columns = [Input(_OLD, old, False, False), Input(_FACTOR, factor, False, False), Input(_NEW, block, False, False)]
            return self._column(columns, _rescaled, element_of(old))

    def _product(self, p: Product, weight: ir.Value, old: ir.Value, factor: ir.Value, part: Part, end: int | None) -> ir.Value:
        with p.contraction.op.location:
            if p.operand == WEIGHT:
                first = weight
            else:
                inputs = [Input(WEIGHT, weight), *self._others(p.operand)]
                first = pointwise(inputs, part.count, self.rows, lambda x: Emission(x, end=end)(p.operand), ir.F16Type.get())

            def finish(accumulator: ir.Value, so_far: ir.Value, n: ir.Value) -> ir.Value:
                inputs = [Input(_OLD, stick(so_far, n)), Input(_FACTOR, factor, False, False), Input(_NEW, accumulator)]
                return pointwise(inputs, 1, self.rows, _rescaled, element_of(old))

            return self.products.build(p.contraction, first, Part(0, sticks_of(old)), part, old, finish)

    def _others(self, tree: Tree) -> list[Input]:
        return [Input(leaf, self.blocks.mapping[leaf.value], leaf.stick, leaf.lane) for leaf in leaves(tree)]

    # After the loop

    def _finish(self, state: State) -> None:
        """The finished largest score and sums."""
        s, mapping = self.softmax, self.blocks.mapping
        most, *rest = state
        mapping[self.largest] = most
        for (g, _), value in zip(s.sums, rest, strict=False):
            mapping[g.op.results[0]] = self._with_nan(value, most) if s.undefined else value
        self.unfinished = {p: value for p, value in zip(s.products, rest[len(s.sums) :], strict=True)}

    def _finish_product(self, p: Product) -> None:
        """The product that the next op reads, divided by the sum if its weights were."""
        value = self.unfinished.pop(p, None)
        if value is None:
            return
        if p.finish is not None:
            tree = p.finish
            inputs = [Input(PRODUCT, value), *self._others(tree)]
            with p.contraction.op.location:
                value = pointwise(inputs, sticks_of(value), self.rows, lambda x: Emission(x)(tree), element_of(value))
        self.blocks.mapping[p.contraction.op.results[0]] = value

    def _with_nan(self, total: ir.Value, most: ir.Value) -> ir.Value:
        """The sum, NaN where the largest score is no number but -inf, as exp(-inf - -inf) is."""

        def body(x: dict[Tree, ir.Value]) -> ir.Value:
            most = _wide(x[_NEW])
            return arith.AddFOp(x[_SUM], arith.SubFOp(most, most).result).result

        return self._column([Input(_SUM, total, False, False), Input(_NEW, most, False, False)], body, element_of(total))

    def _again(self, part: Part, end: int | None, _: State) -> State:
        """What is stored along the keys, from the finished sums."""
        self._along_keys(self.softmax.again, part, end)
        return []


def _rescaled(x: dict[Tree, ir.Value]) -> ir.Value:
    return arith.AddFOp(arith.MulFOp(x[_OLD], x[_FACTOR]).result, x[_NEW]).result


def _finite(most: ir.Value) -> ir.Value:
    lowest = arith.ConstantOp(most.type, ir.FloatAttr.get(most.type, _LOWEST[str(most.type)])).result
    return arith.MaximumFOp(most, lowest).result


def _wide(scalar: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    return scalar if scalar.type == f32 else arith.ExtFOp(f32, scalar).result


def _constant(value: float) -> ir.Value:
    f32 = ir.F32Type.get()
    return arith.ConstantOp(f32, ir.FloatAttr.get(f32, value)).result
