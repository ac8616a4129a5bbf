"""In-place writes that eager PyTorch refuses, since elements of the tensor share their place, are refused in its words. What its tracing
gets wrong runs in eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch.utils import _pytree as pytree

from ktir.diagnostics import KtirError, Unsupported
from ktir.lowering.inductor.running.origins import source, type_text

_IN_PLACE = frozenset(getattr(operator, f"i{name}") for name in "add sub mul truediv floordiv mod pow and or xor lshift rshift".split())
_MOST_PLACES = 1 << 20
"""Elements of a view whose places are compared one by one, where its dims are no nest; of a larger one some are taken to be shared."""
_REFUSED = "refers to a single memory location"


class EagerRefuses(KtirError):
    """What eager PyTorch refuses to do, in its words; see `as_in_eager`."""


class OnlyEager(Unsupported):
    """A graph that PyTorch itself has to run, as it is."""


def check_writes(gm: fx.GraphModule) -> None:
    """Raise EagerRefuses where eager refuses, and OnlyEager where eager allows a write that functionalization gets wrong."""
    for node in gm.graph.nodes:
        value = _written(node)
        if value is not None and value.layout == torch.strided and _shares(value):
            if (error := _of_eager(node)) is not None:
                raise EagerRefuses(f"'{_name(node)}' {error}", source(node))
            described = f"'{_name(node)}' to a tensor of {type_text(value.shape, value.dtype)} and strides {list(value.stride())}"
            raise OnlyEager(
                f"{described} is not supported: elements share their place, and PyTorch's tracing does not keep their order", source(node)
            )
    _check_branches(gm)


def as_in_eager(run: Callable[..., Any], error: EagerRefuses) -> Callable[..., Any]:
    """A graph as PyTorch runs it, which does what comes before, and then refuses, at the user's line: what a backend raises while it
    compiles would come wrapped by Dynamo.
    """

    def refuse(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except RuntimeError as found:
            if _REFUSED not in str(found):  # of an operator that comes before
                raise
            raise RuntimeError(str(error)) from None

    return refuse


def _check_branches(gm: fx.GraphModule) -> None:
    """Raise OnlyEager for a write in a branch or loop of a branch or loop: AOTAutograd of torch 2.13 does not see it, and drops it."""
    for outer in bodies(gm):
        for inner in bodies(outer):
            for node in inner.graph.nodes:
                if _writes(node):
                    described = f"'{_name(node)}' in a branch or loop of another one"
                    raise OnlyEager(f"{described} is not supported: PyTorch's tracing drops what it writes", source(node))
            _check_branches(outer)


def check_views(gm: fx.GraphModule, sharing: Sequence[int]) -> None:
    """Raise OnlyEager where a view of an input is returned and one is written, of those by number that share memory with others.

    AOTAutograd of torch 2.13 makes a tensor of the whole memory then, and takes views of that tensor for views of the inputs.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    values = [placeholders[k].meta.get("example_value") for k in sharing]
    memory = {v.untyped_storage()._cdata for v in values if isinstance(v, torch.Tensor)}
    if not any(v.untyped_storage()._cdata in memory for v in written(gm)) and not any(map(_writes, _inner_nodes(gm))):
        return
    for node in gm.graph.output_node().all_input_nodes:
        value = node.meta.get("example_value")
        if node.op != "placeholder" and isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in memory:
            described = f"result '{node.name}' of {type_text(value.shape, value.dtype)}"
            reason = "it is a view of an input that shares memory with another one, and one of them is written"
            raise OnlyEager(f"{described} is not supported: {reason}, which PyTorch's tracing gets wrong", source(node))


def _inner_nodes(gm: fx.GraphModule) -> Iterator[fx.Node]:
    for body in bodies(gm):
        yield from body.graph.nodes
        yield from _inner_nodes(body)


def bodies(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """What a graph calls by higher-order operators."""
    found = [getattr(gm, str(node.target)) for node in gm.graph.find_nodes(op="get_attr")]
    return [body for body in found if isinstance(body, fx.GraphModule)]


def written(gm: fx.GraphModule) -> list[torch.Tensor]:
    """What the nodes of a graph write to, views of its inputs among them."""
    return [value for node in gm.graph.nodes if (value := _written(node)) is not None and value.layout == torch.strided]


def _written(node: fx.Node) -> torch.Tensor | None:
    """What a node writes to, or would write to if it were done in place."""
    target = node.kwargs.get("out") if "out" in node.kwargs else node.args[0] if node.args and _writes(node) else None
    value = target.meta.get("example_value") if isinstance(target, fx.Node) else None
    if node.op.startswith("call_") and _name(node) == "as_strided_scatter":
        made, (size, stride) = node.meta.get("example_value"), _shape_of_view(*node.args[2:], **node.kwargs)
        value = made.as_strided(size, stride) if isinstance(made, torch.Tensor) else None
    return value if isinstance(value, torch.Tensor) else None


def _shape_of_view(size: Any, stride: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    return size, stride


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _writes(node: fx.Node) -> bool:
    name = _name(node)
    if getattr(operator, name, None) is node.target:  # `and_` writes to nothing: `and` is a keyword
        return node.target in _IN_PLACE or node.target is operator.setitem
    return node.op.startswith("call_") and name.rstrip("_") + "_" == name


def _shares(value: torch.Tensor) -> bool:
    """Whether two elements have one place. Sizes that are not known yet are no matter of this graph."""
    dims = [(n, s) for n, s in zip(value.shape, value.stride(), strict=True) if not isinstance(n, int) or n > 1]
    if not all(isinstance(x, int) for dim in dims for x in dim) or 0 in value.shape:
        return False
    reach = 0
    for n, stride in sorted(dims, key=lambda dim: dim[1]):
        if stride <= reach:
            return stride == 0 or value.numel() > _MOST_PLACES or len(np.unique(_places(dims))) < value.numel()
        reach += (n - 1) * stride
    return False


def _places(dims: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    places = np.zeros(1, np.int64)
    for n, stride in dims:
        places = (places[:, None] + stride * np.arange(n)).reshape(-1)
    return places


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
