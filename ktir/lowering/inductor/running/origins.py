"""From FX nodes to source lines, and the wording of refusals that point at them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ktir.diagnostics import Unsupported
from ktir.lowering.region_to_ktir.region import Origin

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
TORCH = os.path.dirname(torch.__file__) + os.sep
_NOT_USERS = (TORCH, str(Path(__file__).parents[3] / "device") + os.sep)
"""Where functions lie that users call."""


def origin(node: fx.Node) -> Origin:
    """Name, operator, module path and innermost source line of the user's of an FX node."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith(_NOT_USERS)] or frames
    file, line = own[-1] if own else (None, 0)
    return Origin(node.name, str(node.target), file, int(line), _module(node))


def _module(node: fx.Node) -> str:
    """`layers.0.fc1` out of Dynamo's `L['self'].layers.0.fc1` or `L['self']._modules['layers']...`; the class of the whole model."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = [*stack.values()][-1]
    path = re.sub(r"\._modules\['([^']+)'\]", r".\1", str(path))
    return re.sub(r"^L\['\w+'\]\.?", "", path) or getattr(kind, "__name__", str(kind))


def source(node: fx.Node) -> str | None:
    """`file:line:1` of the user code behind a node; of its first user for an input, which has no line of its own."""
    for candidate in (node, *node.users):
        found = origin(candidate)
        if found.file:
            return f"{found.file}:{found.line}:1"
    return None


def values_of(gm: fx.GraphModule) -> list[Any]:
    """What Dynamo knows of the values of a graph, and of the graphs of its branches and regions."""
    graphs = [module.graph for module in gm.modules() if isinstance(module, fx.GraphModule)]
    return pytree.tree_leaves([node.meta.get("example_value") for graph in graphs for node in graph.nodes])


def any_on_device(values: Iterable[Any]) -> bool:
    """Whether there is a tensor on the device among them."""
    return any(isinstance(v, torch.Tensor) and v.device.type == "spyre" for v in values)


def result_of(node: fx.Node | None) -> str:
    """Shape and dtype of the first tensor that a node yields, as text; empty if there is none."""
    value = node.meta.get("val") if node is not None else None
    values = value if isinstance(value, (tuple, list)) else [value]
    return next((type_text(v.shape, v.dtype) for v in values if isinstance(v, torch.Tensor)), "")


def type_text(shape: Sequence[Any], dtype: Any) -> str:
    """`shape [57, 64] and dtype float16`."""
    return f"shape [{', '.join(map(str, shape))}] and dtype {str(dtype).removeprefix('torch.')}"


def refusal(what: str, reason: str = "", nearest: str = "", source: str | None = None) -> Unsupported:
    """`<what> is not supported: <reason>; nearest supported form: <nearest>`, placed at `source`."""
    text = f"{what} is not supported"
    text += f": {reason}" if reason else ""
    text += f"; nearest supported form: {nearest}" if nearest else ""
    return Unsupported(text, source)


def shares_weight(node: fx.Node) -> bool:
    """Whether the second operand of a bmm is one matrix expanded over the batch, so that the batch folds into the rows."""
    weight = node.args[1]
    if not isinstance(weight, fx.Node) or str(weight.target) != "aten.expand.default" or not isinstance(weight.args[0], fx.Node):
        return False
    shape = weight.args[0].meta["val"].shape
    return len(shape) == 2 or shape[0] == 1
