"""One kernel of allocated KTIR -> unit programs.

Each op becomes an action: a global load is an XLD (multicast where all cores read the same, XLDG through indices), a store an XST (XSTS),
a fill a FILL, a pointwise op or reduction PUSHes its operands through SFP and PULLs the result, a contraction block feeds PT, and the op
that consumes a finished accumulator drains it. A block of R rows is halved: corelet c works on rows [c*R/2, (c+1)*R/2). A single row is
done by both, and the second corelet's result is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.isa.descriptor import LEVELS
from ktir.isa.program import Kernel, Word, word
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.access import IndirectTile, Tile, TileEvaluator
from ktir.lowering.ktir_to_spyre.bodies import Stream, VectorBody
from ktir.lowering.ktir_to_spyre.conditions import Live, branches, on_some_cores, refuse_on_some_cores
from ktir.lowering.ktir_to_spyre.descriptors import DescriptorTable, Walk, whole
from ktir.lowering.ktir_to_spyre.exchange import contribution, senders
from ktir.lowering.ktir_to_spyre.index import IndexEvaluator
from ktir.lowering.ktir_to_spyre.lane_masks import LaneMasks
from ktir.lowering.ktir_to_spyre.memory_order import MemoryOrder, reach
from ktir.lowering.ktir_to_spyre.sync import Access, Action, Loop, Parts, Synchroniser
from ktir.mlir import ir
from ktir.target import LANES, Target

_IGNORED = {
    "arith.constant", "arith.addi", "arith.subi", "arith.muli", "arith.minsi", "arith.divui", "arith.remui", "arith.cmpi", "arith.andi",
    "arith.ori", "arith.xori", "ktdp.get_compute_tile_id",
    "ktdp.construct_memory_view", "ktdp.construct_access_tile", "ktdp.construct_indirect_access_tile", "ktdp.load", "tensor.empty",
    "ktdp.inter_tile_produce", "ktdp.inter_tile_consume", "linalg.fill", "scf.yield", "func.return",
}  # fmt: skip
"""Ops that become part of a descriptor, or that the op which uses them emits."""


class KernelLowering:
    """Lowers one kernel function; `source_id` numbers ops for debug data."""

    def __init__(
        self, function: ir.Operation, name: str, arguments: list[int], source_id: Callable[[ir.Operation], int], target: Target
    ) -> None:
        self.name, self.target = name, target
        self.cores = KernelFunction(function).cores
        self.index = IndexEvaluator(function, self.cores)
        self.tile = TileEvaluator(self.index)
        self.table = DescriptorTable(self.cores, arguments)
        self.source_id = source_id
        self.groups: list[list[int]] = []
        self.regions = 0
        self.order = MemoryOrder(self.cores)
        self.live: Live = None
        """Cores that run the open branch."""
        self.trips: dict[int, int] = {}
        """Of the open loops, by level."""
        self.root = Loop(1, -1, 0)
        self.stored: list[int] = []
        """Descriptors of stores to memory."""
        self._block(function.regions[0].blocks[0], self.root)
        self.table.stores_apart(self.stored)

    def kernel(self) -> Kernel:
        """The kernel with synchronisation inserted."""
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
            if op.name == "scf.for":
                refuse_on_some_cores(op, self.live)
                self._loop(op, loop)
            elif op.name == "scf.if":
                self._branches(op, loop)
            elif op.name == "ktdp.store":
                loop.children.append(self._store(op))
            elif op.name == "linalg.generic":
                g = Generic(op)
                if g.is_contraction:
                    refuse_on_some_cores(op, self.live)
                    loop.children.append(self._multiply(g))
                # other results are emitted by the store that consumes them
            elif op.name not in _IGNORED:
                raise Unsupported(f"'{op.name}' op has no lowering to the instruction stream", location_text(op.location))

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
            raise Unsupported("'scf.for' op expects the same constant bounds on every core", location_text(op.location))
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
        self.trips[level] = loop.trips
        self._block(body, loop)
        del self.trips[level]

    # Transfers

    def _store(self, op: ir.Operation) -> Action:
        value = op.operands[0]
        producer = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        target = self._place(op.operands[1])
        if producer.name == "ktdp.load":
            source = self._place(producer.operands[0])
            if isinstance(source, Tile) and source.local and not (isinstance(target, Tile) and target.local):
                return self._write(op, source, target)
            refuse_on_some_cores(op, self.live)
            if isinstance(target, Tile) and target.local and not (isinstance(source, Tile) and source.local):
                return self._load(producer, source, target)
            raise Unsupported("'ktdp.store' op copies within one memory space, which has no instruction", location_text(op.location))
        refuse_on_some_cores(op, self.live)
        if isinstance(target, Tile) and target.local:
            if producer.name == "linalg.generic":
                return self._vector(Generic(producer), target)
            if producer.name == "linalg.fill":
                return self._fill(producer, target)
            if producer.name == "ktdp.inter_tile_consume":
                return self._exchange(producer, target)
        raise Unsupported(f"'ktdp.store' op of a '{producer.name}' result has no instruction", location_text(op.location))

    def _place(self, tile: ir.Value) -> Tile | IndirectTile:
        op = tile.owner.opview
        return self.tile.indirect(op) if isinstance(op, ktdp.ConstructIndirectAccessTileOp) else self.tile(tile)

    def _touch(self, unit: Unit, tile: Tile, writes: bool, *, halved: bool = True) -> Access:
        rotation, parts = tile.anchor.rotation, None
        if levels := tile.walked_once(self.trips):
            steps = tuple(tile.anchor.steps[level] for level in levels)
            parts = Parts(prod(self.trips[level] for level in levels), sum(1 << level for level in levels), steps)
        levels = rotation.levels if rotation else 0
        return Access(unit, writes, *tile.buffer, tile.rotation, levels, tile.element_bytes, halved, parts)

    def _load(self, op: ir.Operation, source: Tile | IndirectTile, target: Tile) -> Action:
        number = self.source_id(op)
        touched = [self._touch(Unit.MNIL, target, True)]
        if isinstance(source, IndirectTile):
            self._reads(source.positions, op)
            self._reads(reach(source.tile, source.dim, source.size), op)
            return Action({Unit.MNIL: [word("xldg", number, **self._looked_up(source, target))]}, touched)
        self._reads(source, op)
        ddr = self.table.describe(source, whole(source))
        lx = self.table.describe(target, whole(target))
        leaders = self._leaders(source)
        if leaders != list(range(self.cores)):
            instruction = word("xldm", number, ddr=ddr, lx=lx, group=self._group(leaders))
        else:
            instruction = word("xld", number, ddr=ddr, lx=lx)
        return Action({Unit.MNIL: [instruction]}, touched)

    def _leaders(self, source: Tile) -> list[int]:
        """Per core the first one that reads the same data."""
        parts = [source.anchor.constant, *(clip.room.constant for clip in source.clips)]
        keys = list(zip(*(np.broadcast_to(p, (self.cores,)).tolist() for p in parts), strict=True))
        return [keys.index(key) for key in keys]

    def _write(self, op: ir.Operation, source: Tile, target: Tile | IndirectTile) -> Action:
        number = self.source_id(op)
        touched = [self._touch(Unit.MNIS, source, False)]
        if isinstance(target, IndirectTile):
            refuse_on_some_cores(op, self.live)
            self._reads(target.positions, op)
            self._writes(reach(target.tile, target.dim, target.size), op)
            return Action({Unit.MNIS: [word("xsts", number, **self._looked_up(target, source))]}, touched)
        target = on_some_cores(target, self.live)
        self._writes(target, op)
        live = target.without_dead_rows()
        source = replace(source, shape=(*live.shape[:-1], source.shape[-1]))
        ddr = self.table.describe(live, whole(live))
        self.stored.append(ddr)
        lx = self.table.describe(source, whole(source))
        return Action({Unit.MNIS: [word("xst", number, ddr=ddr, lx=lx)]}, touched)

    def _looked_up(self, memory: IndirectTile, local: Tile) -> dict[str, int]:
        """Operands of a gather or scatter."""
        tile, dim = memory.tile, memory.dim
        return {
            "ddr": self.table.describe(tile, whole(tile), keep=dim),
            "lx": self.table.describe(local, whole(local)),
            "idx": self.table.describe_positions(memory.positions),
            "dim": sum(extent != 1 for extent in tile.shape[:dim]),
            "size": memory.size,
        }

    def _exchange(self, op: ir.Operation, target: Tile) -> Action:
        """What other cores have made goes over the ring; a core that receives nothing gets its own."""
        number, source = self.source_id(op), self._operand(contribution(op))
        group = self._group(senders(op, self.cores))
        sent = word("rtx", number, lx=self.table.describe(source, whole(source)), group=group)
        received = word("rrx", number, lx=self.table.describe(target, whole(target)), group=group)
        touched = [self._touch(Unit.MNIS, source, False), self._touch(Unit.MNIL, target, True)]
        return Action({Unit.MNIS: [sent], Unit.MNIL: [received]}, touched)

    def _group(self, cores: list[int]) -> int:
        """The number of a group."""
        if cores not in self.groups:
            self.groups.append(cores)
        return self.groups.index(cores)

    def _fill(self, op: ir.Operation, target: Tile) -> Action:
        constant = op.operands[0].owner.attributes["value"]
        instruction = word("fill", self.source_id(op), lx=self.table.describe(target, whole(target)), value=constant.value)
        return Action({Unit.MNIL: [instruction]}, [self._touch(Unit.MNIL, target, True)])

    def _reads(self, tile: Tile, op: ir.Operation) -> None:
        if tile.anchor.argument is not None:
            self.order.read(op, tile, self.table.arguments[tile.anchor.argument], self.trips)

    def _writes(self, tile: Tile, op: ir.Operation) -> None:
        if tile.anchor.argument is not None:
            self.order.write(op, tile, self.table.arguments[tile.anchor.argument], self.trips)

    # Compute

    @staticmethod
    def _corelet_rows(rows: int, op: ir.Operation) -> int:
        """Rows per corelet; a single row is worked on by both."""
        if rows == 1:
            return 1
        if rows % 2:
            raise Unsupported(
                f"'linalg.generic' op works on {rows} rows, but a block is halved over two corelets and needs an even number",
                location_text(op.location),
            )
        return rows // 2

    def _operand(self, value: ir.Value) -> Tile:
        return self.tile(value.owner.operands[0])

    def _multiply(self, g: Generic) -> Action:
        a, b = (self._operand(v) for v in g.inputs)
        rows = self._corelet_rows(a.shape[1], g.op)
        transposed = g.loop_of(1, 1) != g.iterators.index("reduction")
        number = self.source_id(g.op)
        weights = self.table.describe(b, [(LANES, 1)])
        halved = a.shape[1] > 1
        activations = self.table.describe(a, [(rows, 1)], corelet_rows=rows if halved else 0)
        return Action(
            {
                Unit.LXLU: [
                    word("push", number, lx=weights, fifo="W", transpose=transposed),
                    word("push", number, lx=activations, fifo="A"),
                ],
                Unit.PT: [word("ldw", number), word("mm", number, rows=rows)],
            },
            [self._touch(Unit.LXLU, b, False, halved=False), self._touch(Unit.LXLU, a, False, halved=halved)],
        )

    def _vector(self, g: Generic, target: Tile) -> Action:
        """A pointwise op or a reduction over the sticks of a row."""
        number = self.source_id(g.op)
        stick_loop, row_loop, lane_loop = (0, 1, 2) if g.is_pointwise else (1, 0, 2)
        rows = self._corelet_rows(target.shape[1], g.op)
        halved = target.shape[1] > 1
        tiles = [None if _is_accumulator(v) else self._operand(v) for v in g.inputs]
        sticks = target.shape[0]
        if not g.is_pointwise:
            sticks = max((t.shape[0] for i, t in enumerate(tiles) if t is not None and g.loop_of(i, 0) is not None), default=1)
        pushes: list[Word] = []
        streams: list[Stream] = []
        accesses = [self._touch(Unit.LXSU, target, True, halved=halved)]
        program: dict[Unit, list[Word]] = {}
        for i, tile in enumerate(tiles):
            self._check_walk(g, i, (stick_loop, row_loop, lane_loop), (sticks, target.shape[1], 0))
            if tile is None:
                program[Unit.PT] = [word("pto", number, rows=rows)]
                streams.append(Stream("P", "each"))
                continue
            by_stick = g.loop_of(i, 0) == stick_loop and sticks > 1
            by_row = g.loop_of(i, 1) == row_loop
            splat = g.loop_of(i, 2) is None
            walk: Walk = [(rows, 1 if by_row else None)]
            if by_stick or (sticks > 1 and not splat):
                walk.append((sticks, 0 if by_stick else None))
            once = sticks > 1 and len(walk) == 1
            lx = self.table.describe(tile, walk, corelet_rows=rows if by_row and halved else 0, splat=splat)
            if len(pushes) == 3:
                raise Unsupported(
                    "'linalg.generic' op reads more than three tensors, but the vector unit has three inputs; run ktir-split-bodies first",
                    location_text(g.op.location),
                )
            fifo = f"I{len(pushes)}"
            pushes.append(word("push", number, lx=lx, fifo=fifo))
            streams.append(Stream(fifo, "start" if once else "each"))
            accesses.append(self._touch(Unit.LXLU, tile, False, halved=by_row and halved))
        if len(pushes) > 1:
            pushes.insert(0, word("par", number, streams=len(pushes)))
        if pushes:
            program[Unit.LXLU] = pushes
        body = VectorBody(g, streams, LaneMasks(stick_loop, lane_loop, sticks), number, self.target)
        program[Unit.SFP] = body.build(rows, sticks)
        out: Walk = [(rows, 1)]
        if g.is_pointwise and sticks > 1:
            out.append((sticks, 0))
        result = self.table.describe(target, out, corelet_rows=rows if halved else 0, one_corelet=not halved)
        program[Unit.LXSU] = [word("pull", number, lx=result, fifo="O")]
        return Action(program, accesses)

    def _check_walk(self, g: Generic, operand: int, loops: tuple[int, int, int], extents: tuple[int, int, int]) -> None:
        """Entries come in the order in which they are computed; what is spread over a loop of several trips is pushed again from LX, which
        the accumulators of PT cannot be."""
        walked = [g.loop_of(operand, d) for d in range(len(g.maps[operand].results))]
        in_order = len(walked) == 3 and all(w in (loop, None) for w, loop in zip(walked, loops, strict=True))
        spread = any(w is None and n != 1 for w, n in zip(walked, extents, strict=False))
        if not in_order or (spread and _is_accumulator(g.inputs[operand])):
            raise Unsupported(
                f"'linalg.generic' op reads operand {operand} by {g.maps[operand]}, but "
                + ("sums of the array come element for element" if in_order else "entries come in the order of its loops"),
                location_text(g.op.location),
            )


def _is_accumulator(value: ir.Value) -> bool:
    return value.owner.name == "scf.for"
