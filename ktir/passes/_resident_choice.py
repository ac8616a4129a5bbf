"""Which tensors stay in the scratchpad from kernel to kernel, and where: rectangles of bytes by kernels, in what each kernel leaves free.

First fit over lifetimes, what saves most per byte and kernel first; then a search over other orders with a limit of steps. Everything is
deterministic: the same program always gets the same places.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = (30, 500, 5000)
"""Orders that are tried: so many per tensor, at least, at most."""
_SEED = 1


@dataclass(frozen=True)
class Candidate:
    """A tensor that may stay: `bytes` on each core, live in kernels `first` to `last`; `saved` bytes of global memory traffic."""

    key: int
    bytes: int
    first: int
    last: int
    saved: int

    def meets(self, other: Candidate) -> bool:
        """Whether both live at one time."""
        return self.first <= other.last and other.first <= self.last

    @property
    def density(self) -> float:
        """Bytes saved per byte and kernel."""
        return self.saved / (self.bytes * (self.last - self.first + 1))


@dataclass(frozen=True)
class Choice:
    """Distances from the top of the scratchpad to the begin of each tensor that stays, and the bytes that they save together."""

    depths: dict[Candidate, int]
    saved: int


def choose(candidates: Sequence[Candidate], free: Sequence[int]) -> Choice:
    """The tensors that stay. `free`: per kernel the bytes at the top of the scratchpad that it can do without."""
    order = sorted(candidates, key=lambda c: (-c.density, c.first, c.last))
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
    placed: dict[Candidate, int] = {}
    for candidate in order:
        room = min(free[candidate.first : candidate.last + 1])
        depth = 0
        for other in sorted((p for p in placed if p.meets(candidate)), key=lambda p: placed[p] - p.bytes):
            if depth + candidate.bytes <= placed[other] - other.bytes:
                break
            depth = max(depth, placed[other])
        if depth + candidate.bytes <= room:
            placed[candidate] = depth + candidate.bytes
    return Choice(placed, sum(c.saved for c in placed))
