"""`ktir-smi`: what runs on the emulated cards of all processes, again and again, with the options of aiu-smi."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ktir.diagnostics import KtirError
from ktir.runtime.monitor import files, sampling
from ktir.version import __version__

_SOONEST = 0.01
_LATEST = 86400
_ROWS = 20
"""Samples between two heads."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("ktir-smi", description="Show what runs on the emulated cards. AIUSMI_OPTS has options, too.")
    made.add_argument(
        "pattern", nargs="?", help="metric files, with %%BUSID for what differs; default: metrics.%%BUSID in the temporary directory"
    )
    made.add_argument(
        "-g", "--metric-groups", default="DL", metavar="LETTERS", help="D rates, R requests, U memory, P PT, L process, A all"
    )
    made.add_argument("-d", "--delay", type=float, default=1.0, metavar="SECONDS", help="between samples, at least 0.01; default: 1")
    made.add_argument("-n", "--count", type=int, metavar="N", help="samples; default: until interrupted")
    made.add_argument("-i", "--id", metavar="ID,...", help="only these cards")
    made.add_argument("-s", "--csv", action="store_true", help="comma-separated values")
    made.add_argument("-f", "--filename", metavar="FILE", help="where to write; default: stdout")
    made.add_argument("--refresh", action="store_true", help="show the last sample only, on a terminal")
    made.add_argument("--mem-details", action="store_true", help="refused, as is group M: reserved memory is of an older runtime")
    made.add_argument("--idle-power", type=float, metavar="WATTS", help="no effect: pt_active is counted, not estimated from power")
    made.add_argument("--llm-type", metavar="NAME", help="no effect, likewise")
    made.add_argument("-v", "--version", action="version", version=f"ktir-smi {__version__}")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        options = parser().parse_args([*_of_environment(), *given])
        if not _SOONEST <= options.delay <= _LATEST:
            raise KtirError(f"'--delay' expects {_SOONEST} to {_LATEST} seconds, but got {options.delay}")
        if options.count is not None and options.count < 1:
            raise KtirError(f"'--count' expects at least 1 sample, but got {options.count}")
        if options.mem_details:
            raise KtirError("'--mem-details' shows parts of rsvmem, which an older runtime has; group U has the memory that tensors take")
        wanted, sources = sampling.columns(options.metric_groups), _sources(options)
        with open(options.filename, "w", encoding="utf-8") if options.filename else _Stdout() as out:
            _watch(options, wanted, sources, out)
    except KtirError as e:
        print(f"ktir-smi: error: {e.message}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"ktir-smi: error: {e.filename or 'stdout'}: {e.strerror or e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _of_environment() -> list[str]:
    """Options in AIUSMI_OPTS. Raises KtirError."""
    text = os.environ.get("AIUSMI_OPTS", "")
    try:
        return shlex.split(text)
    except ValueError as e:
        raise KtirError(f"AIUSMI_OPTS expects options as on a command line, but got {text!r}: {str(e).lower()}") from None


class _Stdout:
    def __enter__(self) -> TextIO:
        return sys.stdout

    def __exit__(self, *_: object) -> None:
        pass


def _sources(options: argparse.Namespace) -> list[sampling.Source]:
    pattern = options.pattern or files.pattern()
    paths: list[Path] = [] if pattern is None else files.found(pattern) if files.BUS in pattern else [Path(pattern)]
    if not paths:
        raise KtirError(f"no process runs on a card that writes {pattern or f'metric files: {files.VARIABLE} is off'}")
    asked = [str(n) for n in range(len(paths))] if options.id is None else list(dict.fromkeys(options.id.split(",")))
    for number in asked:
        if not number.isdecimal() or int(number) >= len(paths):
            raise KtirError(f"'--id' expects cards of 0 to {len(paths) - 1}, but got {number!r}")
    return [sampling.Source(int(n), paths[int(n)]) for n in asked]


def _watch(options: argparse.Namespace, wanted: Sequence[str], sources: list[sampling.Source], out: TextIO) -> None:
    """Sample after sample, until they are enough or no process is left."""
    lists = [f"# {source.number} {source.file.path}" for source in sources]
    if not options.csv:
        print("#MetricFiles", *lists, sep="\n", file=out, flush=True)
    host, taken = sampling.Host(), 0
    while options.count is None or taken < options.count:
        time.sleep(options.delay)
        if not any(source.file.path.exists() for source in sources):
            return
        rows = [source.sample(seen) for seen in [host.sample()] for source in sources if source.file.path.exists()]
        clear = "\x1b[H\x1b[2J" if options.refresh and out.isatty() else ""
        if options.csv:
            lines = [",".join(wanted)] * (taken == 0) + [",".join(row[name] for name in wanted) for row in rows]
            print(*lines, sep="\n", file=out, flush=True)
        else:
            print(clear + sampling.table(rows, wanted, head=bool(clear) or taken % _ROWS == 0), file=out, flush=True)
        taken += 1


if __name__ == "__main__":
    sys.exit(main())
