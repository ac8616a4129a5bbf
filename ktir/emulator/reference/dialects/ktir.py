"""ktir: what the logical level has of its own: memory for tensors, accumulating scatters, scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import elementary, numerics
from ktir.diagnostics import Unsupported
from ktir.dialects.ktir import dimension_of
from ktir.emulator.findings import Where
from ktir.emulator.policy import Disturbance
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.compile.scalar import compile_body
from ktir.emulator.reference.compile.scalar_op import Body, Ref
from ktir.emulator.reference.ops.indirect import scatter
from ktir.emulator.reference.ops.indirect_steps import Scatter
from ktir.emulator.reference.ops.structured_steps import put_off
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.tape.tape import Binder, Call, Step
from ktir.emulator.reference.tape.values import (
    CARRIERS,
    ELEMENT_BYTES,
    PAIRS,
    AccessTile,
    Buffer,
    IndirectTile,
    Storage,
    Tensor,
    View,
    is_float,
)


@executes("ktir.materialize")
def _materialize(op: OpReader) -> Action:
    type_ = op.operand_type(0)
    (value,), (result,), where = op.operands, op.results, op.where
    shape = type_.shape
    strides = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    name = f"memory at {where.location}" if where.location else "materialized memory"

    def action(rec: Recorder) -> None:
        if rec.tiles != 1:
            raise Unsupported(f"{where} is inside a grid, which the executor does not support", where.location)
        size = prod(shape) * ELEMENT_BYTES[type_.element]
        buffer = rec.memory.new(Buffer(name, size, initialized=False))
        view = View(buffer, 0, shape, strides, (False,) * len(shape), type_.element, None, (0,) * len(shape), shape, name)
        rec.memory.store(rec.tensor(value), AccessTile(view, (0,) * len(shape), shape, tuple(range(len(shape)))), where)
        rec.set(result, view)

    return action


class _ScatterAdd(Scatter):
    """Adds the blocks of the value at the addresses, in row-major order of the value."""

    by: Disturbance | None = None
    """By how much the sums are to be off."""
    number: int = 0
    """Of the sums of the execution that are off."""

    def copies(self) -> list[Storage]:
        """None: what it adds are numbers."""
        return []

    def calls(self, binder: Binder) -> Iterable[Call]:
        (index, value), element = self._bound(binder), self.source.element

        def run() -> None:
            total, valid = self.addresses(index)
            self.remember(total, valid)
            steps = np.zeros((1,) * total.ndim, np.int64)
            for v, step, extent in self.block:
                steps = steps + (np.arange(extent) * step).reshape([extent if axis == 1 + v else 1 for axis in range(total.ndim)])
            full = (self.tiles, *self._extents)
            addresses = np.broadcast_to(total + steps, full)
            alive = np.ones(full, np.bool_) if valid is None else np.broadcast_to(valid, full)
            order = (0, *(1 + v for v in self.order))
            addresses, alive = addresses.transpose(order).reshape(-1), alive.transpose(order).reshape(-1)
            addresses, data, memory = addresses[alive], value.reshape(-1)[alive], self.source.memory
            if self.by is None:
                _add(memory, addresses, data, element)
                return
            named, sum_of, terms = np.unique(addresses, return_inverse=True, return_counts=True)
            magnitude = np.abs(memory[named]) + np.bincount(sum_of, np.abs(data), named.size)
            _add(memory, addresses, data, element)
            sums = memory[named]
            put_off(sums, magnitude, terms, element, self.by, self.number)
            memory[named] = sums

        yield run, ()


def _add(memory: NDArray[Any], addresses: NDArray[np.int64], data: NDArray[Any], element: str) -> None:
    if element not in numerics.NARROW:
        if memory.dtype == np.bool_:
            np.logical_or.at(memory, addresses, data)
        else:
            np.add.at(memory, addresses, data)
        return
    # Each addition rounds, so the additions to one element happen one by one: in rounds, the k-th of every element at once.
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]] if ordered.size else np.zeros(0, np.bool_)
    starts = np.flatnonzero(first)
    turn = np.arange(ordered.size) - np.repeat(starts, np.diff(np.r_[starts, ordered.size]))
    for k in range(int(turn.max(initial=-1)) + 1):
        some = order[turn == k]
        memory[addresses[some]] = numerics.round_to(element, memory[addresses[some]] + data[some])


def _scatter_add_step(rec: Recorder, element: str, reads: tuple[Tensor, ...], writes: tuple[Tensor, ...]) -> _ScatterAdd:
    step = _ScatterAdd(reads, writes)
    if is_float(element) and rec.policy.disturbance is not None:
        rec.disturbances += 1
        step.by, step.number = rec.policy.disturbance, rec.disturbances
    return step


@executes("ktir.scatter_add")
def _scatter_add(op: OpReader) -> Action:
    (value, tile), where = op.operands, op.where

    def action(rec: Recorder) -> None:
        target = rec.get(tile)
        if not isinstance(target, IndirectTile):
            raise Unsupported(f"{where} adds to a direct tile, which the executor does not support", where.location)
        scatter(rec, rec.tensor(value), target, where, partial(_scatter_add_step, rec, rec.tensor(value).element))

    return action


# ------------------------------------------------------------------------------------------------------------------ scans and sorts


class _Along(Step):
    """Applies `function` to the arrays of all reads, whose axis of work is the last one; it fills those of all writes."""

    function: Callable[[list[NDArray[Any]], list[NDArray[Any]]], None]
    axis: int

    def calls(self, binder: Binder) -> Iterable[Call]:
        everything = range(len(self.reads[0].at.shape))
        inputs = [np.moveaxis(binder.array(t, everything), self.axis, -1) for t in self.reads]
        outputs = [np.moveaxis(binder.array(t), self.axis, -1) for t in self.writes]
        yield self.function, (inputs, outputs)


def _along(
    op: OpReader, function: Callable[[list[NDArray[Any]], list[NDArray[Any]]], None], *, sums: bool = False, shorter: int = 1
) -> Action:
    """`shorter`: how many times as long as results operands are along the dimension."""
    axis = 1 + dimension_of(op.op)
    operands, results = op.operands, op.results
    elements = [op.result_type(k).element for k in range(len(results))]

    def action(rec: Recorder) -> None:
        values = [rec.tensor(slot) for slot in operands]
        shape = tuple(n // shorter if d == axis else n for d, n in enumerate(values[0].at.shape))
        tiles = max(v.at.present[0] for v in values)
        made: list[Tensor] = [rec.temporary(shape, (tiles, *shape[1:]), e) for e in elements]
        values = [v if tiles > 1 else v.moved(v.at.tiles(0, 1)) for v in values]
        step = _Along(tuple(values), tuple(t.moved(t.at) if tiles > 1 else t.moved(t.at.tiles(0, 1)) for t in made))
        step.function, step.axis = function, axis
        if sums and rec.policy.disturbance is not None and is_float(elements[0]):
            rec.disturbances += 1
            step.function = _put_off(function, elements[0], rec.policy.disturbance, rec.disturbances)
        rec.count(op.where.op, prod(shape[1:]))
        rec.emit(step)
        rec.set_all(results, made)

    return action


def _put_off(function: Callable[..., None], element: str, by: Disturbance, number: int) -> Callable[..., None]:
    """Running sums that are off, as `Policy.disturbance` asks for."""

    def run(inputs: list[NDArray[Any]], outputs: list[NDArray[Any]]) -> None:
        function(inputs, outputs)
        magnitude = np.add.accumulate(np.abs(inputs[0]), axis=-1)
        put_off(outputs[0], magnitude, np.arange(1, magnitude.shape[-1] + 1), element, by, number)

    return run


_ACCUMULATE: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@executes("ktir.scan")
def _scan(op: OpReader) -> Action:
    count = len(op.operands)
    body = compile_body(op, 2 * count, "ktir.yield")
    if body.outer:
        raise op.unsupported("has a combiner that reads values from outside")
    where = op.where
    simple = _simple(body, count)

    def scan(inputs: list[NDArray[Any]], outputs: list[NDArray[Any]]) -> None:
        with numerics.quiet():
            if simple is not None:
                simple.accumulate(inputs[0], axis=-1, out=outputs[0])
                return
            for out, value in zip(outputs, inputs, strict=True):
                out[..., :1] = value[..., :1]
            for i in range(1, inputs[0].shape[-1]):
                combined = combine(body, [*(o[..., i - 1] for o in outputs), *(v[..., i] for v in inputs)], where)
                for out, value in zip(outputs, combined, strict=True):
                    out[..., i] = value

    return _along(op, scan, sums=simple is np.add)


def _simple(body: Body, count: int) -> np.ufunc | None:
    """The NumPy function that the combiner of one value is, if it is one and does not round on its way."""
    if count != 1 or len(body.ops) != 1 or body.yields != (Ref("op", 0),):
        return None
    only = body.ops[0]
    if set(only.operands) != {Ref("argument", 0), Ref("argument", 1)} or only.op.rounds or only.op.element == "i1":
        return None
    return _ACCUMULATE.get(only.op.combines or "")


def combine(body: Body, arguments: list[Any], where: Where) -> list[Any]:
    """The yields of a body on arrays."""
    values: list[Any] = []

    def value(ref: Ref) -> Any:
        return values[ref.index] if ref.kind == "op" else arguments[ref.index]

    for entry in body.ops:
        op, operands = entry.op, [value(r) for r in entry.operands]
        if op.form == "constant":
            values.append(CARRIERS[op.element](op.value))
        elif op.form == "copy":
            values.append(operands[0])
        elif op.form == "select":
            values.append(np.where(operands[0], operands[1], operands[2]))
        elif op.compute is not None:
            result = np.asarray(op.compute(*operands)).astype(CARRIERS[op.element], copy=False)
            values.append(numerics.round_to(op.element, result) if op.rounds else result)
        else:
            raise Unsupported(f"{where} has a combiner with '{entry.where.op}', which the executor does not support", where.location)
    return [value(y) for y in body.yields]


@executes("ktir.pair_bytes")
def _pair_bytes(op: OpReader) -> Action:
    single = PAIRS[op.result_type(0).element]

    def pair(inputs: list[NDArray[Any]], outputs: list[NDArray[Any]]) -> None:
        ((x,), (y,)) = inputs, outputs
        blocks = x.reshape(*x.shape[:-1], -1, 2, numerics.STICK)
        y.real, y.imag = (_narrowest(blocks[..., half, :], single).reshape(y.shape) for half in (0, 1))

    return _along(op, pair, shorter=2)


def _narrowest(x: NDArray[Any], element: str) -> NDArray[Any]:
    """Floats as those of one byte, or their whole part as an i8."""
    return elementary.from_float(x, "i32").astype(np.int8) if element == "i8" else numerics.round_to(element, x)


@executes("ktir.sort")
def _sort(op: OpReader) -> Action:
    descending = op.attribute("descending") is not None
    floats = is_float(op.operand_type(0).element)

    def sort(inputs: list[NDArray[Any]], outputs: list[NDArray[Any]]) -> None:
        key = inputs[0]
        if floats:
            key = key + np.zeros((), key.dtype)  # -0 equals 0
        if descending:  # stable: the order of equal keys turns twice
            order = key.shape[-1] - 1 - np.argsort(key[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        else:
            order = np.argsort(key, axis=-1, kind="stable")
        for out, value in zip(outputs, inputs, strict=True):
            out[...] = np.take_along_axis(value, order, axis=-1)

    return _along(op, sort)
