"""`ktir-models`: which operators and modules of models work on the device, as a table of runs and a page."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError
from ktir.tools.shared.script import on_model

_VLLM = "vllm:"
"""Before the folder of a model that vLLM builds."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="ktir-models",
        description="Find the operators and modules that PyTorch models use, run each on the device 'spyre', and compare with the host. A "
        "MODEL is SCRIPT.py:FUNCTION, which takes no arguments and returns a model and its example inputs, or a file of RFC "
        "0186, or vllm:FOLDER, a model as vLLM builds it.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, does: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=does, description=does[0].upper() + does[1:] + ".")

    record = command("record", "write the operators of a model as a file of RFC 0186, which ktir-test runs")
    record.add_argument("model", metavar="SCRIPT.py:FUNCTION")
    record.add_argument("-o", dest="output", metavar="FILE", type=Path, help="the file (default: standard output)")
    run = command("run", "run each operator and module of models on the device")
    run.add_argument("models", metavar="MODEL", nargs="+")
    run.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        type=Path,
        default=Path("models.json"),
        help="the run (default: models.json); JUnit XML where it ends in .xml",
    )
    run.add_argument("--jobs", metavar="N", type=_positive, default=1, help="processes at once (default: 1)")
    run.add_argument("--timeout", metavar="SECONDS", type=_positive, help="stop a model that takes longer (default: never)")
    one = command("one", "run one model in this process, and print what `run` collects, a line for each call")
    one.add_argument("model", metavar="MODEL")
    for each in (run, one):
        each.add_argument("--compile-backend", metavar="NAME", default="inductor", help="of torch.compile, or eager (default: inductor)")
    compare = command("compare", "print what has changed between two runs; the status is 1 where something regressed")
    compare.add_argument("before", metavar="BEFORE", type=Path, help="a run, or a report of pytest (.xml)")
    compare.add_argument("after", metavar="AFTER", type=Path, help="a later one")
    page = command("page", "write the dashboard of a run, an HTML page that needs no network")
    page.add_argument("run", metavar="RUN", nargs="+", type=Path, help="a run, or a report of pytest (.xml); several of them are one run")
    page.add_argument("--before", metavar="FILE", type=Path, help="an earlier run, against which changes are shown")
    page.add_argument("-o", dest="output", metavar="FILE", type=Path, default=Path("models.html"), help="the page (default: models.html)")
    page.add_argument("--csv", metavar="FILE", type=Path, help="write every call as a row of CSV, too")
    return made


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 1 refused, regressed, or a model not run to its end, 2 a wrong call."""
    options = parser().parse_args(arguments)
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "record": _record,
        "run": _run,
        "one": _one,
        "compare": _compare,
        "page": _page,
    }
    try:
        return commands[options.command](options)
    except KtirError as error:
        print(error, file=sys.stderr)
        return 1


def _record(options: argparse.Namespace) -> int:
    def run(model: Any, *inputs: Any) -> None:
        from ktir.enablement.record import record, to_yaml

        found = record(model, *inputs)
        text = to_yaml(_named(options.model), found)
        if options.output is None:
            print(text, end="")
        else:
            options.output.write_text(text, encoding="utf-8")
        for why, count in found.left.items():
            print(f"ktir-models: note: {count} calls are left out: {why}", file=sys.stderr)

    return _on_model(options.model, options.output, run)


def _on_model(model: str, output: Path | None, run: Callable[..., object]) -> int:
    if not model.startswith(_VLLM):
        return on_model("ktir-models", model, output, run)
    from ktir.enablement.served import built

    run(built(model.removeprefix(_VLLM)))
    return 0


def _named(model: str) -> str:
    """What a model is called: its function, or its file."""
    return model.rpartition(":")[2] if ".py:" in model else Path(model.removeprefix(_VLLM)).stem


def _run(options: argparse.Namespace) -> int:
    from ktir.enablement import junit, outcomes
    from ktir.enablement.run import run_apart

    names = [_named(m) for m in options.models]
    commands = {
        name if names.count(name) == 1 else model: [
            sys.executable, "-m", "ktir.tools.pages.ktir_models", "one", model, "--compile-backend", options.compile_backend,
        ]
        for name, model in zip(names, options.models, strict=True)
    }  # fmt: skip
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    said = _said if sys.stderr.isatty() else lambda _: None
    suites = run_apart(commands, options.jobs, options.timeout, said)
    run = outcomes.Run(f"{date}-{os.getpid()}", _commit(), date, suites)
    (junit if options.output.suffix == ".xml" else outcomes).write(run, options.output)
    for suite in suites:
        (good, count), (modules, of) = suite.ratio("operator"), suite.ratio("module")
        ended = f"; not run to its end (exit code {suite.exit_code}): {suite.ended}" if suite.exit_code else ""
        print(f"{suite.name}: {good} of {count} operators, {modules} of {of} modules enabled{ended}")
    return int(any(suite.exit_code for suite in suites))


def _said(text: str) -> None:
    print(text, file=sys.stderr)


def _commit() -> str:
    """The commit of the folder that the command runs in, if it has one."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return ""


def _one(options: argparse.Namespace) -> int:
    def noted(variant: Any) -> None:
        print(line_of(variant), flush=True)

    if ".py:" not in options.model and not options.model.startswith(_VLLM):
        from ktir.checking.suites import models
        from ktir.device.autoload import register
        from ktir.enablement.run import line_of, run_cases

        register()
        run_cases(models.load(options.model), options.compile_backend, noted)
        return 0

    from ktir.enablement.run import line_of

    def run(model: Any, *inputs: Any) -> None:
        from ktir.device.autoload import register
        from ktir.enablement.record import record
        from ktir.enablement.run import end_of, run_recorded

        register()
        found = record(model, *inputs)
        print(end_of(found), flush=True)
        run_recorded(_named(options.model), found, options.compile_backend, noted)

    return _on_model(options.model, None, run)


def _compare(options: argparse.Namespace) -> int:
    from ktir.enablement import outcomes

    changed = outcomes.changes(_read([options.before]), _read([options.after]))
    for c in changed:
        states = " -> ".join(state.value if state else "not there" for state in (c.before, c.after))
        print(f"{'regression' if c.is_regression else 'changed'}: {c.suite}: {c.operation}: {states}")
    print(f"{len(changed)} changed, {sum(c.is_regression for c in changed)} of them regressions")
    return int(any(c.is_regression for c in changed))


def _read(places: Sequence[Path]) -> Any:
    """The run of a file, or of several, which are one: a job of a CI system has a report for each model."""
    from ktir.enablement import junit, outcomes

    first, *others = [(junit if place.suffix == ".xml" else outcomes).read(place) for place in places]
    first.suites += [suite for other in others for suite in other.suites]
    return first


def _page(options: argparse.Namespace) -> int:
    from ktir.enablement import page

    run = _read(options.run)
    page.write(run, options.output, _read([options.before]) if options.before else None)
    if options.csv:
        page.write_csv(run, options.csv)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
