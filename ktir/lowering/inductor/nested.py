"""Repeated layers as nested regions: N equal decoder layers are traced N times but lowered once."""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import fx, nn

from ktir.lowering.inductor.running.writes import bodies

_REGION = torch.ops.higher_order.invoke_subgraph


def nested(target: Any) -> Any:
    """Mark repeated parts of a model, so that equal ones are lowered once and share one program.

    target: a function or a module class, which is returned marked (usable as a decorator), or a module. In a module, the layers of each
    `nn.ModuleList` or `nn.Sequential` that holds at least two of one class are marked, in place; the class itself is left as it is. Layers
    must not return tensors that alias their inputs, nor change inputs or buffers in place under gradients; torch says so where one does.
    A call with a cache of keys and values of transformers that is still empty, or grows, is not nested, since no region may make tensors
    that outlive it: with a StaticCache that is the prefill, unless its `early_initialization` was called.
    Returns target. Raises TypeError for anything else.
    """
    if isinstance(target, type) and issubclass(target, nn.Module):
        target.forward = torch.compiler.nested_compile_region(target.forward)
        return target
    if isinstance(target, nn.Module):
        for container in target.modules():
            if isinstance(container, (nn.ModuleList, nn.Sequential)):
                _mark(list(container))
        return target
    if callable(target):
        return torch.compiler.nested_compile_region(target)
    raise TypeError(f"nested expects a function, a module or a module class, but got {type(target).__name__}")


def _mark(layers: list[nn.Module]) -> None:
    classes = [type(layer) for layer in layers]
    for layer, own in zip(layers, classes, strict=True):
        if classes.count(own) > 1 and not hasattr(own, _MARK):
            layer.__class__ = _marked(own)


_MARK = "_ktir_nested"


@functools.cache
def _marked(cls: type[nn.Module]) -> type[nn.Module]:
    """A subclass of the same name whose `forward` is a nested region; one per class, so that equal layers stay equal."""
    own = cls.forward
    region = torch.compiler.nested_compile_region(own)

    @functools.wraps(own)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if any(map(_makes_tensors, (*args, *kwargs.values()))):
            return own(self, *args, **kwargs)
        return region(self, *args, **kwargs)

    return type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__, _MARK: True})


def _makes_tensors(value: Any) -> bool:
    """Whether a value is a cache that keeps tensors made by the layers that it is given to."""
    layers = () if isinstance(value, torch.Tensor) else getattr(value, "layers", ())
    return any(not (getattr(layer, "is_initialized", True) and getattr(layer, "is_compileable", True)) for layer in layers)


def flatten(gm: fx.GraphModule) -> None:
    """Write out regions within regions, and regions with branches or loops, in place: torch does not see what these write to, and drops it
    (AOTAutograd of torch 2.13, every backend). Other regions are still lowered once.
    """
    for call in _calls(gm):
        region = _region_of(gm, call)
        _flatten_whole(region)
        if bodies(region):
            _write_out(gm, call)
    gm.recompile()


def _calls(gm: fx.GraphModule) -> list[fx.Node]:
    return gm.graph.find_nodes(op="call_function", target=_REGION)


def _region_of(gm: fx.GraphModule, call: fx.Node) -> fx.GraphModule:
    return getattr(gm, cast(Any, call.args[0]).target)


def _flatten_whole(region: fx.GraphModule) -> None:
    for call in _calls(region):
        _flatten_whole(_region_of(region, call))
        _write_out(region, call)
    region.recompile()


def _write_out(outer: fx.GraphModule, call: fx.Node) -> None:
    """Put what a region computes in the place of its call."""
    region, _, *operands = cast(Any, call.args)
    inner = _region_of(outer, call)
    moved: dict[fx.Node, Any] = dict(zip(inner.graph.find_nodes(op="placeholder"), operands, strict=True))
    with outer.graph.inserting_before(call):
        results = cast(Any, outer.graph.graph_copy(inner.graph, moved))
    for node in inner.graph.find_nodes(op="get_attr"):
        moved[node].target = name = f"{region.target}_{node.target}"
        setattr(outer, name, getattr(inner, str(node.target)))
    for part in list(call.users):
        part.replace_all_uses_with(results[part.args[1]])
        outer.graph.erase_node(part)
    outer.graph.erase_node(call)
    if not region.users:
        outer.graph.erase_node(region)
