"""Divisions of kernels that follow each other: where both deal out a tensor alike, it need not go through memory.

Each kernel's own division is the best for it alone. Here pairs of kernels that hand on tensors try divisions with the same parts of what
they share; the price of a kernel is that without the loads and stores of tensors that all their kernels then deal out alike. What is read
at other places than it was written at, as windows are, then goes over the ring where it is another core's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod

from ktir.analysis.items import Tensor
from ktir.cost.estimate import kernel_start
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.work import Work
from ktir.passes.planning.kernel_price import kernel_price
from ktir.passes.planning.passed_on import Axes, PassedOn, passed_on
from ktir.passes.residence.shares import Deal, dealt, traffic_saved
from ktir.target import Target

_GAIN = 0.97
"""Divisions are changed if the kernels of the pair take less than this part of the cycles; less is within the error of the prices."""

_MOST_PAIRS = 24
"""Pairs of kernels that are looked at, those that hand on most bytes."""

_MOST_CHOICES = 8
"""Divisions that are tried for a pair, those with most cores."""

_MATTERS = 0.02
"""Part of the cycles of a pair that a tensor's way through memory must take."""


@dataclass(frozen=True)
class Agreed:
    """Two kernels whose divisions were changed, by number, their cycles with that, and before it."""

    maker: int
    reader: int
    cycles: float
    before: float


@dataclass
class Agreement:
    """The divisions of a program's kernels; `works`: those that are best for each alone, which change here."""

    kernels: Sequence[KernelFacts]
    works: list[Work | None]
    target: Target
    changes: list[Agreed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._makers: dict[Tensor, tuple[int, Axes]] = {}
        self._readers: dict[Tensor, list[tuple[int, Axes]]] = {}
        for number, facts in enumerate(self.kernels):
            for item in facts.stores:
                if item.value in facts.made:
                    self._makers.setdefault(item.value, (number, facts.stored_axes[item.number][:-1]))
            for item in facts.ops:
                for i, value in enumerate(item.sources):
                    if value.made and value not in facts.made:
                        loops = facts.axes[item.number]
                        self._readers.setdefault(value, []).append((number, tuple(loops.get(loop) for loop in item.walks[i][:-1])))
        self._passed = {(p.maker, p.reader): p for p in passed_on(self.kernels)}
        self._prices: dict[tuple[Hashable, ...], float] = {}

    def run(self) -> list[Work | None]:
        """The divisions, pair after pair, those that hand on most bytes first."""
        handed: dict[tuple[int, int], int] = {}
        for tensor, readers in self._readers.items():
            if tensor in self._makers:
                for reader in {number for number, _ in readers}:
                    pair = self._makers[tensor][0], reader
                    handed[pair] = handed.get(pair, 0) + tensor.bytes
        for pair, passed in self._passed.items():
            handed[pair] = handed.get(pair, 0) + passed.stored.bytes
        for pair in sorted(handed, key=lambda p: (-handed[p], p))[:_MOST_PAIRS]:
            self._agree(pair, handed[pair])
        return self.works

    def text(self, number: int) -> str:
        """How a kernel is divided, as `b0/4 m/2`."""
        work = self.works[number]
        assert work is not None
        named = zip(self.kernels[number].names, work.parts, strict=True)
        return " ".join(f"{name}/{parts}" for name, parts in named if parts > 1) or "undivided"

    def _agree(self, pair: tuple[int, int], handed: int) -> None:
        """Give a pair of kernels the divisions that take the fewest cycles together."""
        now = tuple(self.works[number] for number in pair)
        if any(work is None or not _is_plain(work) for work in now):
            return
        before = self._cycles(pair, {})
        if 2 * handed / self.target.dram_bytes_per_cycle < _MATTERS * before:
            return
        best: tuple[float, dict[int, Work]] = before, {}
        for works in self._choices(*pair):
            cycles = self._cycles(pair, works)
            if cycles < min(best[0], _GAIN * before):
                best = cycles, works
        if best[1]:
            for number, work in best[1].items():
                self.works[number] = work
            self.changes.append(Agreed(*pair, best[0], before))

    def _choices(self, maker: int, reader: int) -> Iterator[dict[int, Work]]:
        """Divisions of one kernel as the other one is divided, and of both over axes that both have."""
        common = self._common(maker, reader)
        pairs = common, [(b, a) for a, b in common]
        for (one, other), axes in zip(((maker, reader), (reader, maker)), pairs, strict=True):
            theirs = self.works[other]
            if theirs is not None and (work := _divided(self.kernels[one], {a: theirs.parts[b] for a, b in axes})) is not None:
                yield {one: work}
        first, second = self.kernels[maker], self.kernels[reader]
        batches = [(a, b) for a, b in common if b < len(second.extents) - 1]
        splits = product(*([n for n in range(1, extent + 1) if extent % n == 0] for extent in (second.extents[b] for _, b in batches)))
        fitting = sorted((p for p in splits if 1 < prod(p) <= self.target.cores), key=lambda p: (-prod(p), p))
        for split in fitting[:_MOST_CHOICES]:
            mine = _divided(first, {a: n for (a, _), n in zip(batches, split, strict=True)})
            theirs = _divided(second, {b: n for (_, b), n in zip(batches, split, strict=True)})
            if mine is not None and theirs is not None:
                yield {maker: mine, reader: theirs}

    def _common(self, maker: int, reader: int) -> list[tuple[int, int]]:
        """Axes of both kernels along which the largest tensor between them runs."""
        if (maker, reader) in self._passed:
            return list(self._passed[maker, reader].axes)
        handed = [t for t, (number, _) in self._makers.items() if number == maker and any(n == reader for n, _ in self._readers.get(t, ()))]
        tensor = max(handed, key=lambda t: t.bytes)
        theirs = next(axes for number, axes in self._readers[tensor] if number == reader)
        return [(a, b) for a, b in zip(self._makers[tensor][1], theirs, strict=True) if a is not None and b is not None]

    def _cycles(self, pair: tuple[int, int], works: Mapping[int, Work]) -> float:
        """Cycles of the kernels of a pair, and of those that share tensors with them, under other divisions."""
        touched = {*pair}
        for tensor, (maker, _) in self._makers.items():
            numbers = {maker, *(number for number, _ in self._readers.get(tensor, ()))}
            if numbers & set(pair):
                touched |= numbers
        return sum(self._price(number, works) for number in sorted(touched))

    def _price(self, number: int, works: Mapping[int, Work]) -> float:
        work = works.get(number, self.works[number])
        if work is None:
            return 0.0
        facts = self.kernels[number]
        near = {item.value for item in facts.stores} | {value for item in facts.ops for value in item.sources}
        over_ring = [p for p in self._passed.values() if number in (p.maker, p.reader) and self._goes_over_ring(p, works)]
        stays = frozenset((*(t for t in near if self._stays(t, works)), *(p.stored if p.maker == number else p.loaded for p in over_ring)))
        key = number, work.parts, work.shares, stays
        if key not in self._prices:
            self._prices[key] = kernel_price(facts, work, self.target, stays).cycles
        return self._prices[key] + sum(self._ring_price(p, work) for p in over_ring if p.reader == number)

    def _goes_over_ring(self, passed: PassedOn, works: Mapping[int, Work]) -> bool:
        """Whether both kernels deal out the axes of what is passed on alike, and nothing else, and there is room for all of it."""
        maker, reader = (works.get(number, self.works[number]) for number in (passed.maker, passed.reader))
        if maker is None or reader is None or not (_is_plain(maker) and _is_plain(reader)):
            return False
        parts = [(maker.parts[a], reader.parts[b]) for a, b in passed.axes]
        alike = all(one == other for one, other in parts) and prod(n for n, _ in parts) == maker.cores == reader.cores > 1
        return alike and passed.loaded.loaded_bytes <= self.target.lx_planned_bytes // 2

    def _ring_price(self, passed: PassedOn, work: Work) -> float:
        """Cycles of the exchange in front of a reader: what each core reads beyond its own part comes from cores on both sides of it."""
        tensor = passed.loaded
        extents = [n if axis is None else work.shares[axis] for n, axis in zip(tensor.shape[1:-1], passed.along, strict=True)]
        beyond = max(tensor.covered(extents) - passed.stored.bytes / work.cores, 0.0)
        return kernel_start(self.target) + 2 * beyond / self.target.ring_bytes_per_cycle

    def _stays(self, tensor: Tensor, works: Mapping[int, Work]) -> bool:
        """Whether every core reads of a tensor what it has made."""
        if tensor not in self._makers or not self._readers.get(tensor):
            return False
        ways = {self._dealt(number, axes, works) for number, axes in (self._makers[tensor], *self._readers[tensor])}
        (way, *others) = ways
        return way is not None and not others and _has_place(tensor.shape[:-1], way)

    def _dealt(self, number: int, axes: Axes, works: Mapping[int, Work]) -> tuple[Deal, ...] | None:
        """How a kernel deals out the dims of a tensor, if no two cores have the same part of it."""
        work = works.get(number, self.works[number])
        if work is None or not _is_plain(work):
            return None
        below = [prod(work.parts[axis + 1 :]) for axis in range(len(work.parts))]
        found = tuple(
            Deal() if axis is None or work.parts[axis] == 1 else Deal(work.parts[axis], work.shares[axis], below[axis]) for axis in axes
        )
        return found if prod(deal.parts for deal in found) == work.cores else None


@lru_cache(maxsize=1024)
def _has_place(extents: tuple[int, ...], deals: tuple[Deal, ...]) -> bool:
    """Whether the parts of a tensor can lie in the scratchpads of their cores."""
    part = dealt(extents, deals, prod(deal.parts for deal in deals))
    return traffic_saved([(0, part)], [(1, part)]) > 0


def _is_plain(work: Work) -> bool:
    """Whether axes alone are dealt out."""
    return work.column_parts == 1 and work.sums == 1


def _divided(facts: KernelFacts, dealt_out: Mapping[int, int]) -> Work | None:
    """A kernel with that many parts of some axes, by number, and the others whole; None where it cannot have them."""
    if any(dealt_out.get(axis, 1) > 1 for axis in facts.whole):
        return None
    shares = tuple(-(-extent // dealt_out.get(axis, 1)) for axis, extent in enumerate(facts.extents))
    parts = tuple(-(-extent // share) for extent, share in zip(facts.extents, shares, strict=True))
    work = Work(parts, shares, 1, facts.columns or 1)
    return work if work.divides(facts) else None
