"""Each figure of a target that is a time changes the cycles that the emulator counts: none is the cost model's alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from element_programs import relayout
from machine_builds import LXLU, LXSU, MNIL, MNIS, PT, Build, program, v1, v2, vin, vout, vred
from machine_programs import all_cases
from test_machine_ring import exchange, shifted

from ktir.emulator.machine.control.control import control
from ktir.isa.program import Argument, Program
from ktir.target import DATASHEET, Target

OTHER = {
    "cores": "how many a program may use",
    "corelets": "how many a program may use",
    "clock_ghz": "how long a cycle takes",
    "lx_bytes": "room",
    "lx_reserved_bytes": "room",
    "lx_planned_share": "room",
    "lx_planned_bytes": "room",
    "span_bytes": "reach of an address",
    "vector_registers": "room",
    "accumulators": "room",
    "pt_accumulator_rows": "room",
    "host_gb_per_second": "time of the card, not of a program",
    "host_launch_us": "time of the card, not of a program",
}
"""Figures that are no time of a program, and what they are."""

TIMES = {
    "fifo_entries": 2,
    "dram_gb_per_second": 100.0,
    "dram_bytes_per_cycle": 50.0,
    "dram_turnaround_ns": 0.01,
    "dram_turnaround": 0.01,
    "dram_granule_bytes": 64,
    "dram_latency": 500,
    "ring_bytes_per_cycle": 64,
    "multicast_free": 2,
    "multicast_power": 1.5,
    "partial_sum_bytes_per_cycle": 16.0,
    "partial_sum_corelets": 2,
    "pt_macs": 256,
    "pt_row_cycles": 16,
    "pt_weight_cycles": 128,
    "pt_fill_cycles": 48,
    "pt_efficiency": 0.5,
    "sfp_latency": 32,
    "sfp_transcendental_cycles": 8,
    "sfp_long_cycles": 16,
    "sfp_lane_reduction_cycles": 12,
    "signal_cycles": 16,
    "launch_cycles": 1000,
}
"""Another value of each of the others."""


def split_sum() -> Program:
    """Cores multiply, and send each other sums."""
    b = Build("sums", 2)
    b.groups.append([1, 0])
    b.add(MNIL, "fill", lx=b.lx((64,), (2,), element_bytes=4), value=1.0)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", src=b.lx((4,), (2,), element_bytes=4), group=0)
    b.add(MNIL, "move", dst=b.lx((4,), (2,), base=256, element_bytes=4), group=0)
    b.add(MNIL, "fill", lx=b.lx((64,), (1,), base=512), value=1.0)
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((64,), (1,), base=512), fifo="W")
    b.add(LXLU, "push", lx=b.lx((10,), (1,), base=512), fifo="A")
    b.add(PT, "ldw")
    b.add(PT, "mm", rows=10)
    b.add(PT, "pto")
    b.rep(10, 1, vin(0, "P"))
    return program("sums", [], b.kernel())


def vector() -> Program:
    """All classes of time of the vector unit."""
    b = Build("vector", 1)
    b.add(MNIL, "move", src=b.ddr(0, (40,), (1,)), dst=b.lx((40,), (1,)))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((40,), (1,)), fifo="I0")
    body = (vin(0, "I0"), v1("exp", 1, 0), v1("sin", 2, 1), v2("add", 3, 1, 2), vred("add", 4, 3, "stick"), vout(4, "O"))
    b.rep(40, 1, *body)
    b.add(LXSU, "pull", lx=b.lx((40,), (2,), base=128, element_bytes=4), fifo="O")
    return program("vector", [Argument("x", "input", 4096, 2)], b.kernel())


def multicast() -> Program:
    """All cores receive the same."""
    b = Build("multicast", 32)
    b.groups.append([0] * 32)
    b.add(MNIL, "move", src=b.ddr(0, (64,), (1,)), dst=b.lx((64,), (1,)), group=0)
    return program("multicast", [Argument("x", "input", 4096, 2)], b.kernel())


@cache
def programs() -> tuple[Program, ...]:
    cases = [all_cases()["matmul"], all_cases()["softmax"], exchange([shifted(8, 1)], 10, 2), exchange([shifted(8, 1)], 10, 4)]
    return (*(case.program for case in cases), *(relayout(seed).program for seed in range(6)), vector(), split_sum(), multicast())


def cycles(target: Target) -> list[int]:
    return [s.cycles for p in programs() for s in control(p, target, checks=False).statistics]


@cache
def before() -> list[int]:
    return cycles(DATASHEET)


def test_each_figure_is_known_here() -> None:
    assert OTHER.keys() | TIMES.keys() == {f.name for f in DATASHEET.figures()}
    assert not OTHER.keys() & TIMES.keys()


@pytest.mark.parametrize("name", TIMES)
def test_it_is_charged(name: str) -> None:
    derived = any(f.name == name and f.status == "derived" for f in DATASHEET.figures())  # `changed` would compute it
    other = replace(DATASHEET, **{name: TIMES[name]}) if derived else DATASHEET.changed({}, **{name: TIMES[name]})
    slower = name != "partial_sum_corelets"
    pairs = list(zip(before(), cycles(other), strict=True))
    assert any(a < b if slower else a > b for a, b in pairs), "no program"
    assert all(a <= b if slower else a >= b for a, b in pairs)
