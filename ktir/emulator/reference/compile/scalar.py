"""Elementwise ops and the bodies made of them.

A body is the region of a `linalg` op, or a single arith or math op on tensors. Compiled, it is a list of scalar ops whose operands
are numbered: the body's arguments, results of earlier ops, or SSA values of the surrounding function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ktir.diagnostics import Unsupported, location_text
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.compiler import OpReader, TensorType
from ktir.emulator.reference.compile.registry import scalar_reader
from ktir.mlir import ir

__all__ = ["Body", "BodyOp", "Combiner", "Ref", "ScalarOp", "compile_body", "single"]


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

    def factors(self, combiner: Combiner) -> tuple[int, int] | None:
        """The two inputs whose product is summed, if `combiner` sums a plain product of two inputs in f32."""
        if combiner.kind != "add" or combiner.mapped.kind != "op":
            return None
        product = self.ops[combiner.mapped.index]
        if not product.op.multiplies:
            return None
        inputs = []
        for ref in product.operands:
            while ref.kind == "op" and self.ops[ref.index].op.form == "copy":
                ref = self.ops[ref.index].operands[0]
            if ref.kind != "argument" or ref.index >= self.inputs:
                return None
            inputs.append(ref.index)
        return inputs[0], inputs[1]


def single(op: ScalarOp, operands: Sequence[str], where: Where) -> Body:
    """The body of one op applied to operands of these element types."""
    refs = tuple(Ref("argument", i) for i in range(len(operands)))
    elements = (*operands, op.element)
    return Body(len(operands), elements, (BodyOp(op, refs, where),), (Ref("op", 0),))


def compile_body(reader: OpReader, inputs: int, terminator: str = "linalg.yield", of: ir.Operation | None = None) -> Body:
    """The body of a `linalg` op with `inputs` ins, or of `of`. Raises Unsupported for an op without elementwise meaning."""
    block = (of or reader.op).regions[0].blocks[0]
    known = {argument: Ref("argument", i) for i, argument in enumerate(block.arguments)}
    elements = tuple(reader.tensor_type(argument.type).element for argument in block.arguments)
    ops: list[BodyOp] = []
    yields: tuple[Ref, ...] = ()

    outer: dict[int, str] = {}

    def ref(value: ir.Value) -> Ref:
        if value in known:
            return known[value]
        slot = reader.slot(value)
        if not isinstance(value.type, ir.RankedTensorType):
            outer[slot] = reader.tensor_type(value.type).element
        return Ref("outer", slot)

    for view in block.operations:
        op = view.operation
        if op.name == terminator:
            yields = tuple(ref(v) for v in op.operands)
            continue
        read = scalar_reader(op.name)
        if read is None:
            raise Unsupported(f"'{op.name}' op has no executor inside '{reader.op.name}'", location_text(op.location))
        for value in op.operands:
            reader.numbering.define(value)
        inner = OpReader(op, reader.numbering)
        meaning, operands = read(inner), tuple(ref(v) for v in op.operands)
        for value, part in zip(op.results, meaning if isinstance(meaning, tuple) else (meaning,), strict=True):
            known[value] = Ref("op", len(ops))
            ops.append(BodyOp(part, operands, inner.where))
    return Body(inputs, elements, tuple(ops), yields, tuple(outer.items()))


def types_of(reader: OpReader) -> list[TensorType]:
    """Types of all operands of an op."""
    return [reader.operand_type(i) for i in range(len(reader.operands))]
