"""linalg: everything is brought to the forms of `structured`, except what only rearranges data."""

from __future__ import annotations

from typing import Any

from ktir.diagnostics import KtirError
from ktir.dialects.structured import overwritten
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes, scalar
from ktir.emulator.reference.compile.scalar import compile_body, types_of
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.tensor import broadcast_scalar
from ktir.emulator.reference.ops.maps import IndexMap
from ktir.emulator.reference.ops.structured import Structured
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.values import Strided
from ktir.mlir import ir


@scalar("linalg.index")
def _index(op: OpReader) -> ScalarOp:
    return ScalarOp("index", form="index", dim=ir.IntegerAttr(op.attribute("dim")).value)


def structured_op(
    op: OpReader,
    maps: list[IndexMap],
    reduced: list[bool],
    inputs: int,
    *,
    named: bool = False,
    body: ir.Operation | None = None,
) -> Structured:
    """The op with these maps; loop extents follow from the shapes of the operands. `body`: the op whose region it is."""
    types = types_of(op)
    loops = maps[0].loops if maps else 0
    extents: list[int | None] = [None] * loops
    for map_, type_ in zip(maps, types, strict=True):
        for i, n in enumerate(type_.shape):
            loop = map_.loop_of(i)
            if loop is not None and extents[loop] in (None, -1):
                extents[loop] = n
    if None in extents:
        raise op.unsupported(f"does not determine the extent of loop {extents.index(None)}")
    for i, operand in enumerate(op.op.operands):
        if i >= inputs and not isinstance(operand.type, ir.RankedTensorType):
            raise op.unsupported("has outs that are no tensors")
    if len(op.results) != len(op.operands) - inputs:
        raise op.unsupported("does not return its outs")
    return Structured(
        tuple(op.operands[:inputs]),
        tuple(op.operands[inputs:]),
        tuple(op.results),
        tuple(maps),
        tuple(reduced),
        tuple(n for n in extents if n is not None),
        tuple(op.result_type(i).shape for i in range(len(op.results))),
        tuple(op.result_type(i).element for i in range(len(op.results))),
        tuple(t.element for t in types[:inputs]),
        compile_body(op, inputs, of=body),
        op.where,
        named,
    )


def _input_count(op: OpReader) -> int:
    return op.integers("operandSegmentSizes")[0]


def _given_maps(op: OpReader) -> list[IndexMap] | None:
    attribute = op.attribute("indexing_maps")
    return None if attribute is None else [IndexMap.of(ir.AffineMapAttr(m).value) for m in ir.ArrayAttr(attribute)]


@executes("linalg.generic")
def _generic(op: OpReader) -> Action:
    maps = _given_maps(op)
    assert maps is not None
    if (wrong := overwritten(op.op)) is not None:
        raise KtirError(f"{op.where} {wrong}", op.where.location)
    reduced = ["reduction" in str(i) for i in ir.ArrayAttr(op.attribute("iterator_types"))]
    return structured_op(op, maps, reduced, _input_count(op))


@executes(
    "linalg.add",
    "linalg.sub",
    "linalg.mul",
    "linalg.div",
    "linalg.max",
    "linalg.min",
    "linalg.exp",
    "linalg.log",
    "linalg.sqrt",
    "linalg.rsqrt",
    "linalg.tanh",
    "linalg.erf",
    "linalg.abs",
    "linalg.floor",
    "linalg.negf",
    "linalg.copy",
    "linalg.map",
    "linalg.ceil",
    "linalg.div_unsigned",
    "linalg.powf",
    "linalg.reciprocal",
    "linalg.round",
    "linalg.select",
    "linalg.square",
)
def _named_pointwise(op: OpReader) -> Action:
    rank = len(op.operand_type(len(op.operands) - 1).shape)
    maps = [IndexMap.of_dims(rank, range(rank)) for _ in op.operands]
    return structured_op(op, maps, [False] * rank, len(op.operands) - 1)


@executes("linalg.reduce")
def _reduce(op: OpReader) -> Action:
    dims = op.integers("dimensions")
    inputs = len(op.operands) // 2
    rank = len(op.operand_type(0).shape)
    kept = [d for d in range(rank) if d not in dims]
    maps = [IndexMap.of_dims(rank, range(rank))] * inputs + [IndexMap.of_dims(rank, kept)] * inputs
    return structured_op(op, maps, [d in dims for d in range(rank)], inputs)


@executes("linalg.matmul")
def _matmul(op: OpReader) -> Action:
    maps = _given_maps(op) or [IndexMap.of_dims(3, dims) for dims in ((0, 2), (2, 1), (0, 1))]
    return structured_op(op, maps, [False, False, True], 2, named=True)


@executes("linalg.batch_matmul")
def _batch_matmul(op: OpReader) -> Action:
    maps = _given_maps(op) or [IndexMap.of_dims(4, dims) for dims in ((0, 1, 3), (0, 3, 2), (0, 1, 2))]
    return structured_op(op, maps, [False, False, False, True], 2, named=True)


_CONTRACTIONS: dict[str, tuple[tuple[tuple[int, ...], ...], list[bool]]] = {
    "linalg.dot": (((0,), (0,), ()), [True]),
    "linalg.matvec": (((0, 1), (1,), (0,)), [False, True]),
    "linalg.vecmat": (((1,), (1, 0), (0,)), [False, True]),
    "linalg.batch_matvec": (((0, 1, 2), (0, 2), (0, 1)), [False, False, True]),
    "linalg.batch_vecmat": (((0, 2), (0, 2, 1), (0, 1)), [False, False, True]),
    "linalg.batch_reduce_matmul": (((0, 1, 3), (0, 3, 2), (1, 2)), [True, False, False, True]),
    "linalg.mmt4d": (((0, 2, 3, 5), (1, 2, 4, 5), (0, 1, 3, 4)), [False, False, True, False, False, True]),
}
"""Loops of each dim of the operands, and which loops are reduced."""


@executes(*_CONTRACTIONS)
def _contraction(op: OpReader) -> Action:
    dims, reduced = _CONTRACTIONS[op.where.op]
    maps = [IndexMap.of_dims(len(reduced), d) for d in dims]
    return structured_op(op, _given_maps(op) or maps, reduced, 2, named=True)


@executes("linalg.fill")
def _fill(op: OpReader) -> Action:
    value, _ = op.operands
    (result,), type_, target = op.results, op.result_type(), op.operands[1]

    def action(rec: Recording) -> None:
        shape = rec.get(target).shape if -1 in type_.shape else type_.shape
        rec.set(result, broadcast_scalar(rec, rec.get(value), shape, type_.element))

    return action


@executes("linalg.transpose")
def _transpose(op: OpReader) -> Action:
    order = (0, *(1 + d for d in op.integers("permutation")))
    value, (result,) = op.operands[0], op.results

    def action(rec: Recording) -> None:
        tensor = rec.tensor(value)
        rec.set(result, tensor.moved(tensor.at.axes(order)))

    return action


@executes("linalg.broadcast")
def _broadcast(op: OpReader) -> Action:
    added = op.integers("dimensions")
    (value, target), (result,) = op.operands, op.results

    def action(rec: Recording) -> None:
        tensor = rec.tensor(value)
        shape = rec.get(target).shape
        given: Any = iter(tensor.at.strides[1:])
        strides = [0 if d in added else next(given) for d in range(len(shape))]
        at = Strided((tensor.at.shape[0], *shape), (tensor.at.strides[0], *strides), tensor.at.offset)
        rec.set(result, tensor.moved(at))

    return action
