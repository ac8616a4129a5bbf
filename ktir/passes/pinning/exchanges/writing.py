"""Productions and deliveries of a kernel, as what is sent and received where the author receives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ktir.analysis.points import Points
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, ir
from ktir.passes.general.cores import Cores
from ktir.passes.pinning.exchanges.deliveries import contributed, exchanged
from ktir.passes.pinning.exchanges.missing import Missing
from ktir.passes.pinning.exchanges.tables import producing
from ktir.passes.pinning.values.elements import Value

DELIVERIES = (
    ktdp.InterTileConsumeOp, ktdp.InterTileReduceOp, ktdp.InterTileReduceScatterOp,
    ktdp.InterTileGatherOp, ktdp.InterTileAllToAllOp, ktdp.InterTileScatterOp,
)  # fmt: skip


class Writer(Protocol):
    """What writes a kernel."""

    points: Points
    mapping: dict[ir.Value, ir.Value]
    values: dict[ir.Value, Value]
    guard: ir.Value | None
    missing: Missing
    tiles: int
    cores: int
    core: ir.Value
    turn: int
    coordinates: list[ir.Value]

    @property
    def idle(self) -> ir.Value | None:
        """The guard of a turn of fewer tiles than there are cores."""
        ...

    def op(self, op: ir.Operation) -> None:
        """Write an op at the insertion point."""

    def value(self, value: ir.Value, op: ir.Operation) -> Value:
        """What a tensor is; raises Unsupported, which names `op`."""
        ...


def _cores(writer: Writer, op: ir.Operation) -> Cores:
    """The tiles of an exchange, which all have to be there at the same time: those of a turn. Others of it take part in the rounds, and
    nobody sees what they get."""
    if writer.tiles != writer.cores and writer.guard is not None and (writer.idle is None or writer.guard != writer.idle):
        raise refused(op, "exchanges between some tiles of a turn, which is not pinned yet")
    if writer.tiles != writer.cores:
        return Cores(writer.cores, writer.core, writer.turn * writer.cores, writer.tiles)
    grid = writer.points.kernel.grid
    number = writer.coordinates[0]
    for at, extent in zip(writer.coordinates[1:], grid[1:], strict=True):
        number = arith.AddIOp(arith.MulIOp(number, index_constant(extent)).result, at).result
    return Cores(writer.cores, number, 0, writer.tiles)


def _live(writer: Writer, op: ir.Operation) -> list[bool]:
    """Per tile whether it gets to an exchange. Raises Unsupported where it does in some trips only."""
    here = writer.points.live.reshape(writer.tiles, -1)
    if (here.any(1) != here.all(1)).any():
        raise refused(op, "exchanges in some trips of a loop that is not written out, which is not pinned yet")
    return list(map(bool, np.any(here, axis=1).flat))


def produce(writer: Writer, op: ir.Operation) -> None:
    """What a contribution is computed from, where it is made; it is sent where it is received."""
    block = op.regions[0].blocks[0]
    *ops, _ = (o.operation for o in block.operations)
    if not ops:
        return
    cores, group, guard = _cores(writer, op), producing(op, writer.tiles), writer.guard
    number = cores.value([max(g, 0) for g in cores.of(group)])
    writer.mapping[block.arguments[0]] = index_constant(number) if isinstance(number, int) else number
    axes = (1,) * (writer.points.live.ndim - 1)
    writer.points.known[block.arguments[0]] = np.maximum(group, 0).astype(np.int64).reshape(-1, *axes)
    some = cores.value([int(g >= 0) for g in cores.of(group)])
    if not isinstance(some, int):
        writer.guard = some if guard is None else arith.MulIOp(guard, some).result
    with writer.points.branch(np.reshape(np.array(group) >= 0, (-1, *axes))):
        for inner in ops:
            writer.op(inner)
    writer.guard = guard


def deliver(writer: Writer, op: ir.Operation) -> None:
    """What tiles send each other."""

    def combine(totals: Sequence[Value], received: Sequence[Value]) -> list[Value]:
        block = op.regions[0].blocks[0]
        *ops, end = (o.operation for o in block.operations)
        writer.values.update(zip(block.arguments, (*totals, *received), strict=True))
        for inner in ops:
            writer.op(inner)
        return [writer.value(v, end) for v in end.operands]

    given = [writer.value(v, op) for v in contributed(op)]
    cores, live = _cores(writer, op), _live(writer, op)
    found, missing = exchanged(op, given, lambda: [writer.value(v, op) for v in list(op.operands)[1:]], combine, cores, live)
    writer.values.update(zip(op.results, found, strict=True))
    if missing.any():
        writer.missing.of.update(dict.fromkeys(op.results, missing))
