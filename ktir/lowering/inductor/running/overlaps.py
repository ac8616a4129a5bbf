"""Tensors that share elements where torch says that they do not.

Torch's `compute_overlapping_tensors` takes two matrices of equal outer stride to be apart as soon as no row of the later one crosses the
end of a row of memory, even where the columns of both meet: `x` and `x[2:5, 1:3]`, say. Inductor then writes to a part of an input in place
of a copy, and AOTAutograd takes a write to one input for none to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def overlooked(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one memory are such matrices, with columns and rows that meet."""
    x, y = sorted((a, b), key=lambda t: int(t.storage_offset()))
    if not (_is_matrix(x) and _is_matrix(y)) or x.stride(0) != y.stride(0) or not (x.numel() and y.numel()):
        return False
    rows, columns = divmod(int(y.storage_offset()) - int(x.storage_offset()), x.stride(0))
    return (rows < x.shape[0] and columns < x.shape[1]) or (rows + 1 < x.shape[0] and columns + y.shape[1] > x.stride(0))


def _is_matrix(x: torch.Tensor) -> bool:
    return x.dim() == 2 and x.stride(1) == 1 and x.stride(0) > 0


def with_overlooked(theirs: Callable[..., set[int]]) -> Callable[..., set[int]]:
    """Torch's function, which also tells these overlaps."""

    def overlapping(tensors: list[torch.Tensor], *symbolic: bool) -> set[int]:
        pairs = ((i, j) for j in range(len(tensors)) for i in range(j) if overlooked(tensors[i], tensors[j]))
        return {*theirs(tensors, *symbolic), *(k for pair in pairs for k in pair)}

    return overlapping


class Overlooked:
    """The inputs of a graph of Dynamo that are written to and those that may share elements with them unseen, by number."""

    def __init__(self, gm: fx.GraphModule, written: Sequence[torch.Tensor]) -> None:
        """`written`: what the nodes of the graph write to."""
        values: list[Any] = [n.meta.get("example_value") for n in gm.graph.nodes if n.op == "placeholder"]
        matrices = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and v.layout == torch.strided and v.dim() == 2]
        memory = {t.untyped_storage()._cdata for t in written}
        targets = [k for k in matrices if values[k].untyped_storage()._cdata in memory]
        self.pairs = [(i, j) for i in targets for j in matrices if i != j and values[i].dtype == values[j].dtype]

    def among(self, inputs: Sequence[Any]) -> bool:
        """Whether tracing did not see that a write to one of these is one to another."""
        return any(
            inputs[i].untyped_storage()._cdata == inputs[j].untyped_storage()._cdata and overlooked(inputs[i], inputs[j])
            for i, j in self.pairs
        )
