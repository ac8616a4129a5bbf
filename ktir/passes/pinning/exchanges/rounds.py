"""Tables as rounds of the ring: in each, every core sends one part of what it has, and takes one part that some core sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import numpy as np

from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects.structured import constant, fill
from ktir.mlir import ir, tensor
from ktir.passes.general.cores import Cores
from ktir.passes.pinning.exchanges.tables import Box, Transfer
from ktir.passes.pinning.values.places import sticks
from ktir.passes.pinning.values.rows import physical_shape
from ktir.target import LANES

MOST_ROUNDS = 256
"""Words of one exchange."""
At = tuple[int, int]
"""A stick and a row."""


@dataclass(frozen=True)
class Piece:
    """A block of sticks and rows that goes from core to core."""

    sender: int
    source: At
    receiver: int
    target: At
    size: At


@dataclass(frozen=True)
class Round:
    """Per core whose part it takes, where the part that it sends begins, and where what it takes goes."""

    senders: tuple[int, ...]
    sources: tuple[At, ...]
    targets: tuple[At, ...]
    size: At


def fits_sticks(dim: int, table: Sequence[Transfer], shape: Sequence[int], result: Sequence[int]) -> bool:
    """Whether a dim may lie in the sticks: nobody cuts it inside of one."""
    for t in table:
        for (first, extent), whole in ((t.source[dim], shape[dim]), (t.target[dim], result[dim])):
            if first % LANES or (extent % LANES and first + extent != whole):
                return False
    return True


def pieces(table: Sequence[Transfer], shape: Sequence[int], result: Sequence[int], stick: int | None, slots: bool) -> list[Piece]:
    """The blocks of all transfers; with `slots` what a receiver gets k-th lies that many tensors further on."""
    found = []
    for t in table:
        slot = t.number * (1 if stick is None else sticks(result[stick])) if slots else 0
        if _is_whole(t.source, shape) and _is_whole(t.target, result):
            n_sticks, rows, _ = physical_shape(shape, stick)
            found.append(Piece(t.sender, (0, 0), t.receiver, (slot, 0), (n_sticks, rows)))
            continue
        from_stick, to_stick, count = 0, slot, 1
        if stick is not None:
            from_stick, to_stick = t.source[stick][0] // LANES, slot + t.target[stick][0] // LANES
            count = sticks(t.source[stick][1])
        rows = zip(_rows(t.source, shape, stick), _rows(t.target, result, stick), strict=True)
        for source, target, length in _runs(list(rows)):
            found.append(Piece(t.sender, (from_stick, source), t.receiver, (to_stick, target), (count, length)))
    return found


def _is_whole(box: Box, shape: Sequence[int]) -> bool:
    return all(first == 0 and extent == n for (first, extent), n in zip(box, shape, strict=True))


def _rows(box: Box, shape: Sequence[int], stick: int | None) -> list[int]:
    """The rows of a box in a tensor."""
    dims = [d for d in range(len(shape)) if d != stick]
    if not dims:
        return [0]
    grid = np.meshgrid(*(np.arange(box[d][0], box[d][0] + box[d][1]) for d in dims), indexing="ij")
    return np.ravel_multi_index(grid, [shape[d] for d in dims]).reshape(-1).tolist()


def _runs(rows: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Rows that lie side by side at both ends: one, or an even number."""
    found = []
    for _, members in groupby(enumerate(rows), lambda e: (e[1][0] - e[0], e[1][1] - e[0])):
        run = [pair for _, pair in members]
        length = len(run) if len(run) == 1 else len(run) // 2 * 2
        found.append((*run[0], length))
        if length != len(run):
            found.append((*run[-1], 1))
    return found


def rounds(moved: Sequence[Piece], cores: int, spare: At, rotate: bool) -> list[Round]:
    """A schedule. A core that takes nothing takes what it sends itself, to where something comes later, or else to `spare`; with `rotate`
    receivers begin with different senders."""
    pending = {r: list(p) for r, p in groupby(sorted(moved, key=lambda p: p.receiver), lambda p: p.receiver)}
    if rotate:
        for place, (receiver, mine) in enumerate(pending.items()):
            senders = len({p.sender for p in mine})
            first = place % senders * (len(mine) // senders)
            pending[receiver] = [*mine[first:], *mine[:first]]
    found = []
    while any(pending.values()):
        size = next(p[0].size for p in pending.values() if p)
        sent: dict[int, At] = {}
        taken: dict[int, Piece] = {}
        for receiver, mine in pending.items():
            for piece in mine:
                if piece.size == size and sent.get(piece.sender, piece.source) == piece.source:
                    sent[piece.sender], taken[receiver] = piece.source, piece
                    break
        for receiver, piece in taken.items():
            pending[receiver].remove(piece)
        some = next(iter(taken.values()))
        targets = []
        for core in range(cores):
            later = [p.target for p in pending.get(core, ()) if p.size == size]
            idle = later[0] if later else spare if core in pending else some.target
            targets.append(taken[core].target if core in taken else idle)
        senders = tuple(taken[c].sender if c in taken else c for c in range(cores))
        found.append(Round(senders, tuple(sent.get(c, some.source) for c in range(cores)), tuple(targets), size))
    return found


def delivered(
    sent: ir.Value, moved: Sequence[Piece], shape: Sequence[int], live_rows: int, cores: Cores, rotate: bool, op: ir.Operation
) -> ir.Value:
    """What each core has in the end, a tensor [sticks, rows, lanes] of which `live_rows` come; at the insertion point."""
    spare = (shape[0], 0)
    found = rounds(moved, cores.count, spare, rotate)
    if len(found) > MOST_ROUNDS:
        raise refused(
            op, f"takes {len(found)} rounds of the ring, more than {MOST_ROUNDS}; the nearest supported form sends rows side by side"
        )
    element = ir.RankedTensorType(sent.type).element_type
    spared = [r.size[0] for r in found if spare in r.targets]
    held = [shape[0] + max(spared, default=0), *shape[1:]]
    if len(found) == 1 and [*found[0].size, LANES] == held:
        return _received(sent, found[0], cores)
    whole = tensor.EmptyOp(held, element).result
    if live_rows % 2 and live_rows != 1:  # nobody sends the row that makes them even
        number: float | int = 0 if isinstance(element, ir.IntegerType) else 0.0
        whole = fill(constant(element, number), whole)
    for r in found:
        offsets, fixed = _offsets(cores, r.targets)
        piece = _received(sent, r, cores)
        whole = tensor.InsertSliceOp(piece, whole, offsets, [], [], fixed, [*r.size, LANES], [1, 1, 1]).result
    return cut(whole, [0, 0, 0], shape) if spared else whole


def _received(sent: ir.Value, r: Round, cores: Cores) -> ir.Value:
    """What each core takes in a round."""
    size = [*r.size, LANES]
    if list(ir.RankedTensorType(sent.type).shape) != size:
        offsets, fixed = _offsets(cores, r.sources)
        part = ir.RankedTensorType.get(size, ir.RankedTensorType(sent.type).element_type)
        sent = tensor.ExtractSliceOp(part, sent, offsets, [], [], fixed, size, [1, 1, 1]).result
    group = ir.Attribute.parse("affine_set<(g) : (g == 0)>")
    future = ktdp.inter_tile_produce(cores.set(sorted(set(r.senders))), group, [sent.type], lambda _: [sent])
    (received,) = ktdp.inter_tile_consume(future, cores.set(range(cores.count)), cores.function(r.senders))
    return received


def _offsets(cores: Cores, at: Sequence[At]) -> tuple[list[ir.Value], list[int]]:
    """Dynamic and static offsets of a slice that begins elsewhere on each core."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    found = [cores.value([a[k] for a in at]) for k in range(2)]
    return [f for f in found if not isinstance(f, int)], [f if isinstance(f, int) else dynamic for f in found] + [0]


def cut(whole: ir.Value, at: Sequence[int], shape: Sequence[int]) -> ir.Value:
    """A slice of a tensor."""
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(whole.type).element_type)
    return tensor.ExtractSliceOp(type_, whole, [], [], [], list(at), list(shape), [1, 1, 1]).result


def cut_by_core(whole: ir.Value, first: Sequence[int], shape: Sequence[int], cores: Cores) -> ir.Value:
    """A slice that begins at another stick on each core."""
    offsets, fixed = _offsets(cores, [(n, 0) for n in first])
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(whole.type).element_type)
    return tensor.ExtractSliceOp(type_, whole, offsets, [], [], fixed, list(shape), [1, 1, 1]).result


def live_rows(shape: Sequence[int], stick: int | None) -> int:
    """Rows that a tensor has, without one that makes them even."""
    return prod(n for d, n in enumerate(shape) if d != stick)
