"""Recognises a softmax in a divided kernel, by what it computes: the largest score of a row, weights exp(score - largest), their sum, and
what else is linear in the weights: products with a second operand (attention), divided by the sum before or after.

Such a kernel may see its keys (the columns of the scores) block by block: sums so far are multiplied by exp(largest before - largest now).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ktir.analysis.axes import second_operand_source, sticks_of
from ktir.analysis.scalars.expressions import Hole, Leaf, Live, Node, NoTree, Tree, Trees, leaves, nodes
from ktir.dialects import ktdp
from ktir.dialects.op_facts import EXPONENTIALS
from ktir.dialects.structured import Generic
from ktir.mlir import arith, ir, is_a, linalg, tensor

WEIGHT = Hole("weight")
"""In trees: the weight of a key."""
PRODUCT = Hole("product")
"""In trees: an element of a finished product of weights with a second operand."""
MOST_TENSORS = 3
"""The vector unit has three inputs."""


@dataclass(frozen=True)
class Exponential:
    """The weight of a key, exp(c1 * c2 * .. * (score - shift)). `shift` is a function of the largest score that grows with it."""

    tree: Node
    """All of it."""
    score: Tree
    shift: Tree
    factors: tuple[float, ...]
    above: tuple[Node, Tree]
    """Tree and shift where the largest score is above -inf, without asking whether it is."""


@dataclass(frozen=True)
class Product:
    """A contraction of weights over keys: what its first operand is of a weight, not divided by the sum; and what becomes of the finished
    product by dividing that instead, None where nothing does."""

    contraction: Generic
    operand: Tree
    finish: Tree | None


@dataclass(frozen=True)
class Parts:
    """In which part of a kernel with a softmax its ops run, in order."""

    inside: tuple[ir.Operation, ...]
    """Ops along the keys that do not need the largest score, as far as their results or stores are needed."""
    before: tuple[ir.Operation, ...]
    """Ops on other tensors that do not need the largest score."""
    after: tuple[ir.Operation, ...]
    """Ops on other tensors that do."""
    again: tuple[ir.Operation, ...]
    """Ops along the keys for stores that need the finished sums: they see all keys once more."""


@dataclass(frozen=True)
class Softmax(Parts):
    """What a kernel does with the keys of a softmax."""

    columns: int
    """Keys."""
    sticks: int
    most: Generic
    """The reduction to the largest score."""
    scores: Tree
    """What it runs over, of its operands."""
    exponential: Exponential
    keyed: frozenset[ir.Value]
    """Tensors along the keys."""
    sums: tuple[tuple[Generic, Tree], ...]
    """Reductions to sums of weights, and what they run over, of a weight."""
    products: tuple[Product, ...]

    @property
    def undefined(self) -> bool:
        """Whether a row whose scores are all -inf has NaN as its weights, so that what it is shifted by must be finite there."""
        return not any(isinstance(t, Node) and is_a(t, arith.SelectOp, arith.MaximumFOp) for t in nodes(self.exponential.shift))

    @property
    def from_finite(self) -> bool:
        """Whether the largest score so far may begin with the lowest finite number: nothing else reads it, and where rows of -inf alone are
        to be found, their sums tell, which are 0: else the largest score itself has the weight 1."""
        if any(v == self.most.op.results[0] for op in (*self.after, *self.again) for v in op.operands):
            return False
        shift = self.exponential.shift
        plain = isinstance(shift, Leaf) or _widened_from(shift) is not None
        return not self.undefined or (plain and all(unmasked(tree) == WEIGHT for _, tree in self.sums))

    @property
    def pipelined(self) -> bool:
        """Whether the scores of the next block of keys may be computed while this one's are in use: they come from one product, and once
        they are there nothing else is needed of a block of keys."""
        matmuls = sum(is_a(op, linalg.GenericOp) and Generic(op).is_contraction for op in self.inside)
        trees = [*(t for _, t in self.sums), *(p.operand for p in self.products)]
        keyed = any(leaf.value in self.keyed for t in trees for leaf in leaves(t))
        return bool(self.products) and matmuls == 1 and not keyed and not any(is_a(op, ktdp.StoreOp) for op in self.inside)


def softmax_of(ops: Sequence[ir.Operation]) -> Softmax | None:
    """The softmax of a kernel, over more than one stick of keys; None if there is none that can be seen block by block."""
    return next(softmaxes(ops), None)


def softmaxes(ops: Sequence[ir.Operation], least_sticks: int = 2) -> Iterator[Softmax]:
    """Each softmax of at least so many sticks of keys in a laid-out function or a kernel."""
    generics = [Generic(op) for op in ops if is_a(op, linalg.GenericOp)]
    for g in generics:
        if _is_reduction(g) and g.combiner == "max" and max(sticks_of(v) for v in g.inputs) >= least_sticks:
            try:
                yield _softmax(_facts_of(ops, generics, g))
            except (_NoSoftmax, NoTree):
                continue


class _NoSoftmax(Exception):
    """The kernel is something else."""


def _need(condition: bool) -> None:
    if not condition:
        raise _NoSoftmax


@dataclass(frozen=True)
class _Facts:
    """Which ops and tensors of a kernel belong to what reduces rows to their largest elements."""

    ops: Sequence[ir.Operation]
    generics: list[Generic]
    most: Generic
    sticks: int
    keyed: frozenset[ir.Value]
    """Tensors whose sticks are walked together with those of the scores."""
    dependent: frozenset[ir.Value]
    """What the largest element is needed for, with it."""
    sums: list[Generic]
    """Other reductions along the keys."""
    finished: frozenset[ir.Value]
    """Numbers per row that follow from these."""
    products: list[Generic]
    """Contractions along the keys."""

    @property
    def largest(self) -> ir.Value:
        return self.most.op.results[0]


def _facts_of(ops: Sequence[ir.Operation], generics: list[Generic], most: Generic) -> _Facts:
    _need(all(_is_block(v) for v in most.inputs))
    keyed = _along_keys(generics, most)
    dependent = {most.op.results[0]}
    for op in ops:
        if len(op.results) == 1 and any(v in dependent for v in op.operands):
            dependent.add(op.results[0])
    sums = [g for g in generics if _is_reduction(g) and any(v in keyed for v in g.inputs) and g.op != most.op]
    finished = {g.op.results[0] for g in sums}
    for g in generics:
        if g.is_pointwise and g.op.results[0] not in keyed and any(v in finished for v in g.inputs):
            finished.add(g.op.results[0])
    products = [g for g in generics if g.is_contraction and g.inputs[0] in keyed]
    sticks = max(sticks_of(v) for v in most.inputs)
    return _Facts(ops, generics, most, sticks, keyed, frozenset(dependent), sums, frozenset(finished), products)


def _along_keys(generics: list[Generic], most: Generic) -> frozenset[ir.Value]:
    found = {v for i, v in enumerate(most.inputs) if most.loop_of(i, 0) is not None}
    while True:
        size = len(found)
        for g in generics:
            if g.is_contraction:
                continue
            loop = 0 if g.is_pointwise else len(g.iterators) - 2
            walked = {v for i, v in enumerate([*g.inputs, g.op.results[0]]) if g.loop_of(i, 0) == loop}
            if walked & found:
                found |= walked
        if len(found) == size:
            return frozenset(found)


def _softmax(facts: _Facts) -> Softmax:
    """What is computed from the largest elements, if that is a softmax."""
    reading = _Reading(facts)
    columns = reading.columns()
    for value in facts.keyed:
        _need(sticks_of(value) == facts.sticks and second_operand_free(value))
    sums = tuple((g, reading.weights(g)) for g in facts.sums)
    products = tuple(reading.product(g) for g in facts.products)
    exponential = reading.exponential
    _need(exponential is not None and bool(sums))
    assert exponential is not None
    scores = reading.trees.of_scalar(facts.most, facts.most.mapped, through=False)
    parts = _parts(facts, [scores, *(t for _, t in sums), *(p.operand for p in products)])
    return Softmax(
        **vars(parts),
        columns=columns,
        sticks=facts.sticks,
        most=facts.most,
        scores=scores,
        exponential=exponential,
        keyed=facts.keyed,
        sums=sums,
        products=products,
    )


class _Reading:
    """Reads what ops compute, on the trees of their scalars."""

    def __init__(self, facts: _Facts) -> None:
        self.facts = facts
        self.largest, self.keyed, self.dependent, self.finished = facts.largest, facts.keyed, facts.dependent, facts.finished
        self.trees = Trees(facts.finished)
        self.exponential: Exponential | None = None
        """That of the weights that have been read."""
        self.score = unmasked(self.trees.of_scalar(facts.most, facts.most.mapped))

    def columns(self) -> int:
        """Keys; all masks end there."""
        ends = set()
        for g in self.facts.generics:
            if any(v in self.keyed for v in [*g.inputs, g.op.results[0]]) and not g.is_contraction:
                scalars = [g.yielded] if g.is_pointwise else [g.mapped]
                ends |= {t.end for v in scalars for t in nodes(self.trees.of_scalar(g, v, through=False)) if isinstance(t, Live)}
        _need(len(ends) <= 1)
        columns = ends.pop() if ends else self.facts.sticks * 64
        _need(-(-columns // 64) == self.facts.sticks)
        return columns

    def weights(self, g: Generic) -> Tree:
        """What a sum runs over, of a weight."""
        _need(g.combiner == "add" and g.op.results[0] in self.dependent)
        tree = self.trees.of_scalar(g, g.mapped)
        _need(self._kind(tree) == "weight")
        stripped = self._stripped(tree)
        _need(len(set(leaves(stripped))) < MOST_TENSORS)
        return stripped

    def product(self, g: Generic) -> Product:
        """A contraction of weights."""
        value = g.inputs[0]
        _need(value in self.dependent and g.op.results[0] not in self.keyed)
        tree = self.trees.of_tensor(value)
        kind = self._kind(tree)
        _need(kind in ("weight", "divided"))
        operand, finish = self._stripped(tree), self._finish(tree) if kind == "divided" else None
        _need(all(len(set(leaves(t))) < MOST_TENSORS for t in (operand, finish) if t is not None))
        return Product(g, operand, finish)

    def _kind(self, tree: Tree) -> str:
        """How a scalar depends on the largest score.

        `free`: not at all; `shift`: a number per row that grows with it; `guard`: a condition on that; `exponent`: a score minus that;
        `weight`: proportional to exp(-shift); `divided`: a weight divided by a sum; `sum`: another number per row of finished sums.
        """
        if isinstance(tree, Leaf):
            if tree.value == self.largest:
                return "shift"
            if tree.value in self.finished:
                return "sum"
            _need(tree.value not in self.dependent)
            return "free"
        if not isinstance(tree, Node) or not tree.operands:
            return "free"
        kinds = [self._kind(t) for t in tree.operands]
        if set(kinds) == {"free"}:
            return "free"
        found = self._kind_of(tree, kinds)
        if found is None:
            _need(set(kinds) <= {"free", "shift", "guard", "sum"} and self._of_row(tree))
            return "sum"
        return found

    def _kind_of(self, tree: Node, kinds: list[str]) -> str | None:
        operands = tree.operands
        if is_a(tree, arith.ExtFOp, arith.TruncFOp) and kinds[0] != "guard":
            return kinds[0]
        if is_a(tree, arith.MaximumFOp) and sorted(kinds) == ["free", "shift"] and self._of_row(tree):
            return "shift"
        if is_a(tree, arith.CmpFOp) and sorted(kinds) == ["free", "shift"] and self._of_row(tree):
            return "guard"
        if is_a(tree, arith.SelectOp) and kinds[0] == "guard" and sorted(kinds[1:]) == ["free", "shift"]:
            return "shift"
        if is_a(tree, arith.SubFOp) and kinds == ["free", "shift"] and not self._of_row(operands[0]):
            _need(operands[0] == self.score or _widened_from(operands[0]) == self.score)
            return "exponent"
        if is_a(tree, arith.MulFOp) and sorted(kinds) == ["exponent", "free"]:
            _need(_number(operands[kinds.index("free")]) is not None)
            return "exponent"
        if tree.name in EXPONENTIALS and kinds == ["exponent"]:
            self._note(tree)
            return "weight"
        if is_a(tree, arith.SelectOp) and kinds[0] == "free":
            return self._chosen(operands[1:], kinds[1:])
        if is_a(tree, arith.SelectOp) and kinds[0] == "sum" and self._of_row(operands[0]):
            return "divided" if self._chosen(operands[1:], kinds[1:]) else None
        if is_a(tree, arith.MulFOp, arith.DivFOp) and kinds[0] in ("weight", "divided") and kinds[1] in ("free", "sum"):
            return "divided" if kinds[1] == "sum" else kinds[0]
        if is_a(tree, arith.MulFOp) and kinds[1] in ("weight", "divided") and kinds[0] in ("free", "sum"):
            return "divided" if kinds[0] == "sum" else kinds[1]
        return None

    def _chosen(self, operands: Iterable[Tree], kinds: list[str]) -> str | None:
        """Of `select`: a weight or zero."""
        for tree, kind in zip(operands, kinds, strict=True):
            if kind == "free":
                _need(_number(tree) == 0.0)
        return next((k for k in kinds if k in ("weight", "divided")), None)

    def _of_row(self, tree: Tree) -> bool:
        """Whether a scalar is the same in all columns."""
        return all(leaf.of_row or leaf.value not in self.keyed for leaf in leaves(tree)) and not any(
            isinstance(t, Live) for t in nodes(tree)
        )

    def _note(self, tree: Node) -> None:
        """The exponential of a weight; all weights have the same."""
        factors: list[float] = []
        at = tree.operands[0]
        while True:
            assert isinstance(at, Node)
            if is_a(at, arith.SubFOp):
                break
            if is_a(at, arith.MulFOp):
                numbers = [_number(t) for t in at.operands]
                factors += [n for n in numbers if n is not None]
                at = at.operands[0 if numbers[0] is None else 1]
            else:
                at = at.operands[0]
        shift = self._above(at.operands[1])
        above = _with(tree, at.operands[1], shift)
        assert isinstance(above, Node)
        found = Exponential(tree, at.operands[0], at.operands[1], tuple(factors), (above, shift))
        _need(self.exponential in (None, found) and all(f > 0 for f in factors) and self._of_row(found.shift))
        _need(len({leaf.value for leaf in leaves(found.shift)}) <= MOST_TENSORS - 1)
        self.exponential = found

    def _above(self, tree: Tree) -> Tree:
        """What a shift is where the largest score is above -inf."""
        if not isinstance(tree, Node):
            return tree
        if is_a(tree, arith.SelectOp) and self._asks_for_nothing(tree.operands[0]):
            return self._above(tree.operands[2])
        return tree.with_operands(tuple(self._above(t) for t in tree.operands))

    def _asks_for_nothing(self, tree: Tree) -> bool:
        """Whether a condition is that the largest score is -inf."""
        if not isinstance(tree, Node) or not is_a(tree, arith.CmpFOp):
            return False
        equal = ir.IntegerAttr(tree.op.attributes["predicate"]).value == int(arith.CmpFPredicate.OEQ)
        return equal and any(
            isinstance(_widened_from(x) or x, Leaf) and self._kind(x) == "shift" and _number(y) == float("-inf")
            for x, y in (tree.operands, tree.operands[::-1])
        )

    def _is_weight(self, tree: Tree) -> bool:
        return self.exponential is not None and tree == self.exponential.tree

    def _stripped(self, tree: Tree) -> Tree:
        """What a weight becomes, without the division by the sum."""
        if self._is_weight(tree):
            return WEIGHT
        assert isinstance(tree, Node)
        kinds = [self._kind(t) for t in tree.operands]
        if "sum" in kinds:
            return self._stripped(tree.operands[_of_weight(kinds)])
        return tree.with_operands(
            tuple(self._stripped(t) if k in ("weight", "divided") else t for t, k in zip(tree.operands, kinds, strict=True))
        )

    def _finish(self, tree: Tree) -> Tree:
        """The division by the sum, of a finished product."""
        if self._is_weight(tree):
            return PRODUCT
        assert isinstance(tree, Node)
        kinds = [self._kind(t) for t in tree.operands]
        at = _of_weight(kinds)
        if "sum" not in kinds:
            return self._finish(tree.operands[at])
        _need(tree.type == "f32")
        return tree.with_operands(tuple(self._finish(t) if i == at else t for i, t in enumerate(tree.operands)))


def _parts(facts: _Facts, trees: Sequence[Tree]) -> Parts:
    """Says of each op in which part of the kernel it runs; `trees` is what each block of keys computes."""
    keyed, dependent = facts.keyed, facts.dependent
    stores = [op for op in facts.ops if is_a(op, ktdp.StoreOp)]
    late = [op for op in stores if op.operands[0] in keyed and op.operands[0] in dependent]
    needed_again = _behind([op.operands[0] for op in late], keyed)
    wanted = [leaf.value for t in trees for leaf in leaves(t)]
    wanted += [op.operands[0] for op in stores if op.operands[0] in keyed and op not in late]
    needed_inside = _behind(wanted, keyed)
    _need(not any(v in dependent for v in needed_inside))
    carried = {facts.largest, *(g.op.results[0] for g in (*facts.sums, *facts.products))}
    inside, before, after, again = [], [], [], []
    for op in facts.ops:
        value = op.operands[0] if is_a(op, ktdp.StoreOp) else op.results[0] if len(op.results) == 1 else None
        if value in carried and is_a(op, ktdp.StoreOp):
            after.append(op)  # what the loop carries, as it is when the loop ends
        if not is_a(op, ktdp.LoadOp, ktdp.StoreOp, linalg.GenericOp) or value in carried:
            continue
        if value not in keyed:
            (after if value in dependent else before).append(op)
            continue
        if value in needed_inside and op not in late:
            inside.append(op)
        if value in needed_again:
            again.append(op)
    _need(not late or not _written_in_place(facts.ops, late))
    return Parts(tuple(inside), tuple(before), tuple(after), tuple(again))


def _behind(values: list[ir.Value], keyed: Collection[ir.Value]) -> set[ir.Value]:
    """Tensors along the keys that some are computed from, with these."""
    found: set[ir.Value] = set()
    pending = [v for v in values if v in keyed]
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        if is_a(value.owner, linalg.GenericOp):
            pending += [v for v in Generic(value.owner.operation).inputs if v in keyed]
    return found


def _of_weight(kinds: list[str]) -> int:
    return next(i for i, kind in enumerate(kinds) if kind in ("weight", "divided"))


def _is_reduction(g: Generic) -> bool:
    return not g.is_pointwise and not g.is_contraction


def _is_block(value: ir.Value) -> bool:
    return ir.RankedTensorType(value.type).shape[-1] == 64


def second_operand_free(value: ir.Value) -> bool:
    """Whether no contraction takes a tensor as its second operand."""
    for use in value.uses:
        op = use.owner.operation
        if is_a(op, tensor.PadOp, tensor.ExpandShapeOp):
            return False
        if is_a(op, linalg.GenericOp) and (g := Generic(op)).is_contraction and second_operand_source(g) == value:
            return False
    return True


def _written_in_place(ops: Sequence[ir.Operation], stores: list[ir.Operation]) -> bool:
    """Whether a store goes to memory that the kernel reads: the second look at it would come too late."""
    read = {_argument(op.operands[0]) for op in ops if is_a(op, ktdp.LoadOp)}
    return any(_argument(op.operands[1]) in read for op in stores)


def _argument(tile: ir.Value) -> ir.Value | None:
    """The kernel's argument that a tile is a part of."""
    pending = [tile.owner.operands[0].owner.operands[0]]
    while pending:
        value = pending.pop()
        if isinstance(value.owner, ir.Block):
            return value
        pending += value.owner.operands
    return None


def _widened_from(tree: Tree) -> Tree | None:
    return tree.operands[0] if isinstance(tree, Node) and is_a(tree, arith.ExtFOp) else None


def unmasked(tree: Tree) -> Tree:
    """A tree without what lanes beyond the end get."""
    if isinstance(tree, Node) and is_a(tree, arith.SelectOp) and isinstance(tree.operands[0], Live):
        return tree.operands[1]
    return tree


def _with(tree: Tree, old: Tree, new: Tree) -> Tree:
    """A tree with another one in the place of a part of it."""
    if tree == old or not isinstance(tree, Node):
        return new if tree == old else tree
    return tree.with_operands(tuple(_with(t, old, new) for t in tree.operands))


def _number(tree: Tree) -> float | None:
    """The number that a tree is."""
    if isinstance(tree, Node) and is_a(tree, arith.ConstantOp):
        attribute = tree.op.attributes["value"]
        return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
    return None
