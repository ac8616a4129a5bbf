"""What `ktir-tile` decides for a kernel: rows of a block, where each load stands, second operands that stay in the scratchpad.

A block's tensors must fit LX: what a loop streams twice (one block is worked on while the next one is loaded), computed tensors as long as
they live. A second operand streams by in blocks of 64x64, again for each block of rows; or it stays, whole, for all blocks that use it.
What is decided for matmuls alone is in `contraction_plan`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import tensor_bytes
from ktir.analysis.attributes.residents import resident_behind, room_of
from ktir.analysis.axes import Axes, row_loops, second_operand_source
from ktir.analysis.partial_sums import live_at_once
from ktir.cost.tiles import BLOCK_BYTES, MOST_BLOCKS, ROW_BUFFERS, ROW_STICKS, WEIGHT_BUFFERS, overlapping_rows
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic
from ktir.mlir import func, ir
from ktir.passes.tiling.contraction_plan import (
    Resident,
    by_stick,
    fused_consumers,
    second_operand_bytes,
    share_cycles,
    shares,
    stored_at_once,
    streamable,
)
from ktir.passes.tiling.stick_local import StickLocal, stick_local
from ktir.target import LANES, Target

_STREAMED = 1.02
"""Rows that are loaded again for each stick of columns must save more than this."""


def even(n: int) -> int:
    """The next even number: a block of rows is halved over the two corelets."""
    return n + n % 2


@dataclass(frozen=True)
class Need:
    """Bytes of a block: `fixed`, and per row `streamed` ones and those of the computed tensors that live at once, at the op `at`."""

    fixed: int
    streamed: int
    live: int
    at: ir.Operation

    def bytes(self, rows: int, buffers: int) -> int:
        """Of a block of `rows` rows with `buffers` buffers for each stream."""
        return self.fixed + rows * (buffers * self.streamed + self.live)


class TilePlan:
    """The facts of one divided kernel, and the decisions."""

    def __init__(self, source: func.FuncOp, rows: int, target: Target) -> None:
        self.source, self.target = source, target
        self.ops = [o.operation for o in source.regions[0].blocks[0].operations]
        self.axes = Axes.of(source.operation)
        own = KernelFunction(source).work.row_shares
        self.share = own[-1]
        self.cores = KernelFunction(source).cores
        self.loops = {axis: own[axis] for axis in self.axes.batches if own[axis] > 1}
        """Batch axes that are loops, outer to inner, and their trips."""
        generics = [Generic(op) for op in self.ops if op.name == "linalg.generic"]
        self.without_rows = bool(generics) and all(len(row_loops(g)) < len(self.axes.extents) for g in generics)
        """Whether no tensor has the row axis: blocks then have two rows of which the second one is clipped."""
        self.contractions = [g for g in generics if g.is_contraction]
        self.second_operands = {second_operand_source(g): g for g in self.contractions}
        self.fused = fused_consumers(self.ops, self.contractions)
        """Contraction result -> the op that is computed on each finished stick of it."""
        self.stored = stored_at_once(self.ops, self.contractions, self.fused)
        """Results that are stored as soon as they are there, with their stores."""
        self.streamed: set[ir.Value] = set()
        """First operands that are loaded stick by stick in the loops of their contractions."""
        self.residents: list[Resident] = []
        self.part: StickLocal | None = None
        """What is seen some sticks at a time; None: a block has whole rows."""
        self.part_sticks = 0
        self.used = 0
        """Bytes of the kernel's own tensors."""
        self.walked_alone = not self.loops and not any(op.name == "ktdp.inter_tile_reduce" for op in self.ops)
        """Whether the loop over blocks of rows is the only one, and no core waits for another one in it."""
        self.shares = {} if self.loops else shares(source, self.contractions, target)
        self.block_rows = self._decide(rows, room_of(source.operation, target.lx_planned_bytes))

    # Facts

    def axes_of(self, value: ir.Value) -> list[int | None]:
        """Per dim of a value the axis that it runs along."""
        return self.axes.of_value(value)

    def has_rows(self, value: ir.Value) -> bool:
        """Whether a block of a value has rows; else it is a row vector, the same for all of them."""
        if value.owner.name != "ktdp.load":
            return True
        axes = self.axes_of(value)
        if self.axes.row in axes:
            return True
        if not self.without_rows:
            return False
        first = any(value == g.inputs[0] for g in self.contractions)
        return first or any(a is not None for a in axes) or any(u.owner.name == "ktdp.store" for u in value.uses)

    def depth(self, value: ir.Value, trips: int) -> int:
        """How many of the batch loops a load stands in; one more: in the loop over blocks of rows.

        That one makes `trips` trips. Where it makes one, rows are not loaded again for each position of an axis that they do not have.
        """
        axes = self.axes_of(value)
        deepest = max((i for i, axis in enumerate(self.loops, 1) if axis in axes), default=0)
        if self.has_rows(value) and not (trips == 1 and deepest < len(self.loops)):
            return len(self.loops) + 1
        return deepest

    def trips(self, rows: int) -> int:
        """Blocks of `rows` rows in the core's share."""
        return -(-self.share // rows)

    # Decisions

    def _need(self, streamed: Collection[ir.Value]) -> Need:
        """What a block takes where all second operands stream, and first operands as `streamed` says."""
        position = {op: i for i, op in enumerate(self.ops)}
        fixed, rows = 0, 0
        ranges: list[tuple[int, int, int]] = []
        for op in self.ops:
            if op.name not in ("ktdp.load", "linalg.generic", "linalg.fill", "ktdp.inter_tile_reduce"):
                continue
            value = op.results[0]
            shape = list(ir.RankedTensorType(value.type).shape)
            bytes_ = self._row_bytes(value)
            if op.name == "linalg.fill":
                if is_stored_fill(op):
                    ranges.append((0, len(self.ops), bytes_))
            elif op.name == "ktdp.load":
                if resident_behind(op) is not None:
                    continue  # it is read where it lies
                if value in self.second_operands:
                    fixed += WEIGHT_BUFFERS * BLOCK_BYTES
                elif value in streamed:
                    first = min(position[u.owner.operation] for u in value.uses)
                    ranges.append((first, first, ROW_STICKS * bytes_ // shape[0]))
                elif self.has_rows(value):
                    rows += bytes_
                else:
                    fixed += bytes_ * (ROW_BUFFERS if self.depth(value, 1) else 1)
            else:
                start = position[op]
                if value in self.fused:
                    continue
                fused = [v for v in op.operands if v in self.fused]
                start = min([start, *(position[v.owner] for v in fused)])
                last = max((position[_in_kernel(u.owner.operation)] for u in value.uses), default=start)
                sliced = value in self.stored and by_stick(self.stored[value])
                ranges.append((start, last, bytes_ // shape[0] if sliced else bytes_))
                if op.name == "ktdp.inter_tile_reduce":
                    ranges.append((start, start, bytes_ * live_at_once(op)))
        live = [(sum(b for s, e, b in ranges if s <= p <= e), -p) for p in range(len(self.ops))]
        most, at = max(live)
        return Need(fixed, rows, most, self.ops[-at])

    def _row_bytes(self, value: ir.Value) -> int:
        """Bytes of a tensor in a block of one row."""
        sticks, *rows, _ = ir.RankedTensorType(value.type).shape
        bytes_ = tensor_bytes(value) // prod(rows)
        return bytes_ // sticks * self.part_sticks if self.part is not None and value in self.part.values else bytes_

    def _decide(self, wanted: int, budget: int) -> int:
        """The rows of a block: as many as fit, unless other blocks are faster or load less."""
        forms: list[set[ir.Value]] = [set()]
        if self.walked_alone and self.contractions and (streamed := streamable(self.ops, self.contractions)):
            forms.append(streamed)
        best: tuple[float, int] | None = None
        need = self._need(forms[-1])
        for form in forms:
            need = self._need(form)
            for rows, free in self._blocks(need, wanted, budget):
                residents = self._stay(rows, free)
                cost = self._price(rows, form, residents)
                if best is None or cost < best[0]:
                    best = cost, rows
                    self.residents, self.streamed = residents, form
                    self.used = budget - free + sum(map(_takes, residents))
        if best is None:
            if not self._takes_parts(budget):
                raise self._too_large(need, budget)
            return 2
        return best[1]

    def _takes_parts(self, budget: int) -> bool:
        """Whether blocks of two rows fit with some of their sticks at a time; as many as fit, or as make several blocks."""
        self.part = stick_local(self.ops)
        if self.part is None:
            return False
        needs = []
        for self.part_sticks in (1, 2):
            needs.append(self._need(()).bytes(2, ROW_BUFFERS))
        first, second = needs
        self.part_sticks = min((budget - first) // max(second - first, 1) + 1, -(-self.part.sticks // MOST_BLOCKS))
        self.used = self._need(()).bytes(2, ROW_BUFFERS) if self.part_sticks > 0 else 0
        return self.part_sticks > 0

    def _blocks(self, need: Need, wanted: int, budget: int) -> Iterator[tuple[int, int]]:
        """Rows of the blocks to try, with the bytes that they leave free."""
        buffers = ROW_BUFFERS
        while buffers and need.bytes(2, buffers) > budget:
            buffers -= 1
        if not buffers:
            return
        per_row = need.bytes(1, buffers) - need.fixed
        most = min((budget - need.fixed) // max(per_row, 1) // 2 * 2, 2 * self.target.pt_accumulator_rows)
        if wanted:
            candidates = iter([min(most, even(wanted), even(self.share))])
        else:
            candidates = self._candidates(most if self.contractions else min(most, self._overlapping()))
        for rows in candidates:
            yield rows, budget - need.bytes(rows, buffers)

    def _price(self, rows: int, streamed: Collection[ir.Value], residents: list[Resident]) -> float:
        """What the matmuls of a kernel take in blocks of `rows` rows: cycles; in batch loops the bytes of second operands."""
        if self.loops:
            return self._traffic(rows) - sum(r.saved for r in residents)
        kept = {r.contraction for r in residents}
        cycles, loaded = 0.0, set[ir.Value]()
        for g in self.contractions:
            share, first = self.shares[g.op], g.inputs[0]
            if first in loaded:
                share = share._replace(first=0.0)
            if first not in streamed:
                loaded.add(first)
            cycles += share_cycles(share, rows, first in streamed, g.op in kept, self.target)
        return cycles * (_STREAMED if streamed else 1.0)

    def _overlapping(self) -> int:
        """Rows of a block with which successive blocks overlap."""
        sticks = max((ir.RankedTensorType(op.results[0].type).shape[0] for op in self.ops if op.name == "ktdp.load"), default=1)
        return overlapping_rows(self.share, prod(self.loops.values()), sticks)

    def _candidates(self, most: int) -> Iterator[int]:
        """Blocks of at most `most` rows that share the rows equally, the largest first; smaller ones only where they may be better."""
        trips = -(-self.share // most)
        rows = even(-(-self.share // trips))
        yield rows
        while self.contractions and rows > (LANES if self.loops else 2):
            trips = max(trips + 1, trips * 5 // 4, -(-self.share // (rows - 2)))
            rows = even(-(-self.share // trips))
            yield rows

    def _uses(self, g: Generic, rows: int) -> tuple[int, int]:
        """How many second operands the core takes, one after the other, and how many blocks use each."""
        axes = self.axes.of_second_operand(g)
        own = [axis in axes for axis in self.loops]
        outer = max((i for i, has in enumerate(own, 1) if has), default=0)
        trips = list(self.loops.values())
        return prod(trips[:outer]), prod(trips[outer:]) * self.trips(rows)

    def _traffic(self, rows: int) -> int:
        return sum(prod(self._uses(g, rows)) * second_operand_bytes(g) for g in self.contractions)

    def _stay(self, rows: int, free: int) -> list[Resident]:
        """The second operands that stay in LX, the one that saves most first.

        In batch loops they are loaded before they are used. Without one the first block of rows would wait for all of it; so it loads what
        it needs, block by block, and leaves that for the others.
        """
        found: list[Resident] = []
        for g in self.contractions if self.loops or self.walked_alone else []:
            taken, users = self._uses(g, rows)
            bytes_ = second_operand_bytes(g)
            if users > 1 and resident_behind(second_operand_source(g).owner.operation) is None:
                held = bytes_ * (ROW_BUFFERS if taken > 1 else 1)
                found.append(Resident(g.op, held, bytes_ * taken * (users - 1), filled=not self.loops))
        kept: list[Resident] = []
        for resident in sorted(found, key=lambda r: -r.saved):
            if (takes := _takes(resident)) <= free:
                free -= takes
                kept.append(resident)
        return kept

    @property
    def peels(self) -> bool:
        """Whether the first block of rows stands before the loop over the others, since it leaves second operands for them."""
        return any(r.filled for r in self.residents)

    def resident_depth(self, g: Generic) -> int:
        """In how many of the batch loops a second operand that stays is loaded."""
        axes = self.axes.of_second_operand(g)
        return max((i for i, axis in enumerate(self.loops, 1) if axis in axes), default=0)

    def _too_large(self, need: Need, budget: int) -> Unsupported:
        op = need.at
        tensors = [v for v in (*op.results, *op.operands) if isinstance(v.type, ir.RankedTensorType)]
        shape = f" of {max(tensors, key=tensor_bytes).type}" if tensors else ""
        generics = [Generic(o) for o in self.ops if o.name == "linalg.generic"]
        softmax = any(not g.is_pointwise and not g.is_contraction for g in generics) and len(self.contractions) > 1
        way_out = "fewer keys, or a softmax that can be computed block by block of them" if softmax else "shorter rows"
        return Unsupported(
            f"'{op.name}' op{shape} is in a kernel that needs {need.bytes(2, 1)} bytes of scratchpad for two rows ({need.fixed}, and "
            f"{need.streamed + need.live} per row), most at this op, but {budget} are available; the nearest supported form has {way_out}",
            location_text(op.location),
        )


def is_stored_fill(fill: ir.Operation) -> bool:
    """Whether a constant tensor is a value of its own, not what an op accumulates into."""
    uses = [u for u in fill.results[0].uses if u.owner.name != "ktdp.inter_tile_reduce"]
    return any(u.owner.name != "linalg.generic" or u.operand_number < len(u.owner.operands) - 1 for u in uses)


def _takes(resident: Resident) -> int:
    """Bytes that a second operand takes because it stays."""
    return resident.bytes - (0 if resident.filled else WEIGHT_BUFFERS * BLOCK_BYTES)


def _in_kernel(op: ir.Operation) -> ir.Operation:
    """The op of the kernel that has `op` in it."""
    while op.parent.name != "func.func":
        op = op.parent.operation
    return op
