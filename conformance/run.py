"""Runs the conformance cases through `ktir` or another implementation; see README.md for the contract."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

CASES = Path(__file__).resolve().parent / "cases"
LEVELS = ("L0", "L1", "L2", "L3")
_HEADER = re.compile(r"// (C\d+): (.+)\n// level: (L[0-3])\n// expected: (ok|values|error: .+)\n(// mode: strict\n)?")
_FORMATS = {"f16": "<e", "f32": "<f"}


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
        return Case(path, header[1], header[2], header[3], error, bool(header[5]), values)


class Implementation(Protocol):
    """What is checked. Both methods raise Failure where the input is rejected."""

    executes: bool

    def accept(self, path: Path, strict: bool) -> str:
        """Reads and verifies a file; the printed module."""
        ...

    def execute(self, case: Case) -> dict[str, list[Any]]:
        """Executes a case; what each buffer holds."""
        ...


class Ours:
    """`ktir`, in this process."""

    executes = True

    def accept(self, path: Path, strict: bool) -> str:
        from ktir.assembly import parse_module, print_module
        from ktir.context import context
        from ktir.diagnostics import KtirError, verify

        try:
            with context():
                module = parse_module(path.read_text(), str(path), strict=strict)
                verify(module)
                return print_module(module)
        except KtirError as error:
            raise Failure(str(error)) from None

    def execute(self, case: Case) -> dict[str, list[Any]]:
        from ktir.assembly import parse_module
        from ktir.context import context
        from ktir.diagnostics import KtirError
        from ktir.emulator.reference import execute
        from ktir.pipeline import run_pipeline

        assert case.values is not None
        arguments = {a["name"]: _argument(a) for a in case.values["arguments"]}
        try:
            with context():
                module = parse_module(case.path.read_text(), str(case.path))
                run_pipeline(module, "ktir-check-legality")
                execute(module, case.values.get("function"), list(arguments.values()))
        except KtirError as error:
            raise Failure(str(error)) from None
        return {name: _spelled(a.reshape(-1).tolist()) for name, a in arguments.items() if hasattr(a, "reshape")}


class Command:
    """Another implementation, by its command lines."""

    def __init__(self, command: str | None, strict_command: str | None, execute_command: str | None) -> None:
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


def _argument(spec: dict[str, Any]) -> Any:
    """An argument as `ktir.emulator.reference.execute` takes it."""
    import numpy as np

    from ktir.emulator.reference import Scratch

    if "shape" not in spec:
        return spec["value"]
    count = math.prod(spec["shape"])
    if spec.get("uninitialized"):
        return Scratch(count, spec["type"])
    types = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i64": np.int64}
    return np.array(rounded(spec["type"], spec["values"], count), types[spec["type"]]).reshape(spec["shape"])


def rounded(kind: str, values: list[Any], count: int) -> list[Any]:
    """`count` values, repeating those that are spelled, each rounded to the type."""
    if count and not values:
        raise ValueError("a buffer without values")
    numbers = [float(v) if kind in _FORMATS else int(v) for v in values]
    if kind in _FORMATS:
        numbers = [v if not math.isfinite(v) else struct.unpack(_FORMATS[kind], struct.pack(_FORMATS[kind], v))[0] for v in numbers]
    return [numbers[i % len(numbers)] for i in range(count)]


def _spelled(values: list[Any]) -> list[Any]:
    return [v if isinstance(v, int) or math.isfinite(v) else "nan" if math.isnan(v) else str(v) for v in values]


def _same(a: Any, b: Any) -> bool:
    return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))


def check(case: Case, implementation: Implementation, messages: bool = True) -> str | None:
    """What is wrong with how an implementation treats a case, or None."""
    try:
        text = implementation.accept(case.path, case.strict)
        if case.error is None:
            with tempfile.TemporaryDirectory() as folder:
                again = Path(folder) / case.path.name
                again.write_text(text)
                if implementation.accept(again, case.strict) != text:
                    return "what is printed does not print the same again"
        found = implementation.execute(case) if case.values is not None and implementation.executes else None
    except Failure as failure:
        if case.error is None:
            return f"rejected: {str(failure).strip()}"
        return f"the message lacks '{case.error}': {str(failure).strip()}" if messages and case.error not in str(failure) else None
    if case.error is not None:
        skipped = case.values is not None and not implementation.executes
        return None if skipped else "accepted, but must be rejected"
    return _difference(case, found) if found is not None else None


def _difference(case: Case, found: dict[str, list[Any]]) -> str | None:
    assert case.values is not None
    specs = {a["name"]: a for a in case.values["arguments"]}
    for name, values in case.values["results"].items():
        spec = specs[name]
        expected = rounded(spec["type"], values, math.prod(spec["shape"]))
        got = rounded(spec["type"], found.get(name, []) or [0], len(found.get(name, [])))
        if len(got) != len(expected):
            return f"'{name}' has {len(got)} values instead of {len(expected)}"
        wrong = [i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if not _same(a, b)]
        if wrong:
            return f"'{name}' holds {got[wrong[0]]!r} instead of {expected[wrong[0]]!r} at {wrong[0]}, and differs at {len(wrong)} places"
    return None


def cases(level: str = "L3", only: set[str] | None = None) -> list[Case]:
    """The cases up to `level`, in order. Raises ValueError for a malformed case or an unknown number."""
    found = [Case.read(path) for path in sorted(CASES.glob("C*.mlir"))]
    if only and (unknown := only - {c.number for c in found}):
        raise ValueError(f"there is no case {', '.join(sorted(unknown))}")
    return [c for c in found if c.level <= level and (not only or c.number in only)]


def main(arguments: list[str] | None = None) -> int:
    """Runs the suite as the command line says; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", help="reads {file}, prints the module")
    parser.add_argument("--strict-command", help="the same in strict mode")
    parser.add_argument("--execute-command", help="executes {file} on {values}, prints what the buffers hold as JSON")
    parser.add_argument("--execute", nargs=2, metavar=("FILE", "VALUES"), type=Path, help="execute one case with ktir")
    parser.add_argument("--level", choices=LEVELS, default="L3")
    parser.add_argument("--only", type=lambda text: set(text.split(",")), help="numbers of cases")
    parser.add_argument("--messages", action="store_true", help="compare the words of errors too")
    options = parser.parse_args(arguments)
    if options.execute:
        return _execute_one(*options.execute)
    if not options.command and (options.strict_command or options.execute_command):
        parser.error("--strict-command and --execute-command need --command")
    other = Command(options.command, options.strict_command, options.execute_command)
    implementation: Implementation = other if options.command else Ours()
    try:
        chosen = cases(options.level, options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.command and not options.strict_command:
        chosen = [c for c in chosen if not c.strict]
    failures = 0
    for case in chosen:
        fault = check(case, implementation, options.messages or not options.command)
        if fault:
            failures += 1
            print(f"{case.number} {case.level} {case.title}: {fault}")
    print(f"{len(chosen) - failures} of {len(chosen)} cases hold")
    return int(failures > 0)


def _execute_one(path: Path, values: Path) -> int:
    case = Case(path, "", "", "L3", None, False, json.loads(values.read_text()))
    try:
        print(json.dumps(Ours().execute(case)))
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
