"""The machine description: one frozen object that passes, cost model, lowering and emulator read.

Each number carries its status and its source: *stated* = a public source says it, *inferred* = arithmetic on stated figures, *fitted* = a
published fit to device measurements, *default* = the placeholder of a public sample file, *unofficial* = a community note, *assumed* = no
public figure exists and ours is a placeholder. `Target.figures` lists them. Two presets: `datasheet` has peak rates, `fitted` the rates
that the published models fitted to the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

STICK_BYTES = 128
"""The only layout quantum of the chip: 128-byte, 128-byte-aligned sticks (stated, torch-spyre architecture pages)."""

LANES = 64
"""Elements of an f16 stick (stated); an f32 tensor uses two adjacent sticks per 64 lanes in our layouts."""


class Figure(NamedTuple):
    """A number of the machine description and where it comes from."""

    name: str
    value: int | float
    unit: str
    status: str
    source: str


def _figure(value: Any, unit: str, status: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "status": status, "source": source})


_PLANNER = "torch-spyre work_division.py"
_COST = "torch-spyre cost_model.py"
_ACCELERATOR = "torch-spyre spyre_accelerator.md"
_SAMPLE = "sample device of dataflow-scheduler"
_NOTE = "note 'Matrix Multiplication on the IBM AIU'"
_NONE = "no public figure"


@dataclass(frozen=True)
class Target:
    """A Spyre chip. Cycles are of `clock_ghz`; rates are per cycle."""

    name: str = "datasheet"
    cores: int = _figure(32, "cores", "stated", _ACCELERATOR)
    corelets: int = _figure(2, "per core", "stated", f"{_ACCELERATOR}: two share one scratchpad")
    clock_ghz: float = _figure(1.5, "GHz", "inferred", "98.304 TFLOP/s = 32 cores x 2 corelets x 512 MAC x 2 flop x 1.5e9")
    lx_bytes: int = _figure(2 * 1024 * 1024, "bytes per core", "stated", _ACCELERATOR)
    lx_planned_bytes: int = _figure(
        1_625_344, "bytes per core", "stated", "scratchpad planner: 80 % of (2 MiB - 64 KiB of program and debug space), in whole sticks"
    )
    fifo_entries: int = _figure(16, "entries", "default", f"{_SAMPLE}: ordered FIFOs")
    dram_bytes_per_cycle: float = _figure(204.8 / 1.5, "bytes per cycle", "stated", f"{_PLANNER}: 204.8 GB/s, one channel for the chip")
    dram_turnaround: float = _figure(
        0.0, "cycles per byte", "inferred", "peak rate without loss; the channel's time per byte of the smaller of reads and writes"
    )
    dram_granule_bytes: int = _figure(
        32, "bytes", "inferred", "JEDEC JESD209-5 (LPDDR5): a burst of 16 on a channel of 16 bits; the chip has LPDDR5 (stated)"
    )
    dram_latency: int = _figure(300, "cycles", "assumed", _NONE)
    span_bytes: int = _figure(
        256 * 1024 * 1024 - 4096, "bytes", "inferred", f"{_ACCELERATOR}: at most 255.996 MiB of addresses per core and tensor"
    )
    ring_bytes_per_cycle: int = _figure(128, "bytes per cycle and direction", "stated", _ACCELERATOR)
    multicast_free: int = _figure(8, "consumers", "fitted", f"{_PLANNER}: delivery is free up to here")
    multicast_power: float = _figure(0.75, "", "fitted", f"{_PLANNER}: beyond, time grows with this power of the consumers")
    partial_sum_bytes_per_cycle: float = _figure(32, "bytes per cycle", "unofficial", f"{_NOTE}: a ring of its own for partial sums")
    partial_sum_corelets: int = _figure(1, "per core", "stated", f"{_PLANNER}: a reduction across cores runs on one corelet")
    pt_row_cycles: int = _figure(8, "cycles", "inferred", "64 x 64 MACs of a row at 512 MAC per cycle and corelet")
    pt_weight_cycles: int = _figure(64, "cycles per block", "unofficial", f"{_NOTE}: the array idles while 64 rows of weights are loaded")
    pt_fill_cycles: int = _figure(24, "cycles", "assumed", f"{_NONE}: time to drain the systolic array")
    pt_efficiency: float = _figure(1.0, "", "stated", f"{_PLANNER}: peak of 1,536 MAC/ns and core")
    sfp_latency: int = _figure(16, "cycles", "assumed", _NONE)
    sfp_transcendental_cycles: int = _figure(4, "cycles per stick", "assumed", _NONE)
    sfp_long_cycles: int = _figure(
        8, "cycles per stick", "assumed", f"{_NONE}: range reduction and a longer polynomial, or digits of a quotient"
    )
    sfp_lane_reduction_cycles: int = _figure(6, "cycles", "assumed", f"{_NONE}: a halving tree over 64 lanes")
    signal_cycles: int = _figure(8, "cycles", "assumed", _NONE)
    launch_cycles: int = _figure(0, "cycles per kernel", "fitted", f"{_COST}: the newest fit has no fixed cost")
    vector_registers: int = _figure(16, "registers", "default", f"{_SAMPLE}: 2 KB of registers of 128 B")
    accumulators: int = _figure(8, "registers", "assumed", "ours: f32 x 64 lanes each")
    pt_accumulator_rows: int = _figure(256, "rows", "assumed", "ours: rows of f32 partial sums that PT holds between LDWs")

    def with_cores(self, cores: int) -> Target:
        """This target with another number of active cores, 1 to 32."""
        if not 1 <= cores <= 32:
            raise ValueError(f"expects 1 to 32 cores, but got {cores}")
        return replace(self, cores=cores)

    def with_room(self, lx_bytes: int) -> Target:
        """This target with `lx_bytes` of each core's scratchpad to plan with."""
        return replace(self, lx_planned_bytes=lx_bytes)

    def figures(self) -> list[Figure]:
        """Every number with its unit, status and source; a preset's own figures say so."""
        own = _OWN_SOURCES.get(self.name, {})
        out = []
        for f in fields(self):
            if f.metadata:
                status, source = own.get(f.name, (f.metadata["status"], f.metadata["source"]))
                out.append(Figure(f.name, getattr(self, f.name), f.metadata["unit"], status, source))
        return out

    def multicast_slowdown(self, members: float) -> float:
        """How many times longer it takes to deliver data to `members` cores than to one."""
        return max(1.0, (members / self.multicast_free) ** self.multicast_power)

    def microseconds(self, cycles: float) -> float:
        """Cycles as time."""
        return cycles / self.clock_ghz / 1000


DATASHEET = Target()

_OWN_SOURCES = {
    "fitted": {
        "dram_bytes_per_cycle": ("fitted", f"{_COST}: 150 GB/s in one direction"),
        "dram_turnaround": ("fitted", f"{_COST}: 0.00574 ns per byte, so that a balanced copy runs at 105 GB/s"),
        "pt_efficiency": ("fitted", f"{_COST}: 1,140 of 1,536 MAC/ns and core"),
        "partial_sum_bytes_per_cycle": ("fitted", f"{_PLANNER}: 1e-3 us per f32 element and hop"),
    }
}
FITTED = replace(
    DATASHEET,
    name="fitted",
    dram_bytes_per_cycle=150.0 / 1.5,
    dram_turnaround=0.00574 * 1.5,
    pt_efficiency=1140 / 1536,
    partial_sum_bytes_per_cycle=4 / 1.5,
)
PRESETS = {t.name: t for t in (DATASHEET, FITTED)}
