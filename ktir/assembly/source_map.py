"""Where each character of generated text comes from in its source."""

import re
from bisect import bisect_right

from ktir.assembly.elements import Text


class SourceMap:
    """Maps lines and columns (from 1) of the text joined from `pieces` back to `source`."""

    def __init__(self, source: str, pieces: Text) -> None:
        self._source_lines = _line_starts(source)
        self._at = [0]
        self._from: list[int] = []
        self._exact: list[bool] = []
        for text, start in pieces:
            self._from.append(start)
            self._exact.append(source.startswith(text, start))
            self._at.append(self._at[-1] + len(text))
        self._lines = _line_starts("".join(text for text, _ in pieces))

    def source_offset(self, line: int, column: int) -> int:
        """Offset in the source of a place in the generated text. Translated text stands for its beginning."""
        offset = self._lines[min(line, len(self._lines)) - 1] + column - 1
        piece = min(bisect_right(self._at, offset) - 1, len(self._from) - 1)
        if piece < 0:
            return 0
        return self._from[piece] + (offset - self._at[piece] if self._exact[piece] else 0)

    def source_position(self, line: int, column: int) -> tuple[int, int]:
        """Line and column in the source of a place in the generated text."""
        return self.position(self.source_offset(line, column))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a source offset."""
        line = bisect_right(self._source_lines, offset)
        return line, offset - self._source_lines[line - 1] + 1


def _line_starts(text: str) -> list[int]:
    return [0, *(m.end() for m in re.finditer("\n", text))]
