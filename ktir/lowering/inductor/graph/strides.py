"""Results of decompositions with the strides that eager PyTorch gives them: views of a result, in the graph or behind it, rely on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree


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
