"""Layouts that compiled code wants its results in: `torch.spyre.require_layout` marks a result, and is no operator of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ktir.lowering.inductor.running.origins import refusal, source, type_text

MARK = "spyre.require_layout"


class Wanted(NamedTuple):
    """The layout of a result by its number."""

    result: int
    device_size: Sequence[int]
    stride_map: Sequence[int]


def take_marks(gm: fx.GraphModule) -> list[Wanted]:
    """Remove the marks from a graph. Raises Unsupported for what is no result of it, or wanted in two layouts."""
    marks = [node for node in gm.graph.nodes if str(node.target).startswith(MARK)]
    marked = [(_producer(node), Wanted(0, [*node.args[1]], [*node.args[2]])) for node in marks]
    for mark, (of, _) in zip(reversed(marks), reversed(marked), strict=True):
        mark.replace_all_uses_with(of)
        gm.graph.erase_node(mark)
    results: Any = gm.graph.output_node().args[0]
    wanted: dict[int, Wanted] = {}
    for of, layout in marked:
        places = [k for k, result in enumerate(results) if result is of]
        described = f"'{MARK}' op of '{of}' of {type_text(of.meta['example_value'].shape, of.meta['example_value'].dtype)}"
        if not places or of.op == "placeholder":
            nearest = "layouts of results that the compiled function computes and returns"
            raise refusal(described, "it is no such result", nearest, source(of))
        for k in places:
            new = layout._replace(result=k)
            if wanted.setdefault(k, new) != new:
                raise refusal(described, "it is wanted in two layouts", "one of them", source(of))
    if marks:
        gm.recompile()
    return list(wanted.values())


def _producer(node: fx.Node) -> fx.Node:
    return _producer(node.all_input_nodes[0]) if str(node.target).startswith(MARK) else node


def placed(compiled: Callable[..., Any], wanted: Sequence[Wanted]) -> Callable[..., Any]:
    """A compiled graph whose results lie as they are wanted."""

    def run(*inputs: Any) -> Any:
        results = compiled(*inputs)
        for k, device_size, stride_map in wanted:
            torch.ops.spyre.lay_(results[k], device_size, stride_map)
        return results

    return run
