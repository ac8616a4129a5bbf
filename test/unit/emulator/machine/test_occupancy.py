"""What lies in LX when: sticks that a program touches, each written before it is read."""

from __future__ import annotations

import pytest
from machine_programs import all_cases
from random_streams import make

from ktir.emulator.machine import Machine, MachineFinding
from ktir.emulator.machine.reports.occupancy import lives
from ktir.isa.problem import ProgramError
from ktir.target import DATASHEET

CASES = all_cases()


def check(machine: Machine) -> None:
    """Dead positions of a tile have any address: they lie nowhere."""
    for core in (0, machine.trace.cores - 1):
        for life in lives(machine.program, machine.trace, core):
            assert 0 <= life.first <= life.last < machine.trace.lx_sticks
            assert life.last - life.first + 1 >= life.sticks >= 1
            assert 0 <= life.begin <= life.end <= machine.report.cycles


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str) -> None:
    check(Machine(CASES[name].program, DATASHEET))


def test_random_programs() -> None:
    for seed in range(30):
        try:
            machine = Machine(make(seed).program, DATASHEET)
        except (MachineFinding, ProgramError):
            continue
        check(machine)
