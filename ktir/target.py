"""The machine description: one frozen object that passes, lowering and emulator read.

Each number carries its source: *stated* = a public source says it, *inferred* = arithmetic on stated figures, *fitted* = a published fit to
device measurements, *assumed* = no public figure exists and ours is a placeholder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STICK_BYTES = 128
"""The only layout quantum of the chip: 128-byte, 128-byte-aligned sticks (stated, torch-spyre architecture pages)."""

LANES = 64
"""Elements of an f16 stick (stated); an f32 tensor uses two adjacent sticks per 64 lanes in our layouts."""


@dataclass(frozen=True)
class Target:
    """A Spyre chip. Rates are per cycle of `clock_ghz`."""

    name: str = "datasheet"
    cores: int = 32  # stated
    corelets: int = 2  # stated: two per core, sharing one scratchpad
    clock_ghz: float = 1.5  # inferred: 98.304 TFLOP/s = 32 cores x 2 corelets x 512 MAC x 2 flop x 1.5e9
    lx_bytes: int = 2 * 1024 * 1024  # stated: 2 MiB of scratchpad per core
    lx_planned_bytes: int = 1_625_344  # stated: 80 % of (2 MiB - 64 KiB of program and debug space), in whole sticks
    fifo_entries: int = 16  # sample device of the public scheduler: ordered FIFOs of depth 16
    dram_bytes_per_cycle: float = 204.8 / 1.5  # stated peak of 204.8 GB/s at 1.5 GHz, one channel shared by the chip
    dram_latency: int = 300  # assumed: not public
    ring_bytes_per_cycle: int = 128  # stated, per direction
    multicast_free: int = 8  # fitted: delivery is free up to 8 consumers, then grows with the power 0.75
    pt_row_cycles: int = 8  # inferred: 64 x 64 MACs of a row at 512 MAC per cycle and corelet
    pt_fill_cycles: int = 24  # assumed: time to drain the systolic array
    sfp_latency: int = 16  # assumed
    sfp_transcendental_cycles: int = 4  # assumed
    sfp_lane_reduction_cycles: int = 6  # assumed: a halving tree over 64 lanes
    signal_cycles: int = 8  # assumed
    vector_registers: int = 16  # sample device: 2 KB of registers of 128 B
    accumulators: int = 8  # proposal: f32 x 64 lanes each
    pt_accumulator_rows: int = 256  # assumed: rows of f32 partial sums that PT holds between LDWs

    def with_cores(self, cores: int) -> Target:
        """This target with another number of active cores, 1 to 32."""
        if not 1 <= cores <= 32:
            raise ValueError(f"expects 1 to 32 cores, but got {cores}")
        return replace(self, cores=cores)


DATASHEET = Target()
FITTED = replace(DATASHEET, name="fitted", dram_bytes_per_cycle=150.0 / 1.5)  # fitted: 150 GB/s one way
PRESETS = {t.name: t for t in (DATASHEET, FITTED)}
