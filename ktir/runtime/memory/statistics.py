"""What a card's memory is used for, as PyTorch counts it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ktir.runtime.time.steps import MOVES, Kind, Step

_SMALL = 1 << 20
"""Bytes of the largest range that counts as a small one."""
_POOLS = ("all", "small_pool", "large_pool")
_SAME = {
    "allocation": ("allocation", "segment", "active"),
    "allocated_bytes": ("allocated_bytes", "reserved_bytes", "active_bytes"),
    "requested_bytes": ("requested_bytes",),
}
"""What is counted -> the names under which PyTorch wants it; nothing is reserved that is not in use."""
_NEVER = ("inactive_split", "inactive_split_bytes")


class Count:
    """A number that goes up and down."""

    __slots__ = ("added", "now", "peak", "removed")

    def __init__(self) -> None:
        self.now = self.peak = self.added = self.removed = 0

    def add(self, amount: int) -> None:
        """Up."""
        self.now += amount
        self.added += amount
        if self.now > self.peak:
            self.peak = self.now

    def remove(self, amount: int) -> None:
        """Down."""
        self.now -= amount
        self.removed += amount

    def shown(self) -> dict[str, int]:
        """By PyTorch's names."""
        return {"current": self.now, "peak": self.peak, "allocated": self.added, "freed": self.removed}


class Statistics:
    """Counts of one card. What comes and goes is noted, at any time and by finalizers too, and counted where somebody wants to know."""

    def __init__(self) -> None:
        self.retries = 0
        """Times that garbage was collected for want of room."""
        self.failures = 0
        """Times that there was no room."""
        self.moves: dict[Kind, tuple[int, int]] = dict.fromkeys(MOVES, (0, 0))
        """Kind of a step -> how many there were, and the bytes that they have moved."""
        self._counts = {name: {pool: Count() for pool in _POOLS} for name in _SAME}
        self.asked: deque[int] = deque()
        """Bytes that tensors ask for; negative: of those that are gone. Not counted yet."""
        self.steps: deque[Step] = deque()
        """What the card has done. Not counted yet."""
        self.ranges: deque[int] = deque()
        """Bytes of ranges that are taken; negative: of those given back. Not counted yet."""

    def settle(self) -> None:
        """Count what is noted. One thread at a time."""
        while self.asked:
            _count(self._counts["requested_bytes"], self.asked.popleft())
        while self.steps:
            step = self.steps.popleft()
            if step.nbytes:
                number, before = self.moves[step.kind]
                self.moves[step.kind] = number + 1, before + step.nbytes
        while self.ranges:
            size = self.ranges.popleft()
            _count(self._counts["allocated_bytes"], size)
            _count(self._counts["allocation"], size, 1)

    @property
    def allocated(self) -> Count:
        """Bytes of ranges."""
        return self._counts["allocated_bytes"]["all"]

    def nested(self) -> dict[str, Any]:
        """All counts in the form of `torch.cuda.memory_stats_as_nested_dict`."""
        shown: dict[str, Any] = {
            name: {pool: count.shown() for pool, count in self._counts[counted].items()}
            for counted, names in _SAME.items()
            for name in names
        }
        shown |= {name: {pool: Count().shown() for pool in _POOLS} for name in _NEVER}
        return shown | {"num_alloc_retries": self.retries, "num_ooms": self.failures, "max_split_size": -1}

    def reset_peaks(self) -> None:
        """Peaks are what is there now."""
        for count in self._all():
            count.peak = count.now

    def reset_accumulated(self) -> None:
        """What was allocated and freed so far counts no more."""
        for count in self._all():
            count.added = count.removed = 0
        self.retries = self.failures = 0

    def _all(self) -> Sequence[Count]:
        return [count for pools in self._counts.values() for count in pools.values()]


def _count(counts: Mapping[str, Count], nbytes: int, amount: int | None = None) -> None:
    size = abs(nbytes)
    for pool in ("all", "small_pool" if size <= _SMALL else "large_pool"):
        (counts[pool].remove if nbytes < 0 else counts[pool].add)(size if amount is None else amount)
