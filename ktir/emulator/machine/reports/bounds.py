"""What bounds each kernel of a program, and the program, proved by running it without that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports.report import KernelReport
from ktir.isa.program import Program
from ktir.isa.resources import Bound, Resource, bound_of, bound_of_all
from ktir.target import Target


def what_if(program: Program, kernel: int, target: Target, free: Collection[Resource]) -> int:
    """Cycles of a kernel of a program that is without fault, where some resources take no time."""
    alone = replace(program, kernels=[program.kernels[kernel]])
    return control(alone, target, checks=False, free=free).statistics[0].cycles


class Bottlenecks:
    """Of a program on a target, whose kernels have these reports.

    The longest chain says what each resource would save at most. The one that might save most is left out in a run; if it then saves less
    than another one might, that one is next. Kernels that are alike, as those of equal layers, run once.
    """

    def __init__(self, program: Program, target: Target, reports: Sequence[KernelReport]) -> None:
        self._program, self._target = program, target
        alike: dict[tuple[str, int, tuple[int, ...]], int] = {}
        self._first = [alike.setdefault((k.name, k.cycles, tuple(k.chain.values())), n) for n, k in enumerate(reports)]
        self._bounds = {n: bound_of(reports[n].chain, reports[n].loads) for n in alike.values()}

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
        saved = 0.0
        if bound.saves[resource]:
            saved = max(bound.cycles - what_if(self._program, number, self._target, {resource}), 0)
        self._bounds[number] = replace(bound, saves={**bound.saves, resource: saved}, proved=bound.proved | {resource})
