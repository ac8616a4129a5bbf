"""ktdp: what tiles send each other. All tiles run in step, so a future holds what each has produced, and a delivery picks from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.findings import Deadlock, Where
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action, BlockPlan
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.ops.sets import IndexSet
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.tape.values import Future, Tensor, simplify
from ktir.mlir import ir


def _group_numbers(groups: IndexSet, tiles: int) -> list[int]:
    box = groups.box()
    low, high = (0, tiles) if box is None else (int(box[0][0]), int(box[0][0] + box[1][0]))
    return [g for g in range(low, high) if bool(groups.holds([g]))]


@executes("ktdp.inter_tile_produce")
def _produce(op: OpReader) -> Action:
    producers = IndexSet.of(op.attribute("producer_tiles_per_group"))
    type_: Any = op.op.results[0].type
    groups = IndexSet.of(type_.groups)
    body, (result,), where = op.block(), op.results, op.where

    def action(rec: Recorder) -> None:
        if rec.single is not None:
            raise Unsupported(f"{where} communicates in a kernel whose tiles have different shapes", where.location)
        declared = np.full(rec.tiles, -1, np.int64)
        for g in _group_numbers(groups, rec.tiles):
            for tile in producers.members(rec.tiles, [g]):
                if declared[tile] not in (-1, g):
                    raise KtirError(f"{where} has tile {tile} produce for groups {declared[tile]} and {g}", where.location)
                declared[tile] = g
        outer, live = rec.active, rec.live()
        group = np.where(live, declared, -1)
        rec.active = group >= 0
        values: list[Any] = []
        if rec.active.any():
            rec.set(body.arguments[0], simplify(np.maximum(group, 0)))
            values = rec.run(body)
        rec.active = outer
        # Whatever a producer has done so far happened before what its consumers do next.
        clock = rec.clock.copy()
        np.fill_diagonal(clock, rec.epoch)
        rec.epoch += 1
        rec.set(result, Future(tuple(rec.plain(v) for v in values), group, declared, clock, where))

    return action


@dataclass(frozen=True)
class _Delivery:
    """What all deliveries share: their sets, and who receives from whom."""

    consumers: IndexSet
    dependency: IndexSet | None
    groups: IndexSet
    where: Where

    @staticmethod
    def of(op: OpReader) -> _Delivery:
        dependency = op.attribute("producer_dependency_per_consumer")
        type_: Any = op.op.operands[0].type
        return _Delivery(
            IndexSet.of(op.attribute("consumer_tiles_per_group")),
            None if dependency is None else IndexSet.of(dependency),
            IndexSet.of(type_.groups),
            op.where,
        )

    def resolve(self, rec: Recorder, future: Future) -> _Exchange:
        """Who receives from whom. Raises Deadlock where a producer never comes."""
        live = rec.live()
        senders: list[list[int]] = [[] for _ in range(rec.tiles)]
        position = np.full(rec.tiles, -1, np.int64)
        size = np.zeros(rec.tiles, np.int64)
        for g in _group_numbers(self.groups, rec.tiles):
            members = self.consumers.members(rec.tiles, [g])
            everyone = [int(t) for t in np.flatnonzero(future.declared == g)]
            for place, tile in enumerate(members):
                if position[tile] >= 0:
                    raise KtirError(f"{self.where} has tile {tile} consume from several groups", self.where.location)
                needed = everyone
                if self.dependency is not None:
                    symbols = [tile] if self.dependency.symbols == 1 else [tile, g]
                    wanted = self.dependency.members(rec.tiles, symbols)
                    if stranger := [p for p in wanted if p not in everyone]:
                        raise KtirError(
                            f"{self.where} has tile {tile} depend on tile {stranger[0]}, which is no producer of group {g}",
                            self.where.location,
                        )
                    needed = wanted
                position[tile], size[tile] = place, len(members)
                senders[tile] = needed
                if not live[tile]:
                    continue
                missing = [p for p in needed if future.group[p] != g]
                if missing:
                    raise Deadlock(
                        f"waits on tile {tile} for tile {missing[0]}, which does not produce",
                        self.where,
                        tiles=[tile, *missing],
                        other=future.where,
                        other_label="the production",
                    )
        clock = rec.clock.copy()
        for tile in np.flatnonzero(live & (position >= 0)):
            for p in senders[tile]:
                clock[tile] = np.maximum(clock[tile], future.clock[p])
        rec.clock = clock
        rec.epoch += 1
        return _Exchange(senders, position, size, live & (position >= 0))


@dataclass(frozen=True)
class _Exchange:
    """Per tile: whom it receives from in ascending order, its place among the consumers of its group, and their number."""

    senders: list[list[int]]
    position: NDArray[np.int64]
    size: NDArray[np.int64]
    receives: NDArray[np.bool_]

    @property
    def most(self) -> int:
        return max((len(self.senders[t]) for t in np.flatnonzero(self.receives)), default=0)

    def sender(self, k: int) -> NDArray[np.int64]:
        """Per tile the k-th tile that it receives from; -1: none."""
        return np.array([s[k] if k < len(s) and r else -1 for s, r in zip(self.senders, self.receives, strict=True)], np.int64)


def _delivery(
    name: str,
) -> Callable[[Callable[[OpReader], Callable[[Recorder, Future, _Exchange], Sequence[Any]]]], Any]:
    """Registers a delivery: the decorated function reads the op and returns what makes the results of an exchange."""

    def register(make: Callable[[OpReader], Callable[[Recorder, Future, _Exchange], Sequence[Any]]]) -> Any:
        def executor(op: OpReader) -> Action:
            delivery, deliver = _Delivery.of(op), make(op)
            future, results, where = op.operands[0], op.results, op.where

            def action(rec: Recorder) -> None:
                found: Future = rec.get(future)
                exchange = delivery.resolve(rec, found)
                if found.values and exchange.receives.any():
                    values = deliver(rec, found, exchange)
                else:
                    values = [rec.poison(op_type.shape, op_type.element) for op_type in types]
                rec.where = where
                rec.set_all(results, values)

            types = [op.result_type(i) for i in range(len(results))]
            return action

        executes(name)(executor)
        return make

    return register


def _poisoned(rec: Recorder, value: Tensor, exchange: _Exchange) -> Tensor:
    """`value` on the tiles that receive; the others have none."""
    others = rec.live() & ~exchange.receives
    if not others.any():
        return value
    empty = rec.poison(value.shape, value.element)
    return rec.overwrite(value, [(tuple((0, n) for n in value.shape), empty)], others)


@_delivery("ktdp.inter_tile_consume")
def _consume(op: OpReader) -> Callable[[Recorder, Future, _Exchange], Sequence[Any]]:
    where = op.where

    def deliver(rec: Recorder, future: Future, exchange: _Exchange) -> Sequence[Any]:
        for tile in np.flatnonzero(exchange.receives):
            if len(exchange.senders[tile]) != 1:
                raise KtirError(f"{where} has {len(exchange.senders[tile])} producers for tile {tile}, but takes one", where.location)
        return [_poisoned(rec, rec.pick(_tensor(v), exchange.sender(0)), exchange) for v in future.values]

    return deliver


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def _where(rec: Recorder, tiles: NDArray[np.bool_], value: Tensor, other: Tensor) -> Tensor:
    """`value` on some tiles, `other` on the rest."""
    return rec.overwrite(other, [(tuple((0, n) for n in other.shape), value)], tiles)


def _fold(rec: Recorder, combiner: BlockPlan, future: Future, identities: list[Tensor], exchange: _Exchange) -> list[Tensor]:
    """Contributions combined in ascending order of the tiles; under policy `peer` each tile begins with its own and goes down.

    A tile combines what it receives and nothing else: an identity is the whole fold of a tile that receives nothing, since what a program
    gives as one may change bits (-0 + 0 is +0).
    """
    senders = exchange.senders
    if rec.policy.numerics == "peer":
        senders = [sorted(s, key=lambda p, t=t: (t - p) % rec.tiles) for t, s in enumerate(senders)]
    ordered = _Exchange(senders, exchange.position, exchange.size, exchange.receives)
    totals: list[Tensor] = []
    outer, rec.active = rec.active, None
    for k in range(exchange.most):
        sources = ordered.sender(k)
        missing = exchange.receives & (sources < 0)
        pieces: list[Tensor] = []
        for value, identity in zip(future.values, identities, strict=True):
            piece = rec.pick(_tensor(value), sources)
            if missing.any() and not k:
                piece = _where(rec, missing, identity, piece)
            pieces.append(piece)
        if k == 0:
            totals = pieces
            continue
        rec.set_all(combiner.arguments, (*totals, *pieces))
        combined = [rec.plain(v) for v in rec.run(combiner)]
        totals = [_where(rec, missing, old, new) for old, new in zip(totals, combined, strict=True)] if missing.any() else combined
    rec.active = outer
    return totals or identities


@_delivery("ktdp.inter_tile_reduce")
def _reduce(op: OpReader) -> Callable[[Recorder, Future, _Exchange], Sequence[Any]]:
    combiner, identities = op.block(), op.operands[1:]
    shapes = [op.result_type(i).shape for i in range(len(op.results))]

    def deliver(rec: Recorder, future: Future, exchange: _Exchange) -> Sequence[Any]:
        totals = _fold(rec, combiner, future, [rec.tensor(i) for i in identities], exchange)
        if any(t.shape != s for t, s in zip(totals, shapes, strict=True)):
            raise Unsupported(f"{op_where} gives another shape than its contributions have", op_where.location)
        return [_poisoned(rec, t, exchange) for t in totals]

    op_where = op.where
    return deliver


def _axes(op: OpReader, name: str) -> list[int]:
    attribute = op.attribute(name)
    if isinstance(attribute, ir.ArrayAttr):
        return [ir.IntegerAttr(i).value for i in attribute]
    return op.integers(name)


def _digits(number: NDArray[np.int64], counts: list[int]) -> list[NDArray[np.int64]]:
    """The mixed-radix digits of `number`, first one slowest."""
    digits = []
    for n in reversed(counts):
        digits.append(number % n)
        number = number // n
    return digits[::-1]


def _split(rec: Recorder, value: Tensor, shape: tuple[int, ...], axes: list[int], place: NDArray[np.int64]) -> Tensor:
    """Per tile the share number place[t] of `value`, cut along `axes` into boxes of `shape`."""
    counts = [value.shape[a] // shape[a] for a in axes]
    digits = _digits(place, counts)
    base = None
    at = value.at
    for tile_place in sorted(set(place[place >= 0].tolist())):
        members = place == tile_place
        box = [(0, n) for n in value.shape]
        for a, d in zip(axes, digits, strict=True):
            index = int(d[members][0])
            box[a] = (index * shape[a], shape[a])
        part = value.moved(at.box(tuple(box)))
        if base is None:
            base = part
        else:
            base = rec.overwrite(base, [(tuple((0, n) for n in shape), part)], members)
    assert base is not None
    return base


def _assemble(rec: Recorder, pieces: list[Tensor], shape: tuple[int, ...], axes: list[int], exchange: _Exchange) -> Tensor:
    """Contributions side by side along `axes`: the k-th at box k."""
    first = pieces[0]
    counts = [shape[a] // first.shape[a] for a in axes]
    parts = []
    for k, piece in enumerate(pieces):
        digits = _digits(np.array([k]), counts)
        box = [(0, n) for n in shape]
        for a, d in zip(axes, digits, strict=True):
            box[a] = (int(d[0]) * piece.shape[a], piece.shape[a])
        parts.append((tuple(box), piece))
    base = rec.poison(shape, first.element)
    base.empty = False
    return rec.overwrite(base, parts)


@_delivery("ktdp.inter_tile_reduce_scatter")
def _reduce_scatter(op: OpReader) -> Callable[[Recorder, Future, _Exchange], Sequence[Any]]:
    combiner, identities, axes = op.block(), op.operands[1:], _axes(op, "scatter_dimensions")
    shapes, where = [op.result_type(i).shape for i in range(len(op.results))], op.where

    def deliver(rec: Recorder, future: Future, exchange: _Exchange) -> Sequence[Any]:
        totals = _fold(rec, combiner, future, [rec.tensor(i) for i in identities], exchange)
        place = _places(totals, shapes, axes, exchange, where)
        return [_poisoned(rec, _split(rec, t, s, axes, place), exchange) for t, s in zip(totals, shapes, strict=True)]

    return deliver


def _places(values: Sequence[Any], shapes: list[tuple[int, ...]], axes: list[int], exchange: _Exchange, where: Where) -> NDArray[np.int64]:
    """The share that each tile receives."""
    shares = {prod(v.shape[a] // s[a] for a in axes) for v, s in zip(values, shapes, strict=True)}
    place = np.where(exchange.receives, exchange.position, -1)
    for count in shares:
        for tile in np.flatnonzero(exchange.receives):
            if exchange.size[tile] != count:
                raise KtirError(f"{where} cuts into {count} shares, but a group has {exchange.size[tile]} consumers", where.location)
    return place


@_delivery("ktdp.inter_tile_gather")
def _gather(op: OpReader) -> Callable[[Recorder, Future, _Exchange], Sequence[Any]]:
    axes, where = _axes(op, "gather_dimensions"), op.where
    shapes = [op.result_type(i).shape for i in range(len(op.results))]

    def deliver(rec: Recorder, future: Future, exchange: _Exchange) -> Sequence[Any]:
        results = []
        for value, shape in zip(future.values, shapes, strict=True):
            part = _tensor(value)
            _check_count(prod(shape[a] // part.shape[a] for a in axes), exchange, where)
            pieces = [rec.pick(part, exchange.sender(k)) for k in range(exchange.most)]
            results.append(_poisoned(rec, _assemble(rec, pieces, shape, axes, exchange), exchange))
        return results

    return deliver


def _check_count(count: int, exchange: _Exchange, where: Where) -> None:
    for tile in np.flatnonzero(exchange.receives):
        if len(exchange.senders[tile]) != count:
            raise KtirError(
                f"{where} assembles {count} contributions, but tile {tile} receives {len(exchange.senders[tile])}", where.location
            )


@_delivery("ktdp.inter_tile_scatter")
def _scatter(op: OpReader) -> Callable[[Recorder, Future, _Exchange], Sequence[Any]]:
    axes, where = _axes(op, "scatter_dimensions"), op.where
    shapes = [op.result_type(i).shape for i in range(len(op.results))]

    def deliver(rec: Recorder, future: Future, exchange: _Exchange) -> Sequence[Any]:
        _check_count(1, exchange, where)
        place = _places(future.values, shapes, axes, exchange, where)
        results = []
        for value, shape in zip(future.values, shapes, strict=True):
            whole = rec.pick(_tensor(value), exchange.sender(0))
            results.append(_poisoned(rec, _split(rec, whole, shape, axes, place), exchange))
        return results

    return deliver


@_delivery("ktdp.inter_tile_all_to_all")
def _all_to_all(op: OpReader) -> Callable[[Recorder, Future, _Exchange], Sequence[Any]]:
    split, concat, where = _axes(op, "split_dimensions"), _axes(op, "concat_dimensions"), op.where
    shapes = [op.result_type(i).shape for i in range(len(op.results))]

    def deliver(rec: Recorder, future: Future, exchange: _Exchange) -> Sequence[Any]:
        results = []
        senders, consumers = exchange.most, int(exchange.size[exchange.receives].max())
        for value, shape in zip(future.values, shapes, strict=True):
            whole = _tensor(value)
            share = _share(whole.shape, shape, split, concat, consumers, senders, where)
            place = np.where(exchange.receives, exchange.position, -1)
            pieces = [_split(rec, rec.pick(whole, exchange.sender(k)), share, split, place) for k in range(senders)]
            results.append(_poisoned(rec, _assemble(rec, pieces, shape, concat, exchange), exchange))
        return results

    return deliver


def _share(
    whole: tuple[int, ...],
    result: tuple[int, ...],
    split: list[int],
    concat: list[int],
    consumers: int,
    senders: int,
    where: Where,
) -> tuple[int, ...]:
    """The shape of what one producer sends to one consumer."""
    both = [a for a in split if a in concat]
    share = list(whole)
    for a in split:
        if a not in both:
            share[a] = result[a]
    # An axis that is both split and concatenated takes what the other axes leave of the counts.
    left = consumers // prod(whole[a] // share[a] for a in split if a not in both)
    if len(both) > 1 and left > 1:
        raise Unsupported(f"{where} splits and concatenates several axes, which the executor does not support", where.location)
    for a in both:
        share[a] = whole[a] // left
    if prod(whole[a] // share[a] for a in split) != consumers or prod(result[a] // share[a] for a in concat) != senders:
        raise KtirError(f"{where} does not cut into one share for each of {consumers} consumers and {senders} producers", where.location)
    return tuple(share)
