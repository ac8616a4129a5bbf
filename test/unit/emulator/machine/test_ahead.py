"""Loads ahead of a kernel: the same values however many are in time, cycles by hand, and what makes a difference is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fault_programs import ARGUMENTS, clean, found
from literal_runs import differing, literal
from machine_builds import LXLU, LXSU, MNIL, MNIS, Build, half, program, v1, vin, vout
from test_machine_timing import chain

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.reports.roofline import roofline
from ktir.emulator.machine.step.step import Step
from ktir.isa.program import Argument, Program
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET

LONG = [Argument("x", "input", 4096, 2), Argument("y", "output", 4096, 2), Argument("f", "input", 512, 4)]


def streamed(base: int, ahead: int = 0, *, arg: int = 0, out: int = 1, to: int = 0, cores: int = 1) -> Build:
    """Two trips by two of four sticks each, over two slots of LX from `base` on; results go through the four sticks behind them."""
    b = Build("k", cores)
    rows = b.table([32 * c for c in range(cores)])
    turns = {"buffers": 2, "rotate_levels": 0b10, "rotate_step": 4}
    b.credits(LXLU, MNIL, 0, 2)
    b.credits(MNIS, LXSU, 0, 1)
    b.loop(2, 0)
    b.loop(2, 1)
    b.wait(MNIL, LXLU)
    source = b.ddr(arg, (4,), (1,), steps={0: 8, 1: 4}, core_table=rows)
    b.add(MNIL, "move", src=source, dst=b.lx((4,), (1,), base=base, **turns), ahead=ahead)
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((2,), (1,), base=base, corelet_step=2, **turns), fifo="I0")
    b.sig(LXLU, MNIL)
    b.rep(2, 1, vin(0, "I0"), v1("neg", 1, 0), vout(1, "O"))
    b.wait(LXSU, MNIS)
    b.add(LXSU, "pull", lx=b.lx((2,), (1,), base=base + 8, corelet_step=2), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    target = b.ddr(out, (4,), (1,), base=to, steps={0: 8, 1: 4}, core_table=rows)
    b.add(MNIS, "move", dst=target, src=b.lx((4,), (1,), base=base + 8))
    b.sig(MNIS, LXSU)
    b.end(1)
    b.end(0)
    return b


@pytest.mark.parametrize("cores", [(1, 1), (1, 2), (2, 1)])
def test_values(cores: tuple[int, int]) -> None:
    """Any number of loads may be in time: the literal machine draws it."""
    first, second = (streamed(at, ahead, to=to, cores=n) for at, ahead, to, n in ((0, 0, 0, cores[0]), (64, 2, 16, cores[1])))
    p = program("p", ARGUMENTS, first.kernel(), second.kernel())
    assert not verify(p, DATASHEET)
    rng = np.random.default_rng(0)
    given = [half(rng, *carrier_shape(a)) if a.given else np.zeros(carrier_shape(a), np.float32) for a in p.arguments]
    trace = control(p, DATASHEET)
    assert [e.counters[:2] for e in trace.events if e.kernel == 1][:2] == [(0, 0), (0, 1)]
    wanted = literal(replace(p, kernels=[first.kernel(), streamed(64, 0, to=16, cores=cores[1]).kernel()]), given)
    for seed in range(6):
        assert differing(p, literal(p, given, seed), wanted) is None
    for executor in (Tape(Builder(p, trace, 2).build()), Step(p, trace, 2)):
        got = [a.copy() for a in given]
        executor.run(got)
        assert differing(p, wanted, got) is None


def cycles(*builds: Build, target=DATASHEET, **how) -> list[int]:
    return [s.cycles for s in control(program("p", LONG, *(b.kernel() for b in builds)), target, **how).statistics]


def second(n: int, *, base: int = 512, ahead: int = 1) -> Build:
    """A chain that loads 2 n sticks, ahead of it or not, behind `base` sticks of LX."""
    b = chain(n, vout(0, "O"))
    b.units[MNIL] = [replace(w, operands={**w.operands, "ahead": ahead}) if w.op == "move" else w for w in b.units[MNIL]]
    b.descriptors = [replace(d, base=d.base + 128 * base) if d.space == "lx" else d for d in b.descriptors]
    return b


def ready(n: int) -> int:
    """Cycles until 2 n sticks have been loaded."""
    return -(-2 * n * 128 // 137) + 300


FIRST = 4 + 300 + 8 + 3 + 16 + 1 + 8 + 4
"""Cycles of a chain of 2 n = 4 sticks; the last four are of the store, after the first four MNIL is free."""


@pytest.mark.parametrize(
    ("n", "saved"),
    [
        (2, 4 + 300),  # all is there when the kernel begins
        (50, 94 + 300 - (94 + 300 - (FIRST - 4))),  # it lands later: what was before counts no more
        (500, FIRST - 4 - 4),  # the store of the kernel before goes first
    ],
)
def test_a_load_is_hidden(n: int, saved: int) -> None:
    before, apart = cycles(chain(2, vout(0, "O")), second(n, ahead=0))
    assert before == FIRST
    assert cycles(chain(2, vout(0, "O")), second(n)) == [FIRST, apart - saved]


def test_what_is_late_is_loaded_in_its_place() -> None:
    """A launch that takes longer than what is left of the kernel before; a second load, when the first one takes longer than that."""
    slow = replace(DATASHEET, launch_cycles=1000)
    assert cycles(chain(2, vout(0, "O")), second(50), target=slow) == cycles(chain(2, vout(0, "O")), second(50, ahead=0), target=slow)
    once, twice = second(500), second(500)
    twice.units[MNIL].insert(0, twice.units[MNIL][0])
    twice.units[MNIL][0] = replace(twice.units[MNIL][0], operands={**twice.units[MNIL][0].operands, "dst": len(twice.descriptors)})
    twice.descriptors.append(replace(twice.descriptors[once.units[MNIL][0]["dst"]], base=128 * 8000))
    one, two = cycles(chain(2, vout(0, "O")), once)[1], cycles(chain(2, vout(0, "O")), twice)[1]
    assert two - one == 938  # of 1000 sticks


@pytest.mark.parametrize("seed", range(3))
def test_order_of_service(seed: int) -> None:
    builds = chain(2, vout(0, "O")), second(50), second(2, base=0)
    assert cycles(*builds, seed=seed) == cycles(*builds) == cycles(*builds, checks=False)


def filled_first(ahead: int) -> Build:
    """What it loads lies where a fill was, which LXLU has read."""
    b = Build("k", 1)
    lx = b.lx((4,), (1,), base=64)
    b.add(MNIL, "fill", lx=lx, value=1.0)
    for after in (b.lx((2,), (1,), base=64, corelet_step=2),) * 2:
        b.sig(MNIL, LXLU)
        b.wait(LXLU, MNIL)
        b.add(LXLU, "push", lx=after, fifo="I0")
        b.rep(2, 1, vin(0, "I0"))
        if len(b.units[MNIL]) == 2:
            b.sig(LXLU, MNIL)
            b.wait(MNIL, LXLU)
            b.add(MNIL, "move", src=b.ddr(0, (4,), (1,)), dst=lx, ahead=ahead)
    return b


def stored_first(ahead: int) -> Build:
    """What it loads is what it has stored."""
    b = Build("k", 1)
    b.add(MNIL, "move", src=b.ddr(0, (4,), (1,)), dst=b.lx((4,), (1,), base=64))
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", src=b.lx((4,), (1,), base=64), dst=b.ddr(2, (4,), (1,)))
    b.sig(MNIS, MNIL)
    b.wait(MNIL, MNIS)
    b.add(MNIL, "move", src=b.ddr(2, (4,), (1,)), dst=b.lx((4,), (1,), base=96), ahead=ahead)
    return b


@pytest.mark.parametrize(
    ("make", "ahead", "kind", "message"),
    [
        (lambda n: (streamed(0), streamed(0, n)), 1, faults.WarHazard, "overwrites LX byte 0 before"),
        (lambda n: (streamed(0), streamed(8, n)), 1, faults.WawHazard, "overwrites LX byte 1024, not ordered after"),
        (lambda n: (streamed(0, out=2), streamed(64, n, arg=2)), 1, faults.MemoryHazard, "reads argument 'p' byte 0 back, not ordered"),
        (lambda n: (streamed(0), streamed(64, n)), 3, faults.WarHazard, "may load LX byte 8192 ahead of its kernel, where"),
        (lambda n: (streamed(0), filled_first(n)), 1, faults.WawHazard, "overwrites LX byte 8192, to which"),
        (lambda n: (streamed(0, out=2), stored_first(n)), 1, faults.MemoryHazard, ""),
        (
            lambda n: (streamed(0, out=2), streamed(32), stored_first(n)),
            1,
            faults.MemoryHazard,
            "may read argument 'p' byte 0 ahead of its",
        ),
    ],
    ids=["read", "written", "memory", "slots", "filled", "both", "stored"],
)
def test_what_makes_a_difference_is_found(
    make: Callable[[int], tuple[Build, ...]], ahead: int, kind: type[faults.MachineFinding], message: str
) -> None:
    clean(*make(0))
    assert message in found(kind, *make(ahead)).message


def test_the_kernel_before_that_may_do_as_it_likes() -> None:
    """What an earlier one has written, or held in LX, is there."""
    clean(streamed(0, out=2), streamed(32), streamed(0, 2, arg=2))


def test_only_loads_from_memory_are_ahead() -> None:
    b = streamed(0)
    at = next(i for i, w in enumerate(b.units[MNIS]) if w.op == "move")
    b.units[MNIS][at] = replace(b.units[MNIS][at], operands={**b.units[MNIS][at].operands, "ahead": 1})
    p: Program = program("p", ARGUMENTS, b.kernel())
    assert [str(x.message) for x in verify(p, DATASHEET)] == ["'move' may be ahead of its kernel, but only loads from memory may"]


def test_rates_count_from_the_first_load_on() -> None:
    """A kernel whose loads came under the one before is not faster than the memory channel."""
    trace = control(program("p", LONG, second(64, ahead=0).kernel(), second(4, base=1024, ahead=2).kernel()), DATASHEET)
    before, ahead = trace.statistics
    assert before.lead == 0 < ahead.lead
    assert [p.microseconds * DATASHEET.clock_ghz * 1000 for p in roofline(trace, DATASHEET)] == pytest.approx(
        [before.cycles, ahead.cycles + ahead.lead]
    )
