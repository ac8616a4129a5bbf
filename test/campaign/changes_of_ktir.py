"""Streams of another program: allocated KTIR with one number, op or map changed, lowered, beside the KTIR that was meant.

Nothing is wrong with such a stream by itself; its units agree with each other on what they do.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace

from campaign.changes_of_words import near

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import Package
from ktir.package.files import ALLOCATED

_NUMBERS = {
    "address": re.compile(r"(?<= = arith\.constant )(\d+)(?= : index)"),
    "constant": re.compile(r"(?<= = arith\.constant )([-\w.+]+)(?= : (?:f16|f32|i32))"),
    "view": re.compile(r"(?<=strides: \[)[\d, ]+(?=\])"),
    "subscript": re.compile(r"(?<=construct_access_tile )%\w+\[[^\]]*\]"),
    "rotation": re.compile(r"(?<=nbuf = )\d+|(?<=, stride = )\d+(?=>)"),
    "map": re.compile(r"(?<=indexing_maps = \[)[^\]]*(?=\])"),
    "op": re.compile(r"(?<= = )(?:arith\.(?:add|sub|mul|div|maximum|minimum)f|math\.\w+)(?= %)"),
    "combiner": re.compile(r"(?<= = )arith\.(?:addi|subi|muli|minsi)(?= %)"),
}
FLOATS = [f"arith.{name}f" for name in ("add", "sub", "mul", "div", "maximum", "minimum")]
FUNCTIONS = [f"math.{name}" for name in ("exp", "tanh", "sin", "absf", "sqrt", "rsqrt", "floor")]
INTEGERS = [f"arith.{name}i" for name in ("add", "sub", "mul")] + ["arith.minsi"]


def other_program(p: Package, r: random.Random) -> bool:
    """The instructions are those of KTIR that differs in one place."""
    text = p.files[ALLOCATED].decode()
    kind = r.choice(list(_NUMBERS))
    places = list(_NUMBERS[kind].finditer(text))
    if not places:
        return False
    place = r.choice(places)
    changed = text[: place.start()] + _changed(kind, place[0], r) + text[place.end() :]
    try:
        with context(), ir.Location.unknown():
            program = lower_program(parse_module(changed, ALLOCATED))
    except (KtirError, AssertionError, ValueError, IndexError, ArithmeticError):
        return False  # what no instruction can do
    if replace(program, sources=p.program.sources) == p.program:
        return False
    p.program = program
    return True


def _changed(kind: str, old: str, r: random.Random) -> str:
    match kind:
        case "address" | "rotation":
            return str(near(r, int(old)))
        case "constant":
            return r.choice(["0.0", "1.0", "-2.5"]) if "." in old or "x" in old else str(near(r, int(old)))
        case "view":
            numbers = [int(n) for n in old.split(",")]
            k = r.randrange(len(numbers))
            numbers[k] = near(r, numbers[k], 1)
            return ", ".join(map(str, numbers))
        case "subscript" | "map":
            start, bracket, inside = old.rpartition("[")
            parts = inside.rstrip("]").split(", ")
            r.shuffle(parts)
            return start + bracket + ", ".join(parts) + "]" * bool(bracket)
        case "op":
            return r.choice(FLOATS if old in FLOATS else FUNCTIONS)
    return r.choice(INTEGERS)
