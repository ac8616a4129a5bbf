"""Every kind of fault is found by the control run, placed in its word, and worded with both parties."""

from dataclasses import replace

import pytest
from fault_programs import ARGUMENTS, clean, finish, found, loaded, negate, store
from machine_builds import LXLU, LXSU, MNIL, MNIS, Build, program, vin, vout

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.machine import Machine
from ktir.emulator.machine.program import faults
from ktir.isa.descriptor import Bound
from ktir.target import DATASHEET


def test_a_clean_program():
    b = loaded()
    negate(b, 4, 0, 8)
    clean(finish(b, 8))


def test_read_after_write():
    b = loaded(signal=False)
    negate(b, 4, 0, 8)
    e = found(faults.RawHazard, b)
    assert e.kind == "RAW"
    assert str(e).splitlines() == [
        "model.py:12:5: error: RAW hazard: LXLU 'push' (word 0, corelet 0) reads LX byte 0, "
        "not ordered after MNIL 'move' (word 0) writes it [ktdp.read]",
        "model.py:10:5: note: the other access is MNIL 'move' (word 0) [ktdp.load]",
    ]
    assert e.site is not None
    assert (e.kernel, e.site.unit, e.site.word, e.site.corelet, e.op) == ("k", LXLU, 0, 0, "ktdp.read")
    assert e.other_site is not None
    assert e.other_site.unit is MNIL
    assert e.other is not None
    assert e.other.op == "ktdp.load"


def test_write_after_read():
    b = loaded()
    b.sig(LXLU, MNIL)
    b.wait(MNIL, LXLU)
    negate(b, 4, 0, 8)
    b.loop(2, 3, MNIL)
    b.add(MNIL, "fill", lx=b.lx((4,), (1,), base=2), value=0.0)
    b.end(3, MNIL)
    e = found(faults.WarHazard, b)
    assert e.kind == "WAR"
    wanted = "WAR hazard: MNIL 'fill' (word 4, i3 = 0) overwrites LX byte 256 before LXLU 'push' (word 2, corelet 0) has surely read it"
    assert wanted in str(e)


def test_write_after_write():
    b = loaded()
    negate(b, 4, 0, 4)
    e = found(faults.WarHazard, b)  # corelet 1's LXLU reads what corelet 0's LXSU overwrites
    assert e.site is not None
    assert e.other_site is not None
    assert (e.site.unit, e.site.corelet, e.other_site.unit, e.other_site.corelet) == (LXSU, 0, LXLU, 1)
    b = loaded(16)
    negate(b, 4, 0, 8)
    b.add(MNIL, "fill", lx=b.lx((1,), (1,), base=15), value=0.0)
    e = found(faults.WawHazard, b)
    assert "overwrites LX byte 1920, to which MNIL 'move' (word 0) may still be loading" in e.message
    b = loaded(16)
    negate(b, 4, 0, 8)
    b.add(MNIL, "fill", lx=b.lx((1,), (1,), base=11), value=0.0)  # what LXSU writes too
    e = found(faults.WawHazard, b)
    assert "overwrites LX byte 1408, " in e.message


@pytest.mark.parametrize("answered", [False, True])
def test_fill_while_a_load_is_in_flight(answered):
    """A load lands later than the words that MNIL runs next; only what somebody else has seen of it has landed for sure."""
    b = loaded(signal=answered)
    if answered:
        b.sig(LXLU, MNIL)
        b.wait(MNIL, LXLU)
    b.add(MNIL, "fill", lx=b.lx((1,), (1,), base=7), value=0.0)
    b.add(MNIL, "move", src=b.ddr(0, (1,), (1,)), dst=b.lx((1,), (1,), base=7))  # loads land in their order, and after a fill
    b.add(MNIL, "move", src=b.ddr(0, (1,), (1,)), dst=b.lx((1,), (1,), base=7))
    if answered:
        clean(b)
    else:
        e = found(faults.WawHazard, b)
        assert "MNIL 'fill' (word 1) overwrites LX byte 896, to which MNIL 'move' (word 0) may still be loading" in e.message


def test_corelets_write_one_stick():
    b = loaded()
    b.add(LXLU, "push", lx=b.lx((4,), (1,)), fifo="I0")
    b.rep(4, 1, vin(0, "I0"), vout(0, "O"))
    b.add(LXSU, "pull", lx=b.lx((4,), (1,), base=8, corelet_step=3), fifo="O")
    e = found(faults.WawHazard, b)
    assert e.kind == "WAW"


def test_in_place_is_legal_where_each_stick_is_read_first():
    b = loaded(40)
    negate(b, 20, 0, 0)
    clean(finish(b, 0))
    b = loaded(41)  # one stick ahead of the reads
    b.add(LXLU, "push", lx=b.lx((20,), (1,)), fifo="I0")
    b.rep(20, 1, vin(0, "I0"), vout(0, "O"))
    bound = (Bound(limit=1, corelet_step=1, dim=0, dim_step=0),)
    b.add(LXSU, "pull", lx=b.lx((20,), (1,), base=1, bounds=bound), fifo="O")
    found(faults.WarHazard, b)


def test_order_inside_par_is_not_assumed():
    b = loaded(40)
    b.add(LXLU, "push", lx=b.lx((1,), (1,)), fifo="I1")
    b.add(LXLU, "par", streams=2)
    b.add(LXLU, "push", lx=b.lx((4,), (1,), corelet_step=4), fifo="I0")
    b.add(LXLU, "push", lx=b.lx((1,), (1,), base=20), fifo="I1")
    b.rep(2, 1, vin(0, "I1"), vout(0, "O"))  # waits for I1 alone, then its result overwrites what I0 streams
    b.rep(4, 1, vin(0, "I0"), vout(0, "O"))
    b.add(LXSU, "pull", lx=b.lx((2,), (1,), base=0, corelet_step=4), fifo="O")
    e = found(faults.WarHazard, b)
    assert e.other_site is not None
    assert e.other_site.unit is LXLU


def test_uninitialised_lx():
    b = loaded()
    negate(b, 5, 0, 10)
    e = found(faults.UninitialisedRead, b)
    assert e.kind == "uninit"
    assert "LXLU 'push' (word 1, corelet 1) reads LX byte 1024, which nothing has written" in str(e)
    b = loaded(cores=2)
    row = b.table([1, 0])
    b.add(LXLU, "push", lx=b.lx((1,), (1,), corelet_step=1), fifo="I0")
    b.rep(1, 1, vin(0, "I0"), vout(0, "O"))
    only = (Bound(table=row, dim=0),)  # core 1 drops it
    b.add(LXSU, "pull", lx=b.lx((1,), (1,), base=20, corelet_step=1, bounds=only), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    store(b, 20, 2, core_table=b.table([0, 2]))
    found(faults.UninitialisedRead, b)


def test_uninitialised_lanes():
    b = loaded()
    b.add(LXLU, "push", lx=b.lx((1,), (1,), corelet_step=1), fifo="I0")
    b.rep(1, 1, vin(0, "I0"), vout(0, "O"))
    part = (Bound(limit=40, lanes=True),)
    b.add(LXSU, "pull", lx=b.lx((1,), (1,), base=20, corelet_step=1, bounds=part), fifo="O")
    b.sig(LXSU, LXLU, 1)
    b.wait(LXLU, LXSU, 1)
    b.rep(1, 1, vin(0, "I0"))
    for limit, wrong in ((40, False), (41, True)):
        c = replace(b, units={u: list(w) for u, w in b.units.items()})
        read = (Bound(limit=limit, lanes=True),)
        c.add(LXLU, "push", lx=c.lx((1,), (1,), base=20, corelet_step=1, bounds=read), fifo="I0")
        if wrong:
            found(faults.UninitialisedRead, c)
        else:
            clean(c)


def test_lx_of_earlier_kernels():
    a, b = loaded(cores=2), Build("next", 2)
    a.units[LXLU].clear()
    a.units[MNIL].pop()
    negate(b, 4, 0, 8)
    clean(a, finish_cores(b, 8))
    b = Build("more", 3)
    negate(b, 4, 0, 8)
    e = found(faults.UninitialisedRead, a_again(), finish_cores(b, 8))
    assert e.kernel == "more"


def a_again() -> Build:
    """A kernel of two cores that only loads."""
    b = Build("first", 2)
    b.add(MNIL, "move", src=b.ddr(0, (8,), (1,)), dst=b.lx((8,), (1,)))
    return b


def finish_cores(b: Build, at: int) -> Build:
    """Each core's 8 sticks to memory."""
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    store(b, at, core_table=b.table([8 * c for c in range(b.cores)]))
    return b


def test_element_sizes():
    b = loaded()
    b.add(LXLU, "push", lx=b.lx((2,), (2,), corelet_step=4, element_bytes=4), fifo="I0")
    b.rep(2, 1, vin(0, "I0"))
    e = found(faults.TypeFault, b)
    assert e.kind == "type"
    b = Build("k", 1)
    b.add(MNIL, "move", src=b.ddr(3, (1,), (1,)), dst=b.lx((1,), (1,)))
    assert "moves elements of 2 bytes, but argument 'f' has 4" in found(faults.IllegalProgram, b).message


def test_addresses():
    b = Build("k", 1)
    b.add(MNIL, "fill", lx=b.lx((2,), (1,), base=DATASHEET.lx_bytes // 128 - 1), value=0.0)
    assert "bytes 2097024 to 2097279 of LX, which has 2097152" in found(faults.OutOfRange, b).message
    b = Build("k", 2)
    b.add(MNIL, "move", src=b.ddr(0, (40,), (1,), core_table=b.table([0, 30])), dst=b.lx((40,), (1,)))
    assert "bytes 0 to 8959 of argument 'x' of 8192 bytes" in found(faults.OutOfRange, b).message
    b = Build("k", 2)  # the part beyond is clipped
    limit = (Bound(table=b.table([40, 34]), dim=0),)
    b.add(MNIL, "move", src=b.ddr(0, (40,), (1,), core_table=b.table([0, 30]), bounds=limit), dst=b.lx((40,), (1,)))
    clean(b)


def test_what_begins_at_a_core_table_may_go_backwards():
    b = Build("k", 2)
    b.loop(3, 0)
    backwards = b.ddr(0, (4,), (1,), steps={0: -2}, core_table=b.table([4, 30]))
    b.add(MNIL, "move", src=backwards, dst=b.lx((4,), (1,)))
    b.end(0)
    clean(b)
    b = Build("k", 1)
    b.add(MNIL, "move", src=b.ddr(0, (4,), (-1,), base=70), dst=b.lx((4,), (1,)))
    assert "bytes 8576 to 9087 of argument 'x' of 8192 bytes" in found(faults.OutOfRange, b).message


def test_two_cores_write_one_stick():
    b = loaded(cores=2, signal=False)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    store(b, 0, core_table=b.table([0, 7]))
    e = found(faults.MemoryHazard, b)
    assert "argument 'y' byte 896, which another core writes" in e.message


def _write_then_read(cores: int, ordered: bool, shift: int) -> Build:
    b = loaded(cores=cores, signal=False)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    rows = [8 * c for c in range(cores)]
    store(b, 0, arg=2, core_table=b.table(rows))
    if ordered:
        b.sig(MNIS, MNIL)
        b.wait(MNIL, MNIS)
    back = b.table([(r + shift) % (8 * cores) for r in rows])
    b.add(MNIL, "move", src=b.ddr(2, (8,), (1,), core_table=back), dst=b.lx((8,), (1,), base=8))
    return b


def test_reading_back():
    clean(_write_then_read(2, True, 0))
    e = found(faults.MemoryHazard, _write_then_read(2, True, 8))
    assert "which another core writes in this kernel" in e.message
    p = program("p", ARGUMENTS, _write_then_read(2, False, 0).kernel())
    with pytest.raises((faults.MemoryHazard, faults.UninitialisedRead)):
        control(p, DATASHEET)


def test_reading_what_another_core_reads_and_writing_it():
    b = loaded(cores=2, signal=False)
    b.add(MNIL, "move", src=b.ddr(2, (8,), (1,)), dst=b.lx((8,), (1,), base=8))
    first = loaded(signal=False)
    first.sig(MNIL, MNIS)
    first.wait(MNIS, MNIL)
    store(first, 0, arg=2)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    store(b, 0, arg=2, core_table=b.table([0, 8]))
    e = found(faults.MemoryHazard, first, b)
    assert "writes argument 'p' byte 0, which another core reads in this kernel" in e.message


def test_the_barrier_orders_kernels():
    a = loaded(signal=False)
    a.sig(MNIL, MNIS)
    a.wait(MNIS, MNIL)
    store(a, 0, arg=2)
    b = Build("other", 4)
    b.add(MNIL, "move", src=b.ddr(2, (8,), (1,)), dst=b.lx((8,), (1,)))
    clean(a, b)
    c = Build("beyond", 4)
    c.add(MNIL, "move", src=c.ddr(2, (9,), (1,)), dst=c.lx((9,), (1,)))
    e = found(faults.UninitialisedRead, loaded_to_pool(), c)
    assert "reads argument 'p' byte 1024, which nothing has written" in e.message


def loaded_to_pool() -> Build:
    """Writes 8 sticks of the pool."""
    b = loaded(signal=False)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    store(b, 0, arg=2)
    return b


def test_pool_lanes():
    a = loaded(signal=False)
    a.sig(MNIL, MNIS)
    a.wait(MNIS, MNIL)
    a.add(MNIS, "move", dst=a.ddr(2, (1,), (1,), bounds=(Bound(limit=9, lanes=True),)), src=a.lx((1,), (1,)))
    for limit, fine in ((9, True), (10, False)):
        b = Build("read", 1)
        bounds = (Bound(limit=limit, lanes=True),)
        b.add(MNIL, "move", src=b.ddr(2, (1,), (1,), bounds=bounds), dst=b.lx((1,), (1,)))
        first = replace(a, units={u: list(w) for u, w in a.units.items()})
        if fine:
            clean(first, b)
        else:
            found(faults.UninitialisedRead, first, b)


def test_writing_an_input():
    b = loaded(signal=False)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    store(b, 0, arg=0)
    assert "writes argument 'x', which is an input" in found(faults.IllegalProgram, b).message


def test_one_row_tensor():
    """Dead positions of a tile may fall on live ones of other sticks."""
    b = Build("row", 1)
    one = (Bound(limit=1, dim=1),)
    b.add(MNIL, "move", src=b.ddr(0, (3, 2), (1, 1), bounds=one), dst=b.lx((6,), (1,)))
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", dst=b.ddr(1, (3, 2), (1, 1), bounds=one), src=b.lx((6,), (1,)))
    clean(b)
    b = Build("row", 1)
    b.add(MNIL, "move", src=b.ddr(0, (3, 2), (1, 1)), dst=b.lx((6,), (1,)))
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", dst=b.ddr(1, (3, 2), (1, 1)), src=b.lx((6,), (1,)))
    assert "visits a stick twice" in found(faults.IllegalProgram, b).message


def test_multicast_members():
    b = Build("k", 3)
    b.groups.append([0, 0, 0])
    b.add(MNIL, "move", src=b.ddr(0, (1,), (1,), core_table=b.table([0, 0, 1])), dst=b.lx((1,), (1,)), group=0)
    e = found(faults.MulticastFault, b)
    assert "core 2 and its leader 0 describe different reads" in e.message


def test_machine_raises_findings():
    b = loaded(signal=False)
    negate(b, 4, 0, 8)
    with pytest.raises(faults.MachineFinding, match="RAW hazard"):
        Machine(program("p", ARGUMENTS, finish(b, 8).kernel()), DATASHEET)
