"""`ktir-test`: PyTorch's own tests on the device, and operators as models use them, as YAML files say."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any

from ktir.diagnostics import KtirError
from ktir.tools.shared.flags import CommandLine, Flag, UsageError, help_text, parse
from ktir.version import __version__

FLAGS = (
    Flag("check", "read and check the files, run nothing"),
    Flag("file", "of a suite: run the test files whose name fits this only", "glob"),
    Flag("timeout", "of a suite: seconds that a test file may take; default: no limit", "seconds"),
    Flag("test-timeout", "of a suite: seconds that one test may take; default: no limit", "seconds"),
    Flag("model", "of models: run this one only; may be given several times", "name", repeated=True),
    Flag("test-name", "of models: run cases with this in 'op_name' only; may be given several times", "text", repeated=True),
    Flag("m", "of models: run cases whose marks fit this; '' takes all. Default: not bf16operation", "marks"),
    Flag("dedupe", "of models: run equal cases of several models once (the default; --no-dedupe: each)"),
    Flag("no-dedupe", "of models: run equal cases of several models each"),
    Flag("compile-backend", "of models: backend of torch.compile, or eager; default: $TEST_COMPILE_BACKEND, else inductor", "name"),
    Flag("list-models", "of models: print their names"),
    Flag("list-cases", "of models: print the cases that would run"),
    Flag("list-cases-by-mark", "of models: print the cases by mark"),
    Flag("show-excluded", "with a list: also what the marks leave out"),
    Flag("show-skipped", "with a list: also what is skipped"),
    Flag("help", "show this and stop"),
    Flag("version", "show the version and stop"),
)

USAGE = f"""\
usage: ktir-test FILE.yaml ... [options] [-- arguments of pytest]

{help_text(FLAGS)}

A file with 'test_suite_config' (RFC 1287) steers PyTorch's test files: each runs by pytest in a process of its own. One with 'model' and
'cases' (RFC 0186) lists calls of operators, which are compared with the host. For example

  PYTORCH_ROOT=~/pytorch ktir-test suite.yaml -- -k add -x
  ktir-test gpt_oss.yaml granite.yaml --model gpt_oss --test-name torch_mul

The status is 0 if all is as the files say, 1 if not, 2 if a file or the command line is wrong."""

_USUALLY = "not bf16operation"


class Driver:
    """One run of the program."""

    def __init__(self, line: CommandLine, pytest_arguments: Sequence[str]) -> None:
        if line.others:
            raise UsageError(f"unknown command line argument '--{line.others[0][0]}'; try 'ktir-test --help'")
        if not line.positional:
            raise UsageError("expected a YAML file")
        self.line, self.pytest_arguments = line, pytest_arguments

    def run(self) -> int:
        from ktir.checking.suites import config, models, source, suite  # torch takes a second
        from ktir.device.autoload import register

        for seconds in ("timeout", "test-timeout"):
            self.line.real(seconds, 0.0)
        register()
        suites, cases = [], []
        for path in self.line.positional:
            if "test_suite_config" in source.read(path).pairs():
                suites.append(config.load(path))
            else:
                cases += models.load(path)
        for each in suites:
            for text in suite.check_operators(each):
                print(text, file=sys.stderr)
        if self.line.on("check"):
            return 0
        good = all([self.suite(each) for each in suites])
        return 0 if (self.models(cases) if cases else True) and good else 1

    def suite(self, config: Any) -> bool:
        """Run the files of a configuration; whether all was as it says."""
        from ktir.checking.suites import suite

        for name in suite.absent(config):
            print(f"{config.path}: warning: device '{name}' is not there: its tests are skipped", file=sys.stderr)
        timeout = self.line.real("timeout", 0.0) or None
        outcomes = {}
        for path in suite.files(config):
            if fnmatch(path.name, self.line.values.get("file", "*")):
                outcomes[path] = suite.run(config, path, self.pytest_arguments, timeout, self.line.real("test-timeout", 0.0))
        if len(outcomes) == len(suite.files(config)) and not any(outcome.crash for outcome in outcomes.values()):
            for text in suite.unknown(config, {name for outcome in outcomes.values() for name in outcome.seen}):
                print(text, file=sys.stderr)
        for path, outcome in outcomes.items():
            print(f"{path.name}: {outcome}")
        total = suite.Outcome(sum((outcome.counts for outcome in outcomes.values()), Counter()))
        print(f"{config.path}: {total}")
        return all(outcome.good for outcome in outcomes.values())

    def models(self, cases: list[Any]) -> bool:
        """Run or list cases; whether all were right."""
        from ktir.checking.suites import models, names

        wanted = self.line.every.get("model", [])
        if missing := set(wanted) - {case.model for case in cases}:
            raise UsageError(f"'--model={min(missing)}': there is no such model")
        try:
            marked = {id(c): names.marks_fit(self.line.values.get("m", _USUALLY), c.marks) for c in cases}
        except ValueError as error:
            raise UsageError(f"'-m': {error}") from None
        texts = self.line.every.get("test-name", [])
        chosen = [c for c in cases if (not wanted or c.model in wanted) and (not texts or any(t in title(c) for t in texts))]
        if self.line.on("list-models"):
            print("\n".join(dict.fromkeys(c.model for c in chosen)))
            return True
        running = [c for c in chosen if marked[id(c)] and "skip" not in c.marks]
        again: list[Any] = []
        if not self.line.on("no-dedupe"):
            running, again = models.without_repeats(running)
        if self.line.on("list-cases") or self.line.on("list-cases-by-mark"):
            self.listing(running)
            if self.line.on("show-excluded"):
                self.listing([c for c in chosen if not marked[id(c)]], "excluded: ")
            if self.line.on("show-skipped"):
                self.listing([c for c in chosen if "skip" in c.marks], "skipped: ")
            return True
        for case, first in again:
            print(f"same as {first.model}::{title(first)}: {case.model}::{title(case)}")
        backend = self.line.values.get("compile-backend") or os.environ.get("TEST_COMPILE_BACKEND", "inductor")
        outcomes = Counter(_run(case, backend) for case in running)
        print(", ".join(f"{n} {outcome}" for outcome, n in outcomes.items()) or "no cases")
        return not outcomes["failed"]

    def listing(self, cases: Sequence[Any], before: str = "") -> None:
        """Print cases, by mark if that is wanted."""
        if not self.line.on("list-cases-by-mark"):
            for case in cases:
                print(f"{before}{case.model}::{title(case)}")
            return
        for mark in sorted({mark for case in cases for mark in case.marks or ("unmarked",)}):
            print(f"{before}{mark}")
            for case in cases:
                if mark in (case.marks or ("unmarked",)):
                    print(f"  {case.model}::{title(case)}")


def title(case: Any) -> str:
    """How a case is called: its operator with underscores, and its name."""
    return f"{case.op.replace('.', '_')}__{case.name}"


def _run(case: Any, backend: str) -> str:
    expected = "xfail" in case.marks
    try:
        left = case.run(backend)
    except Exception as error:  # of the operator, on the host or the device, or other values
        text = " ".join(str(error).split())
        outcome = "xfailed" if expected else "failed"
        print(f"{outcome}: {case.model}::{title(case)}: {case.place}: {type(error).__name__}: {text[:300]}")
        return outcome
    outcome = "xpassed" if expected else "passed"
    print(f"{outcome}: {case.model}::{title(case)}" + (f" ({left})" if left else ""))
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the driver with `arguments` (default: those of the process); the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    try:
        line = parse(given[:at], FLAGS)
        if line.on("help"):
            print(USAGE)
        elif line.on("version"):
            print(f"ktir-test {__version__}")
        else:
            return Driver(line, given[at + 1 :]).run()
        return 0
    except UsageError as error:
        print(f"ktir-test: error: {error}", file=sys.stderr)
    except BrokenPipeError:  # whoever read the output has had enough; keep the interpreter from trying again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KtirError as error:
        print(error, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
