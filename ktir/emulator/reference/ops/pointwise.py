"""Elementwise work: a body evaluated on whole arrays, in chunks whose intermediate results stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.scalar_op import Body, Ref
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.tape import Binder, Call, Place, Step, clipped_of
from ktir.emulator.reference.tape.values import CARRIERS, Known, Tensor, is_float

__all__ = ["LoopValue", "evaluate", "loop_tensor", "report_faults"]

LoopValue = Known | Tensor
"""A scalar of a body at every point of the loops: a tensor of shape [tiles, *extents], or known (an array has that rank too)."""

_CHUNK = 1 << 15
"""Elements evaluated at a time: a register then takes 128 KiB, so a few of them fit the second-level cache."""


@dataclass(frozen=True)
class _Source:
    """An operand of a micro-op: step input, register, or scalar."""

    kind: str
    index: int = 0
    value: Any = None


@dataclass
class _Micro:
    """One call per chunk. `choose`: the first source, but the second one where `where` (loop space) holds."""

    compute: Callable[..., Any]
    sources: tuple[_Source, ...]
    present: tuple[int, ...]
    element: str
    rounds: bool
    form: str = "function"
    where: NDArray[np.bool_] | None = None
    check: Callable[..., None] | None = None
    """Called before `compute` on the operands and the chunk."""

    def details(self) -> object:
        sources = tuple((s.kind, s.index, None if s.value is None else (type(s.value), s.value.tobytes())) for s in self.sources)
        where = None if self.where is None else (self.where.shape, self.where.tobytes())
        return self.compute, sources, self.present, self.element, self.rounds, self.form, where


class _Pointwise(Step):
    """Runs micro-ops chunk by chunk. Register i holds the result of micro-op i; `outputs[k]` is the register of write k."""

    micros: list[_Micro]
    outputs: list[int]

    def calls(self, binder: Binder) -> Iterable[Call]:
        shape = tuple(max(axis) for axis in zip(*(w.at.present for w in self.writes), strict=True))
        if 0 in shape:
            return
        inputs = [binder.array(t) for t in self.reads]
        results = {register: binder.array(w) for register, w in zip(self.outputs, self.writes, strict=True)}
        homes = self._registers()
        rounding = binder.scratch("rounding", 2 * _CHUNK, np.float32).reshape(2, _CHUNK)
        for chunk in _chunks(shape):
            arrays: list[NDArray[Any]] = []
            for i, micro in enumerate(self.micros):
                extents = tuple(1 if p == 1 else c.stop - c.start for p, c in zip(micro.present, chunk, strict=True))
                if i in results:
                    out = _part(results[i], chunk)
                else:
                    memory = binder.scratch(("register", homes[i]), _CHUNK, CARRIERS[micro.element])
                    out = memory[: prod(extents)].reshape(extents)
                arrays.append(out)
                operands = [
                    s.value if s.kind == "scalar" else arrays[s.index] if s.kind == "register" else _part(inputs[s.index], chunk)
                    for s in micro.sources
                ]
                if micro.check is not None:
                    yield micro.check, (operands, chunk)
                if micro.form == "choose":
                    yield from _choose(micro, operands, out, chunk)
                elif micro.form == "round" and micro.element in numerics.ROUND_CHUNK:
                    yield (
                        numerics.ROUND_CHUNK[micro.element],
                        numerics.rounding_views(operands[0].reshape(-1), out.reshape(-1), rounding),
                    )
                else:
                    yield micro.compute, (*operands, out)
                    if micro.rounds and micro.element in numerics.ROUND_CHUNK:
                        flat = out.reshape(-1)
                        yield numerics.ROUND_CHUNK[micro.element], numerics.rounding_views(flat, flat, rounding)
                    elif micro.rounds:
                        yield numerics.round_to, (micro.element, out, out)

    def clip(self) -> None:
        """An element computed from a clipped one is clipped."""
        sources: list[set[int]] = []
        for micro in self.micros:
            mine = {s.index for s in micro.sources if s.kind == "input"}
            sources.append(mine.union(*(sources[s.index] for s in micro.sources if s.kind == "register")))
        for register, result in zip(self.outputs, self.writes, strict=True):
            held = [c for i in sources[register] if (c := clipped_of(self.reads[i])) is not None]
            if not held or is_float(result.element):
                continue
            result.storage.clipped = np.zeros(result.storage.size, np.bool_)
            target = clipped_of(result)
            if target is not None:
                for mask in held:
                    np.logical_or(target, mask, out=target)

    def places(self) -> list[Place] | None:
        return None if any(micro.check is not None for micro in self.micros) else self._plain_places()

    def details(self) -> object:
        return tuple(self.outputs), tuple(micro.details() for micro in self.micros)

    def stacked(self, tensors: Sequence[Tensor], count: int) -> Step:
        result = self._moved(tensors)
        result.micros = [replace(m, present=(count, *m.present), where=None if m.where is None else m.where[None]) for m in self.micros]
        return result

    def _registers(self) -> list[int]:
        """Scratch memory of each micro-op's result: reused after the last use, also by the op that uses it last."""
        last = {i: i for i in range(len(self.micros))}
        for i, micro in enumerate(self.micros):
            for source in micro.sources:
                if source.kind == "register":
                    last[source.index] = i
        homes: list[int] = []
        free: list[int] = []
        count = 0
        for i, micro in enumerate(self.micros):
            used = [s.index for s in micro.sources if s.kind == "register" and s.index not in self.outputs]
            ending = [r for r in dict.fromkeys(used) if last[r] == i]
            # In place needs equal shape and type; `choose` and `where` fill their result before they have read every source.
            fitting = [
                r
                for r in ending
                if micro.form != "where"
                and self.micros[r].present == micro.present
                and CARRIERS[self.micros[r].element] is CARRIERS[micro.element]
                and (micro.form != "choose" or (micro.sources[0].kind == "register" and micro.sources[0].index == r))
            ]
            if micro.form == "choose" and len(micro.sources) > 1 and micro.sources[0] == micro.sources[1]:
                fitting = []
            if i in self.outputs:
                homes.append(-1)
                fitting = []
            elif fitting:
                homes.append(homes[fitting[0]])
            else:
                homes.append(free.pop() if free else count)
                count = max(count, homes[-1] + 1)
            free.extend(homes[r] for r in ending if r not in fitting[:1])
        return homes


def _part(array: NDArray[Any], chunk: tuple[slice, ...]) -> NDArray[Any]:
    return array[tuple(slice(0, 1) if n == 1 else c for n, c in zip(array.shape, chunk, strict=True))]


def _chunks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Boxes of at most _CHUNK elements that are contiguous in a row-major array of `shape`."""
    axis, inner = len(shape) - 1, 1
    while axis > 0 and inner * shape[axis] <= _CHUNK:
        inner *= shape[axis]
        axis -= 1
    step = max(1, _CHUNK // inner)
    rest = tuple(slice(0, n) for n in shape[axis + 1 :])
    for lead in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], step):
            split = slice(start, min(start + step, shape[axis]))
            yield (*(slice(i, i + 1) for i in lead), split, *rest)


def _choose(micro: _Micro, operands: list[Any], out: NDArray[Any], chunk: tuple[slice, ...]) -> Iterator[Call]:
    """out = operands[0], then operands[1] in the part of the chunk where it is chosen."""
    assert micro.where is not None
    if operands[0] is not out:
        yield np.copyto, (out, operands[0])
    local = _part(micro.where, chunk)
    hit = np.nonzero(local)
    if not hit[0].size:
        return
    box = tuple(
        slice(0, n) if m == 1 else slice(int(h.min()), int(h.max()) + 1) for n, m, h in zip(out.shape, local.shape, hit, strict=True)
    )
    chosen = operands[1]
    if isinstance(chosen, np.ndarray) and chosen.ndim:
        chosen = chosen[tuple(slice(0, 1) if n == 1 else b for n, b in zip(chosen.shape, box, strict=True))]
    region = local[tuple(slice(0, 1) if n == 1 else b for n, b in zip(local.shape, box, strict=True))]
    if region.all():
        yield np.copyto, (out[box], chosen)
    else:
        yield np.copyto, (out[box], chosen, "same_kind", region)


def _where(condition: Any, a: Any, b: Any, out: NDArray[Any] | None = None) -> Any:
    if out is None:
        return np.where(condition, a, b)
    np.copyto(out, b)
    np.copyto(out, a, where=condition)
    return out


class _Evaluation:
    """One run of `evaluate`: turns body ops into micro-ops and known values."""

    def __init__(self, rec: Recording, extents: tuple[int, ...], origin: tuple[int, ...]) -> None:
        self.rec = rec
        self.origin = origin
        self.rank = 1 + len(extents)
        self.extents = extents
        self.inputs: list[Tensor] = []
        self.micros: list[_Micro] = []

    def loop_index(self, dim: int) -> Known:
        shape = [1] * self.rank
        shape[1 + dim] = self.extents[dim]
        first = self.origin[dim] if self.origin else 0
        return first + np.arange(self.extents[dim]).reshape(shape) if self.extents[dim] != 1 else first

    def source(self, value: Any, element: str) -> _Source:
        """`value` as an operand: a register stays one, tensors and known arrays become inputs."""
        if isinstance(value, _Source):
            return value
        if isinstance(value, np.ndarray) and value.ndim:
            value = loop_tensor(self.rec, value, self.extents, element)
        if isinstance(value, Tensor):
            for i, other in enumerate(self.inputs):
                if other.storage is value.storage and other.at == value.at and other.born == value.born:
                    return _Source("input", i)
            self.inputs.append(value)
            return _Source("input", len(self.inputs) - 1)
        return _Source("scalar", value=CARRIERS[element](value))

    def present(self, source: _Source) -> tuple[int, ...]:
        if source.kind == "input":
            return self.inputs[source.index].at.present
        return self.micros[source.index].present if source.kind == "register" else (1,) * self.rank

    def micro(
        self,
        compute: Callable[..., Any],
        values: Sequence[Any],
        kinds: Sequence[str],
        element: str,
        *,
        rounds: bool = False,
        form: str = "function",
        where: NDArray[np.bool_] | None = None,
        check: Callable[..., None] | None = None,
    ) -> _Source:
        """Append a micro-op on `values` of element types `kinds`; returns its register."""
        sources = tuple(self.source(v, k) for v, k in zip(values, kinds, strict=True))
        shapes = [self.present(s) for s in sources]
        if where is not None:
            shapes.append(where.shape)
        present = tuple(max(axis) for axis in zip(*shapes, strict=True))
        self.micros.append(_Micro(compute, sources, present, element, rounds, form, where, check))
        return _Source("register", len(self.micros) - 1)


def _needed(body: Body, wanted: Sequence[Ref], given: Collection[int]) -> list[int]:
    """Numbers of the ops that `wanted` follows from, beyond those whose results are given, in order."""
    needed: set[int] = set()
    stack = [r.index for r in wanted if r.kind == "op"]
    while stack:
        i = stack.pop()
        if i not in needed and i not in given:
            needed.add(i)
            stack.extend(r.index for r in body.ops[i].operands if r.kind == "op")
    return sorted(needed)


def _element_of(rec: Recording, body: Body, ref: Ref) -> str:
    """The element type of a value that a body uses."""
    if ref.kind == "op":
        return body.ops[ref.index].op.element
    if ref.kind == "argument":
        return body.elements[ref.index]
    outer = rec.get(ref.index)
    if isinstance(outer, Tensor):
        return outer.element
    return dict(body.outer).get(ref.index) or {"f": "f32", "b": "i1"}.get(np.asarray(outer).dtype.kind, "i64")


def _at_every_point(rec: Recording, outer: Any, extents: tuple[int, ...]) -> Any:
    """A value from outside of a body at the points of its loops."""
    if isinstance(outer, np.ndarray):
        return outer.reshape((rec.tiles,) + (1,) * len(extents))
    if isinstance(outer, Tensor):  # a scalar from data
        at = outer.at
        for n in extents:
            at = type(at)((*at.shape, n), (*at.strides, 0), at.offset)
        return outer.moved(at)
    return outer


def evaluate(
    rec: Recording,
    body: Body,
    arguments: Sequence[LoopValue | None],
    extents: tuple[int, ...],
    wanted: Sequence[Ref],
    origin: tuple[int, ...] = (),
    given: Mapping[int, LoopValue] | None = None,
) -> list[LoopValue]:
    """The values of `wanted` at every point of the loops.

    `arguments` are the body's arguments at every point (None where it has no value). Emits at most one step. A wanted value that is
    an argument is returned as it is; one that depends on nothing but known values is known. `origin` is the first coordinate of each
    loop, for `linalg.index`. `given`: results of body ops that are known already.
    """
    work = _Evaluation(rec, extents, origin)
    results: dict[int, Any] = dict(given or {})

    def value(ref: Ref) -> Any:
        if ref.kind == "op":
            return results[ref.index]
        if ref.kind == "argument":
            return arguments[ref.index]
        return _at_every_point(rec, rec.get(ref.index), extents)

    for i in _needed(body, wanted, results.keys()):
        entry = body.ops[i]
        op = entry.op
        rec.where = entry.where
        if op.form == "constant":
            results[i] = op.value
            continue
        if op.form == "index":
            results[i] = work.loop_index(op.dim)
            continue
        if op.form != "copy" and op.counts:
            rec.count(entry.where.op, prod(extents))
        operands = [value(r) for r in entry.operands]
        kinds = [_element_of(rec, body, r) for r in entry.operands]
        known = not any(isinstance(v, Tensor | _Source) for v in operands)
        compute = op.peer if op.peer is not None and rec.policy.numerics == "peer" else op.compute
        if op.form == "copy":
            results[i] = operands[0]
        elif op.form == "select":
            results[i] = _select(work, operands, kinds, op.element)
        elif known:
            if op.faults is not None:
                report_faults(op.faults, [np.asarray(v) for v in operands], entry.where, rec.active)
            with numerics.quiet():
                results[i] = _compute_known(compute, operands, kinds, op.element, op.rounds)
        elif compute is _round and isinstance(operands[0], _Source):
            # A register is contiguous: it is rounded straight into the result.
            results[i] = work.micro(_round, operands, kinds, op.element, form="round", rounds=True)
        else:
            assert compute is not None
            check = None if op.faults is None else _fault_check(work, op.faults, entry.where)
            results[i] = work.micro(compute, operands, kinds, op.element, rounds=op.rounds, check=check)
    return _deliver(work, [value(r) for r in wanted])


def report_faults(
    faults: Callable[..., Any],
    operands: Sequence[Any],
    where: Where,
    active: NDArray[np.bool_] | None,
    clipped: NDArray[np.bool_] | None = None,
    first: tuple[int, ...] = (),
) -> None:
    """Raise the finding of an op at operands that have no result; axis 0, if any, is that of the tiles, from tile first[0] on.

    Tiles that are not `active` and elements that only exist because a masked view reads as zero there (`clipped`) are none of it.
    """
    for mask, kind, text in faults(*operands):
        wrong = mask
        if active is not None and wrong.ndim:
            live = active[first[0] :][: wrong.shape[0]] if first and wrong.shape[0] > 1 else active if wrong.shape[0] > 1 else active.any()
            wrong = wrong & np.asarray(live).reshape((-1,) + (1,) * (wrong.ndim - 1))
        if clipped is not None:
            wrong = wrong & ~clipped
        if not wrong.any():
            continue
        at = np.argwhere(wrong)
        shift = first[0] if first else 0
        several = wrong.ndim > 0 and wrong.shape[0] > 1
        tiles = sorted({int(p[0]) + shift for p in at}) if several else [shift]
        element = [int(x) + (first[1 + d] if first else 0) for d, x in enumerate(at[0][1:])]
        place = f" at element {element}" if element else ""
        raise kind(f"{text}{place}" + (f" (tile {tiles[0]})" if several or shift else ""), where, tiles=tiles)


def _fault_check(work: _Evaluation, faults: Callable[..., Any], where: Where) -> Callable[..., None]:
    active = work.rec.active

    def check(operands: Sequence[Any], chunk: tuple[slice, ...]) -> None:
        if not any(mask.any() for mask, _, _ in faults(*operands)):
            return
        clipped = None
        for value in work.inputs:
            if (dead := clipped_of(value)) is not None:
                part = _part(dead, chunk)
                clipped = part if clipped is None else clipped | part
        report_faults(faults, operands, where, active, clipped, tuple(c.start for c in chunk))

    return check


def _round(x: Any, out: NDArray[Any] | None = None) -> Any:
    """The narrowing to f16 before rounding: the value as it is."""
    return numerics.PLAIN["mov"](np.asarray(x), out)


narrow = _round
"""`compute` of a narrowing to f16; with `rounds`."""


def _compute_known(compute: Any, operands: list[Any], kinds: list[str], element: str, rounds: bool) -> Any:
    arrays = [np.asarray(v, CARRIERS[k]) for v, k in zip(operands, kinds, strict=True)]
    result = np.asarray(compute(*arrays)).astype(CARRIERS[element])
    if rounds:
        result = numerics.round_to(element, result)
    return result if result.ndim else result.item()


def _select(work: _Evaluation, operands: list[Any], kinds: list[str], element: str) -> Any:
    condition, a, b = operands
    if isinstance(condition, Tensor | _Source):
        return work.micro(_where, operands, kinds, element, form="where")
    mask = np.asarray(condition, np.bool_)
    if mask.all():
        return a
    if not mask.any():
        return b
    if not any(isinstance(v, Tensor | _Source) for v in (a, b)):
        return np.where(mask, a, b)
    return work.micro(_where, (a, b), kinds[1:], element, form="choose", where=~mask)


def _deliver(work: _Evaluation, values: list[Any]) -> list[LoopValue]:
    """Values as tensors; registers become the outputs of one step."""
    rec = work.rec
    outputs: dict[int, Tensor] = {}
    for value in values:
        if isinstance(value, _Source) and value.index not in outputs:
            micro = work.micros[value.index]
            outputs[value.index] = rec.temporary((rec.tiles, *work.extents), micro.present, micro.element)
    if outputs:
        step = _Pointwise(tuple(work.inputs), tuple(outputs.values()))
        step.micros, step.outputs = work.micros, list(outputs)
        rec.emit(step)
    return [outputs[v.index] if isinstance(v, _Source) else v for v in values]


def loop_tensor(rec: Recording, value: LoopValue, extents: tuple[int, ...], element: str) -> Tensor:
    """`value` as a tensor of shape [tiles, *extents] and of type `element`, which a widening alone does not change."""
    if isinstance(value, Tensor):
        return value if value.element == element else value.moved(value.at, element)
    array = np.asarray(value)
    if array.ndim == 0:
        array = array.reshape((1,) * (1 + len(extents)))
    return rec.constant(array, extents, element)
