"""Tokens of MLIR text and a cursor over them with one token of lookahead."""

import re
from collections.abc import Iterable

SKIP = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<value>%(?:[0-9]+|[A-Za-z_$.\-][\w$.\-]*)(?:\#[0-9]+)?)
      | (?P<named>[!\#][A-Za-z_0-9][\w$.]*)
      | (?P<symbol>@(?:[A-Za-z_][\w$.]*|"(?:[^"\\\n]|\\.)*"))
      | (?P<block>\^[\w$.\-]+)
      | (?P<number>[0-9][\w.]*)
      | (?P<word>[A-Za-z_][\w$.]*)
      | (?P<punctuation>->|>=|<=|==|::|[^\s])""",
    re.VERBOSE,
)
KINDS = ("end", *TOKEN.groupindex)
_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSE = frozenset(_OPEN.values())
_ANGLED = frozenset(("memref", "tensor", "vector", "complex", "tuple"))


class SyntaxFault(Exception):
    """Text that does not parse. `offset` counts characters from the start of the text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Cursor:
    """Reads tokens from `text` starting at `offset`. The lookahead token is `kind`, `value`, `start`, `end`; `last` ends the one before."""

    __slots__ = ("end", "kind", "last", "start", "text", "value")

    def __init__(self, text: str, offset: int) -> None:
        self.text = text
        self.seek(offset)

    def seek(self, offset: int) -> None:
        self.end = offset
        self.advance()
        self.last = offset

    def advance(self) -> None:
        self.last = self.end
        match = TOKEN.match(self.text, SKIP.match(self.text, self.end).end())  # type: ignore[union-attr]  # SKIP matches ""
        if match is None:
            self.kind, self.value, self.start, self.end = "end", "", len(self.text), len(self.text)
        else:
            self.kind, self.value = match.lastgroup or "end", match.group()
            self.start, self.end = match.span()

    def fail(self, message: str) -> SyntaxFault:
        return SyntaxFault(message, self.start)

    def accept(self, value: str) -> bool:
        """Takes the lookahead if it is exactly `value`."""
        if self.value != value:
            return False
        self.advance()
        return True

    def expect(self, value: str) -> None:
        if self.value != value:
            raise self.fail(f"expected '{value}'")
        self.advance()

    def take(self, kind: str, what: str) -> str:
        """The lookahead, which must be of `kind`; `what` names it in the message."""
        if self.kind != kind:
            raise self.fail(f"expected {what}")
        value = self.value
        self.advance()
        return value

    def integer(self) -> int:
        start = self.start
        negative = self.accept("-")
        text = self.take("number", "integer")
        try:
            return -int(text, 0) if negative else int(text, 0)
        except ValueError:
            raise SyntaxFault("expected integer", start) from None

    def balanced(self, stops: Iterable[str]) -> tuple[int, int]:
        """Skips to the first of `stops` (or to a closing bracket) outside brackets; the extent of what was skipped."""
        begin, end = self.start, self.start
        open_: list[str] = []
        while open_ or (self.value not in stops and self.value not in _CLOSE):
            if self.kind == "end":
                raise self.fail("unexpected end of input")
            if self.kind == "punctuation":
                if self.value in _OPEN:
                    open_.append(_OPEN[self.value])
                elif self.value in _CLOSE and open_.pop() != self.value:
                    raise self.fail("unbalanced brackets")
            end = self.end
            self.advance()
        return begin, end

    def bracketed(self) -> tuple[int, int]:
        """Skips the bracket under the cursor with all inside it; the extent, brackets included."""
        begin, close = self.start, _OPEN[self.value]
        self.advance()
        self.balanced(())
        if self.value != close:
            raise self.fail(f"expected '{close}'")
        self.advance()
        return begin, self.last

    def type_extent(self) -> tuple[int, int]:
        """Skips one type; its extent."""
        begin = self.start
        if self.value == "(":
            self.bracketed()
            self.expect("->")
            if self.value == "(":
                self.bracketed()
            else:
                self.type_extent()
        elif self.kind == "named" or self.value in _ANGLED:
            self.advance()
            if self.value == "<" and self.start == self.last:
                self.bracketed()
        else:
            self.take("word", "type")
        if self.start == begin or self.text[begin] == "#":
            raise SyntaxFault("expected type", begin)
        return begin, self.last
