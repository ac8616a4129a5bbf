"""Words <-> arrays of 32-byte records, column by column, and the rules that hold for a single word."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.isa.instructions import (
    FIRST_ACCUMULATOR,
    MAX_SOURCE,
    OPCODE_BY_CODE,
    OPCODES,
    REGISTERS,
    SLOT_FORMATS,
    SLOTS,
    WORD_BYTES,
    Field,
    Opcode,
)
from ktir.isa.program import Word
from ktir.isa.units import FIFOS, Unit

WORD_DTYPE = np.dtype(list(zip(SLOTS, SLOT_FORMATS, strict=True)))
assert WORD_DTYPE.itemsize == WORD_BYTES

WordArray = NDArray[Any]
_UNITS = {u.name: u.value for u in Unit}


class OperandError(ValueError):
    """An operand that its field cannot hold; `index` is the word's."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class _Column:
    """How one field sits in its slot: `raw = (slot >> shift) & mask`, or the whole slot if `mask` is 0."""

    field: Field
    shift: int
    mask: int
    low: int
    """Bounds of the slot as a number."""
    high: int
    codes: dict[str, int] | None
    """Code of each name, if the operand is a name."""

    @property
    def absent(self) -> int | None:
        """What stands for a descriptor or group that the word does not name."""
        return (self.high if self.low == 0 else -1) if self.field.optional and self.field.kind in ("descriptor", "group") else None


def _names(field: Field, op: Opcode) -> dict[str, int] | None:
    if field.kind == "enum":
        return {name: code for code, name in enumerate(field.values)}
    if field.kind == "unit":
        return _UNITS
    if field.kind == "fifo":
        producer = field.slot == "dst"
        ends = {f.name: f.code for f in FIFOS.values() if (f.producer if producer else f.consumer) in op.units}
        return {name: code for name, code in ends.items() if not field.values or name in field.values}
    return None


def _column(field: Field, op: Opcode) -> _Column:
    info = np.iinfo(np.dtype(SLOT_FORMATS[SLOTS.index(field.slot)]))
    mask = (1 << field.bits) - 1 if field.bits else 0
    return _Column(field, field.shift, mask, 0 if mask else int(info.min), mask or int(info.max), _names(field, op))


@cache
def columns(op: str) -> tuple[_Column, ...]:
    """The columns of an instruction, in the order of its fields."""
    return tuple(_column(f, OPCODES[op]) for f in OPCODES[op].fields)


@cache
def _unused(op: str) -> tuple[tuple[str, int], ...]:
    """Slots of an instruction with bits that must be zero, with the mask of these bits (-1 = all)."""
    used: dict[str, int] = {"op": -1, "i3": -1}
    for c in columns(op):
        used[c.field.slot] = used.get(c.field.slot, 0) | (c.mask << c.shift) if c.mask else -1
    return tuple((slot, ~used.get(slot, 0) & 0xFF if 0 < used.get(slot, 0) else -1) for slot in SLOTS if used.get(slot, 0) != -1)


# --- words to arrays -------------------------------------------------------------------------------------------------


def _integers(values: list[Any], rows: list[int], low: int, high: int, name: str) -> list[int]:
    if {type(v) for v in values} != {int}:
        for row, v in zip(rows, values, strict=True):
            if isinstance(v, bool) or not hasattr(v, "__index__"):
                raise OperandError(row, f"{name} expects an integer, but got {v!r}")
        values = [operator.index(v) for v in values]
    if min(values) < low or max(values) > high:
        at = next(i for i, v in enumerate(values) if not low <= v <= high)
        raise OperandError(rows[at], f"{name} expects a value of {low} to {high}, but got {values[at]}")
    return values


def _codes(values: list[Any], rows: list[int], codes: dict[str, int], name: str) -> list[int]:
    try:
        return [codes[v] for v in values]
    except (KeyError, TypeError):
        at = next(i for i, v in enumerate(values) if not (isinstance(v, str) and v in codes))
        raise OperandError(rows[at], f"{name} expects one of {', '.join(codes)}, but got {values[at]!r}") from None


def _raw(column: _Column, values: list[Any], rows: list[int]) -> Any:
    name = column.field.name
    if column.codes is not None:
        return _codes(values, rows, column.codes, name)
    if column.field.kind == "flag":
        if {type(v) for v in values} != {bool}:
            at = next(i for i, v in enumerate(values) if type(v) is not bool)
            raise OperandError(rows[at], f"{name} expects true or false, but got {values[at]!r}")
        return values
    if column.absent is not None:
        values = [column.absent if v is None else v for v in values]
    return _integers(values, rows, column.low, column.high, name)


def pack(words: Sequence[Word]) -> WordArray:
    """The records of `words`. Raises OperandError if a word is no row of the table or an operand does not fit its slot."""
    array = np.zeros(len(words), WORD_DTYPE)
    groups: dict[str, list[int]] = {}
    for i, w in enumerate(words):
        groups.setdefault(w.op, []).append(i)
    for op, rows in groups.items():
        if op not in OPCODES:
            raise OperandError(rows[0], f"unknown instruction {op!r}")
        array["op"][rows] = OPCODES[op].code
        operands = [words[i].operands for i in rows]
        expected = OPCODES[op].fields
        for row, o in zip(rows, operands, strict=True):
            if len(o) != len(expected) or any(f.name not in o for f in expected):
                raise OperandError(row, _mismatch(op, o))
        for c in columns(op):
            raw = np.asarray(_raw(c, [o[c.field.name] for o in operands], rows), array.dtype[c.field.slot])
            if c.mask:
                array[c.field.slot][rows] |= raw << c.shift
            else:
                array[c.field.slot][rows] = raw
    if len(words):
        array["i3"] = _integers([w.source for w in words], list(range(len(words))), 0, MAX_SOURCE, "source")
    return array


def _mismatch(op: str, operands: dict[str, Any]) -> str:
    names = {f.name for f in OPCODES[op].fields}
    missing = [f.name for f in OPCODES[op].fields if f.name not in operands]
    if missing:
        return f"'{op}' needs {missing[0]}"
    return f"'{op}' has no field {min(set(operands) - names)!r}"


# --- arrays to words -------------------------------------------------------------------------------------------------


def _select(array: WordArray, rows: NDArray[np.intp], column: _Column) -> NDArray[Any]:
    raw = array[column.field.slot][rows]
    return (raw >> column.shift) & column.mask if column.mask else raw


def _operands(raw: NDArray[Any], column: _Column) -> list[Any]:
    if column.field.kind == "flag":
        return raw.astype(bool).tolist()
    if column.codes is not None:
        names = {code: name for name, code in column.codes.items()}
        return [names[v] for v in raw.tolist()]
    return [None if v == column.absent else v for v in raw.tolist()] if column.absent is not None else raw.tolist()


def unpack(array: WordArray) -> list[Word]:
    """The words of records that `check` found nothing wrong with."""
    words: list[Any] = [None] * len(array)
    sources = array["i3"].tolist()
    for code in np.unique(array["op"]).tolist():
        rows = np.flatnonzero(array["op"] == code)
        op = OPCODE_BY_CODE[code].name
        names = [c.field.name for c in columns(op)]
        values = [_operands(_select(array, rows, c), c) for c in columns(op)]
        tuples = zip(*values, strict=True) if values else [()] * len(rows)
        for row, operands in zip(rows.tolist(), tuples, strict=True):
            words[row] = Word(op, dict(zip(names, operands, strict=True)), sources[row])
    return words


# --- rules -----------------------------------------------------------------------------------------------------------

Limits = dict[str, int]
"""How many `descriptor`s and `group`s the kernel has, and how many `source`s the program (0 = not known)."""

_RANGES: dict[str, Callable[[Field, Limits], tuple[int, int]]] = {
    "int": lambda f, n: (f.low, f.high),
    "lane": lambda f, n: (0, 2**32 - 1),
    "descriptor": lambda f, n: (0, n["descriptor"] - 1),
    "group": lambda f, n: (0, n["group"] - 1),
    "accumulator": lambda f, n: (FIRST_ACCUMULATOR, REGISTERS - 1),
    "register": lambda f, n: (0, (FIRST_ACCUMULATOR if f.name == "dst" else REGISTERS) - 1),
}


def check(array: WordArray, unit: Unit, limits: Limits) -> Iterator[tuple[int, str]]:
    """Faults of single words, as (index, message): the first of each kind. Order and structure are the verifier's matter."""
    if (array["i3"] < 0).any():
        yield _first(array["i3"] < 0), "negative source id"
    if limits.get("source") and (array["i3"] >= limits["source"]).any():
        at = _first(array["i3"] >= limits["source"])
        yield at, f"source {int(array['i3'][at])} is not in the table of {limits['source']} sources"
    for code in np.unique(array["op"]).tolist():
        rows = np.flatnonzero(array["op"] == code)
        opcode = OPCODE_BY_CODE.get(code)
        if opcode is None:
            yield int(rows[0]), f"unknown opcode {code:#04x}"
        elif unit not in opcode.units:
            yield int(rows[0]), f"'{opcode.name}' cannot run on {unit.name}"
        else:
            yield from _check_op(array, rows, opcode, limits)


def _first(faults: NDArray[np.bool_]) -> int:
    return int(np.flatnonzero(faults)[0])


def _check_op(array: WordArray, rows: NDArray[np.intp], op: Opcode, limits: Limits) -> Iterator[tuple[int, str]]:
    for slot, mask in _unused(op.name):
        stray = (array[slot][rows] & mask if mask != -1 else array[slot][rows]) != 0
        if stray.any():
            yield int(rows[_first(stray)]), f"'{op.name}' does not use {slot}, which must be zero there"
    for c in columns(op.name):
        raw = _select(array, rows, c)
        for faults, expects in _faults(c, raw, limits):
            if faults.any():
                at = _first(faults)
                yield int(rows[at]), f"'{op.name}' expects {c.field.name} {expects}, but got {int(raw[at])}"


def _faults(c: _Column, raw: NDArray[Any], limits: Limits) -> Iterator[tuple[NDArray[np.bool_], str]]:
    kind = c.field.kind
    if c.codes is not None:
        yield ~np.isin(raw, list(c.codes.values())), f"to be the code of one of {', '.join(c.codes)}"
    elif kind != "flag":
        low, high = _RANGES[kind](c.field, limits)
        given = raw != raw.dtype.type(c.absent) if c.absent is not None else np.ones(len(raw), bool)
        if high < low:
            yield given, f"to name a {kind} of the kernel, which has none"
        else:
            yield given & ((raw < low) | (raw > high)), f"in {low} to {high}"
