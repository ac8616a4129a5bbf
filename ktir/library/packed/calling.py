"""The nodes of a product with weights in words, in place of what a graph has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx

from ktir import config
from ktir.library.packed.expressions import Leaf
from ktir.library.packed.kernels import WEIGHTS, WORD, int4_product
from ktir.library.packed.lying import Lying, Numbers, Shares, digits_of, is_counted, taken
from ktir.target import LANES

aten, prims = torch.ops.aten, torch.ops.prims
_ROWS = 128
"""Rows of x that one call takes."""
_MOST_WORDS = 1 << 15
_MOST_SUMS = 1 << 17
"""What a core takes apart at once, and what it adds up: both have 4 bytes, and lie in its scratchpad with what is made of them."""


@dataclass(frozen=True)
class Table:
    """A row of N numbers for each of `groups` groups of K; of one, for all of them."""

    leaf: Leaf
    """Spread over the second operand."""
    groups: int
    dtype: str

    def places(self, columns: Numbers) -> Numbers:
        """[groups, ..]: where the numbers of columns lie in the table."""
        down, across = self.leaf.places(0), self.leaf.places(1)
        return self.leaf.first + down[:: len(down) // self.groups].reshape(-1, *[1] * columns.ndim) + across[columns]


@dataclass(frozen=True)
class Plan:
    """A second operand that comes from words."""

    weights: Leaf
    lying: Lying
    shares: Shares
    steps: str
    tables: tuple[Table, ...]
    """With `shares.after` the first one is a factor of the sums of a group, and the second one is added to each of its weights."""


Rewrite = Callable[["Builder"], fx.Node]
"""Adds what takes the place of a node."""


class Builder:
    """Adds nodes to a graph at its insertion point, as parts of what a node of it computes."""

    def __init__(self, graph: fx.Graph, of: fx.Node) -> None:
        self.graph = graph
        self._fake_mode = of.meta["val"].fake_mode
        self._meta = {k: v for k, v in of.meta.items() if k in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node")}

    def add(self, op: Any, *args: Any, **named: Any) -> fx.Node:
        """A node, with what it is without data."""
        node = self.graph.call_function(op, args, named)
        fakes = fx.map_arg(args, lambda n: n.meta["val"])
        node.meta = dict(self._meta)
        with self._fake_mode:
            node.meta["val"] = op(*fakes, **named)
        return node

    def seen(self, node: fx.Node, places: Numbers, rows: int = 0) -> fx.Node:
        """A tensor's elements, all of them, in the order of places; of each of so many rows, if there are some."""
        digits = digits_of(places.reshape(-1))
        front = [rows] if rows else []
        back = sorted(range(len(digits)), key=lambda k: -digits[k][1])
        if tuple(node.meta["val"].shape) != tuple(split := [*front, *[digits[k][0] for k in back]]):
            node = self.add(aten.reshape.default, node, split)
        if back != [*range(len(back))]:
            order = [*range(len(front)), *[len(front) + back.index(k) for k in range(len(digits))]]
            node = self.add(aten.permute.default, node, order)
        shape = [*front, *places.shape]
        return node if list(node.meta["val"].shape) == shape else self.add(aten.reshape.default, node, shape)


class Words:
    """Tensors of words of 32 bits, on the memory of what is packed otherwise."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._words: dict[fx.Node, fx.Node] = {}

    @staticmethod
    def has(node: fx.Node) -> bool:
        """Whether a tensor is one of such words, or is given, so that its memory can be taken as them."""
        node = _given(node)
        value = node.meta["val"]
        dense = value.is_contiguous() and value.shape[-1] % (WORD // WEIGHTS[value.dtype]) == 0
        return value.dtype == torch.int32 or (dense and node.op in ("placeholder", "get_attr"))

    def of(self, node: fx.Node) -> fx.Node:
        """The words of a tensor."""
        if node.meta["val"].dtype == torch.int32:
            return node
        node = _given(node)
        if node not in self._words:
            first = next(n for n in self._graph.nodes if n.op not in ("placeholder", "get_attr"))
            with self._graph.inserting_before(first):  # no program ends where a tensor is only seen otherwise
                self._words[node] = Builder(self._graph, node).add(aten.view.dtype, node, torch.int32)
        return self._words[node]


def _given(node: fx.Node) -> fx.Node:
    """Bytes as they are given, where they are seen with a sign or without one."""
    while node.target == aten.view.dtype and isinstance(of := node.args[0], fx.Node) and of.meta["val"].element_size() == 1:
        node = of
    return node


def can_be_called(plan: Plan) -> bool:
    """Whether what the kernel takes are tensors of the graph, seen otherwise."""
    if not is_counted(taken(plan.lying.depth, plan.shares).reshape(-1)):
        return False
    for table in plan.tables:
        places = table.places(plan.lying.columns).reshape(-1)
        whole = table.leaf.node.meta["val"].numel()
        if places.size != whole or places.max() >= whole or not is_counted(places):
            return False
    return is_counted(plan.lying.columns.reshape(-1))


def in_rows(build: Builder, x: fx.Node, product: Callable[[fx.Node], fx.Node]) -> fx.Node:
    """A product of all rows of x, some at a time: the scratchpad has to hold their sums."""
    m = x.meta["val"].shape[0]
    if m <= _ROWS:
        return product(x)
    return build.add(aten.cat.default, [product(build.add(aten.slice.Tensor, x, 0, n, min(m, n + _ROWS))) for n in range(0, m, _ROWS)], 0)


def call(build: Builder, plan: Plan, words: fx.Node, x: fx.Node) -> fx.Node:
    """The product [M, N] of x and the weights: of the type of x, or float32."""
    lying, shares, steps = plan.lying, plan.shares, plan.steps
    m = x.meta["val"].shape[0]
    if m == 1:
        x = build.add(aten.expand.default, x, [2, x.meta["val"].shape[1]])
    elif m % 2:
        x = build.add(aten.constant_pad_nd.default, x, [0, 0, 0, m % 2])
    rows = x.meta["val"].shape[0]
    shaped = build.add(aten.permute.default, build.seen(x, taken(lying.depth, shares), rows), [1, 2, 0, 3])
    tables = [build.seen(_as(build, t.leaf.node, t.dtype), t.places(lying.columns)) for t in plan.tables]
    nothing = build.add(aten.slice.Tensor, x, 0, 0, 0)
    tables += [nothing] * (2 - len(tables))
    totals = _totals(build, x, shaped.meta["val"].shape[0]) if shares.after and len(plan.tables) > 1 else nothing
    most = min(_MOST_WORDS // shares.rows, _MOST_SUMS // (rows * lying.spread)) // LANES
    parts, wide = _division(lying.words.shape[1], shaped.meta["val"].shape[0], max(1, most))
    signed = plan.weights.kind == "signed"
    words = build.seen(words, lying.words)
    options = (parts, lying.spread, shares.rows, shares.shared, wide, steps, signed, shares.after)
    product = build.add(int4_product._opoverload, shaped, words, *tables, totals, *options)
    if parts > 1:
        product = build.add(aten.sum.dim_IntList, product, [0], True)
    if rows != m:
        product = build.add(aten.slice.Tensor, product, 2, 0, m)
    product = build.add(aten.squeeze.dim, product, 0)
    return _in_columns(build, product, lying)


def _totals(build: Builder, x: fx.Node, steps: int) -> fx.Node:
    """The sums of x over each step [steps, M, 1], which is a group, or a part of the only one."""
    m, depth = x.meta["val"].shape
    wide = build.add(aten.reshape.default, _as(build, x, "float32"), [m, steps, depth // steps])
    return build.add(aten.unsqueeze.default, build.add(aten.permute.default, build.add(aten.sum.dim_IntList, wide, [2]), [1, 0]), 2)


def _as(build: Builder, node: fx.Node, dtype: str) -> fx.Node:
    same = str(node.meta["val"].dtype) == f"torch.{dtype}"
    return node if same else build.add(prims.convert_element_type.default, node, getattr(torch, dtype))


def _in_columns(build: Builder, product: fx.Node, lying: Lying) -> fx.Node:
    """[spread, M, C] as [M, N]."""
    if lying.spread == 1:
        return build.add(aten.squeeze.dim, product, 0)
    m = product.meta["val"].shape[1]
    turned = build.add(aten.permute.default, product, [1, 0, 2])
    where = np.argsort(lying.columns.reshape(-1))
    return build.add(aten.reshape.default, build.seen(turned, where, m), [m, where.size])


def _division(columns: int, steps: int, most: int) -> tuple[int, int]:
    """In how many parts K is cut, and how many columns a core takes at once: sticks of them, `most` at most."""
    cores, blocks = config.current().cores or 1, -(-columns // LANES)

    def cost(parts: int, each: int) -> float:
        return -(-(-(-blocks // each) * parts) // cores) * each / parts

    choices = [(parts, each) for parts in range(1, 9) if steps % parts == 0 for each in range(1, min(most, -(-blocks // cores)) + 1)]
    # another part is more sums to move and to add up
    parts, each = min(choices, key=lambda c: (cost(*c) * (1 + 0.1 * (c[0] - 1)), -c[1]))
    return parts, each * LANES
