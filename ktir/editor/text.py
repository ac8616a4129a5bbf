"""Functions, names and aliases in KTIR text, found without parsing it: half-typed text has them too.

Offsets count characters from the start of the text. What is found in a function is kept with its text, so that after a change only the
function that was changed is looked through again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import zip_longest

from ktir.assembly.lexer import TOKEN

_FOREIGN = re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*')
_FUNCTION = re.compile(r"(?<![\w.$%@#!])func\.func\b(?:[ \t]+(?:private|public|nested)\b)?[ \t]*(?:@([\w$.]*))?")
_BRACKET = re.compile(r"[()\[\]{}]")
_ALIAS = re.compile(r"^[ \t]*([!#][A-Za-z_][\w$]*)[ \t]*=(?!=)", re.MULTILINE)
_SPLIT = re.compile(r"^// -----[^\n]*$", re.MULTILINE)
_VALUE = r"%(?:[0-9]+|[A-Za-z_$.\-][\w$.\-]*)"
_USE = re.compile(_VALUE)
_RESULT = re.compile(rf"{_VALUE}(?=\s*(?::\s*\d+\s*)?(?:,\s*{_VALUE}\s*(?::\s*\d+\s*)?)*\)?\s*=(?!=))")
_BLOCK = re.compile(r"\^[\w$.\-]+\s*\([^{}]*?\)\s*:(?!:)")
_ARGUMENT = re.compile(rf"({_VALUE})\s*:")
_VARIABLES = re.compile(r"\bintermediate_variables\s*\([^()]*\)")
_OP = re.compile(r'(?:^|[={}])[ \t]*"?([a-z_]\w*\.[a-z_][\w.]*)', re.MULTILINE)


@dataclass(frozen=True)
class Function:
    """Where a function stands: its extent, its name, and where its body begins (the end, if it has none)."""

    start: int
    end: int
    name: str
    at: int
    """Where the name stands."""
    body: int
    text: str

    @property
    def values(self) -> Values:
        """The values in it; their offsets count from its start."""
        return _values(self.text, self.body - self.start)


@dataclass(frozen=True)
class Definition:
    """Where a value gets its name, and the extent in which the name stands for it.

    `guessed`: nothing defines the name, and it stands here first.
    """

    name: str
    at: int
    since: int
    until: int
    guessed: bool = False


class Values:
    """The values of one function."""

    def __init__(self, text: str, body: int) -> None:
        plain = plain_of(text)
        self._plain = plain
        self._scopes = _scopes(plain)
        found = {m.start(): m.group() for m in _RESULT.finditer(plain)}
        found |= {m.start(1): m[1] for m in _ARGUMENT.finditer(plain, 0, body)}
        for block in _BLOCK.finditer(plain):
            found |= {m.start(1): m[1] for m in _ARGUMENT.finditer(plain, *block.span())}
        for variables in _VARIABLES.finditer(plain):
            found |= {m.start(): m.group() for m in _USE.finditer(plain, *variables.span())}
        known = set(found.values())
        self.definitions = [self._definition(name, at) for at, name in sorted(found.items())]
        for use in _USE.finditer(plain):
            if use.group() not in known:
                known.add(use.group())
                self.definitions.append(Definition(use.group(), use.start(), use.start(), len(plain), guessed=True))

    def _definition(self, name: str, at: int) -> Definition:
        """What begins a line is the result of an op, known after it and its region; all else is known at once."""
        until = min((end for start, end in self._scopes if start < at < end), default=len(self._plain) + 1)
        since, line = at, self._plain.rfind("\n", 0, at) + 1
        if not self._plain[line:at].strip():
            end = self._plain.find("\n", at)
            end = len(self._plain) if end < 0 else end
            since = max((to for start, to in self._scopes if at < start < end < to), default=end)
        return Definition(name, at, since, until)

    def before(self, at: int) -> list[Definition]:
        """What is defined at a place, the nearest definition of each name first."""
        seen: dict[str, Definition] = {}
        for each in reversed(self.definitions):
            if each.since <= at <= each.until and not each.guessed:
                seen.setdefault(each.name, each)
        return list(seen.values())

    def definition(self, name: str, at: int) -> Definition | None:
        """What a name at a place stands for; where nothing before it defines it, the first definition anywhere."""
        name = name.partition("#")[0]
        same = [d for d in self.definitions if d.name == name]
        here = (d for d in same if d.at <= at <= d.at + len(name))
        near = (d for d in reversed(same) if d.since <= at <= d.until)
        return next(here, None) or next(near, None) or next(iter(same), None)


@lru_cache(512)
def _values(text: str, body: int) -> Values:
    return Values(text, body)


class Index:
    """One version of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = plain_of(text)
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self.functions = _functions(text, self.plain)
        self.aliases = {m[1]: m.start(1) for m in reversed(list(_ALIAS.finditer(self.plain)))}

    @cached_property
    def sections(self) -> list[tuple[int, int]]:
        """The extents that `// -----` lines part: modules of their own."""
        bounds = [0, *(m.end() for m in _SPLIT.finditer(self.text))]
        return list(zip(bounds, [*bounds[1:], len(self.text)], strict=True))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column, both from 0."""
        line = bisect_right(self._lines, offset) - 1
        return line, offset - self._lines[line]

    def offset(self, line: int, column: int) -> int:
        """The place of a line and column from 0; the nearest one, where there is none."""
        if line >= len(self._lines):
            return len(self.text)
        end = self._lines[line + 1] - 1 if line + 1 < len(self._lines) else len(self.text)
        return max(self._lines[max(line, 0)], min(self._lines[max(line, 0)] + max(column, 0), end))

    def line(self, number: int) -> str:
        """A line, from 0, without its end; empty where there is none."""
        return self.text[self.offset(number, 0) : self.offset(number, 1 << 30)] if 0 <= number < len(self._lines) else ""

    def line_before(self, offset: int) -> str:
        """What stands in the line before a place."""
        return self.text[self._lines[self.position(offset)[0]] : offset]

    def token(self, offset: int) -> tuple[str, int] | None:
        """The token that a place touches, a name rather than a sign; and where it begins."""
        line = self.position(offset)[0]
        at, end = self._lines[line], self.offset(line, 1 << 30)
        found = None
        while (match := TOKEN.match(self.text, at, end)) and match.start(match.lastindex or 0) <= offset:
            kind, start = match.lastgroup or "", match.start(match.lastindex or 0)
            at = match.end()
            if offset <= at and (found is None or kind != "punctuation"):
                found = match[kind], start
        return found

    def function(self, offset: int) -> Function | None:
        """The function around a place."""
        return next((f for f in self.functions if f.start <= offset <= f.end), None)

    def op(self, offset: int) -> str:
        """The name of the op in whose text a place lies; empty before the first one."""
        function = self.function(offset)
        found = list(_OP.finditer(self.text, function.start if function else max(0, offset - 4000), offset))
        return found[-1][1] if found else "func.func" if function else ""

    def definition(self, offset: int) -> tuple[int, int] | None:
        """The extent of the name where what a place names is defined: a value, a function, an alias."""
        token = self.token(offset)
        if token is None:
            return None
        name, _ = token
        if name.startswith("%") and (function := self.function(offset)):
            found = function.values.definition(name, offset - function.start)
            return (function.start + found.at, function.start + found.at + len(found.name)) if found else None
        if name.startswith("@"):
            at = next((f.at for f in self.functions if f.name == name[1:].strip('"')), None)
            return (at, at + len(name)) if at is not None else None
        at = self.aliases.get(name)
        return (at, at + len(name)) if at is not None else None


def plain_of(text: str) -> str:
    """The text with blanks instead of comments and of what stands in quotes."""
    return _FOREIGN.sub(lambda m: " " * len(m.group()), text)


def _scopes(plain: str) -> list[tuple[int, int]]:
    """The extents of braces; one that is not closed goes to the end."""
    found, open_ = [], []
    for match in re.finditer("[{}]", plain):
        if match.group() == "{":
            open_.append(match.start())
        elif open_:
            found.append((open_.pop(), match.start()))
    return [*found, *((at, len(plain)) for at in open_)]


def _functions(text: str, plain: str) -> list[Function]:
    """Every function; one whose brackets do not close ends where the next one begins."""
    starts = list(_FUNCTION.finditer(plain))
    found = []
    for match, following in zip_longest(starts, starts[1:]):
        limit = following.start() if following else len(text)
        split = _SPLIT.search(text, match.end(), limit)
        body, end = _extent(plain, match.end(), split.start() if split else limit)
        at = match.start(1) - 1 if match[1] is not None else match.start()
        found.append(Function(match.start(), end, match[1] or "", at, body, text[match.start() : end]))
    return found


def _extent(plain: str, at: int, limit: int) -> tuple[int, int]:
    """Where the body of a function begins and where the function ends."""
    depth, body = 0, -1
    for match in _BRACKET.finditer(plain, at, limit):
        if match.group() in "([{":
            if match.group() == "{" and not depth and body < 0 and not plain[at : match.start()].rstrip().endswith("attributes"):
                body = match.start()
            depth += 1
        elif not depth:
            limit = match.start()
            break
        else:
            depth -= 1
            if not depth and body >= 0:
                return body, match.end()
    end = at + len(plain[at:limit].rstrip())
    return (body if body >= 0 else end), end
