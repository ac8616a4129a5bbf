"""The `spyreop` dialect: scalar functions that the accelerator has, for the bodies of `linalg.generic`. All are pure.

An op's class says which types it takes: `F` is f16, df16 or f32, `H` f16 or df16; and the kind of the vector unit that computes it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ktir.assembly import formats
from ktir.dialects._foundation.base import Attribute, Dialect, Operation, Pure, Type, report
from ktir.dialects._spyreop_elements import DIRECTIVES
from ktir.mlir import ext, ir

formats.DIRECTIVES |= DIRECTIVES


class SpyreOp(Dialect, name="spyreop"):
    """Scalar functions of the accelerator."""


if TYPE_CHECKING:  # to a type checker, a number is no type, and a type variable means nothing in a class that is not generic
    I32 = ir.IntegerType
    I64 = ir.IntegerType
    T = Any
else:
    I32, I64 = ir.IntegerType[32], ir.IntegerType[64]
    T = TypeVar("T")


# --- types and attributes --------------------------------------------------------------------------------------------


class Df16Type(Type, dialect=SpyreOp, name="df16"):
    """A 16-bit float with 6 bits of exponent and 9 of mantissa."""

    __annotations__ = {}


class Fp16FusedType(Type, dialect=SpyreOp, name="fp16_fused"):
    """Two f16 held as one value."""

    __annotations__ = {}


class Df16FusedType(Type, dialect=SpyreOp, name="df16_fused"):
    """Two df16 held as one value."""

    __annotations__ = {}


class Fp32FusedType(Type, dialect=SpyreOp, name="fp32_fused"):
    """Two f32 held as one value."""

    __annotations__ = {}


class ComparePredicateAttr(Attribute, dialect=SpyreOp, name="compare_predicate"):
    """How `compare` compares; every predicate is ordered: `#spyreop.compare_predicate<lesserthan>`."""

    value: Literal["equal", "notequal", "greaterthan", "greaterequal", "lesserthan", "lesserequal"]

    positional = ("value",)


class ReductionKindAttr(Attribute, dialect=SpyreOp, name="reduction_kind"):
    """What `slice_reduction` computes: `#spyreop.reduction_kind<abs_max>`."""

    value: Literal["add", "sub", "max", "min", "mul", "abs_max"]

    positional = ("value",)


class ReductionScopeAttr(Attribute, dialect=SpyreOp, name="reduction_scope"):
    """What `slice_reduction` reduces, the elements of each slice or those of one place in all slices."""

    value: Literal["in_slice", "across_slice"]

    positional = ("value",)


def _kinds(names: Sequence[str]) -> str:
    return " or ".join(_NAMES[name] for name in names)


_NAMES = {
    "f16": "16-bit float",
    "!spyreop.df16": "IBM df16 float",
    "f32": "32-bit float",
    "i32": "32-bit signless integer",
    "i64": "64-bit signless integer",
    "!spyreop.df16_fused": "A pair of df16 floats held as one value",
    "!spyreop.fp16_fused": "A pair of 16-bit floats held as one value",
    "!spyreop.fp32_fused": "A pair of 32-bit floats held as one value",
}
F = ("f16", "!spyreop.df16", "f32")
H = ("f16", "!spyreop.df16")
FUSED = ("!spyreop.df16_fused", "!spyreop.fp16_fused", "!spyreop.fp32_fused")
PAIRS = {"f16": "!spyreop.fp16_fused", "!spyreop.df16": "!spyreop.df16_fused", "f32": "!spyreop.fp32_fused"}
"""Scalar type -> the type of a pair of it."""
SCALARS = {pair: scalar for scalar, pair in PAIRS.items()}


def _type_fault(what: str, values: Sequence[Any], names: Sequence[str]) -> str | None:
    """What is wrong with the types of `values` where only the types `names` are allowed."""
    for i, value in enumerate(values):
        if (text := str(value.type)) not in names:
            return f"{what} #{i} must be {_kinds(names)}, but got '{text}'"
    return None


class _Scalar(Operation):
    """Base: operands and results of one type, one of `types`."""

    types = F

    def check(self) -> str | None:
        return _type_fault("operand", self.operands, self.types) or _type_fault("result", self.results, self.types)


class _Unary(_Scalar, traits=[Pure]):
    """Base: one operand."""

    result: ext.Result[T]
    x: ext.Operand[T]

    assembly = "$x attr-dict `:` type($x)"


class _BinaryI32(Operation, traits=[Pure]):
    """Base: two operands of type i32."""

    result: ext.Result[I32]
    lhs: ext.Operand[I32]
    rhs: ext.Operand[I32]

    assembly = "$lhs `,` $rhs attr-dict"


class _BinaryI64(Operation, traits=[Pure]):
    """Base: two operands of type i64."""

    result: ext.Result[I64]
    lhs: ext.Operand[I64]
    rhs: ext.Operand[I64]

    assembly = "$lhs `,` $rhs attr-dict"


_BINARY = "$lhs `,` $rhs attr-dict `:` type($lhs)"


# --- integers --------------------------------------------------------------------------------------------------------


class AddI32ToI32Op(_BinaryI32, dialect=SpyreOp, name="addi32toi32"):
    """Sum: `%c = spyreop.addi32toi32 %a, %b`."""

    vector_kind = "addi"


class MulI32ToI32Op(_BinaryI32, dialect=SpyreOp, name="muli32toi32"):
    """Product: `%c = spyreop.muli32toi32 %a, %b`."""

    vector_kind = "muli"


class AddI64ToI64Op(_BinaryI64, dialect=SpyreOp, name="addi64toi64"):
    """Sum: `%c = spyreop.addi64toi64 %a, %b`."""


class Idx32ToAddrOp(Operation, dialect=SpyreOp, name="idx32toaddr", traits=[Pure]):
    """`base + stride * index`: `%a = spyreop.idx32toaddr %i base %b stride %s`. Base and stride may also be numbers, as of old."""

    result: ext.Result[I32]
    index: ext.Operand[I32]
    factors: Sequence[ext.Operand[I32]]

    assembly = "$index `base` address_part($factors, $base_value) `stride` number_part($factors, $stride_value) attr-dict"

    def check(self) -> str | None:
        written = [name in self.attributes for name in ("base_value", "stride_value")]
        if len(self.operands) != (1 if all(written) else 3) or written[0] != written[1]:
            return "expects base and stride either as two operands or as two attributes"
        return None


# --- floats ----------------------------------------------------------------------------------------------------------


class ExpOp(_Unary, dialect=SpyreOp, name="exp"):
    """e to the power of x: `%y = spyreop.exp %x : f16`."""

    vector_kind = "exp"


class ReciprocalOp(_Unary, dialect=SpyreOp, name="reciprocal"):
    """1 / x: `%y = spyreop.reciprocal %x : f16`."""

    vector_kind = "rec"


class SigmoidOp(_Unary, dialect=SpyreOp, name="sigmoid"):
    """1 / (1 + exp(-x)): `%y = spyreop.sigmoid %x : f16`."""


class SiluOp(_Unary, dialect=SpyreOp, name="silu"):
    """x * sigmoid(x): `%y = spyreop.silu %x : f16`."""


class SqrtOp(_Unary, dialect=SpyreOp, name="sqrt"):
    """Square root: `%y = spyreop.sqrt %x : f16`."""

    vector_kind = "sqrt"


class RsqrtOp(_Unary, dialect=SpyreOp, name="rsqrt"):
    """1 / sqrt(x): `%y = spyreop.rsqrt %x : f16`."""

    vector_kind = "rsqrt"


class GeluOp(_Unary, dialect=SpyreOp, name="gelu"):
    """x * Phi(x): `%y = spyreop.gelu %x : f16`."""

    types = H


class RealDivOp(_Scalar, dialect=SpyreOp, name="realdiv", traits=[Pure]):
    """Quotient: `%c = spyreop.realdiv %a, %b : f16`."""

    vector_kind = "div"

    result: ext.Result[T]
    lhs: ext.Operand[T]
    rhs: ext.Operand[T]

    assembly = _BINARY


class CompareOp(_Scalar, dialect=SpyreOp, name="compare", traits=[Pure]):
    """1.0 where the predicate holds, else 0.0; a NaN makes every predicate fail.

    %c = spyreop.compare <lesserthan> %a, %b : f32
    """

    result: ext.Result[T]
    lhs: ext.Operand[T]
    rhs: ext.Operand[T]

    required = {"predicate": ComparePredicateAttr}
    assembly = f"bare($predicate, spyreop.compare_predicate) {_BINARY}"


class SelectOp(_Scalar, dialect=SpyreOp, name="select", traits=[Pure]):
    """`%t` where `%c` is not zero, else `%f`: `%y = spyreop.select %c, %t, %f : f16`."""

    result: ext.Result[T]
    condition: ext.Operand[T]
    true_value: ext.Operand[T]
    false_value: ext.Operand[T]

    assembly = "$condition `,` $true_value `,` $false_value attr-dict `:` type($condition)"


class SoftplusOp(_Scalar, dialect=SpyreOp, name="softplus", traits=[Pure]):
    """log(1 + exp(beta * x)) / beta, and x beyond the threshold.

    %y = spyreop.softplus %x beta 1.0 threshold 20.0 : f16
    """

    result: ext.Result[T]
    x: ext.Operand[T]

    types = H
    required = {"beta": ir.FloatAttr, "threshold": ir.FloatAttr}
    assembly = "$x `beta` f32_literal($beta) `threshold` f32_literal($threshold) attr-dict `:` type($x)"

    def check(self) -> str | None:
        for name in ("beta", "threshold"):
            value = self.attributes[name]
            if str(value.type) != "f32":
                return f"attribute '{name}' failed to satisfy constraint: 32-bit float attribute"
        if self.attributes["beta"].value == 0:
            return "attribute 'beta' failed to satisfy constraint: 32-bit float attribute which is non-zero"
        return super().check()


# --- normalisation ---------------------------------------------------------------------------------------------------


class Exx2Op(_Scalar, dialect=SpyreOp, name="exx2", traits=[Pure]):
    """Mean of a row, and mean of its squares: `%m, %sq = spyreop.exx2 %x : f16`."""

    mean: ext.Result[T]
    squares: ext.Result[T]
    x: ext.Operand[T]

    assembly = _Unary.assembly

    @staticmethod
    def verify_invariants(op: Any) -> bool:
        fault = _type_fault("operand", op.operands, F)  # before the number of results, which text may leave out
        return report(op, fault) if fault else Operation.verify_invariants(op)


_FUSED = "$x attr-dict `:` type($x) `->` type($result)"


class _Fusing(Operation, traits=[Pure]):
    """Base: one operand of a type in `takes`, one result of the type that `pairing` gives for it."""

    result: ext.Result[Any]
    x: ext.Operand[Any]

    assembly = _FUSED
    takes, gives, pairing = F, FUSED, PAIRS

    def check(self) -> str | None:
        operand, result = str(self.operands[0].type), str(self.results[0].type)
        if fault := _type_fault("operand", self.operands, self.takes) or _type_fault("result", self.results, self.gives):
            return fault
        if self.pairing[operand] == result:
            return None
        wanted = f"inferred type(s) '{self.pairing[operand]}' are incompatible with return type(s) of operation '{result}'"
        return f"{wanted}\nfailed to infer returned types"


class Exx2FusedOp(_Fusing, dialect=SpyreOp, name="exx2_fused"):
    """The two results of `exx2` as one value: `%p = spyreop.exx2_fused %x : f16 -> !spyreop.fp16_fused`."""


class Exx2ZeroMeanFusedOp(_Fusing, dialect=SpyreOp, name="exx2_zeromean_fused"):
    """As `exx2_fused` with a mean of zero: `%p = spyreop.exx2_zeromean_fused %x : f16 -> !spyreop.fp16_fused`."""


class LayerNormScaleOp(_Scalar, dialect=SpyreOp, name="layernormscale", traits=[Pure]):
    """1 / sqrt(mean of squares - mean * mean): `%c = spyreop.layernormscale %m squares %sq : f16`. Of old without squares."""

    result: ext.Result[T]
    x: ext.Operand[T]
    squares: Sequence[ext.Operand[T]]

    assembly = "$x (`squares` $squares)? attr-dict `:` type($x)"

    def check(self) -> str | None:
        if len(self.operands) > 2:
            return f"expects at most one operand after `squares`, but got {len(self.operands) - 1}"
        return super().check()


class LayerNormScaleFusedOp(_Fusing, dialect=SpyreOp, name="layernormscale_fused"):
    """As `layernormscale`, of a pair: `%c = spyreop.layernormscale_fused %p : !spyreop.fp16_fused -> f16`."""

    takes, gives, pairing = FUSED, F, SCALARS


class LayerNormNormOp(_Scalar, dialect=SpyreOp, name="layernormnorm", traits=[Pure]):
    """(x - mean) * scale * weight + bias, where `squares` carries what `exx2` gave.

    %y = spyreop.layernormnorm %x squares %s scale %c weight %w bias %b : f16
    """

    result: ext.Result[T]
    x: ext.Operand[T]
    squares: ext.Operand[T]
    scale: ext.Operand[T]
    weight: ext.Operand[T]
    bias: ext.Operand[T]

    assembly = "$x `squares` $squares `scale` $scale `weight` $weight `bias` $bias attr-dict `:` type($x)"


class ConstantOp(Operation, dialect=SpyreOp, name="constant", traits=[Pure]):
    """A number: `%c = spyreop.constant 1.0 : f16`."""

    result: ext.Result[Any]

    required = {"value": ir.Attribute}
    assembly = "typed($value, $result) attr-dict"

    @staticmethod
    def verify_invariants(op: Any) -> bool:
        if len(op.operands):
            return report(op, "requires zero operands")
        if len(op.results) != 1:
            return report(op, "requires one result")
        return Operation.verify_invariants(op)

    def check(self) -> str | None:
        if fault := _type_fault("result", self.results, ("f16", "f32")):
            return fault
        value = self.attributes["value"]
        if not isinstance(value, ir.FloatAttr):
            return f"requires a floating-point value attribute, got {value}"
        if value.type != self.results[0].type:
            return "failed to verify that all of {value, result} have same type"
        return None


SLICE = 8
"""Elements of a slice of a stick, as `slice_reduction` counts them."""


class SliceReductionOp(Operation, dialect=SpyreOp, name="slice_reduction", traits=[Pure]):
    """Reduces a stick inside each slice (its first element holds the result) or across slices (the first slice holds the results).

    %y = spyreop.slice_reduction %x {reduction_kind = #spyreop.reduction_kind<add>, reduction_scope = #spyreop.reduction_scope<in_slice>}
        : tensor<64xf16> -> tensor<64xf16>
    """

    result: ext.Result[ir.RankedTensorType]
    x: ext.Operand[ir.RankedTensorType]

    required = {"reduction_kind": ReductionKindAttr, "reduction_scope": ReductionScopeAttr}
    assembly = _FUSED

    def check(self) -> str | None:
        operand, result = self.operands[0].type, self.results[0].type
        return None if operand == result else f"expects a result of the operand's type '{operand}', but got '{result}'"
