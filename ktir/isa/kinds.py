"""The operations of the vector unit: what each kind takes and gives, and which class of time it is in.

A lane holds 32 bits: an f32 value, the bits of an i32, or a mask, which is an i32 of 0 or 1. Names of integer kinds, comparisons and
conversions are those of `arith`; `meaning` says what each computes, `ktir.isa.functions` does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ktir.arithmetic.elementary import FLOAT_PREDICATES
from ktir.arithmetic.integers import PREDICATES

Cost = Literal["simple", "transcendental", "long"]


@dataclass(frozen=True)
class Kind:
    """An operation. `takes` has a letter per operand, `gives` that of the result: f = f32, i = i32, m = mask, x = any 32 bits."""

    name: str
    takes: str
    gives: str
    cost: Cost = "simple"
    opens: str = ""
    """Of one that takes a byte out of 16 bits: which pair it is of."""
    makes: str = ""
    """Of one that puts two bytes into 16 bits: which pair that is."""

    @property
    def rounds(self) -> bool:
        """Whether its result may be rounded to 16 bits."""
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
    *_of("addh maxnum minnum addb addl", "ff", "f"),
    *(
        Kind(f"{name}{part}", "i", gives, opens=f"{name}x2")
        for name, gives in (("e4m3", "f"), ("e5m2", "f"), ("i8", "i"))
        for part in ("lo", "hi")
    ),
    *_of("toe4m3 toe5m2", "f", "f"),
    *(Kind(f"{name}x2", takes, "i", makes=f"{name}x2") for name, takes in (("e4m3", "ff"), ("e5m2", "ff"), ("i8", "ii"))),
]

_FORMULAS: dict[str, str] = {
    "mov": "x",
    "neg": "−x: the sign bit is changed, of a NaN too",
    "abs": "x without its sign",
    "sqrt": "√x; of −0 it is −0, of x < 0 NaN",
    "rsqrt": "1 / √x, where √x and the quotient are rounded to f32 each",
    "rec": "1 / x",
    "floor": "the greatest whole number ≤ x; of −0 it is −0",
    "ceil": "the least whole number ≥ x; −0 for −1 < x ≤ −0",
    "trunc": "x without its fraction, with the sign of x",
    "round": "the nearest whole number, of two as near the one farther from 0, with the sign of x",
    "roundeven": "the nearest whole number, of two as near the even one, with the sign of x",
    "add": "x + y",
    "sub": "x − y",
    "mul": "x · y",
    "div": "x / y; 0 / 0 and ∞ / ∞ are NaN, x / 0 is ±∞",
    "max": "the greater one, NaN if either is; −0 < +0",
    "min": "the smaller one, NaN if either is; −0 < +0",
    "addh": "x + y, an f32, rounded to f16",
    "addb": "x + y, an f32, rounded to bf16",
    "addl": "x + y, an f32, rounded to dl16",
    "maxnum": "the greater one, of a NaN and a number the number; −0 < +0",
    "minnum": "the smaller one, of a NaN and a number the number; −0 < +0",
    "absi": "|x|",
    "negi": "−x",
    "sitofp": "x, read with sign, rounded to f32",
    "uitofp": "x, read without sign, rounded to f32",
    "fptosi": "x without its fraction, modulo 2³²; 0 for infinities and NaN",
    "fptoui": "x without its fraction, modulo 2³²; 0 for infinities and NaN",
    "copysign": "|x| with the sign of y",
    "remf": "x − y · trunc(x / y), exact, with the sign of x; NaN if y is 0 or x infinite",
    "addi": "x + y",
    "subi": "x − y",
    "muli": "x · y",
    "minsi": "the smaller one, read with sign",
    "maxsi": "the greater one, read with sign",
    "minui": "the smaller one, read without sign",
    "maxui": "the greater one, read without sign",
    "andi": "bit by bit",
    "ori": "bit by bit",
    "xori": "bit by bit",
    "shli": "x · 2ʸ, y read without sign; 0 for y ≥ 32",
    "shrsi": "⌊x / 2ʸ⌋, x read with sign, y without; 0 or −1 for y ≥ 32",
    "shrui": "⌊x / 2ʸ⌋, both read without sign; 0 for y ≥ 32",
    "divsi": "x / y rounded towards zero, read with sign; a divisor of 0 counts as 1, and −2³¹ / −1 wraps to −2³¹",
    "remsi": "x − y · divsi(x, y), with the sign of x; a divisor of 0 counts as 1",
    "floordivsi": "⌊x / y⌋, read with sign; a divisor of 0 counts as 1, and −2³¹ / −1 wraps to −2³¹",
    "divui": "⌊x / y⌋, read without sign; a divisor of 0 counts as 1",
    "remui": "x − y · divui(x, y)",
    "select": "y where the mask x is not 0, else z: the 32 bits as they are",
    "fma": "x · y + z, rounded once",
    "e4m3lo": "the f8E4M3FN whose bits are bits 0 to 7",
    "e4m3hi": "the f8E4M3FN whose bits are bits 8 to 15",
    "e5m2lo": "the f8E5M2 whose bits are bits 0 to 7",
    "e5m2hi": "the f8E5M2 whose bits are bits 8 to 15",
    "toe4m3": "the nearest f8E4M3FN, of two as near the one whose fraction is even; ±448 for all beyond, infinities too",
    "toe5m2": "the nearest f8E5M2, of two as near the one whose fraction is even; an infinity for |x| ≥ 61440",
    "e4m3x2": "the bits of the nearest f8E4M3FN of x, as `toe4m3` finds it, as bits 0 to 7, that of y as bits 8 to 15",
    "e5m2x2": "the bits of the nearest f8E5M2 of x, as `toe5m2` finds it, as bits 0 to 7, that of y as bits 8 to 15",
    "i8x2": "bits 0 to 7 of x, and those of y as bits 8 to 15",
    "i8lo": "bits 0 to 7, read with sign",
    "i8hi": "bits 8 to 15, read with sign",
}
_RELATIONS = {"eq": "x = y", "ne": "x ≠ y", "gt": "x > y", "ge": "x ≥ y", "lt": "x < y", "le": "x ≤ y"}


def meaning(kind: Kind) -> str:
    """What a kind computes of its operands x, y, z, in words."""
    stem, _, predicate = kind.name.partition("_")
    if kind.name in _FORMULAS:
        return _FORMULAS[kind.name]
    if stem == "cmpf":
        if predicate in ("ord", "uno"):
            return "neither is NaN" if predicate == "ord" else "one is NaN"
        return f"{_RELATIONS[predicate[1:]]}, and {'false' if predicate[0] == 'o' else 'true'} if one is NaN; −0 = +0"
    if stem == "cmpi":
        signs = "" if predicate in ("eq", "ne") else f", read with{'' if predicate[0] == 's' else 'out'} sign"
        return _RELATIONS[predicate[-2:]] + signs
    return "see the page on elementary functions"


KINDS = {k.name: k for k in _ALL}
UNARY, BINARY, TERNARY = (tuple(k.name for k in _ALL if len(k.takes) == n) for n in (1, 2, 3))
REDUCTIONS = ("add", "max", "min", "addi", "maxsi", "minsi", "addh", "maxnum", "minnum", "addb", "addl")
"""Kinds that VACC and VRED combine with."""
