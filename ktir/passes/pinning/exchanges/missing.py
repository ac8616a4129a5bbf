"""Tiles that have nothing of a value, since they are no consumers of the delivery that it comes from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.mlir import ir, is_a, scf

Tiles = NDArray[np.bool_]


class Missing:
    """Follows such values through a kernel, and refuses what would be seen of them."""

    def __init__(self) -> None:
        self.of: dict[ir.Value, Tiles] = {}

    def forget(self, op: ir.Operation) -> None:
        """An op that is about to be written, perhaps once more: in another trip it may have what it had not."""
        for result in op.results:
            self.of.pop(result, None)

    def branches(self, op: ir.Operation, taken: NDArray[np.bool_]) -> None:
        """Branches that are written; `taken`: where the first one is. A tile has what the one gives that it takes."""
        by_tile = taken.reshape(len(taken), -1)
        for result, *ways in zip(op.results, *(list(r.blocks[0].operations)[-1].operands for r in op.regions), strict=True):
            nothing = np.zeros(len(taken), np.bool_)
            found = [self.of.get(v, nothing) & here for v, here in zip(ways, (by_tile.any(1), ~by_tile.all(1)), strict=True)]
            if np.logical_or.reduce(found).any():
                self.of[result] = np.logical_or.reduce(found)

    def note(self, op: ir.Operation, live: NDArray[np.bool_]) -> None:
        """An op that is written; `live`: where it runs. Raises Unsupported where it stores, sends or carries what is not there."""
        gone = [self.of[v] for v in _read(op) if v in self.of] if self.of else []
        if not gone:
            return
        tiles = np.logical_or.reduce(gone)
        here = tiles & live.reshape(len(tiles), -1).any(axis=1)
        verb = (
            "stores"
            if is_a(op, ktdp.StoreOp)
            else "sends"
            if is_a(op, ktdp.InterTileProduceOp)
            else "carries"
            if is_a(op, scf.ForOp)
            else ""
        )
        if verb and here.any():
            raise refused(op, f"{verb} what tile {int(np.flatnonzero(here)[0])} does not receive")
        if not is_a(op, ktdp.InterTileProduceOp):
            self.of.update({r: self.of.get(r, tiles) | tiles for r in op.results})


def _read(op: ir.Operation) -> list[ir.Value]:
    """What an op reads; of a loop what it carries."""
    if is_a(op, scf.ForOp):
        return [*list(op.operands)[3:], *list(op.regions[0].blocks[0].operations)[-1].operands]
    inner = [v for region in op.regions for block in region.blocks for o in block.operations for v in o.operands]
    return [*op.operands, *inner]
