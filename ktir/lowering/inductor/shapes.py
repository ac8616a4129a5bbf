"""Dynamic shapes: one compilation per shape.

Dynamo turns a size that changed between calls into a symbol. Programs have static shapes, so such a graph is compiled anew, with numbers
for symbols, for each combination of sizes that it is called with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def is_dynamic(gm: fx.GraphModule) -> bool:
    """Whether an input of a Dynamo graph is a symbol or has a symbolic size."""
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if node.op != "placeholder":
            continue
        if isinstance(value, (torch.SymInt, torch.SymFloat)) and node.users:
            return True
        if isinstance(value, torch.Tensor) and any(not isinstance(n, int) for n in value.shape):
            return True
    return False


class PerShape:
    """Calls a graph; the first call with new sizes compiles it for them."""

    def __init__(self, gm: fx.GraphModule, backend: Callable[..., Any]) -> None:
        self.gm = gm
        self.backend = backend
        self.compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        key = tuple((tuple(x.shape), x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs)
        found = self.compiled.get(key)
        if found is None:
            # a module of its own: Dynamo limits how often it compiles the same code
            own = fx.GraphModule(self.gm, copy.deepcopy(self.gm.graph))
            found = self.compiled[key] = torch.compile(own, backend=self.backend, dynamic=False)
        return found(*inputs)
