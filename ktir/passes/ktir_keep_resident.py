"""Divided KTIR: tensors that cross kernels stay in the scratchpad where all kernels divide them alike.

A pool argument that every core reads only where it has written it itself needs no global memory: its views become views of the scratchpad,
with strides of a core's share. Which of them stay, and where, is a choice (`_resident_choice`), since each takes room in all kernels from
its producer to its last consumer. They lie at the top of the scratchpad; a kernel's own tensors lie below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.diagnostics import Unsupported
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.mlir import ir
from ktir.passes._levels import require_level
from ktir.passes._online_plan import plan_of
from ktir.passes._pool_accesses import PoolAccess, accesses_by_argument, called_kernels, entry_of
from ktir.passes._resident_choice import Candidate, choose
from ktir.passes._residents import RESIDENT, RESIDENTS
from ktir.passes._shares import Disagreement, Share, entries_moved, share_of
from ktir.passes._tile_views import index_constant
from ktir.passes._unused_arguments import drop_arguments
from ktir.pipeline import Pass
from ktir.target import DATASHEET, LANES, STICK_BYTES

_ENTRY_BYTES = 2 * STICK_BYTES
"""Places are multiples of an entry of f32."""


@dataclass(frozen=True)
class KeepResidentPass(Pass):
    """Keep tensors between kernels in the scratchpad.

    Expects: the divided level. Guarantees: the divided level; the memory of pool arguments that stay is `ct_local`, at constant addresses
    that no kernel of their lifetime uses otherwise, and the arguments are gone. `rows` and `online_softmax` are what ktir-tile will be
    told.
    """

    name: ClassVar[str] = "ktir-keep-resident"
    description: ClassVar[str] = "divided: tensors between kernels stay in LX where slices agree"
    rows: int = 0
    lx_bytes: int = DATASHEET.lx_planned_bytes
    online_softmax: str = "auto"
    resident: bool = True  # false: everything between kernels goes through global memory

    def run(self, module: ir.Module) -> None:
        """Rewrite what stays."""
        require_level(module, self.name, "divided")
        if self.resident:
            _Keeper(module, self).keep()


class _Keeper:
    def __init__(self, module: ir.Module, options: KeepResidentPass) -> None:
        self.module, self.options = module, options
        self.entry = entry_of(module)
        self.kernels = [kernel for _, kernel in called_kernels(module)]
        self.accesses = {a: found for a, found in accesses_by_argument(module).items() if self._attribute(a, "ktir.role") == "pool"}
        self.shares: dict[int, Share] = {}
        self.reasons: dict[int, str] = {}
        """Argument -> why it does not stay."""

    def _attribute(self, argument: int, name: str) -> str:
        return ir.StringAttr(ir.DictAttr(ir.ArrayAttr(self.entry.attributes["arg_attrs"])[argument])[name]).value

    def keep(self) -> None:
        candidates = [c for argument, found in self.accesses.items() if (c := self._candidate(argument, found)) is not None]
        chosen = choose(candidates, self._room())
        top = self.options.lx_bytes // _ENTRY_BYTES * _ENTRY_BYTES
        residents = {
            c.key: kt.ResidentAttr.build(self._attribute(c.key, "ktir.name"), top - depth, c.bytes) for c, depth in chosen.depths.items()
        }
        for c in candidates:
            if c not in chosen.depths:
                self.reasons[c.key] = f"its {c.bytes} bytes do not fit beside what kernels {c.first} to {c.last} need"
        for c in chosen.depths:
            self._move(c.key, residents[c.key])
        self._announce({c: residents[c.key] for c in chosen.depths})
        drop_arguments(self.module, list(residents))

    def _candidate(self, argument: int, accesses: Sequence[PoolAccess]) -> Candidate | None:
        """An argument that may stay, or None with a reason noted."""
        writes, reads = ([(a.kernel, a.footprint) for a in accesses if a.writes is w and a.footprint] for w in (True, False))
        repeated = [a for a in accesses if self.kernels.count(self.kernels[a.kernel]) > 1]
        try:
            for access in accesses:
                if access.footprint is None:
                    raise Disagreement(access.reason)
            if repeated:
                raise Disagreement(f"kernel '{self.kernels[repeated[0].kernel].name.value}' is called several times")
            if not reads:
                raise Disagreement("nothing reads it")
            share = share_of(writes, reads)
        except Disagreement as why:
            self.reasons[argument] = str(why)
            return None
        self.shares[argument] = share
        width = STICK_BYTES * (1 if accesses[0].view.opview.element_type == ir.F16Type.get() else 2)
        bytes_ = -(-share.entries * width // _ENTRY_BYTES) * _ENTRY_BYTES
        saved = entries_moved(writes, reads) * width
        numbers = [a.kernel for a in accesses]
        return Candidate(argument, bytes_, min(numbers), max(numbers), saved)

    def _room(self) -> list[int]:
        """Per kernel the bytes that it does not need for itself, planned with all of the scratchpad."""
        free = []
        for kernel in self.kernels:
            try:
                used = plan_of(kernel, self.options.rows, self.options.lx_bytes, self.options.online_softmax).used
            except Unsupported:  # ktir-tile says so, with a location
                used = self.options.lx_bytes
            free.append((self.options.lx_bytes - used) // _ENTRY_BYTES * _ENTRY_BYTES)
        return free

    # Rewriting

    def _move(self, argument: int, resident: kt.ResidentAttr) -> None:
        """Turn the views of an argument into views of the scratchpad."""
        accesses = self.accesses[argument]
        ordered = [a for w in (True, False) for a in accesses if a.writes is w]
        for access, walk in zip(ordered, self.shares[argument].walks, strict=True):
            view = access.view
            width = 2 if view.opview.element_type == ir.F16Type.get() else 4
            with ir.InsertionPoint(view), view.location:
                address = index_constant(resident.address // width + walk.first * LANES)
            _erase_unless_used(view, 0, address)
            view.attributes["static_strides"] = ir.DenseI64ArrayAttr.get([*(s * LANES for s in walk.strides), 1])
            view.attributes["memory_space"] = ktdp.MemorySpaceAttr.build("ct_local", -1)
            view.attributes[RESIDENT] = resident

    def _announce(self, residents: Mapping[Candidate, kt.ResidentAttr]) -> None:
        """Note on every kernel what lies in the scratchpad, and tell what stays and what does not."""
        for number, kernel in enumerate(self.kernels):
            here = [r for c, r in residents.items() if c.first <= number <= c.last]
            if here:
                kernel.attributes[RESIDENTS] = ir.ArrayAttr.get(sorted(here, key=lambda r: r.address))
        for c, resident in residents.items():
            producer, consumer = self.kernels[c.first], self.kernels[c.last]
            self.options.remark(
                "passed",
                f"'{resident.name}' stays in LX at {resident.address}, {c.bytes} bytes per core, from kernel '{producer.name.value}' to "
                f"'{consumer.name.value}': saves {c.saved} bytes of global memory traffic",
                producer.location,
            )
        for argument, reason in sorted(self.reasons.items()):
            writer = self.kernels[self.accesses[argument][0].kernel]
            self.options.remark(
                "missed", f"'{self._attribute(argument, 'ktir.name')}' goes through global memory: {reason}", writer.location
            )


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
