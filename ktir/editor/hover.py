"""What an editor shows of the name under the pointer: type, cost, description, place of definition."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.editor import docs
from ktir.editor.check import Analysis, Value
from ktir.editor.text import Function, Index


@dataclass(frozen=True)
class Hover:
    """Markdown, and the extent of what it is about."""

    markdown: str
    start: int
    end: int


def hover(index: Index, offset: int, analysis: Analysis | None = None) -> Hover | None:
    """What there is to say about a place. Types are those of the last analysis in which the function was read."""
    token = index.token(offset)
    if token is None:
        return None
    name, start = token
    said = _said(index, offset, name, analysis or Analysis())
    return Hover(said, start, start + len(name)) if said else None


def _said(index: Index, offset: int, name: str, analysis: Analysis) -> str:
    if name.startswith("%"):
        function = index.function(offset)
        value = value_of(index, function, name, offset, analysis) if function else None
        return _of_value(value) if value else ""
    if name.startswith("@"):
        function = next((f for f in index.functions if f.name == name[1:].strip('"')), None)
        return _code(function.text[: function.body - function.start].rstrip()) if function else ""
    if entry := docs.lookup(name.strip('"')):
        return entry.markdown()
    if name in index.aliases:
        line = index.position(index.aliases[name])[0]
        return _code(index.text[index.aliases[name] : index.offset(line, 1 << 30)])
    return ""


def value_of(index: Index, function: Function, name: str, offset: int, analysis: Analysis) -> Value | None:
    """What the analysis knows of a value that is named at a place: of several of the name the one nearest to its definition."""
    defined = function.values.definition(name, offset - function.start)
    known = analysis.values.get(function.name, ())
    found = [v for v in known if v.name == name] or [v for v in known if v.name.partition("#")[0] == name.partition("#")[0]]
    if defined is None or not found:
        return None
    line = function.text.count("\n", 0, defined.at)
    return min(found, key=lambda v: abs(v.line - line))


def _of_value(value: Value) -> str:
    return _code(f"{value.name} : {value.type}") + (f"\n\n{value.cost}" if value.cost else "")


def _code(text: str) -> str:
    return f"```mlir\n{text}\n```"
