"""Branches of an author: each is written where some tile takes it, in some trip; what they give is chosen by the condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.analysis.points import Numbers, is_index
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, ir
from ktir.passes.pinning.loops import Writer, both, holds
from ktir.passes.pinning.values.elements import Element, Number, Value, chosen, common_shape


@dataclass(frozen=True)
class _Index:
    """A number of the new kernel, and what it is at each point."""

    value: ir.Value
    numbers: Numbers


_Given = _Index | Value


def write_branches(writer: Writer, op: ir.Operation) -> None:
    """Both branches, or the one that is taken everywhere. Raises Unsupported."""
    if writer.tables.is_data(op.operands[0]):
        _by_data(writer, op)
        return
    taken = np.broadcast_to(writer.points(op.operands[0]) != 0, writer.points.live.shape)
    condition, outer = writer.mapping[op.operands[0]], writer.guard
    given: list[Sequence[_Given]] = []
    for region, here in zip(op.regions, (taken, ~taken), strict=True):
        if not len(region.blocks) or not here[writer.points.live].any():
            continue
        if not here[writer.points.live].all():
            writer.guard = both(outer, _one(condition, negated=here is not taken))
        with writer.points.branch(here):
            writer.block(region.blocks[0])
            if writer.wanted is None:
                given.append([_given(writer, v, op) for v in list(region.blocks[0].operations)[-1].operands])
        writer.guard = outer
    if len(op.results) and writer.wanted is None:
        truth = holds(writer.integers, _one(condition), op) if len(given) > 1 and not all(is_index(r.type) for r in op.results) else None
        for result, *ways in zip(op.results, *given, strict=True):
            _take(writer, result, ways, condition, taken, truth)


def _by_data(writer: Writer, op: ir.Operation) -> None:
    """Both branches, of which nothing may be seen but what they give, where data decides."""
    bit = ir.IntegerType.get_signless(1)
    no, yes = (Number(bit, ir.IntegerAttr.get(bit, n)) for n in (0, 1))
    truth, outer = writer.counted(op.operands[0], op), writer.alive
    given: list[list[Value]] = []
    for region, here in zip(op.regions, (truth, chosen(truth, no, yes)), strict=True):
        if not len(region.blocks):
            continue
        writer.alive = here if outer is None else chosen(outer, here, outer)
        try:
            writer.block(region.blocks[0])
            ends = list(region.blocks[0].operations)[-1].operands if writer.wanted is None else []
            given.append([Value((), writer.counted(v, op)) if is_index(v.type) else writer.value(v, op) for v in ends])
        finally:
            writer.alive = outer
    for result, *ways in zip(op.results, *given, strict=False):
        shape = common_shape(ways, ways[0].shape, op)
        writer.values[result] = Value(shape, chosen(truth, *(v.element for v in ways)))


def _one(condition: ir.Value, *, negated: bool = False) -> ir.Value:
    """1 where a condition holds, else 0; or the other way round."""
    one, zero = index_constant(1), index_constant(0)
    return arith.SelectOp(condition, *((zero, one) if negated else (one, zero))).result


def _given(writer: Writer, value: ir.Value, op: ir.Operation) -> _Given:
    """What a branch gives."""
    return _Index(writer.mapping[value], writer.points(value)) if is_index(value.type) else writer.value(value, op)


def _take(
    writer: Writer, result: ir.Value, ways: Sequence[_Given], condition: ir.Value, taken: NDArray[np.bool_], truth: Element | None
) -> None:
    """Note what a result is: what the only branch gives, or that of two which the condition says."""
    first, *others = ways
    if isinstance(first, _Index):
        second = others[0] if others else first
        assert isinstance(second, _Index)
        writer.mapping[result] = arith.SelectOp(condition, first.value, second.value).result if others else first.value
        writer.points.known[result] = np.where(taken, first.numbers, second.numbers) if others else first.numbers
        return
    found = first
    if others:
        assert truth is not None
        second = others[0]
        assert isinstance(second, Value)
        shape = common_shape([first, second], first.shape, result.owner)
        found = Value(shape, chosen(truth, first.element, second.element))
    writer.values[result] = found
