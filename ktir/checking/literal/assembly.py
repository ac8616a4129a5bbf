"""Assembly text as plain data: numbers, texts, lists and dicts, in the words of the text itself."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

Word = dict[str, Any]
"""An instruction: its operands, and its name as `op`; `body` has the words of a loop, the streams of a PAR, or the lists of a REP."""

_NAME, _STRING = r"[^\s=,\[\]()\"@]+", r'"(?:[^"\\]|\\.)*"'
_OPERAND = re.compile(rf"({_NAME})(?: *= *(\[[^\]]*\]|\([^)]*\)|{_STRING}|{_NAME}))?|(?:{_STRING}|@\d+)")
_COMMENT = re.compile(rf"({_STRING})|(?://|;).*")
_INTEGER = re.compile(r"[+-]?(0[xX][0-9A-Fa-f]+|[0-9]+)")


@dataclass
class Kernel:
    """Tables, groups and descriptors by name, unit programs by the unit's name."""

    cores: int
    tables: dict[str, list[int]] = field(default_factory=dict)
    groups: dict[str, list[int]] = field(default_factory=dict)
    descriptors: dict[str, dict[str, Any]] = field(default_factory=dict)
    units: dict[str, list[Word]] = field(default_factory=dict)


def read(text: str) -> tuple[list[str], list[Kernel]]:
    """Names of arguments (`a0`, ..) and kernels of well-formed assembly text, in order."""
    arguments: list[str] = []
    kernels: list[Kernel] = []
    unit: list[Word] = []
    for line in text.split("\n"):
        name, _, rest = _COMMENT.sub(r"\1", line).strip().partition(" ")
        kernel = kernels[-1] if kernels else Kernel(0)
        operands = _operands(rest) if name not in (".program", ".source") else {}
        label = next(iter(operands), "")
        if name == ".argument":
            arguments.append(label)
        elif name == ".kernel":
            kernels.append(Kernel(**operands))
        elif name in (".table", ".group"):
            getattr(kernel, name[1:] + "s")[label] = operands[label]
        elif name == ".descriptor":
            kernel.descriptors[label] = operands | {"space": operands[label]}
        elif name == ".unit":
            unit = kernel.units[label] = []
        elif name and not name.startswith("."):
            unit.append({"op": name} | operands)
    for kernel in kernels:
        kernel.units = {unit: _nested(words) for unit, words in kernel.units.items()}
    return arguments, kernels


def _operands(text: str) -> dict[str, Any]:
    """`name=value` and bare names, with commas between; the bounds of a descriptor as a list."""
    found: dict[str, Any] = {}
    for name, value in _OPERAND.findall(text):
        if name == "bound":
            found.setdefault("bounds", []).append(_operands(value[1:-1]))
        elif name:
            found[name] = _value(value, name in ("value", "fill"))
    return found


def _value(text: str, real: bool) -> Any:
    """A list of integers, an integer, or a name; `real`: the bits of a lane, of an f32 if it is no integer. Nothing is True."""
    if text.startswith("["):
        return [int(x, 0) for x in re.findall(r"[^\s,\[\]]+", text)]
    if _INTEGER.fullmatch(text):
        return int(text, 0)
    return struct.unpack("<I", struct.pack("<f", float(text)))[0] if real else text or True


def _nested(words: list[Word]) -> list[Word]:
    """Words with those that belong to others in the others' bodies; `words` is used up, to the end of the loop that they are in."""
    out: list[Word] = []
    while words:
        w = words.pop(0)
        if w["op"] in ("endl", "halt"):
            break
        if w["op"] == "loop":
            w["body"] = _nested(words)
        if w["op"] == "par":
            w["body"] = [words.pop(0) for _ in range(w["streams"])]
        if w["op"] == "rep":
            w["body"] = {part: [words.pop(0) for _ in range(w[part])] for part in ("start", "each", "end")}
        out.append(w)
    return out
