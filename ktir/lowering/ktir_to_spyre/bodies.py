"""Scalar bodies of `linalg.generic` -> vector loops of SFP."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic
from ktir.isa.instructions import FIRST_ACCUMULATOR
from ktir.isa.program import Word, word
from ktir.mlir import ir
from ktir.target import DATASHEET, LANES

UNARY = {
    "math.exp": "exp",
    "math.log": "log",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.tanh": "tanh",
    "math.erf": "erf",
    "math.absf": "abs",
    "math.floor": "floor",
    "arith.negf": "neg",
}
BINARY = {
    "arith.addf": "add",
    "arith.subf": "sub",
    "arith.mulf": "mul",
    "arith.divf": "div",
    "arith.maximumf": "max",
    "arith.minimumf": "min",
}


_SCARCE = 6
"""Free registers below which a constant no longer keeps one for the whole body."""


@dataclass(frozen=True)
class Stream:
    """How an operand arrives: from which FIFO, at each stick or once at the start of a group (a row)."""

    fifo: str
    phase: str


@dataclass
class VectorBody:
    """Body words of one REP, built from a generic's scalar ops; `stick_loop` and `lane_loop` are its loops inside a row."""

    g: Generic
    streams: list[Stream]
    stick_loop: int
    lane_loop: int
    source: int
    words: list[Word] = field(default_factory=list)
    register: dict[ir.Value, int] = field(default_factory=dict)
    phase: dict[ir.Value, str] = field(default_factory=dict)
    _constants: dict[bytes, ir.Value] = field(default_factory=dict)

    def build(self) -> list[Word]:
        """The words in order; raises Unsupported for an op that SFP does not have."""
        g = self.g
        self._last_uses()
        for argument, stream in zip(g.body.arguments, self.streams, strict=False):
            if any(True for _ in argument.uses):
                self._define(argument, stream.phase)
                self._emit("vin", dst=self.register[argument], fifo=stream.fifo, phase=stream.phase)
            else:
                raise Unsupported("'linalg.generic' op does not use one of its operands", location_text(g.op.location))
        combine = None if g.is_pointwise else g.yielded.owner
        for number, op in enumerate(g.body_ops):
            if combine is None or op != combine:
                self._op(op)
            self._release(number)
        if combine is None:
            self._emit("vout", src=self._source(g.yielded), fifo="O", phase="stick")
        else:
            self._reduce()
        return self.words

    def _emit(self, op: str, **operands: int | float | str | bool) -> None:
        self.words.append(word(op, self.source, **operands))

    # Registers: linear scan over the body. Start values and constants must survive until the group's last stick, so they take registers
    # that no value of a stick has had, from the high end.

    def _last_uses(self) -> None:
        self.free = list(range(DATASHEET.vector_registers))
        self.touched: set[int] = set()
        self.brief: list[int] = []
        self.expires: dict[int, list[ir.Value]] = {}
        position = {op: i for i, op in enumerate(self.g.body_ops)}
        self.last: dict[ir.Value, int] = {}
        for op, i in position.items():
            for operand in op.operands:
                self.last[self._alias(operand)] = i
        self.last[self._alias(self.g.yielded)] = len(position) + 1
        if not self.g.is_pointwise:
            self.last[self._alias(self.g.mapped)] = len(position) + 1

    @staticmethod
    def _alias(value: ir.Value) -> ir.Value:
        """Widening does not change a value: f16 is carried on the f32 grid."""
        while not isinstance(value.owner, ir.Block) and value.owner.name == "arith.extf":
            value = value.owner.operands[0]
        return value

    def _define(self, value: ir.Value, phase: str) -> int:
        if not self.free or (phase == "start" and max(self.free) in self.touched):
            raise self._too_many()
        register = max(self.free) if phase == "start" else self.free[0]
        self.free.remove(register)
        if phase == "stick":
            self.touched.add(register)
        self.register[value] = register
        self.phase[value] = phase
        if phase == "stick" and value in self.last:
            self.expires.setdefault(self.last[value], []).append(value)
        return self.register[value]

    def _too_many(self) -> Unsupported:
        return Unsupported(
            f"'linalg.generic' op needs more than {DATASHEET.vector_registers} vector registers; "
            "the nearest supported form computes the expression in two steps",
            location_text(self.g.op.location),
        )

    def _release(self, number: int) -> None:
        for value in self.expires.pop(number, []):
            self.free.insert(0, self.register[value])
        self.free[:0] = self.brief
        self.brief = []

    def _source(self, value: ir.Value) -> int:
        value = self._alias(value)
        if value not in self.register and not isinstance(value.owner, ir.Block) and value.owner.name == "arith.constant":
            self._constant(value)
        return self.register[value]

    @staticmethod
    def _is_constant(value: ir.Value) -> bool:
        return not isinstance(value.owner, ir.Block) and value.owner.name == "arith.constant"

    def _brief_constant(self, value: ir.Value) -> int:
        """A constant that an op of every stick reads: where registers are scarce it holds one for that op only."""
        if value in self.register or len(self.free) > _SCARCE:
            return self._source(value)
        if not self.free:
            raise self._too_many()
        register = self.free.pop(0)
        self.touched.add(register)
        self.brief.append(register)
        self._emit("vconst", dst=register, value=float(np.float32(ir.FloatAttr(value.owner.attributes["value"]).value)))
        return register

    def _constant(self, value: ir.Value) -> None:
        number = np.float32(ir.FloatAttr(value.owner.attributes["value"]).value)
        known = self._constants.setdefault(number.tobytes(), value)
        if known == value:
            self._emit("vconst", dst=self._define(value, "start"), value=float(number))
        else:
            self.register[value], self.phase[value] = self.register[known], "start"

    # Ops

    def _op(self, op: ir.Operation) -> None:
        name = op.name
        if name in ("arith.constant", "linalg.index", "arith.cmpi", "arith.muli", "arith.addi", "arith.extf"):
            return  # constants are made at their use, index arithmetic belongs to a mask
        result = op.results[0]
        rounds = isinstance(result.type, ir.F16Type)
        if name == "arith.select":
            self._mask(op)
            return
        operands = [self._alias(v) for v in op.operands]
        phase = "start" if all(self._is_constant(v) or self.phase[v] == "start" for v in operands) else "stick"
        sources = [self._brief_constant(v) if phase == "stick" and self._is_constant(v) else self._source(v) for v in operands]
        if name == "arith.truncf":
            self._emit("v1", kind="mov", src=sources[0], dst=self._define(result, phase), round=True, phase=phase)
        elif name in UNARY:
            self._emit("v1", kind=UNARY[name], src=sources[0], dst=self._define(result, phase), round=rounds, phase=phase)
        elif name in BINARY:
            a, b = sources
            self._emit("v2", kind=BINARY[name], src=a, src2=b, dst=self._define(result, phase), round=rounds, phase=phase)
        else:
            raise Unsupported(
                f"'{name}' op on {result.type} has no instruction; the vector unit has {', '.join([*UNARY, *BINARY])}",
                location_text(op.location),
            )

    def _mask(self, op: ir.Operation) -> None:
        """select(64*stick + lane < limit, value, constant), the one form in which padding is masked."""
        lanes = self._mask_limit(op.operands[0])
        other = op.operands[2]
        if lanes is None or isinstance(other.owner, ir.Block) or other.owner.name != "arith.constant":
            raise Unsupported(
                "'arith.select' op is supported only as a mask of pad lanes (select(64*stick + lane < limit, value, constant))",
                location_text(op.location),
            )
        fill = float(ir.FloatAttr(other.owner.attributes["value"]).value)
        source = self._source(op.operands[1])
        self._emit("vmask", src=source, dst=self._define(op.results[0], "stick"), lanes=lanes, fill=fill)

    def _mask_limit(self, condition: ir.Value) -> int | None:
        compare = condition.owner
        if compare.name != "arith.cmpi" or ir.IntegerAttr(compare.attributes["predicate"]).value != 6:  # ult
            return None
        add, limit = compare.operands[0].owner, compare.operands[1].owner
        if add.name != "arith.addi" or limit.name != "arith.constant":
            return None
        scaled, lane = (v.owner for v in add.operands)
        if scaled.name != "arith.muli" or lane.name != "linalg.index" or scaled.operands[1].owner.name != "arith.constant":
            return None
        stick = scaled.operands[0].owner
        loops = [ir.IntegerAttr(o.attributes["dim"]).value for o in (stick, lane) if o.name == "linalg.index"]
        factor = ir.IntegerAttr(scaled.operands[1].owner.attributes["value"]).value
        if loops != [self.stick_loop, self.lane_loop] or factor != LANES:
            return None
        return ir.IntegerAttr(limit.attributes["value"]).value

    def _reduce(self) -> None:
        kind = self.g.combiner
        assert kind is not None
        self._emit("vacc", kind=kind, dst=FIRST_ACCUMULATOR, src=self._source(self.g.mapped))
        if not self.free:
            raise self._too_many()
        result = self.free[0]
        self._emit("vred", kind=kind, src=FIRST_ACCUMULATOR, dst=result, phase="end")
        self._emit("vout", src=result, fifo="O", phase="end")
