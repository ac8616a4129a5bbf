"""Results of decompositions with the strides that eager PyTorch gives them: views of a result, in the graph or behind it, rely on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree

aten = torch.ops.aten

_LARGE = 1 << 22
"""Elements of operands of a kernel that is not run to see how its results lie."""

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
    if not isinstance(op, torch._ops.OpOverload) or op.is_view or op._schema.is_mutable:
        return decomposition

    @functools.wraps(decomposition)
    def run(*args: Any, **kwargs: Any) -> Any:
        result = decomposition(*args, **kwargs)
        if result is NotImplemented or not _may_differ((args, kwargs), result):
            return result
        tensors, structure = pytree.tree_flatten(result)
        wanted = _of_kernel(op, args, kwargs)
        if [getattr(t, "shape", None) for t in tensors] != [getattr(w, "shape", None) for w in wanted]:
            return result  # buffers that only a gradient needs
        laid = [_laid_out(t, w.stride()) if isinstance(t, torch.Tensor) else t for t, w in zip(tensors, wanted, strict=True)]
        return pytree.tree_unflatten(laid, structure)

    return run


def _may_differ(operands: Any, results: Any) -> bool:
    """Whether any of these tensors lies otherwise than its shape says: kernels keep to that where their operands do."""
    taken, made = ([t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)] for tree in (operands, results))
    return bool(taken and made) and not all(t.is_contiguous() for t in (*taken, *made))


def _of_kernel(op: Any, args: Any, kwargs: Any) -> list[Any]:
    """What PyTorch's kernel gives on tensors of zeros that lie as these do, or nothing where it takes none. What torch knows of kernels
    without running them is not always so (`log_sigmoid`, `batch_norm`, `div` with a mode), but it must do for large tensors.
    """
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    large = sum(math.prod(map(_zeros, t.shape)) for t in tensors) > _LARGE
    with disable_proxy_modes_tracing(), unset_fake_temporarily(), torch.random.fork_rng(devices=[]), torch.no_grad():
        with FakeTensorMode() if large else nullcontext():
            try:
                return pytree.tree_leaves(op(*pytree.tree_map(_zeros, args), **pytree.tree_map(_zeros, kwargs)))
            except (RuntimeError, TypeError, ValueError):  # of a number that nothing is known of, too
                return []


def _zeros(value: Any) -> Any:
    """An operand of such a call. Numbers that may change between calls are as in this one, and stay free."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    size, strides = (tuple(map(_zeros, numbers)) for numbers in (value.shape, value.stride()))
    return torch.empty_strided(size, strides, dtype=value.dtype, device="cpu").zero_()


def _laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same values with other strides, unless these are theirs but for dims of one element."""
    if all(n <= 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    back = [order.index(d) for d in range(tensor.dim())]
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
