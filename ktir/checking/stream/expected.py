"""Allocated KTIR as plain data: kernels in the order of their calls, each a tree of loops and actions.

An action is a KTIR op that becomes instructions: a transfer between memory and LX, a fill, a pointwise op or reduction, a block of a
contraction. Its operands are footprints and its body is an expression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.calls import functions_of, launches, root_of
from ktir.checking.stream.expressions import Expressions, Unreadable, of_generic
from ktir.checking.stream.footprint import Footprint, Ints, Limit, Trips, difference, of_tile
from ktir.checking.stream.grid import Grid, number
from ktir.checking.stream.launch import launch_arguments, program_arguments
from ktir.checking.stream.scalars import OPENED, half_of
from ktir.checking.stream.tiles import BYTES, IndirectTile, Tile, on_some_cores, read_indirect, read_tile
from ktir.diagnostics import nodes_text, origin_text, refused
from ktir.dialects import ktdp
from ktir.dialects._ktdp import tile_sets
from ktir.dialects.structured import Generic
from ktir.isa.program import Argument, Source
from ktir.mlir import ir
from ktir.package import HostTensor, LaunchArgument
from ktir.passes.layouts.host_tensors import host_tensors
from ktir.target import LANES


@dataclass(frozen=True)
class Action:
    """An op that becomes instructions. `trips` of the loops around it, by level."""

    source: Source
    trips: Trips


@dataclass(frozen=True)
class Transfer(Action):
    """A load or store of LX. Through indices, `positions` has those and `size` what they are below."""

    loads: bool
    memory: Footprint
    local: Footprint
    positions: Footprint | None = None
    size: int = 0


@dataclass(frozen=True)
class Fill(Action):
    """A constant, as the 32 bits of each lane, in LX."""

    bits: int
    local: Footprint


@dataclass(frozen=True)
class Exchange(Action):
    """Entries that go from core to core: per core the one that it receives from."""

    senders: tuple[int, ...]
    sent: Footprint
    received: Footprint


@dataclass(frozen=True)
class Operand:
    """What the vector unit reads: entry by entry, row by row, and once per row where that is enough. None: the accumulators of PT."""

    each: Footprint | None
    once: Footprint | None
    expression: int


@dataclass(frozen=True)
class Vector(Action):
    """A pointwise op or a reduction on `rows` rows per corelet of `sticks` sticks."""

    operands: tuple[Operand, ...]
    result: Footprint
    rows: int
    sticks: int
    reduces: bool
    expression: int


@dataclass(frozen=True)
class Multiply(Action):
    """One block of a contraction: `rows` rows per corelet against 64 x 64 weights, which lie as PT takes them unless `transposed`."""

    activations: Footprint
    weights: Footprint
    transposed: bool
    rows: int


_UNCHANGED: dict[str, float] = {
    "add": 0.0,
    "max": float("-inf"),
    "min": float("inf"),
    "addi": 0,
    "maxsi": -(2**31),
    "minsi": 2**31 - 1,
    "addh": 0.0,
    "addb": 0.0,
    "maxnum": float("-inf"),
    "minnum": float("inf"),
}
"""What leaves the accumulator of a reduction as it is."""
_PART_OF_ANOTHER = ("linalg.generic", "linalg.fill", "ktdp.construct_indirect_access_tile", "ktdp.inter_tile_produce")
"""Ops with regions whose instructions are those of an op that uses them."""


@dataclass
class Loop:
    """A loop around `children`."""

    trips: int
    level: int
    children: list[Action | Loop] = field(default_factory=list)

    def actions(self) -> Iterator[Action]:
        """All actions inside, in order."""
        for child in self.children:
            if isinstance(child, Loop):
                yield from child.actions()
            else:
                yield child


@dataclass
class Kernel:
    """A call of a kernel."""

    name: str
    cores: int
    body: Loop
    table: Expressions


@dataclass
class Expected:
    """What a package's KTIR says. It keeps the module alive."""

    name: str
    arguments: list[Argument]
    launch: list[LaunchArgument]
    hosts: tuple[HostTensor, ...]
    kernels: list[Kernel]
    module: ir.Module


def expected(module: ir.Module, corelets: int = 2) -> Expected:
    """Read a module at the allocated level. Raises Unsupported for what no instruction stream has."""
    entry = root_of(functions_of(module), module.operation.location)
    launch = launch_arguments(module, entry)
    kernels = [_Reader(run.kernel.operation, run.kernel.name.value, run.arguments, corelets).kernel for run in launches(module)]
    name = ir.StringAttr(entry.operation.attributes["sym_name"]).value
    return Expected(name, program_arguments(launch), launch, host_tensors(module), kernels, module)


class _Reader:
    """Reads one kernel function."""

    def __init__(self, function: ir.Operation, name: str, arguments: Sequence[int], corelets: int) -> None:
        self.index = Grid(function)
        self.cores = self.index.cores
        self.arguments, self.corelets = arguments, corelets
        self.table = Expressions()
        self.trips: dict[int, int] = {}
        self.live: NDArray[np.bool_] | None = None
        """Cores that run the open branch; None: all do."""
        self.sums: ir.Operation | None = None
        """The loop whose sums PT holds."""
        self.pair_row: int | None = None
        """Of an op on elements of one byte: for which row of their pairs."""
        body = Loop(1, -1)
        self.kernel = Kernel(name, self.cores, body, self.table)
        self._block(function.regions[0].blocks[0], body)

    def _block(self, block: ir.Block, loop: Loop) -> None:
        for view in block.operations:
            op = view.operation
            if op.name == "scf.for":
                self._check_all_cores(op)
                self._loop(op, loop)
            elif op.name == "scf.if":
                self._branches(op, loop)
            elif op.name == "ktdp.store":
                for self.pair_row in _rows_of_pairs(op):
                    loop.children.append(self._store(op))
            elif op.name == "linalg.generic" and Generic(op).is_contraction:
                self._check_all_cores(op)
                loop.children.append(self._multiply(Generic(op)))
            elif op.regions and op.name not in _PART_OF_ANOTHER:
                refuse(op, "has no instructions")

    def _loop(self, op: ir.Operation, parent: Loop) -> None:
        lower, upper, step = (self.index(v).number for v in list(op.operands)[:3])
        if lower is None or upper is None or step is None:
            refuse(op, "expects the same constant bounds on every core")
        loop = Loop(-(-(upper - lower) // step), parent.level + 1)
        body = op.regions[0].blocks[0]
        self.index.enter(body.arguments[0], lower, step, max(1, loop.trips), loop.level)
        parent.children.append(loop)
        self.trips[loop.level] = max(1, loop.trips)  # of a loop that never runs, the first trip that it would have
        self._block(body, loop)
        del self.trips[loop.level]

    def _branches(self, op: ir.Operation, loop: Loop) -> None:
        """Both branches, each for the cores that take it."""
        if len(op.results):
            refuse(op, "gives values")
        condition = self.index(op.operands[0]).at
        if condition.shape[0] != condition.size:
            refuse(op, "expects a condition that a core knows before the kernel starts")
        holds = np.broadcast_to(condition.ravel(), (self.cores,)) != 0
        outer = self.live
        here = np.ones(self.cores, np.bool_) if outer is None else outer
        for region, taken in zip(op.regions, (holds, ~holds), strict=True):
            cores = here & taken
            if cores.any() and len(region.blocks):
                self.live = None if cores.all() else cores
                self._block(region.blocks[0], loop)
        self.live = outer

    def _check_all_cores(self, op: ir.Operation) -> None:
        if self.live is not None:
            refuse(op, "stands in a branch that only some cores take")

    def tile(self, value: ir.Value) -> Tile:
        """A direct tile."""
        return read_tile(value, self.index)

    def _source(self, op: ir.Operation) -> Source:
        return Source(op.name, origin_text(op.location), nodes_text(op.location))

    def _whole(self, tile: Tile) -> Footprint:
        """All entries of a tile, in order."""
        return self._walk(tile, {d: c.ravel() for d, c in enumerate(np.indices(tile.shape[:-1]))}, 1)

    def _walk(
        self, tile: Tile, coordinates: dict[int, Ints], corelets: int, apart: dict[int, int] | None = None, *, splat: bool = False
    ) -> Footprint:
        return of_tile(tile, coordinates, dict(self.trips), self.cores, self.arguments, corelets=corelets, apart=apart, splat=splat)

    # Transfers and fills

    def _store(self, op: ir.Operation) -> Action:
        producer = op.operands[0].owner
        target = self._place(op.operands[1])
        if isinstance(producer, ir.Block):
            refuse(op, "stores what no op of its block makes")
        if producer.name == "ktdp.load":
            source = self._place(producer.operands[0])
            if isinstance(source, Tile) and source.local and isinstance(target, Tile) and not target.local:
                return self._transfer(op, False, on_some_cores(target, self.live), source)
            self._check_all_cores(op)
            if isinstance(target, Tile) and target.local:
                return self._transfer(producer.operation, True, source, target)
            if isinstance(source, Tile) and source.local:
                return self._transfer(op, False, target, source)
        self._check_all_cores(op)
        if not (isinstance(target, Tile) and target.local):
            refuse(op, "stores to memory what does not come from LX")
        if producer.name == "linalg.generic":
            return self._vector(Generic(producer.operation), target)
        if producer.name == "linalg.fill":
            return Fill(self._source(producer.operation), dict(self.trips), self._bits(producer.operation), self._whole(target))
        if producer.name == "ktdp.inter_tile_consume":
            consume = producer.operation
            source = self.tile(contribution(consume).owner.operands[0])
            names = senders(consume, self.cores)
            return Exchange(self._source(consume), dict(self.trips), names, self._whole(source), self._whole(target))
        refuse(op, f"stores the result of a '{producer.name}' op")

    def _place(self, tile: ir.Value) -> Tile | IndirectTile:
        op = tile.owner.opview
        return read_indirect(op, self.index) if isinstance(op, ktdp.ConstructIndirectAccessTileOp) else self.tile(tile)

    def _transfer(self, op: ir.Operation, loads: bool, memory: Tile | IndirectTile, local: Tile) -> Transfer:
        source, trips = self._source(op), dict(self.trips)
        if isinstance(memory, Tile):
            if memory.local or not local.local:
                refuse(op, "copies within one memory")
            return Transfer(source, trips, loads, self._whole(memory), self._whole(local))
        tile, dim = memory.tile, memory.dim
        every = {d: c.ravel() for d, c in enumerate(np.indices(tile.shape[:-1]))}
        walked = self._walk(tile, every, 1)
        at = every[dim]
        stride = tile.strides[dim]
        looked_up = replace(walked, inner=walked.inner - at * stride, positions=at, stride=stride)
        numbers = memory.positions
        lanes = replace(numbers, shape=(*numbers.shape, LANES), strides=(*numbers.strides, 0))
        return Transfer(source, trips, loads, looked_up, self._whole(local), self._whole(lanes), memory.size)

    def _bits(self, fill: ir.Operation) -> int:
        attribute = fill.operands[0].owner.attributes["value"]
        if isinstance(attribute, ir.IntegerAttr):
            return attribute.value & 0xFFFFFFFF
        return int(np.float32(ir.FloatAttr(attribute).value).view(np.uint32))

    # Compute

    def _rows(self, tile: Tile, op: ir.Operation) -> tuple[int, dict[int, int]]:
        """Rows per corelet, and how far apart the corelets are; a single row is worked on by both."""
        rows = tile.shape[1]
        if tile.per_corelet:
            return rows, {1: tile.per_corelet // tile.strides[1]}
        if rows > 1 and rows % self.corelets:
            refuse(op, f"works on {rows} rows, which {self.corelets} corelets do not share evenly")
        return (1, {}) if rows == 1 else (rows // self.corelets, {1: rows // self.corelets})

    def _vector(self, g: Generic, target: Tile) -> Vector:
        stick_loop, row_loop, lane_loop = (0, 1, 2) if g.is_pointwise else (1, 0, 2)
        if len(g.iterators) != 3 or len(target.shape) != 3:
            refuse(g.op, "expects loops over sticks, rows and lanes")
        outputs = [g.loop_of(len(g.inputs), d) for d in range(3)]
        if outputs != ([stick_loop, row_loop, lane_loop] if g.is_pointwise else [None, row_loop, None]):
            refuse(g.op, "writes its result in another order than it computes it")
        target = target.every_other(self.pair_row)
        rows, apart = self._rows(target, g.op)
        tiles = [None if _is_sum(v) else self.tile(v.owner.operands[0]).every_other(self.pair_row) for v in g.inputs]
        sticks = target.shape[0]
        if not g.is_pointwise:
            self._check_identity(g)
            sticks = max((t.shape[0] for i, t in enumerate(tiles) if t and g.loop_of(i, 0) is not None), default=1)
        group, stick = (c.ravel() for c in np.indices((rows, sticks)))
        operands: list[Operand] = []
        for i, tile in enumerate(tiles):
            half = half_of(g.body.arguments[i].type) if tile is None or not tile.in_pairs else tile.half
            if tile is None:
                self._check_sums(g, g.inputs[i].owner.operation)
                if g.maps[i] != g.maps[-1] and (g.is_pointwise or [g.loop_of(i, d) for d in range(3)] != [1, 0, 2]):
                    refuse(g.op, "spreads sums, which come from PT element for element")
                operands.append(Operand(None, None, self.table.operand(i, half)))
                continue
            tile, loops = _walked(g, i, tile, stick_loop, sticks)
            if not (loops[0] in (stick_loop, None) and loops[1] in (row_loop, None) and loops[2] in (lane_loop, None)):
                refuse(g.op, "reads an operand in another order than it computes")
            by_row, by_stick = loops[1] is not None, loops[0] is not None
            moved = apart if by_row and not target.per_corelet else {}
            zero = np.zeros_like(group)
            at = {0: stick if by_stick else zero, 1: group if by_row else zero}
            each = self._walk(tile, at, self.corelets, moved, splat=loops[2] is None)
            once = None
            if not by_stick or sticks == 1:
                once = each.picked(np.flatnonzero(stick == 0))
            alike = next((o.expression for o in operands if o.each and difference(o.each, each) is None), None)
            operands.append(Operand(each, once, self.table.operand(i, half) if alike is None else alike))
        try:
            inputs = [_opened(self.table, o.expression, a.type, self.pair_row) for o, a in zip(operands, g.body.arguments, strict=False)]
            expression = of_generic(g, self.table, inputs, max(1, target.shape[1]), sticks)
        except Unreadable as e:
            refuse(g.op, str(e))
        at = {0: stick, 1: group} if g.is_pointwise else {0: np.zeros(rows, np.int64), 1: np.arange(rows)}
        result = self._walk(target, at, self.corelets, apart)
        if not apart:
            result = one_corelet(result)
        return Vector(self._source(g.op), dict(self.trips), tuple(operands), result, rows, sticks, not g.is_pointwise, expression)

    def _check_identity(self, g: Generic) -> None:
        """A reduction starts from what changes nothing."""
        init, kind = g.init.owner, g.combiner
        if isinstance(init, ir.Block) or init.name != "linalg.fill" or kind is None:
            refuse(g.op, "expects a fill as accumulator")
        identity = _UNCHANGED[kind]
        bits = identity & 0xFFFFFFFF if isinstance(identity, int) else int(np.float32(identity).view(np.uint32))
        if self._bits(init.operation) != bits:
            refuse(g.op, "expects an accumulator filled with what its reduction leaves as it is")

    def _check_sums(self, g: Generic, last: ir.Operation) -> None:
        """The sums that an op reads are those that PT holds."""
        if self.sums is None or self.sums != last:
            refuse(g.op, "reads sums that PT does not hold")
        self.sums = None

    def _add_to_sums(self, g: Generic) -> None:
        """The sums of a contraction are carried by the loops around it, or are those of the block or loop before it. They start from zero,
        and are the only ones that PT holds."""
        last, start = g.op, g.init
        while isinstance(start.owner, ir.Block):
            last = start.owner.owner.operation
            if last.name != "scf.for":
                refuse(g.op, "adds to sums that no loop carries")
            start = list(last.operands)[3]
        if _is_sum(start):
            if self.sums is None or self.sums != start.owner:
                refuse(g.op, "adds to sums that PT does not hold")
        elif start.owner.name != "linalg.fill" or self._bits(start.owner.operation) & 0x7FFFFFFF:
            refuse(g.op, "expects sums that start from zero")
        elif self.sums is not None:
            refuse(g.op, "adds to sums while PT holds others")
        self.sums = last

    def _multiply(self, g: Generic) -> Multiply:
        a, b = (self.tile(v.owner.operands[0]) for v in g.inputs)
        reduced = g.iterators.index("reduction")
        row, column = g.loop_of(0, 1), g.loop_of(2, 2)
        if len(g.iterators) != 3 or len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != 1 or b.shape != (1, LANES, LANES):
            refuse(g.op, "expects one stick of rows and one block of 64 x 64 weights")
        transposed = g.loop_of(1, 1) == column
        ends = [g.loop_of(1, 1), g.loop_of(1, 2)]
        if g.loop_of(0, 2) != reduced or g.loop_of(2, 1) != row or ends != ([column, reduced] if transposed else [reduced, column]):
            refuse(g.op, "expects rows times weights")
        self._add_to_sums(g)
        rows, apart = self._rows(a, g.op)
        entries = np.arange(LANES)
        activations = self._walk(a, {1: np.arange(rows)}, self.corelets, apart)
        weights = self._walk(b, {1: entries}, self.corelets, {1: b.per_corelet // b.strides[1]} if b.per_corelet else {})
        return Multiply(self._source(g.op), dict(self.trips), activations, weights, transposed, rows)


def _opened(table: Expressions, operand: int, type_: ir.Type, row: int | None) -> int:
    """What a body sees of an entry: of a pair of bytes its own."""
    kind = OPENED.get((str(type_), row or 0))
    return operand if kind is None else table.of(kind, operand)


def _rows_of_pairs(store: ir.Operation) -> tuple[int | None, ...]:
    """For which rows of pairs the vector unit makes what is stored, one after the other; None: for all at once."""
    producer = store.operands[0].owner
    of_bytes = (
        not isinstance(producer, ir.Block)
        and producer.name == "linalg.generic"
        and any(str(a.type) in BYTES for a in Generic(producer.operation).body.arguments)
    )
    return (0, 1) if of_bytes else (None,)


def _one_of_two(stick: ir.AffineExpr) -> int | None:
    """Whether the first loop reads the first or the second one of each two sticks; None for another walk."""
    two = ir.AffineMap.get(1, 0, [stick]) if isinstance(stick, ir.AffineBinaryExpr) else None
    return None if two is None else {"(d0) -> (d0 * 2)": 0, "(d0) -> (d0 * 2 + 1)": 1}.get(str(two))


def _walked(g: Generic, operand: int, tile: Tile, stick_loop: int, sticks: int) -> tuple[Tile, list[int | None]]:
    """What is read of an operand, every other stick where pairs are made of two, and the loop of each of its dims."""
    loops, first = [g.loop_of(operand, d) for d in range(3)], _one_of_two(g.maps[operand].results[0])
    if first is None:
        return tile, loops
    if any(c.lanes or (c.dim == 0 and c.step) for c in tile.clips) or tile.shape[0] != 2 * sticks:
        refuse(g.op, "makes pairs of sticks that are not all there")
    return tile.every_other_stick(first), [stick_loop, *loops[1:]]


def _is_sum(value: ir.Value) -> bool:
    """Whether PT holds a value: the sums of a loop, or of a block of a contraction."""
    name = value.owner.name
    return name == "scf.for" or (name == "linalg.generic" and Generic(value.owner.operation).is_contraction)


def contribution(consume: ir.Operation) -> ir.Value:
    """The tensor that the cores contribute."""
    body = list(consume.operands[0].owner.regions[0].blocks[0].operations)
    if len(body) != 1 or len(body[0].operands) != 1:
        refuse(consume, "takes more than one tensor, or one that is computed where it is contributed")
    return body[0].operands[0]


_DEPENDS = "producer_dependency_per_consumer"


def senders(consume: ir.Operation, cores: int) -> tuple[int, ...]:
    """Per core the one that it receives from, itself where it is no consumer."""
    produce = consume.operands[0].owner
    found = list(range(cores))
    for group in tile_sets.groups(consume.operands[0].type.groups) or ():
        everyone = tile_sets.members(produce.attributes["producer_tiles_per_group"], (group,)) or ()
        for consumer in tile_sets.members(consume.attributes["consumer_tiles_per_group"], (group,)) or ():
            own = tile_sets.members(consume.attributes[_DEPENDS], (consumer, group)) if _DEPENDS in consume.attributes else everyone
            (found[consumer],) = own or (-1,)
    return tuple(found)


def one_corelet(x: Footprint) -> Footprint:
    """Where the second corelet's result is dropped."""
    corelet = np.broadcast_to(np.arange(x.corelets)[:, None], (x.corelets, x.inner.size))
    return replace(x, limits=(*x.limits, Limit(corelet, number(1).at, False)))


def refuse(op: ir.Operation, text: str) -> NoReturn:
    """Raise Unsupported for an op that cannot be compared."""
    raise refused(op, text)
