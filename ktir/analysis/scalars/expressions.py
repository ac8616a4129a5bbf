"""Scalar bodies as trees, across the tensors between pointwise ops.

The tree of a tensor's element has as leaves the elements of tensors that are no pointwise results: loads, contractions, reductions. Trees
are equal where they compute the same from the same elements, however the ops between were cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ktir.dialects.structured import Generic, index_constant
from ktir.mlir import arith, ir, is_a, linalg, names
from ktir.target import LANES


class NoTree(Exception):
    """A body that has no tree: it sees its position otherwise than by comparing it with an end."""


@dataclass(frozen=True)
class Leaf:
    """An element of a tensor: that of the position's stick and lane, or the first one of the row."""

    value: ir.Value
    stick: bool
    lane: bool

    @property
    def of_row(self) -> bool:
        """Whether it is the same in all columns of a row."""
        return not (self.stick or self.lane)


@dataclass(frozen=True)
class Live:
    """Whether the position's column is below `end`."""

    end: int


@dataclass(frozen=True)
class Hole:
    """A scalar that is given by name."""

    name: str


@dataclass(frozen=True)
class Node:
    """A scalar op on operands."""

    name: str
    attributes: str
    type: str
    operands: tuple[Tree, ...]
    op: ir.Operation = field(compare=False)

    def with_operands(self, operands: tuple[Tree, ...]) -> Node:
        """The same op on others."""
        return replace(self, operands=operands)


Tree = Leaf | Live | Hole | Node


class Trees:
    """The trees of a kernel's tensors; those of `given` are leaves."""

    def __init__(self, given: Collection[ir.Value] = ()) -> None:
        self._known: dict[ir.Value, Tree] = {v: Leaf(v, True, True) for v in given}

    def of_tensor(self, value: ir.Value) -> Tree:
        """The tree of an element."""
        if value not in self._known:
            owner = value.owner
            pointwise = is_a(owner, linalg.GenericOp) and Generic(owner.operation).is_pointwise
            self._known[value] = self.of_scalar(g := Generic(owner.operation), g.yielded) if pointwise else Leaf(value, True, True)
        return self._known[value]

    def of_scalar(self, g: Generic, scalar: ir.Value, *, through: bool = True) -> Tree:
        """The tree of a scalar of a body; `through` the pointwise ops that made the operands, or with the operands as leaves."""
        known: dict[ir.Value, Tree] = {}

        def tree(v: ir.Value) -> Tree:
            if v not in known:
                known[v] = self._operand(g, v, through) if isinstance(v.owner, ir.Block) else _node(v.owner.operation, tree)
            return known[v]

        return tree(scalar)

    def _operand(self, g: Generic, argument: ir.Value, through: bool) -> Tree:
        number = ir.BlockArgument(argument).arg_number
        if number == len(g.inputs):
            raise NoTree
        value = g.inputs[number]
        leaf = Leaf(value, g.loop_of(number, 0) is not None, g.loop_of(number, len(g.maps[number].results) - 1) is not None)
        if not through:
            return leaf
        inner = self.of_tensor(value)
        return inner if leaf.stick and leaf.lane else _first_of_row(inner, leaf)


def _node(op: ir.Operation, tree: Callable[[ir.Value], Tree]) -> Tree:
    if is_a(op, arith.CmpIOp) and isinstance(op.operands[0].type, ir.IndexType):
        end = _end(op)
        if end is None:
            raise NoTree
        return Live(end)
    if len(op.results) != 1 or isinstance(op.results[0].type, ir.IndexType):
        raise NoTree
    attributes = ", ".join(sorted(f"{name} = {op.attributes[name]}" for name in op.attributes))
    return Node(op.name, attributes, str(op.results[0].type), tuple(tree(v) for v in op.operands), op)


def _end(compare: ir.Operation) -> int | None:
    """The end of `64 * stick + lane < end`, None for any other comparison."""
    place, end = compare.operands
    if ir.IntegerAttr(compare.attributes["predicate"]).value != int(arith.CmpIPredicate.ult) or not is_a(end.owner, arith.ConstantOp):
        return None
    if not is_a(place.owner, arith.AddIOp) or {v.owner.name for v in place.owner.operands} != set(names(arith.MulIOp, linalg.IndexOp)):
        return None
    return ir.IntegerAttr(end.owner.attributes["value"]).value


def _first_of_row(tree: Tree, read: Leaf) -> Tree:
    """A tree as it is read at the row's first stick or lane."""
    if isinstance(tree, Leaf):
        return Leaf(tree.value, tree.stick and read.stick, tree.lane and read.lane)
    if not isinstance(tree, Node):
        raise NoTree
    return tree.with_operands(tuple(_first_of_row(t, read) for t in tree.operands))


def leaves(tree: Tree) -> Iterator[Leaf]:
    """The leaves, each once, in the order of their first use."""
    seen: set[Leaf] = set()
    for t in nodes(tree):
        if isinstance(t, Leaf) and t not in seen:
            seen.add(t)
            yield t


def hiding(op: ir.Operation) -> int:
    """Which operand of a select is minus infinity, the number of a key that a mask hides; 0 for none."""
    for i in (1, 2):
        owner = op.operands[i].owner
        if is_a(owner, arith.ConstantOp):
            attribute = owner.operation.attributes["value"]
            if isinstance(attribute, ir.FloatAttr) and attribute.value == float("-inf"):
                return i
    return 0


def shown(tree: Tree) -> Tree:
    """What a tree is where no mask hides anything."""
    if not isinstance(tree, Node):
        return tree
    if is_a(tree, arith.SelectOp) and not isinstance(tree.operands[0], Live) and (branch := hiding(tree.op)):
        return shown(tree.operands[3 - branch])
    return tree.with_operands(tuple(shown(t) for t in tree.operands))


def nodes(tree: Tree) -> Iterator[Tree]:
    """All parts of a tree, operands first."""
    if isinstance(tree, Node):
        for operand in tree.operands:
            yield from nodes(operand)
    yield tree


class Emission:
    """Builds the scalar ops of trees in a body. `end`: columns that are live, counted from the op's first stick; None = all of them."""

    def __init__(self, arguments: Mapping[Any, ir.Value], *, end: int | None = None, loops: tuple[int, int] = (0, 2)) -> None:
        self.known: dict[Tree, ir.Value] = dict(arguments)
        self.end = end
        self.loops = loops
        """Numbers of the loops over sticks and lanes."""

    def __call__(self, tree: Tree) -> ir.Value:
        """The scalar."""
        if tree not in self.known:
            self.known[tree] = self._build(tree)
        return self.known[tree]

    def _build(self, tree: Tree) -> ir.Value:
        if isinstance(tree, Live):
            return self._live()
        assert isinstance(tree, Node)
        if is_a(tree, arith.SelectOp) and isinstance(tree.operands[0], Live) and self.end is None:
            return self(tree.operands[1])
        operands = [self(t) for t in tree.operands]
        clone = tree.op.clone()
        for i, operand in enumerate(operands):
            clone.operands[i] = operand
        return clone.results[0]

    def _live(self) -> ir.Value:
        if self.end is None:
            raise NoTree
        stick, lane = (linalg.IndexOp(loop).result for loop in self.loops)
        constants = [index_constant(n) for n in (LANES, self.end)]
        place = arith.AddIOp(arith.MulIOp(stick, constants[0]).result, lane).result
        return arith.CmpIOp(arith.CmpIPredicate.ult, place, constants[1]).result
