"""Dynamic shapes: integers may be run-time arguments of one program; sizes are constants, so other sizes give another compilation.

Dynamo turns a size or an integer that changed between calls into a symbol. Where symbols are no sizes (a position, say), the graph is
compiled once. Else it is compiled anew, with numbers for symbols, for each combination of values that it is called with; with
`config.buckets` for each combination of rungs of that ladder, where padding cannot change a result (`buckets`).
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ktir.diagnostics import Unsupported
from ktir.lowering.inductor.graph.buckets import Ladder, Mixed

log = logging.getLogger("ktir")


class DynamicShape(Unsupported):
    """A size that is known only at run time."""


def dynamic_sizes(gm: fx.GraphModule) -> list[str]:
    """The sizes, strides and offsets of inputs that are symbols, and floating-point symbols, in words: each value needs a compilation."""
    found = []
    for name, value in _inputs(gm).items():
        if isinstance(value, torch.SymFloat):
            found.append(f"the number '{name}'")
        elif isinstance(value, torch.Tensor):
            for what, numbers in (("size", value.shape), ("stride", value.stride() if value.layout == torch.strided else ())):
                found += [f"{what} {d} of input '{name}'" for d, n in enumerate(numbers) if not isinstance(n, int)]
            if value.layout == torch.strided and not isinstance(value.storage_offset(), int):
                found.append(f"the offset of input '{name}'")
    return found


def dynamic_integers(gm: fx.GraphModule) -> list[str]:
    """The integers among the inputs that are symbols, in words: where one is a part of a size, each value needs a compilation."""
    return [f"the integer '{name}'" for name, value in _inputs(gm).items() if isinstance(value, torch.SymInt)]


def _inputs(gm: fx.GraphModule) -> dict[str, Any]:
    return {n.name: n.meta.get("example_value") for n in gm.graph.nodes if n.op == "placeholder" and n.users}


def _without_marks(value: Any) -> Any:
    """The same tensor, without what `mark_dynamic` says of its sizes: it would make them symbols again."""
    return value.detach() if any(getattr(value, mark, None) for mark in _MARKS) else value


_MARKS = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices")


def _ladder(gm: fx.GraphModule, rungs: Sequence[int], why: str) -> Ladder | None:
    try:
        ladder = Ladder(gm, rungs)
        reasons = list(ladder.refused.values())
    except Mixed as error:
        ladder, reasons = None, [str(error)]
    for reason in dict.fromkeys(reasons):
        log.warning("%s: padding to a size of `buckets` could change results: %s", why, reason)
    return ladder if ladder and ladder.symbols else None


class PerShape:
    """Calls a graph; the first call with new sizes compiles it for them. Integers stay arguments unless `specialize` says that they are
    sizes too. `rungs`: sizes up to which inputs may be padded.
    """

    def __init__(
        self, gm: fx.GraphModule, backend: Callable[..., Any], why: str, *, specialize: bool = False, rungs: Sequence[int] = ()
    ) -> None:
        self.ladder = _ladder(gm, rungs, why) if rungs else None
        if self.ladder is None:
            log.warning("%s: each value is compiled on its own", why)
        self.gm = gm
        self.backend = backend
        self.specialize = specialize
        self.compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        if self.ladder is None:
            return self._run(inputs)
        padded, sizes = self.ladder.pad(inputs)
        return self.ladder.cut(self._run(padded), sizes)

    def _run(self, inputs: Sequence[Any]) -> Any:
        key = tuple(map(self._key, inputs))
        found = self.compiled.get(key)
        # numbers may have become tensors of one element; of the caller's dynamic=True nothing must be left
        with torch._dynamo.config.patch(capture_scalar_outputs=True, assume_static_by_default=True):
            if found is None:
                # a module of its own: Dynamo limits how often it compiles the same code
                own = fx.GraphModule(self.gm, copy.deepcopy(self.gm.graph))
                dynamic = False if self.specialize else None  # None: an integer is a constant until it changes
                found = self.compiled[key] = torch.compile(own, backend=self.backend, dynamic=dynamic)
            return found(*map(_without_marks, inputs))

    def _key(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return tuple(value.shape), value.stride()
        return value if self.specialize or not isinstance(value, int) else int
