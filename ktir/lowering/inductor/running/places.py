"""Graphs whose tensors no program reaches: of several cards, of the host by indices of a card, of more dims than programs know, and complex
ones, which a card does not hold. PyTorch runs them, the last ones on the host as a whole.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ktir.lowering.inductor.running.origins import refusal, source, type_text
from ktir.lowering.inductor.running.writes import OnlyEager
from ktir.package.launch_spec import MAX_DIMS

_INDEXED = (operator.getitem, operator.setitem, "index_put", "index_put_", torch.index_put, torch.index_put_)
_HOST = torch.device("cpu")


class OnlyHost(OnlyEager):
    """A graph that PyTorch has to run on the host."""


def check_places(gm: fx.GraphModule) -> None:
    """Raise OnlyEager for a graph that PyTorch has to run, Unsupported for one with results that cannot be."""
    for node, value in _tensors(gm):
        if value.dim() > MAX_DIMS:
            error = refusal(f"a tensor of {value.dim()} dims", f"a program's have at most {MAX_DIMS}", "fewer dims")
            raise OnlyEager(error.message, source(node))
    cards: dict[str, str | None] = {}
    for node, value in _tensors(gm):
        if value.device.type == "spyre":
            cards.setdefault(str(value.device), source(node))
    if not cards:
        return
    if len(cards) > 1:
        places = " and ".join(f"'{card}'" for card in cards)
        error = refusal(f"a graph with tensors on {places}", "a program runs on one card", "a compiled function for each card")
        raise OnlyEager(error.message, list(cards.values())[1])
    for node, value in _tensors(gm):
        if node.target in _INDEXED and isinstance(node.args[0], fx.Node) and any(map(_on_card, pytree.tree_leaves(node.args[1]))):
            base = node.args[0].meta.get("example_value")
            if isinstance(base, torch.Tensor) and base.device == _HOST:
                raise OnlyEager("indices of a card for a tensor of the host are not supported", source(node))
        if value.is_complex() and value.device != _HOST:
            described = f"'{getattr(node.target, '__name__', node.target)}' op of {type_text(value.shape, value.dtype)}"
            if any(user.op == "output" for user in node.users):
                raise refusal(described, "the device holds no complex numbers", "complex results on the host: x.cpu()", source(node))
            raise OnlyHost(refusal(described, "the device holds no complex numbers").message, source(node))


def _tensors(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """The tensors that nodes give, in branches and regions, too."""
    for module in gm.modules():
        for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
            for value in pytree.tree_leaves(node.meta.get("example_value")):
                if isinstance(value, torch.Tensor):
                    yield node, value


def _on_card(index: Any) -> bool:
    value = index.meta.get("example_value") if isinstance(index, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.device.type == "spyre"


def hosted(gm: fx.GraphModule) -> Callable[..., Sequence[Any]]:
    """A graph that runs on the host. What it writes to its inputs is written, and each result goes where the graph has it."""
    (results,) = gm.graph.find_nodes(op="output")[0].args
    values = [r.meta.get("example_value") if isinstance(r, fx.Node) else None for r in results]

    def run(*inputs: Any) -> Sequence[Any]:
        with torch.inference_mode(False):  # whose tensors count their writes
            there = _copied(inputs)
        before = [t._version if isinstance(t, torch.Tensor) else 0 for t in there]
        found = _OnHost(gm).run(*there)
        for x, t, version in zip(inputs, there, before, strict=True):
            if t is not x and t._version != version:
                x.copy_(t)
        back = {id(t): x for t, x in zip(there, inputs, strict=True)}
        return tuple(
            back[id(x)] if id(x) in back else x.to(value.device) if isinstance(value, torch.Tensor) else x
            for x, value in zip(found, values, strict=True)
        )

    return run


def _copied(inputs: Sequence[Any]) -> list[Any]:
    """Inputs on the host; those that share their memory do there, too."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copied(x: torch.Tensor) -> torch.Tensor:
        there = x.untyped_storage()
        if there._cdata not in storages:
            storages[there._cdata] = there.cpu()
        return torch.empty(0, dtype=x.dtype).set_(storages[there._cdata], x.storage_offset(), x.size(), x.stride())  # type: ignore[call-overload]

    return [copied(x) if isinstance(x, torch.Tensor) and x.device != _HOST else x for x in inputs]


class _OnHost(fx.Interpreter):
    """Takes the host wherever the graph says a card."""

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> Any:
        return pytree.tree_map(_as_host, super().fetch_args_kwargs_from_env(n))

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        return value.cpu() if isinstance(value, torch.Tensor) else value


def _as_host(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "spyre":
        return _HOST
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "spyre" else value
