"""Elementwise ops outside of bodies: on tensors, on scalars from data, on known numbers, and on addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.diagnostics import Unsupported
from ktir.emulator.findings import DivisionByZero
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.pointwise import evaluate, loop_tensor
from ktir.emulator.reference.recorder import Recorder
from ktir.emulator.reference.registry import Action, ScalarReader, executes, scalar
from ktir.emulator.reference.scalar import ScalarOp, single, types_of
from ktir.emulator.reference.values import Overlay, Pointer, Tensor, View, simplify

__all__ = ["elementwise"]

_DIVISIONS = ("divui", "divsi", "remui", "remsi", "floordivsi", "ceildivsi", "ceildivui")


def elementwise(*names: str) -> Any:
    """Registers a scalar meaning and the executor that follows from it. The decorated function reads one op."""

    def register(reader: ScalarReader) -> ScalarReader:
        scalar(*names)(reader)
        executes(*names)(lambda op: _action(op, reader(op)))
        return reader

    return register


def _action(reader: OpReader, op: ScalarOp) -> Action:
    types = types_of(reader)
    given = reader.result_type().shape
    body = single(op, [t.element for t in types], reader.where)
    operands, (result,), where = reader.operands, reader.results, reader.where
    name = where.op.split(".")[-1]

    def on_tensors(rec: Recorder, values: list[Any]) -> None:
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
                    at = value.at
                    value = value.moved(type(at)((at.shape[0], *shape), (at.strides[0], *(0,) * len(shape)), at.offset))
            arguments.append(value)
        (out,) = evaluate(rec, body, arguments, shape, body.yields)
        if shape or isinstance(out, Tensor):
            out = loop_tensor(rec, out, shape, op.element)
        rec.set(result, simplify(out) if isinstance(out, np.ndarray) else out)

    def action(rec: Recorder) -> None:
        values = [rec.get(slot) for slot in operands]
        if any(isinstance(v, Tensor | Overlay) for v in values):
            on_tensors(rec, values)
        elif any(isinstance(v, Pointer | View) for v in values):
            rec.set(result, _address(rec, name, values))
        elif op.number is not None:
            if name in _DIVISIONS:
                zero = np.equal(values[1], 0)
                if rec.active is not None:
                    zero = zero & rec.active
                if np.any(zero):
                    raise DivisionByZero("divides by zero", where, tiles=np.flatnonzero(np.broadcast_to(zero, (rec.tiles,))).tolist())
            rec.set(result, simplify(op.number(*values)))
        else:
            on_tensors(rec, values)

    return action


def _address(rec: Recorder, name: str, values: list[Any]) -> Any:
    """Arithmetic on base addresses: adding and subtracting elements, choosing one of two."""
    a, b = values[0], values[-1]
    if name == "select" and isinstance(values[0], bool | int):
        return values[1] if values[0] else values[2]
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
