"""Places that data decides, where no instruction looks them up as the author has them: several look-ups in one tile, subscripts that are
computed from what is loaded. A kernel before the author's computes them, as his text does, and stores them to tables; he then looks one
dim up. What is looked up to compute such places is a table of an earlier kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from ktir.analysis.interface.parameters import bytes_of
from ktir.analysis.points import is_index
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import arith, func, ir, is_a, scf
from ktir.passes.pinning.values.indirect import is_linear

_TILES = (ktdp.ConstructAccessTileOp, ktdp.ConstructIndirectAccessTileOp)


@dataclass(eq=False)
class Table:
    """The places of one tile: on each tile of the grid, in each trip, at each position along what looks them up."""

    tile: ir.Operation
    number: int
    level: int
    """How many tables it is computed from, one after the other."""
    needed: set[ir.Operation] = field(default_factory=set)
    """The ops that compute it."""
    shape: tuple[int, ...] = ()
    """Known when it is written."""

    def is_in(self, op: ir.Operation) -> bool:
        """Whether its tile is in a region of an op."""
        parent = self.tile.parent
        while parent is not None and parent.operation != op:
            parent = parent.operation.parent
        return parent is not None


class Tables:
    """Those of a kernel."""

    def __init__(self, kernel: func.FuncOp, room: int) -> None:
        """`room`: bytes of the scratchpad. Raises Unsupported."""
        self.room = room
        self.of: dict[ir.Operation, Table] = {}
        self._data: dict[ir.Value, bool] = {}
        for op in _inside(kernel.regions[0].blocks[0]):
            if is_a(op, *_TILES) and self._needs(op):
                self._add(op, kernel)

    @property
    def levels(self) -> list[list[Table]]:
        """Those that are computed together, in order."""
        found: dict[int, list[Table]] = {}
        for table in self.of.values():
            found.setdefault(table.level, []).append(table)
        return [found[level] for level in sorted(found)]

    def is_data(self, value: ir.Value) -> bool:
        """Whether an index is computed from what is loaded."""
        if value not in self._data:
            self._data[value] = not is_index(value.type) or (
                not isinstance(value.owner, ir.Block) and any(self.is_data(v) for v in value.owner.operands)
            )
        return self._data[value]

    def _needs(self, tile: ir.Operation) -> bool:
        if is_a(tile, ktdp.ConstructAccessTileOp):
            return any(self.is_data(v) for v in tile.opview.index_operands)
        view, box = tile.opview, affine.set_box(tile.attributes["variables_space_set"])
        looked_up = [memory for _, memory in view.subscripts if memory is not None]
        computed = [m.results[0] for m, memory in view.subscripts if memory is None]
        uneven = box is not None and not all(is_linear(e, len(view.captured), box[1]) for e in computed)
        return len(looked_up) > 1 or uneven or any(self.is_data(v) for v in view.captured)

    def _add(self, tile: ir.Operation, kernel: func.FuncOp) -> None:
        element = ir.MemRefType(tile.operands[0].type).element_type
        size = prod(tile.opview.shape) * bytes_of(str(element))
        if size > self.room:
            raise refused(
                tile, f"is of {size} bytes, but the scratchpad has {self.room}; the nearest supported form is a loop over its parts"
            )
        table = Table(tile, len(self.of), 0)
        indices = tile.opview.index_operands if is_a(tile, ktdp.ConstructAccessTileOp) else tile.opview.captured
        for value in indices:
            self._collect(value, table)
        for loop in _around(tile):
            self._collect(loop.operands[1], table)
        read = {m for op in table.needed if is_a(op, ktdp.LoadOp) for m in _memory(op.operands[0])}
        if is_a(tile, ktdp.ConstructIndirectAccessTileOp):
            read |= {m for _, view in tile.opview.subscripts if view is not None for m in _memory(view)}
        for op in _inside(kernel.regions[0].blocks[0]):
            if is_a(op, ktdp.StoreOp) and _meet(read, _memory(op.operands[1].owner.operands[0])):
                raise refused(op, "stores to memory from which places are computed, which is not pinned yet")
        self.of[tile] = table

    def _collect(self, value: ir.Value, table: Table) -> None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            if not is_index(value.type):
                raise refused(table.tile, "has a place that depends on what a loop carries, which is not pinned yet")
            return
        op = owner.operation
        if op in table.needed or not (self.is_data(value) or is_a(op, *_TILES)):
            return
        if is_a(op, scf.ForOp, scf.IfOp) or op.name.startswith("ktdp.inter_tile"):
            raise refused(table.tile, "has a place that depends on what a loop carries or what tiles exchange, which is not pinned yet")
        table.needed.add(op)
        if is_a(op, *_TILES):
            if op in self.of:
                table.level = max(table.level, self.of[op].level + 1)
                table.needed |= self.of[op].needed
            return
        inner = [v for region in op.regions for block in region.blocks for o in _inside(block) for v in o.operands]
        own = {r for region in op.regions for block in region.blocks for o in _inside(block) for r in o.results}
        arguments = {a for region in op.regions for block in region.blocks for a in block.arguments}
        for operand in [*op.operands, *(v for v in inner if v not in own and v not in arguments)]:
            self._collect(operand, table)


def _inside(block: ir.Block) -> Iterator[ir.Operation]:
    for view in block.operations:
        yield view.operation
        for region in view.operation.regions:
            for inner in region.blocks:
                yield from _inside(inner)


def _around(op: ir.Operation) -> Iterator[ir.Operation]:
    """The loops that an op is in."""
    parent = op.parent
    while parent is not None and not is_a(parent.operation, func.FuncOp):
        if is_a(parent.operation, scf.ForOp):
            yield parent.operation
        parent = parent.operation.parent


_Memory = set[ir.Value | tuple[int, str] | None]


def _memory(value: ir.Value) -> _Memory:
    """The arguments that the address of a tile or a view is computed from, or the number that it is with its elements; None for one that is
    computed from numbers."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return {value} if is_a(owner.owner.operation, func.FuncOp) else {None}
    if is_a(owner, ktdp.ConstructMemoryViewOp) and is_a(owner.operands[0].owner, arith.ConstantOp):
        return {(ir.IntegerAttr(owner.operands[0].owner.attributes["value"]).value, str(owner.opview.element_type))}
    alone = is_a(owner, *_TILES, ktdp.ConstructMemoryViewOp)  # what follows are indices and sizes
    found = {m for operand in list(owner.operands)[: 1 if alone else None] for m in _memory(operand)}
    if is_a(owner, *_TILES, ktdp.ConstructDistributedMemoryViewOp):
        return found
    return {m for m in found if isinstance(m, ir.Value)} or {None}


def _meet(a: _Memory, b: _Memory) -> bool:
    """Whether two may be the same memory. What begins at two numbers does not overlap: that is checked."""
    any_number = any(None in x and any(not isinstance(m, ir.Value) for m in y) for x, y in ((a, b), (b, a)))
    return any_number or bool(a & b)
