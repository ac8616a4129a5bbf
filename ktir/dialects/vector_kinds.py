"""Scalar ops of bodies -> kinds of the vector unit (`ktir.isa.kinds`): one table for the lowering and for passes that fold.

The table has ops of MLIR; ops of our dialects, and of plugins, name their kind themselves (`vector_kind`).
"""

from __future__ import annotations

from typing import Any

from ktir.arithmetic.elementary import FLOAT_PREDICATES
from ktir.arithmetic.integers import PREDICATES
from ktir.diagnostics import KtirError, close_to
from ktir.dialects.byte_pairs import MAKE_PAIR
from ktir.dialects.structured import SUM_OF_TWO
from ktir.isa.kinds import KINDS
from ktir.mlir import ir
from ktir.target import BYTES, HALVES, TWOS, is_byte_float, is_half, is_two, type_letter

_FUNCTIONS = """exp log sqrt rsqrt tanh erf floor ceil trunc round roundeven exp2 expm1 log2 log10 log1p erfc sin cos tan asin acos atan
sinh cosh asinh acosh atanh cbrt copysign powf atan2 fma"""
_FLOATS = {
    "arith.addf": "add",
    "arith.subf": "sub",
    "arith.mulf": "mul",
    "arith.divf": "div",
    "arith.remf": "remf",
    "arith.maximumf": "max",
    "arith.minimumf": "min",
    "arith.maxnumf": "maxnum",
    "arith.minnumf": "minnum",
    "arith.negf": "neg",
    "math.absf": "abs",
    **{f"math.{name}": name for name in _FUNCTIONS.split()},
}
_PAIRS = {byte.pair for byte in BYTES.values()}
_OF_TWO = [kind.name for kind in KINDS.values() if kind.takes == "ii" and kind.gives == "i" and kind.name not in _PAIRS]
_INTEGERS = {f"arith.{name}": name for name in _OF_TWO} | {"math.absi": "absi"}
_MASKS = {f"arith.{name}": name for name in ("andi", "ori", "xori")}

_CONVERSIONS = ("truncf", "extf", "sitofp", "uitofp", "fptosi", "fptoui", "extsi", "extui", "bitcast")
SCALAR_OPS = (*_FLOATS, *_INTEGERS, "arith.cmpf", "arith.cmpi", "arith.select", *(f"arith.{c}" for c in _CONVERSIONS), "arith.constant")
"""Names of the ops that the vector unit has on f16, f32, i32 and i1."""


def keeps_lane(op: ir.Operation) -> bool:
    """Whether the result is the operand's lane as it is: floats of 16 bits are carried as f32 values, a mask is 0 or 1."""
    if op.name not in ("arith.extf", "arith.extsi", "arith.extui", "arith.bitcast"):
        return False
    types = (str(op.operands[0].type), str(op.results[0].type))
    return (
        types
        in {
            "arith.extf": [*((half, "f32") for half in HALVES), *((name, to) for name in BYTES for to in ("f16", "bf16", "f32"))],
            "arith.extsi": [("i8", "i32")],
            "arith.extui": [("i1", "i32")],
            "arith.bitcast": [("f32", "i32"), ("i32", "f32")],
        }[op.name]
    )


def byte_kind(type_: Any, row: int) -> str:
    """The kind that takes an element of one byte out of the 16 bits that a lane holds of both rows of a pair: its value, or an i32."""
    return BYTES[str(type_)].pair.removesuffix("x2") + ("lo", "hi")[row]


def rounding_kind(type_: Any) -> str:
    """The kind that rounds to a float of one byte."""
    return "to" + BYTES[str(type_)].pair.removesuffix("x2")


def is_folded(op: ir.Operation) -> bool:
    """Whether a rounding to 16 bits belongs to the instruction that computes its operand: nothing else reads that."""
    if op.name != "arith.truncf" or str(op.operands[0].type) != "f32" or not is_half(op.results[0].type):
        return False
    value = op.operands[0]
    if isinstance(value.owner, ir.Block) or len(list(value.uses)) > 1:
        return False
    kind = kind_of(value.owner)
    return kind is not None and kind != "select" and KINDS[kind].rounds


def kind_of(op: ir.Operation) -> str | None:
    """The kind that computes a scalar op, or None if the vector unit has none for it and its types."""
    if op.name == MAKE_PAIR:
        return TWOS[str(op.results[0].type)].two if is_two(op.results[0].type) else None
    letters = "".join("i" if str(v.type) == "i8" and op.name == "arith.sitofp" else type_letter(v.type) for v in op.operands)
    result = type_letter(op.results[0].type) if len(op.results) == 1 else ""
    if op.name == "arith.truncf" and is_byte_float(op.results[0].type):
        result = "f"  # a value among those of that type, which is all that is done in one
    if op.name == "arith.fptosi" and str(op.results[0].type) == "i8":
        result = "i"  # of which a pair takes the low bits
    if len(letters) != len(op.operands) or not result:
        return None
    kind = _candidate(op, letters)
    if kind is None or not _fits(kind, letters, result):
        return None
    if kind == "fma" and str(op.results[0].type) != "f32":
        return None  # rounded to f32 first, it would be rounded twice
    return kind


def _candidate(op: ir.Operation, letters: str) -> str | None:
    match op.name:
        case "arith.cmpf":
            predicate = FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
            return f"cmpf_{predicate}" if predicate not in ("true", "false") else None
        case "arith.cmpi":
            predicate = PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
            signed_masks = letters == "mm" and predicate[0] == "s"  # true is -1 there
            return None if signed_masks else f"cmpi_{predicate}"
        case "arith.truncf":
            return rounding_kind(op.results[0].type) if is_byte_float(op.results[0].type) else "mov"
        case "arith.extsi":
            return "negi"
        case "arith.select" | "arith.sitofp" | "arith.uitofp" | "arith.fptosi" | "arith.fptoui":
            if op.name == "arith.sitofp" and letters == "m":
                return None
            return op.name.removeprefix("arith.")
    if letters == "mm":
        return _MASKS.get(op.name)
    return _FLOATS.get(op.name) or _INTEGERS.get(op.name) or declared_kind(op)


def declared_kind(op: ir.Operation) -> str | None:
    """The kind that the class of an op of ours names."""
    kind = getattr(op.operation.opview, "vector_kind", None)
    if kind and kind not in KINDS:
        raise KtirError(f"'{op.name}' op names the kind '{kind}', which the vector unit does not have{close_to(kind, KINDS)}")
    return kind or None


def is_scalar_op(op: ir.Operation) -> bool:
    """Whether an op computes single numbers, whatever the types: every level has such ops in bodies."""
    return op.name.partition(".")[0] in ("arith", "math") or op.name in (SUM_OF_TWO, MAKE_PAIR) or declared_kind(op) is not None


def _fits(name: str, letters: str, result: str) -> bool:
    """Whether a kind takes operands and gives results of these types; a mask is an i32."""
    kind = KINDS[name]

    def agrees(wanted: str, got: str) -> bool:
        return wanted in ("x", got) or (wanted == "i" and got == "m")

    if len(kind.takes) != len(letters) or not all(map(agrees, kind.takes, letters)):
        return False
    return agrees(kind.gives, result)
