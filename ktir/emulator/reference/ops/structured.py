"""The three forms of `linalg` ops: pointwise, reduction, contraction. All `linalg` executors end here.

Every operand is read into *loop space*: a view of shape [tiles, *loop extents] whose stride is 0 along loops that do not address it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ktir.arithmetic import numerics
from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.scalar_op import Body, Combiner, Ref
from ktir.emulator.reference.ops.maps import IndexMap, read, scatter
from ktir.emulator.reference.ops.pointwise import evaluate, loop_tensor
from ktir.emulator.reference.ops.structured_steps import Matmul, Reduce, Statistic, apart, disturbed, identity_of, repeat
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.values import PAIRS, Overlay, Strided, Tensor, Value, is_float

__all__ = ["Structured"]

_MOST_POINTS = 1 << 14
"""Reduction points that are unrolled where a body is no known reduction."""


@dataclass(frozen=True)
class Structured:
    """A `linalg` op. Operands are slots; `maps` are those of ins then outs; `shapes` and `elements` those of the results."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: tuple[int, ...]
    maps: tuple[IndexMap, ...]
    reduced: tuple[bool, ...]
    extents: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    elements: tuple[str, ...]
    input_elements: tuple[str, ...]
    body: Body
    where: Where
    named: bool = False
    """A named contraction: its meaning is a matmul whatever its element types."""

    def __call__(self, rec: Recording) -> None:
        if -1 in self.extents:
            self._bound(rec)(rec)
            return
        if any(o.op.form == "row" for o in self.body.ops):
            self._rows(rec)
            return
        if not any(self.reduced):
            self._finish(rec, evaluate(rec, self.body, self._arguments(rec, outputs=True), self.extents, self.body.yields), self.extents)
            return
        combiners = [self.body.combiner(k) for k in range(len(self.outputs))]
        for k, combiner in enumerate(combiners):
            if combiner is None:
                self._in_sequence(rec)
                return
            rec.where = self.where
            folded = rec.policy.numerics == "peer" and not self.named  # the public interpreter folds what is no named matmul pairwise
            if not folded and (roles := self._contraction(k, combiner)) is not None:
                self._contract(rec, k, roles)
            elif self._of_pairs:
                self._in_sequence(rec)
                return
            else:
                self._reduce(rec, k, combiner)

    # Operands

    @property
    def _of_pairs(self) -> bool:
        return any(element in PAIRS for element in self.input_elements)

    def _bound(self, rec: Recording) -> Structured:
        """The op with the extents that its operands have now."""
        extents = list(self.extents)
        shapes = [_shape(rec, slot) for slot in (*self.inputs, *self.outputs)]
        for map_, shape in zip(self.maps, shapes, strict=True):
            for i, n in enumerate(shape):
                loop = map_.loop_of(i)
                if loop is None:
                    continue
                if extents[loop] not in (-1, n):
                    raise KtirError(f"{self.where} has operands of extents {extents[loop]} and {n} for loop {loop}", self.where.location)
                extents[loop] = n
        return replace(self, extents=tuple(extents), shapes=tuple(shapes[len(self.inputs) :]))

    def _arguments(self, rec: Recording, *, outputs: bool) -> list[Any]:
        """Values of the body's arguments in loop space; those of outs only if `outputs`, and where the body reads them."""
        inputs = [read(rec, rec.get(slot), map_, self.extents) for slot, map_ in zip(self.inputs, self.maps, strict=False)]
        accumulators: list[Any] = [None] * len(self.outputs)
        for k, slot in enumerate(self.outputs):
            if outputs and self.body.uses(Ref("argument", len(self.inputs) + k)):
                accumulators[k] = read(rec, rec.get(slot), self.maps[len(self.inputs) + k], self.extents)
        return [*inputs, *accumulators]

    def _finish(self, rec: Recording, values: Sequence[Any], extents: tuple[int, ...]) -> None:
        """Set the results to what the body yields over loops of `extents`."""
        for k, value in enumerate(values):
            rec.set(self.results[k], self._place(rec, k, loop_tensor(rec, value, extents, self.elements[k])))

    def _place(self, rec: Recording, k: int, value: Tensor) -> Value:
        """The result k of `value`, a tensor over the loops; reduced loops have extent 1 there."""
        map_, shape = self.maps[len(self.inputs) + k], self.shapes[k]
        tiles = value.at.shape[0]
        extents = value.at.shape[1:]
        base = rec.get(self.outputs[k])
        loops = [map_.loop_of(i) for i in range(len(shape))]
        constants = [map_.constant(i) for i in range(len(shape))]
        addressed = [j for j in loops if j is not None]
        covered = all(n == 1 or j in addressed for j, n in enumerate(extents))
        simple = all(j is not None or c is not None for j, c in zip(loops, constants, strict=True))
        if not simple or not covered or len(set(addressed)) != len(addressed):
            return scatter(rec, rec.plain(base), value, map_, extents)
        at = Strided(
            (tiles, *(1 if j is None else extents[j] for j in loops)),
            (value.at.strides[0], *(0 if j is None else value.at.strides[1 + j] for j in loops)),
            value.at.offset,
        )
        tensor = value.moved(at)
        box = tuple(
            (c if j is None and c is not None else 0, at.shape[1 + i]) for i, (j, c) in enumerate(zip(loops, constants, strict=True))
        )
        if at.shape[1:] == shape:
            return tensor
        return Overlay(rec.plain(base), tensor, box)

    # Reductions

    def _reduce(self, rec: Recording, k: int, combiner: Combiner) -> None:
        (mapped,) = evaluate(rec, self.body, self._arguments(rec, outputs=False), self.extents, [combiner.mapped])
        element = self.elements[k]
        value = loop_tensor(rec, mapped, self.extents, element)
        kept = (0, *(1 + j for j, r in enumerate(self.reduced) if not r))
        over = [j for j, r in enumerate(self.reduced) if r]
        accumulator = self._accumulator(rec, k, combiner.kind)
        extents = tuple(1 if r else n for r, n in zip(self.reduced, self.extents, strict=True))
        present = list(zip(value.at.present, accumulator.at.present, strict=True))
        full = tuple(max(present[axis]) if axis in kept else 1 for axis in range(1 + len(extents)))
        result = rec.temporary((rec.tiles, *extents), full, element)
        step = Reduce((value, accumulator), (result,))
        step.kind, step.over, step.element = combiner.kind, tuple(1 + j for j in over), element
        step.order = (*kept, *step.over)
        step.physical = len(over) == 2 and self.extents[over[1]] == numerics.STICK
        step.numerics = rec.policy.numerics
        rec.emit(disturbed(rec, step))
        rec.count(combiner.name, prod(self.extents))
        rec.set(self.results[k], self._place(rec, k, result))

    def _rows(self, rec: Recording) -> None:
        """A body with statistics of rows: those first, then the rest of the body, once per row where loops are reduced."""
        over = [j for j, r in enumerate(self.reduced) if r] or [len(self.extents) - 1]
        row = tuple(1 if j in over else n for j, n in enumerate(self.extents))
        count = prod(self.extents[j] for j in over)
        arguments = self._arguments(rec, outputs=True)
        given: dict[int, Any] = {}
        for i, entry in enumerate(self.body.ops):
            if entry.op.form != "row":
                continue
            (x,) = evaluate(rec, self.body, arguments, self.extents, entry.operands, given=given)
            value = loop_tensor(rec, x, self.extents, "f32")
            kept = value.at.shape[0] if value.at.present[0] != 1 else 1
            result = rec.temporary((rec.tiles, *row), (kept, *row), entry.op.element)
            step = Statistic((value,), (result,))
            step.kind, step.over, step.count, step.element = entry.op.value, tuple(1 + j for j in over), count, entry.op.element
            rec.emit(step)
            spread = tuple(0 if 1 + j in step.over else s for j, s in enumerate(result.at.strides[1:]))
            at = Strided((rec.tiles, *self.extents), (result.at.strides[0], *spread), result.at.offset)
            given[i] = result.moved(at)
        extents = row if any(self.reduced) else self.extents
        first = tuple((0, n) for n in extents)
        narrowed = [v.moved(v.at.box(first)) if isinstance(v, Tensor) else v for v in arguments]
        picked = {i: v.moved(v.at.box(first)) for i, v in given.items()}
        self._finish(rec, evaluate(rec, self.body, narrowed, extents, self.body.yields, given=picked), extents)

    def _accumulator(self, rec: Recording, k: int, kind: str | None) -> Tensor:
        """Operand outs k in loop space, with extent 1 along the reduced loops; without content it is the identity of `kind`."""
        extents = tuple(1 if r else n for r, n in zip(self.reduced, self.extents, strict=True))
        given = rec.get(self.outputs[k])
        if isinstance(given, Tensor) and given.empty and kind is not None:
            return rec.constant(np.asarray(identity_of(kind, self.elements[k])), extents, self.elements[k])
        value = read(rec, given, self.maps[len(self.inputs) + k], extents)
        return loop_tensor(rec, value, extents, self.elements[k])

    def _in_sequence(self, rec: Recording) -> None:
        """Any other body: evaluated once per point of the reduced loops, in row-major order."""
        over = [j for j, r in enumerate(self.reduced) if r]
        points = prod(self.extents[j] for j in over)
        if points > _MOST_POINTS:
            raise Unsupported(f"{self.where} is no reduction that the executor knows and has {points} points", self.where.location)
        extents = tuple(1 if r else n for r, n in zip(self.reduced, self.extents, strict=True))
        inputs = [read(rec, rec.get(slot), map_, self.extents) for slot, map_ in zip(self.inputs, self.maps, strict=False)]
        accumulators: list[Any] = [self._accumulator(rec, k, None) for k in range(len(self.outputs))]
        for point in product(*(range(self.extents[j]) for j in over)):
            origin = [0] * len(extents)
            for j, at in zip(over, point, strict=True):
                origin[j] = at
            box = tuple(zip(origin, extents, strict=True))
            here = [v.moved(v.at.box(box)) if isinstance(v, Tensor) else v for v in inputs]
            accumulators = evaluate(rec, self.body, [*here, *accumulators], extents, self.body.yields, tuple(origin))
        self._finish(rec, accumulators, extents)

    # Contractions

    def _contraction(self, k: int, combiner: Combiner) -> _Roles | None:
        """Which loop plays which part, if outs k is a sum of products of two inputs."""
        factors = self.body.factors(combiner)
        if factors is None or combiner.kind != "add" or not all(m.is_linear for m in self.maps):
            return None
        of = {self.input_elements[f] for f in factors}
        narrow = self.elements[k] == "f32" and bool(of & numerics.NARROW) and of <= {*numerics.NARROW, "i8"}
        if not self.named and not narrow and not of <= PAIRS.keys():
            return None
        first, second = sorted(factors)
        left, right = (self.maps[f].loops_used() for f in (first, second))
        out = self.maps[len(self.inputs) + k].loops_used()
        loops = range(len(self.extents))
        batch = tuple(j for j in loops if j in left and j in right and j in out)
        rows = tuple(j for j in loops if j not in right and j in out)
        columns = tuple(j for j in loops if j in right and j not in left and j in out)
        inner = tuple(j for j in loops if self.reduced[j])
        if any(j not in left or j not in right or j in out for j in inner) or len((*batch, *rows, *columns, *inner)) != len(loops):
            return None
        if not columns and (batch or len(inner) > 1) and not self.named:
            return None  # no loop walks the second factor alone: a reduction of products
        return _Roles((first, second), (factors[first], factors[second]), batch, rows, columns, inner)

    def _contract(self, rec: Recording, k: int, roles: _Roles) -> None:
        left, right = (self._factor(rec, f, ref) for f, ref in zip(roles.factors, roles.values, strict=True))
        accumulator = self._accumulator(rec, k, "add")
        a = _grouped(rec, left, (roles.batch, roles.rows, roles.inner))
        b = _grouped(rec, right, (roles.batch, roles.inner, roles.columns))
        acc = _grouped(rec, accumulator, (roles.batch, roles.rows, roles.columns))
        block = numerics.STICK
        if self._of_pairs:
            a, b, block = apart(rec, a, -1), apart(rec, b, -2), 2 * block
        tiles = max(t.at.present[0] for t in (a, b, acc))
        shape = (rec.tiles, acc.at.shape[1], acc.at.shape[2], acc.at.shape[3])
        result = rec.temporary(shape, (tiles, *shape[1:]), self.elements[k])
        step = Matmul((a, b, acc), (result,), reuse=2)
        step.numerics, step.element, step.block = rec.policy.numerics, self.elements[k], block
        rec.emit(disturbed(rec, step))
        for name in ("arith.mulf", "arith.addf") if is_float(self.elements[k]) else ("arith.muli", "arith.addi"):
            rec.count(name, prod(self.extents))
        rec.set(self.results[k], self._place(rec, k, result.moved(_ungrouped(result.at, roles, self.extents))))

    def _factor(self, rec: Recording, number: int, ref: Ref) -> Tensor:
        """An input as it is multiplied: one of floats as it is, since widening changes nothing, one of integers as floats; or what the
        body makes of it and of others."""
        element, value = self.input_elements[number], read(rec, rec.get(self.inputs[number]), self.maps[number], self.extents)
        if self.body.is_made(ref):
            (value,) = evaluate(rec, self.body, self._arguments(rec, outputs=False), self.extents, [ref])
            element = self.body.ops[ref.index].op.element
        elif element == "i8" and ref.kind == "op":
            arguments = [value if i == number else None for i in range(len(self.inputs))]
            (value,) = evaluate(rec, self.body, arguments, self.extents, [ref])
            element = self.body.ops[ref.index].op.element
        return loop_tensor(rec, value, self.extents, element)


def _shape(rec: Recording, slot: int) -> tuple[int, ...]:
    value = rec.get(slot)
    return value.shape if isinstance(value, Tensor | Overlay) else ()


@dataclass(frozen=True)
class _Roles:
    """Loops of a contraction: in both factors and the result, in the left one or none, in the right one, in both but not the result."""

    factors: tuple[int, int]
    values: tuple[Ref, Ref]
    """What is multiplied, of each."""
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    inner: tuple[int, ...]


def _grouped(rec: Recording, tensor: Tensor, groups: Sequence[tuple[int, ...]]) -> Tensor:
    """`tensor` with one axis per group of loops, after the tile axis; copied where memory does not allow it."""
    order = (0, *(1 + j for group in groups for j in group))
    picked = tensor.moved(tensor.at.axes(order))
    at = _collapsed(picked.at, groups)
    if at is None:
        picked = repeat(rec, picked)
        at = _collapsed(picked.at, groups)
        assert at is not None
    return picked.moved(at)


def _collapsed(at: Strided, groups: Sequence[tuple[int, ...]]) -> Strided | None:
    axis = 1
    for group in groups:
        if not group:
            at = Strided((*at.shape[:axis], 1, *at.shape[axis:]), (*at.strides[:axis], 0, *at.strides[axis:]), at.offset)
        elif len(group) > 1:
            merged = at.collapse(axis, axis + len(group) - 1)
            if merged is None:
                return None
            at = merged
        axis += 1
    return at


def _ungrouped(at: Strided, roles: _Roles, extents: tuple[int, ...]) -> Strided:
    """The result of a matmul over the loops: groups cut into their loops, inner loops with extent 1."""
    strides: dict[int, int] = {}
    for axis, group in enumerate((roles.batch, roles.rows, roles.columns), 1):
        step = at.strides[axis]
        for j in reversed(group):
            strides[j] = step
            step *= extents[j]
    shape = tuple(1 if j in roles.inner else n for j, n in enumerate(extents))
    return Strided((at.shape[0], *shape), (at.strides[0], *(strides.get(j, 0) for j in range(len(extents)))), at.offset)
