"""How words of weights lie: which weights are in which places of which words, and the dims along which these count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.library.packed.expressions import Digits, Leaf
from ktir.library.packed.kernels import WORD
from ktir.target import LANES

Numbers = NDArray[np.int64]
_MOST_ROWS = 64
"""Rows of words that are taken apart at once."""
_MOST_DEPTH = 1024
"""Rows of the second operand in a step, which is written out."""


@dataclass(frozen=True)
class Lying:
    """Words as a kernel sees them, and the weights in them: of a second operand [K, N]."""

    words: Numbers
    """[R, C]: which of the words stands where."""
    depth: Numbers
    """[R, 8], or [R, 1] where the places of a word are columns: the rows of the second operand in a row of words."""
    columns: Numbers
    """[1, N], or [8, C]: the columns."""

    @property
    def spread(self) -> int:
        return len(self.columns)


def lying(weights: Leaf) -> Lying | None:
    """How the words of weights [K, N] lie; None where they are no rows and columns."""
    down, across = weights.places(0) + weights.first, weights.places(1)
    if not down.size or not across.size or (down.size * across.size) % WORD:
        return None
    for places, others in ((down, across), (across, down)):
        if (others % WORD).any():
            continue
        word, place = np.divmod(places, WORD)
        own = np.unique(word)
        if len(own) * WORD != len(places):
            continue
        found = np.full((len(own), WORD), -1)
        found[np.searchsorted(own, word), place] = np.arange(len(places))
        if (found < 0).any():
            continue
        order = np.argsort(found.min(1))
        own, found = own[order], found[order]
        if places is down:
            return _whole(Lying(own[:, None] + others // WORD, found, np.arange(len(across))[None]))
        return _whole(Lying(others[:, None] // WORD + own, np.arange(len(down))[:, None], found.T))
    return None


def _whole(found: Lying) -> Lying | None:
    """Where each word stands once, along dims that count."""
    seen = np.zeros(found.words.size, bool)
    if found.words.min() < 0 or found.words.max() >= seen.size:
        return None
    seen[found.words] = True
    return found if seen.all() and is_counted(found.words.reshape(-1)) else None


@dataclass(frozen=True)
class Shares:
    """Rows of words that are taken apart at once, and how many such have a row of each table in common."""

    rows: int
    shared: int = 1
    after: bool = False
    """Whether a step is a group, of fewer than 64 rows perhaps: its sums are multiplied."""


def shares(depth: Numbers, groups: Sequence[Numbers], *, after: bool = False) -> Shares | None:
    """For groups of the rows of the second operand: a number each, per table. Blocks of 64 rows have whole loads, or loads whole blocks;
    None where tables are otherwise."""
    count, along = depth.shape
    wanted = [g for g in groups if g.any()]
    each = count
    for group in wanted:
        rows, rest = divmod(count, int(group.max()) + 1)
        if rest or not np.array_equal(group[depth], np.broadcast_to((np.arange(count) // rows)[:, None], depth.shape)):
            return None
        if each not in (count, rows):
            return None
        each = rows
    rows = min(each, _MOST_ROWS)
    while rows > 1 and (LANES % rows or each % rows or count % rows):
        rows //= 2
    if rows < 4 or (rows * along < LANES and wanted and rows != each):
        return None
    own = Shares(rows, each // rows if wanted else 1, after)
    step = step_of(along, own)
    return own if depth.size % step == 0 and step <= _MOST_DEPTH else None


def step_of(along: int, own: Shares) -> int:
    """Rows of the second operand in a step: a group, or a block of several."""
    return along * own.rows * own.shared if own.after else max(LANES, along * own.rows * own.shared)


def taken(depth: Numbers, own: Shares) -> Numbers:
    """The rows of the second operand in the order in which the kernel takes them: [steps, blocks, 64 or fewer]."""
    along = depth.shape[1]
    step = step_of(along, own)
    return depth.reshape(-1, own.rows, along).swapaxes(1, 2).reshape(-1, max(1, step // LANES), min(LANES, step))


def is_counted(flat: Numbers) -> bool:
    """Whether a permutation counts along dims of the numbers that it permutes."""
    found = np.zeros(1, np.int64)
    digits = digits_of(flat)
    for n, d in digits:
        found = (found[:, None] + np.arange(n) * d).reshape(-1)
    below = sorted((d, n) for n, d in digits)
    whole = all(d * n == (below[k + 1][0] if k + 1 < len(below) else len(flat)) for k, (d, n) in enumerate(below))
    return whole and np.array_equal(found, flat)


def digits_of(flat: Numbers) -> Digits:
    """The extents of dims, outer to inner, along which a permutation of 0, 1, .. counts, and the distances along them."""
    found: list[tuple[int, int]] = []
    rest = flat
    while len(rest) > 1:
        distance = int(rest[1] - rest[0])
        other = np.flatnonzero(np.diff(rest) != distance)
        run = int(other[0]) + 1 if other.size else len(rest)
        while len(rest) % run:
            run -= 1
        found.insert(0, (run, distance))
        rest = rest[::run]
    return tuple(found)
