"""Runs the conformance cases through `ktir` or other implementations; see README.md for the contract."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).resolve().parent
if str(FOLDER) not in sys.path:  # adapters use what stands beside this file
    sys.path.insert(0, str(FOLDER))

from case_values import difference  # noqa: E402

CASES = FOLDER / "cases"
LEVELS = ("L0", "L1", "L2", "L3")
_HEADER = re.compile(
    r"// (C\d+): (.+)\n// level: (L[0-3])\n// expected: (ok|values|error: .+)\n// tags: ([a-z0-9-]+(?:, [a-z0-9-]+)*)\n(// mode: strict\n)?"
)

Verdict = Literal["holds", "refused", "accepted", "differs"]
"""A case holds; else it is refused though it must be accepted, accepted though it must be refused, or gives something else."""


class Failure(Exception):
    """An implementation rejected its input; the text is what it said."""


@dataclass(frozen=True)
class Case:
    """One case. `error` is the text of the message that we give; None where the case must be accepted."""

    path: Path
    number: str
    title: str
    level: str
    error: str | None
    strict: bool
    tags: tuple[str, ...]
    values: dict[str, Any] | None

    @property
    def values_path(self) -> Path:
        return self.path.with_suffix(".json")

    @staticmethod
    def read(path: Path) -> Case:
        """The case in a file. Raises ValueError if its header is malformed."""
        header = _HEADER.match(path.read_text())
        if header is None or not path.name.startswith(header[1] + "_"):
            raise ValueError(f"{path.name}: the header is not that of a case")
        values_path = path.with_suffix(".json")
        values = json.loads(values_path.read_text()) if values_path.exists() else None
        executes = header[3] in ("L2", "L3")
        if executes != (values is not None) or (header[4] == "values") != ("results" in (values or {})):
            raise ValueError(f"{path.name}: level, expectation and JSON file do not fit together")
        error = header[4].removeprefix("error: ") if header[4].startswith("error: ") else None
        return Case(path, header[1], header[2], header[3], error, bool(header[6]), tuple(header[5].split(", ")), values)


class Implementation:
    """What is checked, by the names of an adapter (README.md). Both methods raise Failure where the input is rejected."""

    def __init__(self, adapter: Any, name: str) -> None:
        self._adapter = adapter
        self._refuses: tuple[type[Exception], ...] = getattr(adapter, "REFUSES", (Exception,))
        self.name: str = getattr(adapter, "NAME", name)
        self.executes = hasattr(adapter, "execute")
        self.reports: bool = getattr(adapter, "REPORTS", True)

    @staticmethod
    def load(name: str) -> Implementation:
        """The adapter of a file, or of that name in the folder `adapters`. Raises ValueError."""
        try:
            if name.endswith(".py"):
                spec = importlib.util.spec_from_file_location(Path(name).stem, name)
                assert spec is not None
                assert spec.loader is not None
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            else:
                module = importlib.import_module(f"adapters.{name}")
        except (ImportError, OSError) as error:
            raise ValueError(f"no adapter '{name}': {error}") from None
        return Implementation(module, Path(name).stem)

    def accept(self, path: Path, strict: bool) -> str | None:
        """Reads and verifies a file; the printed module, or None if the implementation prints none."""
        try:
            return self._adapter.accept(path, strict)
        except self._refuses as error:
            raise Failure(f"{type(error).__name__}: {error}" if self._refuses == (Exception,) else str(error)) from None

    def execute(self, case: Case) -> dict[str, list[Any]]:
        """Executes a case; what each buffer holds."""
        try:
            return self._adapter.execute(case.path, case.values)
        except self._refuses as error:
            raise Failure(f"{type(error).__name__}: {error}" if self._refuses == (Exception,) else str(error)) from None


def ours() -> Implementation:
    """`ktir`, in this process."""
    return Implementation.load("executor")


class Command(Implementation):
    """Another implementation, by its command lines."""

    def __init__(self, command: str, strict_command: str | None, execute_command: str | None) -> None:
        super().__init__(self, shlex.split(command)[0])
        self.command, self.strict_command, self.execute_command = command, strict_command, execute_command
        self.executes = execute_command is not None

    def accept(self, path: Path, strict: bool) -> str:
        command = self.strict_command if strict else self.command
        assert command is not None
        return _run(command, file=path)

    def execute(self, case: Case) -> dict[str, list[Any]]:
        assert self.execute_command is not None
        return json.loads(_run(self.execute_command, file=case.path, values=case.values_path))


def _run(command: str, **places: Path) -> str:
    words = [word.format(**{k: str(p) for k, p in places.items()}) for word in shlex.split(command)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise Failure("no answer within two minutes") from None
    if done.returncode:
        raise Failure(done.stderr or done.stdout)
    return done.stdout


def judge(case: Case, implementation: Implementation, messages: bool = True) -> tuple[Verdict, str]:
    """How an implementation treats a case, and what is wrong with that."""
    try:
        text = implementation.accept(case.path, case.strict)
        if case.error is None and text is not None:
            with tempfile.TemporaryDirectory() as folder:
                again = Path(folder) / case.path.name
                again.write_text(text)
                if implementation.accept(again, case.strict) != text:
                    return "differs", "what is printed does not print the same again"
        runs = case.values is not None and implementation.executes and (case.error is None or implementation.reports)
        found = implementation.execute(case) if runs else None
    except Failure as failure:
        if case.error is None:
            return "refused", f"rejected: {str(failure).strip()}"
        if messages and case.error not in str(failure):
            return "differs", f"the message lacks '{case.error}': {str(failure).strip()}"
        return "holds", ""
    if case.error is not None:
        return ("accepted", "accepted, but must be rejected") if runs or case.values is None else ("holds", "")
    fault = None
    if found is not None and case.values is not None:
        fault = difference(case.values["arguments"], case.values["results"], found)
    return ("differs", fault) if fault else ("holds", "")


def check(case: Case, implementation: Implementation, messages: bool = True) -> str | None:
    """What is wrong with how an implementation treats a case, or None."""
    return judge(case, implementation, messages)[1] or None


def cases(level: str = "L3", only: set[str] | None = None, tags: set[str] | None = None, without: set[str] | None = None) -> list[Case]:
    """The cases up to `level`, in order: those with any of `tags`, less those with any of `without`.

    Raises ValueError for a malformed case, and for a number or a tag that no case has.
    """
    found = [Case.read(path) for path in sorted(CASES.glob("C*.mlir"))]
    if only and (unknown := only - {c.number for c in found}):
        raise ValueError(f"there is no case {', '.join(sorted(unknown))}")
    known = {tag for c in found for tag in c.tags}
    if unknown := ((tags or set()) | (without or set())) - known:
        raise ValueError(f"no case has tag {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    found = [c for c in found if c.level <= level and (not only or c.number in only)]
    return [c for c in found if (not tags or tags & {*c.tags}) and not (without or set()) & {*c.tags}]


def table(chosen: Sequence[Case], implementations: Sequence[Implementation]) -> str:
    """Per level and per tag, how many cases each implementation treats as they say; Markdown."""
    verdicts: dict[str, dict[str, Verdict]] = {
        i.name: {c.number: judge(c, i, messages=False)[0] for c in chosen if not _passed_over(c, i)} for i in implementations
    }
    lines = [f"| cases | how many | {' | '.join(verdicts)} |", f"| --- | ---: |{' ---: |' * len(verdicts)}"]
    for level in LEVELS:
        lines.append(_row(f"level {level}", [c for c in chosen if c.level == level], verdicts))
    for tag in sorted({t for c in chosen for t in c.tags}):
        lines.append(_row(tag, [c for c in chosen if tag in c.tags], verdicts))
    return "\n".join(lines)


def _passed_over(case: Case, implementation: Implementation) -> bool:
    """Whether a case asks for what an implementation is not made for: an error at run time."""
    return case.error is not None and case.values is not None and not (implementation.executes and implementation.reports)


def _row(name: str, members: Sequence[Case], verdicts: dict[str, dict[str, Verdict]]) -> str:
    cells = []
    for found in verdicts.values():
        mine = [found[c.number] for c in members if c.number in found]
        of = "" if len(mine) == len(members) else f" of {len(mine)}"
        others = [f", {mine.count(v)} {words}" for v, words in _FAULTS.items() if v in mine]
        cells.append(f"{mine.count('holds')}{of}" + "".join(others) if mine else "")
    return f"| {name} | {len(members)} | {' | '.join(cells)} |"


_FAULTS: dict[Verdict, str] = {"accepted": "not rejected", "differs": "otherwise"}


def _words(text: str) -> set[str]:
    return set(text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", help="reads {file}, prints the module")
    parser.add_argument("--strict-command", help="the same in strict mode")
    parser.add_argument("--execute-command", help="executes {file} on {values}, prints what the buffers hold as JSON")
    parser.add_argument("--adapter", action="append", help="executor, stream, ktir_cpu, or a Python file; several with --table")
    parser.add_argument("--execute", nargs=2, metavar=("FILE", "VALUES"), type=Path, help="execute one case with ktir")
    parser.add_argument("--level", choices=LEVELS, default="L3")
    parser.add_argument("--only", type=_words, help="numbers of cases")
    parser.add_argument("--tags", type=_words, help="only cases with any of these tags")
    parser.add_argument("--without", type=_words, help="no case with any of these tags")
    parser.add_argument("--messages", action="store_true", help="compare the words of errors too")
    parser.add_argument("--table", action="store_true", help="print a table of results by level and tag, in Markdown")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite as the command line says; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.execute:
        return _execute_one(*options.execute)
    if not options.command and (options.strict_command or options.execute_command):
        parser.error("--strict-command and --execute-command need --command")
    try:
        implementations = [Implementation.load(name) for name in options.adapter or ()]
        if options.command:
            implementations.append(Command(options.command, options.strict_command, options.execute_command))
        implementations = implementations or [ours()]
        chosen = cases(options.level, options.only, options.tags, options.without)
    except ValueError as error:
        parser.error(str(error))
    if len(implementations) > 1 and not options.table:
        parser.error("several implementations need --table")
    if options.command and not options.strict_command:
        chosen = [c for c in chosen if not c.strict]
    if options.table:
        print(table(chosen, implementations))
        return 0
    failures = 0
    for case in chosen:
        fault = check(case, implementations[0], options.messages or not (options.command or options.adapter))
        if fault:
            failures += 1
            print(f"{case.number} {case.level} {case.title}: {fault}")
    print(f"{len(chosen) - failures} of {len(chosen)} cases hold")
    return int(failures > 0)


def _execute_one(path: Path, values: Path) -> int:
    case = Case(path, "", "", "L3", None, False, (), json.loads(values.read_text()))
    try:
        print(json.dumps(ours().execute(case)))
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
