"""The tape gives the bits of word-by-word execution, and both give those of the literal machine, whatever order it serves its units in."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from literal_runs import differing, literal
from machine_builds import Case, case_in_bf16
from machine_programs import Work, all_cases, elementwise, matmul, reduction, softmax, two_kernels
from mutations import KINDS, SYNC, carriers, mutate, outcome, same
from random_streams import make

from ktir.arithmetic.numerics import round_to
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.grid import check_grid
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.program.faults import MachineFinding
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.step.step import Step
from ktir.isa.program import Kernel, Word
from ktir.isa.wellformed.verify import verify
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.target import DATASHEET

CASES = all_cases()
SMALL = {
    "elementwise": elementwise(Work(5, 3, 2), 2),
    "sum": reduction(Work(5, 4, 4), 130),
    "max": reduction(Work(7, 4, 2), 64, "max"),
    "softmax": softmax(Work(5, 3, 2), 2),
    "matmul": matmul(Work(5, 4, 4), 100, 64),
    "matmul transposed": matmul(Work(5, 4, 2), 64, 64, transposed=True),
    "two kernels": two_kernels(Work(5, 3, 4), Work(5, 2, 2), 1),
}


def accepted(case: Case) -> bool:
    """Whether verifier and control run find nothing."""
    if verify(case.program, DATASHEET):
        return False
    try:
        check_grid(case.program, control(case.program, DATASHEET))
    except MachineFinding:
        return False
    return True


def literal_agrees(case: Case, seed: int) -> None:
    """Same bits, whatever order the literal machine serves its units in."""
    program = case.program
    by_step, by_tape, given = carriers(program, case), carriers(program, case), carriers(program, case)
    trace = control(program, DATASHEET)
    Step(program, trace, 2).run(by_step)
    Tape(Builder(program, trace, 2).build()).run(by_tape)
    found = literal(program, [None if a.role == "pool" else x for a, x in zip(program.arguments, given, strict=True)], seed)
    for name, other in (("step", by_step), ("tape", by_tape)):
        difference = differing(program, found, other)
        assert difference is None, f"{name}: {difference}"


@pytest.mark.parametrize("seed", range(70))
def test_random_programs(seed):
    case = make(seed)
    outcome(case, case.program)


@pytest.mark.parametrize(("name", "half"), [*((name, "f16") for name in SMALL), *((name, "bf16") for name in ("softmax", "matmul"))])
def test_literal_machine_on_programs(name, half):
    literal_agrees(SMALL[name] if half == "f16" else case_in_bf16(SMALL[name]), 1)


def test_literal_machine_on_dlfloat16():
    """A compiled softmax; infinities, and what lies at the ends of the format, among its operands."""
    text = (Path(__file__).parents[3] / "lit" / "lowering" / "inductor" / "softmax.mlir").read_text()
    with context(), ir.Location.unknown():
        program = read(compile_logical(parse_module(text), cores=2, target=replace(DATASHEET, name="native", dl16="native"))).program
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(carrier_shape(a)).astype(np.float32) * 3 for a in program.arguments]
    for x in data:
        x[:6, :4] = [[np.inf], [-np.inf], [8573157376.0], [2.0**-31 * (1 + 2.0**-9)], [np.nan], [-0.0]]
    given = [round_to("dl16", x) if a.element_bytes == 2 else x for a, x in zip(program.arguments, data, strict=True)]
    assert {d.half for k in program.kernels for d in k.descriptors if d.element_bytes == 2} == {"dl16"}
    literal_agrees(Case(program, list(given), [None] * len(given)), 1)


@pytest.mark.turn
def test_literal_machine_on_random_programs():
    agreed = 0
    for seed in range(20):
        case = make(seed, (1, 2))
        if accepted(case):
            literal_agrees(case_in_bf16(case) if seed % 2 else case, seed)
            agreed += 1
    assert agreed > 7


def test_halves_are_kept_apart():
    """What is rounded to f16 is no bf16: neither in a stick nor for PT, nor in a move, nor in an argument."""
    case = case_in_bf16(SMALL["matmul"])
    assert accepted(case)
    (kernel,) = case.program.kernels
    for change, message in (
        ({"round": True}, "stores f32 values of FIFO O in bf16 sticks"),
        ({"rows": ...}, "but PT multiplies f16 values"),
    ):
        units = {u: [_in_f16(w) if change.keys() <= w.operands.keys() else w for w in words] for u, words in kernel.units.items()}
        program = replace(case.program, kernels=[replace(kernel, units=units)])
        with pytest.raises(MachineFinding, match=message):
            check_grid(program, control(program, DATASHEET))
    other = replace(kernel, descriptors=[replace(d, half="f16") if d.space == "lx" else d for d in kernel.descriptors])
    found = [str(p) for p in verify(replace(case.program, kernels=[other]), DATASHEET)]
    assert any("changes the elements from bf16 to f16" in text for text in found)
    arguments = [replace(a, half="f16") for a in case.program.arguments]
    found = [str(p) for p in verify(replace(case.program, arguments=arguments), DATASHEET)]
    assert any("has elements of bf16, but argument" in text for text in found)


def _in_f16(w: Word) -> Word:
    return replace(w, operands=w.operands | {"half": "f16"})


def test_launches_do_not_depend_on_each_other():
    """Buffers of a tape are reused: other values in between change nothing."""
    case = CASES["softmax"]
    tape = Tape(Builder(case.program, control(case.program, DATASHEET), 2).build())
    first, other, again = (carriers(case.program, case) for _ in range(3))
    other[0][:] = np.nan
    for arguments in (first, other, again):
        tape.run(arguments)
    assert same(first[1], again[1])
    assert np.isnan(other[1]).all()


def test_memory_of_a_tape():
    """Tiles share memory: it grows with the tile, not with the rows."""
    sizes = []
    for share in (16, 64):
        program = elementwise(Work(32 * share, share, 4), 4).program
        sizes.append(Tape(Builder(program, control(program, DATASHEET), 2).build()).bytes)
    assert sizes[0] == sizes[1]


# Mutations


@pytest.mark.parametrize("name", CASES)
def test_every_single_sync_word_matters(name):
    """Each WAIT and SIG dropped on its own is found, or changes no value."""
    case = CASES[name]
    for k, kernel in enumerate(case.program.kernels):
        for unit, words in kernel.units.items():
            for i, w in enumerate(words):
                if w.op in ("wait", "sig"):
                    p = Case(case.program, case.arguments, case.expected).program
                    units = {u: [x for j, x in enumerate(ws) if (u, j) != (unit, i)] for u, ws in kernel.units.items()}
                    verdict, _ = outcome(case, _with(p, k, units))
                    assert verdict in ("static", "dynamic", "harmless"), (unit, i)


@pytest.mark.parametrize("name", CASES)
def test_every_channel_matters(name):
    """Both ends of a channel dropped: totals still balance, so only the control run can find it."""
    case = CASES[name]
    verdicts = []
    for k, kernel in enumerate(case.program.kernels):
        channels = {(u.name, w["receiver"], w["token"]) for u, ws in kernel.units.items() for w in ws if w.op == "sig"}
        for sender, receiver, token in sorted(channels):
            ends = {(sender, "sig", token, receiver), (receiver, "wait", token, sender)}
            units = {
                u: [w for w in ws if w.op not in ("wait", "sig") or (u.name, w.op, w["token"], _peer(w)) not in ends]
                for u, ws in kernel.units.items()
            }
            left = [c for c in kernel.channels if (c.sender.name, c.receiver.name, c.token) != (sender, receiver, token)]
            verdict, _ = outcome(case, _with(case.program, k, units, left))
            verdicts.append(verdict)
    assert set(verdicts) <= {"dynamic", "harmless"}
    assert verdicts.count("dynamic") >= len(verdicts) // 2


def _peer(w) -> str:
    return w["receiver"] if w.op == "sig" else w["sender"]


def _with(program, index, units, channels=None):
    k = program.kernels[index]
    new = Kernel(k.name, k.cores, units, k.descriptors, k.tables, k.groups, k.channels if channels is None else channels)
    kernels = [new if i == index else other for i, other in enumerate(program.kernels)]
    return type(program)(program.name, program.arguments, kernels, program.sources)


def campaign(names: list[str], count: int, seed: int) -> dict[str, int]:
    """Random mutants of the programs; tape and step agree on each that the control run accepts."""
    r = random.Random(seed)
    verdicts: dict[str, int] = {}
    for name in names:
        for _ in range(count):
            kind, inner = r.choice(KINDS), r.getrandbits(32)
            mutant = mutate(CASES[name].program, random.Random(inner), kind)
            if mutant is None:
                continue
            verdict, _ = outcome(CASES[name], mutant)
            assert not (verdict == "silent" and kind in (*SYNC, "trips", "entries", "fifo")), (name, kind, inner)
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
    return verdicts


@pytest.mark.turn
def test_mutants():
    verdicts = campaign(list(CASES), 15, 7)
    total = sum(verdicts.values())
    assert verdicts["static"] + verdicts["dynamic"] > 0.65 * total


def agreeing_mutants(count: int, seed: int) -> int:
    """Mutants of the small programs that pass all checks compute the same in any order of units: no race was overlooked."""
    r = random.Random(seed)
    agreed = 0
    for _ in range(count):
        case = SMALL[r.choice(list(SMALL))]
        kind, inner = r.choice(["swap", "swap", "base", "level_step", "stride", "corelet_step", "bound", "table"]), r.getrandbits(32)
        mutant = mutate(case.program, random.Random(inner), kind)
        if mutant is None:
            continue
        changed = Case(mutant, case.arguments, case.expected)
        if accepted(changed):
            literal_agrees(changed, inner)
            agreed += 1
    return agreed


def test_mutants_against_the_literal_machine():
    assert agreeing_mutants(60, 3) > 15


@pytest.mark.long
def test_many_mutants_against_the_literal_machine():
    agreeing_mutants(3000, 4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_many_mutants(seed):
    campaign(list(CASES), 600, 100 + seed)


@pytest.mark.long
def test_many_random_programs():
    for seed in range(1000, 3000):
        case = make(seed)
        outcome(case, case.program)


@pytest.mark.long
def test_literal_machine_on_many_random_programs():
    for seed in range(1000, 1600):
        case = make(seed, (1, 2, 3))
        if accepted(case):
            literal_agrees(case, seed)
