"""A night as one HTML page that asks no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from nightly.history import FAILED, PASSED, SKIPPED, Change, Night, changes

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0; width: 100% }
th, td { text-align: left; padding: .3em .8em; border-bottom: 1px solid #ddd }
td.number, th.number { text-align: right } .bad { color: #b00020 } .good { color: #1b6e3c } td.case { overflow-wrap: anywhere }
.bar { background: #e5b3b3; height: .7em; min-width: 8em } .bar i { background: #4c9a6a; height: 100%; display: block }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b } th, td { border-color: #444 } }
"""


def page(night: Night, before: Night | None) -> str:
    """All levels with their rates, what has changed since `before`, and what fails."""
    found = changes(before, night) if before else []
    said = f"commit {night.commit}, {night.date}" + (f"; compared with commit {before.commit}, {before.date}" if before else "")
    failed = [
        (name, case, held.text) for name, level in night.levels.items() for case, held in level.cases.items() if held.outcome == FAILED
    ]
    parts = [
        f"<h1>Nightly</h1><p>{html.escape(said)}</p>",
        _levels(night, found),
        "<h2>Changes</h2>" + _table(("level", "case", "before", "now"), map(_change, found)) if before else "",
        "<h2>Failures</h2>" + _table(("level", "case", "why"), ([_cell(x) for x in row] for row in failed)) if failed else "",
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Nightly {night.commit}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _cell(text: object, kind: str = "case") -> str:
    return f'<td class="{kind}">{html.escape(str(text))}</td>'


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = ()) -> str:
    """`numbers` are columns of such."""
    head = "".join(f"<th{' class=number' if column in numbers else ''}>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _change(change: Change) -> list[str]:
    kind = "bad" if change.is_regression else "good" if change.after == PASSED else "case"
    return [_cell(change.level), _cell(change.case), _cell(change.before or "not there"), _cell(change.after or "not there", kind)]


def _levels(night: Night, found: Sequence[Change]) -> str:
    def row(name: str) -> list[str]:
        level = night.levels[name]
        of = len(level.cases) - level.count(SKIPPED)
        bar = f'<div class="bar"><i style="width:{level.rate:.1%}"></i></div>' if of else ""
        regressed = sum(change.is_regression for change in found if change.level == name)
        numbers = [level.count(PASSED), of, f"{level.rate:.1%}" if of else "", level.count(SKIPPED), regressed]
        cells = [_cell(n, "number") for n in (*numbers, f"{level.seconds:.0f}")]
        return [_cell(name, "level"), *cells[:3], f"<td>{bar}</td>", *cells[3:], _cell(level.ended, "bad")]

    numbers = ("passed", "of", "rate", "skipped", "regressed", "seconds")
    return _table(("level", *numbers[:3], "", *numbers[3:], "did not come to its end"), map(row, night.levels), numbers)
