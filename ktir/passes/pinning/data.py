"""What a kernel counts as data, and what data decides of what it counts: numbers of tiles and trips, positions, places."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

from ktir.analysis.points import Points, is_index
from ktir.dialects.structured import index_constant, index_sum, loop_extents
from ktir.mlir import arith, ir, is_a, linalg, scf
from ktir.passes.pinning.accesses import stored
from ktir.passes.pinning.loops import holds, inside
from ktir.passes.pinning.scratchpad import AuthorScratchpad
from ktir.passes.pinning.tables import Table, Tables
from ktir.passes.pinning.values.computed import ComputedPlace, Scope
from ktir.passes.pinning.values.counted import Integers
from ktir.passes.pinning.values.elements import Element, Value, chosen, compared, integer
from ktir.passes.pinning.values.views import View


class Writer(Protocol):
    """What writes a kernel."""

    points: Points
    mapping: dict[ir.Value, ir.Value]
    values: dict[ir.Value, Value]
    guard: ir.Value | None
    coordinates: list[ir.Value]
    tiles: int
    integers: Integers
    scratchpad: AuthorScratchpad
    tables: Tables
    wanted: Sequence[Table] | None
    table_of: dict[Table, ir.Value]
    trips: list[tuple[ir.Value, int]]
    alive: Element | None

    def value(self, value: ir.Value, op: ir.Operation) -> Value:
        """What a tensor or a scalar is; raises Unsupported, which names `op`."""
        ...

    def base(self, view: View) -> ir.Value:
        """Where a view begins."""
        ...


def note_counted(writer: Writer, op: ir.Operation) -> None:
    """What the text counts is data too: indices that an op reads, and the positions in its loops."""
    for inner in [op, *(o for region in op.regions for block in region.blocks for o in inside(block))]:
        for operand in inner.operands:
            if is_index(operand.type) and operand in writer.mapping:
                _note(writer, operand, inner)
        if is_a(inner, linalg.IndexOp):
            dim = ir.IntegerAttr(inner.attributes["dim"]).value
            writer.values[inner.results[0]] = Value((), writer.integers.positions(loop_extents(op)[dim], dim, inner))


def counted(writer: Writer, value: ir.Value, op: ir.Operation) -> Element:
    """What an index is as data. Raises Unsupported, which names `op`."""
    if value in writer.mapping:
        _note(writer, value, op)
    return writer.value(value, op).element


def _note(writer: Writer, value: ir.Value, op: ir.Operation) -> None:
    """Note what an index is as data."""
    writer.values.pop(value, None)
    numbers = writer.points(value)
    found = writer.integers.same(numbers)
    if found is None:
        found = writer.integers.number(writer.mapping[value], int(numbers.min()), int(numbers.max()), op)
    if found is None:
        return
    if str(value.type) == "i1":
        found = compared(arith.CmpIPredicate.ne, found, integer(0))
    writer.values[value] = Value((), found)


def is_wanted(writer: Writer, op: ir.Operation) -> bool:
    """Whether an op has a part in what computes the tables; writes a table where its tile stands."""
    assert writer.wanted is not None
    for table in writer.wanted:
        if table.tile == op:
            place, at = computed(writer, table)
            stored(op, place.value(_runs(writer, op)), [(place.row(at, writer.scratchpad.idle), ())])
    if is_a(op, scf.ForOp, scf.IfOp):
        return any(t.is_in(op) for t in writer.wanted)
    counts = all(is_index(r.type) and not writer.tables.is_data(r) for r in op.results)
    return any(op in t.needed for t in writer.wanted) or (len(op.results) > 0 and counts)


def _runs(writer: Writer, op: ir.Operation) -> Element | None:
    """Whether the author runs what is being written, as data; None where he does."""
    guard, alive = writer.guard, writer.alive
    if guard is None or (writer.scratchpad.idle is not None and guard == writer.scratchpad.idle):
        return alive
    truth = holds(writer.integers, guard, op)
    return truth if alive is None else chosen(alive, truth, alive)


def computed(writer: Writer, table: Table) -> tuple[ComputedPlace, ir.Value]:
    """What a tile is on whose place data decides, and where its table is for this tile and these trips."""
    tile = table.tile

    def data(value: ir.Value) -> Element:
        return counted(writer, value, tile)

    def positions(extent: int, dim: int) -> Element:
        return writer.integers.positions(extent, dim, tile)

    scope = Scope(writer.points, writer.mapping, data, writer.tables.is_data, writer.base, positions, writer.guard)
    place = ComputedPlace(tile, scope)
    number, tiles = writer.coordinates[0], writer.points.kernel.grid
    for at, extent in [*zip(writer.coordinates[1:], tiles[1:], strict=True), *writer.trips]:
        number = arith.AddIOp(arith.MulIOp(number, index_constant(extent)).result, at).result
    table.shape = (writer.tiles, *(n for _, n in writer.trips), *place.shape)
    row: ir.Value = index_sum(writer.table_of[table], arith.MulIOp(number, index_constant(prod(place.shape))).result)
    return place, row
