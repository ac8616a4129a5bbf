"""Products of matrices of several types: eager PyTorch refuses them, its tracing does not, and gives them the type of the first one."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ktir.diagnostics import KtirError
from ktir.lowering.inductor.running.origins import source

_PRODUCTS = frozenset(
    "matmul mm addmm addmm_ linear mv addbmm addbmm_ inner tensordot multi_dot chain_matmul scaled_dot_product_attention".split()
)
"""Functions and methods by their names: those whose types tracing does not compare."""


def check_products(gm: fx.GraphModule) -> None:
    """Raise KtirError, in PyTorch's words, where eager refuses the types of a product. Under autocast they are others."""
    modules = [module for module in gm.modules() if isinstance(module, fx.GraphModule)]
    nodes = [node for module in modules for node in module.graph.nodes if node.op in ("call_function", "call_method")]
    autocast = torch._C._is_any_autocast_enabled() or any("autocast" in _name(n) for n in nodes)
    for node in [] if autocast else nodes:
        if _name(node) in _PRODUCTS and len({t.dtype for t in map(_value, node.all_input_nodes) if t is not None}) > 1:
            _try(node)


def _try(node: fx.Node) -> None:
    def without_memory(x: Any) -> Any:
        if not isinstance(x, fx.Node):
            return x
        value = _value(x)
        return x.meta.get("example_value") if value is None else torch.zeros((), dtype=value.dtype).expand(value.shape)

    with torch.no_grad(), torch._C._DisableTorchDispatch():
        args, kwargs = pytree.tree_map(without_memory, (node.args, node.kwargs), is_leaf=lambda x: isinstance(x, fx.Node))
        function: Any = getattr(args[0], node.target) if isinstance(node.target, str) else node.target
        try:
            function(*(args[1:] if isinstance(node.target, str) else args), **kwargs)
        except RuntimeError as error:
            if "type" in str(error):  # also "dtype"; what else is wrong with numbers that are not those of the call says nothing of it
                operands = [t for t in map(_value, node.all_input_nodes) if t is not None]
                shown = " and ".join(f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" for t in operands)
                raise KtirError(f"'{_name(node)}' of {shown}: {str(error).splitlines()[0]}", source(node)) from None


def _value(node: fx.Node) -> torch.Tensor | None:
    found = node.meta.get("example_value")
    return found if isinstance(found, torch.Tensor) else None


def _name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
