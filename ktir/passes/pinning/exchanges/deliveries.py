"""What deliveries make on their consumers: parts as the table has them, or the fold of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import refused
from ktir.dialects.vector_kinds import is_scalar_op
from ktir.mlir import ir, tensor
from ktir.passes.general.cores import Cores
from ktir.passes.pinning.exchanges.rounds import cut, cut_by_core, delivered, fits_sticks, live_rows, pieces
from ktir.passes.pinning.exchanges.tables import FOLDS, Members, Transfer, producer, splits, transfers
from ktir.passes.pinning.values.elements import Leaf, Value
from ktir.passes.pinning.values.rows import own, physical_shape
from ktir.passes.pinning.values.tensors import Made, choose_stick, pointwise, whole_dims

Combine = Callable[[Sequence[Value], Sequence[Value]], list[Value]]


@dataclass(frozen=True)
class Role:
    """One tensor of each contribution: `sent`, with a dim in its sticks, what of it goes where, and the shape that a consumer gets."""

    sent: ir.Value
    stick: int | None
    shape: tuple[int, ...]
    result: tuple[int, ...]
    type: ir.Type
    table: Sequence[Transfer]

    @property
    def block(self) -> list[int]:
        return physical_shape(self.result, self.stick)

    def value(self, made: ir.Value) -> Value:
        return Value(self.result, Leaf(self.type, Made(made, self.result, self.stick), tuple(range(len(self.result)))))

    def received(self, table: Sequence[Transfer], slots: int, cores: Cores, op: ir.Operation) -> ir.Value:
        """What cores have of a table; with `slots` one tensor for each contribution, behind each other in sticks."""
        moved = pieces(table, self.shape, self.result, self.stick, slots > 0)
        block = self.block
        rows = live_rows(self.result, self.stick)
        return delivered(self.sent, moved, [block[0] * max(slots, 1), *block[1:]], rows, cores, splits(op), op)


def exchanged(
    op: ir.Operation,
    given: Sequence[Value],
    identities: Callable[[], list[Value]],
    combine: Combine,
    cores: Cores,
    live: Sequence[bool],
) -> tuple[list[Value], NDArray[np.bool_]]:
    """What a delivery of contributions makes, and the tiles that have nothing of it, those that do not get there included; `live` are
    those that do. Raises Unsupported."""
    run = range(cores.first, min(cores.first + cores.count, cores.tiles))
    members = Members.of(op, cores.tiles, run, live)
    if not members.sources:
        raise refused(op, f"gives nothing to tiles {run.start} to {run.stop - 1}, which run at once, which is not pinned yet")
    missing = np.array([t in run and t - run.start not in members.sources for t in range(cores.tiles)])
    roles = [_role(op, k, value, members) for k, value in enumerate(given)]
    if op.name in FOLDS:
        return _Fold(op, roles, members, identities, combine, cores).totals(), missing
    if any(not s for s in members.sources.values()):
        raise refused(op, "has consumers that receive from no tile, which is not pinned yet")
    return [role.value(role.received(role.table, 0, cores, op)) for role in roles], missing


def _role(op: ir.Operation, number: int, value: Value, members: Members) -> Role:
    """A role, sent in a form whose sticks nobody cuts."""
    yielded = list(producer(op).regions[0].blocks[0].operations)[-1].operands[number]
    own_shape, result = tuple(ir.RankedTensorType(yielded.type).shape), tuple(ir.RankedTensorType(op.results[number].type).shape)
    if own_shape == result and not splits(op):
        result = value.shape  # dims that were joined stay apart
    else:
        value = whole_dims(yielded, value, op)
    table = transfers(op, members, value.shape, result)
    walked = [d for d in reversed(range(len(value.shape))) if value.shape[d] != 1 and fits_sticks(d, table, value.shape, result)]
    stick = choose_stick(value, walked[0] if walked else None)
    if stick is not None and not fits_sticks(stick, table, value.shape, result):
        raise refused(op, f"cuts dim {stick}, which lies in the sticks of what it sends, inside of a stick, which is not pinned yet")
    if op.name in FOLDS and splits(op):
        for inner in list(op.regions[0].blocks[0].operations)[:-1]:
            if not is_scalar_op(inner.operation):
                raise refused(inner.operation, "combines shares in a way that is not element by element, which is not pinned yet")
    return Role(pointwise(value, stick, op), stick, value.shape, result, value.type, table)


@dataclass(frozen=True)
class _Fold:
    """Contributions combined in ascending order of the tiles; a consumer that gets fewer than others keeps what it has by then."""

    op: ir.Operation
    roles: Sequence[Role]
    members: Members
    identities: Callable[[], list[Value]]
    combine: Combine
    cores: Cores

    def totals(self) -> list[Value]:
        counts = [len(s) for s in self.members.sources.values()]
        even = len(set(counts)) <= 1 and all(counts)
        totals: list[Value] = []
        kept = None if even else _Kept(self.roles, self.members, self.cores)
        if kept and not all(counts):
            kept.keep([whole_dims(v, i, self.op) for v, i in zip(list(self.op.operands)[1:], self.identities(), strict=True)], self.op)
        for step in self._steps():
            totals = self.combine(totals, step) if totals else step
            if kept:
                totals = kept.keep(totals, self.op)
            elif totals is not step:  # what was received need not stay
                totals = [r.value(pointwise(t, r.stick, self.op)) for r, t in zip(self.roles, totals, strict=True)]
        return kept.chosen() if kept else totals

    def _steps(self) -> list[list[Value]]:
        """Per step the parts of all roles, in the order in which they are combined; where each gets a share all come before the first."""
        most = self.members.most
        if not splits(self.op):
            return list(map(self._step, range(most)))
        held = [role.received(role.table, most, self.cores, self.op) for role in self.roles] if most else []
        return [[r.value(cut(h, [k * r.block[0], 0, 0], r.block)) for r, h in zip(self.roles, held, strict=True)] for k in range(most)]

    def _step(self, number: int) -> list[Value]:
        found = []
        for role in self.roles:
            table = [t for t in role.table if t.number == number]
            found.append(role.value(role.received(table, 0, self.cores, self.op)))
        return found


class _Kept:
    """Every state of a fold, of which each core reads its last one."""

    def __init__(self, roles: Sequence[Role], members: Members, cores: Cores) -> None:
        self.roles, self.members, self.cores, self.count = roles, members, cores, 0
        self.states = members.most + any(not s for s in members.sources.values())
        self.held = [tensor.EmptyOp([r.block[0] * self.states, *r.block[1:]], r.type).result for r in roles]

    def keep(self, values: Sequence[Value], op: ir.Operation) -> list[Value]:
        """Put the next state behind the others; the same values, as they lie there."""
        found = []
        for k, (role, value) in enumerate(zip(self.roles, values, strict=True)):
            at = [self.count * role.block[0], 0, 0]
            made = own(pointwise(value, role.stick, op))
            self.held[k] = tensor.InsertSliceOp(made, self.held[k], [], [], [], at, role.block, [1, 1, 1]).result
            found.append(role.value(cut(self.held[k], at, role.block)))
        self.count += 1
        return found

    def chosen(self) -> list[Value]:
        """The last state of each core."""
        before = self.states - self.members.most
        last = [before + len(self.members.sources.get(c, ())) - 1 for c in range(self.cores.count)]
        last = [max(n, 0) for n in last]
        return [
            role.value(cut_by_core(held, [n * role.block[0] for n in last], role.block, self.cores))
            for role, held in zip(self.roles, self.held, strict=True)
        ]


def contributed(op: ir.Operation) -> list[ir.Value]:
    """The tensors that a tile contributes to a delivery."""
    return list(list(producer(op).regions[0].blocks[0].operations)[-1].operands)
