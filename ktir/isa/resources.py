"""What a kernel's cycles are spent on, and which of these resources bounds it: one answer for emulator and cost model.

The time of a kernel is the length of its longest *chain*: work and delays that wait for each other, from its launch to its last result. So
a resource that were free would save at most its part of that chain, where no unit waits for another one's use of the memory channel or
the ring: else units may be served in another order, and only the longest chain of a run in which they do not wait for that counts. It
would not save more than what is left above the *load* of another one either: the cycles for which that one is busy in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Resource(IntEnum):
    """Something that takes time. The value is its place in a chain."""

    MEMORY = 0
    LATENCY = 1
    RING = 2
    PT = 3
    SFP = 4
    LX = 5
    HANDOVER = 6
    LAUNCH = 7

    @property
    def title(self) -> str:
        """What it is called."""
        return _ABOUT[self][0]

    @property
    def remedy(self) -> str:
        """What would have to change for a kernel that it bounds."""
        return _ABOUT[self][1]


_ABOUT = {
    Resource.MEMORY: ("memory channel", "move fewer bytes: keep tensors in the scratchpads, read each once, use narrower types"),
    Resource.LATENCY: ("memory latency", "load earlier or at once: more buffers, larger blocks, fewer kernels that start from memory"),
    Resource.RING: ("ring", "send less from core to core: fewer cores that read the same, or a division that needs no exchange"),
    Resource.PT: ("matrix array", "multiply less, or more rows per block of weights: larger blocks, more cores"),
    Resource.SFP: ("vector unit", "do fewer or cheaper elementwise operations and reductions, or divide them among more cores"),
    Resource.LX: ("scratchpad port", "pass over the scratchpad less often: fuse ops, transfer whole sticks"),
    Resource.HANDOVER: ("hand-over between units", "take fewer steps that wait for each other: fuse ops, larger blocks"),
    Resource.LAUNCH: ("launch", "launch fewer kernels"),
}

Chain = NDArray[np.int64]
"""Cycles by resource [len(Resource)], which add up to a time; or one chain per row."""

ONE: dict[Resource, Chain] = {r: np.eye(len(Resource), dtype=np.int64)[r] for r in Resource}
"""A cycle of each."""


@dataclass(frozen=True)
class Bound:
    """What bounds a kernel of `cycles`. `chain`: cycles of the longest chain by resource; `saves`: what each would save if it took no time,
    where that is `proved`, else at most. Less than 0 where the kernel would be slower, since units are served in another order.
    """

    cycles: float
    chain: Mapping[Resource, float]
    saves: Mapping[Resource, float]
    proved: frozenset[Resource] = frozenset()

    @property
    def resource(self) -> Resource:
        """The one that would save most."""
        return max(self.saves, key=lambda r: self.saves[r])

    @property
    def share(self) -> float:
        """What it would save, as a share of the cycles."""
        return self.saves[self.resource] / self.cycles if self.cycles else 0.0

    def __str__(self) -> str:
        return f"bound by the {self.resource.title}: {self.share:.0%} fewer cycles without it"


def bound_of(
    chain: Mapping[Resource, float], loads: Mapping[Resource, float], uncontended: Mapping[Resource, float] | None = None
) -> Bound:
    """What bounds a kernel of which the longest chain and the loads are known; `uncontended`: its longest chain if no unit waited for
    another one's use of the memory channel or the ring, where some do.
    """
    cycles, left = sum(chain.values()), chain if uncontended is None else uncontended
    saves = {}
    for resource in Resource:
        others = max((load for r, load in loads.items() if r is not resource), default=0)
        saves[resource] = max(cycles - max(sum(left.values()) - left.get(resource, 0), others), 0)
    return Bound(cycles, dict(chain), saves)


def bound_of_all(bounds: list[Bound]) -> Bound:
    """What bounds kernels that run one after the other."""
    chain = {r: sum(b.chain.get(r, 0) for b in bounds) for r in Resource}
    saves = {r: sum(b.saves[r] for b in bounds) for r in Resource}
    return Bound(sum(b.cycles for b in bounds), chain, saves, frozenset(r for r in Resource if all(r in b.proved for b in bounds)))
