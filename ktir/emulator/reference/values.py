"""What SSA values are while a program is recorded.

Addresses never depend on data, so recording knows every integer: it computes with numbers, views and tiles directly, and only
tensors (and floats taken from them) stand for data that a launch supplies. See `recorder` for the whole picture.

    int, float, bool, ndarray[T]   a scalar known while recording; an array holds one entry per tile where tiles differ
    Pointer                        a base address plus elements
    View, AccessTile               what the ktdp ops of these names construct
    Tensor, Overlay                data; a float scalar that comes from data is a Tensor of rank 0

Axis 0 of every tensor is the tile axis, of stride 0 where the value does not depend on the tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ktir.emulator.reference.memory import Buffer

__all__ = [
    "CARRIERS",
    "ELEMENT_BYTES",
    "AccessTile",
    "Box",
    "Known",
    "Overlay",
    "Pointer",
    "Storage",
    "Strided",
    "Tensor",
    "Value",
    "View",
    "simplify",
]

CARRIERS: dict[str, type] = {
    "f16": np.float32,
    "f32": np.float32,
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "index": np.int64,
}
"""Element type -> NumPy type of its values. An f16 value is a float32 on the f16 grid."""

ELEMENT_BYTES: dict[str, int] = {"f16": 2, "f32": 4, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8}

Known = int | float | bool | NDArray[Any]
Box = tuple[tuple[int, int], ...]
"""Per axis: first coordinate and extent."""


def simplify(x: Any) -> Known:
    """A known scalar in its simplest form: a Python number if all tiles agree, else one entry per tile."""
    if isinstance(x, np.ndarray):
        if x.ndim == 0 or (x.size and bool((x == x.flat[0]).all())):
            return x.flat[0].item()
        return x
    return x.item() if isinstance(x, np.generic) else x


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

    @staticmethod
    def constant(array: NDArray[Any]) -> Storage:
        flat = np.ascontiguousarray(array).reshape(-1)
        return Storage(flat.dtype.type, flat.size, flat)

    @property
    def is_temporary(self) -> bool:
        return self.array is None and self.owner is None


@dataclass(eq=False)
class Tensor:
    """Data of element type `element` in `storage` at `at`. `born`: the number of steps recorded before it was loaded."""

    storage: Storage
    at: Strided
    element: str
    born: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape without the tile axis."""
        return self.at.shape[1:]

    def moved(self, at: Strided, element: str | None = None) -> Tensor:
        """Other positions in the same storage."""
        return Tensor(self.storage, at, element or self.element, self.born)


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
    """A memory view. `buffer` is None for the scratchpad. `masked[d]`: accesses beyond dim d are clipped."""

    buffer: Buffer | None
    offset: Known
    sizes: tuple[Known, ...]
    strides: tuple[int, ...]
    masked: tuple[bool, ...]
    element: str


@dataclass(frozen=True, eq=False)
class AccessTile:
    """Coordinates of a view: the box of `extents` at `anchor` (both in base dims); tile dim k is base dim `order[k]`."""

    view: View
    anchor: tuple[Known, ...]
    extents: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.extents[d] for d in self.order)


Value = Known | Pointer | View | AccessTile | Tensor | Overlay
