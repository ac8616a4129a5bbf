"""Conditionals: units have no branches, so a condition must be known per core before the kernel starts.

Where all cores take the same branch, that one is the program. Where some take it, its stores to memory are clipped on the others; a
unit's program is the same on all cores, so nothing else can be in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import refused
from ktir.lowering.ktir_to_spyre.access import Clip, Tile
from ktir.lowering.ktir_to_spyre.index import Index, IndexEvaluator
from ktir.mlir import ir

Live = NDArray[np.bool_] | None
"""Per core whether it is there; None: all are."""


def branches(op: ir.Operation, index: IndexEvaluator, live: Live) -> Iterator[tuple[ir.Block, Live]]:
    """The blocks of an `scf.if` that any of the `live` cores runs, and which cores do. Raises Unsupported."""
    if len(op.results):
        raise refused(op, "gives values; the nearest supported form stores them in its branches")
    condition = index(op.operands[0])
    if not condition.is_constant:
        raise refused(op, "expects a condition that a core knows before the kernel starts, of its number and constants")
    holds = np.broadcast_to(condition.constant, (index.cores,)) != 0
    here = np.ones(index.cores, np.bool_) if live is None else live
    for region, taken in zip(op.regions, (holds, ~holds), strict=True):
        cores = here & taken
        if cores.any() and len(region.blocks):
            yield region.blocks[0], None if cores.all() else cores


def on_some_cores(tile: Tile, live: Live) -> Tile:
    """A tile of memory that only the `live` cores write."""
    if live is None:
        return tile
    return replace(tile, clips=(*tile.clips, Clip(0, Index(live.astype(np.int64)), step=0)))


def refuse_on_some_cores(op: ir.Operation, live: Live) -> None:
    """Raise Unsupported for an op that every core must run, or none."""
    if live is not None:
        raise refused(op, "stands in a branch that only some cores take; the nearest supported form stores from LX to memory there")
