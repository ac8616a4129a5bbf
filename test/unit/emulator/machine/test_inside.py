"""What happens inside of kernels adds up to what the machine's report has; LX by the published formulas."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from machine_programs import all_cases

from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports import scratchpad
from ktir.emulator.machine.reports.inside import hot_areas, inside
from ktir.emulator.machine.reports.occupancy import Life
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.instructions import Does
from ktir.isa.program import Program, Source
from ktir.isa.units import Unit
from ktir.target import DATASHEET, STICK_BYTES

CASES = all_cases()


def kept(name: str) -> tuple[Machine, Trace]:
    program = CASES[name].program
    return Machine(program, DATASHEET), control(program, DATASHEET, checks=False, journal=True)


@pytest.mark.parametrize("name", CASES)
def test_all_together_is_the_report(name: str) -> None:
    machine, trace = kept(name)
    found = inside(machine.program, trace, lambda kernel, source: (kernel, source))
    kernels = inside(machine.program, trace, lambda kernel, _: kernel)
    for report in machine.report.kernels:
        mine = [part for (kernel, _), part in found.items() if kernel == report.name]
        assert sum((part.busy for part in mine), Counter()) == Counter({u.unit: u.busy for u in report.units})
        assert sum((part.stalls for part in mine), Counter()) == sum((Counter(u.stalls) for u in report.units), Counter())
        assert sum(part.moved for part in mine) == report.dram_read + report.dram_written
        transfers = sum(e.instruction.does is Does.MOVE for e in trace.events if trace.kernels[e.kernel].kernel.name == report.name)
        assert sum(part.transfers for part in mine) == transfers
        whole = kernels[report.name]
        assert max(part.cycles for part in mine) <= whole.cycles <= min(report.cycles, sum(part.cycles for part in mine))
        assert all(max(part.busy.values(), default=0) <= part.cycles for part in mine)


def test_waits_belong_to_what_waits() -> None:
    machine, trace = kept("matmul")
    found = inside(machine.program, trace, lambda kernel, source: source.op)
    assert "" not in found, "words without a source count for the ones behind them"
    assert any(cause.startswith("token") for part in found.values() for cause in part.stalls)


def test_the_latency_of_a_transfer() -> None:
    """A load alone: its bytes over the channel, then the latency of memory; PT multiplies in a part of the time."""
    machine, trace = kept("matmul")
    report = machine.report.kernels[0]
    loads = [e for e in trace.events if e.unit is Unit.MNIL and e.instruction.does is Does.MOVE]
    found = inside(machine.program, trace, lambda kernel, source: source)
    first: Source = machine.program.source_of(loads[0].instruction.word)
    if sum(machine.program.source_of(e.instruction.word) == first for e in loads) == 1:
        assert found[first].dma_latency == loads[0].end
    assert found[first].dma_latency >= DATASHEET.dram_latency
    multiplying = sum(e.instruction.count for e in trace.events if e.instruction.does is Does.MULTIPLY) * DATASHEET.pt_row_cycles
    assert sum(part.multiplying for part in found.values()) == multiplying < report.cycles
    assert all(0 <= part.pe_util <= 1 for part in found.values())


@pytest.mark.parametrize("name", CASES)
def test_hot_areas_are_all_that_is_used(name: str) -> None:
    machine, trace = kept(name)
    areas = hot_areas(machine.program, trace)
    memory = [a for a in areas if a.space.startswith("argument")]
    assert sum(a.read for a in memory) == sum(k.dram_read for k in machine.report.kernels)
    assert sum(a.written for a in memory) == sum(k.dram_written for k in machine.report.kernels)
    assert [a.read + a.written for a in areas] == sorted((a.read + a.written for a in areas), reverse=True)
    sticks = [stick for a in areas if a.space == "LX of core 0" for stick in range(a.first, a.last + 1)]
    assert len(sticks) == len(set(sticks))
    assert max(sticks) < trace.lx_sticks


LIVES = [
    Life(0, 3, 0, 10, "a", "x:1:1", 4),
    Life(8, 9, 5, 20, "b", "x:2:1", 2),
    Life(0, 1, 12, 30, "c", "x:3:1", 2),
    Life(4, 4, 13, 14, "c", "x:3:1", 1),
]


def test_scratchpad_by_the_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocated at the three nodes: 4 sticks; 4 + 2; 2 + 2 + 1 while c writes. Of 16."""
    case = CASES["softmax"].program
    monkeypatch.setattr(scratchpad, "lives", lambda *_: LIVES)
    found = scratchpad.scratchpad_use(Program("p", case.arguments, []), Trace([], []), DATASHEET.with_room(16 * STICK_BYTES))
    allocated = [4, 6, 5]
    assert found.nodes == len(allocated)
    assert found.peak == Fraction(max(allocated), 16)
    assert found.average == pytest.approx(float(Fraction(sum(allocated), 3 * 16)))
    # free at the nodes: 4..15; 4..7 and 10..15; 2..3, 5..7 and 10..15: what is outside of the largest block
    assert found.fragmentation == pytest.approx(float(max(Fraction(0), Fraction(4, 10), Fraction(5, 11))))
    assert found.reuse == pytest.approx(float(Fraction(2, 4 + 2 + 2 + 1))), "c lies where a was"
