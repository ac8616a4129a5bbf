"""In-place writes that eager PyTorch refuses, since elements of the tensor share their place, are refused in its words."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor.running.origins import source, type_text

_IN_PLACE = frozenset(getattr(operator, f"i{name}") for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
_REFUSED = "refers to a single memory location"


class OnlyEager(Unsupported):
    """A graph that PyTorch itself has to run, as it is."""


def check_writes(gm: fx.GraphModule) -> None:
    """Raise KtirError where eager would, and OnlyEager where eager allows a write that functionalization gets wrong."""
    for node in gm.graph.nodes:
        target = node.kwargs.get("out") if "out" in node.kwargs else node.args[0] if node.args and _writes(node) else None
        value = target.meta.get("example_value") if isinstance(target, fx.Node) else None
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and _shares(value):
            if (error := _of_eager(node)) is not None:
                raise KtirError(f"'{_name(node)}' {error}", source(node))
            described = f"'{_name(node)}' to a tensor of {type_text(value.shape, value.dtype)} and strides {list(value.stride())}"
            raise OnlyEager(
                f"{described} is not supported: elements share their place, and PyTorch's tracing adds up what each gets", source(node)
            )


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _writes(node: fx.Node) -> bool:
    name = _name(node)
    return node.op.startswith("call_") and (node.target in _IN_PLACE or node.target is operator.setitem or name.rstrip("_") + "_" == name)


def _shares(value: torch.Tensor) -> bool:
    """Whether a dim is expanded: what PyTorch looks for. Sizes that are not known yet are no matter of this graph."""
    dims = list(zip(value.shape, value.stride(), strict=True))
    return all(isinstance(n, int) for n in value.shape) and any(n > 1 and isinstance(s, int) and s == 0 for n, s in dims)


def _of_eager(node: fx.Node) -> str | None:
    """What eager says to the operation on zeros: some write the same to all elements, and are allowed."""

    def zeros(x: Any) -> Any:
        x = x.meta.get("example_value") if isinstance(x, fx.Node) else x
        if not isinstance(x, torch.Tensor):
            return x
        reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        return torch.zeros(int(reach), dtype=x.dtype, device="cpu").as_strided(tuple(map(int, x.shape)), tuple(map(int, x.stride())))

    try:
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            args, kwargs = pytree.tree_map(zeros, (node.args, node.kwargs), is_leaf=lambda x: isinstance(x, fx.Node))
            if isinstance(node.target, str):
                getattr(args[0], node.target)(*args[1:], **kwargs)
            elif callable(node.target):
                node.target(*args, **kwargs)
    except Exception as error:  # of zeros: all else that may be wrong with them says nothing of the call
        return str(error).splitlines()[0] if _REFUSED in str(error) else None
    return None
