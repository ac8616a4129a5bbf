"""How the inputs of a graph lie on the device, as far as their users have said so: what the planner takes as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import fx

from ktir.runtime.memory.allocation import find
from ktir.target import LANES

_steps: ContextVar[dict[str, int] | None] = ContextVar("ktir_lying", default=None)


def step_of(tensor: Any) -> int:
    """Of a tensor that has been given a layout with sticks as programs have them: elements of the host from one to the next in a stick.
    Else 0.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "spyre":
        return 0
    wanted = find(tensor.untyped_storage().data_ptr()).wanted
    if wanted is None:
        return 0
    view, lanes = wanted[0].view, wanted[0].layout.digits[-1]
    return view.strides[lanes.dim] * lanes.divisor if lanes.dim is not None and lanes.extent == LANES else 0


def taken(inner: Callable[..., Any], steps: Sequence[int]) -> Callable[..., Any]:
    """Inductor's compilation of a graph with inputs that lie so."""

    def compile_inner(gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        token = _steps.set(dict(zip(names, steps, strict=True)) if len(names) == len(steps) else None)
        try:
            return inner(gm, example_inputs, **kwargs)
        finally:
            _steps.reset(token)

    return compile_inner


def of_input(name: str) -> int:
    """The same of an input of the graph that is compiled, by its name."""
    return (_steps.get() or {}).get(name, 0)
