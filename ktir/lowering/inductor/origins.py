"""From FX nodes to source lines, and the wording of refusals that point at them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ktir.diagnostics import Unsupported
from ktir.lowering.inductor.region import Origin

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep


def origin(node: fx.Node) -> Origin:
    """Name, operator, module path and innermost source line outside of torch of an FX node."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith(_TORCH)] or frames
    file, line = own[-1] if own else (None, 0)
    return Origin(node.name, str(node.target), file, int(line), _module(node))


def _module(node: fx.Node) -> str:
    """`layers.0.fc1` out of Dynamo's `L['self'].layers.0.fc1` or `L['self']._modules['layers']...`."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(list(stack.values())))[0]) if stack else ""
    path = re.sub(r"\._modules\['([^']+)'\]", r".\1", path)
    return re.sub(r"^L\['\w+'\]\.?", "", path)


def source(node: fx.Node) -> str | None:
    """`file:line:1` of the user code behind a node; of its first user for an input, which has no line of its own."""
    for candidate in (node, *node.users):
        found = origin(candidate)
        if found.file:
            return f"{found.file}:{found.line}:1"
    return None


def tensors(node: fx.Node) -> list[torch.Tensor]:
    """The (fake) tensors that a node yields."""
    value = node.meta.get("val")
    return [v for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, torch.Tensor)]


def type_text(shape: Sequence[Any], dtype: Any) -> str:
    """`shape [57, 64] and dtype float16`."""
    return f"shape [{', '.join(map(str, shape))}] and dtype {str(dtype).removeprefix('torch.')}"


def refuse(node: fx.Node, reason: str = "", nearest: str = "", *, what: str = "") -> Unsupported:
    """The error for an FX node: operator, shape, dtype, reason, nearest supported form, source line."""
    values = tensors(node)
    described = type_text(values[0].shape, values[0].dtype) if values else "no tensor result"
    name = what or (f"input '{node.name}'" if node.op == "placeholder" else f"'{node.target}' op")
    module = _module(node) if node.op == "call_function" else ""
    within = f" in module '{module}'" if module else ""
    return refusal(f"{name} of {described}{within}", reason, nearest, source(node))


def refusal(what: str, reason: str = "", nearest: str = "", source: str | None = None) -> Unsupported:
    """`<what> is not supported: <reason>; nearest supported form: <nearest>`, placed at `source`."""
    text = f"{what} is not supported"
    text += f": {reason}" if reason else ""
    text += f"; nearest supported form: {nearest}" if nearest else ""
    return Unsupported(text, source)
