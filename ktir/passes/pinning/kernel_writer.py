"""One kernel of an author, written again at the tiled level: his tiles, loops and branches, with every tensor in sticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.interface.parameters import bytes_of
from ktir.analysis.points import Points, function_of, is_index
from ktir.diagnostics import refused
from ktir.dialects import ktdp, spyreop
from ktir.dialects.structured import index_constant
from ktir.dialects.vector_kinds import is_scalar_op
from ktir.mlir import arith, func, ir, is_a, scf
from ktir.passes.pinning.accesses import loaded, stored
from ktir.passes.pinning.branches import write_branches
from ktir.passes.pinning.data import computed, counted, is_wanted, note_counted
from ktir.passes.pinning.exchanges.missing import Missing
from ktir.passes.pinning.exchanges.writing import DELIVERIES, deliver, produce
from ktir.passes.pinning.loops import MOST_COPIES, check_inside, holds, inside, write_loop
from ktir.passes.pinning.scratchpad import AuthorScratchpad
from ktir.passes.pinning.slices import slice_reduced
from ktir.passes.pinning.structured_values import Undefined, structured
from ktir.passes.pinning.tables import Table, Tables
from ktir.passes.pinning.values.counted import Integers
from ktir.passes.pinning.values.elements import Apply, Element, Leaf, Number, Value, content
from ktir.passes.pinning.values.indirect import IndirectPlace
from ktir.passes.pinning.values.narrowed import applied, literal
from ktir.passes.pinning.values.places import Place
from ktir.passes.pinning.values.tensors import Shared, common_dims, place_here
from ktir.passes.pinning.values.views import View, Window, address, check_begins, seen

TILES = (ktdp.ConstructAccessTileOp, ktdp.ConstructIndirectAccessTileOp)
_VIEWS = (ktdp.ConstructMemoryViewOp, ktdp.ConstructDistributedMemoryViewOp, *TILES)
_SEEN = (ktdp.StoreOp, ktdp.InterTileProduceOp, *DELIVERIES)
"""What others see of a tile."""


class KernelWriter:
    """Writes the body of a kernel at the insertion point."""

    def __init__(
        self,
        source: func.FuncOp,
        arguments: Mapping[ir.Value, ir.Value],
        given: Mapping[int, float],
        cores: int,
        fixed: Mapping[tuple[int, int], ir.Value],
        made: func.FuncOp,
        tables: Tables,
        wanted: Sequence[Table] | None,
        by_rows: frozenset[ir.Operation],
    ) -> None:
        """`fixed`: the argument for memory at an address that the author has as a number, with the bytes of its elements; `made`: what is
        written, whose last arguments are `tables`. `wanted`: write nothing but what computes these. `by_rows`: of `AuthorScratchpad`."""
        self.source, self.fixed, self.tables, self.wanted = source, fixed, tables, wanted
        last = list(made.regions[0].blocks[0].arguments)[-len(tables.of) :] if tables.of else []
        self.table_of = dict(zip(tables.of.values(), last, strict=True))
        self.trips: list[tuple[ir.Value, int]] = []
        """Of the loops that are open: the number of the trip, and how many there are."""
        self.alive: Element | None = None
        """Whether the author makes the trip that is being written, where data says how many there are."""
        body = source.regions[0].blocks[0]
        self.points = Points(source.operation, {i: int(n) for i, n in given.items() if is_index(body.arguments[i].type)})
        self.tiles = prod(self.points.kernel.grid)
        self.cores = min(self.tiles, cores)
        self.mapping: dict[ir.Value, ir.Value] = dict(arguments)
        self.values: dict[ir.Value, Value] = {}
        self.scratchpad = AuthorScratchpad(by_rows)
        self.missing = Missing()
        self.written = 0
        """Ops of the author's, those of a loop once per form that is tried."""
        self.guard: ir.Value | None = None
        """1 on the tiles that run what is being written, 0 on the others; None: all run it."""
        self.coordinates: list[ir.Value] = []
        self.turn = 0
        """Of the tiles over the cores."""
        with source.location:
            self.integers = Integers(made, self.points)
            for i, number in given.items():
                type_ = body.arguments[i].type
                if is_index(type_):
                    self.mapping[body.arguments[i]] = arith.ConstantOp(type_, ir.IntegerAttr.get(type_, int(number))).result
                elif not isinstance(type_, ktdp.RuntimeArgType):
                    self.values[body.arguments[i]] = Value((), Number(type_, ir.FloatAttr.get(type_, number)))

    @property
    def grid(self) -> list[int]:
        """The grid of the new kernel: the author's, if there are as many cores."""
        return list(self.points.kernel.grid) if self.tiles == self.cores else [self.cores]

    @property
    def idle(self) -> ir.Value | None:
        """The guard of a turn of fewer tiles than there are cores, which runs the last one on those that have none."""
        return self.scratchpad.idle

    def write(self) -> None:
        """All turns of the tiles over the cores."""
        body = self.source.regions[0].blocks[0]
        ids = ktdp.get_compute_tile_id(len(self.grid))
        self.core = ids[0]
        whole, rest = divmod(self.tiles, self.cores)
        if self.tiles == self.cores:
            self.coordinates = ids
            self.block(body)
        elif len(self.points.kernel.grid) == 1 and not _branches_by_tile(body):
            loop = scf.ForOp(index_constant(0), index_constant(whole), index_constant(1))
            with ir.InsertionPoint(loop.body):
                before = arith.MulIOp(loop.induction_variable, index_constant(self.cores)).result
                self.coordinates = [arith.AddIOp(ids[0], before).result]
                self.block(body)
                scf.YieldOp([])
        elif whole + (rest > 0) > MOST_COPIES:
            raise refused(self.source.operation, f"has {self.tiles} tiles, which takes {self.cores} cores more than {MOST_COPIES} turns")
        else:
            for turn in range(whole):
                self._turn(ids[0], turn, body)
        if rest:
            self._last_turn(ids[0], whole, body)
        func.ReturnOp([])

    def _turn(self, core: ir.Value, turn: int, body: ir.Block) -> None:
        self.turn = turn
        self._at(arith.AddIOp(core, index_constant(turn * self.cores)).result)
        self.block(body)

    def _last_turn(self, core: ir.Value, turn: int, body: ir.Block) -> None:
        """Cores without a tile do what the last one does, and keep it to themselves."""
        self.turn = turn
        number = arith.AddIOp(core, index_constant(turn * self.cores)).result
        left = arith.SubIOp(index_constant(self.tiles), arith.MinSIOp(number, index_constant(self.tiles)).result).result
        self.guard = self.scratchpad.idle = arith.MinSIOp(left, index_constant(1)).result
        self._at(arith.MinSIOp(number, index_constant(self.tiles - 1)).result)
        self.block(body)
        self.guard = None

    def _at(self, number: ir.Value) -> None:
        """The coordinates of a tile by its number, the last one the fastest."""
        grid = self.points.kernel.grid
        self.coordinates = []
        for d, extent in enumerate(grid):
            faster = prod(grid[d + 1 :])
            at = number if faster == 1 else arith.DivUIOp(number, index_constant(faster)).result
            self.coordinates.append(at if d == 0 else arith.RemUIOp(at, index_constant(extent)).result)

    # Ops

    def block(self, block: ir.Block) -> None:
        for view in block.operations:
            with view.operation.location:
                self.missing.forget(view.operation)
                self.op(view.operation)
                if is_a(view.operation, scf.IfOp) and len(view.operation.results):
                    if self.missing.of:
                        self.missing.branches(view.operation, self._taken(view.operation.operands[0]))
                else:
                    self.missing.note(view.operation, self.points.live)

    def _taken(self, condition: ir.Value) -> NDArray[np.bool_]:
        """Where a condition holds; where data decides, it may and may not on each tile."""
        if self.tables.is_data(condition):
            return np.array([[True, False]] * self.tiles)
        return np.broadcast_to(self.points(condition) != 0, self.points.live.shape)

    def op(self, op: ir.Operation) -> None:
        if self.wanted is not None and not is_wanted(self, op):
            return
        self.written += 1
        if self.alive is not None and is_a(op, *_SEEN):
            what = "stands where data decides whether it runs, which is not pinned yet"
            raise refused(op, f"{what}; the nearest supported form runs always, and masks")
        if is_a(op, ktdp.GetComputeTileIdOp):
            self.mapping.update(zip(op.results, self.coordinates, strict=False))
        elif is_a(op, *_VIEWS, func.ReturnOp, scf.YieldOp):
            pass  # views and tiles are built where memory is accessed
        elif is_a(op, ktdp.LoadOp):
            places = self._places(op, op.operands[0])
            local = places[0][0].view.local
            self.values[op.results[0]] = self.scratchpad.loaded(op, places[0][0]) if local else loaded(op, places)
        elif is_a(op, ktdp.StoreOp):
            places, value = self._places(op, op.operands[1]), self.value(op.operands[0], op)
            if places[0][0].view.local:
                self.scratchpad.stored(op, value, places[0][0], lambda guard: holds(self.integers, guard, op))
            else:
                stored(op, value, places)
        elif is_a(op, scf.ForOp):
            write_loop(self, op)
        elif is_a(op, scf.IfOp):
            write_branches(self, op)
        elif is_a(op, ktdp.InterTileProduceOp):
            produce(self, op)
        elif is_a(op, *DELIVERIES):
            deliver(self, op)
        elif op.results and all(is_index(r.type) for r in op.results) and all(v in self.mapping for v in op.operands):
            self._index(op)
        else:
            self._tensor(op)

    def _index(self, op: ir.Operation) -> None:
        """Index arithmetic stays as it is."""
        if not is_a(op, arith.ConstantOp) and function_of(op) is None:
            raise refused(op, "computes an index in a way that is not known before the kernel starts")
        clone = op.clone()
        for i, operand in enumerate(op.operands):
            clone.operands[i] = self.mapping[operand]
        self.mapping[op.results[0]] = clone.results[0]

    def _tensor(self, op: ir.Operation) -> None:
        """Ops on tensors, and on numbers that are data."""
        note_counted(self, op)
        found = slice_reduced(self, op) if is_a(op, spyreop.SliceReductionOp) else structured(op, self.values)
        if found is None and is_scalar_op(op) and len(op.results) == 1:
            found = self._elementwise(op)
        if found is None:
            raise refused(op, "is not pinned yet")
        if isinstance(found, Value) and self._is_kept(op.results[0], found):
            shared = Shared(found, place_here(), op)
            found = Value(found.shape, Leaf(found.type, shared, tuple(range(len(found.shape)))))
        if not isinstance(found, Undefined):
            self.values[op.results[0]] = found

    def _elementwise(self, op: ir.Operation) -> Value:
        type_ = op.results[0].type
        shape = tuple(ir.RankedTensorType(type_).shape) if isinstance(type_, ir.RankedTensorType) else ()
        element = ir.RankedTensorType(type_).element_type if isinstance(type_, ir.RankedTensorType) else type_
        if is_a(op, arith.ConstantOp):
            held = op.attributes["value"]
            if isinstance(held, ir.DenseElementsAttr):
                if not held.is_splat:
                    raise refused(op, "expects a constant tensor of one number; the nearest supported form loads the others")
                held = held.get_splat_value()
            return Value(shape, literal(element, held, op))
        operands, shape = common_dims(list(op.operands), [self.value(v, op) for v in op.operands], shape, op)
        return Value(shape, applied(element, op, tuple(v.element for v in operands)))

    def counted(self, value: ir.Value, op: ir.Operation) -> Element:
        """What an index is as data. Raises Unsupported, which names `op`."""
        return counted(self, value, op)

    def value(self, value: ir.Value, op: ir.Operation) -> Value:
        """What a tensor or a scalar is. Raises Unsupported, which names `op`."""
        return content(value, self.values, op)

    def _is_kept(self, result: ir.Value, value: Value) -> bool:
        """Whether a value becomes a tensor: it takes work, and is read several times."""
        if not isinstance(value.element, Apply) or is_a(value.element.op, arith.ExtFOp) or str(value.type) == "i1":
            return False
        uses = list(result.uses)
        return len(uses) > 1 or any(u.owner.operation.block != result.owner.operation.block for u in uses)

    def _places(self, access: ir.Operation, tile: ir.Value) -> list[tuple[Place, Window]]:
        """Where the tile of an access lies, in the order of the parts of its view."""
        op = tile.owner.operation
        if not is_a(op, *TILES):
            raise refused(op, "is not pinned yet")
        if self.alive is None:  # what is not made where data says so may lie anywhere
            check_inside(access, op, self.points, self.tables)
        if op in self.tables.of:
            place, table = computed(self, self.tables.of[op])
            return place.looked_up(table).pieces()
        index = self.mapping.__getitem__
        if is_a(op, ktdp.ConstructIndirectAccessTileOp):
            return IndirectPlace(op, self.points, self.base, index, self.guard).pieces()
        views = seen(op, self.points)
        if self.alive is None:
            check_begins(access, op, views, self.points)
        return [(Place(op, view, window, self.points, self.base(view), index, self.guard), window) for view, window in views]

    def base(self, view: View) -> ir.Value:
        """Where a view begins. Raises Unsupported."""
        argument, offset = address(view.value, self.points)
        number = self.points.same(offset)
        fixed = None if argument is not None or number is None or view.local else self.fixed.get((number, bytes_of(str(view.element))))
        if argument is None and fixed is None and not view.local:
            raise refused(view.operation, "expects an address that is an argument, with what is added to it, or the same number everywhere")
        return self.mapping[view.value] if fixed is None else fixed


def _branches_by_tile(body: ir.Block) -> bool:
    """Whether what a tile does, or exchanges, may depend on its number, so that no turn is like another one."""
    loops = [op for op in inside(body) if is_a(op, scf.ForOp)]
    by_number = any(not is_a(v.owner, arith.ConstantOp) for loop in loops for v in list(loop.operands)[:2])
    return by_number or any(is_a(op, scf.IfOp, ktdp.InterTileProduceOp) for op in inside(body))
