"""Element-wise ops on a concatenation become ops on its parts.

A concatenation of columns is memory: its parts are written there and read back as one tensor. RoPE makes one only to multiply it element by
element. What such ops compute of each part by itself is concatenated behind them instead: where it is stored, the parts are stored where
they belong, and nothing but the op's own operands has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, rebuild
from ktir.mlir import func, in_order, ir, is_a, linalg, names, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.reshapes import inserted, part_of
from ktir.passes.flat.memory.shapes_to_memory import erase_dead
from ktir.passes.flat.memory.windows import box_of, shape

_ANYWHERE = names(
    ktdp.LoadOp, linalg.FillOp, tensor.EmptyOp, tensor.InsertSliceOp, tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractSliceOp
)
"""Ops that make tensors of which a part is as near as the whole: memory, or constants."""


@dataclass(frozen=True)
class _Parts:
    """A concatenation along the last dim: the tensors, and where each one begins and ends."""

    values: tuple[ir.Value, ...]
    cuts: tuple[tuple[int, int], ...]


def split_at_concatenations(function: func.FuncOp) -> None:
    """Rewrite the element-wise ops on concatenations of columns."""
    todo = [o.operation.results[0] for o in function.regions[0].blocks[0].operations if is_a(o, tensor.InsertSliceOp)]
    changed = False
    while todo:
        value = todo.pop(0)
        parts = _parts_of(value)
        if parts is None or not (readers := _readers(value)) or not _ends_in_memory(value):
            continue
        todo += [_split(reader, parts.cuts) for reader in readers]
        changed = True
    if changed:
        erase_dead(function)


def _parts_of(value: ir.Value) -> _Parts | None:
    """The parts of a tensor that is nothing but columns side by side; None for any other one."""
    found: list[tuple[int, int, ir.Value]] = []
    sizes = shape(value)
    while not isinstance(value.owner, ir.Block) and is_a(op := value.owner.operation, tensor.InsertSliceOp):
        offsets, extents, steps, kept = box_of(op)
        whole = [extents[:-1] == list(sizes[:-1]), not any(offsets[:-1]), set(steps) == {1}, len(kept) == len(sizes)]
        if not sizes or not all(whole):
            return None
        found.append((offsets[-1], offsets[-1] + extents[-1], op.operands[0]))
        value = op.operands[1]
    found.sort(key=lambda part: part[:2])
    side_by_side = all(a[1] == b[0] for a, b in pairwise(found)) and found and found[0][0] == 0 and found[-1][1] == sizes[-1]
    if len(found) < 2 or not side_by_side or any(end - begin == 1 for begin, end, _ in found):
        return None
    return _Parts(tuple(part for *_, part in found), tuple((begin, end) for begin, end, _ in found))


def _readers(value: ir.Value) -> list[ir.Operation]:
    """The element-wise ops that read a tensor, in order."""
    return in_order({op for use in value.uses if _is_pointwise(op := use.owner.operation)})


def _is_pointwise(op: ir.Operation) -> bool:
    return is_a(op, linalg.GenericOp) and len(op.results) == 1 and Generic(op).is_pointwise and windows.moved_dims(op) is None


def _ends_in_memory(value: ir.Value) -> bool:
    """Whether all that is computed from a concatenation can be computed of its parts, up to ops that read it from memory anyway."""
    for use in value.uses:
        op = use.owner.operation
        if _is_pointwise(op):
            if not _can_split(op, value) or not _ends_in_memory(op.results[0]):
                return False
        elif is_a(op, linalg.GenericOp) and windows.moved_dims(op) is None and not Generic(op).is_contraction:
            return False
    return True


def _can_split(op: ir.Operation, value: ir.Value) -> bool:
    """Whether an element-wise op can work on columns of `value` by themselves, and finds the same columns of all else it reads."""
    g = Generic(op)
    columns = len(g.iterators) - 1
    init = list(g.body.arguments)[-1]
    if any(not isinstance(e, ir.AffineDimExpr) for m in g.maps for e in m.results) or any(init in list(o.operands) for o in g.body_ops):
        return False
    if any(is_a(o, linalg.IndexOp) for o in g.body_ops) or g.loop_of(len(g.inputs), len(shape(op.results[0])) - 1) != columns:
        return False
    for i, operand in enumerate(g.inputs):
        dims = [d for d in range(len(shape(operand))) if g.loop_of(i, d) == columns]
        if operand == value and dims != [len(shape(value)) - 1]:
            return False
        if operand != value and dims and not _is_anywhere(operand, dims):
            return False
    return True


def _is_anywhere(value: ir.Value, dims: Sequence[int]) -> bool:
    """Whether some columns of a tensor are had as easily as all of it."""
    if len(dims) > 1 or isinstance(value.owner, ir.Block):
        return False
    op = value.owner.operation
    return op.name in _ANYWHERE or any(is_a(use.owner, tensor.ExtractSliceOp) for use in value.uses)


def _split(op: ir.Operation, cuts: Sequence[tuple[int, int]]) -> ir.Value:
    """Make one op per part of an element-wise op; the concatenation of what they compute, which takes its place."""
    g = Generic(op)
    columns = len(g.iterators) - 1
    result = ir.RankedTensorType(op.results[0].type)
    with ir.InsertionPoint(op), op.location:
        joined = tensor.empty(list(result.shape), result.element_type)
        for cut in cuts:
            inputs = [_part(v, [d for d in range(len(shape(v))) if g.loop_of(i, d) == columns], cut) for i, v in enumerate(g.inputs)]
            init = tensor.empty([*list(result.shape)[:-1], cut[1] - cut[0]], result.element_type)
            joined = inserted(rebuild(g, inputs, init), joined, [*[0] * (result.rank - 1), cut[0]])
    op.results[0].replace_all_uses_with(joined)
    op.erase()
    return joined


def _part(value: ir.Value, dims: Sequence[int], cut: tuple[int, int]) -> ir.Value:
    """The columns of an operand that has them as dim `dims`; the operand itself if it has none."""
    if not dims:
        return value
    parts = _parts_of(value) if dims[0] == len(shape(value)) - 1 else None
    if parts is not None and cut in parts.cuts:
        return parts.values[parts.cuts.index(cut)]
    (dim,) = dims
    return part_of(value, dim, cut[0], cut[1] - cut[0])
