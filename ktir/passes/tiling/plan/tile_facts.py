"""What a divided kernel is for `ktir-tile`: its loops, its tensors, its matmuls. Read off the IR once; nothing is decided here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import constant_of, tensor_bytes
from ktir.analysis.attributes.residents import resident_behind
from ktir.analysis.axes import Axes, row_loops, second_operand_source, sticks_of
from ktir.analysis.partial_sums import live_at_once
from ktir.analysis.softmax import Softmax, softmax_of
from ktir.cost.bodies import widening_cycles
from ktir.cost.tiles import BLOCK_BYTES
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.mlir import arith, func, ir, is_a, linalg, tensor
from ktir.passes.tiling.plan.epilogues import Epilogues, argument_of, by_stick, epilogues_of, joined_contractions, left_by, stored_at_once
from ktir.passes.tiling.plan.tile_views import direct, tile_of
from ktir.target import Target


@dataclass(frozen=True, eq=False)
class Tensor:
    """What a load, an op, a sum over cores or a fill makes; a fill that an op accumulates into is none."""

    value: ir.Value
    axes: tuple[int | None, ...]
    """Per dim the axis that it runs along."""
    depth: int
    """Batch loops around the innermost one on whose position it depends, with that one."""
    sticks: int
    row_bytes: int
    is_loaded: bool
    is_resident: bool
    """Whether it is read where it lies in the scratchpad."""
    has_rows: bool
    """Whether a block of it has rows; else it is a row vector, the same for all of them."""
    first: int
    last: int
    """Numbers of the ops between which it lives. Of what is loaded: of those that read it."""
    beside: int = 0
    """Tensors of its size that live while it is made."""
    by_stick: bool = False
    """Whether a stick of it is all that is there at once: it is stored, or read, as it is made."""


class Tap(NamedTuple):
    """A loop over places of a window, which a contraction adds up."""

    extent: int
    first: int
    """Dim of the first operand that it walks; `second`: of the second one."""
    second: int


@dataclass(frozen=True, eq=False)
class Matmul:
    """A contraction, and the tensor behind its second operand."""

    g: Generic
    rows: int
    """Of the core's share."""
    n: int
    """Sticks of columns."""
    k: int
    """Sticks of the reduced loops, of all taps."""
    taps: tuple[Tap, ...]
    first_bytes: int
    """That are loaded of the first operand, 0 if it is computed or lies in the scratchpad."""
    result_bytes: int
    """Of the result, as it is stored or read by the next op."""
    second: ir.Value
    second_bytes: int
    """At one batch position, in whole blocks."""
    second_is_resident: bool
    axes: tuple[int | None, ...]
    """Of the second operand."""
    depth: int
    """Batch loops around the innermost one on whose position the second operand depends, with that one."""
    taken: int
    """Second operands that a core takes one after the other; `users`: batch positions that use each."""
    users: int

    @cached_property
    def factor_taps(self) -> dict[ir.Value, int]:
        """Operands that factors are computed of and that a tap walks: its number."""
        walks = {self.g.inputs[i]: self.g.walk(i) for i in range(2, len(self.g.inputs))}
        loops = [self.g.loop_of(1, tap.second) for tap in self.taps]
        return {value: t for value, walk in walks.items() for t, loop in enumerate(loops) if loop in walk}

    @property
    def tap_sticks(self) -> int:
        """Sticks of the reduced loop of one tap."""
        return self.k // prod(tap.extent for tap in self.taps)

    def widening(self, target: Target) -> int:
        """Cycles in which the vector unit widens a block of the second operand."""
        return widening_cycles(self.g, target)

    @property
    def op(self) -> ir.Operation:
        return self.g.op

    @property
    def result(self) -> ir.Value:
        return self.g.op.results[0]


class StickLocal(NamedTuple):
    """Sticks of a row, and the tensors that have all of them."""

    sticks: int
    values: frozenset[ir.Value]


@dataclass(frozen=True, eq=False)
class TileFacts:
    """A divided kernel."""

    source: func.FuncOp
    ops: tuple[ir.Operation, ...]
    row_axis: int
    share: int
    """Rows of a core."""
    cores: int
    column_parts: int
    row_parts: tuple[int, ...]
    loops: Mapping[int, int]
    """Batch axes that are loops, outer to inner, and their trips."""
    tensors: Mapping[ir.Value, Tensor]
    matmuls: tuple[Matmul, ...]
    epilogues: Epilogues
    """What can be computed of each finished stick of a contraction."""
    stored: Mapping[ir.Value, Sequence[ir.Operation]]
    """Results that can be stored as soon as they are there, with their stores."""
    joined: Mapping[ir.Operation, Sequence[Matmul]]
    """Contraction -> others that are computed with it, stick by stick: nothing but its epilogue reads what they leave."""
    overlapping: tuple[Mapping[ir.Value, int], ...] = ()
    """Loads of one memory that differ in where they begin, as the places of a window do, and that only ops on each element read: per such
    group the elements from the first one to each, the first one first."""

    @cached_property
    def second_operands(self) -> dict[ir.Value, Matmul]:
        """The matmul that reads a tensor so."""
        return {m.second: m for m in self.matmuls}

    @cached_property
    def factors(self) -> dict[ir.Value, Tap | None]:
        """What factors are computed of besides second operands; and the loop over places or groups that walks it."""
        return {v: m.taps[m.factor_taps[v]] if v in m.factor_taps else None for m in self.matmuls for v in m.g.inputs[2:]}

    @cached_property
    def sums(self) -> set[ir.Value]:
        """Results of contractions that are never there as a whole: they have epilogues."""
        return {op.results[0] for op, chain in self.epilogues.items() if chain}

    @cached_property
    def matmul_of(self) -> dict[ir.Operation, Matmul]:
        """The matmul that an op is."""
        return {m.op: m for m in self.matmuls}

    @cached_property
    def walks(self) -> list[list[Matmul]]:
        """The contractions, those together that one loop over sticks of columns computes."""
        with_others = {other.op for others in self.joined.values() for other in others}
        return [self.computed_with(m) for m in self.matmuls if m.op not in with_others]

    def computed_with(self, m: Matmul) -> list[Matmul]:
        """The contractions of which one stick is computed where one of `m` is, `m` at last."""
        return [found for other in self.joined.get(m.op, ()) for found in self.computed_with(other)] + [m]

    @cached_property
    def walked_alone(self) -> bool:
        """Whether the loop over blocks of rows is the only one, and no core waits for another one in it."""
        return not self.loops and not any(is_a(op, ktdp.InterTileReduceOp) for op in self.ops)

    @cached_property
    def in_equal_rows(self) -> bool:
        """Whether all cores have as many rows."""
        return KernelFunction(self.source).rows[-1] == self.share * self.row_parts[-1]

    @cached_property
    def stores_sticks(self) -> bool:
        """Whether all that is stored is stored stick by stick as it is made."""
        stored = [op.operands[0] for op in self.ops if is_a(op, ktdp.StoreOp)]
        return all(value in self.stored and self.tensors[value].by_stick for value in stored)

    @cached_property
    def streamable(self) -> frozenset[ir.Value]:
        """First operands that may be loaded stick by stick: only contractions read them, and the kernel does not write that memory."""
        written = {None, *(argument_of(op) for op in self.ops if is_a(op, ktdp.StoreOp))}
        own = {m.op for m in self.matmuls}
        return frozenset(
            v
            for v in {m.g.inputs[0] for m in self.matmuls if is_a(m.g.inputs[0].owner, ktdp.LoadOp)}
            if argument_of(v.owner.operation) not in written and all(u.owner.operation in own and u.operand_number == 0 for u in v.uses)
        )

    @cached_property
    def stick_local(self) -> StickLocal | None:
        """What a kernel has of a row, if all that it does with one stick concerns no other one; None if not, or if there is one stick."""
        made = [op.results[0] for op in self.ops if is_a(op, ktdp.LoadOp, linalg.GenericOp, linalg.FillOp, tensor.EmptyOp)]
        sticks = max(map(sticks_of, made), default=1)
        generics = [Generic(op) for op in self.ops if is_a(op, linalg.GenericOp)]
        tiles = [tile_of(op) for op in self.ops if is_a(op, ktdp.LoadOp, ktdp.StoreOp)]
        if sticks == 1 or not all(map(direct, tiles)) or not all(_is_local(g, sticks) for g in generics):
            return None
        return StickLocal(sticks, frozenset(v for v in made if sticks_of(v) == sticks))

    @cached_property
    def softmax(self) -> Softmax | None:
        """The softmax that can be seen some keys at a time."""
        return softmax_of(self.ops)

    def members(self, axes: Collection[int | None]) -> int:
        """Cores that take the same of a tensor along these axes."""
        return prod(n for axis, n in enumerate(self.row_parts) if axis not in axes)

    def trips(self, rows: int) -> int:
        """Blocks of `rows` rows in the core's share."""
        return -(-self.share // rows)

    def depth(self, tensor: Tensor, trips: int) -> int:
        """How many of the batch loops a load stands in; one more: in the loop over blocks of rows.

        That one makes `trips` trips. Where it makes one, rows are not loaded again for each position of an axis that they do not have.
        """
        once = trips == 1 and tensor.depth < len(self.loops)
        return len(self.loops) + 1 if tensor.has_rows and not once else tensor.depth


def facts_of(source: func.FuncOp) -> TileFacts:
    """The facts of a divided kernel."""
    kernel, axes = KernelFunction(source), Axes.of(source.operation)
    work = kernel.work
    ops = tuple(o.operation for o in source.regions[0].blocks[0].operations)
    loops = {axis: work.row_shares[axis] for axis in axes.batches if work.row_shares[axis] > 1}
    generics = [Generic(op) for op in ops if is_a(op, linalg.GenericOp)]
    matmuls = tuple(_matmul(g, axes, loops) for g in generics if g.is_contraction)
    epilogues = epilogues_of(ops, [m.op for m in matmuls])
    stored = stored_at_once(ops, epilogues)
    matmul_of = {m.op: m for m in matmuls}
    together = {} if softmax_of(ops) is not None else joined_contractions(ops, epilogues)
    joined = {op: [matmul_of[other] for other in others] for op, others in together.items()}
    # no tensor has the row axis: blocks then have two rows of which the second one is clipped
    without_rows = bool(generics) and all(len(row_loops(g)) < len(axes.extents) for g in generics)
    firsts = {m.g.inputs[0] for m in matmuls} if without_rows else None
    factors = {v for m in matmuls for v in m.g.inputs[2:]}
    found = {t.value: t for t in _tensors(ops, axes, loops, firsts, factors, epilogues, stored, joined)}
    overlapping = _overlapping(found.values(), matmuls)
    share, parts = work.row_shares[-1], work.row_parts
    return TileFacts(
        source, ops, axes.row, share, kernel.cores, work.column_parts, parts, loops, found, matmuls, epilogues, stored, joined, overlapping
    )


def _matmul(g: Generic, axes: Axes, loops: Mapping[int, int]) -> Matmul:
    first, second, result = g.inputs[0], second_operand_source(g), g.op.results[0]
    n, *rows, _ = ir.RankedTensorType(result.type).shape
    taps = _taps(g)
    k = sticks_of(first) * prod(tap.extent for tap in taps)
    own = axes.of_second_operand(g)
    depth, trips = _depth(own, loops), list(loops.values())
    loaded = is_a(first.owner, ktdp.LoadOp) and resident_behind(first.owner.operation) is None
    reader = next(iter(result.uses)).owner
    return Matmul(
        g,
        rows[-1],
        n,
        k,
        taps,
        tensor_bytes(first) if loaded else 0,
        tensor_bytes(reader.results[0] if len(reader.results) else result),
        second,
        k * n * BLOCK_BYTES,
        resident_behind(second.owner.operation) is not None,
        tuple(own),
        depth,
        prod(trips[:depth]),
        prod(trips[depth:]),
    )


def _taps(g: Generic) -> tuple[Tap, ...]:
    reduced = [i for i, kind in enumerate(g.iterators) if kind == "reduction"][:-2]
    shape = ir.RankedTensorType(g.inputs[0].type).shape
    walks = [g.walk(i) for i in range(2)]
    places = [(walks[0].index(loop), walks[1].index(loop)) for loop in reduced]
    return tuple(Tap(shape[first], first, second) for first, second in places)


def _tensors(
    ops: Sequence[ir.Operation],
    axes: Axes,
    loops: Mapping[int, int],
    firsts: Collection[ir.Value] | None,
    factors: Collection[ir.Value],
    epilogues: Epilogues,
    stored: Mapping[ir.Value, Sequence[ir.Operation]],
    joined: Mapping[ir.Operation, Sequence[Matmul]],
) -> Iterator[Tensor]:
    """The tensors of a kernel. `firsts`: first operands of matmuls, where no tensor has the row axis; `factors`: what factors are computed
    of."""
    number, left = {op: i for i, op in enumerate(ops)}, set[ir.Value]()
    for op, others in reversed([*joined.items()]):  # they are computed where the last one is
        for m in others:
            left.add(value := left_by(m.op, epilogues))
            number[m.op] = number[value.owner] = number[op]
    begun = {op: number[contraction] for contraction, chain in epilogues.items() for op in chain}
    between = {op.results[0] for chain in epilogues.values() for op in chain[:-1]}
    for op in ops:
        at = number[op]
        if not is_a(op, ktdp.LoadOp, linalg.GenericOp, ktdp.InterTileReduceOp) and not (is_a(op, linalg.FillOp) and _is_stored(op)):
            continue
        value, is_loaded = op.results[0], is_a(op, ktdp.LoadOp)
        own = tuple(axes.of_value(value))
        sticks, *rows, _ = ir.RankedTensorType(value.type).shape
        uses = list(value.uses)
        readers = [number[_in_kernel(use.owner.operation)] for use in uses]
        first, last = at, max(readers, default=at)
        has_rows = True
        if is_loaded:
            first = min(readers, default=at)
            spread = firsts is not None and (value in firsts or set(own) != {None} or any(is_a(u.owner, ktdp.StoreOp) for u in uses))
            has_rows = (axes.row in own or spread) and value not in factors
        elif is_a(op, linalg.FillOp):
            first, last = 0, len(ops)
        else:
            first = min(at, begun.get(op, at))
        yield Tensor(
            value,
            own,
            _depth(own, loops),
            sticks,
            tensor_bytes(value) // prod(n for n, axis in zip(rows, own[1:], strict=False) if axis is not None or value not in factors),
            is_loaded,
            is_loaded and resident_behind(op) is not None,
            has_rows,
            first,
            last,
            live_at_once(op) if is_a(op, ktdp.InterTileReduceOp) else 0,
            value in left or value in between or (value in stored and by_stick(stored[value])),
        )


def _depth(axes: Sequence[int | None], loops: Iterable[int]) -> int:
    return max((i for i, axis in enumerate(loops, 1) if axis in axes), default=0)


def _is_stored(fill: ir.Operation) -> bool:
    """Whether a constant tensor is a value of its own, not what an op accumulates into."""
    uses = [u for u in fill.results[0].uses if not is_a(u.owner, ktdp.InterTileReduceOp)]
    return any(not is_a(u.owner, linalg.GenericOp) or u.operand_number < len(u.owner.operands) - 1 for u in uses)


def _in_kernel(op: ir.Operation) -> ir.Operation:
    """The op of the kernel that has `op` in it."""
    while not is_a(op.parent, func.FuncOp):
        op = op.parent.operation
    return op


def _overlapping(tensors: Collection[Tensor], matmuls: Sequence[Matmul]) -> tuple[Mapping[ir.Value, int], ...]:
    seconds, ops = {m.second for m in matmuls}, {m.op for m in matmuls}
    found: dict[tuple[object, ...], dict[ir.Value, int]] = {}
    for t in tensors:
        load = t.value.owner.operation
        if not t.is_loaded or t.is_resident or not direct(tile_of(load)) or t.value in seconds:
            continue
        if not all(is_a(u.owner, linalg.GenericOp) and u.owner not in ops for u in t.value.uses):
            continue
        view = tile_of(load).operands[0].owner.opview
        constant, terms = _distance(view.offset)
        bounds = str(view.operation.attributes["coordinate_set"]), view.masked, str(tile_of(load).attributes["access_tile_set"])
        key = terms, tuple(view.sizes), tuple(view.strides), t.axes, tuple(tile_of(load).operands)[1:], *bounds
        found.setdefault(key, {})[t.value] = constant
    groups = [sorted(group.items(), key=lambda member: member[1]) for group in found.values() if len(set(group.values())) > 1]
    return tuple({value: at - group[0][1] for value, at in group} for group in groups)


def _distance(offset: ir.Value) -> tuple[int, frozenset[ir.Value]]:
    """An offset as a number and the values that are added to it."""
    if (number := constant_of(offset)) is not None:
        return number, frozenset()
    if isinstance(offset.owner, ir.Block) or not is_a(offset.owner, arith.AddIOp):
        return 0, frozenset({offset})
    (a, some), (b, others) = map(_distance, offset.owner.operands)
    return (a + b, some | others) if not some & others else (0, frozenset({offset}))


# Ops that work on each stick by itself: where rows are too long for the scratchpad, it holds some of their sticks at a time


def _is_local(g: Generic, sticks: int) -> bool:
    """Whether an op computes each stick from the same stick of its operands, and from columns; or columns from columns."""
    if not g.is_pointwise or any(is_a(op, linalg.IndexOp) for op in g.body_ops):
        return False
    result = len(g.inputs)
    if sticks_of(g.op.results[0]) == 1:
        return all(sticks_of(v) == 1 for v in g.inputs)
    same = [g.loop_of(i, 0) == g.loop_of(result, 0) if sticks_of(v) == sticks else sticks_of(v) == 1 for i, v in enumerate(g.inputs)]
    return sticks_of(g.op.results[0]) == sticks and all(same)
