"""Layouts that compiled code wants its results in: `torch.spyre.require_layout` marks a result, and is no operator of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ktir.lowering.inductor.running.origins import refusal, source, type_text
from ktir.spyre_tensor_layout import SpyreTensorLayout, get_device_dtype

MARK = "spyre.require_layout"
_TYPES = (torch.float16, torch.bfloat16, torch.float32)


class Wanted(NamedTuple):
    """The layout of a result by its number. `described`, `place`: the mark, for messages."""

    result: int
    device_size: Sequence[int]
    stride_map: Sequence[int]
    described: str
    place: str | None


def take_marks(gm: fx.GraphModule) -> list[Wanted]:
    """Remove the marks from a graph. Raises Unsupported for what is no result of it, for a layout that this cannot have, and for two."""
    marks = [node for node in gm.graph.nodes if str(node.target).startswith(MARK)]
    marked = [(of := _producer(node), Wanted(0, [*node.args[1]], [*node.args[2]], _described(of), source(node))) for node in marks]
    for mark, (of, _) in zip(reversed(marks), reversed(marked), strict=True):
        mark.replace_all_uses_with(of)
        gm.graph.erase_node(mark)
    results: Any = gm.graph.output_node().args[0]
    wanted: dict[int, Wanted] = {}
    for of, layout in marked:
        places = [k for k, result in enumerate(results) if result is of]
        if not places or of.op == "placeholder":
            nearest = "layouts of results that the compiled function computes and returns"
            raise refusal(layout.described, "it is no such result", nearest, layout.place)
        check(of.meta["example_value"], layout)
        for k in places:
            new = layout._replace(result=k)
            if wanted.setdefault(k, new)[:3] != new[:3]:
                raise refusal(layout.described, "it is wanted in two layouts", "one of them", layout.place)
    if marks:
        gm.recompile()
    return list(wanted.values())


def check(result: torch.Tensor, wanted: Wanted) -> None:
    """Raises Unsupported for a layout that a result cannot have. Sizes that are not known yet are for the launch."""
    _, device_size, stride_map, described, place = wanted
    if result.dtype not in _TYPES:
        raise refusal(described, f"it is for float16, bfloat16 and float32, but got {result.dtype}", "a result of one of these", place)
    size = [n for n in result.shape if isinstance(n, int)]
    if len(size) < result.dim():
        return
    kind = get_device_dtype(result.dtype)
    try:
        SpyreTensorLayout(device_size, stride_map, kind).transfers(size)
    except ValueError as error:
        own = SpyreTensorLayout(size, result.dtype)
        nearest = f"device_size {[*own.device_size]} and stride_map {[*own.stride_map]}, which results of this shape have by default"
        raise refusal(described, str(error), nearest, place) from None


def _described(of: fx.Node) -> str:
    value = of.meta["example_value"]
    return f"'{MARK}' op of '{of}' of {type_text(value.shape, value.dtype)}"


def _producer(node: fx.Node) -> fx.Node:
    return _producer(node.all_input_nodes[0]) if str(node.target).startswith(MARK) else node


def placed(compiled: Callable[..., Any], wanted: Sequence[Wanted]) -> Callable[..., Any]:
    """A compiled graph whose results lie as they are wanted."""

    def run(*inputs: Any) -> Any:
        results = compiled(*inputs)
        for each in wanted:
            check(results[each.result], each)
            torch.ops.spyre.lay_(results[each.result], each.device_size, each.stride_map)
        return results

    return run
