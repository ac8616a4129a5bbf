"""Bodies as expressions: what a `linalg.generic` yields and what a REP pushes, over the same leaves, with every rounding to 16 bits.

Equal expressions have equal numbers in one table, whatever registers and constants they went through. A rounding is a node of its own;
that of a value which lies on the grid anyway is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ktir.checking.stream.scalars import OPENED, ROUNDED, compares_positions, half_of, kind, letter, live_lanes
from ktir.dialects.structured import Generic
from ktir.isa.kinds import KINDS
from ktir.isa.program import Word
from ktir.mlir import ir
from ktir.target import LANES

_STAYS = ("neg", "abs", "floor", "ceil", "trunc", "round", "roundeven", "max", "min", "maxnum", "minnum", "copysign")
"""Kinds that leave the grid of their operands to none."""
_COMBINED = ("max", "min", "maxnum", "minnum")
_ROUNDED = {"addh": "f16", "addb": "bf16"}
"""Reductions that keep values on their grid: any, and that of one float of 16 bits."""

Key = tuple[str, tuple[int, ...], Any]
Halves = frozenset[str]
_EXACT = {kind: frozenset(("f16", "bf16")) for kind in (*(kind for (name, _), kind in OPENED.items() if name != "i8"), *ROUNDED.values())}
"""Kinds whose results both floats of 16 bits hold."""


def _is_f16(number: np.float32) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.float32(np.float16(number)) == number)


_HOLDS: dict[str, Callable[[np.float32], bool]] = {"f16": _is_f16, "bf16": lambda x: not int(x.view(np.uint32)) & 0xFFFF}
"""Float of 16 bits -> whether it holds a number."""


class Unreadable(Exception):
    """A body that has no expression; the text says why."""


@dataclass
class Expressions:
    """A table of expressions by number."""

    numbers: dict[Key, int] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)
    grid: list[Halves] = field(default_factory=list)
    """The floats of 16 bits that hold the value for sure."""

    def _number(self, key: Key, grid: Halves) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.keys)
            self.keys.append(key)
            self.grid.append(grid)
        return self.numbers[key]

    def operand(self, number: int, half: str) -> int:
        """The entry of an operand. half: the float of 16 bits that it is, if any."""
        return self._number(("operand", (), (number, half)), frozenset((half,)) - {""})

    def bits(self, value: np.float32 | int) -> int:
        """A constant: an f32, or an i32 as 32 bits."""
        bits = value & 0xFFFFFFFF if isinstance(value, int) else int(value.view(np.uint32))
        if bits & 0x7FFFFFFF > 0x7F800000:
            bits = 0x7FC00000  # one NaN stands for all
        number = np.array([bits], np.uint32).view(np.float32)[0]
        halves = {half for half, holds in _HOLDS.items() if np.isnan(number) or holds(number)}
        return self._number(("constant", (), bits), frozenset(halves))

    def live(self, lanes: int, sticks: int) -> int:
        """The mask of a row's first `lanes` lanes."""
        return self._number(("live", (), min(max(lanes, 0), sticks * 64)), frozenset())

    def of(self, kind: str, *operands: int) -> int:
        """A kind of the vector unit on operands."""
        if kind == "mov":
            return operands[0]
        values = operands[1:] if kind == "select" else operands
        stays = kind in _STAYS or kind == "select"
        grid = frozenset.intersection(*(self.grid[i] for i in values)) if stays else _EXACT.get(kind, frozenset[str]())
        return self._number((kind, operands, None), grid)

    def rounded(self, value: int, half: str) -> int:
        """A value rounded to a float of 16 bits."""
        return value if half in self.grid[value] else self._number((half, (value,), None), frozenset((half,)))

    def reduced(self, kind: str, value: int) -> int:
        """The reduction of a row in machine order."""
        return self.tree(kind, self.accumulated(kind, value))

    def accumulated(self, kind: str, value: int) -> int:
        """A value combined over the sticks of a row, lane by lane."""
        return self._number(("accumulate " + kind, (value,), None), self._combined(kind, value))

    def tree(self, kind: str, value: int) -> int:
        """The lanes of a value combined."""
        return self._number(("tree " + kind, (value,), None), self._combined(kind, value))

    def _combined(self, kind: str, value: int) -> Halves:
        return self.grid[value] if kind in _COMBINED else self.grid[value] & {_ROUNDED.get(kind, "")}

    def text(self, number: int, depth: int = 4) -> str:
        """An expression for people, cut off below some depth."""
        kind, operands, data = self.keys[number]
        if kind == "operand":
            return f"in{data[0]}"
        if kind == "constant":
            return f"{np.array([data], np.uint32).view(np.float32)[0]:g}"
        if kind == "live":
            return f"lane < {data}"
        return f"{kind}({', '.join(self.text(i, depth - 1) for i in operands) if depth else '..'})"

    def differing(self, a: int, b: int) -> str:
        """Where two expressions first differ, as `a instead of b`."""
        while True:
            (kind, left, data), (other, right, value) = self.keys[a], self.keys[b]
            unequal = [(x, y) for x, y in zip(left, right, strict=False) if x != y]
            if (kind, data, len(left)) != (other, value, len(right)) or len(unequal) != 1:
                return f"{self.text(a)} instead of {self.text(b)}"
            ((a, b),) = unequal


# Of a linalg.generic


def of_generic(g: Generic, table: Expressions, operands: Sequence[int], rows: int, sticks: int) -> int:
    """What the body yields; of a reduction the reduced value. `operands` are the expressions of the inputs."""
    reader = _Generic(table, g.is_pointwise, rows, sticks)
    reader.known = dict(zip(g.body.arguments, operands, strict=False))
    combine = None if g.is_pointwise else g.yielded.owner
    for op in g.body_ops:
        if (combine is None or op != combine) and not isinstance(op.results[0].type, ir.IndexType):
            reader.known[op.results[0]] = reader.op(op)
    if combine is None:
        return reader.value(g.yielded)
    combiner = g.combiner
    if combiner is None:
        raise Unreadable(f"its body ends in '{combine.name}', which is no reduction of the vector unit")
    return table.reduced(combiner, reader.value(g.mapped))


@dataclass
class _Generic:
    table: Expressions
    pointwise: bool
    rows: int
    sticks: int
    known: dict[ir.Value, int] = field(default_factory=dict)

    def value(self, value: ir.Value) -> int:
        """The expression of a scalar that is known, or a constant."""
        if value not in self.known:
            if isinstance(value.owner, ir.Block) or value.owner.name != "arith.constant":
                raise Unreadable("its body uses what it shall write")
            self.known[value] = self._constant(value.owner)
        return self.known[value]

    def op(self, op: ir.Operation) -> int:
        """The expression of an op's result."""
        table = self.table
        if op.name == "arith.constant":
            return self._constant(op)
        if compares_positions(op):
            stick_loop, row_loop = (0, 1) if self.pointwise else (1, 0)
            lanes = live_lanes(op, {stick_loop: self.sticks, row_loop: self.rows, 2: LANES}, stick_loop, 2)
            if lanes is None:
                raise Unreadable("its body asks for a position that is not a lane before the end of a row")
            return table.live(lanes, self.sticks)
        operands = [self.value(v) for v in op.operands]
        name = kind(op)
        if name is None:
            raise Unreadable(f"the vector unit has no '{op.name}' for its types")
        result = table.of(name, *operands)
        half = half_of(op.results[0].type)
        return table.rounded(result, half) if half else result

    def _constant(self, op: ir.Operation) -> int:
        attribute, holds = op.attributes["value"], letter(op.results[0].type)
        if holds == "f":
            return self.table.bits(np.float32(ir.FloatAttr(attribute).value))
        value = ir.BoolAttr(attribute).value if isinstance(attribute, ir.BoolAttr) else ir.IntegerAttr(attribute).value
        return self.table.bits(int(bool(value)) if holds == "m" else int(value))


# Of a REP


def of_rep(rep: Word, body: Sequence[Word], table: Expressions, entry: Callable[[Word], int]) -> dict[str, tuple[str, int]]:
    """FIFO -> list (`each` or `end`) and expression of what the body pushes into it. `entry` gives the expression of what a VIN pops.

    The verifier has seen that registers are defined before their use and outlive it.
    """
    holds: dict[int, int] = {}
    pushed: dict[str, tuple[str, int]] = {}
    for i, w in enumerate(body):
        match w.op:
            case "vin":
                holds[w["dst"]] = entry(w)
            case "vout":
                if w["fifo"] in pushed:
                    raise Unreadable(f"its body pushes into FIFO {w['fifo']} twice")
                pushed[w["fifo"]] = ("end" if i >= rep["start"] + rep["each"] else "each", holds[w["src"]])
            case "vconst":
                holds[w["dst"]] = table.bits(w["value"])
            case "vlive":
                holds[w["dst"]] = table.live(w["lanes"], rep["sticks"])
            case "vmask":
                live = table.live(w["lanes"], rep["sticks"])
                holds[w["dst"]] = table.of("select", live, holds[w["src"]], table.bits(w["fill"]))
            case "vacc":
                holds[w["dst"]] = table.accumulated(w["kind"], holds[w["src"]])
            case "vred":
                holds[w["dst"]] = table.tree(w["kind"], holds[w["src"]])
            case _:
                operands = [holds[w[name]] for name in ("src", "src2", "src3")[: len(KINDS[w["kind"]].takes)]]
                result = table.of(w["kind"], *operands)
                holds[w["dst"]] = table.rounded(result, w["half"]) if w["round"] else result
    return pushed
