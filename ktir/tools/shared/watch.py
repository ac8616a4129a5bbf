"""What `ktir-opt` shows of a running pipeline: the IR between passes, where the time went, what passes counted."""

import json
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from ktir.mlir import ir, operations
from ktir.pipeline import Step


@dataclass
class Dumps:
    """Shows the module before and after the passes that were asked for. `before` and `after` hold pass names; None: all.

    It goes to stderr, or to numbered files below `folder`. `shown` counts the dumps of the whole run of the program.
    """

    show: Callable[[ir.Module], str]
    before: Collection[str] | None = ()
    after: Collection[str] | None = ()
    only_changes: bool = False
    folder: Path | None = None
    shown: int = 0
    _last: str = ""

    def before_each(self, step: Step, module: ir.Module) -> None:
        if self.only_changes:
            self._last = self.show(module)
        if self.before is None or step.name in self.before:
            self._dump("Before", step, self.show(module), module)

    def after_each(self, step: Step, module: ir.Module) -> None:
        if self.after is None or step.name in self.after:
            text = self.show(module)
            if not self.only_changes or text != self._last:
                self._dump("After", step, text, module)

    def failed(self, module: ir.Module) -> None:
        self._dump("After failure of", None, self.show(module), module)

    def _dump(self, when: str, step: Step | None, text: str, module: ir.Module) -> None:
        title = f"// -----// IR Dump {when} {f'{step.name} ({step})' if step else 'the last pass'} //----- //\n"
        if self.folder is None:
            print(title + text, file=sys.stderr)
            return
        name = module.operation.attributes["sym_name"].value if "sym_name" in module.operation.attributes else "no-symbol-name"
        folder = self.folder / f"builtin_module_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.shown}_{step.name if step else 'failure'}.mlir").write_text(title + text, encoding="utf-8")
        self.shown += 1


@dataclass
class Clock:
    """Wall time by activity, in seconds."""

    spent: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def lap(self, activity: str) -> None:
        """Books the time since the last lap on `activity`."""
        now = time.perf_counter()
        self.spent[activity] = self.spent.get(activity, 0.0) + now - self._since
        self._since = now

    def _rows(self, by_time: bool) -> list[tuple[str, float, float]]:
        """Name, seconds and share in percent; the total last."""
        total = sum(self.spent.values())
        rows = [(name, seconds, 100 * seconds / total) for name, seconds in self.spent.items()]
        return [*(sorted(rows, key=lambda row: -row[1]) if by_time else rows), ("Total", total, 100.0)]

    def report(self, by_time: bool = False) -> str:
        rows = [f"  {seconds:9.4f} ({share:5.1f}%)  {name}" for name, seconds, share in self._rows(by_time)]
        head = f"{_RULE}\n{'... Execution time report ...':^{len(_RULE)}}\n{_RULE}\n  ----Wall Time----  ----Name----"
        return "\n".join([head, *rows])

    def json(self, by_time: bool = False) -> str:
        rows = [
            json.dumps({"wall": {"duration": round(seconds, 4), "percentage": round(share, 1)}, "name": name})
            for name, seconds, share in self._rows(by_time)
        ]
        return "[" + ",\n".join(rows) + "\n]"


_RULE = f"===-{'-' * 73}-==="


@dataclass
class Statistics:
    """What passes counted, run by run; the driver adds the number of ops before and after each."""

    counted: dict[str, dict[str, int]]
    """Of `diagnostics.statistics`; emptied after each run of a pass."""
    runs: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    _ops: int = 0

    def before_each(self, module: ir.Module) -> None:
        self._ops = len(operations(module))

    def after_each(self, step: Step, module: ir.Module) -> None:
        row = {"ops-before": self._ops, "ops-after": len(operations(module))}
        self.runs.append((step.name, row | self.counted.pop(step.name, {})))

    def report(self, by_name: bool) -> str:
        """Text in the form of MLIR's; `by_name`: the runs of one pass are added up."""
        runs = self.runs
        if by_name:
            sums: dict[str, dict[str, int]] = {}
            for name, row in runs:
                total = sums.setdefault(name, {})
                for what, number in row.items():
                    total[what] = total.get(what, 0) + number
            runs = sorted(sums.items())
        lines = [_RULE, f"{'... Pass statistics report ...':^{len(_RULE)}}", _RULE]
        for name, row in runs:
            lines += [name, *(f"  (S) {number:6} {what}" for what, number in row.items())]
        return "\n".join(lines)
