"""Divided KTIR: tensors that cross kernels stay in the scratchpad where all kernels divide them alike, or go over the ring.

A pool argument that every core reads only where it has written it itself needs no global memory: its views become views of the scratchpad,
with strides of a core's share. One that some kernels divide in another way goes from core to core before the first of them (`exchanges`):
those kernels read a copy of all of it. Which of them stay, and where, is a choice (`resident_choice`), since each takes room in all
kernels from its producer to its last consumer. They lie at the top of the scratchpad; a kernel's own tensors lie below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.analysis.attributes.residents import RESIDENT, RESIDENTS
from ktir.diagnostics import Unsupported
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.dialects.structured import index_constant
from ktir.mlir import func, ir
from ktir.passes.residence.exchange_price import Traffic
from ktir.passes.residence.exchanges import Moved, exchange_kernel, rebased
from ktir.passes.residence.pool_accesses import accesses_by_argument, called_kernels, entries_of
from ktir.passes.residence.resident_candidates import ENTRY_BYTES, Candidates, moment
from ktir.passes.residence.resident_choice import Candidate, choose
from ktir.passes.residence.unused_arguments import drop_arguments
from ktir.passes.tiling.plan.tile_facts import facts_of
from ktir.passes.tiling.tile_hints import OnlineSoftmax, Wishes, decide
from ktir.pipeline import AtLeast, Pass
from ktir.target import LANES, Target

Places = Mapping[Candidate, Sequence[kt.ResidentAttr]]
"""Where a tensor lies: the cores' shares, and the copy of all of it if there is one."""


@dataclass(frozen=True)
class KeepResidentPass(Pass):
    """Keep tensors between kernels in the scratchpad.

    Expects: the divided level. Guarantees: the divided level; the memory of pool arguments that stay is `ct_local`, at constant addresses
    that no kernel of their lifetime uses otherwise, and the arguments are gone. `rows`, `online_softmax` and `num_tiles` are
    what ktir-tile will be told.
    """

    name: ClassVar[str] = "ktir-keep-resident"
    description: ClassVar[str] = "divided: tensors between kernels stay in LX where slices agree, or go from core to core"
    rows: Annotated[int, AtLeast(0)] = 0
    target: str = ""
    lx_bytes: int | None = None
    online_softmax: OnlineSoftmax = "auto"
    num_tiles: str = ""
    resident: bool = True  # false: everything between kernels goes through global memory
    exchange: bool = True  # false: so does what kernels divide in different ways

    def run(self, module: ir.Module) -> None:
        """Rewrite what stays."""
        require_level(module, self.name, Level.DIVIDED)
        target = machine(module, self.target, lx_bytes=self.lx_bytes)
        if self.resident:
            for entry in entries_of(module):  # what a call has left in the scratchpad is gone when the next one begins
                _Keeper(module, entry, self, target).keep()


class _Keeper:
    def __init__(self, module: ir.Module, entry: func.FuncOp, options: KeepResidentPass, target: Target) -> None:
        self.module, self.entry, self.options = module, entry, options
        self.target = target
        self.calls = called_kernels(module, entry)
        self.kernels = [kernel for _, kernel in self.calls]
        accesses = accesses_by_argument(module, entry)
        pools = {a: found for a, found in accesses.items() if self._attribute(a, "ktir.role") == "pool"}
        self.candidates = Candidates(self.kernels, pools, Traffic(self.kernels, accesses, target), exchange=options.exchange)
        self.accesses, self.copies, self.reasons = pools, self.candidates.copies, self.candidates.reasons

    def _attribute(self, argument: int, name: str) -> str:
        return ir.StringAttr(ir.DictAttr(ir.ArrayAttr(self.entry.attributes["arg_attrs"])[argument])[name]).value

    def keep(self) -> None:
        chosen = choose(self.candidates.found, self._room())
        top = self.target.lx_planned_bytes // ENTRY_BYTES * ENTRY_BYTES
        places: dict[Candidate, list[kt.ResidentAttr]] = {}
        for c, depths in chosen.depths.items():
            name = self._attribute(c.key, "ktir.name")
            names = (name, f"{name}_all")
            places[c] = [kt.ResidentAttr.build(n, top - d, s.bytes) for n, d, s in zip(names, depths, c.stays, strict=False)]
        for c in self.candidates.found:
            if c not in places:
                bytes_ = " and ".join(str(s.bytes) for s in c.stays)
                kernels = f"kernels {c.stays[0].first // 2} to {c.stays[-1].last // 2}"
                self.reasons[c.key] = f"its {bytes_} bytes do not fit beside what {kernels} need"
        for c in places:
            self._move(c.key, places[c])
        self._announce(places)
        self._exchange(places)
        drop_arguments(self.module, self.entry, [c.key for c in places])

    def _room(self) -> list[int]:
        """Per moment the bytes that can be given away: what a kernel, planned with all of the scratchpad, does not need for itself."""
        free = []
        wishes = Wishes(self.options.rows, self.options.online_softmax, self.options.num_tiles)
        everything = self.target.lx_planned_bytes // ENTRY_BYTES * ENTRY_BYTES
        for kernel in self.kernels:
            try:
                used = decide(facts_of(kernel), wishes, self.target).used
            except Unsupported:  # ktir-tile says so, with a location
                used = self.target.lx_planned_bytes
            free += [everything, (self.target.lx_planned_bytes - used) // ENTRY_BYTES * ENTRY_BYTES]
        return free

    # Rewriting

    def _move(self, argument: int, places: Sequence[kt.ResidentAttr]) -> None:
        """Turn the views of an argument into views of the scratchpad: of a core's share, or at its part of the copy."""
        copy = self.copies.get(argument)
        far = [a for a in self.accesses[argument] if copy and not a.writes and a.kernel in copy.readers]
        near = [a for w in (True, False) for a in self.accesses[argument] if a.writes is w and a not in far]
        for access, walk in zip(near, self.candidates.shares[argument].walks, strict=True):
            view = access.view
            with ir.InsertionPoint(view), view.location:
                address = index_constant(places[0].address // access.element_bytes + walk.first * LANES)
            view.attributes["static_strides"] = ir.DenseI64ArrayAttr.get([*(s * LANES for s in walk.strides), 1])
            _show(view, places[0], address)
        for access in far:
            assert copy is not None
            view = access.view
            with ir.InsertionPoint(view), view.location:
                base = index_constant(places[1].address // access.element_bytes - copy.first * LANES)
                address = rebased(view.operands[0], base)
            _show(view, places[1], address)

    def _exchange(self, places: Places) -> None:
        """Put a kernel that moves what has to go from core to core in front of those that read it."""
        for number, (call, kernel) in enumerate(self.calls):
            moved = [c for c in places if c.key in self.copies and self.copies[c.key].at == number]
            if not moved:
                continue
            tensors = []
            for c in moved:
                copy, (share, whole), written = self.copies[c.key], places[c], self.accesses[c.key][0]
                tensors.append(Moved(share, whole, copy.first, written.element, copy.rounds, written.op.location))
            cores = max(a.cores for c in moved for a in self.accesses[c.key])
            name = f"{kernel.name.value}_exchange"
            exchange_kernel(kernel, name, cores, tensors, _there(places, moment(number) - 1))
            with ir.InsertionPoint(call), call.location:
                func.CallOp([], name, [])

    def _announce(self, places: Places) -> None:
        """Note on every kernel what lies in the scratchpad, and tell what stays and what does not."""
        for number, kernel in enumerate(self.kernels):
            if here := _there(places, moment(number)):
                kernel.attributes[RESIDENTS] = ir.ArrayAttr.get(here)
        for c, (resident, *others) in places.items():
            kernels = [a.kernel for a in self.accesses[c.key]]
            producer, consumer = self.kernels[min(kernels)], self.kernels[max(kernels)]
            more = ""
            for whole in others:
                copy = self.copies[c.key]
                more = (
                    f", and before '{self.kernels[copy.at].name.value}' goes over the ring, {len(copy.rounds)} rounds, to {whole.address} "
                )
                more += f"on every core, {whole.bytes} bytes"
            self.options.remark(
                "passed",
                f"'{resident.name}' stays in LX at {resident.address}, {resident.bytes} bytes per core, from kernel "
                f"'{producer.name.value}' to '{consumer.name.value}'{more}: saves {c.saved} bytes of global memory traffic",
                producer.location,
            )
        for argument, reason in sorted(self.reasons.items()):
            writer = self.kernels[self.accesses[argument][0].kernel]
            self.options.remark(
                "missed", f"'{self._attribute(argument, 'ktir.name')}' goes through global memory: {reason}", writer.location
            )


def _there(places: Places, at: int) -> list[kt.ResidentAttr]:
    """What lies in the scratchpad at a moment, by address."""
    found = [r for c, own in places.items() for s, r in zip(c.stays, own, strict=True) if s.first <= at <= s.last]
    return sorted(found, key=lambda r: r.address)


def _show(view: ir.Operation, resident: kt.ResidentAttr, address: ir.Value) -> None:
    """Make a view one of the scratchpad."""
    _erase_unless_used(view, 0, address)
    view.attributes["memory_space"] = ktdp.MemorySpaceAttr.build("ct_local", -1)
    view.attributes[RESIDENT] = resident


def _erase_unless_used(op: ir.Operation, operand: int, value: ir.Value) -> None:
    """Replace an operand; what computed the old one goes if nothing else needs it."""
    old = op.operands[operand]
    op.operands[operand] = value
    waiting = [old]
    while waiting:
        dead = waiting.pop()
        if isinstance(dead.owner, ir.Block) or any(True for _ in dead.uses) or not dead.owner.name.startswith("arith."):
            continue
        owner = dead.owner.operation
        waiting.extend(owner.operands)
        owner.erase()
