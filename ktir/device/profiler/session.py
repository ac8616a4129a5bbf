"""What the cards are given while a profile records, and when it was done in emulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple

from torch._C._profiler import _RecordFunctionFast

from ktir.device.profiler.memory import holder
from ktir.device.tensors import current
from ktir.runtime.memory.card import Card, card
from ktir.runtime.time.clock import Span, clock
from ktir.runtime.time.steps import Step

MARKER = "spyre::step#"
"""How events of the host begin by which torch's profiler knows that a step was given; its number follows."""


class Given(NamedTuple):
    """A step that the host gave: the how manieth of the profile, and when, in nanoseconds of the host's clock."""

    number: int
    step: Step
    at: int


class Session:
    """One recording of a profile."""

    def __init__(self, *, memory: bool) -> None:
        """memory: whether allocations are told to torch's profiler."""
        self.done: list[tuple[Given, Span]] = []
        """In the order in which the clock has placed the steps."""
        self._memory = memory
        self._given: dict[int, Given] = {}
        self._numbers = count(1)
        self._holders: list[tuple[Card, Callable[[int, int], None]]] = []
        self._cards = [card(index) for index in range(current.count())]

    def begin(self) -> None:
        """Record from now on, on all cards of the process."""
        clock.watchers.append(self._placed)
        for each in self._cards:
            each.observers.append(self._note)
            if self._memory and (told := holder(each)) is not None:
                each.holders.append(told)
                self._holders.append((each, told))

    def end(self) -> None:
        """Record no more; the host waits for what was given."""
        for each, told in self._holders:
            each.holders.remove(told)
        for each in self._cards:
            each.observers.remove(self._note)
        clock.synchronize()
        clock.watchers.remove(self._placed)
        self._given.clear()

    def _note(self, step: Step) -> None:
        if step.kind == "HostCompute":
            return
        number = next(self._numbers)
        with _RecordFunctionFast(f"{MARKER}{number}"):
            self._given[id(step)] = Given(number, step, time.time_ns())

    def _placed(self, span: Span) -> None:
        given = self._given.pop(id(span.step), None)
        if given is not None:
            self.done.append((given, span))


def number_of(name: str) -> int | None:
    """The number of the step that an event of the host stands for."""
    return int(name.removeprefix(MARKER)) if name.startswith(MARKER) else None


Started = Mapping[int, int]
"""Number of a step -> when the host gave it, in nanoseconds of the profiler's clock."""
