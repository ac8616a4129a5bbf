"""Index values of a kernel on every core and in every trip at once: plain arrays, one axis for the cores and one for each loop level.

Nothing is solved in closed form: an op on indices is the same op on arrays, and an axis on which a value does not depend has length 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.mlir import ir

Ints = NDArray[np.int64]
LEVELS = 8
AXES = 1 + LEVELS
"""Cores, then the levels from the outermost loop inwards."""
MAX_POINTS = 1 << 24
"""Cores times trips that a value may depend on."""


@dataclass(frozen=True)
class Index:
    """A value at each point of the grid, counted from the start of an argument of the kernel if it is an address."""

    at: Ints
    argument: int | None = None

    @property
    def number(self) -> int | None:
        """The value where it is one number; None if it depends on anything."""
        return int(self.at.flat[0]) if self.argument is None and (self.at == self.at.flat[0]).all() else None


def number(value: int) -> Index:
    """The same number everywhere."""
    return Index(np.full((1,) * AXES, value, np.int64))


def along(axis: int, values: Ints) -> Ints:
    """Values along one axis of the grid."""
    shape = [1] * AXES
    shape[axis] = -1
    return values.astype(np.int64).reshape(shape)


def points(levels: set[int], trips: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """All values of the counters of some levels."""
    order = sorted(levels)
    for at in np.ndindex(*(trips[level] for level in order)):
        yield dict(zip(order, at, strict=True))


def levels_of(x: Ints) -> set[int]:
    """Levels on whose counter an array depends."""
    return {level for level in range(LEVELS) if x.shape[1 + level] > 1}


def taken(x: Ints, counters: Mapping[int, int]) -> Ints:
    """Per core the values at some counters; those that are left out are 0, and do not matter."""
    return x[(slice(None), *(min(counters.get(level, 0), x.shape[1 + level] - 1) for level in range(LEVELS)))]


def _unsigned(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(a.view(np.uint64), b.view(np.uint64))


_RELATIONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
"""Signed and equal ones, in the order of the predicates of `arith.cmpi`; the unsigned ones follow them."""


def relation(compare: ir.Operation) -> Callable[[Any, Any], Any]:
    """What an `arith.cmpi` asks, of arrays of 64-bit integers."""
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    return _RELATIONS[predicate] if predicate < 6 else _unsigned(_RELATIONS[predicate - 4])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arith.muli": np.multiply,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.minui": _unsigned(np.minimum),
    "arith.maxui": _unsigned(np.maximum),
    "arith.divui": _unsigned(np.floor_divide),
    "arith.remui": _unsigned(np.remainder),
    "arith.floordivsi": np.floor_divide,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.select": lambda c, a, b: np.where(c != 0, a, b),
    "arith.divsi": lambda a, b: np.trunc(np.true_divide(a, b)),
    "arith.remsi": np.fmod,
    "arith.ceildivsi": lambda a, b: -np.floor_divide(-a, b),
    "arith.ceildivui": lambda a, b: -np.floor_divide(-a, b),
    **dict.fromkeys(("arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui"), lambda a: a),
}


class Grid:
    """Evaluates the indices of one kernel on all tiles of its grid; loops are entered before what is inside of them is asked for."""

    def __init__(self, function: ir.Operation) -> None:
        self.grid = [ir.IntegerAttr(n).value for n in ir.ArrayAttr(function.attributes["grid"])]
        self.cores = prod(self.grid)
        arguments = enumerate(function.regions[0].blocks[0].arguments)
        self._known: dict[ir.Value, Index] = {a: Index(number(0).at, i) for i, a in arguments}

    def enter(self, induction: ir.Value, lower: int, step: int, trips: int, level: int) -> None:
        """The induction variable of a loop."""
        if level >= LEVELS:
            raise Unsupported(f"a loop stands in {level} others, but there are {LEVELS} counters")
        self._known[induction] = Index(along(1 + level, lower + step * np.arange(trips)))

    def __call__(self, value: ir.Value) -> Index:
        if value not in self._known:
            self._known[value] = self._evaluate(value)
        return self._known[value]

    def affine(self, e: ir.AffineExpr, dims: list[Index], op: ir.Operation) -> Index:
        """An affine expression over dims."""
        if isinstance(e, ir.AffineDimExpr):
            return dims[ir.AffineDimExpr(e).position]
        if isinstance(e, ir.AffineConstantExpr):
            return number(ir.AffineConstantExpr(e).value)
        if isinstance(e, ir.AffineAddExpr):
            return self.sum(self.affine(e.lhs, dims, op), self.affine(e.rhs, dims, op), op)
        if isinstance(e, ir.AffineMulExpr):
            a, b = self.affine(e.lhs, dims, op), self.affine(e.rhs, dims, op)
            return Index(self._apply(np.multiply, op, a, b))
        raise refused(op, "has a subscript that is not linear")

    def sum(self, a: Index, b: Index, op: ir.Operation, sign: int = 1) -> Index:
        """a + b, or a - b, of which one may be an address; of their difference none is left."""
        if a.argument is not None and b.argument is not None:
            raise refused(op, "adds two addresses")
        return Index(self._apply(lambda x, y: x + sign * y, op, Index(a.at), Index(b.at)), b.argument if a.argument is None else a.argument)

    def _apply(self, function: Callable[..., Any], op: ir.Operation, *operands: Index) -> Ints:
        if any(x.argument is not None for x in operands):
            raise refused(op, "computes with an address")
        shape = np.broadcast_shapes(*(x.at.shape for x in operands))
        if np.prod(shape, dtype=np.int64) > MAX_POINTS:
            raise refused(op, f"has more than {MAX_POINTS} values over all cores and trips")
        with np.errstate(divide="ignore"):
            return np.asarray(function(*(x.at for x in operands))).astype(np.int64)

    def _evaluate(self, value: ir.Value) -> Index:
        if isinstance(value.owner, ir.Block):
            raise refused(value.owner.owner.operation, "carries an index through a loop")
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if op.name == "arith.constant":
            held = op.attributes["value"]
            return number(int(ir.BoolAttr(held).value if isinstance(held, ir.BoolAttr) else ir.IntegerAttr(held).value))
        if op.name == ktdp.GetComputeTileIdOp.OPERATION_NAME:
            faster = prod(self.grid[ir.OpResult(value).result_number + 1 :])
            return Index(along(0, np.arange(self.cores) // faster % self.grid[ir.OpResult(value).result_number]))
        operands = [self(v) for v in op.operands]
        if op.name in ("arith.addi", "arith.subi"):
            a, b = operands
            return self.sum(a, b, op, sign=1 if op.name == "arith.addi" else -1)
        if op.name == "arith.cmpi":
            return Index(self._apply(relation(op), op, *operands))
        if op.name not in _FUNCTIONS:
            raise refused(op, "computes an index")
        return Index(self._apply(_FUNCTIONS[op.name], op, *operands))
