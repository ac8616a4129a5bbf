"""Compiles the bodies of elementwise ops: the region of a `linalg` op, or of another one that has scalar ops in it."""

from __future__ import annotations

from ktir.diagnostics import Unsupported, location_text
from ktir.emulator.reference.compile.op_reader import OpReader, TensorType
from ktir.emulator.reference.compile.registry import scalar_reader
from ktir.emulator.reference.compile.scalar_op import Body, BodyOp, Ref
from ktir.mlir import ir

__all__ = ["compile_body", "types_of"]


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
        inner = reader.inner(op)
        meaning, operands = read(inner), tuple(ref(v) for v in op.operands)
        for value, part in zip(op.results, meaning if isinstance(meaning, tuple) else (meaning,), strict=True):
            known[value] = Ref("op", len(ops))
            ops.append(BodyOp(part, operands, inner.where))
    return Body(inputs, elements, tuple(ops), yields, tuple(outer.items()))


def types_of(reader: OpReader) -> list[TensorType]:
    """Types of all operands of an op."""
    return [reader.operand_type(i) for i in range(len(reader.operands))]
