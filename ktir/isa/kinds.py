"""The operations of the vector unit: what each kind takes and gives, and which class of time it is in.

A lane holds 32 bits: an f32 value, the bits of an i32, or a mask, which is an i32 of 0 or 1. Names of integer kinds, comparisons and
conversions are those of `arith`; `ktir.isa.functions` has what they compute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ktir.elementary import FLOAT_PREDICATES
from ktir.integers import PREDICATES

Cost = Literal["simple", "transcendental", "long"]


@dataclass(frozen=True)
class Kind:
    """An operation. `takes` has a letter per operand, `gives` that of the result: f = f32, i = i32, m = mask, x = any 32 bits."""

    name: str
    takes: str
    gives: str
    cost: Cost = "simple"

    @property
    def rounds(self) -> bool:
        """Whether its result may be rounded to the f16 grid."""
        return self.gives in "fx"


def _of(names: str, takes: str, gives: str, cost: Cost = "simple") -> list[Kind]:
    return [Kind(name, takes, gives, cost) for name in names.split()]


# The place of a kind among those of as many operands is its code: new ones are added at the end.
_ALL = [
    *_of("mov", "x", "x"),
    *_of("neg abs", "f", "f"),
    *_of("exp log sqrt rsqrt rec tanh erf", "f", "f", "transcendental"),
    *_of("floor", "f", "f"),
    *_of("add sub mul", "ff", "f"),
    *_of("div", "ff", "f", "transcendental"),
    *_of("max min", "ff", "f"),
    *_of("ceil trunc round roundeven", "f", "f"),
    *_of("exp2 expm1 log2 log10 log1p erfc", "f", "f", "transcendental"),
    *_of("sin cos tan asin acos atan sinh cosh asinh acosh atanh cbrt", "f", "f", "long"),
    *_of("absi negi", "i", "i"),
    *_of("sitofp uitofp", "i", "f"),
    *_of("fptosi fptoui", "f", "i"),
    *_of("copysign", "ff", "f"),
    *_of("remf powf atan2", "ff", "f", "long"),
    *_of("addi subi muli minsi maxsi minui maxui andi ori xori shli shrsi shrui", "ii", "i"),
    *_of("divsi remsi floordivsi divui remui", "ii", "i", "long"),
    *_of(" ".join(f"cmpf_{p}" for p in FLOAT_PREDICATES[1:-1]), "ff", "m"),
    *_of(" ".join(f"cmpi_{p}" for p in PREDICATES), "ii", "m"),
    *_of("select", "mxx", "x"),
    *_of("fma", "fff", "f"),
]

KINDS = {k.name: k for k in _ALL}
UNARY, BINARY, TERNARY = (tuple(k.name for k in _ALL if len(k.takes) == n) for n in (1, 2, 3))
REDUCTIONS = ("add", "max", "min", "addi", "maxsi", "minsi")
"""Kinds that VACC and VRED combine with."""
