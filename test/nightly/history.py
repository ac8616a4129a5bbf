"""What a night found, on disk, and how two nights differ."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Case:
    outcome: str
    seconds: float = 0.0
    text: str = ""
    """Why it failed or was skipped: a line."""


@dataclass
class Level:
    """Cases of a level by name; `ended` says what kept it from its end, nothing where it came to it."""

    seconds: float
    cases: dict[str, Case] = field(default_factory=dict)
    ended: str = ""

    def count(self, outcome: str) -> int:
        return Counter(case.outcome for case in self.cases.values())[outcome]

    @property
    def rate(self) -> float:
        """Of the cases that apply, how many pass."""
        applicable = len(self.cases) - self.count(SKIPPED)
        return self.count(PASSED) / applicable if applicable else 0.0


@dataclass
class Night:
    commit: str
    date: str
    levels: dict[str, Level]


@dataclass(frozen=True)
class Change:
    level: str
    case: str
    before: str
    after: str

    @property
    def is_regression(self) -> bool:
        """What passed fails, or is not there any more."""
        return self.before == PASSED and self.after in (FAILED, "")


def write(night: Night, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{night.date.replace(':', '')}-{night.commit}.json"
    path.write_text(json.dumps(asdict(night), indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Night:
    """Raises ValueError for a file that is no night."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        levels = {
            name: Level(level["seconds"], {k: Case(**case) for k, case in level["cases"].items()}, level["ended"])
            for name, level in held["levels"].items()
        }
        return Night(held["commit"], held["date"], levels)
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(f"{path}: is no record of a night") from None


def earlier(folder: Path, commit: str | None = None) -> Night | None:
    """The last night of a folder, or the last one of a commit."""
    found = sorted(folder.glob(f"*-{commit or ''}*.json"))
    return read(found[-1]) if found else None


def changes(before: Night, after: Night) -> list[Change]:
    """Of the levels that both nights had. What a level that was cut short did not come to is no change."""
    found = []
    for name in before.levels.keys() & after.levels.keys():
        old, new = before.levels[name], after.levels[name]
        for case in dict.fromkeys([*old.cases, *new.cases]):
            a, b = (level.cases[case].outcome if case in level.cases else "" for level in (old, new))
            if a != b and (b or not new.ended) and (a or not old.ended):
                found.append(Change(name, case, a, b))
    return sorted(found, key=lambda c: (not c.is_regression, c.level, c.case))
