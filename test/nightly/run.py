"""Run operators, graphs, modules, models and serving, compare with the last night or with a commit, and write a page.

    python test/nightly/run.py [--level NAME ...] [--minutes N] [--against COMMIT] [-o FOLDER] [-- options of pytest]

Each night is a file of FOLDER (default: build/nightly), and index.html there is the page of the last one. The levels take less than three
hours, or less than N minutes, of which each has its share, and ends where that is over; the table says how many of the cases that apply
pass. The status is 1 where something regressed or a level did not come to its end.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from nightly import history, report
from nightly.levels import PLANS, ROOT, run


def _commit() -> str:
    """The short hash, with a mark where files differ from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [plan.name for plan in PLANS]
    parser.add_argument("--level", metavar="NAME", action="append", choices=names, help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--minutes", metavar="N", type=_positive, help="for all levels that run, together (default: what each may take)")
    parser.add_argument("--against", metavar="COMMIT", help="compare with the last night of this commit (default: with the last night)")
    parser.add_argument("-o", dest="folder", metavar="FOLDER", type=Path, default=ROOT / "build" / "nightly", help="where nights are kept")
    given = sys.argv[1:] if arguments is None else arguments
    cut = given.index("--") if "--" in given else len(given)
    options, rest = parser.parse_args(given[:cut]), given[cut + 1 :]
    try:
        before = history.earlier(options.folder, options.against)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.against and before is None:
        print(f"{options.folder}: has no night of commit {options.against}", file=sys.stderr)
        return 2
    night = history.Night(_commit(), time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()), {})
    plans = [plan for plan in PLANS if not options.level or plan.name in options.level]
    share = options.minutes / sum(plan.minutes for plan in plans) if options.minutes else 1.0
    for plan in plans:
        level = night.levels[plan.name] = run(replace(plan, minutes=share * plan.minutes), rest)
        of = len(level.cases) - level.count(history.SKIPPED)
        print(f"{plan.name:10}{level.count(history.PASSED):6} of {of:<6}{level.rate:7.1%}{level.seconds:8.0f} s  {level.ended}", flush=True)
    history.write(night, options.folder)
    (options.folder / "index.html").write_text(report.page(night, before), encoding="utf-8")
    regressed = [change for change in (history.changes(before, night) if before else []) if change.is_regression]
    for change in regressed:
        print(f"regressed: {change.level}: {change.case}")
    print(f"page: {options.folder / 'index.html'}")
    return int(bool(regressed) or any(level.ended for level in night.levels.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what a level started ends too
    sys.exit(main())
