"""Floats of one byte that no matmul reads as bytes (`byte_weights`): memory holds them as f16, which has each of them.

What rounds to one stays in its body, and is widened behind it. What else a body does to them must leave them on their grid.
"""

from __future__ import annotations

from ktir.analysis.flat import refuse
from ktir.dialects import ktir as kt
from ktir.mlir import arith, func, ir, is_a, linalg, math, names, operations, tensor
from ktir.passes.flat.integers.integers import is_of_bytes
from ktir.target import Target, is_byte_float

_EXACT = names(
    arith.SelectOp,
    arith.NegFOp,
    math.AbsFOp,
    math.CopySignOp,
    arith.MaximumFOp,
    arith.MinimumFOp,
    arith.MaxNumFOp,
    arith.MinNumFOp,
)
"""Ops whose results are among their operands, but for a sign."""
_WITH_BODY = (linalg.GenericOp, kt.ScanOp, linalg.FillOp, tensor.PadOp)


_LACKS, _HAS = "f8E5M2", "f8E4M3FN"
"""The float of which DLFloat16 lacks codes, since it has no infinities and one NaN of each sign; and the one of which it has all."""


def small_floats_as_f16(function: func.FuncOp, target: Target) -> None:
    """Make f16 of every float of one byte in tensors and views, and in bodies of all that is not rounded to one. In place. Raises
    Unsupported where the device has another float in place of f16, which does not hold all of them."""
    everything = [op for op in operations(function) if not is_of_bytes(op)]
    if not any(_is_small(v.type) for op in everything for v in op.results):
        return
    if target.dl16 == "native":
        _in_dl16(everything, target.name)
    for op in everything:
        if is_a(op, *_WITH_BODY):
            for argument in op.regions[0].blocks[0].arguments:
                argument.set_type(_wide(argument.type))
    for op in everything:
        _widen(op)


def _in_dl16(ops: list[ir.Operation], target: str) -> None:
    for op in ops:
        if any(isinstance(v.type, ir.RankedTensorType | ir.MemRefType) and str(v.type.element_type) == _LACKS for v in op.results):
            raise refuse(
                op,
                f"moves {_LACKS}, which waits as f16, but target '{target}' has DLFloat16 in its place, without infinities; "
                f"the nearest supported float of one byte is {_HAS}",
            )


def _is_small(type_: ir.Type) -> bool:
    return is_byte_float(type_.element_type if isinstance(type_, ir.RankedTensorType | ir.MemRefType) else type_)


def _wide(type_: ir.Type) -> ir.Type:
    if not _is_small(type_):
        return type_
    if isinstance(type_, ir.RankedTensorType):
        return ir.RankedTensorType.get(type_.shape, ir.F16Type.get(), type_.encoding)
    return ir.MemRefType.get(type_.shape, ir.F16Type.get()) if isinstance(type_, ir.MemRefType) else ir.F16Type.get()


def _widen(op: ir.Operation) -> None:
    """Let an op read f16 where it has read floats of one byte, and give such."""
    if is_a(op, arith.ExtFOp) and isinstance(op.operands[0].type, ir.F16Type):
        _extended(op)
        return
    for result in op.results:
        if isinstance(result.type, ir.RankedTensorType | ir.MemRefType):
            result.set_type(_wide(result.type))
        elif is_byte_float(result.type):
            _scalar(op, result)


def _extended(op: ir.Operation) -> None:
    """A widening of what is f16 already."""
    value, to = op.operands[0], op.results[0].type
    with ir.InsertionPoint(op), op.location:
        if isinstance(to, ir.BF16Type):
            value = arith.TruncFOp(to, arith.ExtFOp(ir.F32Type.get(), value).result).result
        elif not isinstance(to, ir.F16Type):
            return
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _scalar(op: ir.Operation, result: ir.Value) -> None:
    if is_a(op, arith.TruncFOp):
        with ir.InsertionPoint.after(op), op.location:
            wide = arith.ExtFOp(ir.F16Type.get(), result)
        result.replace_all_uses_except(wide.result, wide.operation)
    elif is_a(op, arith.SIToFPOp, arith.UIToFPOp):  # f32 holds all integers that such a float rounds to a number
        with ir.InsertionPoint(op), op.location:
            wide = ir.Operation.create(op.name, [ir.F32Type.get()], list(op.operands))
            rounded = arith.ExtFOp(ir.F16Type.get(), arith.TruncFOp(result.type, wide.results[0]).result)
        result.replace_all_uses_with(rounded.result)
        op.erase()
    elif is_a(op, arith.ConstantOp):
        op.attributes["value"] = ir.FloatAttr.get(ir.F16Type.get(), ir.FloatAttr(op.attributes["value"]).value)
        result.set_type(ir.F16Type.get())
    elif op.name in _EXACT:
        result.set_type(ir.F16Type.get())
    else:
        raise refuse(op, f"computes in {result.type}, which the device does not; the nearest supported form computes in f32 and rounds")
