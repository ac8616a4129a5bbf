"""What SSA values are while a program is recorded.

Addresses never depend on data, so recording knows every integer: it computes with numbers, views and tiles directly, and only
tensors (and floats taken from them) stand for data that a launch supplies. See `record.recorder` for the whole picture.

    int, float, bool, ndarray[T]   a scalar known while recording; an array holds one entry per tile where tiles differ
    Pointer                        a base address plus elements
    View, AccessTile               what the ktdp ops of these names construct
    Tensor, Overlay                data; a float scalar that comes from data is a Tensor of rank 0

Axis 0 of every tensor is the tile axis, of stride 0 where the value does not depend on the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import integers
from ktir.emulator.findings import Where
from ktir.target import TWOS

__all__ = [
    "CARRIERS",
    "ELEMENT_BYTES",
    "PAIRS",
    "AccessTile",
    "Box",
    "Buffer",
    "Distributed",
    "Entries",
    "Future",
    "IndirectTile",
    "Known",
    "Overlay",
    "Pointer",
    "Storage",
    "Strided",
    "Subscript",
    "Tensor",
    "Value",
    "View",
    "element_name",
    "is_float",
    "is_odd",
    "simplify",
    "tile_runs",
]

PAIRS: dict[str, str] = {**{name: f.hosts[0] for name, f in TWOS.items()}, "vector<2xf32>": "f32", "vector<2xi32>": "i32"}
"""Types of two numbers -> type of each."""

CARRIERS: dict[str, type] = {
    "f16": np.float32,
    "bf16": np.float32,
    "dl16": np.float32,
    "f8E4M3FN": np.float32,
    "f8E5M2": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "f16_fused": np.complex64,
    "dl16_fused": np.complex64,
    "f32_fused": np.complex64,
    **{name: np.complex128 if single == "i32" else np.complex64 for name, single in PAIRS.items()},
    **integers.CARRIERS,
}
"""Element type -> NumPy type of its values. An f16 value is a float32 on the f16 grid; so with all narrow floats. A pair is a
complex number: its first half is the real part. An integer narrower than its carrier is kept as a signed number."""

ELEMENT_BYTES: dict[str, int] = {
    "f16": 2,
    "bf16": 2,
    "dl16": 2,
    "f8E4M3FN": 1,
    "f8E5M2": 1,
    "f32": 4,
    "f64": 8,
    "f16_fused": 4,
    "dl16_fused": 4,
    "f32_fused": 8,
    "index": 8,
    **{name: 8 if single in ("f32", "i32") else 2 for name, single in PAIRS.items()},
    **{kind: np.dtype(carrier).itemsize for kind, carrier in CARRIERS.items() if kind[0] == "i" and kind != "index"},
}
"""Element type -> bytes of an element in memory. A narrow integer takes a whole number of bytes, a power of two."""

_SPELLINGS = {
    "!spyreop.df16": "dl16",
    "!spyreop.fp16_fused": "f16_fused",
    "!spyreop.df16_fused": "dl16_fused",
    "!spyreop.fp32_fused": "f32_fused",
}


def element_name(type_: Any) -> str:
    """The name of an element type in CARRIERS, or its text."""
    text = str(type_).replace("<>", "")
    return _SPELLINGS.get(text, text)


def is_float(element: str) -> bool:
    """Whether values of this type are real numbers."""
    return CARRIERS[element] in (np.float32, np.float64)


def is_odd(element: str) -> bool:
    """Whether it is an integer type narrower than its carrier, of which NumPy has no arrays."""
    return element[0] == "i" and element not in ("index", "i1") and int(element[1:]) < 8 * np.dtype(CARRIERS[element]).itemsize


Known = int | float | bool | NDArray[Any]
Box = tuple[tuple[int, int], ...]
"""Per axis: first coordinate and extent."""
Entries = list[tuple[bool, int]]
"""Numbers of an op: constants, and slots that hold one."""


def simplify(x: Any) -> Known:
    """A known scalar in its simplest form: a Python number if all tiles agree, else one entry per tile."""
    if isinstance(x, np.ndarray):
        if x.ndim == 0:
            return x.item()
        agree = bool(x.size) and bool((x == x.flat[0]).all())
        if agree and x.dtype.kind == "f" and not x.flat[0]:  # -0 equals 0, but is another number
            agree = bool((np.signbit(x) == np.signbit(x.flat[0])).all())
        return x.flat[0].item() if agree else x
    return x.item() if isinstance(x, np.generic) else x


def tile_runs(active: NDArray[np.bool_] | None, tiles: int) -> list[tuple[int, int]]:
    """Runs of active tiles as (first, count)."""
    if active is None:
        return [(0, tiles)]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(np.int8)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True)
class Strided:
    """Shape, strides and offset in elements of a one-dimensional memory. Stride 0 repeats one element along an axis."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    def __post_init__(self) -> None:
        # An axis of one element has no stride, so that equal layouts compare equal.
        if any(s and n == 1 for s, n in zip(self.strides, self.shape, strict=True)):
            strides = tuple(0 if n == 1 else s for s, n in zip(self.strides, self.shape, strict=True))
            object.__setattr__(self, "strides", strides)

    @staticmethod
    def compact(shape: tuple[int, ...], present: tuple[int, ...]) -> Strided:
        """Row-major over the axes of `shape` whose entry in `present` is not 1; the others repeat."""
        strides = [0] * len(shape)
        step = 1
        for axis in range(len(shape) - 1, -1, -1):
            if present[axis] != 1:
                strides[axis] = step
                step *= shape[axis]
        return Strided(shape, tuple(strides))

    @property
    def present(self) -> tuple[int, ...]:
        """The shape with 1 for the axes along which the value repeats."""
        return tuple(1 if s == 0 and n > 0 else n for s, n in zip(self.strides, self.shape, strict=True))

    @property
    def present_size(self) -> int:
        """Number of distinct elements."""
        return int(np.prod(self.present, dtype=np.int64))

    def is_compact(self) -> bool:
        """Whether the distinct elements lie densely in row-major order from offset 0."""
        return self == Strided.compact(self.shape, self.present)

    def span(self) -> tuple[int, int]:
        """First address and end of the addresses."""
        if 0 in self.shape:
            return self.offset, self.offset
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(r for r in reach if r < 0)
        return low, self.offset + sum(r for r in reach if r > 0) + 1

    def spread(self, shape: Sequence[int]) -> Strided:
        """A number per tile, repeated over `shape`."""
        return Strided((self.shape[0], *shape), (self.strides[0], *(0,) * len(shape)), self.offset)

    def box(self, box: Box, first_axis: int = 1) -> Strided:
        """The part in `box`, which begins at axis `first_axis`."""
        shape, offset = list(self.shape), self.offset
        for axis, (low, extent) in enumerate(box, first_axis):
            offset += low * self.strides[axis]
            shape[axis] = extent
        return Strided(tuple(shape), self.strides, offset)

    def axes(self, order: tuple[int, ...]) -> Strided:
        """The axes in another order; leaving out an axis takes its element 0."""
        return Strided(tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order), self.offset)

    def expand(self, axis: int, extents: tuple[int, ...]) -> Strided:
        """Axis `axis` cut into several, outer first."""
        strides, step = [], self.strides[axis]
        for n in reversed(extents):
            strides.append(step)
            step *= n
        return Strided(
            self.shape[:axis] + extents + self.shape[axis + 1 :],
            self.strides[:axis] + tuple(reversed(strides)) + self.strides[axis + 1 :],
            self.offset,
        )

    def collapse(self, first: int, last: int) -> Strided | None:
        """Axes `first` to `last` as one, or None if no single stride reaches them."""
        stride, extent = 0, 1
        for axis in range(last, first - 1, -1):
            n, s = self.shape[axis], self.strides[axis]
            if n == 1:
                continue
            if extent == 1:
                stride = s
            elif s != stride * extent:
                return None
            extent *= n
        shape = (*self.shape[:first], extent, *self.shape[last + 1 :])
        return Strided(shape, (*self.strides[:first], stride, *self.strides[last + 1 :]), self.offset)

    def linear(self, shape: tuple[int, ...], steps: tuple[tuple[int, ...], ...], origin: tuple[int, ...]) -> Strided:
        """The layout over other axes: axis j advances own axis i by `steps[i][j]`, from `origin[i]`. Axis 0 stays."""
        offset = self.offset + sum(o * s for o, s in zip(origin, self.strides[1:], strict=True))
        strides = [sum(row[j] * s for row, s in zip(steps, self.strides[1:], strict=True)) for j in range(len(shape) - 1)]
        return Strided(shape, (self.strides[0], *strides), offset)

    def tiles(self, first: int, count: int) -> Strided:
        """The part of `count` tiles from tile `first`."""
        return Strided((count, *self.shape[1:]), self.strides, self.offset + first * self.strides[0])


@dataclass(eq=False)
class Storage:
    """A one-dimensional memory that tensors lie in: constant, temporary, or the carrier of a buffer (`owner`)."""

    dtype: type
    size: int
    array: NDArray[Any] | None = None
    owner: Any = None
    clipped: NDArray[np.bool_] | None = None
    """Of integers: which elements are zero only because a masked view was read beyond its end; None: none."""

    @staticmethod
    def constant(array: NDArray[Any]) -> Storage:
        flat = np.ascontiguousarray(array).reshape(-1)
        return Storage(flat.dtype.type, flat.size, flat)

    @property
    def is_temporary(self) -> bool:
        return self.array is None and self.owner is None


@dataclass(eq=False)
class Buffer:
    """What backs a base address: an array of the caller, scratch, or (for addresses that are plain numbers) one memory without content.

    `size` in bytes, None where the program's own accesses decide it. Its *carrier* of an element type holds all its elements of that type
    as NumPy values; a launch fills the carriers it reads from the caller's array and writes back what was written. Loads are views of a
    carrier.
    """

    name: str
    size: int | None
    initialized: bool
    argument: int | None = None
    """Position of the caller's array among the distinct arrays of a launch; None: no array."""
    element: str | None = None
    """Element type of the array; None: views of any type may lie here."""
    carriers: dict[str, Storage] = field(default_factory=dict)
    placed: list[tuple[int, int, str, int]] = field(default_factory=list)
    """Arrays of the caller that lie in it: first byte, number of the array, its element type, elements."""
    source: Callable[[str, int, int], NDArray[Any]] | None = None
    """Where steps run as they are recorded: the content of a range of elements of a type."""

    def carrier(self, element: str, least: int = 0) -> Storage:
        """The memory of all elements of this type; its size is settled when recording ends. `least`: elements that must exist now."""
        if element not in self.carriers:
            size = 0 if self.size is None else self.size // ELEMENT_BYTES[element]
            self.carriers[element] = Storage(CARRIERS[element], size, owner=self)
        carrier = self.carriers[element]
        if self.source is not None:
            have = 0 if carrier.array is None else carrier.array.size
            want = max(carrier.size, least)
            if carrier.array is None or have < want:
                array = self.source(element, 0, want)
                if carrier.array is not None:
                    array[:have] = carrier.array
                carrier.array, carrier.size = array, want
        return carrier


@dataclass(eq=False)
class Tensor:
    """Data of element type `element` in `storage` at `at`. `born`: the number of steps recorded before it was loaded.

    `empty`: what `tensor.empty` makes; as an accumulator it means the identity. `grid`: the float format on whose grid the values lie,
    if they have only been widened from it.
    """

    storage: Storage
    at: Strided
    element: str
    born: int = 0
    empty: bool = False
    grid: str = ""

    def __post_init__(self) -> None:
        self.grid = self.grid or self.element

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape without the tile axis."""
        return self.at.shape[1:]

    def moved(self, at: Strided, element: str | None = None) -> Tensor:
        """Other positions in the same storage."""
        return Tensor(self.storage, at, element or self.element, self.born, self.empty, self.grid)

    def held_in(self, storage: Storage, at: Strided) -> Tensor:
        """The same values in other memory."""
        return Tensor(storage, at, self.element, self.born, self.empty, self.grid)


@dataclass(eq=False)
class Overlay:
    """`base` with `patch` in `box`. Reductions into lane 0 make one; most readers want only the patch."""

    base: Tensor
    patch: Tensor
    box: Box
    flat: Tensor | None = field(default=None)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.base.shape

    @property
    def element(self) -> str:
        return self.base.element


@dataclass(frozen=True, eq=False)
class Pointer:
    """A base address: `offset` elements (of the type of the view built on it) after the start of `buffer`."""

    buffer: Buffer
    offset: Known


@dataclass(frozen=True, eq=False)
class View:
    """A memory view. `buffer` is None for the scratchpad. `masked[d]`: accesses beyond dim d are clipped.

    `owner`: the tile whose scratchpad it is; None: each tile's own. `origin` and `owned`: the box of coordinates that the view has
    in a distributed view. `name`: what reports call it.
    """

    buffer: Buffer | None
    offset: Known
    sizes: tuple[Known, ...]
    strides: tuple[int, ...]
    masked: tuple[bool, ...]
    element: str
    owner: int | None = None
    origin: tuple[Known, ...] | None = None
    owned: tuple[Known, ...] = ()
    name: str = ""
    held: Tensor | None = None
    """What the view is of, if not of memory: a tensor, as one axis of elements in row-major order."""
    lanes: tuple[int, int] | None = None
    """(stick, c): accesses are clipped where 64 * (coordinate in dim `stick`) + coordinate in the last dim > c."""


@dataclass(frozen=True, eq=False)
class Distributed:
    """Views that own disjoint (or equal) boxes of the coordinates of one tensor."""

    parts: tuple[View, ...]
    element: str

    @property
    def sizes(self) -> tuple[Known, ...]:
        ends = [[simplify(np.add(o, n)) for o, n in zip(p.origin or (), p.owned, strict=True)] for p in self.parts]
        return tuple(simplify(np.maximum.reduce([np.asarray(e) for e in column])) for column in zip(*ends, strict=True))


@dataclass(frozen=True, eq=False)
class AccessTile:
    """Coordinates of a view: the box of `extents` at `anchor` (both in base dims); tile dim k is base dim `order[k]`.

    `mask`: which points of the box belong to the set (in base dims); None: all.
    """

    view: View | Distributed
    anchor: tuple[Known, ...]
    extents: tuple[int, ...]
    order: tuple[int, ...]
    mask: NDArray[np.bool_] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.extents[d] for d in self.order)


@dataclass(frozen=True, eq=False)
class Subscript:
    """A coordinate of an indirect tile at every point of its variables: `known`, or what `index` holds at the coordinates `at`.

    Arrays have one axis for tiles and one per variable, of length 1 where the value does not depend on it.
    """

    known: NDArray[np.int64] | None
    row: tuple[int, ...] | None
    """Coefficient per variable, where the coordinate is linear in them."""
    index: View | Distributed | None = None
    at: tuple[NDArray[np.int64], ...] = ()


@dataclass(frozen=True, eq=False)
class IndirectTile:
    """Coordinates of a view through index tensors: variable v runs over `extents[v]`; tile dim k is variable `order[k]`."""

    view: View | Distributed
    subscripts: tuple[Subscript, ...]
    extents: tuple[int, ...]
    order: tuple[int, ...]
    mask: NDArray[np.bool_] | None = None
    shifted: bool = False
    """Whether the known coordinates count from the first one that the view, a partition, owns."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.extents[d] for d in self.order)


@dataclass(frozen=True, eq=False)
class Future:
    """What tiles have produced: a value per role, the group of each tile that did (-1: none), and the order of their actions."""

    values: tuple[Value, ...]
    group: NDArray[np.int64]
    declared: NDArray[np.int64]
    clock: NDArray[np.int64]
    where: Where


Value = Known | Pointer | View | Distributed | AccessTile | IndirectTile | Future | Tensor | Overlay
