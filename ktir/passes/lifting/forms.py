"""Ops on tensors as loops and a body: generics, named ops of `linalg`, and ops of scalars on tensors alike."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.diagnostics import refused
from ktir.dialects.structured import COMBINERS, SUM_OF_PRODUCTS, maps_of, overwritten
from ktir.dialects.vector_kinds import is_scalar_op
from ktir.mlir import arith, ir, is_a, linalg, named
from ktir.target import is_half

_LOOPS = named({linalg.MatmulOp: ((0, 2), (2, 1), (0, 1)), linalg.BatchMatmulOp: ((0, 1, 3), (0, 3, 2), (0, 1, 2))})


@dataclass(frozen=True)
class Form:
    """The loops of an op, and what it computes in them. The last operand is `outs`."""

    op: ir.Operation
    operands: tuple[ir.Value, ...]
    walks: tuple[tuple[int | None, ...], ...]
    """Per operand the loop along each of its dims; None: the first position."""
    reduced: frozenset[int]
    extents: tuple[int, ...]
    """Of each loop in a tile."""
    arguments: tuple[ir.Value, ...]
    """What stands in the body for an element of each operand."""
    yielded: ir.Value

    def has(self, op: ir.Operation) -> bool:
        """Whether an op is one of its body."""
        return op == self.op or (op.parent is not None and op.parent.operation == self.op)

    def operand_of(self, value: ir.Value) -> int | None:
        """The operand that a scalar of the body is an element of."""
        count = len(self.arguments) - isinstance(self.accumulator, ir.OpResult)  # what an op of scalars makes is computed
        return next((i for i in range(count) if self.arguments[i] == value), None)

    @property
    def accumulator(self) -> ir.Value:
        return self.arguments[-1]

    def combination(self, total: ir.Value) -> tuple[ir.Operation, ir.Value]:
        """The op that combines a running value with another, and that other one. Raises Unsupported."""
        owner = self.yielded.owner
        if isinstance(owner, ir.Block) or owner.name not in COMBINERS or total not in owner.operands:
            raise refused(self.op, f"goes on from trip to trip, but does not end with one of {', '.join(COMBINERS)} of it")
        others = [v for v in owner.operands if v != total]
        if len(others) != 1 or self.reads(others[0], total):
            raise refused(self.op, "reads what goes on from trip to trip in more than one place")
        return owner.operation, others[0]

    def reads(self, value: ir.Value, wanted: ir.Value) -> bool:
        """Whether a scalar of the body is computed from another one."""
        if value == wanted:
            return True
        if value in self.arguments[:-1] or isinstance(value.owner, ir.Block):
            return False
        return any(self.reads(v, wanted) for v in value.owner.operands)

    @property
    def is_contraction(self) -> bool:
        """Whether its sums are those of the matrix array: exact in blocks of 64, which are added in order."""
        body = [o.operation.name for o in self.yielded.owner.operation.block.operations][:-1] if self.reduced else []
        return body == SUM_OF_PRODUCTS and is_half(self.arguments[0].type)


def form_of(op: ir.Operation) -> Form | None:
    """The form of an op with one result; None for an op that has none."""
    if len(op.results) != 1:
        return None
    if is_scalar_op(op) and not is_a(op, arith.ConstantOp):
        rank = len(shape_of(op.results[0]))
        walk = tuple(range(rank))
        operands = (*op.operands, op.results[0])  # what it makes stands for itself
        walks = tuple(walk if isinstance(v.type, ir.RankedTensorType) else () for v in operands)
        return Form(op, operands, walks, frozenset(), tuple(shape_of(op.results[0])), tuple(operands), op.results[0])
    if not op.name.startswith("linalg.") or not len(op.regions) or not len(op.regions[0].blocks):
        return None
    rank = len(shape_of(op.results[0]))
    reduced: frozenset[int] = frozenset()
    if is_a(op, linalg.GenericOp):
        if (wrong := overwritten(op)) is not None:
            raise refused(op, wrong)
        kinds = ir.ArrayAttr(op.attributes["iterator_types"])
        reduced = frozenset(i for i, kind in enumerate(kinds) if "reduction" in str(kind))
        walks = [_walk(m, op) for m in maps_of(op)]
    elif op.name in _LOOPS:
        reduced = frozenset({rank})
        walks = [_walk(m, op) for m in maps_of(op)] if "indexing_maps" in op.attributes else [tuple(w) for w in _LOOPS[op.name]]
    elif is_a(op, linalg.TransposeOp):
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        walks = [tuple(order.index(d) for d in range(rank)), tuple(range(rank))]
    elif is_a(op, linalg.BroadcastOp):
        added = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        walks = [tuple(d for d in range(rank) if d not in added), tuple(range(rank))]
    elif is_a(op, linalg.ReduceOp):
        reduced = frozenset(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        loops = range(len(shape_of(op.operands[0])))
        walks = [tuple(loops), tuple(d for d in loops if d not in reduced)]
    else:
        return None
    extents: dict[int, int] = {}
    for operand, walk in zip(op.operands, walks, strict=True):
        extents.update({loop: n for loop, n in zip(walk, shape_of(operand), strict=True) if loop is not None})
    block = op.regions[0].blocks[0]
    (yielded,) = list(block.operations)[-1].operands
    return Form(
        op,
        tuple(op.operands),
        tuple(walks),
        reduced,
        tuple(extents[loop] for loop in range(len(extents))),
        tuple(block.arguments),
        yielded,
    )


def shape_of(value: ir.Value) -> list[int]:
    """The shape of a tensor; none of a scalar."""
    return list(ir.RankedTensorType(value.type).shape) if isinstance(value.type, ir.RankedTensorType) else []


def _walk(m: ir.AffineMap, op: ir.Operation) -> tuple[int | None, ...]:
    found: list[int | None] = []
    for result in m.results:
        if isinstance(result, ir.AffineDimExpr):
            found.append(ir.AffineDimExpr(result).position)
        elif isinstance(result, ir.AffineConstantExpr) and result.value == 0:
            found.append(None)
        else:
            raise refused(op, f"has the map {m}, which is more than a choice of loops")
    return tuple(found)


def element_type(value: ir.Value) -> ir.Type:
    """The type of an element, or of a scalar."""
    return ir.RankedTensorType(value.type).element_type if isinstance(value.type, ir.RankedTensorType) else value.type


def splat(op: ir.Operation) -> ir.Attribute:
    """The number that a constant is everywhere. Raises Unsupported."""
    held = op.attributes["value"]
    if not isinstance(held, ir.DenseElementsAttr):
        return held
    if not held.is_splat:
        raise refused(op, "holds different elements; the nearest supported form loads them")
    return held.get_splat_value()
