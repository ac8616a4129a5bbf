"""The names that KTIR text gives to values: MLIR forgets them, and finds a value again by its place."""

from __future__ import annotations

import re
from bisect import bisect_right

__all__ = ["LOOPS", "TextNames"]

_NAME = re.compile(
    r"""//[^\n]* | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
      | %(?P<first>[\w$.\-]+)(?P<results>(?:\s*:\s*\d+)?(?:\s*,\s*%[\w$.\-]+(?:\s*:\s*\d+)?)*\s*=(?!=)\s*)?""",
    re.VERBOSE,
)
_EACH = re.compile(r"%([\w$.\-]+)(?:\s*:\s*(\d+))?")
LOOPS = ("scf.for", "scf.while", "scf.parallel", "scf.forall")
"""Ops whose header names arguments of their body."""
_HEADER = re.compile(rf"(?:{'|'.join(map(re.escape, LOOPS))})\b(?P<header>[^{{]*)")
_BOUND = re.compile(r"%([\w$.\-]+)\s*(?==(?!=)|,[^=()]*\)\s*=)")


class TextNames:
    """The names in `text`, whose first line has number `first_line`. Lines and columns count from 1."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self.text, self.first_line = text, first_line
        self._starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._names: dict[tuple[int, int], list[str]] = {}
        for match in _NAME.finditer(text):
            if match["first"] is not None:
                offset = match.end() if match["results"] else match.start()
                line = bisect_right(self._starts, offset)
                found = _each(match.group()) if match["results"] else [match["first"]]
                self._names[line + first_line - 1, offset - self._starts[line - 1] + 1] = found

    def at(self, line: int, column: int) -> list[str]:
        """The results of the op at this place, or the argument of a function or block there; a group `%x:2` has `x#0` and `x#1`."""
        return self._names.get((line, column), [])

    def bound(self, line: int, column: int) -> list[str]:
        """The loop variables and carried values that the header of the loop at this place names; MLIR gives them no place."""
        line -= self.first_line
        if not 0 <= line < len(self._starts):
            return []
        match = _HEADER.match(self.text, self._starts[line] + column - 1)
        return _BOUND.findall(match["header"]) if match else []


def _each(group: str) -> list[str]:
    found = []
    for name, count in _EACH.findall(group.rstrip().rstrip("=")):
        found += [f"{name}#{i}" for i in range(int(count))] if count else [name]
    return found
