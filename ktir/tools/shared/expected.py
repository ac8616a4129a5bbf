"""`--verify-diagnostics`: what a test's `expected-error` comments ask for against what was reported.

// expected-error@+1 {{tile of shape}}       severities: error, warning, remark, note
// expected-error-re@below {{dim {{[0-9]+}}}}  places: @+n, @-n, @above, @below, @unknown; -re: inner braces hold a pattern
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ktir.diagnostics import Diagnostic

_EXPECTATION = re.compile(
    r"expected-(error|warning|note|remark)(-re)? *(@(?:[+-]\d+|above|below|unknown))? *\{\{(.*?(?:\{\{.*?\}\}.*?)*)\}\}(?!\})"
)


@dataclass
class Expectation:
    """One comment: a message of `severity` containing `text`, at `line` (None: anywhere, without a position)."""

    severity: str
    text: str
    pattern: re.Pattern[str]
    line: int | None
    written: int
    met: bool = False

    def matches(self, diagnostic: Diagnostic) -> bool:
        return _line(diagnostic) == self.line and bool(self.pattern.search(diagnostic.message))


def expectations(text: str, first_line: int) -> list[Expectation]:
    """The expectations that `text`, whose first line has number `first_line`, contains."""
    lines = text.split("\n")
    found: list[Expectation] = []
    for number, line in enumerate(lines):
        for severity, regex, place, message in _EXPECTATION.findall(line):
            parts = re.split(r"\{\{(.*?)\}\}", message) if regex else [message]
            pattern = "".join(part if i % 2 else re.escape(part) for i, part in enumerate(parts))
            at = None if place == "@unknown" else first_line + _place(lines, number, place)
            found.append(Expectation(severity, message, re.compile(pattern), at, first_line + number))
    return found


def _place(lines: list[str], number: int, place: str) -> int:
    if place in ("@above", "@below"):
        step = 1 if place == "@below" else -1
        number += step
        while 0 <= number < len(lines) and _EXPECTATION.search(lines[number]):
            number += step
        return number
    return number + (int(place[1:]) if place else 0)


def mismatches(
    text: str, first_line: int, reported: Iterable[Diagnostic], source: str, only_expected: bool = False
) -> Iterator[Diagnostic]:
    """An error for each expectation that was not met and, unless `only_expected`, for each report that nothing expected."""
    wanted = expectations(text, first_line)
    for diagnostic in _flat(reported):
        candidates = [e for e in wanted if not e.met and e.matches(diagnostic)]
        hit = next((e for e in candidates if e.severity == diagnostic.severity), None)
        if hit:
            hit.met = True
        elif candidates:
            near = f"'{diagnostic.severity}' diagnostic emitted when expecting a '{candidates[0].severity}'"
            yield Diagnostic("error", f"{near}: {diagnostic.message}", diagnostic.location)
        elif not only_expected:
            yield Diagnostic("error", f"unexpected {diagnostic.severity}: {diagnostic.message}", diagnostic.location)
    for expectation in wanted:
        if not expectation.met:
            message = f'expected {expectation.severity} "{expectation.text}" was not produced'
            yield Diagnostic("error", message, f"{source}:{expectation.written}:1")


def _flat(diagnostics: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    for diagnostic in diagnostics:
        yield diagnostic
        yield from _flat(diagnostic.notes)


def _line(diagnostic: Diagnostic) -> int | None:
    return int(diagnostic.location.rsplit(":", 2)[1]) if diagnostic.location else None
