"""Finds matmuls whose second operand a graph makes of weights of four bits in words of 32, and lets kernels compute them.

The words are int32 [K / 8, N], as GPTQ has them; what they become before the matmul may be written in any way: shifts by a tensor of
places or one by one, zero points, scales by group or column, conversions. What is not of this kind stays as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from ktir.library.packed.expressions import Leaf, Step, broadcast, shape_of
from ktir.library.packed.kernels import CORES, PRODUCTS, WORD
from ktir.library.packed.reading import Reader
from ktir.target import LANES

aten = torch.ops.aten

MOST_ROWS = 32
"""Rows of a first operand for which the kernels are: with more, unpacking the weights once for all of them takes less time."""
_HALVES = (torch.float16, *((torch.bfloat16,) if find_spec("ml_dtypes") else ()))
"""Types of the kernels: of bf16 where NumPy has it."""
_MATMULS = {aten.mm.default: (0, 1), aten.addmm.default: (1, 2)}
"""The places of the operands."""


def call_kernels(graph: fx.Graph) -> None:
    """Replace such matmuls of a graph, in place."""
    reader = Reader()
    for node in list(graph.nodes):
        arguments: list[Any] = list(node.args)
        places = _MATMULS.get(node.target)
        if places is None or node.kwargs:
            continue
        x, weights = (arguments[p] for p in places)
        value = x.meta["val"]
        plan = None
        if value.dtype in _HALVES and isinstance(value.shape[0], int) and value.shape[0] <= MOST_ROWS:
            plan = _plan(reader, weights, value.dtype)
        if plan is not None:
            with graph.inserting_before(node):
                product = _call(graph, plan, x, node)
            node.replace_all_uses_with(product)
            graph.erase_node(node)
    graph.eliminate_dead_code()


@dataclass(frozen=True)
class _Table:
    """A row of N numbers for each of `groups` groups of K; of one, for all of them."""

    leaf: Leaf
    groups: int
    dtype: str


@dataclass(frozen=True)
class _Plan:
    words: fx.Node
    order: NDArray[np.int64]
    """[K / 8, 8]: the row of the second operand that each place of the words in a row of words holds."""
    columns: int
    rows: int
    """Rows of words that share a row of each table."""
    steps: str
    tables: tuple[_Table, ...]


def _plan(reader: Reader, weights: fx.Node, dtype: torch.dtype) -> _Plan | None:
    """How a second operand comes from words; None for another one."""
    tree = reader.read(weights)
    steps: list[str] = []
    tables: list[_Table] = []
    groups = []
    while isinstance(tree, Step):
        operand = tree.operand
        if isinstance(operand, Leaf | Step):
            dtype_of_table = ""
            if isinstance(operand, Step):
                if operand.name != "to" or not isinstance(operand.of, Leaf):
                    return None
                dtype_of_table, operand = operand.dtype, operand.of
            found = _table(operand, shape_of(tree))
            if found is None or len(tables) == len(PRODUCTS) - 1:
                return None
            groups.append(found[1])
            tables.append(_Table(found[0], len(set(found[1].tolist())), dtype_of_table or str(operand.node.meta["val"].dtype)[6:]))
            steps.append(f"{tree.name}:@{len(tables) - 1}")
        else:
            steps.append(f"{tree.name}:{operand}")
        tree = tree.of
    if tree is None or tree.kind != "weight" or len(tree.dims) != 2:
        return None
    order = _order(tree)
    if order is None or tree.node.meta["val"].dtype != torch.int32 or str(reader.dtype_of(weights)) != str(dtype):
        return None
    rows = _rows(order, groups)
    if rows is None or not _is_counted(_places(order, rows).reshape(-1)):
        return None
    count = len(tables)
    renamed = [s.replace("@", "@-") for s in reversed(steps)]
    for k in range(count):  # the one that is read first is the first one
        renamed = [s.replace(f"@-{k}", f"@{count - 1 - k}") for s in renamed]
    return _Plan(tree.node, order, tree.shape[1], rows, " ".join(renamed), tuple(reversed(tables)))


def _order(weights: Leaf) -> NDArray[np.int64] | None:
    """What rows of a second operand lie in the places of words [K / 8, N], if they do."""
    depth, columns = weights.shape
    if depth % WORD or not columns or not np.array_equal(weights.places(1), np.arange(columns) * WORD):
        return None
    word, place = np.divmod(weights.places(0) + weights.first, WORD)
    row, beside = np.divmod(word, columns)
    if beside.any() or weights.node.meta["val"].numel() * WORD != depth * columns:
        return None
    found = np.full((depth // WORD, WORD), -1)
    if row.min() < 0 or row.max() >= len(found):
        return None
    found[row, place] = np.arange(depth)
    return None if (found < 0).any() else found


def _table(leaf: Leaf, shape: Sequence[int]) -> tuple[Leaf, NDArray[np.int64]] | None:
    """A table [groups, N] or [N, groups] as it lies, or one row; with it the group of each row of the second operand."""
    spread = broadcast(leaf, shape)
    if spread is None:
        return None
    down, across = spread.places(0), spread.places(1)
    count = leaf.node.meta["val"].numel()
    columns = len(across)
    if count == columns and not down.any() and np.array_equal(across, np.arange(columns)) and not spread.first:
        return spread, down
    groups, rest = divmod(count, columns)
    for a, b in ((columns, 1), (1, groups)):
        if not rest and not spread.first and np.array_equal(across, np.arange(columns) * b) and not (down % a).any():
            group = down // a
            return (spread, group) if np.array_equal(np.unique(group), np.arange(groups)) else None
    return None


def _rows(order: NDArray[np.int64], groups: Sequence[NDArray[np.int64]]) -> int | None:
    """Rows of words that share a row of every table, of which blocks of 64 have a whole number or which are 64; None where tables are
    otherwise."""
    depth = order.size
    most = LANES
    for group in groups:
        own = group[order]
        count = int(group.max()) + 1
        each, rest = divmod(len(order), count)
        if rest or not np.array_equal(own, np.broadcast_to((np.arange(len(order)) // each)[:, None], own.shape)):
            return None
        if count > 1:
            most = min(most, each)
            if each != most and count != 1:
                return None
    if len({int(g.max()) for g in groups if g.max()}) > 1:
        return None
    while most > 1 and (LANES % most or len(order) % most):
        most //= 2
    one = all(not g.any() for g in groups)
    if not one and any(g.max() and len(order) // (int(g.max()) + 1) != most for g in groups):
        return None
    return most if most >= 4 and depth % max(LANES, WORD * most) == 0 else None


def _call(graph: fx.Graph, plan: _Plan, x: fx.Node, matmul: fx.Node) -> fx.Node:
    """The nodes of a product, at the insertion point: sums in float32, to which a bias is added, rounded once."""

    def add(op: Any, *args: Any) -> fx.Node:
        node = graph.call_function(op, args)
        fakes = [a.meta["val"] if isinstance(a, fx.Node) else a for a in args]
        node.meta = {k: v for k, v in matmul.meta.items() if k in ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node")}
        with fakes[0].fake_mode:
            node.meta["val"] = op(*fakes)
        return node

    m, depth = x.meta["val"].shape
    rows = plan.rows
    places = _places(plan.order, rows)
    shaped = add(aten.expand.default, x, [2, depth]) if m == 1 else add(aten.constant_pad_nd.default, x, [0, 0, 0, m % 2]) if m % 2 else x
    shaped = _permuted(add, shaped, places)
    words = plan.words
    if tuple(words.meta["val"].shape) != (depth // WORD, plan.columns):
        words = add(aten.reshape.default, words, [depth // WORD, plan.columns])
    tables = []
    for t in plan.tables:
        node = t.leaf.node
        if str(node.meta["val"].dtype) != f"torch.{t.dtype}":
            node = add(torch.ops.prims.convert_element_type.default, node, getattr(torch, t.dtype))
        across = t.leaf.places(1)
        turned = t.groups > 1 and plan.columns > 1 and int(across[1]) != 1
        node = add(aten.reshape.default, node, [plan.columns, t.groups] if turned else [t.groups, plan.columns])
        tables.append(add(aten.permute.default, node, [1, 0]) if turned else node)
    wide = -(-plan.columns // LANES // CORES) * LANES
    overload = PRODUCTS[len(tables)]._opoverload
    product = add(overload, shaped, words, *tables, rows, max(wide, LANES), plan.steps)
    if product.meta["val"].shape[0] != m:
        product = add(aten.slice.Tensor, product, 0, 0, m)
    convert, value = torch.ops.prims.convert_element_type.default, x.meta["val"]
    if matmul.target == aten.addmm.default:
        product = add(aten.add.Tensor, product, add(convert, matmul.args[0], torch.float32))
    return add(convert, product, value.dtype)


def _permuted(add: Any, x: fx.Node, places: NDArray[np.int64]) -> fx.Node:
    """x[M, K] as [steps, blocks, M, 64], of which `places` are the columns."""
    m = x.meta["val"].shape[0]
    shape, distances = _digits(places.reshape(-1))
    back = sorted(range(len(shape)), key=lambda k: -distances[k])
    split = add(aten.reshape.default, x, [m, *[shape[k] for k in back]])
    turned = add(aten.permute.default, split, [0, *[1 + back.index(k) for k in range(len(shape))]])
    blocks = add(aten.reshape.default, turned, [m, *places.shape])
    return add(aten.permute.default, blocks, [1, 2, 0, 3])


def _places(order: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """The columns of a first operand in the order in which the kernel takes them: [steps, blocks, 64]."""
    step = max(LANES, WORD * rows)
    return order.reshape(-1, rows, WORD).swapaxes(1, 2).reshape(-1, step // LANES, LANES)


def _is_counted(flat: NDArray[np.int64]) -> bool:
    """Whether a permutation counts along dims of the numbers that it permutes."""
    shape, distances = _digits(flat)
    found = sum(np.arange(n).reshape(-1, *[1] * (len(shape) - 1 - k)) * d for k, (n, d) in enumerate(zip(shape, distances, strict=True)))
    below = sorted(zip(distances, shape, strict=True))
    whole = all(d * n == (below[k + 1][0] if k + 1 < len(below) else len(flat)) for k, (d, n) in enumerate(below))
    return whole and np.array_equal(np.asarray(found).reshape(-1), flat)


def _digits(flat: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """The extents of dims, outer to inner, along which a permutation of 0, 1, .. counts, and the distances along them."""
    shape, distances = [], []
    rest = flat
    while len(rest) > 1:
        distance = int(rest[1] - rest[0])
        run = 1
        while run < len(rest) and rest[run] == rest[0] + run * distance:
            run += 1
        while len(rest) % run:
            run -= 1
        shape.insert(0, run)
        distances.insert(0, distance)
        rest = rest[::run]
    return shape, distances
