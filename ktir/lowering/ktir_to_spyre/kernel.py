"""One kernel of allocated KTIR -> unit programs.

Each op becomes an action: a load or store of memory is a MOVE (for a group where all cores read the same, by an index where positions are
looked up), a fill a FILL, a pointwise op or reduction PUSHes its operands through SFP and PULLs the result, a contraction block feeds PT,
and the op that consumes a finished accumulator drains it. A block of R rows is halved: corelet c works on rows [c*R/2, (c+1)*R/2). A single
row is done by both, and the second corelet's result is dropped. What computes stands in `compute`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ktir.analysis.points import CASTS, FUNCTIONS
from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects.op_facts import PLACES
from ktir.dialects.structured import Generic
from ktir.isa.descriptor import LEVELS
from ktir.isa.program import Kernel, word
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.access import IndirectTile, Tile, TileEvaluator
from ktir.lowering.ktir_to_spyre.compute import begun, is_accumulator, multiply, vector
from ktir.lowering.ktir_to_spyre.conditions import Live, branches, on_some_cores, refuse_on_some_cores
from ktir.lowering.ktir_to_spyre.descriptors import DescriptorTable, whole
from ktir.lowering.ktir_to_spyre.exchange import contribution, senders
from ktir.lowering.ktir_to_spyre.index import IndexEvaluator
from ktir.lowering.ktir_to_spyre.memory_order import MemoryOrder, reach
from ktir.lowering.ktir_to_spyre.operands import Operands
from ktir.lowering.ktir_to_spyre.sync import Action, Loop, Synchroniser
from ktir.mlir import arith, func, ir, is_a, linalg, names, scf, tensor
from ktir.target import Target

_IGNORED = names(
    arith.ConstantOp, arith.CmpIOp, *FUNCTIONS, *CASTS, ktdp.GetComputeTileIdOp, *PLACES, ktdp.LoadOp, tensor.EmptyOp,
    ktdp.InterTileProduceOp, ktdp.InterTileConsumeOp, linalg.FillOp, scf.YieldOp, func.ReturnOp,
)  # fmt: skip
"""Ops that become part of a descriptor, or that the op which uses them emits."""


class KernelLowering:
    """Lowers one kernel function; `source_id` numbers ops for debug data."""

    def __init__(
        self, function: ir.Operation, name: str, arguments: list[int], source_id: Callable[[ir.Operation], int], target: Target
    ) -> None:
        self.function, self.name, self.target = function, name, target
        self.index = IndexEvaluator(function)
        self.cores = self.index.cores
        self.table = DescriptorTable(self.cores, arguments)
        self.operands = Operands(TileEvaluator(self.index), self.table, source_id)
        self.groups: list[list[int]] = []
        self.regions = 0
        self.order = MemoryOrder(self.cores)
        self.live: Live = None
        """Cores that run the open branch."""
        self.sums: ir.Operation | None = None
        """What has begun the sums that PT holds."""
        self.root = Loop(1, -1, 0)

    def kernel(self) -> Kernel:
        """The kernel with synchronisation inserted."""
        self._block(self.function.regions[0].blocks[0], self.root)
        tokens = Synchroniser(self.root)
        return Kernel(
            name=self.name,
            cores=self.cores,
            units={unit: tokens.program(unit) for unit in Unit},
            descriptors=self.table.descriptors,
            tables=self.table.tables,
            groups=self.groups,
            channels=tokens.channels,
        )

    def _block(self, block: ir.Block, loop: Loop) -> None:
        for view in block.operations:
            op = view.operation
            if is_a(op, scf.ForOp):
                refuse_on_some_cores(op, self.live)
                self._loop(op, loop)
            elif is_a(op, scf.IfOp):
                self._branches(op, loop)
            elif is_a(op, ktdp.StoreOp):
                for action in self._store(op):
                    loop.add(action)
            elif is_a(op, linalg.GenericOp):
                g = Generic(op)
                if g.is_contraction:
                    refuse_on_some_cores(op, self.live)
                    loop.add(multiply(self.operands, g, self.sums))
                    self.sums = begun(op)[0]
                # other results are emitted by the store that consumes them
            elif op.name not in _IGNORED:
                raise refused(op, "has no lowering to the instruction stream")

    def _branches(self, op: ir.Operation, loop: Loop) -> None:
        outer = self.live
        for block, live in branches(op, self.index, outer):
            self.live = live
            self._block(block, loop)
        self.live = outer

    def _loop(self, op: ir.Operation, parent: Loop) -> None:
        lower, upper, step = (self.index(v) for v in list(op.operands)[:3])
        bounds = (lower, upper, step)
        if not all(b.is_constant and b.is_uniform for b in bounds):
            raise refused(op, "expects the same constant bounds on every core")
        self.regions += 1
        level = parent.level + 1
        if level >= LEVELS:
            raise Unsupported(
                f"'scf.for' op is the {level + 1}th of nested loops, but there are {LEVELS} counters", location_text(op.location)
            )
        loop = Loop(-(-(upper.scalar - lower.scalar) // step.scalar), level, self.regions)
        body = op.regions[0].blocks[0]
        self.index.enter_loop(body.arguments[0], lower, step.scalar, loop.trips, level)
        parent.children.append(loop)
        self.operands.trips[level] = loop.trips
        self._block(body, loop)
        del self.operands.trips[level]

    # Transfers

    def _store(self, op: ir.Operation) -> list[Action]:
        value = op.operands[0]
        producer = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        target = self.operands.place(op.operands[1])
        if is_a(producer, ktdp.LoadOp):
            source = self.operands.place(producer.operands[0])
            if isinstance(source, Tile) and source.local and not (isinstance(target, Tile) and target.local):
                return [self._write(op, source, target)]
            refuse_on_some_cores(op, self.live)
            if isinstance(target, Tile) and target.local and not (isinstance(source, Tile) and source.local):
                return [self._load(producer, source, target)]
            raise refused(op, "copies within one memory space, which has no instruction")
        refuse_on_some_cores(op, self.live)
        if isinstance(target, Tile) and target.local:
            if is_a(producer, linalg.GenericOp):
                self._read_sums(producer)
                return vector(self.operands, Generic(producer), target, self.target)
            if is_a(producer, linalg.FillOp):
                return [self._fill(producer, target)]
            if is_a(producer, ktdp.InterTileConsumeOp):
                return [self._exchange(producer, target)]
        raise refused(op, f"of a '{producer.name}' result has no instruction")

    def _read_sums(self, op: ir.Operation) -> None:
        """The sums that an op reads are those that PT holds."""
        for value in (v for v in Generic(op).inputs if is_accumulator(v)):
            if self.sums is None or self.sums != begun(value.owner.operation)[0]:
                raise refused(op, "reads sums that the array does not hold")
            self.sums = None

    def _load(self, op: ir.Operation, source: Tile | IndirectTile, target: Tile) -> Action:
        number = self.operands.source_id(op)
        touched = [self.operands.touch(Unit.MNIL, target, True)]
        if isinstance(source, IndirectTile):
            self._reads(source.positions, op)
            self._reads(reach(source.tile, source.dim, source.size), op)
            group = self._members(source.tile, source.positions)
            return Action({Unit.MNIL: [word("move", number, **self._looked_up(source, target, "src", "dst"), group=group)]}, touched)
        self._reads(source, op)
        ddr = self.table.describe(source, whole(source))
        lx = self.table.describe(target, whole(target))
        instruction = word("move", number, src=ddr, dst=lx, group=self._members(source))
        return Action({Unit.MNIL: [instruction]}, touched)

    def _members(self, *sources: Tile) -> int | None:
        """The group of cores that read the same data, of which the first one reads; None where all read apart."""
        parts = [part for s in sources for part in (s.anchor.constant, *(clip.room.constant for clip in s.clips))]
        keys = list(zip(*(np.broadcast_to(p, (self.cores,)).tolist() for p in parts), strict=True))
        leaders = [keys.index(key) for key in keys]
        return self._group(leaders) if leaders != list(range(self.cores)) else None

    def _write(self, op: ir.Operation, source: Tile, target: Tile | IndirectTile) -> Action:
        number = self.operands.source_id(op)
        touched = [self.operands.touch(Unit.MNIS, source, False)]
        if isinstance(target, IndirectTile):
            refuse_on_some_cores(op, self.live)
            self._reads(target.positions, op)
            self._writes(reach(target.tile, target.dim, target.size), op)
            return Action({Unit.MNIS: [word("move", number, **self._looked_up(target, source, "dst", "src"))]}, touched)
        target = on_some_cores(target, self.live)
        self._writes(target, op)
        live = target.without_dead_rows()
        source = replace(source, shape=(*live.shape[:-1], source.shape[-1]))
        ddr = self.table.describe(live, whole(live))
        lx = self.table.describe(source, whole(source))
        return Action({Unit.MNIS: [word("move", number, src=lx, dst=ddr)]}, touched)

    def _looked_up(self, memory: IndirectTile, local: Tile, *names: str) -> dict[str, int]:
        """Operands of a gather or scatter, where memory and LX are called `names`."""
        tile, dim = memory.tile, memory.dim
        return {
            names[0]: self.table.describe(tile, whole(tile), keep=dim),
            names[1]: self.table.describe(local, whole(local)),
            "index": self.table.describe_positions(memory.positions),
            "dim": sum(extent != 1 for extent in tile.shape[:dim]),
            "size": memory.size,
        }

    def _exchange(self, op: ir.Operation, target: Tile) -> Action:
        """What other cores have made goes over the ring; a core that receives nothing gets its own."""
        number, source = self.operands.source_id(op), self.operands.of(contribution(op))
        group = self._group(senders(op, self.cores))
        sent = word("move", number, src=self.table.describe(source, whole(source)), group=group)
        received = word("move", number, dst=self.table.describe(target, whole(target)), group=group)
        touched = [self.operands.touch(Unit.MNIS, source, False), self.operands.touch(Unit.MNIL, target, True)]
        return Action({Unit.MNIS: [sent], Unit.MNIL: [received]}, touched)

    def _group(self, cores: list[int]) -> int:
        """The number of a group."""
        if cores not in self.groups:
            self.groups.append(cores)
        return self.groups.index(cores)

    def _fill(self, op: ir.Operation, target: Tile) -> Action:
        constant = op.operands[0].owner.attributes["value"]
        instruction = word("fill", self.operands.source_id(op), lx=self.table.describe(target, whole(target)), value=constant.value)
        return Action({Unit.MNIL: [instruction]}, [self.operands.touch(Unit.MNIL, target, True)])

    def _reads(self, tile: Tile, op: ir.Operation) -> None:
        if tile.anchor.argument is not None:
            self.order.read(op, tile, self.table.arguments[tile.anchor.argument], self.operands.trips)

    def _writes(self, tile: Tile, op: ir.Operation) -> None:
        if tile.anchor.argument is not None:
            self.order.write(op, tile, self.table.arguments[tile.anchor.argument], self.operands.trips)
