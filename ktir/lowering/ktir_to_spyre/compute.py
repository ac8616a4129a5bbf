"""Ops that compute -> actions: a contraction block feeds PT, a pointwise op or reduction goes through SFP, and the op that consumes a
finished accumulator drains it. A block of R rows is halved over the corelets; a single row is done by both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects.byte_pairs import stick_of_pair
from ktir.dialects.structured import IDENTITY, Generic
from ktir.isa.program import Word, word
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.access import Tile
from ktir.lowering.ktir_to_spyre.bodies import Stream, VectorBody
from ktir.lowering.ktir_to_spyre.descriptors import Walk
from ktir.lowering.ktir_to_spyre.lane_masks import LaneMasks
from ktir.lowering.ktir_to_spyre.operands import Operands
from ktir.lowering.ktir_to_spyre.sync import Action
from ktir.mlir import arith, ir, is_a, linalg, scf
from ktir.target import LANES, Target


def multiply(operands: Operands, g: Generic, held: ir.Operation | None) -> Action:
    """A block of a contraction; `held` as `begun` gives it of the sums that PT has."""
    _check_sums(g, held)
    a, b = (operands.of(v) for v in g.inputs)
    rows = _corelet_rows(a.shape[1], g.op)
    transposed = g.loop_of(1, 1) != g.iterators.index("reduction")
    number = operands.source_id(g.op)
    weights = operands.table.describe(b, [(LANES, 1)], corelet_rows=b.corelet_rows if b.per_corelet else 0)
    halved = a.shape[1] > 1
    activations = operands.table.describe(a, [(rows, 1)], corelet_rows=rows if halved else 0)
    return Action(
        {
            Unit.LXLU: [
                word("push", number, lx=weights, fifo="W", transpose=transposed),
                word("push", number, lx=activations, fifo="A"),
            ],
            Unit.PT: [word("ldw", number, half=a.element.half), word("mm", number, rows=rows, half=a.element.half)],
        },
        [operands.touch(Unit.LXLU, b, False, halved=b.per_corelet), operands.touch(Unit.LXLU, a, False, halved=halved)],
    )


def vector(operands: Operands, g: Generic, target: Tile, machine: Target) -> list[Action]:
    """A pointwise op or a reduction over the sticks of a row. One that reads bytes is done twice: for the first rows of the pairs, and for
    the second ones."""
    _check_start(g)
    tiles = [None if is_accumulator(v) else operands.of(v) for v in g.inputs]
    if not any(tile is not None and tile.element.pair for tile in tiles):
        return [_vector(operands, g, tiles, target, machine)]
    if target.element.pair or not g.is_pointwise or None in tiles:
        raise refused(g.op, "on elements of one byte is supported where it reads them element for element and makes wider ones")
    return [
        _vector(operands, g, [t and _of_pairs(t, g, i, row) for i, t in enumerate(tiles)], _rows(target, row), machine, row)
        for row in (0, 1)
    ]


def _of_pairs(tile: Tile, g: Generic, operand: int, row: int) -> Tile:
    """What is read for the rows `row` of the pairs."""
    if tile.element.pair and g.loop_of(operand, 1) is None:
        raise refused(g.op, "spreads a row of elements of one byte, which is not supported")
    return tile if tile.element.pair or g.loop_of(operand, 1) is None else _rows(tile, row)


def _rows(tile: Tile, first: int) -> Tile:
    """Every other row of a tile, which nothing clips."""
    if tile.clips or tile.shape[1] % 2:
        raise refused(tile.op, "is on rows that are not all there, beside elements of one byte")
    anchor = replace(tile.anchor, constant=tile.anchor.constant + first * tile.strides[1])
    strides = (tile.strides[0], 2 * tile.strides[1], *tile.strides[2:])
    return replace(tile, anchor=anchor, shape=(tile.shape[0], tile.shape[1] // 2, *tile.shape[2:]), strides=strides)


def _every_other_stick(tile: Tile, first: int) -> Tile:
    """The sticks 2s + `first` of a tile; nothing clips them."""
    if any(clip.lanes or (clip.dim == 0 and clip.step) for clip in tile.clips) or tile.shape[0] % 2:
        raise refused(tile.op, "is on sticks that are not all there, of which pairs are made")
    anchor = replace(tile.anchor, constant=tile.anchor.constant + first * tile.strides[0])
    return replace(tile, anchor=anchor, shape=(tile.shape[0] // 2, *tile.shape[1:]), strides=(2 * tile.strides[0], *tile.strides[1:]))


def _vector(operands: Operands, g: Generic, tiles: Sequence[Tile | None], target: Tile, machine: Target, part: int = 0) -> Action:
    """An op, or of one that reads bytes the `part` of its rows; tiles are of those."""
    number = operands.source_id(g.op)
    stick_loop, row_loop, lane_loop = (0, 1, 2) if g.is_pointwise else (1, 0, 2)
    rows = target.shape[1] if target.per_corelet else _corelet_rows(target.shape[1], g.op)
    halved = rows < target.shape[1]
    sticks = target.shape[0]
    if not g.is_pointwise:
        sticks = max((t.shape[0] for i, t in enumerate(tiles) if t is not None and g.loop_of(i, 0) is not None), default=1)
    pushes: list[Word] = []
    streams: list[Stream] = []
    accesses = [operands.touch(Unit.LXSU, target, True, halved=halved or target.per_corelet)]
    program: dict[Unit, list[Word]] = {}
    for i, tile in enumerate(tiles):
        parity = stick_of_pair(g, i)
        check_walk(g, i, (stick_loop, row_loop, lane_loop), (sticks, target.shape[1], 0))
        if tile is None:
            if len(list(g.inputs[i].uses)) != 1:
                raise refused(g.op, "reads sums that another operand reads too, but the array gives them away once")
            program[Unit.PT] = [word("pto", number)]
            streams.append(Stream("P", "each"))
            continue
        whole = tile  # whose rows the corelets share, whichever sticks of them are read
        if parity is not None:
            tile = _every_other_stick(tile, parity)
        by_stick = (parity is not None or g.loop_of(i, 0) == stick_loop) and sticks > 1
        by_row = g.loop_of(i, 1) == row_loop
        splat = g.loop_of(i, 2) is None
        walk: Walk = [(rows, 1 if by_row else None)]
        if by_stick or (sticks > 1 and not splat):
            walk.append((sticks, 0 if by_stick else None))
        once = sticks > 1 and len(walk) == 1
        lx = operands.table.describe(tile, walk, corelet_rows=rows if by_row and halved else 0, splat=splat)
        if len(pushes) == 3:
            raise Unsupported(
                "'linalg.generic' op reads more than three tensors, but the vector unit has three inputs; run ktir-split-bodies first",
                location_text(g.op.location),
            )
        fifo = f"I{len(pushes)}"
        pushes.append(word("push", number, lx=lx, fifo=fifo))
        streams.append(Stream(fifo, "start" if once else "each"))
        accesses.append(operands.touch(Unit.LXLU, whole, False, halved=by_row and halved))
    if len(pushes) > 1:
        pushes.insert(0, word("par", number, streams=len(pushes)))
    if pushes:
        program[Unit.LXLU] = pushes
    body = VectorBody(g, streams, LaneMasks(stick_loop, lane_loop, sticks), number, machine, part)
    program[Unit.SFP] = body.build(rows, sticks)
    out: Walk = [(rows, 1)]
    if g.is_pointwise and sticks > 1:
        out.append((sticks, 0))
    apart = halved or target.per_corelet
    further = target.corelet_rows if target.per_corelet else rows if halved else 0
    result = operands.table.describe(target, out, corelet_rows=further, one_corelet=not apart)
    program[Unit.LXSU] = [word("pull", number, lx=result, fifo="O")]
    return Action(program, accesses)


def _check_start(g: Generic) -> None:
    """The vector unit has no input for `outs`: a reduction begins with what leaves every value as it is, a pointwise op reads none."""
    if g.is_pointwise:
        if any(True for _ in g.body.arguments[len(g.inputs)].uses):
            raise refused(g.op, "reads its 'outs' operand; the nearest supported form gives it as one of 'ins' too")
        return
    kind = g.combiner
    if kind is not None and _filled_with(g.init) != IDENTITY[kind]:
        raise refused(
            g.op,
            f"accumulates into 'outs', which expects 'linalg.fill' of {IDENTITY[kind]}, what '{kind}' leaves as it is; the nearest "
            "supported form reduces into that and combines the result with 'outs' in a pointwise op",
        )


def begun(op: ir.Operation) -> tuple[ir.Operation, ir.Value]:
    """Of sums that `op`, a block of a contraction or a loop over some, adds to: what adds to them first, around which no loop carries them,
    and what that starts from."""
    first, start = op, _start(op)
    while True:
        if is_accumulator(start):
            first, start = start.owner.operation, _start(start.owner.operation)
        elif isinstance(start.owner, ir.Block) and is_a(loop := start.owner.owner, scf.ForOp):
            number = ir.BlockArgument(start).arg_number - 1
            carried = list(loop.regions[0].blocks[0].operations)[-1].operands
            if number < 0 or _in_block(carried[number]) != start:
                break
            first, start = loop.operation, list(loop.operands)[3 + number]
        else:
            break
    return first, start


def _start(op: ir.Operation) -> ir.Value:
    return list(op.operands)[3] if is_a(op, scf.ForOp) else Generic(op).init


def _in_block(value: ir.Value) -> ir.Value:
    """Where sums begin in the block in which they have come to `value`."""
    while is_accumulator(value):
        value = _start(value.owner.operation)
    return value


def _check_sums(g: Generic, held: ir.Operation | None) -> None:
    """PT starts from +0, adds up over loops that carry the sums and over blocks in a row, has no other sums meanwhile, and is read once."""
    first, start = begun(g.op)
    if held is not None and held != first:
        raise refused(g.op, "adds to sums while the array holds others that nothing has read yet")
    uses = [use.owner for use in g.op.results[0].uses]
    kept = len(uses) == 1 and is_a(uses[0], scf.YieldOp, scf.ForOp, linalg.GenericOp)
    zero = _filled_with(start)
    if not kept or zero != 0 or math.copysign(1, zero) < 0:
        raise refused(
            g.op,
            "accumulates into 'outs', which expects 'linalg.fill' of 0.0 that the loops around carry; the nearest supported form "
            "multiplies into that and adds the sums to 'outs' in a pointwise op",
        )


def _filled_with(start: ir.Value) -> float | None:
    """The number that a tensor is filled with; None for any other tensor."""
    if not is_a(start.owner, linalg.FillOp) or not is_a(start.owner.operands[0].owner, arith.ConstantOp):
        return None
    return start.owner.operands[0].owner.attributes["value"].value


def check_walk(g: Generic, operand: int, loops: tuple[int, int, int], extents: tuple[int, int, int]) -> None:
    """Entries come in the order in which they are computed; what is spread over a loop of several trips is pushed again from LX, which
    the accumulators of PT cannot be."""
    walked = g.walk(operand)
    in_order = len(walked) == 3 and all(w in (loop, None) for w, loop in zip(walked, loops, strict=True))
    spread = any(w is None and n != 1 for w, n in zip(walked, extents, strict=False))
    if not in_order or (spread and is_accumulator(g.inputs[operand])):
        raise Unsupported(
            f"'linalg.generic' op reads operand {operand} by {g.maps[operand]}, but "
            + ("sums of the array come element for element" if in_order else "entries come in the order of its loops"),
            location_text(g.op.location),
        )


def _corelet_rows(rows: int, op: ir.Operation) -> int:
    """Rows per corelet; a single row is worked on by both."""
    if rows == 1:
        return 1
    if rows % 2:
        raise Unsupported(
            f"'linalg.generic' op works on {rows} rows, but a block is halved over two corelets and needs an even number",
            location_text(op.location),
        )
    return rows // 2


def is_accumulator(value: ir.Value) -> bool:
    """Whether PT holds a value: the sums of a loop, or of a block."""
    owner = value.owner
    return is_a(owner, scf.ForOp) or (is_a(owner, linalg.GenericOp) and Generic(owner.operation).is_contraction)
