"""What may be written at a place: values in scope, functions, aliases, types, attributes, memory spaces, ops."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ktir.editor import docs
from ktir.editor.check import Analysis
from ktir.editor.hover import value_of
from ktir.editor.text import Index

SPACES = {
    "global": "memory that all tiles share",
    "ct_local": "the scratchpad of the executing tile",
    "ct_local, ct_id = ": "the scratchpad of a tile",
}
_TYPED = re.compile(
    r"""(?P<space>\#ktdp\.memory_space\s*<\s*(?P<in>[\w, ]*))$
      | (?P<value>%[\w$.\-]*)$
      | (?P<symbol>@[\w$.]*)$
      | (?P<named>[!\#][\w$.]*)$
      | (?P<key>[{,]\s*(?P<word>[\w.]*))$
      | (?P<op>[a-z_][\w.]*)$""",
    re.VERBOSE,
)
"""What is being typed at the end of a line."""


@dataclass(frozen=True)
class Item:
    """What may stand in place of the text from `start` on. `kind` is value, function, alias, type, attribute, word or op."""

    label: str
    kind: str
    start: int
    detail: str = ""
    text: str = ""


def complete(index: Index, offset: int, analysis: Analysis | None = None) -> list[Item]:
    """What may be written at a place, given what stands before it."""
    line = index.line_before(offset)
    typed = _TYPED.search(line)
    begin = offset - len(line)
    if typed is None:
        return []
    kind = typed.lastgroup if typed.lastgroup not in ("in", "word") else "space" if typed["space"] else "key"
    if kind == "space":
        return [Item(word, "word", begin + typed.start("in"), said) for word, said in SPACES.items()]
    start = begin + typed.start()
    if kind == "value":
        return _values(index, offset, start, analysis or Analysis())
    if kind == "symbol":
        return [Item(f"@{f.name}", "function", start, _header(f.text, f.body - f.start)) for f in index.functions if f.name]
    if kind == "named":
        sigil = typed["named"][0]
        named = [Item(name, "alias", start) for name in index.aliases if name.startswith(sigil)]
        return named + _entries((e for e in docs.parameters().values() if e.name.startswith(sigil)), start)
    if kind == "key":
        return _keys(index, offset, begin + typed.start("word"))
    return _entries(docs.ops().values(), start)


def _values(index: Index, offset: int, start: int, analysis: Analysis) -> list[Item]:
    function = index.function(offset)
    if function is None:
        return []
    found = []
    for each in function.values.before(start - function.start):
        if function.start + each.at != start:  # what is being typed is none yet
            value = value_of(index, function, each.name, function.start + each.at, analysis)
            found.append(Item(each.name, "value", start, value.type if value else ""))
    return found


def _keys(index: Index, offset: int, start: int) -> list[Item]:
    """The attributes that the op around a place may have; nothing where no dictionary is open."""
    function = index.function(offset)
    begin = function.start if function else 0
    op = index.op(start)
    at = max(index.text.rfind(op, begin, start), begin) if op else begin
    if index.plain.count("{", at, start) <= index.plain.count("}", at, start):
        return []
    if function is None or function.body >= offset:
        op = "func.func" if function else "builtin.module"
    entry = docs.ops().get(op)
    own = [Item(name, "attribute", start, f"of {op}") for name in (entry.attributes if entry else ())]
    return own + _entries((docs.declared()[name] for name in docs.carried_by(op)), start)


def _entries(entries: Iterable[docs.Entry], start: int) -> list[Item]:
    return [Item(e.name, e.kind, start, e.summary, e.markdown()) for e in entries]


def _header(text: str, body: int) -> str:
    return " ".join(text[:body].split())
