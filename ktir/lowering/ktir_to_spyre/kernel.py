"""One kernel of allocated KTIR -> unit programs.

Each op becomes an action: a global load is an XLD (multicast where all cores read the same), a store an XST, a pointwise op or reduction
PUSHes its operands through SFP and PULLs the result, a contraction block feeds PT, and the op that consumes a finished accumulator drains
it. A block of R rows is halved: corelet c works on rows [c*R/2, (c+1)*R/2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic
from ktir.isa.program import Kernel, Word, word
from ktir.isa.units import Unit
from ktir.mlir import ir
from ktir.target import LANES

from .access import DescriptorTable, Tile, evaluate_tile
from .bodies import Stream, VectorBody
from .index import IndexEvaluator
from .sync import Access, Action, Loop, Synchroniser

_IGNORED = {
    "arith.constant", "arith.addi", "arith.subi", "arith.muli", "arith.minsi", "arith.divui", "arith.remui", "ktdp.get_compute_tile_id",
    "ktdp.construct_memory_view", "ktdp.construct_access_tile", "ktdp.load", "tensor.empty", "linalg.fill", "scf.yield", "func.return",
}  # fmt: skip
"""Ops that become part of a descriptor, or that the op which uses them emits."""


def _without_dead_rows(source: Tile, target: Tile) -> tuple[Tile, Tile]:
    """Leave out of a transfer what the target's bound drops on every core and in every trip.

    Where a tensor has fewer rows than a block, a dead row's address would be the next stick's first row.
    """
    shape, limits = list(target.shape), list(target.limits)
    for d, limit in enumerate(limits):
        first = target.first[d]
        if limit is not None and limit.is_uniform and first.is_constant and first.is_uniform:
            live = limit.scalar - first.scalar
            if 0 < live <= shape[d]:
                shape[d], limits[d] = live, None
    return replace(source, shape=tuple(shape)), replace(target, shape=tuple(shape), limits=tuple(limits))


class KernelLowering:
    """Lowers one kernel function; `source_id` numbers ops for debug data."""

    def __init__(self, function: ir.Operation, name: str, arguments: list[int], source_id: Callable[[ir.Operation], int]) -> None:
        self.name = name
        self.cores = ir.IntegerAttr(ir.ArrayAttr(function.attributes["grid"])[0]).value
        self.index = IndexEvaluator(function, self.cores)
        self.table = DescriptorTable(self.cores, arguments)
        self.source_id = source_id
        self.groups: list[list[int]] = []
        self.regions = 0
        self.root = Loop(1, -1, 0)
        self._block(function.regions[0].blocks[0], self.root)

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
                self._loop(op, loop)
            elif op.name == "ktdp.store":
                loop.children.append(self._store(op))
            elif op.name == "linalg.generic":
                g = Generic(op)
                if g.is_contraction:
                    loop.children.append(self._multiply(g))
                # other results are emitted by the store that consumes them
            elif op.name not in _IGNORED:
                raise Unsupported(f"'{op.name}' op has no lowering to the instruction stream", location_text(op.location))

    def _loop(self, op: ir.Operation, parent: Loop) -> None:
        lower, upper, step = (self.index(v) for v in list(op.operands)[:3])
        bounds = (lower, upper, step)
        if not all(b.is_constant and b.is_uniform for b in bounds):
            raise Unsupported("'scf.for' op expects the same constant bounds on every core", location_text(op.location))
        self.regions += 1
        level = parent.level + 1
        loop = Loop(-(-(upper.scalar - lower.scalar) // step.scalar), level, self.regions)
        body = op.regions[0].blocks[0]
        self.index.enter_loop(body.arguments[0], lower, step.scalar, loop.trips, level)
        parent.children.append(loop)
        self._block(body, loop)

    # Transfers

    def _store(self, op: ir.Operation) -> Action:
        value = op.operands[0]
        target = evaluate_tile(op.operands[1], self.index)
        producer = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if producer.name == "ktdp.load":
            source = evaluate_tile(producer.operands[0], self.index)
            if source.local == target.local:
                raise Unsupported("'ktdp.store' op copies within one memory space, which has no instruction", location_text(op.location))
            return self._load(producer, source, target) if target.local else self._write(op, source, target)
        if producer.name == "linalg.generic" and target.local:
            return self._vector(Generic(producer), target)
        raise Unsupported(f"'ktdp.store' op of a '{producer.name}' result has no instruction", location_text(op.location))

    @staticmethod
    def _walk(tile: Tile) -> list[tuple[int, int | None]]:
        return list(zip(tile.shape[:-1], range(len(tile.shape) - 1), strict=True))

    @staticmethod
    def _touch(unit: Unit, tile: Tile, writes: bool) -> Access:
        return Access(unit, writes, *tile.buffer, tile.rotation, tile.element_bytes)

    def _load(self, op: ir.Operation, source: Tile, target: Tile) -> Action:
        ddr = self.table.describe(source, self._walk(source))
        lx = self.table.describe(target, self._walk(target))
        number = self.source_id(op)
        leaders = self._leaders(source)
        if leaders != list(range(self.cores)):
            if leaders not in self.groups:
                self.groups.append(leaders)
            instruction = word("xldm", number, ddr=ddr, lx=lx, group=self.groups.index(leaders))
        else:
            instruction = word("xld", number, ddr=ddr, lx=lx)
        return Action({Unit.MNIL: [instruction]}, [self._touch(Unit.MNIL, target, True)])

    def _leaders(self, source: Tile) -> list[int]:
        """Per core the first one that reads the same data."""
        parts = [source.anchor.constant, *(limit.constant for limit in source.limits if limit is not None)]
        keys = list(zip(*(np.broadcast_to(p, (self.cores,)).tolist() for p in parts), strict=True))
        return [keys.index(key) for key in keys]

    def _write(self, op: ir.Operation, source: Tile, target: Tile) -> Action:
        source, target = _without_dead_rows(source, target)
        ddr = self.table.describe(target, self._walk(target))
        lx = self.table.describe(source, self._walk(source))
        return Action({Unit.MNIS: [word("xst", self.source_id(op), ddr=ddr, lx=lx)]}, [self._touch(Unit.MNIS, source, False)])

    # Compute

    @staticmethod
    def _corelet_rows(rows: int, op: ir.Operation) -> int:
        if rows % 2:
            raise Unsupported(
                f"'linalg.generic' op works on {rows} rows, but a block is halved over two corelets and needs an even number",
                location_text(op.location),
            )
        return rows // 2

    def _operand(self, value: ir.Value) -> Tile:
        return evaluate_tile(value.owner.operands[0], self.index)

    def _multiply(self, g: Generic) -> Action:
        a, b = (self._operand(v) for v in g.inputs)
        rows = self._corelet_rows(a.shape[1], g.op)
        transposed = g.loop_of(1, 1) != g.iterators.index("reduction")
        number = self.source_id(g.op)
        weights = self.table.describe(b, [(LANES, 1)])
        activations = self.table.describe(a, [(rows, 1)], corelet_rows=rows)
        push = "pusht" if transposed else "push"
        return Action(
            {
                Unit.LXLU: [
                    word(push, number, lx=weights, fifo="W", count=LANES),
                    word("push", number, lx=activations, fifo="A", count=rows),
                ],
                Unit.PT: [word("ldw", number, count=LANES), word("mm", number, rows=rows)],
            },
            [self._touch(Unit.LXLU, b, False), self._touch(Unit.LXLU, a, False)],
        )

    def _vector(self, g: Generic, target: Tile) -> Action:
        """A pointwise op or a reduction over the sticks of a row."""
        number = self.source_id(g.op)
        stick_loop, row_loop, lane_loop = (0, 1, 2) if g.is_pointwise else (1, 0, 2)
        rows = self._corelet_rows(target.shape[1], g.op)
        tiles = [None if self._is_accumulator(v) else self._operand(v) for v in g.inputs]
        sticks = target.shape[0]
        if not g.is_pointwise:
            sticks = max(t.shape[0] for i, t in enumerate(tiles) if t is not None and g.loop_of(i, 0) is not None)
        pushes: list[Word] = []
        streams: list[Stream] = []
        accesses = [self._touch(Unit.LXSU, target, True)]
        program: dict[Unit, list[Word]] = {}
        for i, tile in enumerate(tiles):
            if tile is None:
                program[Unit.PT] = [word("pto", number, rows=rows)]
                streams.append(Stream("P", "stick"))
                continue
            by_stick = g.loop_of(i, 0) == stick_loop and sticks > 1
            by_row = g.loop_of(i, 1) == row_loop
            splat = g.loop_of(i, 2) is None
            walk: list[tuple[int, int | None]] = [(rows, 1 if by_row else None)]
            if by_stick or (sticks > 1 and not splat):
                walk.append((sticks, 0 if by_stick else None))
            once = sticks > 1 and len(walk) == 1
            lx = self.table.describe(tile, walk, corelet_rows=rows if by_row else 0, splat=splat)
            if len(pushes) == 3:
                raise Unsupported(
                    "'linalg.generic' op reads more than three tensors, but the vector unit has three inputs; run ktir-split-bodies first",
                    location_text(g.op.location),
                )
            fifo = f"I{len(pushes)}"
            pushes.append(word("push", number, lx=lx, fifo=fifo, count=rows * (1 if len(walk) == 1 else sticks)))
            streams.append(Stream(fifo, "start" if once else "stick"))
            accesses.append(self._touch(Unit.LXLU, tile, False))
        if len(pushes) > 1:
            pushes.insert(0, word("par", number, streams=len(pushes)))
        program[Unit.LXLU] = pushes
        body = VectorBody(g, streams, stick_loop, lane_loop, number).build()
        program[Unit.SFP] = [word("rep", number, groups=rows, body=len(body), sticks=sticks), *body]
        out: list[tuple[int, int | None]] = [(rows, 1)]
        if g.is_pointwise and sticks > 1:
            out.append((sticks, 0))
        result = self.table.describe(target, out, corelet_rows=rows)
        program[Unit.LXSU] = [word("pull", number, lx=result, fifo="O", count=rows * (sticks if g.is_pointwise else 1))]
        return Action(program, accesses)

    @staticmethod
    def _is_accumulator(value: ir.Value) -> bool:
        return value.owner.name == "scf.for"
