"""Where each character of generated text comes from in its source."""

import re
from bisect import bisect_right
from itertools import accumulate

from ktir.assembly.lexer import Text


class SourceMap:
    """Maps lines and columns (from 1) of the text joined from `pieces` back to `source`."""

    def __init__(self, source: str, pieces: Text) -> None:
        self.source = source
        self._texts = [text for text, _ in pieces]
        self._from = [start for _, start in pieces]
        self._at = list(accumulate(map(len, self._texts), initial=0))
        self._source_lines = _line_starts(source)
        self._text = "".join(self._texts)
        self._lines = _line_starts(self._text)

    def source_offset(self, line: int, column: int) -> int:
        """Offset in the source of a place in the generated text. Translated text stands for its beginning."""
        start = self._lines[min(line, len(self._lines)) - 1]
        offset = start + self._characters(start, column - 1)
        piece = min(bisect_right(self._at, offset) - 1, len(self._from) - 1)
        if piece < 0:
            return 0
        start, text = self._from[piece], self._texts[piece]
        return start + (offset - self._at[piece] if self.source.startswith(text, start) else 0)

    def _characters(self, start: int, count: int) -> int:
        """How many characters the `count` bytes from `start` on are, since MLIR's columns count bytes."""
        following = self._text[start : start + count]
        return count if following.isascii() else len(following.encode()[:count].decode(errors="ignore"))

    def source_position(self, line: int, column: int) -> tuple[int, int]:
        """Line and column in the source of a place in the generated text; 0, 0 (MLIR's place for an implicit module) stays."""
        return (0, 0) if line == 0 else self.position(self.source_offset(line, column))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a source offset."""
        line = bisect_right(self._source_lines, offset)
        return line, offset - self._source_lines[line - 1] + 1


def _line_starts(text: str) -> list[int]:
    return [0, *(m.end() for m in re.finditer("\n", text))]
