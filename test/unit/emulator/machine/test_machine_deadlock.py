"""Tokens and FIFO entries that are left over or missing, and units that wait for ever."""

from dataclasses import replace

from fault_programs import clean, found, loaded
from machine_builds import LXLU, LXSU, MNIL, MNIS, SFP, Build, v2, vin, vout

from ktir.emulator.machine.program import faults
from ktir.isa.program import Channel
from ktir.target import DATASHEET


def test_leftover_tokens():
    b = Build("k", 1)
    b.sig(MNIL, LXLU, 3, 2)
    e = found(faults.TokenFault, b)
    assert "channel MNIL -> LXLU, token 3 ends with 2 tokens, but the kernel declares 0" in e.message
    b = Build("k", 1, channels=[Channel(MNIL, LXLU, 3, 2)])
    b.sig(MNIL, LXLU, 3, 2)
    clean(b)
    b = Build("k", 1, channels=[Channel(MNIL, LXLU, 3, 2)])
    assert "ends with 0 tokens, but the kernel declares 2" in found(faults.TokenFault, b).message


def test_token_overflow():
    b = Build("k", 1, channels=[Channel(MNIL, LXLU, 0, 300)])
    b.loop(3, 0, MNIL)
    b.sig(MNIL, LXLU, 0, 100)
    b.end(0, MNIL)
    e = found(faults.TokenFault, b)
    assert "channel MNIL -> LXLU, token 0 overflows" in e.message
    assert e.site is not None
    assert e.site.counters == ((0, 2),)


def test_core_units_take_from_both_corelets():
    """A core unit's WAIT needs a token of each corelet; corelets signal each on their own."""
    b = Build("k", 1)
    b.sig(LXLU, MNIL)
    b.wait(MNIL, LXLU)
    b.sig(LXLU, LXSU)
    b.wait(LXSU, LXLU)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    clean(b)


def test_leftover_entries():
    b = loaded()
    b.add(LXLU, "push", lx=b.lx((3,), (1,)), fifo="I1")
    e = found(faults.FifoFault, b)
    assert "3 entries are left in FIFO I1 at the end of the kernel, pushed by LXLU" in e.message


def test_deadlock_of_two_units():
    b = Build("k", 1)
    b.wait(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.sig(LXLU, MNIL)
    b.sig(MNIL, LXLU)
    e = found(faults.Deadlock, b)
    assert isinstance(e, faults.Deadlock)
    assert e.message.startswith("deadlock of MNIL -> LXLU: MNIL at word 0 'wait' waits for 1 of token 0 from LXLU, which has posted 0")
    assert e.waits[MNIL][1] is LXLU
    assert e.site is not None
    assert e.site.unit is MNIL


def test_deadlock_on_a_full_fifo():
    """Two operands of more than 16 entries, pushed one after the other: the vector unit needs both."""

    def build(par: bool) -> Build:
        b = loaded(40)
        if par:
            b.add(LXLU, "par", streams=2)
        for fifo in ("I0", "I1"):
            b.add(LXLU, "push", lx=b.lx((20,), (1,), corelet_step=20), fifo=fifo)
        b.rep(20, 1, vin(0, "I0"), vin(1, "I1"), v2("max", 2, 0, 1), vout(2, "O"))
        b.add(LXSU, "pull", lx=b.lx((20,), (1,), base=40, corelet_step=20), fifo="O")
        return b

    e = found(faults.Deadlock, build(False))
    assert "LXLU at word 1 'push' waits for room in FIFO I0 (SFP); SFP at word 0 'rep' waits for entries in FIFO I1 (LXLU)" in e.message
    assert "deadlock of LXLU -> SFP" in e.message
    clean(build(True))
    clean(build(False), target=replace(DATASHEET, fifo_entries=20))


def test_deadlock_on_a_halted_unit():
    b = Build("k", 1)
    b.wait(MNIS, LXSU)
    e = found(faults.Deadlock, b)
    assert "(LXSU, which has halted)" in e.message


def test_runaway_loops(monkeypatch):
    monkeypatch.setattr("ktir.emulator.machine.control.control.MAX_WORDS", 1000)
    b = Build("k", 1)
    b.loop(2**31 - 1, 0, SFP)
    b.end(0, SFP)
    assert "executes more than 1000 words" in found(faults.IllegalProgram, b).message
