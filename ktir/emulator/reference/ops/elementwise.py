"""Elementwise ops outside of bodies: on tensors, on scalars from data, on known numbers, and on addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ktir.diagnostics import Unsupported
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes, meaning, scalar
from ktir.emulator.reference.compile.scalar import types_of
from ktir.emulator.reference.compile.scalar_op import ScalarOp, single
from ktir.emulator.reference.ops.pointwise import evaluate, loop_tensor, report_faults
from ktir.emulator.reference.record.recording import NeedsTiles, Recording
from ktir.emulator.reference.tape.values import Overlay, Pointer, Tensor, View, simplify

__all__ = ["elementwise", "elementwise_results"]


def elementwise(*names: str) -> Any:
    """Registers a scalar meaning and the executor that follows from it. The decorated function reads one op."""

    def register(reader: Callable[[OpReader], ScalarOp]) -> Callable[[OpReader], ScalarOp]:
        scalar(*names)(reader)
        executes(*names)(lambda op: _action(op, _one(meaning(op, reader))))
        return reader

    return register


def _one(meaning: ScalarOp | tuple[ScalarOp, ...]) -> ScalarOp:
    return meaning[0] if isinstance(meaning, tuple) else meaning


def elementwise_results(*names: str) -> Any:
    """As `elementwise` for ops of several results: the decorated function gives a meaning for each."""

    def register(reader: Callable[[OpReader], tuple[ScalarOp, ...]]) -> Callable[[OpReader], tuple[ScalarOp, ...]]:
        def meanings(op: OpReader) -> tuple[ScalarOp, ...]:
            found = meaning(op, reader)
            assert isinstance(found, tuple)
            first, *others = found
            return (first, *(replace(o, counts=False) for o in others))

        def executor(op: OpReader) -> Action:
            actions = [_action(op, part, k) for k, part in enumerate(meanings(op))]

            def action(rec: Recording) -> None:
                for one in actions:
                    one(rec)

            return action

        scalar(*names)(meanings)
        executes(*names)(executor)
        return reader

    return register


def _action(reader: OpReader, op: ScalarOp, number: int = 0) -> Action:
    types = types_of(reader)
    given = reader.result_type(number).shape
    body = single(op, [t.element for t in types], reader.where)
    operands, result, where = reader.operands, reader.results[number], reader.where
    name = where.op.split(".")[-1]

    def on_tensors(rec: Recording, values: list[Any]) -> None:
        shape = given
        if -1 in shape:
            shape = next(v.shape for v in values if isinstance(v, Tensor | Overlay) and v.shape)
        arguments: list[Any] = []
        for value, type_ in zip(values, types, strict=True):
            if isinstance(value, np.ndarray):
                value = value.reshape((rec.tiles,) + (1,) * len(shape))
            elif isinstance(value, Tensor | Overlay):
                value = rec.plain(value)
                if len(type_.shape) != len(shape):  # a scalar beside tensors
                    value = value.moved(value.at.spread(shape))
            arguments.append(value)
        (out,) = evaluate(rec, body, arguments, shape, body.yields)
        if shape or isinstance(out, Tensor):
            out = loop_tensor(rec, out, shape, op.element)
        rec.set(result, simplify(out) if isinstance(out, np.ndarray) else out)

    def action(rec: Recording) -> None:
        values = [rec.get(slot) for slot in operands]
        if any(isinstance(v, Tensor | Overlay) for v in values):
            on_tensors(rec, values)
        elif any(isinstance(v, Pointer | View) for v in values):
            rec.set(result, _address(rec, name, values))
        elif op.number is not None:
            if op.faults is not None:
                report_faults(op.faults, [np.asarray(v).reshape(-1) for v in values], where, rec.active)
            rec.set(result, simplify(op.number(*values)))
        else:
            on_tensors(rec, values)

    return action


def _address(rec: Recording, name: str, values: list[Any]) -> Any:
    """Arithmetic on base addresses: adding and subtracting elements, choosing one of two."""
    a, b = values[0], values[-1]
    if name == "select" and isinstance(values[0], bool | int):
        return values[1] if values[0] else values[2]
    if name == "select" and isinstance(values[0], np.ndarray):
        raise NeedsTiles("chooses addresses that differ between tiles", rec)
    if name in ("index_cast", "index_castui"):
        return a
    if name == "addi" and isinstance(a, Pointer) != isinstance(b, Pointer):
        pointer, number = (a, b) if isinstance(a, Pointer) else (b, a)
        return Pointer(pointer.buffer, simplify(np.add(pointer.offset, number)))
    if name == "subi" and isinstance(a, Pointer):
        if not isinstance(b, Pointer):
            return Pointer(a.buffer, simplify(np.subtract(a.offset, b)))
        if a.buffer is b.buffer:
            return simplify(np.subtract(a.offset, b.offset))
    raise Unsupported(f"{rec.where} computes with an address, which the executor does not support", rec.where.location)
