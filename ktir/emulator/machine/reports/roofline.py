"""How much a program computes and moves, and what the chip allows: the roofline of its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.emulator.machine.program.body import END, START, STICK
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.cycles import MOVES, lane_products, per_lane
from ktir.isa.instructions import Does
from ktir.target import LANES, Target


@dataclass(frozen=True)
class Roofline:
    """One kernel on a target. `flops` are operations on lanes as executed, those of padding included; a multiplication with its addition is
    two. `bytes` go between memory and the chip; `attained` and `possible` are rates in GFLOP/s. `microseconds` are from its first load on,
    which may be ahead of the kernel."""

    name: str
    flops: int
    bytes: int
    microseconds: float
    peak: float
    """GFLOP/s of the systolic arrays, twice as many of pairs of bytes, if the kernel multiplies matrices; of the vector units otherwise."""
    bandwidth: float
    """GB/s of the memory channel."""

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else float("inf")

    @property
    def attained(self) -> float:
        return self.flops / self.microseconds / 1000 if self.microseconds else 0.0

    @property
    def possible(self) -> float:
        return min(self.peak, self.intensity * self.bandwidth)

    @property
    def roof(self) -> str:
        """Which of the two roofs is lower at this intensity: that of `memory` or of `compute`. What bounds the kernel may be neither."""
        return "memory" if self.intensity * self.bandwidth < self.peak else "compute"

    @property
    def share(self) -> float:
        """Attained as a share of possible."""
        return self.attained / self.possible if self.possible else 0.0

    @property
    def moved(self) -> float:
        """The rate at which the kernel moves bytes of memory, in GB/s."""
        return self.bytes / self.microseconds / 1000 if self.microseconds else 0.0

    @property
    def place(self) -> str:
        """In words."""
        if not self.flops:  # a roof of operations says nothing of it
            moved = f", {self.moved:.1f} of {self.bandwidth:.1f} GB/s ({self.moved / self.bandwidth:.0%})"
            return f"no operations{moved if self.bytes else ' and no bytes'} of memory"
        rates = f"{self.attained:.1f} of {self.possible:.1f} GFLOP/s"
        density = f"{self.intensity:,.2f} operations per byte" if self.bytes else "no bytes of memory"
        return f"{density}, {rates} ({self.share:.0%}) below the roof of {self.roof}"

    def __str__(self) -> str:
        return f"kernel '{self.name}': {self.place}"


def pt_peak(target: Target) -> float:
    """GFLOP/s of all systolic arrays: a row of a 64x64 block every `pt_row_cycles`."""
    return target.cores * target.corelets * 2 * LANES * LANES / target.pt_row_cycles * target.clock_ghz


def sfp_peak(target: Target) -> float:
    """GFLOP/s of all vector units: an operation on a stick per cycle."""
    return target.cores * target.corelets * LANES * target.clock_ghz


def bandwidth(target: Target) -> float:
    """GB/s of the memory channel."""
    return target.dram_bytes_per_cycle * target.clock_ghz


def roofline(trace: Trace, target: Target) -> list[Roofline]:
    """The place of each kernel of a program."""
    flops = [0] * len(trace.statistics)
    lanes = [[0, 0] for _ in trace.statistics]  # of MM in lanes, and multiplications
    for e in trace.events:
        flops[e.kernel] += _flops(e) * trace.kernels[e.kernel].kernel.cores * target.corelets
        if (x := e.instruction).does is Does.MULTIPLY:
            lanes[e.kernel][0] += lane_products(x.word)
            lanes[e.kernel][1] += lane_products(x.word) * per_lane(x.word)
    return [
        Roofline(
            s.name,
            flops[k],
            s.dram_read + s.dram_written,
            (s.cycles + s.lead) / target.clock_ghz / 1000,
            pt_peak(target) * lanes[k][1] / lanes[k][0] if lanes[k][0] else sfp_peak(target),
            bandwidth(target),
        )
        for k, s in enumerate(trace.statistics)
    ]


def _flops(e: Event) -> int:
    """Operations of a word on one corelet."""
    if e.instruction.does is Does.MULTIPLY:
        return 2 * lane_products(e.instruction.word) * per_lane(e.instruction.word)
    body = e.instruction.body
    if body is None:
        return 0
    first, last = e.steps if e.steps is not None else (0, body.groups * body.sticks)
    steps = last - first
    groups = steps / body.sticks  # a part of a REP has its share of what a group does once
    per_phase = {START: groups, STICK: steps, END: groups}
    done = sum(per_phase[phase] * LANES for word, phase in zip(body.words, body.phases, strict=True) if word.does not in MOVES)
    return round(done)
