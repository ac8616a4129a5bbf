"""Index arithmetic of a kernel as what an address generator can do.

A value of type `index` is a constant per core, plus at most one argument base, plus a step per loop level, plus at most one rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.arithmetic.integers import PREDICATES, compare
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
        self.values: dict[ir.Value, Index] = {
            argument: Index(np.zeros(1, np.int64), argument=i) for i, argument in enumerate(function.regions[0].blocks[0].arguments)
        }

    def enter_loop(self, induction: ir.Value, lower: Index, step: int, trips: int, level: int) -> None:
        """The induction variable is lower + step * counter[level]; a loop of one trip does not step."""
        self.values[induction] = Index(lower.constant, steps={level: step} if trips > 1 else {})

    def __call__(self, value: ir.Value) -> Index:
        found = self.values.get(value)
        if found is None:
            found = self.values[value] = self._evaluate(value)
        return found

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
        rule = _RULES.get(op.name)
        if rule is None:
            raise self._refuse(op, "computes an index")
        return rule(self, self(op.operands[0]), self(op.operands[1]), op)

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

    def _minimum(self, a: Index, b: Index, op: ir.Operation) -> Index:
        if not (a.is_constant and b.is_constant):
            raise self._refuse(op, "takes a minimum that changes with a loop")
        return Index(np.minimum(a.constant, b.constant))

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

    def _compare(self, a: Index, b: Index, op: ir.Operation) -> Index:
        """A truth value, 1 or 0."""
        if not (a.is_constant and b.is_constant):
            raise self._refuse(op, "compares what is not constant")
        predicate = PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
        return Index(np.asarray(compare(predicate, "index")(a.constant, b.constant)).astype(np.int64))

    def _logic(self, a: Index, b: Index, op: ir.Operation) -> Index:
        if not (a.is_constant and b.is_constant):
            raise self._refuse(op, "combines what is not constant")
        return Index(_BITS[op.name](a.constant, b.constant))


def _is_truth(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IntegerType) and value.type.width == 1


_BITS = named({arith.AndIOp: np.bitwise_and, arith.OrIOp: np.bitwise_or, arith.XOrIOp: np.bitwise_xor})
_RULES = named(
    {
        arith.CmpIOp: IndexEvaluator._compare,
        **dict.fromkeys(_BITS, IndexEvaluator._logic),
        arith.AddIOp: IndexEvaluator.add,
        arith.SubIOp: IndexEvaluator.subtract,
        arith.MulIOp: IndexEvaluator.multiply,
        arith.MinSIOp: IndexEvaluator._minimum,
        arith.DivUIOp: IndexEvaluator._divide,
        arith.RemUIOp: IndexEvaluator._remainder,
    }
)
