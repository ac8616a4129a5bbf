"""Logical KTIR: named matmuls, transposes, broadcasts and reductions become `linalg.generic`, the one form that layouts are assigned to.

Upstream's `linalg-generalize-named-ops` would also rewrite fills, which the passes know by name, and gives bodies no location.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.analysis.calls import planned
from ktir.diagnostics import refused
from ktir.dialects.module_level import Level
from ktir.dialects.structured import SUMS, Generic, affine_map, clone_ops, elementwise, fill, filled, generic, identity, maps_of
from ktir.dialects.vector_kinds import is_scalar_op
from ktir.mlir import arith, ir, is_a, linalg, named, operations, tensor
from ktir.passes.general.intrinsics import expand_intrinsics
from ktir.passes.general.statistics import expand_statistics
from ktir.pipeline import Pass
from ktir.target import is_half

_CONTRACTIONS: dict[str, tuple[tuple[int, ...], ...]] = named(
    {
        linalg.MatmulOp: ((0, 2), (2, 1), (0, 1)),
        linalg.BatchMatmulOp: ((0, 1, 3), (0, 3, 2), (0, 1, 2)),
    }
)
"""Loops of each dim of the operands; the last loop is reduced."""


@dataclass(frozen=True)
class GeneralizePass(Pass):
    """Write named structured ops out as `linalg.generic`; fills stay. A constant tensor is a fill, an op of scalars on tensors a generic,
    and what is concatenated is inserted into one tensor, and what nobody reads is gone.
    Intrinsics that are no single instruction are written out. Reductions begin from what leaves their result as it is, such as 0: what
    their `outs` holds otherwise is combined with it by an op of its own.

    Expects and guarantees: the logical level; values do not change, but for the last places of f32 matmuls and of sums that begin from
    something.
    """

    name: ClassVar[str] = "ktir-generalize"
    description: ClassVar[str] = "logical: named matmuls, transposes and broadcasts as generics"
    tolerance: ClassVar[float] = 2.0**-10  # products of f32 are rounded each, not as sums of blocks, and what they make may become f16

    def allowed(self, module: ir.Module) -> float:
        """The tolerance where there is a matmul of f32, or a sum of floats that begins from something; else nothing."""
        generics = [Generic(op) for op in operations(module) if is_a(op, linalg.GenericOp)]
        return self.tolerance if any(g.is_wide_matmul or _adds_what_it_began_from(g) for g in generics) else 0.0

    def run(self, module: ir.Module) -> None:
        """Rewrite every named op of the module."""
        require_level(module, self.name, Level.LOGICAL)
        for function in planned(module):
            expand_statistics(function.operation)
            expand_intrinsics(function.operation)
        for op in [op for f in planned(module) for op in operations(f) if _is_named(op) or _is_scalar_op_on_tensors(op)]:
            maps = _maps(op)
            with ir.InsertionPoint(op), op.location:
                if maps is not None:
                    result = _generic(op, *maps)
                elif is_a(op, tensor.ConcatOp):
                    result = _concatenated(op)
                else:
                    result = _filled(op) if is_a(op, arith.ConstantOp) else _elementwise(op)
            op.results[0].replace_all_uses_with(result)
            op.erase()
        for g in [Generic(op) for f in planned(module) for op in operations(f) if is_a(op, linalg.GenericOp)]:
            if g.begins_elsewhere:
                _begin_from_identity(g)
        for function in planned(module):
            _drop_unread(function.operation)


def _drop_unread(function: ir.Operation) -> None:
    """Erase what computes tensors that nobody reads: later stages ask who reads a result."""
    for op in reversed([o.operation for o in function.regions[0].blocks[0].operations]):
        makes = op.results and all(isinstance(r.type, ir.RankedTensorType) for r in op.results)
        if makes and op.name.split(".")[0] in ("linalg", "tensor") and not any(True for r in op.results for _ in r.uses):
            op.erase()


def _begin_from_identity(g: Generic) -> None:
    """What a reduction begins from is combined with its result by an op of its own. Raises Unsupported for sums in 16 bits, which round
    each of their steps."""
    first, kind = g.op.operands[len(g.inputs)], g.combiner
    if kind is None or (is_half(g.yielded.type) and kind in SUMS):
        raise refused(
            g.op, f"begins from a value and sums in {g.yielded.type}, which is not supported; the nearest supported form sums in f32"
        )
    type_ = ir.RankedTensorType(first.type)
    combine = g.yielded.owner.name

    def body(scalars: list[ir.Value]) -> ir.Value:
        return ir.Operation.create(combine, results=[type_.element_type], operands=scalars[:2]).results[0]

    result = g.op.results[0]
    readers = [(use.owner.operation, use.operand_number) for use in result.uses]
    with g.op.location:
        with ir.InsertionPoint(g.op):
            g.op.operands[len(g.inputs)] = filled(type_.shape, type_.element_type, identity(kind, type_.element_type))
        with ir.InsertionPoint.after(g.op):
            both = elementwise([first, result], tensor.EmptyOp(list(type_.shape), type_.element_type).result, body)
    for reader, operand in readers:
        reader.operands[operand] = both


def _adds_what_it_began_from(g: Generic) -> bool:
    """Whether a sum's result is added to something at the same place and by nothing but that, as `_begin_from_identity` writes it."""
    if not g.sums_floats:
        return False
    readers = [use.owner.operation for use in g.op.results[0].uses]
    alone = [o.operation for r in readers if r.location == g.op.location and is_a(r, linalg.GenericOp) for o in r.regions[0].blocks[0]]
    return [op.name for op in alone] == [arith.AddFOp.OPERATION_NAME, linalg.YieldOp.OPERATION_NAME]


def _is_named(op: ir.Operation) -> bool:
    return _maps(op) is not None or is_a(op, tensor.ConcatOp)


def _concatenated(op: ir.Operation) -> ir.Value:
    """Tensors one after the other along a dim: each is inserted into one tensor."""
    type_, dim = ir.RankedTensorType(op.results[0].type), ir.IntegerAttr(op.attributes["dim"]).value
    whole: ir.Value = tensor.EmptyOp(list(type_.shape), type_.element_type).result
    at = [0] * type_.rank
    for part in op.operands:
        size = list(ir.RankedTensorType(part.type).shape)
        whole = tensor.InsertSliceOp(part, whole, [], [], [], list(at), size, [1] * type_.rank).result
        at[dim] += size[dim]
    return whole


def _maps(op: ir.Operation) -> tuple[list[ir.AffineMap], list[str]] | None:
    """Indexing maps and iterators of a named op; None for all other ops."""
    if op.name not in _CONTRACTIONS and not is_a(op, linalg.TransposeOp, linalg.BroadcastOp):
        return None
    rank = ir.RankedTensorType(op.results[0].type).rank
    if op.name in _CONTRACTIONS:
        usual = [affine_map(rank + 1, dims) for dims in _CONTRACTIONS[op.name]]
        return maps_of(op) if "indexing_maps" in op.attributes else usual, ["parallel"] * rank + ["reduction"]
    if is_a(op, linalg.TransposeOp):
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        return [affine_map(rank, [order.index(d) for d in range(rank)]), ir.AffineMap.get_identity(rank)], ["parallel"] * rank
    added = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
    kept = [d for d in range(rank) if d not in added]
    return [affine_map(rank, kept), ir.AffineMap.get_identity(rank)], ["parallel"] * rank


def _is_scalar_op_on_tensors(op: ir.Operation) -> bool:
    return is_scalar_op(op) and len(op.results) == 1 and isinstance(op.results[0].type, ir.RankedTensorType)


def _elementwise(op: ir.Operation) -> ir.Value:
    """An op of scalars, element by element."""
    type_ = ir.RankedTensorType(op.results[0].type)

    def body(scalars: list[ir.Value]) -> ir.Value:
        found = iter(scalars)
        operands = [next(found) if v in tensors else v for v in op.operands]
        attributes = {name: op.attributes[name] for name in op.attributes}
        return ir.Operation.create(op.name, results=[type_.element_type], operands=operands, attributes=attributes).results[0]

    tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
    return elementwise(tensors, tensor.EmptyOp(list(type_.shape), type_.element_type).result, body)


def _filled(op: ir.Operation) -> ir.Value:
    """A constant tensor as a fill. Raises Unsupported where its elements differ."""
    type_, elements = ir.RankedTensorType(op.results[0].type), op.attributes["value"]
    if not isinstance(elements, ir.DenseElementsAttr) or not elements.is_splat:
        raise refused(op, "holds different elements, which is not supported; the nearest supported form loads them from an argument")
    scalar = arith.ConstantOp(type_.element_type, elements.get_splat_value()).result
    return fill(scalar, tensor.EmptyOp(list(type_.shape), type_.element_type).result)


def _generic(op: ir.Operation, maps: Sequence[ir.AffineMap], iterators: Sequence[str]) -> ir.Value:
    *inputs, init = op.operands
    block = op.regions[0].blocks[0]

    def body(arguments: list[ir.Value]) -> ir.Value:
        *ops, end = (o.operation for o in block.operations)
        mapping = dict(zip(block.arguments, arguments, strict=True))
        clone_ops(ops, mapping)
        for source in ops:
            for result in source.results:
                mapping[result].owner.location = op.location
        return mapping[end.operands[0]]

    return generic(inputs, init, maps, iterators, body, loc=op.location)
