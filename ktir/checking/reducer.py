"""Shrinks a module that makes something fail, by delta debugging: what stays is what the failure needs."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ktir.assembly import parse_module
from ktir.checking.edits import EDITS, Edit, Target, smaller_numbers
from ktir.context import context
from ktir.diagnostics import KtirError, verify
from ktir.mlir import ir, operations

__all__ = ["Exhausted", "Interest", "Reducer"]


class Exhausted(Exception):
    """All tries are used up."""


@dataclass
class Interest:
    """The user's test: whether a text still shows what is looked for.

    command: run by the shell; `{}` in it stands for the file, which otherwise comes last. status: what it must end with (None: anything).
    match: what it must print, on stdout or stderr. A run of more than `timeout` seconds is ended and counts as not interesting.
    """

    command: str
    status: int | None = 0
    match: re.Pattern[str] | None = None
    timeout: float = 60.0
    tries: int | None = None
    """Most runs; then Exhausted is raised."""
    runs: int = 0
    _known: dict[bytes, bool] = field(default_factory=dict)

    def __call__(self, text: str) -> bool:
        key = hashlib.sha256(text.encode()).digest()
        if key not in self._known:
            if self.tries is not None and self.runs >= self.tries:
                raise Exhausted
            self.runs += 1
            self._known[key] = self._run(text)
        return self._known[key]

    def _run(self, text: str) -> bool:
        with tempfile.TemporaryDirectory(prefix="ktir-reduce-") as folder:
            path = Path(folder) / "reduced.mlir"
            path.write_text(text, encoding="utf-8")
            name = shlex.quote(str(path))
            command = self.command.replace("{}", name) if "{}" in self.command else f"{self.command} {name}"
            # A session of its own, so that a run that takes too long ends with all that it has started.
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                said, _ = process.communicate(timeout=self.timeout)
            except BaseException as error:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    return False
                raise
        if self.status is not None and process.returncode != self.status:
            return False
        return self.match is None or self.match.search(said.decode(errors="replace")) is not None


class Reducer:
    """Reduces a text. `best` is the smallest interesting one so far; `improved` is called with each new one, `show` prints an op."""

    def __init__(
        self,
        text: str,
        interest: Interest,
        show: Callable[[Any], str],
        named: Callable[[ir.Module, str], None],
        improved: Callable[[str, str], None] = lambda text, what: None,
    ) -> None:
        self.best, self.interest, self.show, self.named, self.improved = text, interest, show, named, improved
        self.note = ""
        """Why the text is reduced by lines, if it is."""

    def run(self) -> str:
        """The smallest interesting text that was found. Raises KtirError if the first one is not interesting."""
        if not self.interest(self.best):
            raise KtirError("the input is not interesting: the test does not end as it must" + self._expectation())
        try:
            self._reduce()
        except Exhausted:
            pass
        return self.best

    def _expectation(self) -> str:
        parts = [] if self.interest.status is None else [f"with status {self.interest.status}"]
        if self.interest.match is not None:
            parts.append(f"with output that matches '{self.interest.match.pattern}'")
        return f", {' and '.join(parts)}" if parts else ""

    def _reduce(self) -> None:
        with context(allow_unregistered=True), ir.Location.unknown():
            try:
                module = parse_module(self.best, "-")
            except KtirError as error:
                self.note = f"the input is reduced by lines, because it is no valid module: {error.message}"
                self._lines()
                return
            self.named(module, self.best)
            printed = self.show(module)
            if not self.interest(printed):
                self.note = "the input is reduced by lines, because it is not interesting as it is printed"
                self._lines()
                return
            self._accept(printed, "printed anew")
            op: Any = module.operation
            while True:
                before = self.best
                for edit in EDITS:
                    op = self._edited(op, edit)
                op = self._numbers(op)
                if self.best == before:
                    return

    def _accept(self, text: str, what: str) -> None:
        if text != self.best:
            self.best = text
            self.improved(text, what)

    def _edited(self, module: Any, edit: Edit) -> Any:
        """`module` after all edits of a kind that keep it interesting: first many at once, then fewer, at last one by one."""
        targets = edit.targets(operations(module))
        size = len(targets)
        while size:
            at = 0
            while at < len(targets):
                new = self._try(module, edit, targets[at : at + size])
                if new is None:
                    at += size
                    continue
                # Positions have changed: the targets before `at` have been tried, and stay in front.
                remaining = len(targets) - at - size
                module, targets = new, edit.targets(operations(new))
                at = max(at if edit.name == "constants" else 0, len(targets) - max(remaining, 0))
            size = size // 2 if size > 1 else 0
            targets = edit.targets(operations(module))
            size = min(size, len(targets))
        return module

    def _try(self, module: Any, edit: Edit, targets: Sequence[Target]) -> Any | None:
        """A changed copy of `module`, or None if it is not valid or not interesting."""
        copy = module.operation.clone().operation
        ops: list[ir.Operation | None] = list(operations(copy))
        try:
            if not sum(edit.apply(ops, target) for target in targets):
                return None
            verify(copy)
            text = self.show(copy)
        except Exhausted:
            raise
        except Exception:  # whatever an edit breaks, the copy is thrown away
            return None
        if text == self.best or not self.interest(text):
            return None
        self._accept(text, edit.name)
        return copy

    def _numbers(self, module: Any) -> Any:
        """`module` with smaller extents."""
        again = True
        while again:
            again = False
            for text in smaller_numbers(self.best):
                try:
                    new = parse_module(text, "-")
                    self.named(new, text)
                    printed = self.show(new)
                except KtirError:
                    continue
                if printed != self.best and self.interest(printed):
                    self._accept(printed, "extents")
                    module, again = new.operation, True
                    break
        return module

    def _lines(self) -> None:
        """Leaves out lines."""
        lines = self.best.split("\n")
        size = len(lines)
        while size:
            at = 0
            while at < len(lines):
                rest = lines[:at] + lines[at + size :]
                if self.interest("\n".join(rest)):
                    lines = rest
                    self._accept("\n".join(lines), "lines")
                else:
                    at += size
            size //= 2
