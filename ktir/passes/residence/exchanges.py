"""Tensors that go from the cores that wrote them to all cores, over the ring: kernels of one exchange per piece, and nothing else.

A *piece* is what one core has of one store. Every core gets every piece and puts it where it lies in the whole tensor, so that the
addresses of a kernel that reads the tensor stay as they are, but for their base. An exchange kernel has the attribute `ktir.exchange`
instead of a division; it lies between two others from the divided level on and is at no level changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from ktir.analysis.attributes.residents import EXCHANGE, RESIDENT, RESIDENTS
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import index_constant
from ktir.isa.descriptor import MAX_RANK
from ktir.mlir import arith, func, integer_attribute, ir, is_a
from ktir.passes.residence.pool_accesses import Footprint, Numbers
from ktir.passes.residence.shares import Disagreement, Walk
from ktir.target import LANES, element_bytes


class Piece(NamedTuple):
    """Entries that core `core` sends: a box of `extents`, how it walks the core's share, and how it walks the whole tensor."""

    core: int
    extents: tuple[int, ...]
    source: Walk
    place: Walk

    @property
    def entries(self) -> int:
        """Number of entries."""
        return prod(self.extents)


def pieces(writes: Sequence[Footprint], walks: Sequence[Walk], wanted: Numbers) -> list[Piece]:
    """What cores send so that all have the entries `wanted`, of stores that walk the cores' shares as `walks` say.

    Raises Disagreement for a piece that no descriptor can walk.
    """
    found = []
    for footprint, walk in zip(writes, walks, strict=True):
        for core in range(len(footprint.start)):
            live = footprint.live[core]
            if live.all() and np.isin(footprint.entries(core), wanted).any():
                found.append(_piece(core, live.tolist(), walk, int(footprint.start[core]), footprint.strides))
    return found


def _piece(core: int, extents: list[int], walk: Walk, start: int, strides: Sequence[int]) -> Piece:
    """A piece with as few dims as it has; dims that follow each other on both sides are one."""
    dims: list[tuple[int, int, int]] = []
    for extent, own, whole in zip(extents, walk.strides, strides, strict=True):
        if extent == 1:
            continue
        if dims and dims[-1][1:] == (extent * own, extent * whole):
            dims[-1] = (dims[-1][0] * extent, own, whole)
        else:
            dims.append((extent, own, whole))
    if len(dims) > MAX_RANK:
        raise Disagreement(f"a core's part of it has {len(dims)} dims, but a core sends at most {MAX_RANK}")
    while len(dims) < 2:
        dims.insert(0, (1, LANES, LANES))
    sizes, own, whole = zip(*dims, strict=True)
    return Piece(core, sizes, Walk(walk.first, own), Walk(start, whole))


@dataclass(frozen=True)
class Moved:
    """A tensor that all cores get: where a core's share lies, where the whole lies, from its entry `first` on, and its pieces."""

    share: kt.ResidentAttr
    whole: kt.ResidentAttr
    first: int
    element: ir.Type
    pieces: tuple[Piece, ...]
    location: ir.Location


def exchange_kernel(before: func.FuncOp, name: str, cores: int, tensors: Sequence[Moved], residents: Sequence[kt.ResidentAttr]) -> None:
    """Make the kernel that moves tensors, in front of another one. `residents`: all that lies in the scratchpad meanwhile, by address."""
    with ir.InsertionPoint(before), before.location:
        function = func.FuncOp(name, ([], []))
        function.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(cores)])
        function.attributes[EXCHANGE] = ir.UnitAttr.get()
        function.attributes[RESIDENTS] = ir.ArrayAttr.get(list(residents))
        function.attributes["ktir.lx_bytes"] = integer_attribute(0)
    with ir.InsertionPoint(function.add_entry_block()), before.location:
        (tile,) = ktdp.get_compute_tile_id()
        for tensor in tensors:
            with tensor.location:
                for piece in tensor.pieces:
                    _exchange(tensor, piece, cores, tile)
        func.ReturnOp([])


def _exchange(tensor: Moved, piece: Piece, cores: int, tile: ir.Value) -> None:
    """One core sends a piece, all receive it."""
    shape = [*piece.extents, LANES]
    sent = ktdp.load(_tile(tensor, tensor.share, piece.source, shape, _only(piece.core, piece.extents[0], tile)), tensor.element)
    group = ir.Attribute.parse("affine_set<(g) : (g == 0)>")
    sender = ir.Attribute.parse(f"affine_set<(i)[g] : (i - {piece.core} == 0)>")
    everyone = ir.Attribute.parse(f"affine_set<(i)[g] : (i >= 0, -i + {cores - 1} >= 0)>")
    future = ktdp.inter_tile_produce(sender, group, [sent.type], lambda _: [sent])
    (received,) = ktdp.inter_tile_consume(future, everyone)
    ktdp.store(received, _tile(tensor, tensor.whole, piece.place._replace(first=piece.place.first - tensor.first), shape))


def _only(core: int, extent: int, tile: ir.Value) -> ir.Value:
    """`extent` on one core, 0 on all others: they send nothing, and what they have may be less."""
    one = index_constant(1)
    away = arith.SubIOp(tile, index_constant(core)).result
    other = arith.MinSIOp(arith.MulIOp(away, away).result, one).result
    return arith.MulIOp(arith.SubIOp(one, other).result, index_constant(extent)).result


def _tile(tensor: Moved, resident: kt.ResidentAttr, walk: Walk, shape: list[int], own: ir.Value | None = None) -> ir.Value:
    """The access tile of a piece in a resident; `own`: how much of its first dim is there."""
    width = element_bytes(tensor.element)
    address = index_constant(resident.address // width + walk.first * LANES)
    strides = [*(s * LANES for s in walk.strides), 1]
    sizes: list[int | ir.Value] = [shape[0] if own is None else own, *shape[1:]]
    view = ktdp.construct_memory_view(address, sizes, strides, tensor.element, "ct_local", attributes={RESIDENT: resident})
    return ktdp.construct_access_tile(view, [0] * len(shape), shape)


def rebased(address: ir.Value, base: ir.Value) -> ir.Value:
    """An address in an argument as one from another base on, at the insertion point."""
    if isinstance(address.owner, ir.Block):
        return base
    first, *others = _sums(address)
    return arith.AddIOp(rebased(first, base), *others).result


def _sums(address: ir.Value) -> Iterator[ir.Value]:
    """The operands of a sum, the one that leads to the argument first."""
    a, b = address.owner.operands
    leads = isinstance(a.owner, ir.Block) or is_a(a.owner, arith.AddIOp)
    return iter((a, b) if leads else (b, a))
