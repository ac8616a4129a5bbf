"""Watching an execution: printing values, breakpoints, profiles and progress are observers.

An observer is given to `execute`. Without one the executor pays nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ktir.emulator.findings import Where
from ktir.emulator.policy import Policy
from ktir.emulator.reference.compile.program import OpPlan, Program
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.tape.tape import Call

__all__ = ["Observer", "Watched", "timed"]


class Observer:
    """Base of observers: override what you need. An exception that a method raises ends the execution with all arrays as they were."""

    values: bool = False
    """Run each op as it is recorded, so that `after_op` finds data in its results (`Recorder.binder`); the plan is not kept."""

    def started(self, rec: Recorder) -> None:
        """Recording starts; where it finds that it has to go on in another way, it starts again from the first op, with a new `rec`."""

    def before_op(self, rec: Recorder, op: OpPlan) -> None:
        """`op` is about to be recorded, once per trip, for all tiles together. Not called where a kept plan is launched again."""

    def after_op(self, rec: Recorder, op: OpPlan) -> None:
        """`op` and the ops in its regions have been recorded; `rec.get(slot)` is the value in a slot of its results."""

    def recorded(self, rec: Recorder) -> None:
        """All ops have been recorded: `rec.memory.accesses` holds what they touch. Not called where a kept plan is launched again."""

    def ran(self, where: Where | None, seconds: float, done: int, total: int) -> None:
        """One call on data, made for the op `where`, took `seconds`; it was number `done` of `total` (0: not known)."""


def timed(calls: Sequence[Call], origins: Iterable[Where | None], observer: Observer) -> None:
    """Make `calls`, and tell `observer` of each."""
    total = len(calls)
    for done, ((function, arguments), where) in enumerate(zip(calls, origins, strict=True), 1):
        begin = time.perf_counter()
        function(*arguments)
        observer.ran(where, time.perf_counter() - begin, done, total)


class Watched(Recorder):
    """A recorder that tells `observer` of every op and, where steps run as they are recorded, of every call."""

    def __init__(self, program: Program, policy: Policy, observer: Observer, eager: bool, by_tile: frozenset[str]) -> None:
        super().__init__(program, policy, eager, by_tile)
        self.observer = observer
        observer.started(self)

    def ended(self) -> None:
        """All has been recorded. What was recorded may be kept, without the observer."""
        self.observer.recorded(self)
        self.observer = Observer()

    def act(self, op: OpPlan) -> None:
        self.observer.before_op(self, op)
        super().act(op)
        self.observer.after_op(self, op)

    def perform(self, calls: Iterable[Call]) -> None:
        made = list(calls)
        timed(made, [self.where] * len(made), self.observer)
