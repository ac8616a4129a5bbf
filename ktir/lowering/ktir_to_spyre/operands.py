"""How an op of a kernel names the memory that it accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from ktir.dialects import ktdp
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.access import IndirectTile, Tile, TileEvaluator
from ktir.lowering.ktir_to_spyre.descriptors import DescriptorTable
from ktir.lowering.ktir_to_spyre.sync import Access, Advance, Parts
from ktir.mlir import ir
from ktir.target import STICK_BYTES


@dataclass(frozen=True)
class Operands:
    """What the operands of a kernel are; `source_id` numbers ops for debug data."""

    tile: TileEvaluator
    table: DescriptorTable
    source_id: Callable[[ir.Operation], int]
    trips: dict[int, int] = field(default_factory=dict)
    """Of the open loops, by level."""

    def of(self, value: ir.Value) -> Tile:
        """The memory that a loaded value lies in."""
        return self.tile(value.owner.operands[0])

    def place(self, tile: ir.Value) -> Tile | IndirectTile:
        """The memory of an access tile."""
        op = tile.owner.opview
        return self.tile.indirect(op) if isinstance(op, ktdp.ConstructIndirectAccessTileOp) else self.tile(tile)

    def touch(self, unit: Unit, tile: Tile, writes: bool, *, halved: bool = True) -> Access:
        """A unit's access to a buffer of the scratchpad."""
        rotation, parts = tile.anchor.rotation, None
        if levels := tile.walked_once(self.trips):
            steps = tuple(tile.anchor.steps[level] for level in levels)
            parts = Parts(prod(self.trips[level] for level in levels), sum(1 << level for level in levels), steps)
        levels = rotation.levels if rotation else 0
        reach = tile.reach(self.trips) if unit in (Unit.MNIL, Unit.LXLU) else None
        advance, rows = self._advance(tile), _rows(tile)
        return Access(unit, writes, *tile.buffer, tile.rotation, levels, tile.element_bytes, halved, parts, reach, advance, rows)

    def _advance(self, tile: Tile) -> Advance | None:
        anchor, size = tile.anchor, tile.element_bytes
        if anchor.rotation is not None or not anchor.is_uniform:
            return None
        length = 1 + sum((n - 1) * stride for n, stride in zip(tile.shape, tile.strides, strict=True))
        steps = tuple((level, step * size // STICK_BYTES, self.trips[level]) for level, step in anchor.steps.items())
        return Advance(anchor.scalar * size // STICK_BYTES, -(-(anchor.scalar + length) * size // STICK_BYTES), steps)


def _rows(tile: Tile) -> tuple[int, ...] | None:
    """Which rows of its buffer a tile of the scratchpad has; None where cores differ, and of what cores exchange, which has more dims. All
    that a corelet touches of what it has for itself are its own."""
    if tile.per_corelet:
        return ()
    anchor = tile.anchor
    if not anchor.is_uniform or len(tile.strides) != 3 or tile.strides[1] <= 0:
        return None
    stick, row, _ = tile.strides

    def rows(elements: int) -> int:
        return (elements % stick if stick > row else elements) // row

    moved = [(level, rows(step)) for level, step in anchor.steps.items() if rows(step)]
    first = rows(anchor.scalar - tile.buffer[0] * STICK_BYTES // tile.element_bytes)
    return tile.shape[1], first, *(n for pair in moved for n in pair)
