"""HTML for notebooks: tables, folds, and source with colours. Everything that comes from outside is escaped."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 20
"""Rows of a table that are shown."""
_MOST_VALUES = 6
_WORDS = "|".join(keyword.kwlist)
_LANGUAGES = {
    "ktir": re.compile(
        r"""(?P<comment>//[^\n]*) | (?P<string>"(?:[^"\\\n]|\\.)*") | (?P<name>[%@^!#][\w$.\-]+(?:\#\d+)?)
          | (?P<word>\b[a-z_]\w*\.[a-z_][\w.]*) | (?P<number>\b\d[\w.]*)""",
        re.VERBOSE,
    ),
    "python": re.compile(
        rf"""(?P<comment>\#[^\n]*) | (?P<block>"{{3}}(?s:.)*?"{{3}} | '{{3}}(?s:.)*?'{{3}})
          | (?P<string>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
          | (?P<name>@[\w.]+) | (?P<word>\b(?:{_WORDS})\b) | (?P<number>\b\d[\w.]*)""",
        re.VERBOSE,
    ),
}
_COLORS = {"comment": "#7a7a7a", "string": "#b5532a", "block": "#b5532a", "name": "#2a7ab5", "word": "#8a4fb5", "number": "#2a8a57"}
"""Of a brightness that can be read on white and on black."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts and numbers; of a long one the beginning."""
    every = list(rows)
    if not every:
        return ""
    lines = ["<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in every[:MOST_ROWS]]
    if len(every) > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(head)}">and {len(every) - MOST_ROWS:,} more</td></tr>')
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{''.join(lines)}</table>"


def titled(title: str, *parts: str) -> str:
    """Parts, in HTML, below a line of text."""
    return f"<div><div><b>{escape(title)}</b></div>{''.join(parts)}</div>"


def folded(title: str, inside: str) -> str:
    """HTML that is shown when its title is clicked on."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>" if inside else ""


def source(text: str, language: Literal["ktir", "python"]) -> str:
    """Source with colours."""
    parts, at = [], 0
    for match in _LANGUAGES[language].finditer(text):
        colored = f'<span style="color:{_COLORS[match.lastgroup or ""]}">{escape(match.group())}</span>'
        parts += [escape(text[at : match.start()]), colored]
        at = match.end()
    return f"<pre>{''.join(parts)}{escape(text[at:])}</pre>"


def arrays(named: Iterable[tuple[object, NDArray[Any]]]) -> str:
    """Names, types, shapes and first values of arrays."""
    rows = [(name, f"{array.dtype}[{','.join(map(str, array.shape))}]", _values(array)) for name, array in named]
    return table(("array", "type", "values"), rows)


def _values(array: NDArray[Any]) -> str:
    shown = " ".join(map(str, array.flat[:_MOST_VALUES]))
    return f"{shown} …" if array.size > _MOST_VALUES else shown


def _cell(value: object) -> str:
    return escape(f"{value:,}" if isinstance(value, int | np.integer) and not isinstance(value, bool) else str(value))
