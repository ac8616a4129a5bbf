"""The operations of a tape. Each names the buffers that it reads and writes, and gives its NumPy calls once these have memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir import numerics
from ktir.target import LANES

from .values import F32, Buffer, Ints, View

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments. The tape is a list of them."""


@dataclass
class Launch:
    """What differs from launch to launch: the arguments' carriers, [entries, 64] float32, C-contiguous."""

    arguments: Sequence[F32] = ()


class Operation(Protocol):
    """One step of a tape."""

    reads: list[Buffer]
    writes: list[Buffer]

    def calls(self, launch: Launch) -> list[Call]:
        """The NumPy calls; every buffer has its memory."""
        ...


def window(memory: F32, view: View) -> F32:
    """A view on an argument. `as_strided` takes ten times as long."""
    return np.ndarray(view.shape, np.float32, memory, view.offset * 4, tuple(s * 4 for s in view.strides))


@dataclass
class Pairs:
    """Some rows or elements of memory, `outer`, and their counterparts in a buffer, `inner`."""

    outer: Ints
    inner: Ints


@dataclass
class Load:
    """Memory -> buffer [cores | 1, entries, 64]: `block` by strides into the first cores, `rows` (of both) one by one, then pads.

    `pad_rows` are rows of the buffer, `pad_elements` elements that hold the pad value.
    """

    argument: int
    target: Buffer
    block: View | None
    shape: tuple[int, ...]
    """(lead, extents.., 64)"""
    rows: Pairs | None
    pad: np.float32
    pad_rows: Ints
    pad_elements: Ints
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writes = [self.target]

    def calls(self, launch: Launch) -> list[Call]:
        """At most one call for each of the four parts."""
        out: list[Call] = []
        rows = self.target.rows
        if self.block is not None:
            view = self.block
            full = rows[: prod(self.shape) // LANES].reshape(self.shape)

            def copy() -> None:
                np.copyto(full, window(launch.arguments[self.argument], view))

            out.append((copy, ()))
        if self.rows is not None:
            outer, inner = self.rows.outer, self.rows.inner

            def gather() -> None:
                rows[inner] = launch.arguments[self.argument][outer]

            out.append((gather, ()))
        if self.pad_rows.size:
            out.append((rows.__setitem__, (self.pad_rows, self.pad)))
        if self.pad_elements.size:
            out.append((self.target.flat.__setitem__, (self.pad_elements, self.pad)))
        return out


@dataclass
class Store:
    """Buffer -> memory: `source` by strides into `block`, then rows and elements one by one.

    `rows` pairs rows of memory with elements of the buffer [rows, 64 or 1], `elements` elements with elements.
    """

    argument: int
    buffer: Buffer
    source: View | None
    block: View | None
    rows: Pairs | None
    elements: Pairs | None
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [self.buffer]

    def calls(self, launch: Launch) -> list[Call]:
        """At most one call for each of the three parts."""
        out: list[Call] = []
        flat = self.buffer.flat
        if self.block is not None and self.source is not None:
            block, source = self.block, self.source.of(flat)

            def copy() -> None:
                np.copyto(window(launch.arguments[self.argument], block), source)

            out.append((copy, ()))
        if self.rows is not None:
            outer, lanes = self.rows.outer, self.rows.inner

            def scatter() -> None:
                launch.arguments[self.argument][outer] = flat[lanes]

            out.append((scatter, ()))
        if self.elements is not None:
            to, of = self.elements.outer, self.elements.inner

            def scatter_elements() -> None:
                launch.arguments[self.argument].reshape(-1)[to] = flat[of]

            out.append((scatter_elements, ()))
        return out


@dataclass
class Piece:
    """Elements `source` of `buffer` go to the elements `target`; both flat."""

    buffer: Buffer
    source: Ints
    target: Ints


@dataclass
class Assemble:
    """Any rearrangement: the general form for values that no strides describe, that have several producers, or pads."""

    target: Buffer
    pieces: list[Piece]
    pad: np.float32 = field(default_factory=np.float32)
    pad_elements: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [p.buffer for p in self.pieces]
        self.writes = [self.target]

    def calls(self, launch: Launch) -> list[Call]:
        """One gather for each producer, one fill of the pads."""
        flat = self.target.flat
        out: list[Call] = [(_move, (flat, p.target, p.buffer.flat, p.source)) for p in self.pieces]
        if self.pad_elements.size:
            out.append((flat.__setitem__, (self.pad_elements, self.pad)))
        return out


def _move(target: F32, to: NDArray[Any], source: F32, of: NDArray[Any]) -> None:
    target[to] = source[of]


@dataclass
class Multiply:
    """MM: sums [cores, corelets, rows, 64] (+)= rows x weights. `left` and `right` are views of matrices with leading axes."""

    left_buffer: Buffer
    left: View
    right_buffer: Buffer
    right: View
    sums: Buffer
    shape: tuple[int, ...]
    first: bool
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [self.left_buffer, self.right_buffer] + ([] if self.first else [self.sums])
        self.writes = [self.sums]

    def calls(self, launch: Launch) -> list[Call]:
        """One product of all rows if all cores share the weights, else one per core."""
        cores, corelets, rows, _ = self.shape
        a = _full(self.left.of(self.left_buffer.flat), rows)
        b = _full(self.right.of(self.right_buffer.flat), LANES)
        sums = self.sums.flat.reshape(self.shape)
        if b.shape[:2] == (1, 1) and a.shape[:2] == (cores, corelets):
            return [(_add_flat, (a, b[0, 0], sums.reshape(-1, LANES), self.first))]
        return [(_add_product, (a, b, sums, self.first))]


def _full(x: F32, rows: int) -> F32:
    """Matrices with all their rows and lanes."""
    return np.broadcast_to(x, (*x.shape[:2], rows, LANES))


def _add_flat(a: F32, b: F32, sums: F32, first: bool) -> None:
    _add_product(a.reshape(-1, LANES), b, sums, first)


def _add_product(a: F32, b: F32, sums: F32, first: bool) -> None:
    np.add(numerics.matmul_block(a, b), np.float32(0) if first else sums, sums)
