"""What a load touches: index expressions as strided boxes, and the reshapes between two ways to cut the same box. Pure integers.

A box is `offset + sum of digit * stride`, digits counting 0..size-1 like the wheels of an odometer, the last one fastest. An affine index
is a box with one digit per loop. An index with divisions (a reshape of a transposed tensor) often is one as well, cut in other places
than the loops: it is found by evaluating the index at every point of the loop space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from ktir.lowering.inductor.indices import Index

Loops = Sequence[tuple[str, int]]

_MOST_POINTS = 1 << 27
"""Loop spaces up to this size are evaluated point by point; an array of so many indices takes 1 GiB."""


class NotStrided(Exception):
    """The index is no box of non-negative strides; the text says why."""


@dataclass(frozen=True)
class Box:
    """Elements `offset + sum of digit * stride`; `digits` are (size, stride), in loop order."""

    offset: int
    digits: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each digit."""
        return tuple(n for n, _ in self.digits)

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each digit."""
        return tuple(s for _, s in self.digits)


def box_of(index: Index, loops: Loops) -> Box:
    """The box that `index` walks over `loops`; loops that do not occur get stride 0. Raises NotStrided."""
    if index.is_affine:
        box = Box(index.constant, tuple((n, index.coefficient(v)) for v, n in loops))
    else:
        box = _factored(_evaluate(index, loops), [n for _, n in loops])
    if any(s < 0 for s in box.strides) or box.offset < 0:
        raise NotStrided("it runs backwards through memory")
    return box


def _evaluate(index: Index, loops: Loops) -> npt.NDArray[np.int64]:
    shape = tuple(n for _, n in loops)
    if prod(shape) > _MOST_POINTS:
        raise NotStrided(f"it has {prod(shape)} points, too many to find out its steps through memory")
    grids = np.ogrid[tuple(slice(n) for n in shape)] if shape else []
    return np.broadcast_to(index.values({v: g for (v, _), g in zip(loops, grids, strict=True)}), shape).reshape(-1)


def _factored(offsets: npt.NDArray[np.int64], ranges: Sequence[int]) -> Box:
    """The coarsest digits that produce `offsets` (the index at each point, last loop fastest), then cut where the loops are cut."""
    digits: list[tuple[int, int]] = []
    rest = offsets - offsets[0]
    while len(rest) > 1:
        stride = int(rest[1] - rest[0])
        other = np.flatnonzero(np.diff(rest) != stride)
        size = int(other[0]) + 1 if other.size else len(rest)
        if len(rest) % size or not np.array_equal(rest.reshape(-1, size), rest[::size, None] + stride * np.arange(size)):
            raise NotStrided("its steps through memory are not regular")
        digits.insert(0, (size, stride))
        rest = rest[::size]
    return Box(int(offsets[0]), tuple(_cut(digits, ranges)))


def _cut(digits: Sequence[tuple[int, int]], ranges: Sequence[int]) -> list[tuple[int, int]]:
    """Cut digits at the loops' borders wherever that divides evenly, so that fewer reshapes are needed."""
    borders = [prod(ranges[k:]) for k in range(1, len(ranges))]
    result: list[tuple[int, int]] = []
    inner = prod(n for n, _ in digits)
    for size, stride in digits:
        outer, inner = inner, inner // size
        for border in borders:  # descending
            if inner < border < outer and outer % border == 0 and border % inner == 0:
                result.append((outer // border, stride * (border // inner)))
                outer = border
        result.append((outer // inner, stride))
    return result


@dataclass(frozen=True)
class Group:
    """Dims `before` (positions in the old shape) become dims `after` (positions in the new shape)."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups(old: Sequence[int], new: Sequence[int]) -> list[Group]:
    """The finest common grouping of two shapes of the same number of elements and without unit dims."""
    result: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [i], [j]
        p, q = old[i], new[j]
        while p != q:
            if p < q:
                a.append(a[-1] + 1)
                p *= old[a[-1]]
            else:
                b.append(b[-1] + 1)
                q *= new[b[-1]]
        result.append(Group(tuple(a), tuple(b)))
        i, j = a[-1] + 1, b[-1] + 1
    return result


def is_dense(digits: Sequence[tuple[int, int]], elements: int) -> bool:
    """Whether digits, given from the largest stride down, cover `elements` adjacent elements each exactly once."""
    expected = elements
    for size, stride in digits:
        if expected % size or stride != expected // size:
            return False
        expected //= size
    return expected == 1


@dataclass(frozen=True)
class Route:
    """How to read an intermediate: reshape it to `shape`; its dims then are, from outer to inner loop, `order`."""

    shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def in_order(self) -> bool:
        """No dim changes its place, so one reshape is enough."""
        return self.order == tuple(range(len(self.order)))


def route(dims: Sequence[tuple[int, int]], box: Box) -> Route:
    """From the (size, stride) dims of an intermediate to the box that a load walks. Raises NotStrided if the box is not all of it."""
    elements = prod(n for n, _ in dims)
    descending = sorted(box.digits, key=lambda d: -d[1])
    if box.offset or not is_dense(descending, elements):
        raise NotStrided("it reads only a part of an intermediate, or parts of it several times")
    cuts = sorted({s for _, s in (*dims, *box.digits)} | {elements})
    if all(b % a == 0 for a, b in pairwise(cuts)):
        atoms = _atoms(dims, cuts)
        return Route(tuple(n for n, _ in atoms), tuple(atoms.index(a) for a in _atoms(box.digits, cuts)))
    if list(dims) == sorted(dims, key=lambda d: -d[1]) and list(box.digits) == descending:
        return Route(tuple(n for n, _ in dims), tuple(range(len(dims))))
    raise NotStrided("it is reshaped after a transpose, across dims that do not divide each other")


def _atoms(dims: Sequence[tuple[int, int]], cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Dims split at every cut inside them; outer parts first."""
    result: list[tuple[int, int]] = []
    for size, stride in dims:
        inside = [c for c in cuts if stride <= c <= stride * size]
        result += [(b // a, a) for a, b in reversed(list(pairwise(inside)))]
    return result
