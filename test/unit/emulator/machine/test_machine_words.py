"""Words and bodies without meaning, and what the array takes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from fault_programs import clean, found, loaded
from machine_builds import LXLU, LXSU, MNIL, MNIS, PT, SFP, Build, program, v1, v2, vacc, vconst, vin, vout

from ktir.emulator.machine.machine import Machine
from ktir.emulator.machine.program import faults
from ktir.isa.units import Unit
from ktir.target import DATASHEET


def _array(*words: tuple[str, dict], pushes: tuple[tuple[str, int], ...] = ()) -> Build:
    b = loaded(64)
    for fifo, n in pushes:
        b.add(LXLU, "push", lx=b.lx((n,), (1,)), fifo=fifo)
    for op, operands in words:
        b.add(PT, op, **operands)
    return b


REPEATED = (("ldw", {}), ("mm", {"rows": 4}), ("loop", {"trips": 2, "level": 0}))


@pytest.mark.parametrize(
    ("words", "pushes", "message"),
    [
        ([("mm", {"rows": 4})], [("A", 4)], "multiplies before any LDW"),
        ([("ldw", {}), ("pto", {})], [("W", 64)], "drains, but no MM has run"),
        ([("ldw", {}), ("mm", {"rows": 4})], [("W", 64), ("A", 4)], "ends with sums that PTO has not drained"),
        (
            [("ldw", {}), ("mm", {"rows": 4}), ("mm", {"rows": 2})],
            [("W", 64), ("A", 6)],
            "has 2 rows, but the accumulators hold sums of 4",
        ),
        (
            [*REPEATED, ("pto", {}), ("mm", {"rows": 2}), ("endl", {"level": 0}), ("pto", {})],
            [("W", 64), ("A", 8)],
            "has 4 rows, but the accumulators hold sums of 2",
        ),
        (
            [("ldw", {}), ("mm", {"rows": 4}), ("mm", {"rows": 4, "half": "i8x2"})],
            [("W", 64), ("A", 8)],
            "multiplies i8x2, but the accumulators hold sums in f32",
        ),
    ],
)
def test_accumulator_protocol(words, pushes, message):
    e = found(faults.AccumulatorFault, _array(*words, pushes=tuple(pushes)))
    assert e.kind == "pt"
    assert message in e.message


def test_array_takes_f16():
    b = Build("k", 1)
    f32 = {"element_bytes": 4}
    b.add(MNIL, "move", src=b.ddr(3, (32,), (2,), **f32), dst=b.lx((32,), (2,), **f32))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((2, 32), (0, 2), **f32), fifo="W")
    b.add(PT, "ldw")
    assert "takes f32 entries from FIFO W, but PT multiplies f16 values" in found(faults.TypeFault, b).message


@pytest.mark.parametrize(
    ("body", "fine"),
    [
        ([v2("mul", 1, 0, 0)], False),
        ([v2("mul", 1, 0, 0, True)], True),
        ([v2("max", 1, 0, 0)], True),
        ([v1("neg", 1, 0)], True),
        ([v1("exp", 1, 0)], False),
        ([vconst(1, 0.1)], False),
        ([vconst(1, 0.5)], True),
        ([v1("exp", 1, 0), v1("mov", 1, 1, True)], True),
        ([v2("add", 2, 0, 0, True), vconst(3, 1 / 3), v2("min", 1, 2, 3)], False),
    ],
)
def test_f16_sticks_take_rounded_values(body, fine):
    b = loaded()
    b.add(LXLU, "push", lx=b.lx((4,), (1,), corelet_step=4), fifo="I0")
    b.rep(4, 1, vin(0, "I0"), *body, vout(1, "O"))
    b.add(LXSU, "pull", lx=b.lx((4,), (1,), base=8, corelet_step=4), fifo="O")
    if fine:
        clean(b)
    else:
        e = found(faults.TypeFault, b)
        assert "stores f32 values of FIFO O in f16 sticks; no operation has rounded them" in e.message


def test_fill_of_f16_sticks():
    b = Build("k", 1)
    b.add(MNIL, "fill", lx=b.lx((1,), (1,)), value=0.1)
    assert "which is no f16 value" in found(faults.TypeFault, b).message


def _one(unit: Unit, op: str, more: Callable[[Build], dict] = lambda b: {}) -> Build:
    b = Build("k", 2)
    b.add(unit, op, **more(b))
    return b


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: _one(MNIL, "wait", lambda b: {"sender": "LXLU", "count": 0}), "expects a count of at least 1"),
        (lambda: _one(MNIL, "fill", lambda b: {"lx": 3}), "names descriptor 3, but the kernel has 0"),
        (lambda: _one(MNIL, "fill", lambda b: {"lx": b.ddr(0, (1,), (1,))}), "expects a descriptor of lx"),
        (lambda: _one(MNIL, "push", lambda b: {"lx": b.lx((1,), (1,)), "fifo": "I0"}), "is no instruction of this unit"),
        (lambda: _one(LXLU, "push", lambda b: {"lx": b.lx((1,), (1,)), "fifo": "O"}), "names FIFO O, which does not connect"),
        (lambda: _one(LXLU, "push", lambda b: {"lx": b.lx((3,), (1,)), "fifo": "W", "transpose": True}), "expects blocks of 64 entries"),
        (lambda: _one(LXLU, "par", lambda b: {"streams": 2}), "expects 2 PUSH or PULL words to follow"),
        (lambda: _one(PT, "mm", lambda b: {"rows": 300}), "expects 1 to 256 rows"),
        (lambda: _one(SFP, "rep", lambda b: {"groups": 1, "sticks": 1, "each": 2}), "expects a body of 2 words to follow"),
        (lambda: _one(SFP, "vconst", lambda b: {"dst": 0}), "stands outside of a REP body"),
        (lambda: _one(MNIL, "endl"), "ends level 0, which is not the innermost open loop"),
        (lambda: _one(MNIL, "loop", lambda b: {"trips": 1}), "inside a loop"),
        (lambda: _one(MNIL, "move", lambda b: {"src": b.ddr(0, (1,), (1,)), "dst": b.lx((1,), (1,)), "group": 0}), "names group 0"),
        (lambda: _one(MNIL, "move"), "expects a dst"),
        (lambda: _one(MNIS, "move", lambda b: {"dst": b.lx((1,), (1,))}), "over the ring from MNIS to MNIL"),
        (lambda: _one(MNIS, "move", lambda b: {"dst": b.ddr(1, (1,), (1,)), "src": b.lx((1,), (1,)), "group": 0}), "only reads of memory"),
    ],
)
def test_words_without_meaning(build, message):
    e = found(faults.IllegalProgram, build())
    assert e.kind == "illegal"
    assert message in e.message


def test_bodies_without_meaning():
    b = loaded()
    b.rep(1, 1, vin(0, "I0"), v1("neg", 1, 5), vout(1, "O"))
    e = found(faults.IllegalProgram, b)
    assert "SFP 'v1' reads register 5 before it is written" in e.message
    assert e.site is not None
    assert e.site.word == 2
    b = loaded()
    b.rep(2, 0, vin(0, "I0"), vacc("add", 16, 0))
    assert "expects at least 1 group of 1 stick" in found(faults.IllegalProgram, b).message


def test_words_that_are_too_long():
    b = Build("k", 1)
    b.lx((2**20, 2**20), (0, 1))
    assert "visits 1099511627776 entries" in found(faults.IllegalProgram, b).message
    b = Build("k", 1)
    b.rep(2**20, 2**20, vconst(0, 0.0))
    assert "computes 1099511627776 sticks" in found(faults.IllegalProgram, b).message


def test_nothing_at_all():
    assert Machine(program("empty", []), DATASHEET).report.cycles == 0
    Machine(program("empty", [], Build("k", 3).kernel()), DATASHEET).launch([])


def test_cores_and_tables():
    b = Build("k", 33)
    assert "expects 1 to 32 cores, but got 33" in found(faults.IllegalProgram, b).message
    b = Build("k", 2)
    b.lx((1,), (1,))
    b.descriptors[-1] = replace(b.descriptors[-1], core_table=4)
    assert "names a table, dimension or argument that does not exist" in found(faults.IllegalProgram, b).message
