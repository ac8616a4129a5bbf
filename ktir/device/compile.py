"""`torch.compile` without a backend name on tensors of the device: graphs of the default backend come to us."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ktir.device.operators.kernels import is_ours
from ktir.device.tensors import storage


def install() -> None:
    """Let the default backend of `torch.compile` hand over the graphs on the device, and tell us of calls."""
    wrapper = torch._TorchCompileInductorWrapper
    wrapper.__call__ = _handed_over(wrapper.__call__)  # type: ignore[method-assign]
    wrapper.__init__ = _with_context(wrapper.__init__)  # type: ignore[method-assign]
    wrapper.apply_options = _apart(wrapper.apply_options)  # type: ignore[method-assign]
    wrapper.__eq__ = _equal(wrapper.__eq__)  # type: ignore[method-assign]


def _with_context(stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        self.backend_ctx_ctor = _around_call  # Dynamo takes all that a backend's instance has over to its own wrapping of it

    return init


def _apart(stock: Callable[..., None]) -> Callable[..., None]:
    """Options of ours among Inductor's are for the graphs on the device."""

    @functools.wraps(stock)
    def apply(self: Any, options: dict[str, Any] | None) -> None:
        from ktir import config

        names = {field.name for field in dataclasses.fields(config.Config)}
        own = {name: value for name, value in (options or {}).items() if name in names}
        self.ktir_options = {**getattr(self, "ktir_options", {}), **own}
        stock(self, {name: value for name, value in (options or {}).items() if name not in own})

    return apply


def _equal(stock: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(stock)
    def equal(self: Any, other: Any) -> bool:
        return stock(self, other) and self.ktir_options == other.ktir_options

    return equal


def _around_call() -> AbstractContextManager[None]:
    """What is there around each call with the default backend: nothing as long as no tensor has been on the device."""
    return nullcontext() if storage.before_first else _context()()


@functools.cache
def _context() -> Callable[[], AbstractContextManager[None]]:
    from ktir.lowering.inductor.running.tracing import AroundCall

    return functools.partial(AroundCall, "spyre", {}, named=False)


def _handed_over(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def call(self: Any, model_: fx.GraphModule, inputs_: Sequence[Any], **kwargs: Any) -> Any:
        graphs = [m.graph for m in model_.modules() if isinstance(m, fx.GraphModule)]  # those of branches and regions, too
        values = pytree.tree_leaves([*inputs_, *(node.meta.get("example_value") for graph in graphs for node in graph.nodes)])
        if not any(map(is_ours, values)):
            return stock(self, model_, inputs_, **kwargs)
        from ktir.lowering.inductor.backend import ktir

        return ktir(model_, inputs_, options=self.ktir_options)

    return call
