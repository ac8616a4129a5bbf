"""A price: terms of cycles on the units of the machine, and how they add up."""

from __future__ import annotations

from typing import NamedTuple

from ktir.target import Target

COMPUTE = ("PT", "SFP", "LX")
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

    The units run concurrently: cycles = max(compute + fill, dram, ring + tail, stores) + partial sums + start. `bound` names the largest:
    `compute`, `dram`, `ring` or `stores`.
    """

    cycles: float
    bound: str
    terms: tuple[Term, ...]

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
        return [f"{target.microseconds(self.cycles):.2f} us ({self.cycles:,.0f} cycles), bound by {self.bound}", *(f"  {t}" for t in shown)]


_UNITS: dict[str, float] = dict.fromkeys((*COMPUTE, "fill", "dram", "ring", "tail", "stores", *SERIAL), 0.0)


def combine(terms: list[Term]) -> Cost:
    """Add up terms."""
    sums = _UNITS.copy()
    for unit, _, cycles, _, _ in terms:
        sums[unit] += cycles
    compute = max(sums["PT"], sums["SFP"], sums["LX"]) + sums["fill"]
    dram, ring, partial = sums["dram"], sums["ring"] + sums["tail"], sums["partial sums"]
    cycles = max(compute, dram, ring, sums["stores"])
    if partial > cycles or (ring > dram and ring > compute):
        bound = "ring"
    elif sums["stores"] > max(compute, dram):
        bound = "stores"
    else:
        bound = "compute" if compute > dram else "dram"
    return Cost(cycles + partial + sums["start"], bound, tuple(terms))


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


def half(rows: int, corelets: int) -> int:
    """Rows of one corelet."""
    return -(-rows // corelets)
