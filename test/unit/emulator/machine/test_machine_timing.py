"""Cycles by hand for small programs, and what may not change them: the order in which the emulator serves units."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest
from element_programs import indexed, relayout
from machine_builds import LXLU, LXSU, MNIL, MNIS, PT, SFP, Build, program, v1, vconst, vin, vout, vred
from machine_programs import Work, all_cases, elementwise, matmul, reduction, softmax
from mutations import carriers, same

from ktir.cost.program import kernel_work
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.machine import Machine
from ktir.emulator.machine.reports.report import report
from ktir.emulator.machine.step.step import Step
from ktir.emulator.machine.trace.trace import KernelStatistics
from ktir.isa.descriptor import Bound
from ktir.isa.program import Argument
from ktir.target import DATASHEET, FITTED

ARGUMENTS = [Argument("x", "input", 4096, 2), Argument("y", "output", 4096, 2), Argument("f", "input", 512, 4)]
CASES = all_cases()


def statistics(b: Build, target=DATASHEET) -> KernelStatistics:
    """What the kernel takes."""
    return control(program("p", ARGUMENTS, b.kernel()), target).statistics[0]


def chain(n: int, *body, cores: int = 1, width: int = 1) -> Build:
    """Load 2n entries, n per corelet through the vector unit, store."""
    b = Build("chain", cores)
    size = {"element_bytes": 2 * width}
    rows = b.table([2 * n * width * c for c in range(cores)])
    b.add(
        MNIL,
        "move",
        src=b.ddr(0 if width == 1 else 2, (2 * n,), (width,), core_table=rows, **size),
        dst=b.lx((2 * n,), (width,), **size),
    )
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((n,), (width,), corelet_step=n * width, **size), fifo="I0")
    b.rep(n, 1, vin(0, "I0"), *body)
    b.add(LXSU, "pull", lx=b.lx((n,), (1,), base=2 * n * width, corelet_step=n), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    out = b.table([2 * n * c for c in range(cores)])
    b.add(MNIS, "move", dst=b.ddr(1, (2 * n,), (1,), core_table=out), src=b.lx((2 * n,), (1,), base=2 * n * width))
    return b


def test_a_chain():
    s = statistics(chain(2, v1("neg", 1, 0), vout(1, "O")))
    load = 4  # ceil(4 sticks * 128 bytes / 136.5 bytes per cycle)
    start = load + 300 + 8  # latency, signal
    assert s.units[LXLU].end == start + 2
    assert s.units[SFP].end == start + 1 + 2  # one cycle behind
    assert s.units[LXSU].end == start + 3 + 16 + 1
    assert s.cycles == start + 3 + 16 + 1 + 8 + load
    assert s.units[LXLU].stalls == {"token MNIL": start}
    assert s.units[SFP].stalls == {"empty I0": start + 1}
    assert s.units[MNIS].stalls == {"token LXSU": s.cycles - load}
    assert (s.dram_read, s.dram_written) == (512, 512)
    assert s.fifo_entries == {"I0": 2, "O": 2}


def test_rounding_up_happens_once_per_transfer():
    one, all_ = statistics(chain(2, vout(0, "O"))), statistics(chain(2, vout(0, "O"), cores=32))
    assert all_.units[MNIL].busy == 120  # 32 x 512 bytes share the channel
    assert all_.cycles - one.cycles == 2 * (120 - 4)


def test_f32_entries_take_two_cycles():
    s = statistics(chain(5, v1("mov", 1, 0, True), vout(1, "O"), width=2))
    assert s.units[LXLU].busy == 10
    assert s.units[LXSU].busy == 5


def test_a_full_fifo_delays_the_producer():
    n = 100
    s = statistics(chain(n, v1("exp", 1, 0, True), vout(1, "O")))
    start = s.units[LXLU].stalls["token MNIL"]
    # the vector unit takes entry j at start + 1 + 4 j; the slot of entry j - 16 is free when that entry is done
    assert s.units[LXLU].end == start + 1 + 4 * (n - 16) + 1
    assert s.units[SFP].end == start + 1 + 4 * n
    assert s.units[LXLU].stalls["full I0"] == s.units[LXLU].end - start - n
    deep = statistics(chain(n, v1("exp", 1, 0, True), vout(1, "O")), replace(DATASHEET, fifo_entries=1000))
    assert deep.units[LXLU].end == start + n
    assert deep.cycles == s.cycles


def test_costs_of_vector_operations():
    def busy(*body, groups=3, sticks=5):
        b = Build("k", 1)
        b.rep(groups, sticks, *body)
        return statistics(b).units[SFP].busy

    const = vconst(0, 1.0)
    assert busy(const) == 15  # at least one cycle per stick
    assert busy(const, v1("neg", 1, 0)) == 15
    assert busy(const, v1("neg", 1, 0), v1("exp", 2, 0)) == 15 * 5
    assert busy(const, vred("add", 1, 0, "stick")) == 15 * 6
    assert busy(const, v1("exp", 1, 0, phase="start"), vred("add", 2, 0, "end")) == 15 + 3 * (4 + 6)


def test_array():
    b = Build("k", 1)
    b.add(MNIL, "move", src=b.ddr(0, (64,), (1,)), dst=b.lx((64,), (1,)))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((64,), (1,)), fifo="W")
    b.add(LXLU, "push", lx=b.lx((10,), (1,)), fifo="A")
    b.add(PT, "ldw")
    b.add(PT, "mm", rows=10)
    b.add(PT, "pto")
    b.rep(10, 1, vin(0, "P"))
    s = statistics(b)
    start = s.units[LXLU].stalls["token MNIL"]
    assert s.units[PT].busy == 64 + 10 * 8 + 24 + 10
    assert s.units[PT].end == start + 1 + 64 + 10 * 8 + 24 + 10
    assert s.units[SFP].end == s.units[PT].end + 1


def test_par_shares_one_port():
    b = Build("k", 1)
    b.add(MNIL, "fill", lx=b.lx((64,), (1,)), value=0.0)
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "par", streams=2)
    b.add(LXLU, "push", lx=b.lx((12,), (1,)), fifo="I0")
    b.add(LXLU, "push", lx=b.lx((12,), (1,)), fifo="I1")
    b.rep(12, 1, vin(0, "I0"), vin(1, "I1"))
    s = statistics(b)
    assert s.units[MNIL].busy == 64
    assert s.units[LXLU].end == 64 + 8 + 24


def test_multicast_time():
    def load(members: int, group: int | None = 0) -> KernelStatistics:
        b = Build("k", 32)
        b.groups.append([c // members * members for c in range(32)])
        b.add(MNIL, "move", src=b.ddr(0, (64,), (1,)), dst=b.lx((64,), (1,)), group=group)
        return statistics(b)

    assert load(1, None).dram_read == 32 * 64 * 128
    assert load(32).dram_read == 64 * 128
    assert load(4).units[MNIL].busy == 480  # eight reads of 8 KiB at 136.5 bytes per cycle
    assert load(8).units[MNIL].busy == 240
    assert load(32).units[MNIL].busy == int(np.ceil(64 * 4**0.75))  # the ring, slowed by 32 / 8 to the power 0.75


def test_the_channel_is_granted_by_time():
    """MNIS asks later than MNIL's second load, so it comes after it, however the emulator serves them."""
    ends = set()
    for seed in range(6):
        b = Build("k", 1)
        for i in range(3):
            b.add(MNIL, "move", src=b.ddr(0, (1024,), (1,)), dst=b.lx((1024,), (1,), base=1024 * i))
        b.add(MNIS, "move", dst=b.ddr(1, (1,), (1,)), src=b.lx((1,), (1,), base=5000))
        b.units[MNIS].insert(0, b.units[MNIS].pop())
        s = control(program("p", ARGUMENTS, b.kernel()), DATASHEET, seed=seed, checks=False).statistics[0]
        ends.add((s.units[MNIL].end, s.units[MNIS].end, s.cycles))
    # MNIS asks at cycle 0 as MNIL does: the lower unit id first
    assert ends == {(960 + 1 + 960 + 960, 960 + 1, 2881 + 300)}


@pytest.mark.parametrize("name", CASES)
def test_serving_order(name):
    """Units served in random order: same cycles, same stalls, same values."""
    case = CASES[name]
    usual = control(case.program, DATASHEET).statistics
    for seed in range(4):
        trace = control(case.program, DATASHEET, seed=seed)
        assert trace.statistics == usual
        arguments = carriers(case.program, case)
        Step(case.program, trace, 2).run(arguments)
        assert all(e is None or same(a, e) for a, e in zip(arguments, case.expected, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_fifo_depth(name):
    """The depth changes cycles, never verdict or values."""
    case = CASES[name]
    before = None
    for depth in (64, 16, 4, 2):
        trace = control(case.program, replace(DATASHEET, fifo_entries=depth))
        cycles = sum(s.cycles for s in trace.statistics)
        assert before is None or cycles >= before
        before = cycles
        arguments = carriers(case.program, case)
        Step(case.program, trace, 2).run(arguments)
        assert all(e is None or same(a, e) for a, e in zip(arguments, case.expected, strict=True))


def test_timing_without_checks():
    case = CASES["softmax"]
    assert control(case.program, DATASHEET, checks=False).statistics[0].cycles == control(case.program, DATASHEET).statistics[0].cycles


def test_streaming_programs_reach_the_memory_bound():
    """Softmax of 4096 x 1024 moves 16 MiB; at 204.8 GB/s that is 81.9 us. The device was fitted to 105 GB/s where as much is read as
    written: 159.8 us."""
    case = softmax(Work(4096, 128, 8), 16)
    r = report("softmax", control(case.program, DATASHEET), DATASHEET)
    assert r.dram_bytes == 2 * 4096 * 1024 * 2
    assert r.kernels[0].dram_utilisation > 0.97
    assert 81.9 < r.microseconds < 84
    slow = report("softmax", control(case.program, FITTED), FITTED)
    assert 159.7 < slow.microseconds < 162


def test_two_buffers_hide_latency():
    once, twice = (
        sum(s.cycles for s in control(elementwise(Work(512, 16, 2), 4, buffers=n).program, DATASHEET).statistics) for n in (1, 2)
    )
    assert twice < 0.75 * once


def test_report_text():
    machine = Machine(CASES["matmul"].program, DATASHEET)
    text = str(machine.report).splitlines()
    assert text[0].startswith("program 'matmul' on datasheet at 1.5 GHz: ")
    assert text[1].startswith("kernel 'matmul': 8 cores, ")
    assert any(line.split()[:2] == ["PT", "x2"] for line in text)
    k = machine.report.kernels[0]
    assert k.unit(PT).instances == 2
    assert 0 < k.unit(PT).utilisation < 1
    assert machine.report.cycles == k.cycles
    assert machine.report.microseconds == pytest.approx(k.cycles / 1500)


def test_dead_writes():
    b = chain(2, vout(0, "O"))
    b.add(MNIL, "fill", lx=b.lx((3,), (1,), base=100), value=1.0)
    assert statistics(b).dead_writes == 3
    assert statistics(chain(2, vout(0, "O"))).dead_writes == 0
    assert control(reduction(Work(57, 8, 4), 200).program, DATASHEET).statistics[0].dead_writes == 0
    assert control(matmul(Work(20, 4, 2), 128, 128).program, DATASHEET).statistics[0].dead_writes == 0


# --- elements --------------------------------------------------------------------------------------------------------


def moved(n: int, cores: int = 1, **descriptor) -> tuple[int, int]:
    """Bytes read and cycles of MNIL for an element load of `n` entries."""
    b = Build("k", cores)
    ddr = b.ddr(0, (n,), descriptor.pop("stride", (64,)), **{"lane_stride": 1, **descriptor})
    b.add(MNIL, "move", src=ddr, dst=b.lx((n,), (1,)))
    s = statistics(b)
    return s.dram_read, s.units[MNIL].busy


def test_memory_moves_granules_of_32_bytes():
    assert moved(4) == (4 * 128, 4)
    assert moved(4, base=16)[0] == 4 * 128
    assert moved(4, base=1)[0] == 4 * 128 + 32, "the entries are adjacent: one granule more"
    assert moved(4, base=1, stride=(80,))[0] == 4 * 160
    assert moved(4, base=63, lane_stride=-1, stride=(64,))[0] == 4 * 128
    assert moved(2, bounds=(Bound(limit=10, lanes=True),))[0] == 2 * 32
    assert moved(2, bounds=(Bound(limit=17, lanes=True),))[0] == 2 * 64
    assert moved(3, lane_stride=0, stride=(1,))[0] == 32
    assert moved(3, 4, stride=(0,))[0] == 4 * 128, "each core fetches for itself"


def test_lx_takes_a_fragment_per_cycle():
    assert moved(4, lane_stride=16, stride=(1,)) == (64 * 32, 4 * 64), "a granule serves four entries, but each lane goes alone"
    assert moved(4, 32, lane_stride=16, stride=(1,)) == (32 * 64 * 32, ceil(32 * 64 * 32 / DATASHEET.dram_bytes_per_cycle))
    assert moved(4, lane_stride=0, stride=(1,))[1] == 4


@pytest.mark.parametrize("seed", range(12))
def test_the_cost_model_counts_the_same_bytes(seed):
    for case in (relayout(seed), indexed(seed, scatter=False), indexed(seed, scatter=True)):
        (kernel,), (found,) = case.program.kernels, Machine(case.program, DATASHEET).report.kernels
        work = kernel_work(kernel, DATASHEET)
        assert sum(x.moved for x in work.transfers if x.reads) == found.dram_read
        assert sum(x.moved for x in work.transfers if not x.reads) == found.dram_written


def test_indices_are_priced_each_on_its_own():
    def read(stride: int) -> int:
        b = Build("k", 1)
        ids = b.ddr(1, (4,), (1,), lane_stride=1, element_bytes=4)
        b.add(MNIL, "move", src=b.ddr(0, (4,), (stride,), lane_stride=1), dst=b.lx((4,), (1,)), index=ids, dim=0, size=4)
        p = program("p", [Argument("x", "input", 100, 2), Argument("i", "input", 2, 4)], b.kernel())
        return control(p, DATASHEET).statistics[0].dram_read

    assert read(64) == 4 * 128 + 32
    assert read(16) == 4 * 128 + 32, "rows may overlap, but who knows"
    assert read(65) == 4 * 160 + 32, "a row may begin anywhere in a granule"
