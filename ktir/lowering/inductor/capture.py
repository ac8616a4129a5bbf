"""Logical KTIR of a model without running it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ktir.lowering.inductor.backend import compile_graph
from ktir.lowering.inductor.region import Region


class _Captured(Exception):
    """Ends the compilation once the region is known."""


def capture_region(model: Any, *inputs: Any) -> Region:
    """The loop nests of `model(*inputs)` as data. Raises Unsupported and KtirError as they are.

    Resets Dynamo, so that nothing compiled before is taken for this model.
    """
    found: list[Region] = []

    def take(region: Region) -> str:
        found.append(region)
        raise _Captured

    failure: list[Exception] = []

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        try:
            return compile_graph(gm, example_inputs, take, nonce=uuid.uuid4().hex)
        except Exception as error:
            failure.append(error)
            raise

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            torch.compile(model, backend=backend, fullgraph=True, dynamic=False)(*inputs)
    except Exception:
        if found:
            return found[0]
        if failure:
            raise failure[0] from None
        raise
    raise ValueError("the model has nothing to compute: its results are views of its inputs")


def capture(model: Any, *inputs: Any, debuginfo: bool = False) -> str:
    """Logical KTIR text of `model(*inputs)`; `debuginfo` adds the source locations."""
    from ktir.assembly import print_module
    from ktir.context import context
    from ktir.lowering.inductor.wrapper import logical
    from ktir.mlir import ir

    region = capture_region(model, *inputs)
    with context(), ir.Location.unknown():
        return print_module(logical(region), debuginfo=debuginfo)
