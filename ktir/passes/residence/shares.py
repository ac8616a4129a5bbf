"""Whether the cores that read a tensor are those that wrote it, and how a core's share of it lies in its scratchpad.

Two divisions agree on a tensor where every core reads only entries that it has written itself. Its share then is a box of the tensor's
dims, which lies in the scratchpad densely in the order in which it lies in memory; each access walks it with strides that are the same on
every core, from a place that is the same on every core, because all run one program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ktir.passes.residence.pool_accesses import Footprint, Numbers


class Disagreement(Exception):
    """Why a tensor cannot stay where it was written."""


class Walk(NamedTuple):
    """How an access walks a core's share, in entries: from `first` with `strides`."""

    first: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """What a core holds of a tensor: how many entries, and how each of the accesses walks them."""

    entries: int
    walks: tuple[Walk, ...]


class Deal(NamedTuple):
    """How a dim is dealt out: core t has part number (t // below) % parts, `share` positions of it."""

    parts: int = 1
    share: int = 0
    below: int = 1


def dealt(extents: Sequence[int], deals: Sequence[Deal], cores: int) -> Footprint:
    """The entries of a tensor that lies densely in memory, its lanes aside, by a division of its dims; a dim in one part is whole.

    With `share_of` this says of two divisions, before anything is built, whether they agree on a tensor.
    """
    strides = [int(np.prod(list(extents)[d + 1 :], dtype=np.int64)) for d in range(len(extents))]
    core, start, live = np.arange(cores), np.zeros(cores, np.int64), []
    for extent, stride, deal in zip(extents, strides, deals, strict=True):
        share = deal.share if deal.parts > 1 else extent
        first = (core // deal.below) % deal.parts * share
        start = start + first * stride
        live.append(np.clip(extent - first, 0, share))
    return Footprint(start, tuple(strides), np.stack(live, 1))


def traffic_saved(writes: Sequence[tuple[int, Footprint]], reads: Sequence[tuple[int, Footprint]]) -> int:
    """Entries that need not go through global memory, once for each time that they would; 0 where divisions do not agree."""
    try:
        share_of(writes, reads)
    except Disagreement:
        return 0
    return entries_moved(writes, reads)


def entries_moved(writes: Sequence[tuple[int, Footprint]], reads: Sequence[tuple[int, Footprint]]) -> int:
    """Entries that all accesses together move."""
    return sum(int(f.live.prod(1).sum()) for _, f in (*writes, *reads))


def share_of(writes: Sequence[tuple[int, Footprint]], reads: Sequence[tuple[int, Footprint]]) -> Share:
    """The share of every core; walks in the order of `writes`, then `reads`, each with its kernel's number.

    Raises Disagreement where a core would read what it has not written.
    """
    check_owners(writes, reads)
    accesses = [f for _, f in (*writes, *reads)]
    reason = "no access spans all of a core's part"
    for outline in accesses:
        try:
            share = _laid_out(outline, accesses)
            for footprint, walk in zip(accesses[: len(writes)], share.walks, strict=False):
                _check_block(footprint, walk)
            return share
        except Disagreement as fault:
            reason = str(fault)
    raise Disagreement(reason)


def side_by_side(writes: Sequence[tuple[int, Footprint]]) -> Share:
    """The share of every core of a tensor that no core reads as it was written: what each access writes is one of its own, behind those of
    the accesses before. Raises Disagreement where one is no box."""
    try:
        return share_of(writes, [])
    except Disagreement:
        entries, walks = 0, list[Walk]()
        for write in writes:
            own = share_of([write], [])
            walks += [walk._replace(first=walk.first + entries) for walk in own.walks]
            entries += own.entries
        return Share(entries, tuple(walks))


def check_owners(writes: Sequence[tuple[int, Footprint]], reads: Sequence[tuple[int, Footprint]]) -> None:
    """Raises Disagreement unless every entry that a core reads was written once, by itself, in an earlier kernel."""
    size = 1 + max((int(f.entries(c).max(initial=-1)) for _, f in (*writes, *reads) for c in range(len(f.start))), default=-1)
    owner, when = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    for kernel, footprint in writes:
        for core in range(len(footprint.start)):
            entries = footprint.entries(core).reshape(-1)
            if (owner[entries] >= 0).any() or len(np.unique(entries)) < len(entries):
                raise Disagreement("a part of it is written twice")
            owner[entries], when[entries] = core, kernel
    moved = total = 0
    for kernel, footprint in reads:
        for core in range(len(footprint.start)):
            entries = footprint.entries(core).reshape(-1)
            if (owner[entries] < 0).any():
                raise Disagreement("a part of it is read that nothing has written")
            if (when[entries] >= kernel).any():
                raise Disagreement("it is written after it was read")
            moved += int((owner[entries] != core).sum())
            total += entries.size
    if moved:
        raise Disagreement(f"slices disagree: {moved} of the {total} entries that cores read are other cores'")


def _laid_out(outline: Footprint, accesses: Sequence[Footprint]) -> Share:
    """Shares as boxes of the dims of one of the accesses, dense but for a last dim of odd extent: a block of rows has an even number."""
    extents = outline.live.max(0)
    dims = sorted((d for d in range(len(extents)) if extents[d] > 1 and outline.strides[d]), key=lambda d: -outline.strides[d])
    for outer, inner in pairwise(dims):
        if outline.strides[outer] < extents[inner] * outline.strides[inner]:
            raise Disagreement("its dims interleave")
    local = {}
    entries = 1
    for d in reversed(dims):
        local[d] = entries
        entries *= int(extents[d]) + (int(extents[d]) % 2 if d == len(extents) - 1 else 0)
    radix = [(outline.strides[d], int(extents[d]), local[d]) for d in dims]
    return Share(entries, tuple(_walk(outline, radix, access, entries) for access in accesses))


def _check_block(footprint: Footprint, walk: Walk) -> None:
    """Raises Disagreement unless a block, with the row that makes its number even, has a place for each position."""
    *extents, rows = footprint.live.max(0).tolist()
    places = np.zeros((1,), np.int64)
    for extent, stride in zip([*extents, rows + rows % 2], walk.strides, strict=True):
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    if len(np.unique(places)) < len(places):
        raise Disagreement("the rows of a core's part are odd in number, and merged with other dims elsewhere")


def _walk(outline: Footprint, radix: list[tuple[int, int, int]], access: Footprint, beyond: int) -> Walk:
    """How an access walks a share; along a dim of one position, of which a block may have two, from there to `beyond`."""
    firsts: set[int] = set()
    strides: dict[int, int] = {}
    cores = [c for c in range(len(access.start)) if access.live[c].all()]
    if len(outline.start) <= max(cores, default=-1):
        raise Disagreement("other cores have a part of it")
    for core in cores:
        at = _placed(access.entries(core) - outline.start[core], radix)
        origin = int(at.flat[0])
        firsts.add(origin)
        expected = np.full((1,) * at.ndim, origin)
        for d in range(at.ndim):
            steps = np.arange(at.shape[d]).reshape([-1 if i == d else 1 for i in range(at.ndim)])
            if at.shape[d] > 1:
                found = int(at[tuple(int(i == d) for i in range(at.ndim))]) - origin
                if strides.setdefault(d, found) != found:
                    raise Disagreement("cores walk their parts of it in different ways")
            expected = expected + steps * strides.get(d, 0)
        if (at != expected).any():
            raise Disagreement("a core's part of it is no box")
    if len(firsts) != 1:
        raise Disagreement("cores begin at different places of their parts of it")
    return Walk(firsts.pop(), tuple(strides.get(d, beyond) for d in range(len(access.strides))))


def _placed(distance: Numbers, radix: list[tuple[int, int, int]]) -> Numbers:
    """Places in a core's share of entries at distances from its begin."""
    place = np.zeros_like(distance)
    rest = distance
    for stride, extent, local in radix:
        digit, rest = rest // stride, rest % stride
        if ((digit < 0) | (digit >= extent)).any():
            raise Disagreement("no access spans all of a core's part")
        place = place + digit * local
    if rest.any():
        raise Disagreement("no access spans all of a core's part")
    return place
