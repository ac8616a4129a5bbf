"""What is wrong in a text, and the types of its values: the parser and the verifier, function by function where the whole has an error.

MLIR's reader stops at its first error. So where the text as a whole does not read, each function is read alone, with the aliases that it
names and declarations of the functions that it calls; what stands outside of functions is read with declarations of all of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ktir.assembly import parse_module, pretty
from ktir.assembly.names import LOOPS, TextNames
from ktir.context import lent
from ktir.cost.bodies import scalar_cycles
from ktir.diagnostics import Diagnostic, KtirError, position
from ktir.editor.text import Function, Index
from ktir.mlir import builtin, func, ir, is_a, linalg, operations
from ktir.target import DATASHEET, Target

_NAMED = re.compile(r"[!#][A-Za-z_][\w$]*")
_CALLED = re.compile(r"@([\w$.]+)")
_VISIBILITY = re.compile(r"func\.func\b(?:\s+(?:private|public|nested)\b)?")
_MODULE = re.compile(r"(?<![\w.$])module\b[^\n{]*(?:\battributes\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\s*)?\{")


@dataclass(frozen=True)
class Finding:
    """A diagnostic at a line and column, both from 1."""

    severity: str
    message: str
    line: int
    column: int
    notes: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Value:
    """What is known of a value: its type, and what it costs. `line` counts from that of its function, which is 0."""

    name: str
    line: int
    type: str
    cost: str = ""


@dataclass
class Analysis:
    """What `check` finds. `values` is by function; a function that does not read has none."""

    findings: list[Finding] = field(default_factory=list)
    values: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    settled: bool = True
    """Whether all is known; else what only the functions together show is not."""


@dataclass(frozen=True)
class _Read:
    findings: tuple[Finding, ...]
    values: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return all(f.severity != "error" for f in self.findings)


def check(text: str) -> Analysis:
    """Reads a text, each part between `// -----` lines as a module of its own. Never raises."""
    return _check(text, lambda index: None)


def check_changed(text: str) -> Analysis:
    """As `check`, at the price of the functions that are new since a text around them was sound; of a long text that nobody has checked, as
    many of its functions as a tenth of a second allows. What only the whole shows is then not settled. Never raises."""
    return _check(text, _check_new)


def _check(text: str, shorter: Callable[[Index], Analysis | None]) -> Analysis:
    found = Analysis()
    index = Index(text)
    for start, end in index.sections:
        first = index.position(start)[0]
        part = text[start:end]
        own = index if part == text else Index(part)
        checked = _parts.get(part) or shorter(own) or _parts.setdefault(part, _check_part(own))
        found.findings += [_moved(f, first) for f in checked.findings]
        found.values |= checked.values
        found.settled &= checked.settled
    while len(_parts) > _MOST_PARTS:
        del _parts[next(iter(_parts))]
    return found


_parts: dict[str, Analysis] = {}
"""Parts of texts that were read as a whole."""
_MOST_PARTS = 64


@dataclass(frozen=True)
class _Sound:
    """What was found in a function that was read; lines count from that in which it begins."""

    findings: tuple[Finding, ...]
    values: tuple[Value, ...]


_sound: dict[tuple[str, str], dict[str, _Sound]] = {}
"""Of modules that read, the functions; by what stands around these, and then by what they need to be read alone."""
_MOST_SOUND = 16


def _around(index: Index) -> tuple[str, str]:
    """What stands around functions, and their names."""
    bounds = [0, *(at for f in index.functions for at in (f.start, f.end)), len(index.text)]
    return "\0".join(index.text[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)), " ".join(f.name for f in index.functions)


def _keep(index: Index, read: _Read) -> None:
    """Remember the functions of a module that reads."""
    head, found = _Head(index, sound=True), {}
    for function in index.functions:
        first, last = index.position(function.start)[0] + 1, index.position(function.end)[0] + 1
        inside = tuple(_moved(f, -first) for f in read.findings if first <= f.line <= last)
        found[head.with_function(function)[0]] = _Sound(inside, read.values.get(function.name, ()))
    _sound[_around(index)] = found
    while len(_sound) > _MOST_SOUND:
        del _sound[next(iter(_sound))]


def _check_new(index: Index) -> Analysis | None:
    """What is found in the functions that are new in a module that was sound without them, or in the first ones of a long text that was
    not read yet; None where more has changed than a few."""
    known = _sound.get(_around(index))
    if known is None:
        return _check_first(index)
    head = _Head(index, sound=True)
    alone = [head.with_function(f) for f in index.functions]
    if sum(text not in known for text, _ in alone) > _MOST_NEW:
        return None
    found = Analysis(settled=False)
    for function, (text, before) in zip(index.functions, alone, strict=True):
        first = index.position(function.start)[0]
        if (same := known.get(text)) is not None:
            found.findings += [_moved(f, first + 1) for f in same.findings]
            found.values[function.name] = same.values
            continue
        read = _read(text)
        if any(f.line <= before for f in read.findings):  # what stands around it is at fault, or seems so
            return None
        found.findings += [_moved(f, first - before) for f in read.findings]
        found.values |= read.values
        if read.sound:
            known[text] = _Sound(tuple(_moved(f, -before - 1) for f in read.findings), read.values.get(function.name, ()))
        else:
            found.settled = True
    _sound[_around(index)] = {text: known[text] for text, _ in alone if text in known}
    return replace(found, findings=list(dict.fromkeys(found.findings)))


_MOST_NEW = 4
"""Functions, beyond which the text as a whole is read sooner."""


def _check_part(index: Index) -> Analysis:
    whole = _read(index.text)
    if whole.sound and index.functions:
        _keep(index, whole)
    if whole.sound or not index.functions:
        return Analysis(list(whole.findings), whole.values)
    head = _Head(index)
    findings = head.findings()
    values: dict[str, tuple[Value, ...]] = {}
    for function in index.functions:
        found, known = head.read(function)
        findings += found
        values |= known
    if all(f.severity != "error" for f in findings):
        findings += whole.findings  # what only the functions together show
    return Analysis(list(dict.fromkeys(findings)), values)


def _check_first(index: Index) -> Analysis | None:
    """What the first functions of a long text show alone, as many as there is time for; None of a short one, which is read as a whole."""
    begin = time.process_time()
    if not index.functions or index.text.count("\n") < _LONG:
        return None
    found, head = Analysis(settled=False), _Head(index)
    for function in index.functions:
        findings, values = head.read(function)
        found.findings += findings
        found.values |= values
        if time.process_time() - begin > _AT_FIRST:
            break
    return replace(found, findings=list(dict.fromkeys(found.findings)))


_LONG = 1000
"""Lines of a text that takes longer to read than an answer may."""
_AT_FIRST = 0.1
"""Seconds of reading, after which a first answer is given."""


def _moved(finding: Finding, lines: int) -> Finding:
    return replace(finding, line=finding.line + lines, notes=tuple(_moved(n, lines) for n in finding.notes))


class _Head:
    """What a function needs of the text around it to be read alone. What does not read itself is left out of it."""

    def __init__(self, index: Index, *, sound: bool = False) -> None:
        """sound: all of it is known to read."""
        self.index, self.sound = index, sound
        self.first = min(f.start for f in index.functions)
        opening = _MODULE.search(index.plain, 0, self.first)
        self.opening = index.text[opening.start() : opening.end()] if opening else ""
        if self.opening and not sound and not _read(f"{self.opening}\n}}").sound:
            self.opening = "module {"
        self.closing = "\n}" if self.opening else ""
        self.faults: list[Finding] = []
        self.aliases = self._sound_aliases()

    def _sound_aliases(self) -> dict[str, str]:
        """Each alias that reads, with its text: up to the end of brackets that open in its line."""
        found: dict[str, str] = {}
        for name, at in sorted(self.index.aliases.items(), key=lambda item: item[1]):
            line = self.index.position(at)[0]
            text = self.index.text[at : self.index.offset(line, 1 << 30)]
            while text.count("(") + text.count("{") > text.count(")") + text.count("}") and len(text) < 4000:
                line += 1
                end = self.index.offset(line, 1 << 30)
                if end >= self.first or at + len(text) == end:
                    break
                text = self.index.text[at:end]
            found[name] = text
            if self.sound:
                continue
            before = self._needed(text, {other: of for other, of in found.items() if other != name})
            read = _read("\n".join([*before, text]))
            if not read.sound:
                del found[name]
                first, column = self.index.position(at)
                lines = "\n".join(["", *before]).count("\n")
                inside = [_moved(f, first - lines) for f in read.findings if lines < f.line <= lines + 1 + text.count("\n")]
                self.faults += inside or [Finding("error", read.findings[-1].message, first + 1, column + 1)]
        return found

    @staticmethod
    def _needed(text: str, aliases: dict[str, str]) -> list[str]:
        """The aliases that a text names, and those that they name, in their order."""
        needed: set[str] = set()
        new = [text]
        while new:
            names = set(_NAMED.findall(new.pop())) & aliases.keys() - needed
            needed |= names
            new += [aliases[name] for name in names]
        return [text for name, text in aliases.items() if name in needed]

    def declaration(self, function: Function) -> str:
        """The function without its body; empty, if that does not read."""
        header = function.text[: function.body - function.start].rstrip()
        text = _VISIBILITY.sub("func.func private", header, count=1)
        return text if self.sound or _read("\n".join([*self._needed(text, self.aliases), text])).sound else ""

    def with_function(self, function: Function) -> tuple[str, int]:
        """The function as a text that can be read alone, and how many lines of it stand before the function."""
        called = set(_CALLED.findall(function.text)) - {function.name}
        declared = [text for f in self.index.functions if f.name in called and (text := self.declaration(f))]
        lines = [*self._needed("\n".join([function.text, *declared]), self.aliases), self.opening, *declared]
        head = "\n".join(line for line in lines if line)
        head += "\n" if head else ""
        return head + " " * self.index.position(function.start)[1] + function.text + self.closing, head.count("\n")

    def read(self, function: Function) -> tuple[list[Finding], dict[str, tuple[Value, ...]]]:
        """What a function alone shows, at its place in the text."""
        alone, before = self.with_function(function)
        read = _read(alone)
        first, indent = self.index.position(function.start)
        inside = [_moved(f, first - before) for f in read.findings if f.line > before]
        if not inside and not read.sound:
            inside = [replace(f, line=first + 1, column=indent + 1) for f in read.findings]
        return inside, read.values

    def findings(self) -> list[Finding]:
        """What is wrong outside of functions: with aliases, or else with what is around the functions."""
        pieces, at, inside = [], 0, []
        for function in self.index.functions:
            declared = self.declaration(function)
            lines = max(function.text.count("\n") - declared.count("\n"), 0)
            pieces += [self.index.text[at : function.start], declared, "\n" * lines]
            at = function.end
            inside.append((self.index.position(function.start)[0] + 1, self.index.position(function.end)[0] + 1))
        read = _read("".join([*pieces, self.index.text[at:]]))
        outside = [f for f in read.findings if not any(first <= f.line <= last for first, last in inside)]
        return self.faults or outside


@lru_cache(2048)
def _read(text: str) -> _Read:
    """Parses and verifies a text. Faults of ours are findings too: an editor goes on."""
    warnings: list[Diagnostic] = []
    try:
        with lent(len(text)), ir.Location.unknown():
            module = parse_module(text, diagnostics=warnings)
            return _Read(tuple(map(_finding, warnings)), _values(module, text))
    except KtirError as error:
        return _Read(tuple(map(_finding, (*warnings, *error.diagnostics))))
    except Exception as error:
        return _Read((Finding("error", f"internal error: {type(error).__name__}: {error}", 1, 1),))


def _finding(diagnostic: Diagnostic) -> Finding:
    at = re.search(r":(-?\d+):(\d+)$", diagnostic.location or "")
    line, column = (max(int(at[1]), 1), max(int(at[2]), 1)) if at else (1, 1)
    return Finding(diagnostic.severity, diagnostic.message, line, column, tuple(map(_finding, diagnostic.notes)))


_known: dict[tuple[str, str], tuple[Value, ...]] = {}
"""The values of functions that were read, by their text and that of the aliases: of a text that changes, most functions stay."""
_MOST_KNOWN = 2000


def _values(module: ir.Module, text: str) -> dict[str, tuple[Value, ...]]:
    """The values of the functions of a module."""
    index = Index(text)
    aliases = "\n".join(index.line(index.position(at)[0]) for at in index.aliases.values())
    places = {index.position(f.start)[0] + 1: f for f in index.functions}
    if len(_known) > _MOST_KNOWN:
        _known.clear()
    found = {}
    for op in (
        o for top in module.body.operations for o in (operations(top) if is_a(top.operation, builtin.ModuleOp) else [top.operation])
    ):
        function = places.get((position(op.location) or ("", 0, 0))[1]) if is_a(op, func.FuncOp) else None
        if function is not None:
            key = function.text, aliases
            if key not in _known:
                _known[key] = tuple(_of_function(op, function, *index.position(function.start)))
            found[function.name] = _known[key]
    return found


def _of_function(root: ir.Operation, function: Function, first: int, indent: int) -> Iterator[Value]:
    """The values of a function that begins in line `first`, by the names that its text gives them."""
    names = TextNames(" " * indent + function.text, first + 1)
    types: dict[ir.Type, str] = {}

    def value(name: str, line: int, of: ir.Value, cost: str = "") -> Value:
        if of.type not in types:
            types[of.type] = pretty(of.type)
        return Value(f"%{name}", line - 1 - first, types[of.type], cost)

    for op in operations(root):
        _, line, column = position(op.location) or ("", 0, 0)
        if op.results and (named := names.at(line, column)):
            cost = _cost(op, DATASHEET)
            yield from (value(name, line, result, cost) for name, result in zip(named, op.results, strict=False))
        if op.name in LOOPS and (bound := names.bound(line, column)):
            yield from (value(n, line, a) for n, a in zip(bound, op.regions[0].blocks[0].arguments, strict=False))
        for argument in (a for region in op.regions for block in region.blocks for a in block.arguments):
            _, line, column = position(argument.location) or ("", 0, 0)
            yield from (value(name, line, argument) for name in names.at(line, column)[:1])


def _cost(op: ir.Operation, target: Target) -> str:
    """What is known of the price of an op without a plan."""
    said = []
    body = list(op.regions[0].blocks[0].operations) if is_a(op, linalg.GenericOp) else []
    if body or is_a(op.parent, linalg.GenericOp):
        cycles = sum(scalar_cycles(each.operation, target) for each in body[:-1]) if body else scalar_cycles(op, target)
        said.append(f"{cycles} cycle{'s' * (cycles != 1)} of the vector unit per stick")
    type_ = op.results[0].type
    if isinstance(type_, ir.RankedTensorType) and type_.has_static_shape and isinstance(type_.element_type, (ir.FloatType, ir.IntegerType)):
        count = 1
        for size in type_.shape:
            count *= size
        said.append(f"{count * max(type_.element_type.width, 8) // 8:,} bytes")
    return ", ".join(said)
