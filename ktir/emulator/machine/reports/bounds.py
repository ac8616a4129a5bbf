"""What bounds each kernel of a program, and the program, proved by running it without that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports.report import KernelReport
from ktir.emulator.machine.trace.trace import KernelStatistics
from ktir.isa.cycles import turnaround_cycles
from ktir.isa.program import Program
from ktir.isa.resources import Bound, Resource, bound_of, bound_of_all
from ktir.target import Target


def what_if(program: Program, kernel: int, target: Target, free: Collection[Resource]) -> int:
    """Cycles of a kernel of a program that is without fault, where some resources take no time."""
    return _alone(program, kernel, target, free=free).cycles


def _alone(program: Program, kernel: int, target: Target, **asked: Any) -> KernelStatistics:
    """What a kernel takes if something else is asked for it; the one before, under which its first loads may be hidden, stays as it is."""
    first = max(kernel - 1, 0)
    both = replace(program, kernels=program.kernels[first : kernel + 1])
    return control(both, target, checks=False, since=kernel - first, **asked).statistics[-1]


def at_most(program: Program, kernel: int, target: Target, report: KernelReport) -> Bound:
    """What each resource would save at most in a kernel of this report.

    Of time that depends on no order, the longest chain tells it: the chain is still there, without what is free, if units run otherwise.
    Who waits for the memory channel or the ring, and who pays for the channel's turning around, does depend on an order. Where that
    costs something a further run leaves it out: it takes no longer than any order. Of a kernel with loads ahead, which are hidden or not as
    they take longer, no chain tells it: each resource may save what is left above the load of another one, until a run says what.
    """
    if report.lead:
        return bound_of(report.chain, report.loads, {})
    waits = any(cause in ("memory", "ring") for unit in report.units for cause in unit.stalls)
    if not (waits or turnaround_cycles(report.dram_read, report.dram_written, target)):
        return bound_of(report.chain, report.loads)
    return bound_of(report.chain, report.loads, _alone(program, kernel, target, contended=False).chain)


class Bottlenecks:
    """Of a program on a target, whose kernels have these reports.

    Of each resource it is known what it would save at most. The one that might save most is left out in a run; if it then saves less
    than another one might, that one is next. Kernels that are alike, as those of equal layers, run once.
    """

    def __init__(self, program: Program, target: Target, reports: Sequence[KernelReport]) -> None:
        self._program, self._target = program, target
        alike: dict[tuple[str, int, tuple[int, ...]], int] = {}
        self._first = [alike.setdefault((k.name, k.cycles, tuple(k.chain.values())), n) for n, k in enumerate(reports)]
        self._bounds = {n: at_most(program, n, target, reports[n]) for n in alike.values()}

    @cached_property
    def kernels(self) -> list[Bound]:
        """What bounds each kernel."""
        for number in self._bounds:
            while (bound := self._bounds[number]).resource not in bound.proved:
                self._prove(number, bound.resource)
        return self._all()

    @cached_property
    def program(self) -> Bound:
        """What bounds all kernels together."""
        while (total := bound_of_all(self._all())).resource not in total.proved:
            for number in self._bounds:
                self._prove(number, total.resource)
        return total

    def without(self, *free: Resource) -> list[int]:
        """Cycles of each kernel where these take no time."""
        found = {number: what_if(self._program, number, self._target, free) for number in self._bounds}
        return [found[number] for number in self._first]

    def _all(self) -> list[Bound]:
        return [self._bounds[number] for number in self._first]

    def _prove(self, number: int, resource: Resource) -> None:
        """Replace what a resource might save by what it saves."""
        bound = self._bounds[number]
        if resource in bound.proved:
            return
        saved = bound.cycles - what_if(self._program, number, self._target, {resource})
        self._bounds[number] = replace(bound, saves={**bound.saves, resource: saved}, proved=bound.proved | {resource})
