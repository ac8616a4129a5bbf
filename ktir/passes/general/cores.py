"""Numbers and sets that differ from core to core, written as operations and as affine sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ktir.dialects.structured import index_constant
from ktir.mlir import arith, ir


@dataclass(frozen=True)
class Cores:
    """How an exchange names cores, and numbers that each has: `number` is that of the executing one. They run the tiles from `first` on,
    of `tiles` in all. Where numbers are told for fewer cores than there are, the others have what the last one of those has."""

    count: int
    number: ir.Value
    first: int
    tiles: int

    def of(self, numbers: Sequence[int]) -> list[int]:
        """What the tiles have that the cores run, of a number per tile; a core without a tile runs the last one."""
        return [numbers[min(self.first + core, self.tiles - 1)] for core in range(self.count)]

    def value(self, numbers: Sequence[int]) -> int | ir.Value:
        """A number per core, at the insertion point."""
        numbers = self._of_all(numbers)
        first = numbers[0]
        if all(n == first for n in numbers):
            return first
        step = numbers[1] - first
        if all(n == first + step * k for k, n in enumerate(numbers)):
            scaled = self.number if step == 1 else arith.MulIOp(self.number, index_constant(step)).result
            return scaled if first == 0 else arith.AddIOp(scaled, index_constant(first)).result
        return self._by_groups(numbers) or self._by_steps(numbers)

    def _by_groups(self, numbers: Sequence[int]) -> ir.Value | None:
        """Numbers that step with each group of so many cores, or are one in a place of each group and otherwise 0."""
        every = range(len(numbers))
        for size in every[2:]:
            step, last = numbers[size] - numbers[0], max(numbers)
            if all(n == numbers[0] + step * (k // size) for k, n in enumerate(numbers)):
                group = arith.DivUIOp(self.number, index_constant(size)).result
                return arith.AddIOp(arith.MulIOp(group, index_constant(step)).result, index_constant(numbers[0])).result
            place = numbers.index(last)
            if place < size and all(n == last * (k % size == place) for k, n in enumerate(numbers)):
                one = index_constant(1)
                shifted = arith.AddIOp(self.number, index_constant(size - place)).result
                away = arith.MinUIOp(arith.RemUIOp(shifted, index_constant(size)).result, one).result
                return arith.MulIOp(arith.SubIOp(one, away).result, index_constant(last)).result
        return None

    def _by_steps(self, numbers: Sequence[int]) -> ir.Value:
        """Any numbers: each that differs from the one before takes over from its core on."""
        found = index_constant(numbers[0])
        for core, (before, n) in enumerate(pairwise(numbers), 1):
            if n != before:
                behind = arith.CmpIOp(arith.CmpIPredicate.uge, self.number, index_constant(core)).result
                found = arith.SelectOp(behind, index_constant(n), found).result
        return found

    def set(self, members: Sequence[int]) -> ir.Attribute:
        """Some cores as a set."""
        chosen = [int(c in members) for c in range(self.count)]
        low, high = min(members), max(members)
        bounds = f"i - {low} >= 0, -i + {high} >= 0"
        if high - low + 1 != sum(chosen):
            bounds += f", {self._steps(chosen, 'i')} - 1 == 0"
        return ir.Attribute.parse(f"affine_set<(i)[g] : ({bounds})>")

    def function(self, numbers: Sequence[int]) -> ir.Attribute:
        """The core that each core depends on, as a set."""
        return ir.Attribute.parse(f"affine_set<(p)[c] : (p - ({self._steps(self._of_all(numbers), 'c')}) == 0)>")

    def _of_all(self, numbers: Sequence[int]) -> list[int]:
        return [*numbers, *[numbers[-1]] * (self.count - len(numbers))]

    def _steps(self, numbers: Sequence[int], name: str) -> str:
        """An affine expression with these values at 0, 1, ...: linear, or a sum of steps."""
        first = numbers[0]
        step = numbers[1] - first if len(numbers) > 1 else 0
        if all(n == first + step * k for k, n in enumerate(numbers)):
            return f"{name} * {step} + {first}"
        text = str(first)
        for core, (before, n) in enumerate(pairwise(numbers), 1):
            if n != before:
                text += f" + (({name} + {self.count - core}) floordiv {self.count}) * {n - before}"
        return text
