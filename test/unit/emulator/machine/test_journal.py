"""What units do when: cycle for cycle what the report counts, in journals and in the trace that is drawn from them."""

import json
from collections import Counter, defaultdict
from fractions import Fraction

import pytest
import torch
from chrome_traces import check, exact
from machine_programs import Work, all_cases, matmul
from random_streams import make
from torch import nn

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine, MachineFinding
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports import chrome
from ktir.emulator.machine.reports.chrome import chrome_trace
from ktir.emulator.machine.trace import journal
from ktir.emulator.machine.trace.journal import Segment
from ktir.isa.problem import ProgramError
from ktir.isa.units import Unit
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.target import DATASHEET

CASES = all_cases()
RANDOM = [f"random {seed}" for seed in range(100)]
"""Some of them are refused."""
NAMES = [*CASES, *(name if k < 6 else pytest.param(name, marks=pytest.mark.long) for k, name in enumerate(RANDOM))]


def machine_of(name: str) -> Machine:
    if name in CASES:
        return Machine(CASES[name].program, DATASHEET)
    try:
        return Machine(make(int(name.split()[1])).program, DATASHEET)
    except (MachineFinding, ProgramError):
        pytest.skip("the program is a faulty one")


@pytest.mark.parametrize("name", NAMES)
def test_every_cycle_of_a_unit_is_work_or_a_wait(name: str) -> None:
    machine = machine_of(name)
    kept = control(machine.program, DATASHEET, checks=False, journal=True)
    assert kept.journals is not None
    assert len(kept.journals) == len(machine.report.kernels)
    for found, report in zip(kept.journals, machine.report.kernels, strict=True):
        units: dict[Unit, list[Segment]] = defaultdict(list)
        for segment in found.segments:
            units[segment.unit].append(segment)
        for unit in report.units:
            at, cycles = DATASHEET.launch_cycles, Counter[str]()
            for segment in units[unit.unit]:
                assert segment.begin == at, "neither a gap nor an overlap"
                at = segment.end
                cycles[segment.cause] += segment.end - segment.begin
            assert at == unit.end or not units[unit.unit]
            assert cycles == Counter({"": unit.busy, **unit.stalls}) or not (cycles or unit.busy)
        assert sum(t.nbytes for t in found.memory) == report.dram_read + report.dram_written
        for key, posts in found.posts.items():
            taken = found.takes.get(key, [])
            assert all(a < b for a, b in zip(posts, taken, strict=False)), "a token is taken after it was posted"
        for fifo, pushes in found.pushes.items():
            assert pushes[-1].end == found.pops[fifo][-1].end == report.fifo_entries[fifo]


def test_slices_say_which_op_and_where_it_comes_from() -> None:
    """A wait for a token too, which no op becomes; what has no line is in a module."""
    models = nn.Sequential(nn.Linear(100, 64), nn.Softmax(-1)).half().eval(), nn.Softmax(-1), lambda x: x.relu()
    places = set[str]()
    waits = 0
    for model in models:
        with torch.no_grad(), context(), ir.Location.unknown():
            text = ktir.capture(model, torch.zeros(57, 100, dtype=torch.float16), debuginfo=True)
            program = read(compile_logical(parse_module(text))).program
        for e in chrome_trace(program, control(program, DATASHEET, checks=False, journal=True), DATASHEET)["traceEvents"]:
            if e["ph"] == "X" and e["cat"] in ("work", "gpu_memcpy", "wait"):
                assert e["args"]["op"]
                places.add(e["args"]["source"].partition(":")[0])
                waits += e["name"].startswith("wait: token")
    assert places == {__file__, "module '0'", "module '1'", "module 'Softmax'"}
    assert waits


def test_the_array_works_for_multiplications() -> None:
    """Its sums are drained where the next op takes them, which is no work of that one."""
    with torch.no_grad(), context(), ir.Location.unknown():
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).half().eval()
        text = ktir.capture(model, torch.zeros(5, 64, dtype=torch.float16), debuginfo=True)
        program = read(compile_logical(parse_module(text))).program
    trace = chrome_trace(program, control(program, DATASHEET, checks=False, journal=True), DATASHEET)
    (array,) = (e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name" and e["args"]["name"] == "PT")
    work = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] == array and e["cat"] == "work"]
    assert {e["name"] for e in work} == {"ldw", "mm", "pto"}
    assert not [e for e in work if "relu" in e["args"]["nodes"]]
    assert [e for e in trace["traceEvents"] if "relu" in e.get("args", {}).get("nodes", "")]


@pytest.mark.parametrize("name", NAMES)
def test_the_trace_has_the_figures_of_the_report(name: str) -> None:
    machine = machine_of(name)
    trace = json.loads(json.dumps(chrome_trace(machine.program, machine.trace, DATASHEET)), parse_float=Fraction)
    check(trace)
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    rows = {e["args"]["name"]: (e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    us = {cause: Fraction(0) for cause in ("work", "wait")}
    for unit in {u.unit for k in machine.report.kernels for u in k.units}:
        own = [e for e in slices if (e["pid"], e["tid"]) == rows[unit.name]]
        cycles = Counter[str]()
        for e in own:
            cycles[e["args"].get("cause", "")] += e["args"]["cycles"]
            us["wait" if e["cat"] == "wait" else "work"] += exact(e["dur"])
        expected = Counter[str]()
        for k in machine.report.kernels:
            for u in k.units:
                if u.unit is unit:
                    expected += Counter({"": u.busy, **u.stalls})
        assert cycles == expected
    waits = sum(n for k in machine.report.kernels for u in k.units for n in u.stalls.values())
    assert abs(us["wait"] - Fraction(waits) / Fraction(DATASHEET.clock_ghz) / 1000) < Fraction(len(slices), 10**6)
    fills = [e["args"]["value"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"].startswith("FIFO")]
    assert all(0 <= value <= DATASHEET.fifo_entries for value in fills)
    rates = [e["args"]["value"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"].startswith("DRAM")]
    assert all(0 <= value <= DATASHEET.dram_gb_per_second + 1e-3 for value in rates)
    assert max(rates, default=0) > 0 or not any(k.dram_read for k in machine.report.kernels)


def test_arrows_lead_to_where_tokens_and_entries_are_taken() -> None:
    machine = Machine(CASES["matmul"].program, DATASHEET)
    events = chrome_trace(machine.program, machine.trace, DATASHEET)["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    pairs = Counter(
        (e["name"], rows[begins[e["id"]]["pid"], begins[e["id"]]["tid"]], rows[e["pid"], e["tid"]]) for e in events if e["ph"] == "f"
    )
    assert {("FIFO W", "LXLU", "PT"), ("FIFO A", "LXLU", "PT"), ("FIFO P", "PT", "SFP"), ("FIFO O", "SFP", "LXSU")} <= pairs.keys()
    posted = sum(c.posted for k in machine.report.kernels for c in k.channels)
    assert 0 < sum(n for (name, *_), n in pairs.items() if name.startswith("token")) <= posted


def test_many_waits_of_a_word_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    program = matmul(Work(57, 8, 4), 200, 192).program
    apart = control(program, DATASHEET, checks=False, journal=True).journals
    monkeypatch.setattr(journal, "MOST_PARTS", 1)
    merged = control(program, DATASHEET, checks=False, journal=True).journals
    assert apart is not None
    assert merged is not None
    for a, b in zip(apart, merged, strict=True):
        assert len(b.segments) < len(a.segments)
        assert max(s.merged for s in b.segments) > 1
        sums = [Counter[tuple[Unit, str]]() for _ in (a, b)]
        for cycles, one in zip(sums, (a, b), strict=True):
            for s in one.segments:
                cycles[s.unit, s.cause] += s.end - s.begin
        assert sums[0] == sums[1]


def test_arrows_that_are_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(CASES["softmax"].program, DATASHEET)
    every = sum(e["ph"] == "s" for e in chrome_trace(machine.program, machine.trace, DATASHEET)["traceEvents"])
    monkeypatch.setattr(chrome, "MOST_ARROWS", 3)
    trace = chrome_trace(machine.program, machine.trace, DATASHEET)
    assert sum(e["ph"] == "s" for e in trace["traceEvents"]) == 3
    assert trace["arrowsLeftOut"] == every - 3
