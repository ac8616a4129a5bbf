"""A ladder of sizes: inputs with a dynamic size are padded with zeros to the next rung, so that few sizes are compiled.

A size is a symbol `s`; a dim of `c * s` positions is *valid* in its first `c * n` when `s` is `n`. A graph may be run on a rung above `n`
if each valid element of a result depends on valid elements alone. `Ladder` proves this op by op on the ATen graph with symbolic sizes:
ops that keep positions apart are fine, reductions along other dims too; what mixes positions, or uses the size as a number, is not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import sympy
import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from ktir.lowering.inductor.running.origins import source

aten, prims = torch.ops.aten, torch.ops.prims

Shape = tuple[Any, ...]


class Mixed(Exception):
    """A size that must not be padded; the text says why."""


class Ladder:
    """Pads the inputs of a graph, and cuts its results. `refused`: why some sizes stay as they are, by their symbols. Raises Mixed for a
    graph that cannot be looked at with sizes that are not known.
    """

    def __init__(self, gm: fx.GraphModule, rungs: Sequence[int]) -> None:
        self.rungs = sorted(rungs)
        values = [n.meta["example_value"] for n in gm.graph.nodes if n.op == "placeholder"]
        self.inputs = [_shape(v) for v in values]
        graph = _operators(gm, values)
        (result,) = next(n for n in graph.nodes if n.op == "output").args
        self.results = [_shape(n.meta["val"]) if isinstance(n, fx.Node) else None for n in pytree.tree_leaves(result)]
        self.symbols: set[sympy.Symbol] = set()
        self.refused: dict[sympy.Symbol, str] = {}
        for symbol in {n: None for shape in self.inputs for n in shape or () if isinstance(n, sympy.Symbol)}:
            try:
                _Proof(symbol).check(graph)
                self.symbols.add(symbol)
            except Mixed as reason:
                self.refused[symbol] = str(reason)

    def rung(self, size: int) -> int:
        """The smallest rung that is not below `size`; beyond the ladder the size itself. 0 and 1 are sizes of their own."""
        return size if size < 2 else next((r for r in self.rungs if r >= size), size)

    def pad(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[sympy.Symbol, int]]:
        """The inputs at the rungs of their sizes, and the sizes that they have."""
        sizes = {
            n: size
            for shape, value in zip(self.inputs, inputs, strict=True)
            if isinstance(value, torch.Tensor) and shape is not None
            for n, size in zip(shape, value.shape, strict=True)
            if isinstance(n, sympy.Symbol)
        }
        rungs = {s: self.rung(n) if s in self.symbols else n for s, n in sizes.items()}
        padded = []
        for shape, value in zip(self.inputs, inputs, strict=True):
            if shape is None or rungs == sizes:
                padded.append(value)
            elif isinstance(value, torch.Tensor):
                extents = [_extent(n, rungs) for n in shape]
                larger = value.new_zeros(extents)
                larger[tuple(map(slice, value.shape))] = value
                padded.append(larger)
            else:
                padded.append(_extent(shape[0], rungs))
        return padded, sizes

    def cut(self, results: Any, sizes: dict[sympy.Symbol, int]) -> Any:
        """The valid parts of the results."""
        leaves, spec = pytree.tree_flatten(results)
        valid = [
            leaf[tuple(slice(_extent(n, sizes)) for n in shape)] if shape and isinstance(leaf, torch.Tensor) else leaf
            for leaf, shape in zip(leaves, self.results, strict=True)
        ]
        return pytree.tree_unflatten(valid, spec)


def _operators(gm: fx.GraphModule, values: Sequence[Any]) -> fx.Graph:
    """The graph in ATen's operators; where a number comes out of a tensor, it is a symbol of its own."""
    mode = detect_fake_mode(values)
    table: dict[Any, Any] = dict(core_aten_decompositions())
    assert mode is not None
    with preserve_node_meta(), patch.object(mode, "allow_scalar_outputs", True):
        trace = make_fx(fx.Interpreter(gm).run, table, tracing_mode="symbolic", _allow_non_fake_inputs=True)
        try:
            return trace(*values).graph
        except GuardOnDataDependentSymNode as error:
            raise Mixed(f"what is computed depends on a number: {error.cond!s}") from None


def _extent(size: Any, sizes: dict[sympy.Symbol, int]) -> int:
    value: Any = size.xreplace(sizes) if isinstance(size, sympy.Expr) else size
    return int(value)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _shape(value: Any) -> Shape | None:
    """Sizes of a tensor, or an integer that is a size, as numbers and expressions; None of anything else."""
    if isinstance(value, torch.Tensor):
        return tuple(map(_expression, value.shape))
    return (_expression(value),) if isinstance(value, torch.SymInt) else None


def _shape_of(node: fx.Node) -> Shape:
    return _shape(node.meta["val"]) or ()


def _operand(node: fx.Node, number: int) -> fx.Node:
    operand = node.args[number]
    assert isinstance(operand, fx.Node), operand
    return operand


def _at(dims: Any, rank: int) -> set[int]:
    """Dims of an op's argument: one, several, or none for all; from the end where they are negative."""
    if dims is None or dims == []:
        return set(range(rank))
    return {d % max(rank, 1) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}


def _mixed(node: fx.Node, what: str) -> Mixed:
    where = source(node)
    return Mixed(f"{where + ': ' if where else ''}'{node.target}' {what}")


@dataclass(frozen=True)
class _Proof:
    """That valid results depend on valid elements alone, for one size; all others are constants."""

    symbol: sympy.Symbol

    def check(self, graph: fx.Graph) -> None:
        """Raises Mixed for the first op for which that does not hold."""
        given = set()
        for node in graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, torch.Tensor):
                given.add(value.untyped_storage()._cdata)
                self._check_sizes(node)
            elif node.op == "call_function" and node.target not in _ON_SIZES:
                self._check_op(node)
            elif node.op == "output":
                for result in pytree.tree_leaves(node.args):
                    self._check_result(result, given)

    def _check_result(self, node: Any, given: set[int]) -> None:
        if self.is_size(node):
            raise Mixed("the size is among the results")
        value = node.meta["val"] if isinstance(node, fx.Node) else None
        if isinstance(value, torch.Tensor) and self.rows(_shape_of(node)) and value.untyped_storage()._cdata in given:
            raise Mixed("a result is a view of an input")

    def _check_sizes(self, node: fx.Node) -> None:
        for value in pytree.tree_leaves(node.meta.get("val")):
            for size in _shape(value) or ():
                if self.has(size) and self.has(sympy.cancel(size / self.symbol)):
                    raise _mixed(node, f"makes a dim of {size} elements")

    def _check_op(self, node: fx.Node) -> None:
        self._check_sizes(node)
        target = node.target
        packet = getattr(target, "overloadpacket", None)
        if packet not in _TAKE_SIZES and any(map(self.is_size, pytree.tree_leaves((node.args, node.kwargs)))):
            raise _mixed(node, "uses the size as a number")
        if not isinstance(target, torch._ops.OpOverload):
            return  # of numbers alone
        rule = _RULES.get(packet)
        if rule is not None:
            rule(self, node)
        elif torch.Tag.pointwise not in target.tags or target._schema.is_mutable or _divides_integers(node):
            raise _mixed(node, "is not known to keep positions apart")

    def has(self, size: Any) -> bool:
        """Whether a size depends on the symbol."""
        return isinstance(size, sympy.Expr) and self.symbol in size.free_symbols

    def rows(self, shape: Shape) -> set[int]:
        """The dims whose size depends on the symbol."""
        return {d for d, n in enumerate(shape) if self.has(n)}

    def is_size(self, argument: Any) -> bool:
        """Whether an argument is a number that is computed from the size."""
        value = argument.meta.get("val") if isinstance(argument, fx.Node) else None
        return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and self.symbol in value.node.expr.free_symbols

    def digits(self, shape: Shape) -> list[Any]:
        """Each place of the size in a shape: the distance of its neighbours in row-major order."""
        distance: Any = 1
        found = []
        for n in reversed(shape):
            distance = distance * n
            if self.has(n):
                found.append(sympy.cancel(distance / self.symbol))
        return found

    def keeps(self, node: fx.Node, operand: fx.Node, dims: Any) -> None:
        """Raises Mixed for an op that works along a dim of the size of an operand."""
        shape = _shape_of(operand)
        if _at(dims, len(shape)) & self.rows(shape):
            raise _mixed(node, "works along the dynamic dim")


def _divides_integers(node: fx.Node) -> bool:
    """A quotient of padding's zeros is an error."""
    assert isinstance(node.target, torch._ops.OpOverload), node.target
    return node.target.overloadpacket in _QUOTIENTS and not node.meta["val"].dtype.is_floating_point


# Rules

Rule = Callable[[_Proof, fx.Node], None]


def _kept(proof: _Proof, node: fx.Node) -> None:
    """Nothing moves, or only whole dims do."""


def _along(position: int, default: Any = None) -> Rule:
    """The op works along the dims of its argument number `position`."""

    def rule(proof: _Proof, node: fx.Node) -> None:
        proof.keeps(node, _operand(node, 0), node.args[position] if len(node.args) > position else node.kwargs.get("dim", default))

    return rule


def _matmul(first: int) -> Rule:
    """The op sums over the last dim of its argument number `first`."""
    return lambda proof, node: proof.keeps(node, _operand(node, first), -1)


def _normalises(proof: _Proof, node: fx.Node) -> None:
    shape = node.args[1]
    assert isinstance(shape, (list, tuple)), shape
    proof.keeps(node, _operand(node, 0), [-1 - d for d in range(len(shape))])


def _joins(proof: _Proof, node: fx.Node) -> None:
    for operand in pytree.tree_leaves(node.args[0]):
        proof.keeps(node, operand, node.args[1] if len(node.args) > 1 else 0)


def _slices(proof: _Proof, node: fx.Node) -> None:
    if _shape_of(node) != _shape_of(_operand(node, 0)):
        _along(1, 0)(proof, node)


def _fills(number: int) -> Rule:
    """The value, argument number `number`, must not be a size."""

    def rule(proof: _Proof, node: fx.Node) -> None:
        if proof.is_size(node.args[number]):
            raise _mixed(node, "uses the size as a number")

    return rule


def _counts(proof: _Proof, node: fx.Node) -> None:
    """Only the end, or the length, may be a size."""
    starts = [node.kwargs.get("start"), node.kwargs.get("step"), *(node.args[:1] if len(node.args) > 1 else ()), *node.args[2:]]
    if any(map(proof.is_size, starts)):
        raise _mixed(node, "uses the size as a number")


def _reshapes(proof: _Proof, node: fx.Node) -> None:
    """The size must stay the outer digit of its dim: then valid positions are the first ones, as before."""
    before, after = _shape_of(_operand(node, 0)), _shape_of(node)
    if proof.digits(before) != proof.digits(after):
        raise _mixed(node, f"makes {list(after)} of {list(before)}")


def _looks_up(index: int, dim: int | None = None) -> Rule:
    """Rows of a table (dim 0, or argument number `dim`) are named by an input, whose padding names row 0."""

    def rule(proof: _Proof, node: fx.Node) -> None:
        proof.keeps(node, _operand(node, 0), 0 if dim is None else node.args[dim])
        by = _operand(node, index)
        if by.op != "placeholder" and proof.rows(_shape_of(by)):
            raise _mixed(node, "has computed indices")

    return rule


def _convolves(proof: _Proof, node: fx.Node) -> None:
    if proof.rows(_shape_of(_operand(node, 0))[1:]) or proof.rows(_shape_of(_operand(node, 1))):
        raise _mixed(node, "works along the dynamic dim")


_ON_SIZES = (
    operator.mul,
    operator.add,
    operator.sub,
    operator.floordiv,
    operator.getitem,
    aten.sym_size.int,
    aten.sym_numel.default,
    torch.sym_float,
)
_QUOTIENTS = (aten.div, aten.floor_divide, aten.remainder, aten.fmod)
_TAKE_SIZES = (
    *(aten.view, aten._unsafe_view, aten.reshape, aten.expand, aten.arange, prims.iota),
    *(aten.full, aten.zeros, aten.ones, aten.new_full, aten.new_zeros, aten.new_ones),
)
"""Ops for which a size is a size."""

_RULES: dict[Any, Rule] = {
    **dict.fromkeys((aten.clone, aten.detach, aten.alias, aten._to_copy, aten.lift_fresh_copy, aten._local_scalar_dense), _kept),
    **dict.fromkeys((aten.permute, aten.transpose, aten.t, aten.unsqueeze, aten.squeeze, aten.expand), _kept),
    **dict.fromkeys((aten.zeros, aten.ones, aten.new_zeros, aten.new_ones, aten.zeros_like, aten.ones_like, aten.full_like), _kept),
    aten.full: _fills(1),
    aten.new_full: _fills(2),
    **dict.fromkeys((aten.arange, prims.iota), _counts),
    **dict.fromkeys((aten.view, aten._unsafe_view, aten.reshape), _reshapes),
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.amin, aten.any, aten.all, aten.var, aten.argmax, aten.argmin), _along(1)),
    **dict.fromkeys((aten._softmax, aten._log_softmax, aten.cumsum, aten.flip, aten.select), _along(1)),
    aten.slice: _slices,
    aten.unbind: _along(1, 0),
    **dict.fromkeys((aten.split, aten.split_with_sizes), _along(2, 0)),
    aten.sort: _along(1, -1),
    aten.topk: _along(2, -1),
    **dict.fromkeys((aten.mm, aten.bmm), _matmul(0)),
    **dict.fromkeys((aten.addmm, aten.baddbmm), _matmul(1)),
    aten.native_layer_norm: _normalises,
    aten.cat: _joins,
    aten.embedding: _looks_up(1),
    aten.index_select: _looks_up(2, 1),
    aten.convolution: _convolves,
}
