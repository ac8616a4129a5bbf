"""A price: terms of cycles on the units of the machine, and how they add up."""

from __future__ import annotations

from typing import NamedTuple

from ktir.isa.resources import Bound, Resource, bound_of
from ktir.target import Target

COMPUTE = {"PT": Resource.PT, "SFP": Resource.SFP, "LX": Resource.LX}
"""Units of a core that work at the same time: matrix array, vector unit, scratchpad port."""

SERIAL = ("partial sums", "start")
"""What nothing hides: adding the parts of a split reduction, and the latency of a kernel's first and last step."""


_SIGNALS = 4
"""Tokens on the way of a block: load, multiply, compute, store."""


class Term(NamedTuple):
    """Cycles of one unit for one purpose. `bytes`: moved by the whole chip (DRAM) or received by a core (ring, LX).

    Units: those of `COMPUTE`; `fill` = compute waits for the first block and the last block waits for compute; `dram` = the memory channel;
    `ring` = loads with their delivery; `tail` = stores after the last load; `stores` = stores with what LX takes for them; those of
    `SERIAL`. `times`: blocks, sticks, readings (DRAM), cores that receive the same data (ring), parts.
    """

    unit: str
    what: str
    cycles: float
    bytes: float = 0.0
    times: int = 0

    def __str__(self) -> str:
        """One line of a report."""
        count = ""
        if self.unit == "dram":
            count = f", {self.times} times" if self.times > 1 else ""
        elif self.unit == "ring":
            count = f" to {self.times} cores at once" if self.times > 1 else ""
        elif self.times:
            count = f": {self.times:,}"
        moved = f", {self.bytes:,.0f} bytes" if self.bytes else ""
        return f"{self.unit:<12} {self.cycles:>14,.0f} cycles  {self.what}{count}{moved}"


class Cost(NamedTuple):
    """Cycles of a kernel and where they come from.

    The units run concurrently: cycles = max(compute + fill, dram, ring + tail, stores) + partial sums + start.
    """

    cycles: float
    terms: tuple[Term, ...]

    @property
    def bound(self) -> Bound:
        """What bounds it by these terms. The longest chain has all that the largest unit does, then waits for memory, as far as that is
        busy, then for its latency.
        """
        loads = {resource: self.of(unit) for unit, resource in COMPUTE.items()}
        loads[Resource.MEMORY] = dram = self.of("dram")
        ring, stores = self.of("ring") + self.of("tail"), self.of("stores")
        if ring > dram:  # a delivery without receivers takes as long as the channel
            loads[Resource.RING] = ring
        if stores > dram:
            loads[Resource.LX] = max(loads[Resource.LX], stores)
        largest = max(loads, key=lambda r: loads[r])
        serial = self.of("partial sums")
        chain = {largest: loads[largest]}
        waits = max(self.cycles - serial - loads[largest], 0.0)
        filled = min(waits, max(dram - chain.get(Resource.MEMORY, 0.0), 0.0))
        chain[Resource.MEMORY] = chain.get(Resource.MEMORY, 0.0) + filled
        chain[Resource.LATENCY] = waits - filled
        chain[Resource.RING] = chain.get(Resource.RING, 0.0) + serial
        return bound_of(chain, loads)

    def of(self, unit: str) -> float:
        """Cycles of one unit."""
        return sum(t.cycles for t in self.terms if t.unit == unit)

    @property
    def dram_bytes(self) -> float:
        """Bytes that cross the memory channel; data for several cores count once."""
        return sum(t.bytes for t in self.terms if t.unit == "dram")

    def lines(self, target: Target) -> list[str]:
        """The terms as text, one per line."""
        shown = (t for t in self.terms if t.cycles and (t.unit not in ("ring", "tail", "stores") or t.times > 1))
        head = f"{target.microseconds(self.cycles):.2f} us ({self.cycles:,.0f} cycles), bound by the {self.bound.resource.title}"
        return [head, *(f"  {t}" for t in shown)]


_UNITS: dict[str, float] = dict.fromkeys((*COMPUTE, "fill", "dram", "ring", "tail", "stores", *SERIAL), 0.0)


def combine(terms: list[Term]) -> Cost:
    """Add up terms."""
    sums = _UNITS.copy()
    for unit, _, cycles, _, _ in terms:
        sums[unit] += cycles
    compute = max(sums["PT"], sums["SFP"], sums["LX"]) + sums["fill"]
    dram, ring, partial = sums["dram"], sums["ring"] + sums["tail"], sums["partial sums"]
    return Cost(max(compute, dram, ring, sums["stores"]) + partial + sums["start"], tuple(terms))


def kernel_start(target: Target) -> int:
    """Latency of a kernel's first and last step, and its launch."""
    return target.dram_latency + target.sfp_latency + _SIGNALS * target.signal_cycles + target.launch_cycles


def stage_latency(target: Target) -> int:
    """From the last result of one op on the vector unit to the first of the next one, which reads it from the scratchpad."""
    return target.sfp_latency + 2 * target.signal_cycles


def delivery_cycles(per_core: float, members: int, target: Target) -> float:
    """Delivery of `per_core` bytes over the ring to each of `members` cores that read the same data."""
    return per_core * target.multicast_slowdown(members) / target.ring_bytes_per_cycle


def multiply_cycles(rows: int, blocks: int, target: Target) -> float:
    """PT: a corelet's `rows` rows against each of `blocks` blocks of 64 x 64 weights."""
    return blocks * (target.pt_weight_cycles + target.pt_row_cycles * rows / target.pt_efficiency)


def widening_waits(rows: int, columns: float, depth: float, widening: float, target: Target) -> float:
    """Cycles in which PT waits for blocks of weights that the vector unit widens first, `widening` cycles each, where a corelet multiplies
    `rows` rows with `columns` times `depth` blocks.

    LXLU sends a block to the vector unit when it has sent all of the block before to PT, which by then has as many rows before it as their
    FIFO holds. The first block of a column is widened after the sums of the column before have passed the vector unit.
    """
    if not widening:
        return 0.0
    first = widening + target.sfp_latency + target.signal_cycles
    row = target.pt_row_cycles / target.pt_efficiency
    return columns * (first + (depth - 1) * max(0.0, first - min(rows * (row - 1), target.fifo_entries * row)))


def half(rows: int, corelets: int) -> int:
    """Rows of one corelet."""
    return -(-rows // corelets)
