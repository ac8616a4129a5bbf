"""Tokens of assembly text, with places for messages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NoReturn

from ktir.isa.problem import AssemblyError

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r]+ | (?://|;)[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<atom>[.%@]?[+-]?[A-Za-z0-9_][A-Za-z0-9_.$]*(?:(?<=[eE])[+-][0-9]+)?)
  | (?P<mark>->|[=,\[\]()])
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """A piece of a line. `kind` is `string`, `atom`, `mark` or `end`; `column` counts from 1."""

    kind: str
    text: str
    column: int


class Line:
    """A cursor over the tokens of one line."""

    def __init__(self, text: str, number: int, source: str) -> None:
        self.number, self.source = number, source
        self.tokens: list[Token] = []
        self.next = 0
        at = 0
        while at < len(text):
            m = _TOKEN.match(text, at)
            if m is None:
                what = "unterminated string" if text[at] == '"' else f"unexpected character {text[at]!r}"
                raise AssemblyError(what, source, number, at + 1)
            if m.lastgroup != "space":
                self.tokens.append(Token(m.lastgroup or "", m.group(), at + 1))
            at = m.end()
        self.tokens.append(Token("end", "", len(text) + 1))

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.next]

    def fail(self, reason: str, token: Token | None = None) -> NoReturn:
        """Raise an error at `token`, or at the next one."""
        raise AssemblyError(reason, self.source, self.number, (token or self.token).column)

    def take(self) -> Token:
        """The next token, consumed."""
        token = self.token
        if token.kind != "end":
            self.next += 1
        return token

    def accept(self, text: str) -> bool:
        """Whether the next token is this mark or atom; consumes it if so."""
        if self.token.kind in ("mark", "atom") and self.token.text == text:
            self.next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Consume this mark."""
        if not self.accept(text):
            self.fail(f"expects '{text}', but got {describe(self.token)}")

    def atom(self, what: str) -> Token:
        """Consume an atom."""
        if self.token.kind != "atom":
            self.fail(f"expects {what}, but got {describe(self.token)}")
        return self.take()

    def integer(self, what: str) -> int:
        """Consume an integer, decimal or hexadecimal."""
        token = self.atom(what)
        return integer(self, token, what)

    def string(self, what: str) -> str:
        """Consume a string literal."""
        if self.token.kind != "string":
            self.fail(f"expects {what}, but got {describe(self.token)}")
        token = self.take()
        try:
            return json.loads(token.text)
        except ValueError:
            self.fail("malformed string", token)

    def end(self) -> None:
        """Check that nothing is left."""
        if self.token.kind != "end":
            self.fail(f"expects the end of the line, but got {describe(self.token)}")


def describe(token: Token) -> str:
    """A token as it stands in messages."""
    return "the end of the line" if token.kind == "end" else f"'{token.text}'"


def integer(line: Line, token: Token, what: str) -> int:
    """The value of an integer token."""
    if not re.fullmatch(r"[+-]?(0[xX][0-9A-Fa-f]{1,32}|[0-9]{1,40})", token.text):
        line.fail(f"expects {what}, but got '{token.text}'", token)
    return int(token.text, 16 if "x" in token.text.lower() else 10)
