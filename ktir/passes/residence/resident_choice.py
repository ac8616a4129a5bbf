"""Which tensors stay in the scratchpad from kernel to kernel, and where: rectangles of bytes by moments, in what each moment leaves free.

Moments are kernels and what happens between them. First fit over lifetimes, what saves most per byte and moment first; then a search over
other orders with a limit of steps. Everything is deterministic: the same program always gets the same places.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (30, 500, 5000)
"""Orders that are tried: so many per tensor, at least, at most."""
_SEED = 1


@dataclass(frozen=True)
class Stay:
    """`bytes` on each core from moment `first` to `last`."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Stay) -> bool:
        """Whether both are there at one time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Candidate:
    """A tensor that may stay, at one place or at several, all or none; `saved`: what that is worth."""

    key: int
    stays: tuple[Stay, ...]
    saved: int

    @property
    def density(self) -> float:
        """What is saved per byte and moment."""
        return self.saved / sum(s.bytes * (s.last - s.first + 1) for s in self.stays)


@dataclass(frozen=True)
class Choice:
    """Of each tensor that stays, per stay the distance from the top of the scratchpad to its begin; what they save together."""

    depths: dict[Candidate, tuple[int, ...]]
    saved: int


def choose(candidates: Sequence[Candidate], free: Sequence[int]) -> Choice:
    """The tensors that stay. `free`: per moment the bytes at the top of the scratchpad that can be given away."""
    order = sorted(candidates, key=lambda c: (-c.density, c.stays[0].first, c.stays[-1].last))
    best = first_fit(order, free)
    if len(best.depths) == len(order):
        return best
    per_tensor, least, most = _STEPS
    draw = random.Random(_SEED)
    for _ in range(min(max(per_tensor * len(order), least), most)):
        tried = list(order)
        tried.insert(draw.randrange(len(tried)), tried.pop(draw.randrange(len(tried))))
        found = first_fit(tried, free)
        if found.saved >= best.saved:
            order = tried
            best = found if found.saved > best.saved else best
    return best


def first_fit(order: Sequence[Candidate], free: Sequence[int]) -> Choice:
    """Each tensor in turn as near to the top as it can lie; one that does not fit is left out."""
    placed: list[tuple[Stay, int]] = []
    depths: dict[Candidate, tuple[int, ...]] = {}
    for candidate in order:
        own: list[tuple[Stay, int]] = []
        for stay in candidate.stays:
            depth = _depth(stay, [*placed, *own])
            if depth > min(free[stay.first : stay.last + 1]):
                break
            own.append((stay, depth))
        else:
            placed += own
            depths[candidate] = tuple(depth for _, depth in own)
    return Choice(depths, sum(c.saved for c in depths))


def _depth(stay: Stay, placed: Sequence[tuple[Stay, int]]) -> int:
    """How far below the top the lowest byte of a stay lies, as near to it as it can lie."""
    depth = 0
    for other, below in sorted((p for p in placed if p[0].meets(stay)), key=lambda p: p[1] - p[0].bytes):
        if depth + stay.bytes <= below - other.bytes:
            break
        depth = max(depth, below)
    return depth + stay.bytes
