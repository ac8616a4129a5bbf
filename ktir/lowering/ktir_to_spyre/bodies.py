"""Scalar bodies of `linalg.generic` -> vector loops of SFP.

A lane holds floats of 16 bits as f32 values, f32 values, i32 bits, or i1 as a mask of 0 and 1. Constants are made at their first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import SCALAR_OPS, byte_kind, is_folded, keeps_lane, kind_of
from ktir.isa.instructions import FIRST_ACCUMULATOR, PARTS
from ktir.isa.kinds import KINDS
from ktir.isa.program import Word, word
from ktir.lowering.ktir_to_spyre.lane_masks import LaneMasks, is_index_arithmetic
from ktir.lowering.ktir_to_spyre.registers import Registers
from ktir.mlir import arith, ir, is_a
from ktir.target import FORMATS, Target, is_byte, is_half, type_letter

_SCARCE = 6
"""Free registers below which a constant no longer keeps one for the whole body."""


@dataclass(frozen=True)
class Stream:
    """How an operand arrives: from which FIFO, and whether at `each` stick or once at the `start` of a group (a row)."""

    fifo: str
    part: str


def _types() -> str:
    return f"{', '.join(FORMATS)} and i1"


def _alias(value: ir.Value) -> ir.Value:
    """The scalar whose lanes `value` shares; a rounding that is folded is done in the register of what it rounds."""
    while not isinstance(value.owner, ir.Block) and (keeps_lane(value.owner) or is_folded(value.owner)):
        value = value.owner.operands[0]
    return value


def _rounded_to(value: ir.Value) -> str:
    """The float of 16 bits to which the instruction rounds that computes a scalar; empty where it does not."""
    folded = next((use.owner.operation for use in value.uses if is_folded(use.owner.operation)), None)
    type_ = value.type if folded is None else folded.results[0].type
    return str(type_) if is_half(type_) else ""


def _is_constant(value: ir.Value) -> bool:
    return is_a(value.owner, arith.ConstantOp)


@dataclass
class VectorBody:
    """The REP of a generic's scalar ops; `masks` reads conditions on positions."""

    g: Generic
    streams: list[Stream]
    masks: LaneMasks
    source: int
    target: Target
    row: int = 0
    """Of the pairs of rows that operands of one byte have: which one it is for."""
    parts: dict[str, list[Word]] = field(default_factory=lambda: {part: [] for part in PARTS})
    _constants: dict[tuple[str, bytes], ir.Value] = field(default_factory=dict)

    def build(self, groups: int, sticks: int) -> list[Word]:
        """The REP and its body; raises Unsupported for an op that SFP does not have."""
        g = self.g
        started = [a for a, stream in zip(g.body.arguments, self.streams, strict=False) if stream.part == "start"]
        self.registers = Registers(g, _alias, started, self.target)
        for argument, stream in zip(g.body.arguments, self.streams, strict=False):
            if any(True for _ in argument.uses):
                register = self.registers.define(argument, stream.part)
                self._emit(stream.part, "vin", dst=register, fifo=stream.fifo)
                if is_byte(argument.type):
                    self._emit(stream.part, "v1", kind=byte_kind(argument.type, self.row), dst=register, src=register)
            else:
                raise Unsupported("'linalg.generic' op does not use one of its operands", location_text(g.op.location))
        combine = None if g.is_pointwise else g.yielded.owner
        for number, op in enumerate(g.body_ops):
            if combine is None or op != combine:
                self._op(op)
            self.registers.release(number)
        if combine is None:
            self._give("each", self._source(g.yielded))
        else:
            self._reduce()
        rep = word("rep", self.source, groups=groups, sticks=sticks, **{part: len(words) for part, words in self.parts.items()})
        return [rep, *chain(*self.parts.values())]

    def _emit(self, part: str, op: str, **operands: int | float | str | bool) -> None:
        self.parts[part].append(word(op, self.source, **operands))

    # Operands

    def _source(self, value: ir.Value) -> int:
        """The register of a scalar; makes constants and masks of positions at their first use."""
        value = _alias(value)
        if value not in self.registers.of:
            if _is_constant(value):
                self._constant(value)
            else:
                self._live(value)
        return self.registers.of[value]

    def _operand(self, value: ir.Value, part: str) -> int:
        """As `_source`; a constant that an op of every stick reads holds a register for that op only, where it has one use or registers are
        scarce: making it again costs no time."""
        if part != "each" or value in self.registers.of or not _is_constant(value):
            return self._source(value)
        if len(self.registers.free) > _SCARCE and len(list(value.uses)) > 1:
            return self._source(value)
        register = self.registers.brief()
        self._load_constant("each", value, register)
        return register

    def _constant(self, value: ir.Value) -> None:
        letter, number = self._number(value)
        key = (letter, np.float32(number).tobytes() if letter == "f" else bytes(str(number), "ascii"))
        known = self._constants.setdefault(key, value)
        if known == value:
            self._load_constant("start", value, self.registers.define(value, "start"))
        else:
            self.registers.of[value], self.registers.part[value] = self.registers.of[known], "start"

    def _load_constant(self, part: str, value: ir.Value, register: int) -> None:
        letter, number = self._number(value)
        self._emit(part, "vconst", dst=register, value=float(np.float32(number)) if letter == "f" else int(number))

    @staticmethod
    def _number(value: ir.Value) -> tuple[str, int | float]:
        """A constant's type (f or i) and value; a mask is an integer."""
        attribute, letter = value.owner.attributes["value"], type_letter(value.type)
        if letter == "f":
            return "f", ir.FloatAttr(attribute).value
        if letter == "m":
            return "i", int(bool(ir.BoolAttr(attribute).value if isinstance(attribute, ir.BoolAttr) else ir.IntegerAttr(attribute).value))
        if not letter:
            raise Unsupported(
                f"'arith.constant' op of {value.type} has no lane of the vector unit, which has {_types()}",
                location_text(value.owner.location),
            )
        return "i", ir.IntegerAttr(attribute).value

    def _live(self, value: ir.Value) -> None:
        """A mask of positions as a value of its own."""
        self._emit("each", "vlive", dst=self.registers.define(value, "each"), lanes=self._limit(value))

    def _limit(self, condition: ir.Value) -> int:
        lanes = self.masks.limit(condition)
        if lanes is None:
            raise Unsupported(
                "'linalg.index' op is supported only in a mask of pad lanes (64*stick + lane < limit); the nearest supported form reads "
                "the position from a tensor of i32",
                location_text(condition.owner.location),
            )
        return lanes

    # Ops

    def _op(self, op: ir.Operation) -> None:
        if is_a(op, arith.ConstantOp) or keeps_lane(op) or is_folded(op) or is_index_arithmetic(op):
            return
        if is_a(op, arith.SelectOp) and self._masked(op):
            return
        kind = kind_of(op)
        if kind is None:
            types = ", ".join(str(v.type) for v in op.operands)
            known = "this op on others of" if op.name in SCALAR_OPS else f"{', '.join(SCALAR_OPS)}, on"
            raise Unsupported(
                f"'{op.name}' op on {types} to {op.results[0].type} has no instruction; the vector unit has {known} {_types()}",
                location_text(op.location),
            )
        result = op.results[0]
        operands = [_alias(v) for v in op.operands]
        for v in operands:
            if v not in self.registers.of and not _is_constant(v):
                self._live(v)
        start = all(_is_constant(v) or self.registers.part[v] == "start" for v in operands)
        part = "start" if start else "each"
        sources = [self._operand(v, part) for v in operands]
        fields: dict[str, Any] = dict(zip(("src", "src2", "src3"), sources, strict=False))
        if KINDS[kind].rounds and kind != "select" and (half := _rounded_to(result)):
            fields |= {"round": True, "half": half}
        self._emit(part, f"v{len(sources)}", kind=kind, **fields, dst=self.registers.define(result, part))

    def _masked(self, op: ir.Operation) -> bool:
        """select(64*stick + lane < limit, value, constant of floats), which masks padding: an instruction of its own."""
        condition, value, other = op.operands
        if isinstance(condition.owner, ir.Block) or not is_index_arithmetic(condition.owner) or not _is_constant(other):
            return False
        if type_letter(other.type) != "f":
            return False
        lanes = self._limit(condition)
        source = self._source(value)
        fill = float(ir.FloatAttr(other.owner.attributes["value"]).value)
        self._emit("each", "vmask", src=source, dst=self.registers.define(op.results[0], "each"), lanes=lanes, fill=fill)
        return True

    def _reduce(self) -> None:
        kind = self.g.combiner
        if kind is None:
            raise Unsupported(
                f"'{self.g.yielded.owner.name}' op ends a reduction, but the vector unit combines with addf, maximumf, minimumf, maxnumf, "
                "minnumf, and addi, maxsi, minsi on i32",
                location_text(self.g.op.location),
            )
        self._emit("each", "vacc", kind=kind, dst=FIRST_ACCUMULATOR, src=self._source(self.g.mapped))
        if not self.registers.free:
            raise self.registers.too_few()
        result = self.registers.free[0]
        self._emit("end", "vred", kind=kind, src=FIRST_ACCUMULATOR, dst=result)
        self._give("end", result)

    def _give(self, part: str, register: int) -> None:
        """Push the result. An infinity or a number of the text is no DLFloat16 as it is."""
        type_ = self.g.yielded.type
        if self.target.dl16 == "native" and is_half(type_):
            own = self.registers.brief()
            self._emit(part, "v1", kind="mov", dst=own, src=register, round=True, half=str(type_))
            register = own
        self._emit(part, "vout", src=register, fifo="O")
