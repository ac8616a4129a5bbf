"""Tokens of MLIR text and a cursor over them with one token of lookahead."""

import re

_BLANKS = r"(?:[\ \t\r\n]+|//[^\n]*)*"
SKIP = re.compile(_BLANKS)
TOKEN = re.compile(
    _BLANKS
    + r"""(?:(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*")
      | (?P<value>%(?:[0-9]+|[A-Za-z_$.\-][\w$.\-]*)(?:\#[0-9]+)?)
      | (?P<named>[!\#][A-Za-z_0-9][\w$.]*)
      | (?P<symbol>@(?:[A-Za-z_][\w$.]*|"[^"\\\n]*(?:\\.[^"\\\n]*)*"))
      | (?P<block>\^[\w$.\-]+)
      | (?P<number>[0-9][\w.]*)
      | (?P<word>[A-Za-z_][\w$.]*)
      | (?P<punctuation>->|>=|<=|==|::|[^\s]))""",
    re.VERBOSE,
)
KINDS = ("end", *TOKEN.groupindex)
_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_CLOSE = frozenset(_OPEN.values())
_BRACKET = re.compile(r'->|>=|<=|[()\[\]{}<>,]|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*')
_FLAT = re.compile(r'<[^<>(){}"/]*(?<!-)>(?!=)')  # an angle bracket with nothing inside that needs a closer look
_ANGLED = frozenset(("memref", "tensor", "vector", "complex", "tuple"))


Text = list[tuple[str, int]]
"""Pieces of generated text, each with the source offset that it stands for."""

Remarks = list[tuple[int, str]]
"""Offsets in the source of old spellings, and what to write instead."""


class SyntaxFault(Exception):
    """Text that does not parse. `offset` counts characters from the start of the text; each line of `message` is an error of its own."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Cursor:
    """Reads tokens from `text` starting at `offset`. The lookahead token is `kind`, `value`, `start`, `end`; `last` ends the one before."""

    __slots__ = ("_remarks", "end", "kind", "last", "start", "text", "value")

    def __init__(self, text: str, offset: int, remarks: Remarks | None = None) -> None:
        """`remarks` collects the old spellings that are met."""
        self.text = text
        self._remarks = remarks
        self.seek(offset)

    def old(self, at: int, message: str) -> None:
        """Notes that an old spelling stands at `at`."""
        if self._remarks is not None:
            self._remarks.append((at, message))

    def seek(self, offset: int) -> None:
        """Moves on to the token at or after `offset`."""
        self.end = offset
        self.advance()
        self.last = offset

    def advance(self) -> None:
        self.last = self.end
        match = TOKEN.match(self.text, self.end)
        if match is None:
            self.kind, self.value, self.start, self.end = "end", "", len(self.text), len(self.text)
        else:
            index = match.lastindex or 0
            self.kind = KINDS[index]
            self.value = match[index]
            self.start, self.end = match.span(index)

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

    def until_comma(self) -> tuple[int, int]:
        """Skips to a comma or a closing bracket outside brackets; the extent of the tokens that were skipped."""
        begin, end = self.start, self._closing(self.start, comma=True)
        if "//" in self.text[begin:end]:  # the extent must not end in a comment
            while self.start < end:
                self.advance()
            return begin, self.last
        self.seek(end)
        return begin, begin + len(self.text[begin:end].rstrip())

    def bracketed(self) -> tuple[int, int]:
        """Skips the bracket under the cursor with all inside it; the extent, brackets included. Raises SyntaxFault where there is none."""
        begin = self.start
        if flat := _FLAT.match(self.text, begin):
            end = flat.end()
        elif self.value not in _OPEN:
            raise SyntaxFault("expected a bracket", begin)
        else:
            at = self._closing(self.end, comma=False)
            close = _OPEN[self.value]
            if self.text[at] != close:
                raise SyntaxFault(f"expected '{close}'", at)
            end = at + 1
        self.seek(end)
        return begin, end

    def _closing(self, at: int, comma: bool) -> int:
        """Offset of the first closing bracket, or also comma, outside the brackets that open at or after `at`."""
        open_: list[str] = []
        for match in _BRACKET.finditer(self.text, at):
            value = match.group()
            if value in _OPEN:
                open_.append(_OPEN[value])
            elif value in _CLOSE:
                if not open_:
                    return match.start()
                if open_.pop() != value:
                    raise SyntaxFault("unbalanced brackets", match.start())
            elif value == "," and comma and not open_:
                return match.start()
        raise SyntaxFault("unexpected end of input", len(self.text))

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
