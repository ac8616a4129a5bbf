"""Which tensors a kernel may see some sticks at a time: those along the keys of a softmax of very many keys.

Told from the items of a choice of layouts, before there is IR in them that `softmax` could look at: by what is walked together with the
scores and by the ops that a softmax cannot do without. Where `softmax` needs more than that and finds no such softmax, the kernel that
counts on it does not fit, and `ktir-form-kernels` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ktir.analysis.flat import Node
from ktir.analysis.items import MANY_KEYS, Contraction, Item, Op, Pointwise, Reduction, Store, Tensor
from ktir.dialects.op_facts import EXPONENTIALS


def mark_many_keys(items: Mapping[Node, Item]) -> None:
    """Note on tensors that a kernel may see them in parts."""
    for node, item in items.items():
        if isinstance(item, Reduction) and _combiner(node) == "max" and max(source.shape[0] for source in item.sources) >= MANY_KEYS:
            for tensor in _along_keys(item, items):
                tensor.in_parts = True


def _combiner(node: Node) -> str | None:
    return node.generic.combiner if node.kind == "reduction" and node.generic is not None else None


def _along_keys(largest: Reduction, items: Mapping[Node, Item]) -> Collection[Tensor]:
    """Tensors whose sticks are walked together with those that the largest score is taken of; none if these are no scores of a softmax."""
    keyed = set(_walked_together(largest))
    walks = {item: _walked_together(item) for item in items.values() if isinstance(item, Pointwise | Reduction)}
    while more := {tensor for together in walks.values() if keyed & together for tensor in together} - keyed:
        keyed |= more
    inside = {node: item for node, item in items.items() if not isinstance(item, Store) and keyed & {*item.sources, item.value}}
    weighed = any(largest.number in i.ancestors and i.value in keyed and _has_exponential(node) for node, i in inside.items())
    summed = any(largest.number in i.ancestors and _combiner(node) == "add" for node, i in inside.items())
    mixed = any(isinstance(i, Contraction) and i.sources[1] in keyed for i in items.values())
    alike = len({tensor.shape[0] for tensor in keyed}) == 1
    return keyed if weighed and summed and alike and not mixed else ()


def _walked_together(item: Op) -> set[Tensor]:
    """Tensors of an op that its loop over sticks walks."""
    loop = 0 if isinstance(item, Pointwise) else len(item.row_loops)
    return {tensor for tensor, walk in zip([*item.sources, item.value], item.walks, strict=True) if walk[0] == loop}


def _has_exponential(node: Node) -> bool:
    return node.generic is not None and any(op.name in EXPONENTIALS for op in node.generic.body_ops)
