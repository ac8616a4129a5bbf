"""Programs give the values of NumPy with `numerics`, in both modes, on whole and uneven divisions, on one and two corelets."""

from dataclasses import replace

import numpy as np
import pytest
from machine_builds import LXLU, LXSU, MNIL, MNIS, Build, Case, half, pack, program, v1, v2, vacc, vin, vmask, vout, vred
from machine_programs import Work, all_cases, elementwise, matmul, reduction, row_tile, softmax, two_kernels
from mutations import same

from ktir.arithmetic import numerics
from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine
from ktir.isa.descriptor import Bound
from ktir.isa.problem import ProgramError
from ktir.isa.program import Argument
from ktir.target import DATASHEET, Target

CASES = all_cases()
ONE_CORELET = replace(DATASHEET, corelets=1)


def check(case: Case, target: Target = DATASHEET) -> Machine:
    """Launch in both modes, twice, and compare all bits."""
    machine = Machine(case.program, target)
    for mode in ("tape", "step", "tape"):
        arguments = case.fresh()
        machine.launch(arguments, mode)
        for i, (got, expected) in enumerate(zip(arguments, case.expected, strict=True)):
            if expected is not None:
                assert got is not None
                assert same(got, expected), f"argument {i} in mode {mode}"
    return machine


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    check(CASES[name])


@pytest.mark.parametrize("rows", [2, 31, 33, 57, 64])
def test_any_number_of_rows(rows):
    share = -(-rows // 32)
    check(elementwise(Work(rows, share, 2), 2, seed=rows))


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 128, 300])
@pytest.mark.parametrize("kind", ["add", "max", "min"])
def test_any_number_of_columns(columns, kind):
    check(reduction(Work(21, 4, 4), columns, kind, seed=columns))


def test_one_corelet():
    check(elementwise(Work(57, 6, 3, corelets=1), 3), ONE_CORELET)
    check(softmax(Work(20, 4, 2, corelets=1), 2), ONE_CORELET)
    check(matmul(Work(20, 4, 2, corelets=1), 128, 64), ONE_CORELET)


def test_corelet_without_work():
    """A bound gives corelet 1 only dead positions: it pushes pads and drops what it pulls."""
    w = Work(6, 3, 3)
    b = Build("odd", w.cores)
    x, y = b.take(6), b.take(6)
    b.loop(1, 0)
    b.add(MNIL, "move", src=row_tile(b, w, 0, 2), dst=b.lx((6,), (1,), base=x))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    alone = (Bound(limit=1, corelet_step=1, dim=0, dim_step=0),)
    b.add(LXLU, "push", lx=b.lx((3, 2), (1, 3), base=x, corelet_step=100, bounds=alone, pad="+inf"), fifo="I0")
    b.rep(3, 2, vin(0, "I0"), v1("neg", 1, 0), vout(1, "O"))
    b.add(LXSU, "pull", lx=b.lx((3, 2), (1, 3), base=y, corelet_step=100, bounds=alone), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=row_tile(b, w, 1, 2), src=b.lx((6,), (1,), base=y))
    b.end(0)
    values = half(np.random.default_rng(0), 6, 128)
    arguments = [Argument("x", "input", 12, 2), Argument("y", "output", 12, 2)]
    case = Case(program("odd", arguments, b.kernel()), [pack(values), pack(values)], [None, pack(-values)])
    machine = check(case)
    assert machine.report.kernels[0].dram_read == 12 * 128


def test_single_corelet_walk_reads_each_stick_once():
    machine = check(CASES["sum"])
    k = machine.report.kernels[0]
    assert k.dram_read == 57 * 4 * 128  # clipped rows are not read
    assert k.dram_written == 57 * 128


def test_f32_arguments_and_lane_bounds():
    """f32 in memory and LX, a tail inside a stick: lanes beyond are pads when read and kept when written."""
    b = Build("tail", 2)
    x, y = b.take(2 * 3), b.take(2 * 3)
    tail = (Bound(limit=64 + 40, dim=0, dim_step=64, lanes=True),)
    table = b.table([0, 4])
    b.loop(1, 0)
    f32 = {"element_bytes": 4}
    b.add(
        MNIL,
        "move",
        src=b.ddr(0, (2,), (2,), core_table=table, bounds=tail, pad="-inf", **f32),
        dst=b.lx((2,), (2,), base=x, **f32),
    )
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    one = (Bound(limit=1, corelet_step=1, dim=0, dim_step=0),)
    b.add(LXLU, "push", lx=b.lx((2,), (2,), base=x, **f32), fifo="I0")
    b.rep(2, 1, vin(0, "I0"), v2("max", 1, 0, 0), vout(1, "O"))
    b.add(LXSU, "pull", lx=b.lx((2,), (2,), base=y, corelet_step=50, bounds=one, **f32), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=b.ddr(1, (2,), (2,), core_table=table, bounds=tail, **f32), src=b.lx((2,), (2,), base=y, **f32))
    b.end(0)
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    want = values.copy()
    want[[1, 3], 40:] = -77  # untouched
    arguments = [Argument("x", "input", 8, 4), Argument("y", "output", 8, 4)]
    machine = check(Case(program("tail", arguments, b.kernel()), [values, values], [None, want]))
    assert machine.report.kernels[0].dram_read == 2 * 4 * 128


def test_multicast_groups():
    """Each core receives what its leader reads."""
    b = Build("groups", 5)
    b.groups.append([0, 0, 2, 2, 2])
    x = b.take(2)
    b.add(MNIL, "move", src=b.ddr(0, (2,), (1,), core_table=b.table([0, 0, 2, 2, 2])), dst=b.lx((2,), (1,), base=x), group=0)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", dst=b.ddr(1, (2,), (1,), core_table=b.table([0, 2, 4, 6, 8])), src=b.lx((2,), (1,), base=x))
    values = half(np.random.default_rng(0), 4, 64)
    want = values[[0, 1, 0, 1, 2, 3, 2, 3, 2, 3]]
    arguments = [Argument("x", "input", 4, 2), Argument("y", "output", 10, 2)]
    machine = check(Case(program("groups", arguments, b.kernel()), [values, want], [None, want]))
    assert machine.report.kernels[0].dram_read == 4 * 128  # each leader reads once


def test_core_tables_in_lx():
    """LX addresses by core: cores write and read different places; each is its own class."""
    b = Build("places", 4)
    places = b.table([0, 2, 4, 9])
    b.add(MNIL, "move", src=b.ddr(0, (2,), (1,), core_table=b.table([0, 2, 4, 6])), dst=b.lx((2,), (1,), core_table=places))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((1,), (1,), core_table=places, corelet_step=1), fifo="I0")
    b.rep(1, 1, vin(0, "I0"), v1("neg", 1, 0), vout(1, "O"))
    b.add(LXSU, "pull", lx=b.lx((1,), (1,), base=20, corelet_step=1, core_table=b.table([6, 0, 0, 1])), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(
        MNIS,
        "move",
        dst=b.ddr(1, (2,), (1,), core_table=b.table([6, 4, 2, 0])),
        src=b.lx((2,), (1,), base=20, core_table=b.table([6, 0, 0, 1])),
    )
    values = half(np.random.default_rng(0), 8, 64)
    want = -values[[6, 7, 4, 5, 2, 3, 0, 1]]
    arguments = [Argument("x", "input", 8, 2), Argument("y", "output", 8, 2)]
    machine = check(Case(program("places", arguments, b.kernel()), [values, want], [None, want]))
    assert max(machine.trace.classes) == 3


def _circle() -> Case:
    """The REP's second half reads what the PULL of its first half has written: no order of whole words exists."""
    n = 20
    b = Build("circle", 2)
    x, y, z, s = b.take(2 * n), b.take(2 * n), b.take(2 * n), b.take(4)
    rows = b.table([0, 2 * n])
    b.add(MNIL, "move", src=b.ddr(0, (2 * n,), (1,), core_table=rows), dst=b.lx((2 * n,), (1,), base=x))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((n,), (1,), base=x, corelet_step=n), fifo="I0")
    b.wait(LXLU, LXSU, 1)
    b.add(LXLU, "push", lx=b.lx((n,), (1,), base=y, corelet_step=n), fifo="I0")
    b.rep(
        1, 2 * n, vin(0, "I0"), v2("mul", 1, 0, 0, True), vmask(2, 1, 30 * 64 + 7, 1.0), vout(2, "O"), vacc("add", 16, 1),
        vred("max", 3, 16), vout(3, "Q", "end"),
    )  # fmt: skip
    b.add(LXSU, "pull", lx=b.lx((n,), (1,), base=y, corelet_step=n), fifo="O")
    b.sig(LXSU, LXLU, 1)
    b.add(LXSU, "pull", lx=b.lx((n,), (1,), base=z, corelet_step=n), fifo="O")
    b.add(LXSU, "pull", lx=b.lx((1,), (2,), base=s, corelet_step=2, element_bytes=4), fifo="Q")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=b.ddr(1, (2 * n,), (1,), core_table=rows), src=b.lx((2 * n,), (1,), base=z))
    last = b.ddr(2, (2,), (2,), core_table=b.table([0, 4]), element_bytes=4)
    b.add(MNIS, "move", dst=last, src=b.lx((2,), (2,), base=s, element_bytes=4))
    values = half(np.random.default_rng(0), 4, n, 64)
    first = numerics.round_f16(values * values)
    second = numerics.round_f16(first * first)
    masked = second.copy()
    masked[:, 10, 7:] = 1
    masked[:, 11:] = 1
    total = numerics.sum_in_order(np.concatenate((first, second), 1), 1).max(-1)
    arguments = [Argument("x", "input", 4 * n, 2), Argument("z", "output", 4 * n, 2), Argument("s", "output", 8, 4)]
    data = [values.reshape(-1, 64), masked.reshape(-1, 64), np.repeat(total[:, None], 64, 1)]
    return Case(program("circle", arguments, b.kernel()), list(data), [None, data[1], data[2]])


def test_rep_that_needs_its_own_result():
    machine = check(_circle())
    parts = [e.steps for e in machine.trace.events if e.op == "rep"]
    assert parts[0] == (0, 20)
    assert parts[-1] == (20, 40)


def test_kernels_share_pool_and_lx():
    machine = check(two_kernels(Work(57, 8, 8), Work(57, 2, 2), 3))
    assert [k.cores for k in machine.report.kernels] == [8, 29, 8]
    assert machine.report.kernels[2].dram_read == 0
    check(two_kernels(Work(29, 1, 2), Work(29, 15, 16), 1))


def test_launch_without_pool_array():
    case = CASES["two kernels"]
    machine = Machine(case.program, DATASHEET)
    arguments = case.fresh()
    assert arguments[1] is None
    pool = np.zeros((case.program.arguments[1].sticks, 64), np.float32)
    arguments[1] = pool
    machine.launch(arguments)
    assert pool.any()


def test_noncontiguous_arrays():
    case = CASES["sum"]
    arguments = case.fresh()
    x, y = arguments
    assert x is not None
    assert y is not None
    wide = np.zeros((len(y), 128), np.float32)
    Machine(case.program, DATASHEET).launch([np.asfortranarray(x), wide[:, ::2]])
    expected = case.expected[1]
    assert expected is not None
    assert same(np.ascontiguousarray(wide[:, ::2]), expected)
    assert not wide[:, 1::2].any()


def test_wrong_arrays_are_refused():
    case = CASES["sum"]
    machine = Machine(case.program, DATASHEET)
    x, y = case.fresh()
    assert x is not None
    assert y is not None
    with pytest.raises(KtirError, match="expects 2 arguments, but got 1"):
        machine.launch([x])
    with pytest.raises(KtirError, match=r"argument 'y' expects float32 \[57, 64\], but got none"):
        machine.launch([x, None])
    with pytest.raises(KtirError, match=r"'x' expects float32 \[228, 64\], but got float64"):
        machine.launch([x.astype(np.float64), y])  # pyright: ignore[reportArgumentType]
    with pytest.raises(KtirError, match=r"'y' expects float32 \[57, 64\], but got float32 \[56, 64\]"):
        machine.launch([x, y[1:]])
    y.flags.writeable = False
    with pytest.raises(KtirError, match="'y' is written, but its array is read-only"):
        machine.launch([x, y])


def test_the_verifier_comes_first():
    b = Build("bad", 1)
    b.add(LXLU, "push", lx=b.lx((4,), (1,)), fifo="I0")
    with pytest.raises(ProgramError, match="LXLU pushes 4 entries into FIFO I0, but SFP pops 0"):
        Machine(program("bad", [], b.kernel()), DATASHEET)
