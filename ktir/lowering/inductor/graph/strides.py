"""Results of decompositions with the strides that eager PyTorch gives them: views of a result, in the graph or behind it, rely on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree

aten = torch.ops.aten

_WRITERS = (aten.index_put, aten.index_add, aten.index_copy, aten.index_fill, aten.scatter, aten.scatter_add, aten.scatter_reduce)
_WRITERS += (
    aten.slice_scatter,
    aten.select_scatter,
    aten.diagonal_scatter,
    aten.as_strided_scatter,
    aten.masked_scatter,
    aten.index_reduce,
)
"""Operators whose result is their first operand with some elements written: Inductor may write them into the operand itself."""


def copy_overlapping(graph: fx.Graph) -> None:
    """Where a result is an operand with elements written, and elements of that operand share memory, the operand is a copy of its own."""
    for node in graph.nodes:
        if node.op != "call_function" or getattr(node.target, "overloadpacket", None) not in _WRITERS:
            continue
        operand = node.args[0]
        value = operand.meta.get("val") if isinstance(operand, fx.Node) else None
        if not isinstance(value, torch.Tensor) or not any(s == 0 and n != 1 for n, s in zip(value.shape, value.stride(), strict=True)):
            continue
        with graph.inserting_before(node):
            copied = graph.call_function(aten.clone.default, (operand,), {"memory_format": torch.contiguous_format})
        copied.meta = {**operand.meta, "val": value.clone(memory_format=torch.contiguous_format)}
        node.replace_input_with(operand, copied)


def as_eager(op: Any, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of an operator, whose results are laid out as the operator's own kernel lays them out."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = decomposition(*args, **kwargs)
        if result is NotImplemented:
            return result
        tensors, structure = pytree.tree_flatten(result)
        wanted = pytree.tree_leaves(_without_data(op, args, kwargs))
        return pytree.tree_unflatten([_laid_out(t, w.stride()) for t, w in zip(tensors, wanted, strict=True)], structure)

    return run


def _without_data(op: Any, args: Any, kwargs: Any) -> Any:
    """What the operator gives on tensors of the host that have shapes and strides only."""
    with disable_proxy_modes_tracing(), unset_fake_temporarily(), FakeTensorMode():

        def bare(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return torch.empty_strided(tuple(map(int, value.shape)), tuple(map(int, value.stride())), dtype=value.dtype, device="cpu")

        args, kwargs = pytree.tree_map(bare, (args, kwargs))
        return op(*args, **kwargs)


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same values with other strides, unless these are theirs but for dims of one element."""
    if all(n <= 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    back = [order.index(d) for d in range(tensor.dim())]
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
