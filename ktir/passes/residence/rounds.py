"""What cores send each other so that each has what it reads, as rounds of the ring.

A *piece* is a box of what one core has of one store, for some receivers. Pieces go at the same time where their senders and receivers
differ and the links between them are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.isa.cycles import ring_route
from ktir.isa.descriptor import MAX_RANK
from ktir.passes.residence.pool_accesses import Footprint
from ktir.passes.residence.shares import Disagreement, Walk

_MOST_MARKS = 1 << 24
"""Entries times cores up to which it is looked at who needs which; beyond, all cores get everything."""

_MOST_ROUNDS = 64
"""Rounds of an exchange whose pieces are cut by what their receivers read."""


class Piece(NamedTuple):
    """Entries that core `core` sends to `receivers`: a box of `extents`, how it walks the core's share and the whole tensor."""

    core: int
    receivers: tuple[int, ...]
    extents: tuple[int, ...]
    source: Walk
    place: Walk

    @property
    def entries(self) -> int:
        """Number of entries."""
        return prod(self.extents)


class Round(NamedTuple):
    """Pieces that go at once, boxes of `extents` that differ in dim `dim`: there core c sends live[c] positions, if it sends.

    Per core: whose piece it takes, from where in its share it sends, to where in the whole tensor it takes. `load`: entries that cross the
    busiest link for each that a core takes.
    """

    extents: tuple[int, ...]
    dim: int
    live: dict[int, int]
    senders: tuple[int, ...]
    sources: tuple[int, ...]
    places: tuple[int, ...]
    source_strides: tuple[int, ...]
    place_strides: tuple[int, ...]
    load: int
    hops: int

    @property
    def crossing(self) -> int:
        """Entries that cross the busiest link."""
        return prod(self.extents) * self.load


def rounds(writes: Sequence[Footprint], walks: Sequence[Walk], reads: Sequence[Footprint], cores: int, stops: int) -> tuple[Round, ...]:
    """The rounds after which each core has what it reads, on a ring of so many stops: of pieces that are cut by what receivers read, or
    whole.

    Raises Disagreement for a piece that no descriptor can walk.
    """
    cut, whole = (tuple(pieces(writes, walks, reads, cores, cut=cut)) for cut in (True, False))
    found = [_scheduled(whole, cores, stops)]
    if cut != whole and len(cut) <= _MOST_ROUNDS * cores:
        other = _scheduled(cut, cores, stops)
        if len(other) <= max(_MOST_ROUNDS, len(found[0])):
            found.append(other)
    return min(found, key=lambda rs: sum(r.crossing for r in rs))


def pieces(writes: Sequence[Footprint], walks: Sequence[Walk], reads: Sequence[Footprint], cores: int, *, cut: bool) -> list[Piece]:
    """What cores send, of stores that walk the cores' shares as `walks` say."""
    needed = _Needed(reads, cores)
    found: list[Piece] = []
    for footprint, walk in zip(writes, walks, strict=True):
        for core in range(len(footprint.start)):
            if footprint.live[core].all():
                found += _of_core(footprint, walk, core, needed.of(footprint.entries(core)), cut)
    return found


class _Needed:
    """Which core reads which entries."""

    def __init__(self, reads: Sequence[Footprint], cores: int) -> None:
        touched = [f.touched() for f in reads]
        self.low = min(int(t[0]) for t in touched)
        self.high = max(int(t[-1]) for t in touched)
        alike = cores * (self.high + 1 - self.low) > _MOST_MARKS
        self.marks = np.zeros((1 if alike else cores, self.high + 1 - self.low), bool)
        self.cores = cores
        for f, all_ in zip(reads, touched, strict=True):
            if alike:
                self.marks[0, all_ - self.low] = True
                continue
            for core in range(len(f.start)):
                self.marks[core, f.entries(core).reshape(-1) - self.low] = True

    def of(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Per core which of the entries it reads."""
        inside = (entries >= self.low) & (entries <= self.high)
        found = self.marks[:, np.where(inside, entries - self.low, 0)] & inside
        return np.broadcast_to(found, (self.cores, *entries.shape))


def _of_core(footprint: Footprint, walk: Walk, core: int, needed: NDArray[np.bool_], cut: bool) -> list[Piece]:
    """The pieces of a core: one box for each part of it that receivers read, or one for all of them."""
    receivers = [int(r) for r in np.flatnonzero(needed.reshape(len(needed), -1).any(1))]
    boxes: dict[tuple[tuple[int, int], ...], list[int]] = {}
    if cut:
        for r in receivers:
            boxes.setdefault(_box(np.asarray(needed[r])), []).append(r)
    elif receivers:
        boxes[_box(np.asarray(needed.any(0)))] = receivers
    found = []
    for box, some in boxes.items():
        places = [Walk(first + sum(lo * s for (lo, _), s in zip(box, strides, strict=True)), tuple(strides))
                  for first, strides in ((walk.first, walk.strides), (int(footprint.start[core]), footprint.strides))]  # fmt: skip
        found.append(Piece(core, tuple(some), tuple(hi - lo for lo, hi in box), *places))
    return found


def _box(marks: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """The smallest box around what is marked."""
    found = []
    for d in range(marks.ndim):
        at = np.flatnonzero(marks.any(tuple(i for i in range(marks.ndim) if i != d)))
        found.append((int(at[0]), int(at[-1]) + 1))
    return tuple(found)


@lru_cache(maxsize=256)
def _scheduled(found: tuple[Piece, ...], cores: int, stops: int) -> tuple[Round, ...]:
    """Rounds, the largest pieces first; others join one where that takes less than a round of their own."""
    waiting = sorted(found, key=lambda p: -p.entries)
    out: list[Round] = []
    while waiting:
        first, *others = waiting
        chosen = _Chosen([first], None)
        senders = _senders(chosen.pieces, cores)
        load, _ = ring_route(senders, stops)
        left = []
        for p in others:
            more = chosen.joined(p)
            if more is None:
                left.append(p)
                continue
            senders = _senders(more.pieces, cores)
            with_it, _ = ring_route(senders, stops)
            if first.entries * (with_it - load) <= p.entries:
                chosen, load = more, with_it
            else:
                left.append(p)
        out.append(_round(chosen, cores, stops))
        waiting = left
    return tuple(out)


class _Chosen(NamedTuple):
    """Pieces of a round, and the dim in which they differ."""

    pieces: list[Piece]
    dim: int | None

    def joined(self, p: Piece) -> _Chosen | None:
        """With one more, where that is possible: another sender and other receivers, walks that differ in where they begin alone."""
        first = self.pieces[0]
        if (first.source.strides, first.place.strides) != (p.source.strides, p.place.strides):
            return None
        differing = {d for d, (m, n) in enumerate(zip(first.extents, p.extents, strict=True)) if m != n}
        if self.dim is not None:
            differing.add(self.dim)
        if len(differing) > 1 or any(p.core == q.core or not set(p.receivers).isdisjoint(q.receivers) for q in self.pieces):
            return None
        return _Chosen([*self.pieces, p], next(iter(differing), None))


def _senders(chosen: Sequence[Piece], cores: int) -> tuple[int, ...]:
    """Per core whose piece it takes; one that needs none takes that of the core beside it, since all take part."""
    found = {r: p.core for p in chosen for r in p.receivers}
    last = found[min(found)]
    out = []
    for core in range(cores):
        last = found.get(core, last)
        out.append(last)
    return tuple(out)


def _round(chosen: _Chosen, cores: int, stops: int) -> Round:
    """With as few dims as there can be; dims that follow each other on both sides are one."""
    largest = [max(n) for n in zip(*(p.extents for p in chosen.pieces), strict=True)]
    first = chosen.pieces[0]
    dims: list[tuple[int, int, int, bool]] = []
    for d, (extent, own, whole) in enumerate(zip(largest, first.source.strides, first.place.strides, strict=True)):
        if extent == 1:
            continue
        if dims and d != chosen.dim and dims[-1][1:3] == (extent * own, extent * whole):
            dims[-1] = dims[-1][0] * extent, own, whole, dims[-1][3]
        else:
            dims.append((extent, own, whole, d == chosen.dim))
    if len(dims) > MAX_RANK:
        raise Disagreement(f"a core's part of it has {len(dims)} dims, but a core sends at most {MAX_RANK}")
    while len(dims) < 2:
        dims.insert(0, (1, 1, 1, False))
    extents, own, whole, differs = zip(*dims, strict=True)
    dim = differs.index(True) if True in differs else 0
    others = prod(extents) // extents[dim]
    senders = _senders(chosen.pieces, cores)
    by_core = {p.core: p for p in chosen.pieces}
    starts = [first.source.first]
    for core in range(cores):
        starts.append(by_core[core].source.first if core in by_core else starts[-1])
    return Round(
        extents,
        dim,
        {p.core: p.entries // others for p in chosen.pieces},
        senders,
        tuple(starts[1:]),
        tuple(by_core[s].place.first for s in senders),
        own,
        whole,
        *ring_route(senders, stops),
    )
