"""Observers of the executor: what each op makes, where the time goes, how far it has come."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from ktir.checking.values import Names, describe, place_of
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.program import OpPlan
from ktir.emulator.reference.observer import Observer
from ktir.emulator.reference.record.recorder import Recorder

__all__ = ["AGAIN", "OpValues", "Profile", "Progress", "Together", "results_of"]


class Together(Observer):
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers
        self.values = any(o.values for o in observers)

    def started(self, rec: Recorder) -> None:
        for observer in self.observers:
            observer.started(rec)

    def before_op(self, rec: Recorder, op: OpPlan) -> None:
        for observer in self.observers:
            observer.before_op(rec, op)

    def after_op(self, rec: Recorder, op: OpPlan) -> None:
        for observer in self.observers:
            observer.after_op(rec, op)

    def recorded(self, rec: Recorder) -> None:
        for observer in self.observers:
            observer.recorded(rec)

    def ran(self, where: Where | None, seconds: float, done: int, total: int) -> None:
        for observer in self.observers:
            observer.ran(where, seconds, done, total)


AGAIN = "the execution starts again, because a part of it has to run tile by tile"


def results_of(rec: Recorder, op: OpPlan, names: Names) -> list[str]:
    """The results of an op, or what a store writes, as lines."""
    slots = op.results or op.operands[: int(op.where.op == "ktdp.store")]
    lines = []
    for slot in slots:
        first, *rest = describe(rec, rec.get(slot))
        lines += [f"  %{names.name(op, slot)}: {first}", *(f"  {line}" for line in rest)]
    return lines


class OpValues(Observer):
    """Writes the results of each op whose name matches a pattern, as it is executed."""

    values = True

    def __init__(self, names: Names, out: TextIO, pattern: re.Pattern[str] | None = None) -> None:
        self.names, self.out, self.pattern = names, out, pattern
        self.told = False

    def started(self, rec: Recorder) -> None:
        self.names.bind(rec.program)
        if self.told:
            print(AGAIN, file=self.out)
        self.told = True

    def after_op(self, rec: Recorder, op: OpPlan) -> None:
        if self.pattern is not None and not self.pattern.search(op.where.op):
            return
        lines = results_of(rec, op, self.names)
        if lines:
            print(f"{op.where.location or '<unknown>'}: {op.where.op}", *lines, sep="\n", file=self.out)


class Profile(Observer):
    """Time of the calls on data per source line."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.spent: dict[str, list[float]] = {}
        """`file:line` -> calls, seconds."""
        self.wheres: dict[str, Where | None] = {}

    def started(self, rec: Recorder) -> None:
        self.spent.clear()

    def ran(self, where: Where | None, seconds: float, done: int, total: int) -> None:
        place = place_of(where)
        key = f"{place[0]}:{place[1]}" if place else where.op if where else "<unknown>"
        entry = self.spent.setdefault(key, [0, 0.0])
        entry[0] += 1
        entry[1] += seconds
        self.wheres.setdefault(key, where)

    def rows(self) -> list[tuple[str, str, int, float]]:
        """Place, source text, calls and seconds, longest first."""
        found = [(key, self._text(key), int(calls), seconds) for key, (calls, seconds) in self.spent.items()]
        return sorted(found, key=lambda row: -row[3])

    def _text(self, key: str) -> str:
        where = self.wheres[key]
        return self.names.line(where) or (where.op if where else "")

    def report(self, seconds: float, prepare: float) -> str:
        """A table; `seconds` of the launch, `prepare` of what came before it."""
        total = max(seconds, 1e-12)
        rows = self.rows()
        rest = max(0.0, seconds - sum(row[3] for row in rows))
        lines = [f"{'time (ms)':>12}  {'%':>5}  {'calls':>7}  line"]
        for place, text, calls, spent in rows:
            text = text if len(text) <= 80 else text[:77] + "..."
            lines.append(f"{1e3 * spent:12.3f}  {100 * spent / total:5.1f}  {calls:7}  {place}: {text}")
        lines.append(f"{1e3 * rest:12.3f}  {100 * rest / total:5.1f}  {'':7}  arguments in, results out")
        lines.append(f"{1e3 * seconds:12.3f}  {100.0:5.1f}  {sum(r[2] for r in rows):7}  launch")
        lines.append(f"{1e3 * prepare:12.3f}  {'':5}  {'':7}  compile, record, check (once per program and sizes)")
        return "\n".join(lines)


class Progress(Observer):
    """A line on a terminal that says how far the execution is, if it takes longer than `after` seconds."""

    def __init__(self, out: TextIO | None = None, after: float = 1.0, every: float = 0.1) -> None:
        self.out = sys.stderr if out is None else out
        self.every = every
        self.next = time.perf_counter() + after
        self.ops = 0
        self.shown = False

    def before_op(self, rec: Recorder, op: OpPlan) -> None:
        self.ops += 1
        if time.perf_counter() >= self.next:
            self._show(f"{self.ops} ops prepared, at {op.where.location or op.where.op}")

    def ran(self, where: Where | None, seconds: float, done: int, total: int) -> None:
        if total and time.perf_counter() >= self.next:
            filled = 30 * done // total
            self._show(f"[{'#' * filled}{'.' * (30 - filled)}] {100 * done // total}% {where.op if where else ''}")

    def _show(self, text: str) -> None:
        self.out.write(f"\r\x1b[K{text}")
        self.out.flush()
        self.shown = True
        self.next = time.perf_counter() + self.every

    def clear(self) -> None:
        """Removes the line."""
        if self.shown:
            self.out.write("\r\x1b[K")
            self.out.flush()
            self.shown = False
