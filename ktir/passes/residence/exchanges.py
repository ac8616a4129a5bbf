"""Tensors that go from the cores that wrote them to those that read them, over the ring: kernels of one exchange per round, nothing else.

In a round (`rounds`) some cores send a piece of what they have, to different receivers. A core puts what it gets where it lies in the
whole tensor, so that the addresses of a kernel that reads the tensor stay as they are, but for their base. An exchange kernel has the
attribute `ktir.exchange` instead of a division; it lies between two others from the divided level on and is at no level changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ktir.analysis.attributes.residents import EXCHANGE, RESIDENT, RESIDENTS
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import index_constant
from ktir.mlir import arith, func, integer_attribute, ir, is_a
from ktir.passes.general.cores import Cores
from ktir.passes.residence.rounds import Round
from ktir.target import LANES, element_bytes


@dataclass(frozen=True)
class Moved:
    """A tensor that cores get parts of: where a core's share lies, where the whole lies, from its entry `first` on, and its rounds."""

    share: kt.ResidentAttr
    whole: kt.ResidentAttr
    first: int
    element: ir.Type
    rounds: tuple[Round, ...]
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
                for r in tensor.rounds:
                    _exchange(tensor, r, Cores(cores, tile, 0, cores))
        func.ReturnOp([])


def _exchange(tensor: Moved, r: Round, cores: Cores) -> None:
    """What goes over the ring at once. Cores that send nothing have nothing there, perhaps."""
    own = [r.live[c] if c in r.live else 0 for c in range(cores.count)]
    sent = ktdp.load(_tile(tensor, tensor.share, r, cores.value(r.sources), r.source_strides, cores.value(own)), tensor.element)
    group = ir.Attribute.parse("affine_set<(g) : (g == 0)>")
    future = ktdp.inter_tile_produce(cores.set(sorted(set(r.senders))), group, [sent.type], lambda _: [sent])
    (received,) = ktdp.inter_tile_consume(future, cores.set(range(cores.count)), cores.function(r.senders))
    taken = cores.value([r.live[s] for s in r.senders])
    places = cores.value([p - tensor.first for p in r.places])
    ktdp.store(received, _tile(tensor, tensor.whole, r, places, r.place_strides, taken))


def _tile(
    tensor: Moved, resident: kt.ResidentAttr, r: Round, first: int | ir.Value, strides: Sequence[int], live: int | ir.Value
) -> ir.Value:
    """The access tile of a round in a resident, from its entry `first` on; `live`: how much of the dim in which pieces differ is there."""
    base = index_constant(resident.address // element_bytes(tensor.element) + (first * LANES if isinstance(first, int) else 0))
    if not isinstance(first, int):
        base = arith.AddIOp(base, arith.MulIOp(first, index_constant(LANES)).result).result
    sizes: list[int | ir.Value] = [*r.extents, LANES]
    sizes[r.dim] = live
    pitches = [*(s * LANES for s in strides), 1]
    view = ktdp.construct_memory_view(base, sizes, pitches, tensor.element, "ct_local", attributes={RESIDENT: resident})
    return ktdp.construct_access_tile(view, [0] * len(sizes), [*r.extents, LANES])


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
