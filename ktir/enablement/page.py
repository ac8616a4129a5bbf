"""The dashboard: one HTML file that asks no network (RFC 1682, RFC 2834), and its rows as CSV."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.enablement.outcomes import Change, Run, State, Status, Suite, Variant, changes

_COLOURS = {State.ENABLED: "good", State.CPU_FALLBACK: "warn", State.FAILED: "bad", State.NOT_IMPLEMENTED: "bad"}
_MEANINGS = {
    State.ENABLED: "every call of the model gives what the host gives, on the device",
    State.CPU_FALLBACK: "a call was computed by the host, with a warning",
    State.FAILED: "some calls are right, others fail",
    State.NOT_IMPLEMENTED: "every call fails",
}
COLUMNS = ("model", "kind", "operation", "status", "ran on", "calls", "shapes", "types", "arguments", "result", "test", "reason")


def write(run: Run, place: Path, before: Run | None = None) -> None:
    """Write the page of a run; `before` is an earlier one, against which changes are shown. Raises KtirError where it cannot be written."""
    _write(place, page(run, before))


def write_csv(run: Run, place: Path) -> None:
    """Write every variant as a row of CSV. Raises KtirError where it cannot be written."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows(_cells(suite, v) for suite in run.suites for v in suite.variants)
    _write(place, out.getvalue())


def _write(place: Path, text: str) -> None:
    try:
        place.write_text(text, encoding="utf-8", errors="backslashreplace")  # half a character of a reason that was cut
    except OSError as error:
        raise KtirError(f"cannot write '{place}': {error.strerror or error}") from None


def page(run: Run, before: Run | None = None) -> str:
    """The text of the page."""
    assets = files("ktir.enablement") / "assets"
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    changed = changes(before, run) if before else []
    said = " · ".join(filter(None, (run.date, run.commit and f"commit {run.commit}", f"run {run.id}")))
    parts = [
        f"<h1>Models on Spyre</h1><p>{html.escape(said)}</p>",
        _overview(run, changed),
        *([_changes(changed, before)] if before else []),
        _matrix(run, "operator", "Operators"),
        _matrix(run, "module", "Modules"),
        _left(run),
        _variants(run),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Models on Spyre</title><style>{style}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}<script>{script}</script></body></html>\n'


def _table(columns: Sequence[str], rows: Iterable[str], name: str = "") -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    return f'<div class="scroll"><table{name and f" id={name}"}><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _overview(run: Run, changed: Sequence[Change]) -> str:
    def row(suite: Suite) -> str:
        regressions = sum(c.is_regression for c in changed if c.suite == suite.name)
        cells = [f'<td data-model="{html.escape(suite.name)}">{html.escape(suite.name)}</td>']
        cells += [_ratio(suite, kind) for kind in ("operator", "module")]
        counts = suite.counts()
        cells += [f'<td class="number">{counts.get(state, 0)}</td>' for state in State]
        cells += [f'<td class="number">{regressions}</td>'] if changed else []
        cells.append(f'<td class="number">{suite.seconds:.1f}</td>')
        return f"<tr>{''.join(cells)}<td>{suite.exit_code or ''} {html.escape(suite.ended)}</td></tr>"

    meanings = "; ".join(f"{state.value}: {said}" for state, said in _MEANINGS.items())
    columns = (
        "model",
        "operators enabled",
        "modules enabled",
        *(s.value for s in State),
        *(["regressions"] if changed else []),
        "seconds",
        "ended early",
    )
    return f"<h2>Overview</h2><p>{meanings}.</p>{_table(columns, map(row, run.suites))}"


def _ratio(suite: Suite, kind: str) -> str:
    states = [state for (k, _), state in suite.states().items() if k == kind]
    if not states:
        return '<td class="absent">none</td>'
    parts = "".join(
        f'<i style="width:{100 * states.count(state) / len(states):.2f}%;background:var(--{_COLOURS[state]})"></i>' for state in State
    )
    good, count = suite.ratio(kind)
    return f'<td class="state"><span class="bar">{parts}</span>{good} of {count} ({good / count:.0%})</td>'


def _changes(changed: Sequence[Change], before: Run | None) -> str:
    def row(c: Change) -> str:
        states = "".join(f'<td class="state {s or "absent"}">{s.value if s else "not there"}</td>' for s in (c.before, c.after))
        names = "".join(f"<td>{html.escape(x)}</td>" for x in (c.suite, c.classification, c.operation))
        return f"<tr>{names}{states}<td>{'regression' if c.is_regression else ''}</td></tr>"

    worse = sum(c.is_regression for c in changed)
    said = f"Against run {before.id if before else ''}: {len(changed)} changed, {worse} of them regressions."
    table = _table(("model", "kind", "operation", "before", "now", ""), map(row, changed)) if changed else ""
    return f"<h2>Changes</h2><p>{html.escape(said)}</p>{table}"


def _matrix(run: Run, kind: str, title: str) -> str:
    states = [suite.states() for suite in run.suites]
    names = sorted({name for each in states for k, name in each if k == kind})

    def row(name: str) -> str:
        cells = [f'<td class="code">{html.escape(name)}</td>']
        for suite, each in zip(run.suites, states, strict=True):
            state = each.get((kind, name))
            if state is None:
                cells.append('<td class="absent"></td>')
            else:
                at = f'data-model="{html.escape(suite.name)}" data-operation="{html.escape(name)}"'
                cells.append(f'<td class="state {state}" {at}>{state.value}</td>')
        return f"<tr>{''.join(cells)}</tr>"

    if not names:
        return ""
    return f"<h2>{title}</h2>{_table((kind, *(s.name for s in run.suites)), map(row, names))}"


def _left(run: Run) -> str:
    rows = [
        f'<tr><td>{html.escape(suite.name)}</td><td class="number">{count}</td><td>{html.escape(why)}</td></tr>'
        for suite in run.suites
        for why, count in suite.left.items()
    ]
    return f"<h2>Calls that were not run</h2>{_table(('model', 'calls', 'why'), rows)}" if rows else ""


def _variants(run: Run) -> str:
    def row(suite: Suite, v: Variant) -> str:
        cells = [html.escape(str(cell)) for cell in _cells(suite, v)]
        classes = ["", "", "code", f"state {v.status}", "", "number", *["code"] * 5, ""]
        inside = "".join(f'<td class="{c}">{cell}</td>' if c else f"<td>{cell}</td>" for c, cell in zip(classes, cells, strict=True))
        return f'<tr data-model="{html.escape(suite.name)}" data-status="{v.status}">{inside}</tr>'

    def choice(name: str, words: Iterable[str]) -> str:
        options = "".join(f"<option>{html.escape(w)}</option>" for w in words)
        return f'<select name="{name}" aria-label="{name}"><option value="">every {name}</option>{options}</select>'

    search = '<input name="text" type="search" placeholder="search" aria-label="search">'
    chosen = choice("model", (s.name for s in run.suites)) + choice("status", (s.value for s in Status))
    form = f'<form>{search}{chosen}<button>as CSV</button><span id="shown"></span></form>'
    rows = (row(suite, v) for suite in run.suites for v in suite.variants)
    return f"<h2>Every call</h2>{form}{_table(COLUMNS, rows, 'variants')}"


def _cells(suite: Suite, v: Variant) -> tuple[object, ...]:
    shapes = " ".join("x".join(map(str, s)) or "scalar" for s in v.input_shapes)
    result = " ".join("x".join(map(str, s)) or "scalar" for s in v.target_shape)
    types, values = " ".join(v.input_dtypes), " ".join(v.arg_values)
    return suite.name, v.classification, v.operation, v.status.value, v.where, v.calls, shapes, types, values, result, v.test_name, v.reason
