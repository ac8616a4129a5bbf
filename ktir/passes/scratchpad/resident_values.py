"""Values of a tiled kernel that lie in memory of residents: they are computed there and read from there, without a buffer of their own."""

from __future__ import annotations

from collections.abc import Sequence

from ktir.analysis.attributes.residents import resident_behind
from ktir.dialects import ktdp
from ktir.dialects.structured import clone_ops, index_sum
from ktir.mlir import ir, is_a, linalg, operations, scf, tensor
from ktir.passes.residence.pool_accesses import lane_cut

Position = int | ir.Value


class ResidentValues:
    """Where each value of a kernel that is a part of a resident lies: the access tile of the load or store that says so."""

    def __init__(self, kernel: ir.Operation) -> None:
        self.tiles: dict[ir.Value, ktdp.ConstructAccessTileOp] = {}
        self.homes: set[ir.Operation] = set()
        """Stores whose value is computed in place."""
        for op in operations(kernel):
            if not is_a(op, ktdp.LoadOp, ktdp.StoreOp) or resident_behind(op) is None:
                continue
            tile = op.operands[-1].owner.opview
            if is_a(op, ktdp.LoadOp):
                self.tiles[op.results[0]] = tile
            elif self._at_home(op.operands[0], tile):
                self.tiles[op.operands[0]] = tile
                self.homes.add(op)

    def _at_home(self, value: ir.Value, tile: ktdp.ConstructAccessTileOp) -> bool:
        """Whether a stored value can be computed right where it is stored.

        Where the memory ends inside of a stick other ops would find zeros in place of the value's own pads.
        """
        if value in self.tiles or not _has_own_place(value):
            return False
        return not lane_cut(tile.base.owner.opview) or len(list(value.uses)) == 1

    def tile(self, value: ir.Value, first: Sequence[Position], shape: Sequence[int], known: dict[ir.Value, ir.Value]) -> ir.Value:
        """The access tile of a part of a value, at the insertion point; `known`: what stands there already for the kernel's values."""
        tile = self.tiles[value]
        local = dict(known)  # what is made here may be inside of a loop, so nobody else can use it
        view = _made(tile.base, local)
        begin = [i if isinstance(i, int) else _made(i, local) for i in tile.indices]
        return ktdp.construct_access_tile(view, [index_sum(a, b) for a, b in zip(begin, first, strict=True)], shape)


def _has_own_place(value: ir.Value) -> bool:
    """Whether a tensor would else get a buffer of its own: a result that is no part of another tensor, or what a loop fills."""
    if is_a(value.owner, scf.ForOp):
        init = list(value.owner.operands)[3 + list(value.owner.results).index(value)]
        return is_a(init.owner, tensor.EmptyOp)
    return is_a(value.owner, linalg.GenericOp) and all(not is_a(u.owner, tensor.InsertSliceOp, scf.YieldOp, scf.ForOp) for u in value.uses)


def _made(value: ir.Value, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """A value of index arithmetic, or a view, at the insertion point."""
    if value not in known:
        op = value.owner.operation
        for operand in op.operands:
            _made(operand, known)
        clone_ops([op], known)
    return known[value]
