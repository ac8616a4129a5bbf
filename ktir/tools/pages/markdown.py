"""Texts of the code as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPAN = re.compile(r"(`[^`]*`|(?<![\w*)\]])\*\w(?:[^*`\n]*\w)?\*(?!\w))")
"""Markup that our texts mean: code, and words that are *stressed*."""
_MARKUP = re.compile(r"(?<=\S)\*|<(?=[\w/!?])|\|")
"""Markup that they do not mean: products, angles that HTML would take for a tag, bars that a table would take for an end of a cell."""


def prose(text: str) -> str:
    """Plain text as Markdown: what would be markup but is not meant as such stands for itself."""
    parts = _SPAN.split(text)
    return "".join(p if i % 2 else _MARKUP.sub(r"\\\g<0>", p) for i, p in enumerate(parts))


_BAR = re.compile(r"(?<!\\)\|")
"""What would end a cell."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, or nothing if it has no rows."""
    lines = ["| " + " | ".join(_BAR.sub(r"\|", cell) for cell in row) + " |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines, ""] if lines else []


def fence(text: str, language: str = "text") -> list[str]:
    """A code block."""
    return [f"```{language}", text.strip("\n"), "```", ""]


def code(text: str) -> str:
    """A code span that may stand in a table."""
    text = text.replace("|", chr(92) + "|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def toctree(names: Iterable[str]) -> list[str]:
    """A table of contents of pages in the same folder."""
    return ["```{toctree}", ":maxdepth: 1", "", *names, "```", ""]
