"""What a graph computes of numbers and positions alone is computed once, by PyTorch, where the chip would have a hard time with it.

Relative positions of a bias, indices of rolled windows, frequencies: such values depend on no input. Cheap ones, as causal masks, stay
what they are: to compute them takes less than to load them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ktir.lowering.inductor.graph.rounding import ROUNDED

aten, prims = torch.ops.aten, torch.ops.prims

MOST_ELEMENTS = 1 << 20
"""Of a tensor that becomes a constant of the program."""

_SOURCES = (prims.iota, aten.full, aten.arange, aten.scalar_tensor)
_HARD = (
    aten.fmod, aten.remainder, aten.floor_divide, aten.div, aten.true_divide, aten.log, aten.log2, aten.log10, aten.pow, aten.exp,
    aten.sin, aten.cos, aten.cumsum, aten.sort, aten.index, aten.gather, aten.bucketize, aten.searchsorted,
)  # fmt: skip
"""Besides what converts floats to integers or computes in float64."""


def fold(gm: fx.GraphModule) -> None:
    """Replace what depends on no input, and has a hard operator behind it, by constants; in place."""
    values: dict[fx.Node, torch.Tensor] = {}
    hard: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(number := getattr(gm, node.target, None), torch.Tensor) and number.dim() == 0:
            values[node] = number
        elif _foldable(node) and all(n in values for n in node.all_input_nodes):
            with unset_fake_temporarily(), torch.no_grad():
                try:
                    values[node] = node.target(*fx.map_arg(node.args, values.get), **fx.map_arg(node.kwargs, values.get))
                except NotImplementedError:  # a matmul of another result type, which PyTorch has on other devices only
                    continue
            if _is_hard(node) or any(n in hard for n in node.all_input_nodes):
                hard.add(node)
    wanted = [n for n in values if n in hard and any(user not in values for user in n.users)]
    for k, node in enumerate(wanted):
        _replace(gm, node, values[node].contiguous(), f"_folded_{k}")
    if wanted:
        gm.graph.eliminate_dead_code()
        gm.recompile()


def _foldable(node: fx.Node) -> bool:
    """Whether a node is an operator without effects that gives one tensor, of no great size, on the host."""
    value: Any = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.layout != torch.strided:
        return False
    if any(not isinstance(n, int) for n in value.shape) or not 0 < value.numel() <= MOST_ELEMENTS or node.target is operator.getitem:
        return False
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    return bool(node.all_input_nodes or target.overloadpacket in _SOURCES) and torch.Tag.nondeterministic_seeded not in target.tags


def _is_hard(node: fx.Node) -> bool:
    value: torch.Tensor = node.meta["val"]
    inputs = [n.meta["val"] for n in node.all_input_nodes]
    if not inputs and value.dim() == 0:
        return False  # a number as it stands
    if node.target is ROUNDED:
        return value.dim() == 0  # Inductor takes a number that is converted for the number
    if any(t.dtype == torch.float64 for t in (value, *inputs)):
        return True
    to_integers = not value.dtype.is_floating_point and value.dtype != torch.bool and any(t.dtype.is_floating_point for t in inputs)
    return to_integers or getattr(node.target, "overloadpacket", None) in _HARD


def _replace(gm: fx.GraphModule, node: fx.Node, value: torch.Tensor, name: str) -> None:
    if node.target is ROUNDED and value.dim() == 0:
        with gm.graph.inserting_before(node):
            number = gm.graph.call_function(aten.full.default, ([], value.item()), {"dtype": value.dtype})
        number.meta.update(node.meta)
        node.replace_all_uses_with(number)
        return
    while hasattr(gm, name):
        name += "_"
    # of two dims, for Inductor turns a short constant of one dim into comparisons of its index
    gm.register_buffer(name, value[None])
    with gm.graph.inserting_before(node):
        held = gm.graph.get_attr(name)
        constant = gm.graph.call_function(aten.view.default, (held, list(value.shape)))
    held.meta.update({**node.meta, "val": node.meta["val"].new_empty([1, *value.shape])})
    constant.meta.update(node.meta)
    node.replace_all_uses_with(constant)
