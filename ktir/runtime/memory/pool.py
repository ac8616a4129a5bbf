"""Ranges of an address space: best fit, with neighbours joined when they are given back."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from ktir.target import STICK_BYTES


def rounded(nbytes: int) -> int:
    """What a range of so many bytes takes: whole granules, and at least one."""
    return max(STICK_BYTES, -(-nbytes // STICK_BYTES) * STICK_BYTES)


class Pool:
    """The free ranges of some segments. No range crosses from one segment to the next, also where they touch."""

    def __init__(self, segments: Sequence[tuple[int, int]]) -> None:
        """segments: base and bytes of each one."""
        self.capacity = sum(size for _, size in segments)
        self.used = 0
        self._bases = frozenset(base for base, _ in segments)
        self._holes = sorted((size, base) for base, size in segments)  # by size: the first that is large enough fits best
        self._at = {base: size for base, size in segments}  # by where they begin
        self._to = {base + size: base for base, size in segments}  # by where they end

    @property
    def largest(self) -> int:
        """Bytes of the largest free range."""
        return self._holes[-1][0] if self._holes else 0

    @property
    def holes(self) -> list[tuple[int, int]]:
        """Address and bytes of each free range."""
        return [(address, size) for size, address in self._holes]

    def take(self, size: int) -> int | None:
        """The address of a range of `size` bytes, a multiple of the granule; None where no segment has room."""
        place = bisect_left(self._holes, (size, 0))
        if place == len(self._holes):
            return None
        found, address = self._holes.pop(place)
        del self._at[address], self._to[address + found]
        if found > size:
            self._add(address + size, found - size)
        self.used += size
        return address

    def give(self, address: int, size: int) -> None:
        """Give a range back."""
        self.used -= size
        after = self._at.get(address + size)
        if after is not None and address + size not in self._bases:
            self._remove(address + size, after)
            size += after
        before = self._to.get(address)
        if before is not None and address not in self._bases:
            self._remove(before, address - before)
            address, size = before, size + address - before
        self._add(address, size)

    def _add(self, address: int, size: int) -> None:
        insort(self._holes, (size, address))
        self._at[address] = size
        self._to[address + size] = address

    def _remove(self, address: int, size: int) -> None:
        del self._holes[bisect_left(self._holes, (size, address))]
        del self._at[address], self._to[address + size]
