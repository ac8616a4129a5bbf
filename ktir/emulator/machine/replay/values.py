"""Values of the tape: where in which buffer the entries of a value lie. Reading, reordering and broadcasting only change offsets.

A value is never larger than it must be: what does not depend on the core, the corelet, a row or the lane is stored once and seen through
stride 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.target import LANES

Ints = NDArray[np.int64]
F32 = NDArray[np.float32]


@dataclass(eq=False)
class Buffer:
    """Memory of `size` float32 elements. `data` is there once the tape is laid out; `lasting` buffers are never reused."""

    size: int
    lasting: bool = False
    data: F32 | None = None
    origin: int | None = None
    """The argument that all elements come from, but for zeros, if it is one."""

    def __getstate__(self) -> dict[str, Any]:
        """Where it is kept: memory that is written anew at each launch is not."""
        return {**self.__dict__, "data": self.data if self.lasting else None}

    @property
    def flat(self) -> F32:
        """The elements, flat."""
        assert self.data is not None
        return self.data

    @property
    def rows(self) -> F32:
        """The elements as rows of 64."""
        return self.flat.reshape(-1, LANES)


@dataclass(frozen=True, eq=False)
class Value:
    """Entries of 64 lanes: lane l of entry i for core c and corelet k is element `at[c, k, i] + lane * l` of the buffer.

    `at` is [cores or 1, corelets or 1, entries]; `lane` is 0 for a splat.
    """

    buffer: Buffer
    at: Ints
    lane: int = 1

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self.at.shape[2]

    def part(self, first: int, last: int) -> Value:
        """Some of the entries."""
        return Value(self.buffer, self.at[:, :, first:last], self.lane)

    def pick(self, entries: slice | Ints) -> Value:
        """The entries that an index selects."""
        return Value(self.buffer, self.at[:, :, entries], self.lane)

    def elements(self) -> Ints:
        """Element of every lane [cores or 1, corelets or 1, entries, 64 or 1]."""
        return self.at[..., None] + (np.arange(LANES) * self.lane if self.lane else np.zeros(1, np.int64))


def shrink(at: Ints) -> Ints:
    """Drop the core and the corelet axis where nothing depends on them."""
    for axis in (0, 1):
        if at.shape[axis] > 1 and (at == at.take([0], axis)).all():
            at = at.take([0], axis)
    return at


def stored(shape: Sequence[int], extents: Sequence[int]) -> Ints:
    """Offsets [cores, corelets, entries] of the entries of a C-contiguous array (cores, corelets, d.., lanes).

    The entries run over `extents`; an axis d that is shorter has length 1 and is broadcast.
    """
    at = np.zeros((1,) * (len(shape) - 1), np.int64)
    step = shape[-1]
    for axis in reversed(range(len(shape) - 1)):
        view = [1] * at.ndim
        view[axis] = shape[axis]
        at = at + (np.arange(shape[axis]) * step).reshape(view)
        step *= shape[axis]
    return np.broadcast_to(at, (*shape[:2], *extents)).reshape(*shape[:2], -1)


@dataclass(frozen=True)
class View:
    """A strided view, in elements; axes of stride 0 have length 1."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, flat: F32) -> F32:
        """The view on a flat float32 array. `as_strided` takes ten times as long."""
        size = flat.itemsize
        return np.ndarray(self.shape, np.float32, flat, self.offset * size, tuple(s * size for s in self.strides))

    def spread(self, rows: int, lanes: int) -> View:
        """The view with all rows and lanes of its matrices, where one stands for all."""
        return View(self.offset, (*self.shape[:-2], rows, lanes), self.strides)

    @property
    def size(self) -> int:
        """Elements of the view."""
        return prod(self.shape)


def affine(at: Ints, lane: int, lanes: int = LANES) -> View | None:
    """The view that visits the elements `at`, with a last axis of lanes (1 if `lane` is 0), or None if no strides give them."""
    first = int(at.flat[0])
    inner = at - first
    # the trips of a loop differ by where they begin
    strides = _known_strides(inner.shape, inner.tobytes()) if inner.size <= _KNOWN else _strides(inner)
    if strides is None:
        return None
    shape = tuple(n if s else 1 for n, s in zip(at.shape, strides, strict=True))
    return View(first, (*shape, lanes if lane else 1), (*strides, lane))


def together(source: Ints, lane: int, target: Ints, to_lane: int, lanes: int) -> tuple[View, View] | None:
    """Views that copy the elements of one walk [cores, ...] to those of another of the same shape, or None. Cores that divide several axes
    of a kernel are a grid, whose axes have strides of their own. Several elements of the source for one of the target have no views.
    """
    cores = len(source)
    for inner in [cores, *(n for n in range(2, cores) if cores % n == 0)]:
        shape = (cores // inner, inner, *source.shape[1:]) if inner < cores else source.shape
        of, to = affine(source.reshape(shape), lane, lanes), affine(target.reshape(shape), to_lane, lanes)
        if of is not None and to is not None and all(n <= m for n, m in zip(of.shape, to.shape, strict=True)):
            return of, to
    return None


_KNOWN = 1 << 13
"""Largest walk that is remembered, in entries."""


@lru_cache(maxsize=256)
def _known_strides(shape: tuple[int, ...], inner: bytes) -> tuple[int, ...] | None:
    return _strides(np.frombuffer(inner, np.int64).reshape(shape))


def _strides(inner: Ints) -> tuple[int, ...] | None:
    """The strides that give the elements `inner`, of which the first one is 0, or None."""
    strides = []
    line = np.zeros((1,) * inner.ndim, np.int64)
    for axis, n in enumerate(inner.shape):
        index = [0] * inner.ndim
        index[axis] = min(1, n - 1)
        step = int(inner[tuple(index)])
        strides.append(step)
        if step:
            view = [1] * inner.ndim
            view[axis] = n
            line = line + (np.arange(n) * step).reshape(view)
    return tuple(strides) if np.array_equal(np.broadcast_to(line, inner.shape), inner) else None


def runs(flat: NDArray[Any], lane: int, lanes: int) -> tuple[NDArray[Any], int]:
    """Every run of `lanes` elements `lane` apart as a row, and the row of the run that begins at element 0."""
    reach = (lanes - 1) * lane
    low = min(0, reach)
    item = flat.itemsize
    return np.ndarray((flat.size - abs(reach), lanes), flat.dtype, flat, -low * item, (item, item * lane)), low


def entry_view(value: Value, shape: Sequence[int]) -> View | None:
    """A value's entries as a view [cores | 1, corelets | 1, *shape (1 where broadcast), lanes | 1], or None."""
    at = value.at
    return affine(at.reshape(*at.shape[:2], *shape), value.lane)
