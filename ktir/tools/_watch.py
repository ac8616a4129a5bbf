"""What `ktir-opt` shows of a running pipeline: the IR between passes, and where the time went."""

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ktir.mlir import ir
from ktir.pipeline import Step


@dataclass
class Dumps:
    """Prints the module on stderr before and after the passes that were asked for. `before` and `after` hold pass names; None: all."""

    show: Callable[[ir.Module], str]
    before: Collection[str] | None = ()
    after: Collection[str] | None = ()
    only_changes: bool = False
    _last: str = ""

    def before_each(self, step: Step, module: ir.Module) -> None:
        if self.only_changes:
            self._last = self.show(module)
        if self.before is None or step.name in self.before:
            self._dump("Before", step, self.show(module))

    def after_each(self, step: Step, module: ir.Module) -> None:
        if self.after is None or step.name in self.after:
            text = self.show(module)
            if not self.only_changes or text != self._last:
                self._dump("After", step, text)

    def failed(self, module: ir.Module) -> None:
        self._dump("After failure of", None, self.show(module))

    def _dump(self, when: str, step: Step | None, text: str) -> None:
        title = f"IR Dump {when} {f'{step.name} ({step})' if step else 'the last pass'}"
        print(f"// -----// {title} //----- //\n{text}", file=sys.stderr)


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

    def report(self) -> str:
        total = sum(self.spent.values())
        rows = [f"  {seconds:9.4f} ({100 * seconds / total:5.1f}%)  {activity}" for activity, seconds in self.spent.items()]
        head = "===- Execution time report -===\n  ----Wall Time----  ----Name----"
        return "\n".join([head, *rows, f"  {total:9.4f} (100.0%)  Total"])
