"""Graphs on a device other than the host: compiled as on the host, run on the device.

Decompositions and Inductor ask in many places whether something is on the CPU: in which order a norm multiplies, where a value is computed
again for each reader, how to divide by constants and find the places of extremes. So that a graph gives the same bits, and takes the same
time, wherever its tensors are, both are shown the graph with all tensors on the host. The generated code makes buffers on the device.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._subclasses import FakeTensor
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ktir.lowering.inductor.running.origins import values_of

HOST = torch.device("cpu")


def device_of(gm: fx.GraphModule, inputs: Any) -> torch.device:
    """The device that a graph is on: another one than the host where anything in it is there."""
    values = [*pytree.tree_leaves(inputs), *values_of(gm)]
    return next((v.device for v in values if isinstance(v, torch.Tensor) and v.device != HOST), HOST)


# ------------------------------------------------------------------------------------------------------------------------- compiling


@contextmanager
def shown_on_host() -> Iterator[None]:
    """Within the block, and this thread, tensors that are traced say that they are on the host."""
    place_of, here = vars(FakeTensor)["fake_device"], threading.get_ident()

    def shown(tensor: FakeTensor) -> torch.device:
        place = place_of.fget(tensor)
        return HOST if place.type == "spyre" and threading.get_ident() == here else place

    FakeTensor.fake_device = property(shown, place_of.fset)  # type: ignore[assignment]
    try:
        yield
    finally:
        FakeTensor.fake_device = place_of


@contextmanager
def moves_shown(gm: fx.GraphModule) -> Iterator[None]:
    """Within the block, the nodes of Dynamo's graph that may move a tensor do on the host what they do to memory: a tensor that goes
    elsewhere is copied, one that is there is taken as it is, and who writes to the result writes to it.
    """
    nodes = [n for module in gm.modules() if isinstance(module, fx.GraphModule) for n in module.graph.nodes]
    theirs = [(n, n.op, n.target, n.args, n.kwargs) for n in nodes if _names_a_place(n)]
    for node, *_ in theirs:
        source, found = (n.meta["example_value"] for n in (node.args[0], node))
        flags = [a for a in node.args if isinstance(a, bool)]  # that of the copy is the second one
        copy = found.device != source.device or flags[1:] == [True] or bool(node.kwargs.get("copy"))
        kept = {k: v for k, v in node.kwargs.items() if k == "memory_format"}
        node.op, node.target, node.args = "call_method", "to", (node.args[0], HOST, found.dtype)
        node.kwargs = {**kept, "copy": copy}
    try:
        yield
    finally:
        for node, op, target, args, kwargs in theirs:
            node.op, node.target, node.args, node.kwargs = op, target, args, kwargs


def _names_a_place(node: fx.Node) -> bool:
    """Whether a node gives a tensor somewhere, the same one if it is there."""
    if node.target not in _MOVES or not (node.args and isinstance(node.args[0], fx.Node)):
        return False
    values = [n.meta.get("example_value") for n in (node.args[0], node)]
    places = [v.device for v in values if isinstance(v, torch.Tensor)]
    return len(places) == len(values) and places != [HOST, HOST]


_MOVES = ("to", "cpu", "type_as", torch.as_tensor, torch.asarray)


def as_on_host(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's compilation of a graph, which is shown the graph on the host."""

    @functools.wraps(inner)
    def compile_inner(gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        for module in gm.modules():
            if isinstance(module, fx.GraphModule):
                _move(module)
        return inner(gm, pytree.tree_map(_moved, list(example_inputs)), **kwargs)

    return compile_inner


def _move(module: fx.GraphModule) -> None:
    for node in module.graph.nodes:
        node.args, node.kwargs = map_aggregate(node.args, _moved), map_aggregate(node.kwargs, _moved)  # type: ignore[assignment]
        if "stream" in (custom := node.meta.get("custom") or {}):  # a graph is for the stream in which it is called
            node.meta["custom"] = {k: v for k, v in custom.items() if k != "stream"}
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(_moved, node.meta["val"])
        value = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(value, torch.Tensor) and value.device != HOST:
            with _disable_current_modes():
                setattr(module, str(node.target), value.cpu())


def _moved(value: Any) -> Any:
    if isinstance(value, torch.device):
        return HOST
    if not isinstance(value, FakeTensor) or value.device == HOST:
        return value
    with value.fake_mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=HOST)


class _OnDevice(PythonWrapperCodegen):
    device = HOST

    def make_allocation(self, name: str, device: torch.device, *args: Any, **kwargs: Any) -> str:
        return super().make_allocation(name, self.device, *args, **kwargs)


def counts_itself(wrapper: PythonWrapperCodegen) -> bool:
    """Whether what PyTorch runs is counted without generated code: operators on a device are, one by one."""
    return isinstance(wrapper, _OnDevice)


def wrapper_for(device: str) -> type[PythonWrapperCodegen]:
    """What writes the code that runs a graph, with buffers on a device."""
    place = torch.device(device)

    class OnDevice(_OnDevice):
        device = place

        @staticmethod
        def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> Any:
            return OfSubgraph(subgraph_name, parent_wrapper, partition_signatures) if is_subgraph else OnDevice()

    class OfSubgraph(_OnDevice, SubgraphPythonWrapperCodegen):
        device = place

    return OnDevice


# --------------------------------------------------------------------------------------------------------------------------- running


def placed(compiled: Callable[..., Any], gm: fx.GraphModule, device: torch.device) -> Callable[..., Any]:
    """The same, with buffers on a device of several, and each result where the graph has it."""
    (results,) = gm.graph.find_nodes(op="output")[0].args
    wanted = [_place(r) for r in (results if isinstance(results, (tuple, list)) else [results])]
    elsewhere = [k for k, place in enumerate(wanted) if place not in (None, device)]
    current = getattr(torch, device.type).device

    @functools.wraps(compiled)
    def call(*inputs: Any) -> Any:
        with current(device):
            found = compiled(*inputs)
        if elsewhere:
            found = list(found)
            for k in elsewhere:
                found[k] = found[k].to(wanted[k])
        return found

    return call


def _place(result: Any) -> torch.device | None:
    value = result.meta.get("example_value") if isinstance(result, fx.Node) else None
    return value.device if isinstance(value, torch.Tensor) else None
