"""Tensors that share elements where torch says that they do not.

Torch's `compute_overlapping_tensors` takes two matrices of equal outer stride to be apart as soon as no row of the later one crosses the
end of a row of memory, even where the columns of both meet: `x` and `x[2:5, 1:3]`, say. Inductor then writes to a part of an input in place
of a copy, and AOTAutograd takes a write to one input for none to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

_MOST_PLACES = 1 << 20
"""Elements of a tensor whose places are compared one by one."""


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


class Unseen(Exception):
    """Inputs share memory that did not when calls were made short; with nothing done."""


def meeting(spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Pairs of those, by number, whose spans of memory meet. spans: where each begins and ends, and its number."""
    known: list[tuple[int, int, int]] = []
    for begin, end, number in sorted(spans):
        known = [each for each in known if each[1] > begin]
        yield from ((other, number) for _, _, other in known)
        known.append((begin, end, number))


def reach(t: torch.Tensor) -> int:
    """The bytes from the first element of a tensor to the end of the last one."""
    return (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))) * t.element_size() if t.numel() else 0


class Overlooked:
    """The inputs of a graph of Dynamo that are written to and those that may share elements with them unseen, by number: such matrices of
    one memory, and what did not share them in the same way when the graph was compiled, of which Dynamo's guards do not ask.
    """

    def __init__(self, gm: fx.GraphModule, written: Sequence[torch.Tensor]) -> None:
        """`written`: what the nodes of the graph write to."""
        values: list[Any] = [n.meta.get("example_value") for n in gm.graph.nodes if n.op == "placeholder"]
        tensors = {k: v for k, v in enumerate(values) if isinstance(v, torch.Tensor) and v.layout == torch.strided}
        memory = {t.untyped_storage()._cdata for t in written}
        of = {k: v.untyped_storage()._cdata for k, v in tensors.items()}
        self.targets = frozenset(k for k, place in of.items() if place in memory)
        beside = [(i, j) for i in self.targets for j in of if i != j and of[i] == of[j]]
        self._pairs = frozenset(p for p in beside if _meet(*((tensors[k], _offset(tensors[k])) for k in p)))
        self._offsets = {k: _offset(tensors[k]) for pair in self._pairs for k in pair}
        """Of those that share elements, which compiled code relies on."""
        self.shared = bool(self._pairs)
        """Whether there are some."""
        self._tensors = [*of] if self.targets else []
        self._apart: list[int] = []
        """Where the inputs of the last call lay, if nothing of them is unseen."""

    def among(self, inputs: Sequence[Any]) -> bool:
        """Whether tracing did not see that a write to one of these is one to another, or that it is none."""
        places = [inputs[k].data_ptr() for k in self._tensors]
        if places == self._apart:
            return False
        if any(_offset(inputs[k]) != offset for k, offset in self._offsets.items()) or not all(_together(inputs, *p) for p in self._pairs):
            return True
        spans = [(place, place + reach(inputs[k]), k) for k, place in zip(self._tensors, places, strict=True)]
        if any(self._unseen(i, j, inputs) for i, j in meeting(spans) if not self.targets.isdisjoint((i, j))):
            return True
        self._apart = places
        return False

    def _unseen(self, i: int, j: int, inputs: Sequence[Any]) -> bool:
        a, b = inputs[i], inputs[j]
        if not self._pairs.isdisjoint(((i, j), (j, i))):
            return a.dtype == b.dtype and overlooked(a, b)
        return _meet(*((t, t.data_ptr()) for t in (a, b)))


def _together(inputs: Sequence[Any], i: int, j: int) -> bool:
    return inputs[i].untyped_storage()._cdata == inputs[j].untyped_storage()._cdata


def _offset(t: torch.Tensor) -> int:
    """The byte of its memory at which a tensor begins."""
    return int(t.storage_offset()) * t.element_size()


def _meet(*tensors: tuple[torch.Tensor, int]) -> bool:
    """Whether two tensors of one memory have bytes in common; of large ones that are not dense some are taken to. And where they begin."""
    (a, first), (b, second) = tensors
    if not (a.numel() and b.numel()) or max(first, second) >= min(first + reach(a), second + reach(b)):
        return False
    if max(a.numel(), b.numel()) > _MOST_PLACES or all(map(torch.ops.aten.is_non_overlapping_and_dense, (a, b))):
        return True
    return bool(np.intersect1d(_bytes(a, first), _bytes(b, second)).size)


def _bytes(t: torch.Tensor, first: int) -> NDArray[np.int64]:
    places = np.array([first])
    for n, step in ((t.element_size(), 1), *((n, s * t.element_size()) for n, s in zip(t.shape, t.stride(), strict=True))):
        places = (places[:, None] + step * np.arange(n)).reshape(-1)
    return places
