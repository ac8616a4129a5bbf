"""Building ops that only move elements, at the insertion point."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
    attributes = {f"static_{name}": ir.DenseI64ArrayAttr.get(numbers) for name, numbers in
                  (("offsets", offsets), ("sizes", sizes), ("strides", [1] * len(sizes)))}  # fmt: skip
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 0, 0, 0])
    return ir.Operation.create(tensor.ExtractSliceOp.OPERATION_NAME, [_like(value, result)], [value], attributes).results[0]


def collapsed(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Each group of dims as one."""
    type_ = _like(value, [prod(shape(value)[d] for d in group) for group in groups])
    attributes = {"reassociation": _reassociation(groups)}
    return ir.Operation.create(tensor.CollapseShapeOp.OPERATION_NAME, [type_], [value], attributes).results[0]


def split(value: ir.Value, dim: int, sizes: Sequence[int]) -> ir.Value:
    """A dim as several of `sizes`, outer to inner."""
    before = shape(value)
    more = len(sizes) - 1
    groups = [[d + more * (d > dim)] if d != dim else list(range(dim, dim + more + 1)) for d in range(len(before))]
    return expanded(value, groups, [*before[:dim], *sizes, *before[dim + 1 :]])


def expanded(value: ir.Value, groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> ir.Value:
    """Each dim as the dims of its group, of these sizes."""
    attributes = {"reassociation": _reassociation(groups), "static_output_shape": ir.DenseI64ArrayAttr.get(list(sizes))}
    return ir.Operation.create(tensor.ExpandShapeOp.OPERATION_NAME, [_like(value, sizes)], [value], attributes).results[0]


def _reassociation(groups: Sequence[Sequence[int]]) -> ir.ArrayAttr:
    i64 = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(i64, d) for d in g]) for g in groups])


def _like(value: ir.Value, sizes: Sequence[int]) -> ir.Type:
    return ir.RankedTensorType.get(list(sizes), ir.RankedTensorType(value.type).element_type)
