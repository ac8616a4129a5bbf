"""Index arithmetic of a kernel as what an address generator can do.

A value of type `index` is a constant per core, plus at most one argument base, plus a step per loop level, plus at most one rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.points import MOST, function_of
from ktir.diagnostics import Unsupported, refused
from ktir.dialects import ktdp
from ktir.mlir import arith, ir, is_a, named


@dataclass(frozen=True)
class Rotation:
    """((sum of the counters of `levels`) mod `buffers`) * `step`; `levels` is a bit mask."""

    levels: int
    buffers: int
    step: int


@dataclass(frozen=True)
class Index:
    """constant[core] + argument + sum of steps[level] * counter[level] + rotation."""

    constant: np.ndarray
    argument: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    rotation: Rotation | None = None

    @property
    def is_constant(self) -> bool:
        """Whether it depends on the core alone."""
        return self.argument is None and not self.steps and self.rotation is None

    @property
    def is_uniform(self) -> bool:
        """Whether the constant part is the same on every core."""
        return bool((self.constant == self.constant.flat[0]).all())

    @property
    def scalar(self) -> int:
        """The constant of a uniform index."""
        return int(self.constant.flat[0])


def constant(value: int) -> Index:
    """The same number on every core."""
    return Index(np.array([value], np.int64))


class IndexEvaluator:
    """Evaluates index values of one kernel; loops are registered as they are entered."""

    def __init__(self, function: ir.Operation) -> None:
        self.kernel = KernelFunction(function)
        self.cores = self.kernel.cores
        self.trips: dict[int, int] = {}
        """Of the loops that are open, by level."""
        self.values: dict[ir.Value, Index] = {
            argument: Index(np.zeros(1, np.int64), argument=i) for i, argument in enumerate(function.regions[0].blocks[0].arguments)
        }

    def enter_loop(self, induction: ir.Value, lower: Index, step: int, trips: int, level: int) -> None:
        """The induction variable is lower + step * counter[level]; a loop of one trip does not step."""
        self.trips[level] = max(trips, 1)
        self.values[induction] = Index(lower.constant, steps={level: step} if trips > 1 else {})

    def __call__(self, value: ir.Value) -> Index:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = self._evaluate(value)
            self._check_width(value, found)
        return found

    def _check_width(self, value: ir.Value, found: Index) -> None:
        """Raise Unsupported for an integer that would wrap in its own width: addresses are computed without one."""
        if not isinstance(value.type, ir.IntegerType) or value.type.width == 1:
            return
        ways = [step * (self.trips[level] - 1) for level, step in found.steps.items()]
        low, high = (found.constant.min() + sum(w for w in ways if w < 0), found.constant.max() + sum(w for w in ways if w > 0))
        most = 1 << (value.type.width - 1)
        if not -most <= low <= high < most:
            raise self._refuse(value.owner, f"gives numbers from {low} to {high} as '{value.type}'")

    def least(self, x: Index) -> float:
        """The smallest number that an index is on any core in any trip; no number bounds an address or what rotates."""
        if x.argument is not None or x.rotation:
            return float("-inf")
        return int(x.constant.min()) + sum(min(step, 0) * (self.trips[level] - 1) for level, step in x.steps.items())

    def affine(self, expression: ir.AffineExpr, operands: list[Index], op: ir.Operation) -> Index:
        """An affine expression over dims."""
        if isinstance(expression, ir.AffineDimExpr):
            return operands[ir.AffineDimExpr(expression).position]
        if isinstance(expression, ir.AffineConstantExpr):
            return constant(ir.AffineConstantExpr(expression).value)
        for kind, function in ((ir.AffineAddExpr, self.add), (ir.AffineMulExpr, self.multiply)):
            if isinstance(expression, kind):
                binary = kind(expression)
                return function(self.affine(binary.lhs, operands, op), self.affine(binary.rhs, operands, op), op)
        raise self._refuse(op, "has an index that is not linear in the loop counters")

    def _refuse(self, op: ir.Operation, text: str) -> Unsupported:
        return refused(op, f"{text}, which no address generator can follow")

    def _evaluate(self, value: ir.Value) -> Index:
        if isinstance(value.owner, ir.Block):
            raise self._refuse(value.owner.owner.operation, "carries an index through a loop")
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if is_a(op, arith.ConstantOp):
            number = ir.IntegerAttr(op.attributes["value"]).value
            return constant(int(bool(number)) if _is_truth(value) else number)
        if is_a(op, ktdp.GetComputeTileIdOp):
            return Index(np.array(self.kernel.coordinate(ir.OpResult(value).result_number), np.int64))
        operands, rule = [self(v) for v in op.operands], _RULES.get(op.name)
        if rule is None:
            return self._fitted(op, operands)
        try:
            return rule(self, operands[0], operands[1], op)
        except Unsupported as error:
            try:
                return self._fitted(op, operands)
            except Unsupported:
                raise error from None

    def add(self, a: Index, b: Index, op: ir.Operation) -> Index:
        """a + b; `op` is named where that is refused, here and below."""
        if (a.argument is not None and b.argument is not None) or (a.rotation and b.rotation):
            raise self._refuse(op, "adds two addresses")
        steps = dict(a.steps)
        for level, step in b.steps.items():
            steps[level] = steps.get(level, 0) + step
        argument = a.argument if a.argument is not None else b.argument
        return Index(a.constant + b.constant, argument, {k: v for k, v in steps.items() if v}, a.rotation or b.rotation)

    def multiply(self, a: Index, b: Index, op: ir.Operation) -> Index:
        """a * b."""
        if not b.is_constant:
            a, b = b, a
        if not b.is_constant or a.argument is not None or ((a.steps or a.rotation) and not b.is_uniform):
            raise self._refuse(op, "multiplies two values that are not constant")
        rotation = a.rotation and Rotation(a.rotation.levels, a.rotation.buffers, a.rotation.step * b.scalar)
        steps = {level: step * b.scalar for level, step in a.steps.items()} if a.steps else {}
        return Index(a.constant * b.constant, None, {k: v for k, v in steps.items() if v}, rotation)

    def subtract(self, a: Index, b: Index, op: ir.Operation) -> Index:
        """a - b."""
        return self.add(a, self.multiply(b, constant(-1), op), op)

    def _divide(self, a: Index, b: Index, op: ir.Operation) -> Index:
        if not b.is_constant or not b.is_uniform or b.scalar <= 0 or a.argument is not None or a.rotation:
            raise self._refuse(op, "divides by a value that is not a constant")
        if a.is_constant:
            return Index(a.constant // b.scalar)
        if any(s % b.scalar for s in a.steps.values()) or (a.constant % b.scalar).any():
            raise self._refuse(op, "divides a loop counter with a remainder")
        return Index(a.constant // b.scalar, None, {level: s // b.scalar for level, s in a.steps.items()})

    def _remainder(self, a: Index, b: Index, op: ir.Operation) -> Index:
        if not b.is_constant or not b.is_uniform or b.scalar <= 0 or a.argument is not None or a.rotation:
            raise self._refuse(op, "takes a remainder by a value that is not a constant")
        if a.is_constant:
            return Index(a.constant % b.scalar)
        levels = 0
        for level, step in a.steps.items():
            if step % b.scalar == 1:
                levels |= 1 << level
            elif step % b.scalar:
                raise self._refuse(op, "rotates by a step other than one")
        if (a.constant % b.scalar).any():
            raise self._refuse(op, "rotates from a slot other than the first")
        return Index(np.zeros(1, np.int64), rotation=Rotation(levels, b.scalar, 1))

    def _fitted(self, op: ir.Operation, operands: list[Index]) -> Index:
        """What any function of indices gives, if at every point of cores and trips it is a constant per core and steps of loops."""
        function = function_of(op)
        if function is None:
            raise self._refuse(op, "computes an index")
        levels = sorted({level for x in operands for level in (*x.steps, *self._rotated(x))})
        trips = [self.trips[level] for level in levels]
        if any(x.argument is not None for x in operands) or prod(trips) * self.cores > MOST:
            raise self._refuse(op, _WHAT.get(op.name, "computes an index that is more than a constant and steps of loops"))
        with np.errstate(divide="ignore"):
            found = np.asarray(function(*(self._at_points(x, levels, trips) for x in operands))).astype(np.int64)
        begin = (slice(None), *[0] * len(levels))
        steps = {}
        fit = found[begin].reshape(-1, *[1] * len(levels))
        for axis, level in enumerate(levels):
            if trips[axis] > 1:
                ahead = tuple(int(k == axis) for k in range(len(levels)))
                steps[level] = int(found[(0, *ahead)] - found[(0, *begin[1:])])
                fit = fit + steps[level] * _along(axis, trips)
        if (fit != found).any():
            raise self._refuse(op, _WHAT.get(op.name, "computes an index that is more than a constant and steps of loops"))
        constants = found[begin]
        return Index(constants if (constants != constants[0]).any() else constants[:1], None, {k: v for k, v in steps.items() if v})

    @staticmethod
    def _rotated(x: Index) -> list[int]:
        return [level for level in range(x.rotation.levels.bit_length()) if x.rotation.levels >> level & 1] if x.rotation else []

    def _at_points(self, x: Index, levels: list[int], trips: list[int]) -> np.ndarray:
        """The numbers of an index on all cores and in all trips of some levels."""
        found = np.broadcast_to(x.constant, (self.cores,)).reshape(-1, *[1] * len(levels))
        for level, step in x.steps.items():
            found = found + step * _along(levels.index(level), trips)
        if x.rotation:
            turns = sum(_along(levels.index(level), trips) for level in self._rotated(x))
            found = found + turns % x.rotation.buffers * x.rotation.step
        return np.broadcast_to(found, (self.cores, *trips))


def _along(axis: int, trips: list[int]) -> np.ndarray:
    """The counter of a loop on the axes of several."""
    shape = [1] * (1 + len(trips))
    shape[1 + axis] = -1
    return np.arange(trips[axis]).reshape(shape)


def _is_truth(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IntegerType) and value.type.width == 1


_RULES = named(
    {
        arith.AddIOp: IndexEvaluator.add,
        arith.SubIOp: IndexEvaluator.subtract,
        arith.MulIOp: IndexEvaluator.multiply,
        arith.DivUIOp: IndexEvaluator._divide,
        arith.RemUIOp: IndexEvaluator._remainder,
    }
)
"""What can be followed without a look at every point."""
_WHAT = named(
    {
        arith.CmpIOp: "compares what is not constant",
        arith.MinSIOp: "takes a minimum that changes with a loop",
        **dict.fromkeys((arith.AndIOp, arith.OrIOp, arith.XOrIOp), "combines what is not constant"),
    }
)
