"""Contractions of a tiled kernel: loops over output sticks and over K that carries one f32 accumulator block.

Each trip multiplies one 64x64 block of the second operand, which streams by or is a slice of one that stays in LX. What alone reads the
result is computed on the finished accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

from ktir.analysis.axes import k_in_stick
from ktir.dialects import ktdp
from ktir.dialects.structured import (
    Generic,
    affine_map,
    clone_ops,
    element_of,
    elementwise,
    extended,
    filled,
    generic,
    index_constant,
    index_sum,
    sum_of_products,
)
from ktir.mlir import arith, ir, is_a, scf, tensor
from ktir.passes.tiling.blocks import Blocks, carried_along, filled_along, insert_part, insert_stick, part, rebuilt, stick, times
from ktir.passes.tiling.plan.tile_facts import Matmul
from ktir.passes.tiling.plan.tile_views import IndirectWindow, Window
from ktir.target import LANES, is_byte


class Factor(NamedTuple):
    """What a block of a second operand becomes in front of the array, at `taps`."""

    blocks: Blocks
    m: Matmul
    taps: Sequence[ir.Value] = ()

    def made(self, block: ir.Value, stick_: ir.Value) -> ir.Value:
        """The block as it is multiplied: elements of one byte become such of the first operand, exactly, or what the body makes of them
        and of the numbers of a stick of columns."""
        g, to = self.m.g, element_of(self.m.g.inputs[0])
        if not is_byte(element_of(block)):
            return block
        empty = tensor.EmptyOp(ir.RankedTensorType(block.type).shape, to).result
        if (factor := g.made_factor) is None:
            return elementwise([block], empty, lambda x: extended(x[0], to))
        _, *arguments, _ = g.body.arguments

        def body(scalars: list[ir.Value]) -> ir.Value:
            mapping = dict(zip(arguments, scalars, strict=False))
            clone_ops([o for o in g.body_ops[:-3] if g.body.arguments[0] not in list(o.operands)], mapping)
            return mapping[factor]

        others = [self._numbers(i, stick_) for i in range(2, len(g.inputs))]
        walks = [[None, None, None if g.loop_of(i, len(g.maps[i].results) - 1) is None else 2] for i in range(2, len(g.inputs))]
        return elementwise([block, *others], empty, body, [[0, 1, 2], *walks])

    def _numbers(self, number: int, stick_: ir.Value) -> ir.Value:
        """An operand that factors are computed of: [1, 1, lanes]."""
        g, value = self.m.g, self.m.g.inputs[number]
        built = self.blocks.built[value]
        zero, tap = index_constant(0), self.m.factor_taps.get(value)
        at = [zero if g.loop_of(number, 0) is None else stick_, zero if tap is None else self.taps[tap]]
        return part(built, at, [1, 1, LANES])


class Weights(NamedTuple):
    """Where the blocks of a second operand come from: one that is in LX as a whole, or memory at a tap of a window."""

    whole: ir.Value | None
    memory: Window | IndirectWindow | None
    element: ir.Type
    factor: Factor
    before: int | ir.Value = 0
    """Rows of a whole one before those of the tap."""

    @staticmethod
    def of(blocks: Blocks, m: Matmul, inside: str = "", taps: Sequence[ir.Value] = ()) -> Weights:
        """Those of a contraction at a place, and at `taps`; `inside` as of a place."""
        before: int | ir.Value = 0
        for tap, at in zip(m.taps, taps, strict=False):
            before = index_sum(times(before, tap.extent), at)
        before = times(before, whole_shape(m)[1] // prod(tap.extent for tap in m.taps))
        if (whole := blocks.whole.get(m.op)) is not None:
            return Weights(whole, None, element_of(m.second), Factor(blocks, m, taps), before)
        at_taps = {tap.second: at for tap, at in zip(m.taps, taps, strict=False)}
        memory = blocks.window(m.second.owner.operation, m.second, inside, at_taps)
        return Weights(None, memory, element_of(m.second), Factor(blocks, m, taps), before)

    def block(self, first: ir.Value, number: ir.Value, filling: Sequence[ir.Value] = ()) -> tuple[ir.Value, list[ir.Value]]:
        """The block of 64 rows `number` in stick `first`, as it is multiplied; with it the tensor that keeps what is loaded, if there is
        one."""
        row = arith.MulIOp(number, index_constant(LANES)).result
        inside = index_sum(self.before, row)
        assert not isinstance(inside, int)
        shape = [1, LANES, LANES]
        if self.memory is None:
            assert self.whole is not None
            return self.factor.made(part(self.whole, [first, inside], shape), first), []
        block = ktdp.load(self.memory.tile(first, row, shape), self.element)
        if not filling:
            return self.factor.made(block, first), []
        (tensor_,) = filling
        filled_ = insert_part(block, tensor_, [first, inside])
        return self.factor.made(part(filled_, [first, inside], shape), first), [filled_]


def load_whole(blocks: Blocks, m: Matmul) -> None:
    """Load a second operand that stays, tap by tap and then stick by stick; rows beyond the tensor are clipped."""
    element = element_of(m.second)
    if not m.taps:
        memory = blocks.window(m.second.owner.operation, m.second)
        blocks.whole[m.op] = ktdp.load(memory.tile(0, 0, whole_shape(m)), element)
        return
    sticks, rows, lanes = whole_shape(m)
    shape = [1, rows // prod(tap.extent for tap in m.taps), lanes]

    def at(taps: list[ir.Value], filling: list[ir.Value]) -> list[ir.Value]:
        weights = Weights.of(blocks, m, taps=taps)

        def stick_of(number: int | ir.Value, so_far: ir.Value) -> ir.Value:
            assert weights.memory is not None
            place = [index_constant(n) if isinstance(n, int) else n for n in (number, weights.before)]
            return insert_part(ktdp.load(weights.memory.tile(number, 0, shape), element), so_far, place)

        return [filled_along(sticks, filling[0], stick_of)]

    (blocks.whole[m.op],) = _along_taps(m, [], [tensor.EmptyOp([sticks, rows, lanes], element).result], at)


def whole_shape(m: Matmul) -> list[int]:
    sticks, *_, rows, _ = ir.RankedTensorType(m.second.type).shape
    return [sticks, prod(tap.extent for tap in m.taps) * -(-rows // LANES) * LANES, LANES]


def _along_taps(
    m: Matmul, open_: list[ir.Value], carried: list[ir.Value], build: Callable[[list[ir.Value], list[ir.Value]], list[ir.Value]]
) -> list[ir.Value]:
    """Loops over the taps of a window, of which the first ones are `open_`; `build` gets all counters and what is carried."""
    if len(open_) == len(m.taps):
        return build(open_, carried)
    extent = m.taps[len(open_)].extent
    loop = scf.ForOp(index_constant(0), index_constant(extent), index_constant(1), carried)
    with ir.InsertionPoint(loop.body):
        scf.YieldOp(_along_taps(m, [*open_, loop.induction_variable], list(loop.inner_iter_args), build))
    return list(loop.results)


class _Walk(NamedTuple):
    """A contraction in a loop over sticks of columns, with its epilogue. `filling`: what keeps the weights that are loaded, if they
    stay."""

    m: Matmul
    epilogue: Sequence[ir.Operation]
    weights: Weights | None
    """Those of all taps, None where each tap has its own."""
    filling: list[ir.Value]

    @staticmethod
    def of(blocks: Blocks, m: Matmul) -> _Walk:
        """That of a contraction, with the operands of its epilogue loaded."""
        epilogue = blocks.plan.epilogues.get(m.op, ())
        for op in epilogue:
            _load_operands(blocks, Generic(op))
        fills = m.op not in blocks.whole and any(r.matmul is m and r.filled for r in blocks.plan.residents)
        filling = [tensor.EmptyOp(whole_shape(m), element_of(m.second)).result] if fills else []
        return _Walk(m, epilogue, None if m.taps else Weights.of(blocks, m), filling)

    @property
    def target(self) -> ir.Value:
        """What is there behind it, of the divided kernel."""
        return [self.m.op, *self.epilogue][-1].results[0]

    def stick(self, blocks: Blocks, n: ir.Value, so_far: Sequence[ir.Value], before: Mapping[ir.Value, ir.Value]) -> list[ir.Value]:
        """One stick, and the tensor that keeps weights. `before`: sticks that have been computed for it."""
        accumulator, filled_ = _sum(blocks, self.m, n, self.weights, so_far)
        return [self.finished(blocks, n, accumulator, before), *filled_]

    def finished(self, blocks: Blocks, n: ir.Value, accumulator: ir.Value, before: Mapping[ir.Value, ir.Value]) -> ir.Value:
        """What becomes of a finished accumulator: what the epilogue makes of it, or a copy."""
        if not self.epilogue:
            return elementwise([accumulator], blocks.empty(1, element_of(self.target)))
        there = {**before, self.m.result: accumulator}
        for op in self.epilogue:
            there[op.results[0]] = _of_stick(blocks, Generic(op), there, n)
        return there[self.target]


def build(blocks: Blocks, m: Matmul) -> None:
    """One contraction, with its epilogue, and those that are computed with it."""
    if blocks.plan.k_parts > 1:
        _build_in_parts(blocks, m)
        return
    walks = [_Walk.of(blocks, each) for each in blocks.facts.computed_with(m)]
    target = walks[-1].target
    stores = blocks.plan.stored.get(target, ())
    sliced = bool(stores) and blocks.facts.tensors[target].by_stick
    carried = [] if sliced else [blocks.empty(m.n, element_of(target))]
    fillings = [value for walk in walks for value in walk.filling]
    outer = scf.ForOp(index_constant(0), index_constant(m.n), index_constant(1), [*carried, *fillings])
    with ir.InsertionPoint(outer.body):
        n = outer.induction_variable
        values = list(outer.inner_iter_args)
        whole, so_far, filled_ = values[: len(carried)], iter(values[len(carried) :]), list[ir.Value]()
        finished = dict[ir.Value, ir.Value]()
        for walk in walks:
            with walk.m.op.location:
                finished[walk.target], *more = walk.stick(blocks, n, list(islice(so_far, len(walk.filling))), finished)
            filled_ += more
        for store in stores if sliced else ():
            with store.location:
                blocks.store_rows(store, finished[target], n)
        scf.YieldOp([*(insert_stick(finished[target], w, n) for w in whole), *filled_])
    if not sliced:
        blocks.built[target] = outer.results[0]
        for store in stores:
            with store.location:
                blocks.store(store)
    kept = list(outer.results)[len(carried) :]
    blocks.whole.update(zip((walk.m.op for walk in walks if walk.filling), kept, strict=True))


def _build_in_parts(blocks: Blocks, m: Matmul) -> None:
    """One contraction along one part of K after the other. In the last one each stick of columns is finished, and leaves."""
    walk, element = _Walk.of(blocks, m), element_of(m.result)
    sticks, source = m.k // blocks.plan.k_parts, m.g.inputs[0].owner.operation
    weights = Weights.of(blocks, m)

    def column(rows: ir.Value, first: ir.Value, n: ir.Value, sums: ir.Value) -> ir.Value:
        """The sums of a stick of columns, with those along the part that begins at `first`."""

        def step(k: ir.Value, so_far: ir.Value) -> ir.Value:
            at = index_sum(first, k)
            b, _ = weights.block(*((at, n) if k_in_stick(m.g) else (n, at)))
            return multiply(m.g, stick(rows, k), b, so_far)

        own = carried_along(0, sticks, 1, filled([1, blocks.plan.block_rows, LANES], element, 0.0), step)
        return elementwise([stick(sums, n), own], blocks.empty(1, element), lambda x: arith.AddFOp(x[0], x[1]).result)

    def along_part(first: ir.Value, sums: ir.Value) -> ir.Value:
        rows = blocks.load_sticks(source, first, sticks)
        return carried_along(0, m.n, 1, sums, lambda n, so_far: insert_stick(column(rows, first, n, so_far), so_far, n))

    sums = carried_along(0, m.k - sticks, sticks, filled([m.n, blocks.plan.block_rows, LANES], element, 0.0), along_part)
    last = index_constant(m.k - sticks)
    rows = blocks.load_sticks(source, last, sticks)

    def leave(n: ir.Value) -> None:
        finished = walk.finished(blocks, n, column(rows, last, n, sums), {})
        for store in blocks.plan.stored[walk.target]:
            with store.location:
                blocks.store_rows(store, finished, n)

    blocks.along(0, m.n, 1, leave)


def _sum(blocks: Blocks, m: Matmul, n: ir.Value, weights: Weights | None, filling: Sequence[ir.Value]) -> tuple[ir.Value, list[ir.Value]]:
    """The loops over taps and K for one stick of columns: their accumulator, and the tensor that they have filled with weights, if they do
    that. `weights`: those of all taps, None where each tap has its own."""
    rows = m.g.inputs[0]

    def along_k(taps: list[ir.Value], carried: list[ir.Value]) -> list[ir.Value]:
        here = weights or Weights.of(blocks, m, taps=taps)
        at_taps = {tap.first: at for tap, at in zip(m.taps, taps, strict=True)}
        loop = scf.ForOp(index_constant(0), index_constant(m.tap_sticks), index_constant(1), carried)
        with ir.InsertionPoint(loop.body):
            k = loop.induction_variable
            accumulator, *so_far = loop.inner_iter_args
            if rows in blocks.plan.covers:
                a = blocks.windowed(rows, k, at_taps)
            elif rows in blocks.plan.streamed:
                a = blocks.load_sticks(rows.owner.operation, k, taps=at_taps)
            else:
                a = stick(blocks.built[rows], k)
            b, so_far = here.block(*((k, n) if k_in_stick(m.g) else (n, k)), so_far)
            scf.YieldOp([multiply(m.g, a, b, accumulator), *so_far])
        return list(loop.results)

    cleared = filled([1, blocks.plan.block_rows, LANES], element_of(m.result), 0.0)
    accumulator, *so_far = _along_taps(m, [], [cleared, *filling], along_k)
    return accumulator, so_far


def _load_operands(blocks: Blocks, g: Generic) -> None:
    """Load what an op that is computed ahead of its place reads."""
    for value in g.inputs:
        if value not in blocks.built and is_a(value.owner, ktdp.LoadOp):
            with value.owner.location:
                blocks.load(value.owner.operation)


def _of_stick(blocks: Blocks, g: Generic, there: Mapping[ir.Value, ir.Value], n: ir.Value) -> ir.Value:
    """One stick of an op on each element; `there` are the sticks that have been computed for it."""
    inputs = []
    for i, operand in enumerate(g.inputs):
        if operand in there:
            inputs.append(there[operand])
        elif g.loop_of(i, 0) is None:
            inputs.append(blocks.built[operand])
        else:
            inputs.append(stick(blocks.built[operand], n))
    return rebuilt(g, inputs, blocks.empty(1, element_of(g.op.results[0])))


def multiply(g: Generic, a: ir.Value, b: ir.Value, accumulator: ir.Value) -> ir.Value:
    """One block: accumulator[0, m, j] += sum over i of a[0, m, i] * b[0, i, j] (b[0, j, i] where K lies in b's stick)."""
    transposed = k_in_stick(g)
    maps = [
        affine_map(3, [None, 0, 2]),
        affine_map(3, [None, 1, 2] if transposed else [None, 2, 1]),
        affine_map(3, [None, 0, 1]),
    ]
    return generic([a, b], accumulator, maps, ["parallel", "parallel", "reduction"], sum_of_products, loc=g.op.location)
