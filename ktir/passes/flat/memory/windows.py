"""Windows: which elements of a buffer a tensor is, and what becomes of a window in an op that only moves elements.

A window is an offset, sizes and strides in elements. Reshapes, slices, transposes and broadcasts of it are windows again; a collapse of
dims that do not follow one another in memory is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, moved_by
from ktir.mlir import arith, ir, is_a, linalg, tensor


@dataclass(frozen=True)
class Window:
    """Element (i, j, ..) lies at offset + i * strides[0] + j * strides[1] + .. of its buffer."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def dense(sizes: Sequence[int], pitch: int = 1) -> Window:
        """A whole row-major buffer whose last extent takes a multiple of `pitch` elements."""
        strides, step = [], 1
        for i, size in enumerate(reversed(sizes)):
            strides.append(step)
            step *= size if i else -(-size // pitch) * pitch
        return Window(0, tuple(sizes), tuple(reversed(strides)))

    def expand(self, groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> Window:
        """Dim d as dims `groups[d]` of extents `sizes`, row-major."""
        strides = [0] * len(sizes)
        for d, group in enumerate(groups):
            step = self.strides[d]
            for i in reversed(group):
                strides[i] = step
                step *= sizes[i]
        return Window(self.offset, tuple(sizes), tuple(strides))

    def collapse(self, groups: Sequence[Sequence[int]]) -> Window | None:
        """Each of `groups` as one dim; None where a group's dims do not follow one another in memory."""
        sizes, strides = [], []
        for group in groups:
            dims = [i for i in group if self.sizes[i] != 1]
            if any(self.strides[i] != self.strides[j] * self.sizes[j] for i, j in pairwise(dims)):
                return None
            sizes.append(prod(self.sizes[i] for i in group))
            strides.append(self.strides[dims[-1]] if dims else 0)
        return Window(self.offset, tuple(sizes), tuple(strides))

    def slice(self, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int], kept: Sequence[int]) -> Window:
        """Every `steps`-th element from `offsets` on, `sizes` of them; only the dims `kept` remain."""
        offset = self.offset + sum(o * s for o, s in zip(offsets, self.strides, strict=True))
        return Window(offset, tuple(sizes[d] for d in kept), tuple(self.strides[d] * steps[d] for d in kept))

    def pick(self, dims: Sequence[int | None], sizes: Sequence[int]) -> Window:
        """A window whose dim i is dim `dims[i]` of this one; None = every position shows the same."""
        return Window(self.offset, tuple(sizes), tuple(0 if d is None else self.strides[d] for d in dims))


def shape(value: ir.Value) -> tuple[int, ...]:
    """Extents of a tensor."""
    return tuple(ir.RankedTensorType(value.type).shape)


def groups_of(op: ir.Operation) -> list[list[int]]:
    """Reassociation of a collapse_shape or an expand_shape: dims of the larger shape per dim of the smaller one."""
    return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


def box_of(op: ir.Operation) -> tuple[list[int], list[int], list[int], list[int]]:
    """Offsets, sizes and steps of an extract_slice or insert_slice, and which dims of the whole the part has."""
    offsets, sizes, steps = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides"))
    part = shape(op.results[0] if is_a(op, tensor.ExtractSliceOp) else op.operands[0])
    return offsets, sizes, steps, kept_dims(sizes, part)


def kept_dims(sizes: Sequence[int], part: Sequence[int]) -> list[int]:
    """Dims of `sizes` that remain as `part`; the others have extent 1."""
    kept: list[int] = []
    for d, size in enumerate(sizes):
        left = len(part) - len(kept)
        if left and part[len(kept)] == size and not (size == 1 and len(sizes) - d > left):
            kept.append(d)
    return kept


def moved_dims(op: ir.Operation) -> list[int | None] | None:
    """Of a generic that only transposes and repeats its one input: the input's dim per dim of the result, None = repeated. None for
    every other op."""
    if not is_a(op, linalg.GenericOp) or len(op.operands) != 2 or len(op.results) != 1:
        return None
    g = Generic(op)
    if g.body_ops or g.yielded != g.body.arguments[0] or not g.is_pointwise:
        return None
    loops, result = g.walk(0), g.walk(1)
    if None in loops or len(set(loops)) != len(loops) or set(result) != set(range(len(g.iterators))) or len(result) != len(g.iterators):
        return None
    return [loops.index(loop) if loop in loops else None for loop in result]


def source(op: ir.Operation) -> ir.Value | None:
    """What an op moves the elements of, if it does nothing else."""
    return (
        op.operands[0]
        if is_a(op, tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractSliceOp) or moved_dims(op) is not None
        else None
    )


def moved(op: ir.Operation, window: Window) -> Window | None:
    """The window of the result of an op that only moves elements, given that of its `source`; None if there is none."""
    if is_a(op, tensor.ExpandShapeOp):
        return window.expand(groups_of(op), shape(op.results[0]))
    if is_a(op, tensor.CollapseShapeOp):
        return window.collapse(groups_of(op))
    if is_a(op, tensor.ExtractSliceOp):
        return window.slice(*box_of(op))
    dims = moved_dims(op)
    assert dims is not None
    return window.pick(dims, shape(op.results[0]))


def moved_back(op: ir.Operation, window: Window) -> Window | None:
    """Where the elements of its `source` lie if the result of an op that only moves elements is to fill `window`; None where they lie
    nowhere, or several times."""
    if is_a(op, tensor.ExpandShapeOp):
        return window.collapse(groups_of(op))
    if is_a(op, tensor.CollapseShapeOp):
        return window.expand(groups_of(op), shape(op.operands[0]))
    dims = moved_dims(op)
    if dims is None or None in dims:
        return None
    return window.pick([dims.index(d) for d in range(len(dims))], shape(op.operands[0]))


def window_of_view(view: ir.Operation) -> tuple[ir.Value, Window]:
    """The base address of a view of the logical level and the window that it shows."""
    base, offset = view.operands[0], 0
    if is_a(base.owner, arith.AddIOp):
        base, distance = base.owner.operands
        if isinstance(distance, ir.BlockArgument):
            base, distance = distance, base
        offset = ir.IntegerAttr(distance.owner.attributes["value"]).value
    sizes, strides = (tuple(ir.DenseI64ArrayAttr(view.attributes[f"static_{n}"])) for n in ("sizes", "strides"))
    return base, Window(offset, sizes, strides)


def view_of(base: ir.Value, window: Window, element: ir.Type) -> ir.Value:
    """The view that shows a window of the buffer at `base`."""
    return ktdp.construct_memory_view(moved_by(base, window.offset), window.sizes, window.strides, element)


def direct_view(tile: ir.Operation) -> ir.Operation | None:
    """The view of which `tile` is the whole, dims in order; None for a tile that reads indices or turns dims."""
    if not is_a(tile, ktdp.ConstructAccessTileOp):
        return None
    order = ir.AffineMapAttr(tile.attributes["access_tile_order"]).value
    return tile.operands[0].owner if order == ir.AffineMap.get_identity(order.n_dims) else None


def shown(value: ir.Value) -> Window:
    """The window that a tensor will be, as far as strides go: a pool is dense."""
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if is_a(op, ktdp.LoadOp):
        view = direct_view(op.operands[0].owner.operation)
        if is_a(view, ktdp.ConstructMemoryViewOp):
            return window_of_view(view)[1]
    given = None if op is None else source(op)
    found = None if op is None or given is None else moved(op, shown(given))
    return found or Window.dense(shape(value))
