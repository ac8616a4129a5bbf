"""Finds matmuls whose second operand a graph makes of weights of four bits, and lets kernels compute them.

What they are packed in may be words of 32 bits, as GPTQ has them, or bytes, as torchao has them; what they become before the matmul may be
written in any way: shifts by a tensor of places or one by one, zero points, scales by group or column, conversions. What is not of this
kind stays as it is written.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import fx

from ktir.library.packed import of_aten
from ktir.library.packed.calling import Builder, Plan, Rewrite, Table, Words, call, can_be_called, in_rows
from ktir.library.packed.expressions import Leaf, Step, broadcast, shape_of
from ktir.library.packed.kernels import WEIGHTS
from ktir.library.packed.lying import Numbers, lying, shares
from ktir.library.packed.reading import Reader

aten, prims = torch.ops.aten, torch.ops.prims

HALVES = (torch.float16, *((torch.bfloat16,) if find_spec("ml_dtypes") else ()))
"""Types of the kernels: of bf16 where NumPy has it."""
_MATMULS: dict[Any, tuple[int, int]] = {aten.mm.default: (0, 1), aten.addmm.default: (1, 2)}
"""The places of the operands."""
_MOST_TABLES = 2


def call_kernels(graph: fx.Graph) -> None:
    """Replace such matmuls of a graph, in place."""
    reader, words = Reader(), Words(graph)
    for node in list(graph.nodes):
        if node.target in (*_MATMULS, aten._weight_int4pack_mm_for_cpu.default) and 0 in node.meta["val"].shape:
            rewrite = _nothing(node)
        elif node.target in _MATMULS and not node.kwargs:
            rewrite = _of_matmul(reader, words, node)
        elif node.target == aten._weight_int4pack_mm_for_cpu.default:
            rewrite = of_aten.product(words, node, HALVES)
        else:
            continue
        if rewrite is not None:
            with graph.inserting_before(node):
                build = Builder(graph, node)
                product = build.add(prims.convert_element_type.default, rewrite(build), node.meta["val"].dtype)
                node.replace_all_uses_with(product)
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _nothing(node: fx.Node) -> Rewrite:
    """A result without elements."""
    value = node.meta["val"]
    return lambda build: build.add(aten.full.default, list(value.shape), 0, dtype=value.dtype, device=value.device)


def _of_matmul(reader: Reader, words: Words, node: fx.Node) -> Rewrite | None:
    """A matmul with weights from words; None for another one."""
    arguments: list[Any] = list(node.args)
    x, weights = (arguments[p] for p in _MATMULS[node.target])
    value = x.meta["val"]
    if value.dtype not in HALVES or not isinstance(value.shape[0], int):
        return None
    plan = plan_of(reader, weights, value.dtype)
    if plan is None or not words.has(plan.weights.node):
        return None

    def rewrite(build: Builder) -> fx.Node:
        product = in_rows(build, x, lambda rows: call(build, plan, words.of(plan.weights.node), rows))
        if node.target == aten.addmm.default:
            wide = [build.add(prims.convert_element_type.default, n, torch.float32) for n in (product, arguments[0])]
            product = build.add(aten.add.Tensor, *wide)
        return product

    return rewrite


def plan_of(reader: Reader, weights: fx.Node, dtype: torch.dtype) -> Plan | None:
    """How a second operand comes from words; None for another one."""
    tree = reader.read(weights)
    steps: list[str] = []
    tables: list[Table] = []
    groups: list[Numbers] = []
    while isinstance(tree, Step):
        operand = tree.operand
        if isinstance(operand, Leaf | Step):
            kind = ""
            if isinstance(operand, Step):
                if operand.name != "to" or not isinstance(operand.of, Leaf):
                    return None
                kind, operand = operand.dtype, operand.of
            found = _group(operand, shape_of(tree))
            if found is None or len(tables) == _MOST_TABLES:
                return None
            groups.append(found[1])
            tables.append(Table(found[0], int(found[1].max()) + 1, kind or str(operand.node.meta["val"].dtype)[6:]))
            steps.append(f"{tree.name}:@{len(tables) - 1}")
        else:
            steps.append(f"{tree.name}:{operand}")
        tree = tree.of
    if tree is None or tree.kind not in ("weight", "signed") or len(tree.dims) != 2 or reader.dtype_of(weights) != dtype:
        return None
    value = tree.node.meta["val"]
    found_ = lying(tree) if value.dtype in WEIGHTS and value.numel() * WEIGHTS[value.dtype] == tree.size else None
    own = None if found_ is None else shares(found_.depth, groups)
    if found_ is None or own is None:
        return None
    count = len(tables)
    renamed = [s.replace("@", "@-") for s in reversed(steps)]
    for k in range(count):  # the one that is read first is the first one
        renamed = [s.replace(f"@-{k}", f"@{count - 1 - k}") for s in renamed]
    plan = Plan(tree, found_, own, " ".join(renamed), tuple(reversed(tables)))
    return plan if can_be_called(plan) else None


def _group(leaf: Leaf, shape: tuple[int, ...]) -> tuple[Leaf, Numbers] | None:
    """A table spread over the second operand, and the group of each row of that: from 0 on, in order."""
    spread = broadcast(leaf, shape)
    if spread is None or leaf.kind != "element":
        return None
    down = spread.places(0)
    return spread, np.cumsum(np.diff(down, prepend=down[0]) != 0)
