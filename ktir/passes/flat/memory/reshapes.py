"""Building ops that only move elements, at the insertion point."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ktir.dialects.structured import element_of
from ktir.mlir import ir, tensor
from ktir.passes.flat.memory.windows import shape


def part_of(value: ir.Value, dim: int, offset: int, size: int | None = None) -> ir.Value:
    """Elements `offset` to `offset + size` of a tensor along `dim`; without a size element `offset` alone, without the dim."""
    result = [n for d, n in enumerate(shape(value)) if d != dim or size is not None]
    if size is not None:
        result[dim] = size
    size = size or 1
    sizes = [size if d == dim else n for d, n in enumerate(shape(value))]
    offsets = [offset if d == dim else 0 for d in range(len(sizes))]
    return tensor.ExtractSliceOp(_like(value, result), value, [], [], [], offsets, sizes, [1] * len(sizes)).result


def collapsed(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Each group of dims as one."""
    type_ = _like(value, [prod(shape(value)[d] for d in group) for group in groups])
    return tensor.CollapseShapeOp(type_, value, groups).result


def split(value: ir.Value, dim: int, sizes: Sequence[int]) -> ir.Value:
    """A dim as several of `sizes`, outer to inner."""
    before = shape(value)
    more = len(sizes) - 1
    groups = [[d + more * (d > dim)] if d != dim else list(range(dim, dim + more + 1)) for d in range(len(before))]
    return expanded(value, groups, [*before[:dim], *sizes, *before[dim + 1 :]])


def expanded(value: ir.Value, groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> ir.Value:
    """Each dim as the dims of its group, of these sizes."""
    return tensor.ExpandShapeOp(_like(value, sizes), value, groups, [], list(sizes)).result


def inserted(part: ir.Value, whole: ir.Value, offsets: Sequence[int]) -> ir.Value:
    """`whole` with the elements of `part`, which has its rank, from `offsets` on."""
    sizes = list(shape(part))
    return tensor.InsertSliceOp(part, whole, [], [], [], list(offsets), sizes, [1] * len(sizes)).result


def _like(value: ir.Value, sizes: Sequence[int]) -> ir.Type:
    return ir.RankedTensorType.get(list(sizes), element_of(value))
