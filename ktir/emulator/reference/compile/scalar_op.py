"""The elementwise meaning of ops, and bodies made of them: lists of scalar ops whose operands are numbered.

An operand is one of the body's arguments, the result of an earlier op, or an SSA value of the surrounding function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ktir.emulator.findings import Where
from ktir.target import BYTES

__all__ = ["Body", "BodyOp", "Combiner", "Ref", "ScalarOp", "single"]


@dataclass(frozen=True)
class Ref:
    """An operand of a body op: argument, earlier result (`op`), or slot of the surrounding function (`outer`)."""

    kind: Literal["argument", "op", "outer"]
    index: int


@dataclass(frozen=True)
class ScalarOp:
    """The elementwise meaning of an op.

    `compute(*operands, out=None)` is the NumPy function. `form` singles out what is no function call: `copy` passes its operand on
    (a widening or an index cast), `row` is a statistic of the row (`value`), `select` chooses, `index` is the coordinate of loop
    `dim`, `constant` is `value`.
    `rounds`: the result may be off the grid of a narrow float type and has to be rounded.
    `faults`: for which operands the op has no result (`divisions.faults_of`). `counts`: it is an operation of its own, not the second
    result of one.
    """

    element: str
    compute: Callable[..., Any] | None = None
    number: Callable[..., Any] | None = None
    """An integer op on Python numbers and on arrays with one entry per tile."""
    form: Literal["function", "copy", "select", "index", "constant", "row"] = "function"
    rounds: bool = False
    combines: str | None = None
    """The reduction that the op can end: a name in `structured.UFUNCS`."""
    multiplies: bool = False
    widens: bool = False
    """Whether it makes a float of an integer of one byte, which is exact in each."""
    value: Any = None
    dim: int = 0
    faults: Callable[..., Any] | None = None
    counts: bool = True
    peer: Callable[..., Any] | None = None
    """`compute` under policy `peer`, where it differs."""


@dataclass(frozen=True)
class BodyOp:
    """A scalar op with its operands. Body op i defines Ref("op", i)."""

    op: ScalarOp
    operands: tuple[Ref, ...]
    where: Where


@dataclass(frozen=True)
class Combiner:
    """How a yielded value combines its accumulator: kind, the mapped value, and whether each step rounds to f16."""

    kind: str
    mapped: Ref
    rounds: bool
    name: str = ""


@dataclass(frozen=True)
class Body:
    """`inputs` arguments for the ins, then one per outs; `yields[k]` is the new element of outs k."""

    inputs: int
    elements: tuple[str, ...]
    ops: tuple[BodyOp, ...]
    yields: tuple[Ref, ...]
    outer: tuple[tuple[int, str], ...] = ()
    """Slots of the surrounding function that are read, with their element types."""

    def uses(self, ref: Ref) -> int:
        """How often `ref` is read, by ops and yields."""
        return sum(o.operands.count(ref) for o in self.ops) + self.yields.count(ref)

    def combiner(self, k: int) -> Combiner | None:
        """The reduction into outs k, or None if the body does not end in one."""
        accumulator = Ref("argument", self.inputs + k)
        if self.yields[k].kind != "op":
            return None
        last = self.ops[self.yields[k].index]
        if last.op.combines is None or self.uses(accumulator) != 1 or accumulator not in last.operands:
            return None
        a, b = last.operands
        return Combiner(last.op.combines, b if a == accumulator else a, last.op.rounds, last.where.op)

    def factors(self, combiner: Combiner) -> dict[int, Ref] | None:
        """What is multiplied, by the input that it is, if `combiner` sums a plain product of two inputs in f32. The second one may be
        computed, in the type of the first one, of an input of one byte and of those behind it: by that input then."""
        if combiner.kind != "add" or combiner.mapped.kind != "op":
            return None
        product = self.ops[combiner.mapped.index]
        if not product.op.multiplies:
            return None
        found: dict[int, Ref] = {}
        for factor in product.operands:
            ref = factor
            while ref.kind == "op" and (self.ops[ref.index].op.form == "copy" or self.ops[ref.index].op.widens):
                ref = self.ops[ref.index].operands[0]
            if ref.kind == "argument" and ref.index < self.inputs:
                found[ref.index] = factor
            elif self.is_made(ref):
                found[1] = ref
            else:
                return None
        return found if len(found) == 2 else None

    def is_made(self, factor: Ref) -> bool:
        """Whether a factor is computed, in the type of the first input, of a byte of the second one and of those behind it."""
        if factor.kind != "op" or self.inputs < 2 or self.elements[1] not in BYTES or self.ops[factor.index].op.element != self.elements[0]:
            return False
        found, left = set[int](), [factor]
        while left:
            ref = left.pop()
            if ref.kind == "op":
                left += self.ops[ref.index].operands
            elif ref.kind == "argument":
                found.add(ref.index)
        return 1 in found and found <= {*range(1, self.inputs)}


def single(op: ScalarOp, operands: Sequence[str], where: Where) -> Body:
    """The body of one op applied to operands of these element types."""
    refs = tuple(Ref("argument", i) for i in range(len(operands)))
    elements = (*operands, op.element)
    return Body(len(operands), elements, (BodyOp(op, refs, where),), (Ref("op", 0),))
