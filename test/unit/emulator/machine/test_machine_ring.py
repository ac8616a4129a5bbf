"""Moves over the ring: entries of other cores over the ring, in every mode, with any number of cores and any choice of senders."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_runs import literal
from machine_builds import LXLU, LXSU, MNIL, MNIS, Build, Case, half, program, v2, vin, vout
from mutations import same

from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.program.faults import Deadlock, FifoFault, RawHazard, TypeFault, WarHazard
from ktir.isa.cycles import ring_route
from ktir.isa.descriptor import Bound
from ktir.isa.program import Argument
from ktir.isa.units import Unit
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET


def exchange(sources: list[list[int]], entries: int, element_bytes: Literal[2, 4] = 2, *, unordered: bool = False) -> Case:
    """Each core loads `entries` entries x; y = x, then for every round y += the x of core `sources[round][core]`. `unordered`: what
    arrives is read without waiting."""
    cores = len(sources[0])
    b = Build("exchange", cores)
    width = element_bytes // 2
    n = entries * width
    x, received, y = b.take(n), b.take(n), 0
    table = b.table([core * n for core in range(cores)])
    rows = {"extent": (entries,), "stride": (width,), "element_bytes": element_bytes}
    halves = {"extent": (entries,), "stride": (width,), "element_bytes": element_bytes}

    def whole(base: int) -> int:
        return b.lx(**rows, base=base)

    def both(base: int) -> int:
        """The same for corelet units: the second one does it again."""
        return b.lx(**halves, base=base)

    def only_first(base: int) -> int:
        return b.lx(**halves, base=base, bounds=(Bound(limit=1, corelet_step=1),), corelet_step=entries * width)

    b.add(MNIL, "move", src=b.ddr(0, **rows, core_table=table), dst=whole(x))
    b.sig(MNIL, LXLU)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.wait(LXLU, MNIL)
    b.credits(LXLU, MNIL, 0, 1)
    total = x
    for number, group in enumerate(sources):
        b.groups.append(group)
        b.add(MNIS, "move", src=whole(x), group=number)
        b.wait(MNIL, LXLU)
        b.add(MNIL, "move", dst=whole(received), group=number)
        if not unordered:
            b.sig(MNIL, LXLU, 1)
            b.wait(LXLU, MNIL, 1)
        b.add(LXLU, "par", streams=2)
        b.add(LXLU, "push", lx=both(total), fifo="I0")
        b.add(LXLU, "push", lx=both(received), fifo="I1")
        b.sig(LXLU, MNIL)
        b.rep(entries, 1, vin(0, "I0"), vin(1, "I1"), v2("add", 2, 0, 1, element_bytes == 2), vout(2, "O"))
        y = b.take(2 * n)
        b.add(LXSU, "pull", lx=only_first(y), fifo="O")
        b.sig(LXSU, MNIL, 2)
        b.wait(MNIL, LXSU, 2)
        b.sig(MNIL, LXLU, 2)
        b.wait(LXLU, MNIL, 2)
        total = y
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=b.ddr(1, **rows, core_table=table), src=whole(y))
    rng = np.random.default_rng(len(sources) * 100 + entries)
    values = half(rng, cores, entries, 64)
    want = values.copy()
    for group in sources:
        want = want + values[group]
        if element_bytes == 2:
            want = want.astype(np.float16).astype(np.float32)
    sizes = [Argument(name, role, cores * n, element_bytes) for name, role in (("x", "input"), ("y", "output"))]
    data = [values.reshape(-1, 64), want.reshape(-1, 64)]
    return Case(program("exchange", sizes, b.kernel()), data, [None, data[1]])


def check(case: Case, seed: int = 0) -> Machine:
    machine, expected = Machine(case.program, DATASHEET), case.expected[1]
    assert expected is not None
    for mode in ("tape", "step", "tape", "literal"):
        got = [a for a in case.fresh() if a is not None]
        if mode == "literal":
            got = literal(case.program, got, seed)
        else:
            machine.launch(got, mode)
        assert same(got[1], expected), mode
    return machine


def shifted(cores: int, by: int) -> list[int]:
    return [(core + by) % cores for core in range(cores)]


@pytest.mark.parametrize("cores", [1, 2, 3, 32])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_rotations(cores: int, element_bytes: Literal[2, 4]) -> None:
    check(exchange([shifted(cores, by) for by in range(1, min(cores, 4))] or [[0]], 3, element_bytes))


@pytest.mark.parametrize("entries", [1, 16, 17, 70])
def test_more_entries_than_the_fifo_holds(entries: int) -> None:
    check(exchange([shifted(3, 1), shifted(3, 2)], entries, 4))


def test_leaders_take_and_others_keep_their_own() -> None:
    """Groups of three cores: the first one of each receives, the others get their own entries back."""
    gather = [[core + part if core % 3 == 0 else core for core in range(9)] for part in (1, 2)]
    check(exchange(gather, 5, 4))


@given(
    st.integers(1, 8).flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1), min_size=n, max_size=n), min_size=1, max_size=3)),
    st.integers(1, 20),
)
@settings(max_examples=15, deadline=None, derandomize=True)
def test_any_choice_of_senders(sources: list[list[int]], entries: int) -> None:
    """Multicast too: several cores may receive from one."""
    check(exchange(sources, entries), entries)


def test_missing_token() -> None:
    """Who reads what arrived must wait for it."""
    with pytest.raises(RawHazard):
        Machine(exchange([shifted(3, 1), shifted(3, 2)], 4, unordered=True).program, DATASHEET)


def alone(unit: Unit, *words: tuple[str, dict]) -> Build:
    b = Build("alone", 3)
    b.groups.append([1, 2, 0])
    b.add(MNIL, "fill", lx=b.lx((2,), (1,)), value=1.0)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    for op, operands in words:
        b.add(unit, op, **operands)
    return b


def test_balance() -> None:
    b = alone(MNIS, ("move", {"src": 0, "group": 0}))
    found = verify(program("p", [], b.kernel()), DATASHEET)
    assert any("MNIS pushes 2 entries into FIFO R, but MNIL pops 0" in str(p) for p in found)


def test_the_receiver_waits() -> None:
    b = alone(MNIL, ("move", {"dst": 0, "group": 0}))
    with pytest.raises(Deadlock, match=r"MNIL at word 2 'move' waits for entries in FIFO R \(MNIS, which has halted\)"):
        control(program("p", [], b.kernel()), DATASHEET)


def test_arrival_says_nothing_of_the_own_sender() -> None:
    """That another core's entries are here does not mean that this core's have left."""
    b = alone(MNIS, ("move", {"src": 0, "group": 0}))
    b.add(MNIL, "move", dst=0, group=0)
    with pytest.raises(WarHazard, match=r"MNIL 'move' .* overwrites LX byte 0 before MNIS 'move' .* has surely read it"):
        control(program("p", [], b.kernel()), DATASHEET)


@pytest.mark.parametrize(("group", "count"), [(1, 2), (0, 1)])
def test_both_ends_agree(group: int, count: int) -> None:
    b = alone(MNIS, ("move", {"src": 0, "group": 0}))
    b.groups.append([2, 0, 1])
    for n in range(2 // count):
        b.add(MNIL, "move", dst=b.lx((count,), (1,), base=8 + n), group=group)
    with pytest.raises(FifoFault, match=r"MNIL 'move' \(word 2\) takes other entries than MNIS 'move' \(word 1\) sends"):
        control(program("p", [], b.kernel()), DATASHEET)


def test_types() -> None:
    """Values of f32 that nothing has rounded do not become f16 on the way."""
    b = Build("types", 2)
    b.groups.append([1, 0])
    b.add(MNIL, "fill", lx=b.lx((1,), (2,), element_bytes=4), value=0.1)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", src=0, group=0)
    b.add(MNIL, "move", dst=b.lx((1,), (1,), base=8), group=0)
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    with pytest.raises(TypeFault, match="stores f32 values of FIFO R in f16 sticks"):
        Machine(program("p", [], b.kernel()), DATASHEET).launch([])


@pytest.mark.parametrize(
    ("sources", "stops", "expected"),
    [
        ([0, 1, 2], 32, (1, 0)),
        ([1, 0], 32, (1, 1)),
        (shifted(32, 1), 32, (1, 1)),
        (shifted(32, 4), 32, (4, 4)),
        (shifted(32, 31), 32, (1, 1)),
        (shifted(32, 16), 32, (16, 16)),
        ([0] * 32, 32, (1, 16)),
        ([3, 3, 3, 3], 32, (1, 3)),
        ([core - core % 4 + 1 if core % 4 == 0 else core for core in range(32)], 32, (1, 1)),
    ],
)
def test_ways_on_the_ring(sources: list[int], stops: int, expected: tuple[int, int]) -> None:
    assert ring_route(sources, stops) == expected


def test_time() -> None:
    """An entry takes as long as its sticks on the busiest link; the way adds a cycle per hop."""

    def cycles(sources: list[int], element_bytes: Literal[2, 4]) -> int:
        machine = Machine(exchange([sources], 10, element_bytes).program, DATASHEET)
        return machine.trace.statistics[0].units[MNIS].busy

    assert cycles(shifted(32, 4), 2) - cycles(shifted(32, 1), 2) == 3 * 10 * 128 / 128  # bytes over bytes per cycle
    assert cycles(shifted(32, 4), 4) - cycles(shifted(32, 1), 4) == 3 * 10 * 256 / 32  # of the ring of partial sums
