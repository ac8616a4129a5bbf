"""Which part of a kernel is whose: what the executing core owns of each axis, of the columns, and of a reduced loop that is dealt out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.axes import Axes, k_in_stick
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, index_constant
from ktir.mlir import arith, func, ir, is_a, linalg
from ktir.passes.division.work import Work
from ktir.target import LANES


class Dealt(Enum):
    """Stands for an axis where a dim runs over sticks that are dealt out."""

    COLUMNS = "sticks of columns"
    DEPTH = "sticks of the reduced loop"
    N_ROWS = "columns that are rows: of a second operand with K in its stick"
    K_ROWS = "the reduced loop where it is rows: of a second operand with columns in its stick"

    @property
    def in_rows(self) -> bool:
        """Whether the dim runs over rows, not over sticks."""
        return self in (Dealt.N_ROWS, Dealt.K_ROWS)

    @property
    def sticks(self) -> Dealt:
        """The same as sticks."""
        return {Dealt.N_ROWS: Dealt.COLUMNS, Dealt.K_ROWS: Dealt.DEPTH}.get(self, self)


Along = int | Dealt | None
Walk = Sequence[Along]
"""Per dim of a tensor the axis that it runs along, or what of it is dealt out; None: every core has it whole."""


def _part(part: ir.Value, extent: int, share: int) -> tuple[ir.Value, int | ir.Value]:
    """First position and number of positions of part number `part` of `extent` positions in shares of `share`."""
    size = index_constant(share)
    first = arith.MulIOp(part, size).result
    if extent % share == 0:
        return first, share
    left = arith.SubIOp(index_constant(extent), first).result
    return first, arith.MinSIOp(left, size).result


class Parts:
    """What a core has of a kernel that is divided: run-time numbers where cores differ."""

    def __init__(self, source: func.FuncOp, work: Work) -> None:
        self.source, self.work = source, work
        self.axes = Axes.of(source.operation)
        self.columns = KernelFunction(source).columns
        self.first: dict[int | Dealt, ir.Value] = {}
        """First position along each axis (or of the columns); none where a core has all of it."""
        self.own: dict[int | Dealt, int | ir.Value] = {}
        """Positions along each axis that are a core's own."""
        self.leader: ir.Value | None = None
        """1 on the core that adds up the partial sums of its group, 0 on the others."""
        self.distances: dict[tuple[int | Dealt, int], ir.Value] = {}
        """What a core adds to the address of a tensor, by axis and stride."""

    def find(self) -> None:
        """Note what the executing core owns, at the insertion point."""
        work, extents = self.work, self.axes.extents
        (tile,) = ktdp.get_compute_tile_id()
        if work.sums > 1:
            tile = self._deal_depth(tile)
        column_parts = index_constant(work.column_parts) if self.columns else None
        rest = tile if column_parts is None else arith.DivUIOp(tile, column_parts).result
        split = [axis for axis, parts in enumerate(work.parts) if parts > 1] if len(extents) > 1 else [0]
        for axis in reversed(split):
            part = rest
            if axis != split[0]:
                parts = index_constant(work.parts[axis])
                part, rest = arith.RemUIOp(rest, parts).result, arith.DivUIOp(rest, parts).result
            self._own(axis, part, extents[axis], work.shares[axis])
        if column_parts is not None:
            self._own(Dealt.COLUMNS, arith.RemUIOp(tile, column_parts).result, self.columns, work.stick_share)
        for axis, share in enumerate(work.shares):
            self.own.setdefault(axis, share)
        if len(extents) == 1:
            self.distance(0, LANES)

    def _deal_depth(self, tile: ir.Value) -> ir.Value:
        """Note the part of the reduced loop that a core has; the number of its group of cores."""
        sums, one = index_constant(self.work.sums), index_constant(1)
        part = arith.RemUIOp(tile, sums).result
        self.leader = arith.SubIOp(one, arith.MinSIOp(part, one).result).result
        depth = next(ir.RankedTensorType(g.inputs[0].type).shape[0] for g in self._contractions())
        self._own(Dealt.DEPTH, part, depth, self.work.depth_share)
        return arith.DivUIOp(tile, sums).result

    def _contractions(self) -> Iterator[Generic]:
        for op in self.source.regions[0].blocks[0].operations:
            if is_a(op, linalg.GenericOp) and (g := Generic(op.operation)).is_contraction:
                yield g

    def _own(self, axis: int | Dealt, part: ir.Value, extent: int, share: int) -> None:
        """Note part number `part` of an axis; how much it is is a run-time number only where parts differ."""
        self.first[axis], self.own[axis] = _part(part, extent, share)

    def distance(self, axis: int | Dealt, stride: int) -> ir.Value:
        """What a core adds to the address of a tensor that has this stride along an axis."""
        if (axis, stride) not in self.distances:
            self.distances[axis, stride] = arith.MulIOp(self.first[axis], index_constant(stride)).result
        return self.distances[axis, stride]

    def walk(self, g: Generic, operand: int) -> list[Along]:
        """How an op walks an operand (the result is the last one); a second operand as it lies in memory."""
        second = g.is_contraction and operand == 1
        walk: list[Along] = [*(self.axes.of_second_operand(g) if second else self.axes.of_operand(g, operand))]
        if self.columns and second:
            walk[-2 if k_in_stick(g) else 0] = Dealt.N_ROWS if k_in_stick(g) else Dealt.COLUMNS
        elif self.columns and g.loop_of(operand, 0) == 0:
            walk[0] = Dealt.COLUMNS
        if self.work.sums > 1 and g.is_contraction and operand < 2:
            in_rows = second and not k_in_stick(g)
            walk[-2 if in_rows else 0] = Dealt.K_ROWS if in_rows else Dealt.DEPTH
        return walk

    def share(self, what: Along, extent: int) -> int:
        """A core's part of an extent."""
        if isinstance(what, Dealt):
            sticks = self.work.stick_share if what.sticks is Dealt.COLUMNS else self.work.depth_share
            return sticks * LANES if what.in_rows else sticks
        return extent if what is None else self.work.shares[what]

    def is_uneven(self, axis: int | Dealt) -> bool:
        """Whether the last part of an axis is smaller than the others."""
        return not isinstance(axis, Dealt) and self.axes.extents[axis] % self.work.shares[axis] != 0
