"""`torch.compile` without a backend name on tensors of the device: graphs of the default backend come to us."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ktir.device.operators.kernels import is_ours


def install() -> None:
    """Let the default backend of `torch.compile` hand over the graphs on the device."""
    wrapper = torch._TorchCompileInductorWrapper
    wrapper.__call__ = _handed_over(wrapper.__call__)  # type: ignore[method-assign]


def _handed_over(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def call(self: Any, model_: fx.GraphModule, inputs_: Sequence[Any], **kwargs: Any) -> Any:
        values = (*inputs_, *(node.meta.get("example_value") for node in model_.graph.nodes))
        if not any(map(is_ours, values)):
            return stock(self, model_, inputs_, **kwargs)
        from ktir.lowering.inductor.backend import ktir

        return ktir(model_, inputs_)

    return call
