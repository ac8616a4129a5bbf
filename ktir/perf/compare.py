"""Two tables of times: what became slower, and what is gone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ktir.diagnostics import KtirError
from ktir.perf.modelled import Row

FORM = 2
"""Of the file; another one is refused."""


@dataclass(frozen=True)
class Change:
    """Of one line: `ratio` of the second time to the first, None where only one of them has it."""

    name: str
    ratio: float | None
    verdict: str


def write(rows: list[Row], path: Path) -> None:
    path.write_text(json.dumps({"form": FORM, "rows": [asdict(row) for row in rows]}, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Row]:
    """Raises KtirError at a file that is no table, and OSError."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["form"] != FORM:
            raise KtirError(f"expects form {FORM}, but got {held['form']!r}", str(path))
        return [Row(**row) for row in held["rows"]]
    except (ValueError, KeyError, TypeError):
        raise KtirError("is no table of ktir-perf", str(path)) from None


def compare(before: list[Row], after: list[Row], tolerance: float) -> list[Change]:
    """Every line of either table. Modelled times do not scatter: `tolerance` is what one does not care about."""
    old, new = ({row.name: row.ms for row in rows} for rows in (before, after))
    found = []
    for name in dict.fromkeys([*old, *new]):
        if name not in new or name not in old:
            found.append(Change(name, None, "new" if name in new else "missing"))
            continue
        ratio = new[name] / old[name]
        verdict = "slower" if ratio > 1 + tolerance else "faster" if ratio < 1 - tolerance else "equal"
        found.append(Change(name, ratio, verdict))
    return found


def is_worse(changes: list[Change]) -> bool:
    """Whether a line became slower or is gone."""
    return any(change.verdict in ("slower", "missing") for change in changes)
