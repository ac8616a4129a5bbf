"""`ktir-perf run plan.yaml`: modelled times of models of real sizes; `ktir-perf compare`: what two runs differ in."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ktir.diagnostics import KtirError

WIDTHS = (48, 11, 11, 8, 11, 9)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-perf",
        description="Modelled time to the first token and between tokens of language models, from their configurations alone.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure what a plan names", description="Compile what a plan names and print its times.")
    run.add_argument("plan", metavar="PLAN.yaml", type=Path, help="models, dtypes, batches, lengths")
    run.add_argument("-o", dest="output", metavar="FILE", type=Path, help="write the table for compare")
    compare = commands.add_parser("compare", help="compare two tables", description="Exit status 1 where a line is slower or missing.")
    compare.add_argument("before", metavar="BEFORE", type=Path, help="a table of run")
    compare.add_argument("after", metavar="AFTER", type=Path, help="a later one")
    compare.add_argument("--tolerance", metavar="SHARE", type=float, default=0.01, help="changes below this are none (default: 0.01)")
    return made


def _line(*cells: str) -> str:
    return "".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, WIDTHS, strict=False)))


def _run(plan: Path, output: Path | None) -> int:
    from ktir.perf.compare import write
    from ktir.perf.modelled import measure
    from ktir.perf.plan import read

    rows, status = [], 0
    print(_line("", "ms", "bound ms", "share", "tokens/s", "host s"))
    for case in read(plan):
        try:
            row = measure(case)
        except KtirError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            status = 1
            continue
        numbers = (f"{row.ms:.2f}", f"{row.bound:.2f}", f"{row.share:.0%}", f"{row.tokens_per_second:,.1f}", f"{row.host:.1f}")
        print(_line(row.name, *numbers), flush=True)
        rows.append(row)
    if output is not None:
        write(rows, output)
    return status


def _compare(before: Path, after: Path, tolerance: float) -> int:
    from ktir.perf.compare import compare, is_worse, read

    changes = compare(read(before), read(after), tolerance)
    for change in changes:
        print(_line(change.name, "" if change.ratio is None else f"{change.ratio:.3f}", change.verdict))
    worse = is_worse(changes)
    print("verdict: " + ("worse" if worse else "no worse"))
    return int(worse)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 well, 1 refused, or worse than before."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options.plan, options.output)
        return _compare(options.before, options.after, options.tolerance)
    except KtirError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"ktir-perf: error: cannot read or write '{error.filename}': {error.strerror}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"ktir-perf: error: needs the package '{error.name}': pip install 'ktir[models]' pyyaml", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
