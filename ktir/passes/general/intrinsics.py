"""Intrinsics that are no single instruction, as the instructions that compute them: in f32, rounded once to the type of the result."""

from __future__ import annotations

from collections.abc import Callable

from ktir.dialects import spyreop
from ktir.dialects.structured import constant
from ktir.mlir import arith, i32_type, ir, math, operations
from ktir.target import FORMATS

_Steps = Callable[[ir.Operation, list[ir.Value]], ir.Value]


def expand_intrinsics(root: ir.Operation) -> None:
    """Write the ops of `spyreop` in `root` out that the vector unit has no kind for; those that nothing computes stay."""
    for op in operations(root):
        if _is_expanded(op):
            steps = _EXPANSIONS[op.name]
            with ir.InsertionPoint(op), op.location:
                result = steps(op, list(op.operands))
            op.results[0].replace_all_uses_with(result)
            op.erase()


def has_intrinsics(root: ir.Operation) -> bool:
    """Whether there is something to write out."""
    return any(map(_is_expanded, operations(root)))


def _is_expanded(op: ir.Operation) -> bool:
    return op.name in _EXPANSIONS and str(op.results[0].type) in (*FORMATS, "i64")


def in_f32(steps: _Steps) -> _Steps:
    """Steps on operands of f32, whose result is rounded to the type of the op."""

    def apply(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
        f32, type_ = ir.F32Type.get(), op.results[0].type
        result = steps(op, [v if v.type == f32 else arith.ExtFOp(f32, v).result for v in operands])
        return result if type_ == f32 else arith.TruncFOp(type_, result).result

    return apply


def _number(value: float) -> ir.Value:
    return constant(ir.F32Type.get(), value)


def _sigmoid(x: ir.Value) -> ir.Value:
    power = math.ExpOp(arith.NegFOp(x).result).result
    return arith.DivFOp(_number(1.0), arith.AddFOp(_number(1.0), power).result).result


def _gelu(x: ir.Value) -> ir.Value:
    tail = math.ErfcOp(arith.MulFOp(x, _number(-(0.5**0.5))).result).result  # 1 + erf loses it where x is negative
    return arith.MulFOp(arith.MulFOp(x, _number(0.5)).result, tail).result


def _softplus(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    (x,) = operands
    beta, threshold = (_number(op.attributes[name].value) for name in ("beta", "threshold"))
    scaled = arith.MulFOp(x, beta).result
    power = math.ExpOp(arith.MinimumFOp(scaled, threshold).result).result
    soft = arith.DivFOp(math.Log1pOp(power).result, beta).result
    return arith.SelectOp(arith.CmpFOp(arith.CmpFPredicate.OGT, scaled, threshold).result, x, soft).result


def scale(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    mean, *squares = operands
    spread = arith.SubFOp(squares[0], arith.MulFOp(mean, mean).result).result if squares else mean
    return math.RsqrtOp(spread).result


def _norm(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    x, mean, scale, weight, bias = operands
    scaled = arith.MulFOp(arith.SubFOp(x, mean).result, scale).result
    return arith.AddFOp(arith.MulFOp(scaled, weight).result, bias).result


def _compare(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    type_ = op.results[0].type
    predicate = _PREDICATES[op.attributes["predicate"].value]
    return arith.SelectOp(arith.CmpFOp(predicate, *operands).result, constant(type_, 1.0), constant(type_, 0.0)).result


_PREDICATES = {
    "equal": arith.CmpFPredicate.OEQ,
    "notequal": arith.CmpFPredicate.ONE,
    "greaterthan": arith.CmpFPredicate.OGT,
    "greaterequal": arith.CmpFPredicate.OGE,
    "lesserthan": arith.CmpFPredicate.OLT,
    "lesserequal": arith.CmpFPredicate.OLE,
}


def _select(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    condition, *values = operands
    return arith.SelectOp(arith.CmpFOp(arith.CmpFPredicate.UNE, condition, constant(condition.type, 0.0)).result, *values).result


def _address(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    index, *factors = operands
    if not factors:
        given = (ir.IntegerAttr(op.attributes[name]).value for name in ("base_value", "stride_value"))
        factors = [arith.ConstantOp(i32_type(), ir.IntegerAttr.get(i32_type(), (n + 2**31) % 2**32 - 2**31)).result for n in given]
    base, stride = factors
    return arith.AddIOp(base, arith.MulIOp(stride, index).result).result


_EXPANSIONS: dict[str, _Steps] = {
    cls.OPERATION_NAME: steps
    for cls, steps in {
        spyreop.ConstantOp: lambda op, _: arith.ConstantOp(op.results[0].type, op.attributes["value"]).result,
        spyreop.SigmoidOp: in_f32(lambda _, x: _sigmoid(x[0])),
        spyreop.SiluOp: in_f32(lambda _, x: arith.MulFOp(x[0], _sigmoid(x[0])).result),
        spyreop.GeluOp: in_f32(lambda _, x: _gelu(x[0])),
        spyreop.SoftplusOp: in_f32(_softplus),
        spyreop.LayerNormScaleOp: in_f32(scale),
        spyreop.LayerNormNormOp: in_f32(_norm),
        spyreop.CompareOp: _compare,
        spyreop.SelectOp: _select,
        spyreop.Idx32ToAddrOp: _address,
        spyreop.AddI64ToI64Op: lambda _, x: arith.AddIOp(*x).result,
    }.items()
}

INTRINSICS = frozenset(_EXPANSIONS)
"""Names of the ops that are written out."""
