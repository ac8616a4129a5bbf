"""Index values of a kernel at every point: on each tile of its grid, in each trip of the loops that are open.

Arrays have an axis for the tiles and one for each open loop; one on which a value does not depend has length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.arithmetic.integers import PREDICATES, compare
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.mlir import arith, ir, is_a, named, names

Numbers = NDArray[np.int64]
MOST = 1 << 22
"""Points of one value."""


def _unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(a.astype(np.uint64), b.astype(np.uint64)).astype(np.int64)


def _toward_zero(a: Any, b: Any) -> Any:
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


FUNCTIONS: Mapping[str, Callable[..., Any]] = named(
    {
        arith.AddIOp: np.add,
        arith.SubIOp: np.subtract,
        arith.MulIOp: np.multiply,
        arith.MinSIOp: np.minimum,
        arith.MaxSIOp: np.maximum,
        arith.MinUIOp: _unsigned(np.minimum),
        arith.MaxUIOp: _unsigned(np.maximum),
        arith.DivUIOp: _unsigned(np.floor_divide),
        arith.RemUIOp: _unsigned(np.remainder),
        arith.DivSIOp: _toward_zero,
        arith.RemSIOp: lambda a, b: a - b * _toward_zero(a, b),
        arith.FloorDivSIOp: np.floor_divide,
        arith.CeilDivSIOp: lambda a, b: -(-a // b),
        arith.CeilDivUIOp: lambda a, b: -(-a // b),
        arith.AndIOp: np.bitwise_and,
        arith.OrIOp: np.bitwise_or,
        arith.XOrIOp: np.bitwise_xor,
        arith.SelectOp: lambda c, a, b: np.where(c != 0, a, b),
    }
)
"""What an op on indices does to arrays of them; `arith.cmpi` asks its predicate."""

CASTS = names(arith.IndexCastOp, arith.IndexCastUIOp, arith.ExtSIOp, arith.ExtUIOp)
"""Ops that leave a number as it is, where it fits."""


def function_of(op: ir.Operation) -> Callable[..., Any] | None:
    """The same of an op; None for one that does not compute with indices."""
    if is_a(op, arith.CmpIOp):
        test = compare(PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value], "index")
        return lambda a, b: np.asarray(test(a, b)).astype(np.int64)
    return (lambda a: a) if op.name in CASTS else FUNCTIONS.get(op.name)


def is_index(type_: ir.Type) -> bool:
    """Whether a value of this type counts or decides."""
    return isinstance(type_, ir.IndexType | ir.IntegerType)


MOST_TILES = 1 << 20
"""Tiles of a grid whose numbers are looked at one by one."""


class Points:
    """Evaluates index values of one kernel; loops are opened before what is inside of them is asked for."""

    def __init__(self, function: ir.Operation, given: Mapping[int, int]) -> None:
        """`given`: the numbers that arguments are, by position."""
        self.kernel = KernelFunction(function)
        if self.kernel.cores > MOST_TILES:
            raise refused(function, f"has a grid of {self.kernel.cores} tiles, more than {MOST_TILES}")
        arguments = function.regions[0].blocks[0].arguments
        self.known: dict[ir.Value, Numbers] = {arguments[i]: np.full((1,), n, np.int64) for i, n in given.items()}
        self.live = np.ones((self.kernel.cores,), bool)
        """Where the text that is being read runs."""

    def __call__(self, value: ir.Value) -> Numbers:
        """The numbers. Raises Unsupported for what is not computed from numbers and coordinates of the tile."""
        if value not in self.known:
            self.known[value] = self._evaluated(value)
        found = self.known[value]
        return found.reshape(found.shape + (1,) * (self.live.ndim - found.ndim))

    def number(self, value: int | ir.Value) -> Numbers:
        return np.full((1,) * self.live.ndim, value, np.int64) if isinstance(value, int) else self(value)

    def affine(self, expression: ir.AffineExpr, operands: Sequence[ir.Value | Numbers]) -> Numbers:
        """An affine expression over dims."""
        if isinstance(expression, ir.AffineDimExpr):
            operand = operands[ir.AffineDimExpr(expression).position]
            return operand if isinstance(operand, np.ndarray) else self(operand)
        if isinstance(expression, ir.AffineConstantExpr):
            return self.number(expression.value)
        binary = ir.AffineBinaryExpr(expression)
        a, b = self.affine(binary.lhs, operands), self.affine(binary.rhs, operands)
        kinds = ((ir.AffineAddExpr, np.add), (ir.AffineMulExpr, np.multiply), (ir.AffineModExpr, np.remainder))
        for kind, function in (*kinds, (ir.AffineFloorDivExpr, np.floor_divide)):
            if isinstance(expression, kind):
                return function(a, b)
        return -(-a // b)

    def same(self, numbers: Numbers, live: NDArray[np.bool_] | None = None) -> int | None:
        """The one number that a value is wherever its text runs, now or as it was at `live`; None if there are several."""
        live = self.live if live is None else live
        found = np.broadcast_to(numbers, live.shape)[live]
        return int(found[0]) if found.size and (found == found[0]).all() else None

    def counters(self, lower: Numbers, step: int, trips: int, op: ir.Operation) -> Numbers:
        """The numbers of a loop's counter, along an axis of its trips. Raises Unsupported for more points than are looked at."""
        if trips * self.live.size > MOST:
            raise refused(op, f"has up to {trips} trips, which are more than {MOST} with those of all tiles and loops around it")
        return lower[..., None] + step * np.arange(trips)

    @contextmanager
    def loop(self, counter: ir.Value, numbers: Numbers, live: NDArray[np.bool_]) -> Iterator[None]:
        """Open a loop: `numbers` of its counter and where its body runs have one axis more, the trips."""
        outer, known = self.live, dict(self.known)
        self.live, self.known[counter] = live, numbers
        try:
            yield
        finally:
            self.live, self.known = outer, known

    @contextmanager
    def branch(self, live: NDArray[np.bool_]) -> Iterator[None]:
        """Read what runs at some points only."""
        outer = self.live
        self.live = outer & live
        try:
            yield
        finally:
            self.live = outer

    def _evaluated(self, value: ir.Value) -> Numbers:
        owner = value.owner
        if isinstance(owner, ir.Block):
            function = owner.owner
            number = ir.BlockArgument(value).arg_number
            raise refused(function, f"expects a number for argument #{number}, which decides what the kernel does")
        if is_a(owner, arith.ConstantOp):
            held = owner.attributes["value"]
            return self.number(int(held.value if isinstance(held, ir.BoolAttr) else ir.IntegerAttr(held).value))
        if is_a(owner, ktdp.GetComputeTileIdOp):
            at = np.array(self.kernel.coordinate(ir.OpResult(value).result_number), np.int64)
            return at.reshape((-1,) + (1,) * (self.live.ndim - 1))
        function = function_of(owner)
        if function is None:
            raise refused(owner, "computes an index in a way that is not known before the kernel starts")
        operands = [self(v) for v in owner.operands]
        with np.errstate(divide="ignore"):
            found = np.asarray(function(*operands)).astype(np.int64)
        if isinstance(value.type, ir.IntegerType) and value.type.width > 1 and (np.abs(found) >= 1 << (value.type.width - 1)).any():
            raise refused(owner, f"gives numbers that are none of '{value.type}'")
        return found
