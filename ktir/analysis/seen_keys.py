"""Which keys the rows of a softmax see, where a mask says so by positions: causal, a sliding window, and whatever else is compared.

A mask is minus infinity, chosen or added. Where a score is that for a whole block of rows and keys, the block leaves the largest score, the
sums of weights and their products as they are: its weights are exp(-inf) = 0. What such weights would be multiplied with is taken to be
finite, as PyTorch's own kernels of attention do, which skip these blocks too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.axes import row_loops
from ktir.analysis.calls import argument_attributes, functions_of, launches, root_of, text_attribute
from ktir.analysis.core_numbers import CoreNumbers, Numbers, Unknown
from ktir.analysis.scalars.expressions import hiding
from ktir.analysis.scalars.intervals import Bounds, scalar, unknown
from ktir.cost.softmax import Sticks
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, loop_extents
from ktir.mlir import arith, func, ir, is_a, linalg
from ktir.target import LANES

Seen = NDArray[np.bool_]
"""Per block of rows and stick of keys whether some row may see some key."""


def hull(seen: Seen) -> list[Sticks]:
    """Per block of rows the sticks from the first one that is seen to the last one."""
    return [Sticks.around(Sticks(int(stick), 1) for stick in row.nonzero()[0]) for row in seen]


def keys_of_rows(g: Generic) -> tuple[Sticks, ...]:
    """Per 64 rows of the innermost row loop the sticks of keys that are seen, if an op is a reduction to the largest score under a mask."""
    if g.combiner != "max" or "parallel" not in g.iterators:
        return ()
    seen = seen_keys(g.op.parent.opview, g, LANES)
    return () if seen is None else tuple(hull(seen))


def seen_keys(function: func.FuncOp, most: Generic, block: int) -> Seen | None:
    """What each block of so many rows sees, on any core; None where no block of rows and keys is hidden, or none is known to be.

    `most` is the reduction to the largest score, of a flat or laid-out function, or of a divided kernel. Rows are its innermost row loop,
    as far as one core has them.
    """
    looked = _look(function, most, block)
    if looked is None:
        return None
    _, shape, score = looked
    hidden = np.broadcast_to(score.lowest, np.broadcast_shapes(score.lowest.shape, shape)).all(0)
    return np.asarray(~hidden) if hidden.any() else None


def open_keys(function: func.FuncOp, most: Generic, block: int) -> Seen:
    """Of which keys each block of so many rows sees all, on every core: no mask chooses minus infinity there."""
    looked = _look(function, most, block)
    assert looked is not None
    reader, shape, _ = looked
    masked = [np.broadcast_to(x, np.broadcast_shapes(x.shape, shape)).any(0) for x in reader.masked]
    return np.asarray(~np.any(masked, axis=0)) if masked else np.ones(shape[1:], dtype=bool)


def _look(function: func.FuncOp, most: Generic, block: int) -> tuple[_Reader, tuple[int, int, int], Bounds] | None:
    """What was read, how many blocks of rows and sticks of keys there are, on one core, and the scores of each; None where columns of keys
    are several loops."""
    loops = _loops(most)
    flat = not _in_sticks(most)
    row = [i for i, kind in enumerate(most.iterators) if kind == "parallel"][-1] if flat else row_loops(most)[-1]
    keys = [i for i, kind in enumerate(most.iterators) if kind == "reduction"]
    rows = loops.get(row, 1)
    first = np.arange(0, rows, block)[:, None]
    ranges = {loop: Bounds(np.asarray(0), np.asarray(n - 1)) for loop, n in loops.items()}
    ranges[row] = Bounds(first, np.minimum(first + block, rows) - 1)
    if flat:
        if len(keys) != 1:
            return None
        (key,) = keys
        at = np.arange(0, loops[key], LANES)[None]
        ranges[key] = Bounds(at, np.minimum(at + LANES, loops[key]) - 1)
    else:
        at = np.arange(loops[keys[0]])[None]
        ranges[keys[0]] = Bounds(at, at)
    reader = _Reader(function)
    score = reader.body(most, most.mapped, ranges)
    return reader, (1, len(first), at.shape[1]), score


def bounds_of(function: func.FuncOp, g: Generic, wanted: ir.Value) -> Bounds:
    """What a scalar of a body lies between, at all positions."""
    return _Reader(function).body(g, wanted, {loop: Bounds(np.asarray(0), np.asarray(n - 1)) for loop, n in _loops(g).items()})


def _in_sticks(g: Generic) -> bool:
    """Whether an op is laid out: then its result has a dim of sticks and one of lanes that no loop walks."""
    walk = g.walk(len(g.inputs))
    return len(walk) >= 2 and walk[0] is None and walk[-1] is None and g.iterators[-2:] == ["reduction", "reduction"]


def _loops(g: Generic) -> dict[int, int]:
    """Trips of each loop."""
    return dict(enumerate(loop_extents(g.op)))


class _Reader:
    """Bounds of the tensors of a function, at positions that are given as bounds."""

    def __init__(self, function: func.FuncOp) -> None:
        self.function = function
        self.arguments = list(function.regions[0].blocks[0].arguments)
        self.iotas = _iotas(function)
        self.masked: list[NDArray[np.bool_]] = []
        """Of each mask that was read, where it may choose minus infinity."""
        self.numbers = CoreNumbers(function.operation) if "grid" in function.attributes else None

    def body(self, g: Generic, wanted: ir.Value, ranges: Mapping[int, Bounds]) -> Bounds:
        """A scalar of a body."""
        known: dict[ir.Value, Bounds] = {}

        def of(value: ir.Value) -> Bounds:
            if value not in known:
                known[value] = self._operand(g, value, ranges) if isinstance(value.owner, ir.Block) else made(value.owner.operation)
            return known[value]

        def made(op: ir.Operation) -> Bounds:
            if is_a(op, linalg.IndexOp):
                return ranges[ir.IntegerAttr(op.attributes["dim"]).value]
            operands = [of(v) for v in op.operands]
            if is_a(op, arith.SelectOp) and (branch := hiding(op)):
                self.masked.append(operands[0].high > 0 if branch == 1 else operands[0].low < 1)
            return scalar(op, operands)

        return of(wanted)

    def _operand(self, g: Generic, argument: ir.Value, ranges: Mapping[int, Bounds]) -> Bounds:
        number = ir.BlockArgument(argument).arg_number
        if number == len(g.inputs):
            return unknown(argument.type)
        zero = Bounds.of(0)
        return self._tensor(g.inputs[number], [zero if loop is None else ranges[loop] for loop in g.walk(number)])

    def _tensor(self, value: ir.Value, at: Sequence[Bounds]) -> Bounds:
        """An element of a tensor."""
        element = ir.RankedTensorType(value.type).element_type
        op = value.owner
        if isinstance(op, ir.Block):
            return unknown(element)
        if is_a(op, linalg.FillOp) and is_a(op.operands[0].owner, arith.ConstantOp):
            return scalar(op.operands[0].owner.operation, [])
        if is_a(op, linalg.GenericOp) and (g := Generic(op.operation)).is_pointwise:
            walk = g.walk(len(g.inputs))
            return self.body(g, g.yielded, {loop: x for loop, x in zip(walk, at, strict=True) if loop is not None})
        if is_a(op, ktdp.LoadOp) and is_a(op.operands[0].owner, ktdp.ConstructAccessTileOp) and isinstance(element, ir.IntegerType):
            return self._loaded(op.operands[0].owner.opview, at) or unknown(element)
        return unknown(element)

    def _loaded(self, tile: ktdp.ConstructAccessTileOp, at: Sequence[Bounds]) -> Bounds | None:
        """Positions from memory that holds 0, 1, 2, ..: their own addresses. What lies beyond a view is no key and no row."""
        view = tile.base.owner.opview
        if not isinstance(view, ktdp.ConstructMemoryViewOp) or list(tile.order) != list(range(len(tile.shape))):
            return None
        strides = list(view.strides)
        if not all(isinstance(s, int) for s in strides) or any(isinstance(i, tuple) for i in tile.indices):
            return None
        try:
            argument, place = self._place(view.offset)
            for index, stride in zip(tile.indices, strides, strict=True):
                place = place + self._number(index) * stride
        except Unknown:
            return None
        if argument not in self.iotas:
            return None
        low = high = place.reshape(-1, 1, 1)
        for x, stride in zip(at, strides, strict=True):
            low, high = low + (x.low if stride > 0 else x.high) * stride, high + (x.high if stride > 0 else x.low) * stride
        return Bounds(low, high)

    def _place(self, offset: ir.Value) -> tuple[int | None, Numbers]:
        """The argument behind an address and the distance from it, per core."""
        if self.numbers is not None:
            found = self.numbers(offset)
            return found.argument, found.numbers
        distance = 0
        while not isinstance(offset.owner, ir.Block):
            if not is_a(offset.owner, arith.AddIOp) or not is_a(offset.owner.operands[1].owner, arith.ConstantOp):
                raise Unknown("its address is no constant distance from an argument")
            distance += ir.IntegerAttr(offset.owner.operands[1].owner.attributes["value"]).value
            offset = offset.owner.operands[0]
        return ir.BlockArgument(offset).arg_number, np.asarray([distance])

    def _number(self, index: int | ir.Value) -> Numbers | int:
        if isinstance(index, int):
            return index
        if self.numbers is None:
            raise Unknown("it is no constant")
        return self.numbers(index).numbers


def _iotas(function: func.FuncOp) -> set[int]:
    """Numbers of the arguments that hold 0, 1, 2, .. whenever the function runs."""
    own = argument_attributes(function)
    if any("ktir.role" in a for a in own):
        return {i for i, a in enumerate(own) if text_attribute(a, "ktir.role") == "iota"}
    module = function.operation.parent.opview
    runs = [run.arguments for run in launches(module) if run.kernel.name.value == function.name.value]
    roles = [text_attribute(a, "ktir.role") for a in argument_attributes(root_of(functions_of(module), function.location))]
    return {i for i in range(len(own)) if runs and all(roles[run[i]] == "iota" for run in runs)}
