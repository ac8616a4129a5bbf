"""The one mechanism by which examples are found and run: fenced `mlir` blocks whose comments say what must come out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import Diagnostic, KtirError, verify
from ktir.dialects.spyre import from_mlir
from ktir.emulator.machine import Machine
from ktir.emulator.reference import execute
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET
from ktir.tools.shared.expected import mismatches

_FENCE = re.compile(r"^(?P<ticks>```+) *mlir\b[^\n]*\n(?P<text>.*?)^(?P=ticks) *$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^ *// (given|result) +%(\w+): *(\w+) +(.*)$", re.MULTILINE)
_TYPES = {"u8": np.uint8, "f16": np.float16, "f32": np.float32, "i32": np.int32, "i64": np.int64}
SEPARATOR = re.compile(r"^// -----$", re.MULTILINE)
SOURCE = "<text>"
"""The file name that the executor gives to text."""


@dataclass(frozen=True)
class Example:
    """One module of one block; `where` is the page and the line of the block."""

    where: str
    text: str

    def run(self) -> None:
        """Runs the example. Raises AssertionError with what is wrong."""
        lines = _LINE.findall(self.text)
        given = {name: value(kind, text) for role, name, kind, text in lines if role == "given"}
        results = {name: value(kind, text) for role, name, kind, text in lines if role == "result"}
        reported = check_text(self.text)
        if given and not any(d.severity == "error" for d in reported):
            reported += self._execute(given)
        wrong = list(mismatches(self.text, 1, reported, SOURCE))
        assert not wrong, f"{self.where}:\n" + "\n".join(map(str, wrong))
        for name, expected in results.items():
            same(given[name], expected, f"{self.where}: %{name}")

    def _execute(self, given: dict[str, Any]) -> list[Diagnostic]:
        try:
            execute(self.text, args=list(given.values()))
        except KtirError as error:
            return error.diagnostics
        return []


def check_text(text: str) -> list[Diagnostic]:
    """Parses, verifies and prints `text` and reads it back, pretty and generic; the errors and warnings that this gives."""
    reported: list[Diagnostic] = []
    with context():
        try:
            module = parse_module(text, SOURCE, diagnostics=reported)
            verify(module)
            if "inter_tile" in text:
                run_pipeline(module, "ktir-check-legality")
            if "spyre.program" in text:
                Machine(from_mlir(module), DATASHEET)  # verifies the program and runs its control plane
        except KtirError as error:
            return reported + error.diagnostics
        for generic in (False, True):
            printed = print_module(module, generic=generic)
            assert print_module(parse_module(printed), generic=generic) == printed
    return reported


def value(kind: str, text: str) -> Any:
    """The array or number that a `given` or `result` line spells."""
    if match := re.fullmatch(r"(iota|fill)\(([\d, ]*)\) *(\S*)", text.strip()):
        shape = tuple(int(n) for n in match[2].split(",") if n.strip())
        if match[1] == "iota":
            return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(_TYPES[kind])
        return np.full(shape, float(match[3]), _TYPES[kind])
    spelled = json.loads(re.sub(r"-?\b(inf|nan)\b", lambda m: {"inf": "Infinity", "-inf": "-Infinity"}.get(m[0], "NaN"), text))
    return np.array(spelled, _TYPES[kind]) if isinstance(spelled, list) else spelled


def same(found: Any, expected: Any, what: str) -> None:
    """Asserts equal arrays, to the bit; all NaNs are equal."""
    __tracebackhide__ = True
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    equal = (found == expected) & (np.signbit(found) == np.signbit(expected)) | ((found != found) & (expected != expected))
    assert equal.all(), f"{what} holds\n{found}\nbut the example says\n{expected}"


def examples(page: Path, name: str) -> Iterator[Example]:
    """Every example of a Markdown page."""
    text = page.read_text()
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        for number, part in enumerate(SEPARATOR.split(match["text"])):
            yield Example(f"{name}:{line}" + (f".{number}" if number else ""), part)
