"""The operations of a tape. Each names the buffers that it reads and writes, and gives its NumPy calls once these have memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.block_sums import Block
from ktir.arithmetic.pairs import ELEMENTS, INTEGERS, along_k, integer_sums
from ktir.emulator.machine.replay.values import F32, Buffer, Ints, View, runs, together
from ktir.target import LANES

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments. The tape is a list of them."""
Bound = Callable[[], float]
"""Gives a bound for the magnitudes in a carrier, once it is asked for."""


@dataclass
class Launch:
    """What differs from launch to launch: the arguments' carriers, [entries, 64], C-contiguous, and bounds for those only read. Carriers
    are of float32; of arguments that are only read they may wait in fewer bits.
    """

    arguments: Sequence[NDArray[Any]] = ()
    bounds: Mapping[int, Bound] = field(default_factory=dict)
    asked: dict[int | None, float | None] = field(default_factory=dict)
    """The bounds that have been asked for in this launch."""
    kept: Collection[int] = ()
    """Arguments that are as they were where the launch fails."""
    before: list[tuple[NDArray[Any], Any, NDArray[Any]]] = field(default_factory=list)
    """What was written of these: where, and what was there."""

    def start(self, arguments: Sequence[NDArray[Any]], bounds: Mapping[int, Bound], kept: Collection[int] = ()) -> None:
        """Begin a launch."""
        self.arguments, self.bounds, self.asked, self.kept = arguments, bounds, {}, kept
        if self.before:
            self.before = []

    def write(self, argument: int, memory: NDArray[Any], at: Any, values: NDArray[Any]) -> None:
        """Put values into the memory of an argument; at: where, as NumPy's subscripts say it."""
        if argument in self.kept:
            self.before.append((memory, at, np.array(memory[at])))
        memory[at] = values

    def undo(self) -> None:
        """The launch has failed."""
        while self.before:
            memory, at, values = self.before.pop()
            memory[at] = values

    def largest(self, origin: int | None) -> float | None:
        """A bound for the magnitudes of an argument, NaN if there may be one. None: unknown."""
        if origin not in self.asked:
            bound = None if origin is None else self.bounds.get(origin)
            self.asked[origin] = None if bound is None else bound()
        return self.asked[origin]


class Operation(Protocol):
    """One step of a tape."""

    reads: list[Buffer]
    writes: list[Buffer]

    def calls(self, launch: Launch) -> list[Call]:
        """The NumPy calls; every buffer has its memory."""
        ...


def window(memory: NDArray[Any], view: View) -> NDArray[Any]:
    """A view on an argument. `as_strided` takes ten times as long."""
    item = memory.itemsize
    return np.ndarray(view.shape, memory.dtype, memory, view.offset * item, tuple(s * item for s in view.strides))


@dataclass
class Piece:
    """Entries, or parts of them: the elements `source` + `lane` * l of `buffer` go to `target` + l, for each l < `run`.

    Both arrays have one shape: [cores, ...] where that is known.
    """

    buffer: Buffer
    source: Ints
    target: Ints
    run: int
    lane: int

    def call(self, flat: F32) -> Call:
        """The copy to `flat`: of strides where these describe it, else of runs."""
        views = together(self.source, self.lane, self.target, 1, self.run)
        if views is not None:
            of, to = views
            return np.copyto, (to.of(flat), of.of(self.buffer.flat))
        (rows, shift), (into, _) = runs(self.buffer.flat, self.lane, self.run), runs(flat, 1, self.run)
        return _move, (into, self.target, rows, self.source + shift)


@dataclass
class Assemble:
    """Any rearrangement: the general form for values that no strides describe, that have several producers, or pads."""

    target: Buffer
    pieces: list[Piece]
    pad: np.float32
    pads: list[tuple[int, Ints]]
    """(live lanes, entries): the lanes from there on hold the pad value."""
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [p.buffer for p in self.pieces]
        self.writes = [self.target]

    def calls(self, launch: Launch) -> list[Call]:
        """One copy for each piece, one fill of the pads of each number of lanes."""
        flat, rows = self.target.flat, self.target.rows
        out = [p.call(flat) for p in self.pieces if p.source.size]
        return out + [(rows.__setitem__, ((entries, slice(lanes, None)), self.pad)) for lanes, entries in self.pads]


def _move(target: F32, to: Ints, source: F32, of: Ints) -> None:
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
    half: str
    """What both operands are."""
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [self.left_buffer, self.right_buffer] + ([] if self.first else [self.sums])
        self.writes = [self.sums]

    def calls(self, launch: Launch) -> list[Call]:
        """One product of all rows if all cores share the weights, else one per core."""
        cores, corelets, rows, _ = self.shape
        a = self.left.spread(rows, LANES).of(self.left_buffer.flat)
        b = self.right.spread(LANES, LANES).of(self.right_buffer.flat)
        sums = self.sums.flat.reshape(self.shape)
        origin = self.right_buffer.origin
        if b.shape[:2] == (1, 1) and a.shape[:2] == (cores, corelets):
            b, sums = b[0, 0], sums.reshape(-1, LANES)
        if self.half in INTEGERS:
            return [(_add_integers, (a, b, self.half, sums.view(np.int32), self.first))]
        if self.half in ELEMENTS:
            return [(_add_pairs, (a, b, self.half, sums, self.first))]
        return [(_add_product, (launch, origin, Block(a, b, (self.half, self.half)), sums, self.first))]


def _add_pairs(a: F32, b: F32, half: str, sums: F32, first: bool) -> None:
    """The same of operands whose lanes hold two bytes each, along K."""
    products = Block(*along_k(a, b, half), (ELEMENTS[half], ELEMENTS[half])).sums()
    np.add(products, np.float32(0) if first else sums, sums)


def _add_integers(a: F32, b: F32, half: str, sums: NDArray[np.int32], first: bool) -> None:
    """The same of integers, in i32."""
    np.add(integer_sums(a, b, half).reshape(sums.shape), np.int32(0) if first else sums, sums)


def _add_product(launch: Launch, origin: int | None, block: Block, sums: F32, first: bool) -> None:
    largest = launch.largest(origin)
    products = block.sums(None if largest is None else largest * 8)  # the norm of 64
    np.add(products, np.float32(0) if first else sums, sums)
