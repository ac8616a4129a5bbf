"""A machine that is made with what another one has found out gives the bits of word-by-word execution, without the control plane."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from machine_builds import Case
from machine_programs import all_cases
from random_streams import make

from ktir.emulator.machine import Machine, MachineFinding
from ktir.emulator.machine import machine as module
from ktir.emulator.machine.kept import from_bytes, to_bytes
from ktir.emulator.machine.machine import Mode
from ktir.isa.problem import ProgramError
from ktir.target import DATASHEET

CASES = all_cases()


def refused(*_: Any) -> Any:
    raise AssertionError("the control plane runs again")


def sound(seeds: range) -> Iterator[Case]:
    """Random programs without fault."""
    for seed in seeds:
        case = make(seed)
        try:
            Machine(case.program, DATASHEET)
        except (MachineFinding, ProgramError):
            continue
        yield case


def launched(machine: Machine, case: Case, mode: Mode) -> list[bytes | None] | str:
    """The arguments after a launch, or what it finds."""
    found = case.fresh()
    try:
        machine.launch(found, mode)
    except MachineFinding as finding:
        return str(finding)
    return [None if a is None else a.tobytes() for a in found]


def check(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Machine(case.program, DATASHEET)
    expected = launched(first, case, "step")
    before = to_bytes(first.kept())
    launched(first, case, "tape")
    assert len(to_bytes(first.kept())) == len(before), "memory of a launch is not kept"
    second = Machine(case.program, DATASHEET, from_bytes(before))
    assert second.report == first.report
    with monkeypatch.context() as patch:
        for name in ("control", "verify", "check_grid"):
            if not isinstance(expected, str):  # a finding has the place, which the trace knows
                patch.setattr(module, name, refused)
        for _ in range(2):
            assert launched(second, case, "tape") == expected
    assert len(second.trace.events) == len(first.trace.events), "it is there for who asks"


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(CASES[name], monkeypatch)


@pytest.mark.parametrize("first", [0, pytest.param(20, marks=pytest.mark.long)])
def test_random_programs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [*sound(range(first, first + (10 if first == 0 else 200)))]
    assert cases
    for case in cases:
        check(case, monkeypatch)


def test_bytes_that_are_not_whole() -> None:
    """Each truncation and each changed byte is seen."""
    data = to_bytes(Machine(CASES["sum"].program, DATASHEET).kept())
    assert from_bytes(data) is not None
    draw = random.Random(0)
    for at in [0, 31, 32, len(data) - 1, *(draw.randrange(len(data)) for _ in range(200))]:
        assert from_bytes(data[:at]) is None
        assert from_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]) is None
    assert from_bytes(b"") is None


def test_a_report_that_is_looked_at_meanwhile_is_kept() -> None:
    """The monitor's thread does so at any time: here in the middle of writing."""
    kept = Machine(next(sound(range(9))).program, DATASHEET).kept()

    class Name(str):
        def __reduce__(self) -> tuple[type[str], tuple[str]]:
            assert report.load.read >= 0
            return str, (str(self),)

    report = replace(kept.report, program=Name(kept.report.program))
    found = from_bytes(to_bytes(replace(kept, report=report)))
    assert found is not None
    assert (found.report, found.report.load) == (kept.report, kept.report.load)
