"""Assembly text as plain data: numbers, texts, lists and dicts, in the words of the text itself."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(r'\s*(?:(?:(?://|;).*)|("(?:[^"\\]|\\.)*"|->|[=,\[\]()]|[^\s=,\[\]()";]+))')

DEFAULTS: dict[str, Any] = {
    "base": 0,
    "arg": None,
    "core_table": None,
    "level_step": [],
    "buffers": 1,
    "rotate_levels": [],
    "rotate_step": 0,
    "corelet_step": 0,
    "lane_stride": None,
    "splat": False,
    "pad": "zero",
}
"""What a descriptor holds that says nothing of it."""
LANES = ("value", "fill")
"""Operands that are the bits of a lane: an integer, or an f32 as a decimal with a point or exponent, `inf`, `-inf`, `nan`."""
BOUND_DEFAULTS: dict[str, Any] = {"dim": None, "dim_step": 1, "level": None, "level_step": 0, "corelet_step": 0, "lanes": False}


@dataclass
class Word:
    """An instruction: its name and operands."""

    op: str
    operands: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.operands[name]


@dataclass
class Kernel:
    """Tables and groups by name, descriptors by name, unit programs by the unit's name."""

    cores: int
    tables: dict[str, list[int]] = field(default_factory=dict)
    groups: dict[str, list[int]] = field(default_factory=dict)
    descriptors: dict[str, dict[str, Any]] = field(default_factory=dict)
    units: dict[str, list[Word]] = field(default_factory=dict)


@dataclass
class Program:
    """Arguments by name (`a0`, ..), each with its operands, and kernels in order."""

    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)


def read(text: str) -> Program:
    """The program of well-formed assembly text."""
    program, unit = Program(), []
    for line in text.split("\n"):
        tokens = [t for t in _TOKEN.findall(line) if t]
        if not tokens:
            continue
        name = tokens.pop(0)
        kernel = program.kernels[-1] if program.kernels else Kernel(0)
        if name == ".argument":
            label, _, _name, *rest = tokens
            program.arguments[label] = _operands(rest)
        elif name == ".kernel":
            program.kernels.append(Kernel(**_operands(tokens[1:])))
        elif name in (".table", ".group"):
            getattr(kernel, name[1:] + "s")[tokens[0]] = _value(tokens[2:])[0]
        elif name == ".descriptor":
            label, _, space, *rest = tokens
            kernel.descriptors[label] = {**DEFAULTS, "space": space, "bounds": [], **_operands(rest)}
        elif name == ".unit":
            unit = kernel.units.setdefault(tokens[0], [])
        elif not name.startswith("."):
            unit.append(Word(name, _operands([t for t in tokens if not t.startswith("@")])))
    return program


def _operands(tokens: list[str]) -> dict[str, Any]:
    """`name=value` and bare names, with commas between; the bounds of a descriptor as a list."""
    found: dict[str, Any] = {}
    while tokens:
        name, *tokens = tokens
        if name == ",":
            continue
        value: Any = True
        if tokens and tokens[0] == "=":
            value, tokens = _value(tokens[1:], name in LANES)
        if name == "bound":
            found.setdefault("bounds", []).append({**BOUND_DEFAULTS, **value})
        else:
            found[name] = value
    return found


def _value(tokens: list[str], real: bool = False) -> tuple[Any, list[str]]:
    """A number, list, group of operands or name, and what follows it."""
    first, *rest = tokens
    if first == "[":
        end = rest.index("]")
        return [int(t, 0) for t in rest[:end] if t != ","], rest[end + 1 :]
    if first == "(":
        end = rest.index(")")
        return _operands(rest[:end]), rest[end + 1 :]
    if re.fullmatch(r"[+-]?(0[xX][0-9A-Fa-f]+|[0-9]+)", first):
        return int(first, 0), rest
    return (struct.unpack("<I", struct.pack("<f", float(first)))[0] if real else first), rest
