"""Element descriptors, gathers and scatters: all executors agree with NumPy, bit for bit; every fault has its place."""

import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from element_programs import carrier, indexed, linear, relayout
from literal_runs import literal
from machine_builds import MNIL, MNIS, Build, Case, program
from machine_programs import all_cases
from mutations import ELEMENT, SYNC, carriers, mutate, outcome, same

from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.machine import Mode
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.step.step import Step
from ktir.isa.descriptor import Bound
from ktir.isa.program import Argument
from ktir.isa.units import Unit
from ktir.target import DATASHEET


def agrees(case: Case, seed: int) -> None:
    """Tape, step and the literal machine give the expected bits, the tape twice."""
    machine = Machine(case.program, DATASHEET)
    for mode in ("tape", "tape", "step", "literal"):
        got = [a.copy() for a in case.arguments if a is not None]
        if mode == "literal":
            got = literal(case.program, got, seed)
        else:
            machine.launch(got, mode=mode)
        for i, (a, e) in enumerate(zip(got, case.expected, strict=True)):
            if e is not None:
                assert np.array_equal(a.view(np.uint32), e.view(np.uint32)), (mode, i)


@pytest.mark.parametrize("seed", range(60))
def test_relayouts(seed):
    agrees(relayout(seed), seed)


@pytest.mark.parametrize("seed", range(40))
def test_gathers(seed):
    agrees(indexed(seed, scatter=False), seed)


@pytest.mark.parametrize("seed", range(40))
def test_scatters(seed):
    agrees(indexed(seed, scatter=True), seed)


def test_what_fills_an_output() -> None:
    """A machine says that a launch writes all of an output where what that held before does not show, and never where it does."""
    kinds: Counter[bool] = Counter()
    for case in [*all_cases().values(), *map(relayout, range(40)), *(indexed(seed, scatter=True) for seed in range(10))]:
        assert not any(map(Machine(case.program, DATASHEET).fills, (i for i, a in enumerate(case.program.arguments) if a.role != "output")))
        written = [replace(a, role="output") if a.role == "input_output" else a for a in case.program.arguments]
        machine = Machine(replace(case.program, arguments=written), DATASHEET)
        for index in (i for i, a in enumerate(written) if a.role == "output"):
            found = []
            for before in (1.0, 2.0):
                given = carriers(machine.program, case)
                given[index][...] = before
                machine.launch(given)
                found.append(given[index].view(np.uint32))
            same_bits = np.array_equal(*found)
            assert machine.fills(index) == same_bits
            kinds[same_bits] += 1
    assert min(kinds[True], kinds[False]) > 3, kinds


def mutants(count: int, seed: int) -> dict[str, int]:
    """Mutants: tape and step agree on each that the control run accepts, the literal machine on each that passes all checks."""
    r = random.Random(seed)
    verdicts: dict[str, int] = {}
    for _ in range(count):
        number = r.randrange(1000)
        case = r.choice([relayout, partial(indexed, scatter=False), partial(indexed, scatter=True)])(number)
        kind = r.choice(["base", "stride", "extent", "level_step", "bound", "table", "trips", "descriptor", "index", *ELEMENT, *SYNC])
        mutant = mutate(case.program, random.Random(number), kind)
        if mutant is None:
            continue
        changed = Case(mutant, case.arguments, case.expected)
        verdict, _ = outcome(changed, mutant)
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        if verdict in ("harmless", "silent"):
            by_step = carriers(mutant, changed)
            found = literal(mutant, by_step, number)
            Step(mutant, control(mutant, DATASHEET), 2).run(by_step)
            assert all(same(a, b) for a, b in zip(by_step, found, strict=True)), (number, kind)
    return verdicts


def test_mutants():
    verdicts = mutants(80, 1)
    assert verdicts["static"] + verdicts["dynamic"] > 20


@pytest.mark.parametrize("scatter", [False, True])
def test_entries_whose_index_is_clipped_are_not_live(scatter: bool) -> None:
    """A bound that leaves no lane of an index, while its entries are within theirs: step and the literal machine leave them."""
    case = indexed(431, scatter=scatter)
    mutant = mutate(case.program, random.Random(431), "bound")
    assert mutant is not None
    assert mutant.kernels[0].descriptors[0].bounds[-1].lanes
    by_step = carriers(mutant, Case(mutant, case.arguments, case.expected))
    found = literal(mutant, by_step, 431)
    Step(mutant, control(mutant, DATASHEET), 2).run(by_step)
    assert all(same(a, b) for a, b in zip(by_step, found, strict=True))


@pytest.mark.long
def test_many_mutants():
    mutants(3000, 2)


@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31), 0x7F800001, -0x400001])
def test_fills_with_integers(value):
    b = Build("k", 3)
    b.add(MNIL, "fill", lx=b.lx((2,), (2,), element_bytes=4), value=value)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    ddr = b.ddr(0, (2,), (64,), lane_stride=1, element_bytes=4, core_table=b.table([0, 100, 200]), bounds=lanes(100, 64))
    b.add(MNIS, "move", dst=ddr, src=b.lx((2,), (2,), element_bytes=4))
    y = linear("y", "output", 300, 4)
    expected = carrier(y, np.full(300, value, np.int32))
    expected.reshape(-1)[300:] = -77
    agrees(Case(program("p", [y], b.kernel()), [np.full_like(expected, -77)], [expected]), 0)


# --- faults ----------------------------------------------------------------------------------------------------------

ARGUMENTS = [
    Argument("x", "input", 8, 2),
    Argument("y", "output", 8, 2),
    Argument("p", "pool", 8, 2),
    Argument("ids", "input", 2, 4),
    Argument("f", "pool", 8, 4),
    Argument("n", "pool", 2, 4),
    Argument("io", "input_output", 8, 2),
]
X, Y, P, IDS, F, N, IO = range(7)


def build(cores: int = 1) -> Build:
    """A kernel whose LX holds 8 sticks of x, twice as f32."""
    b = Build("k", cores)
    b.add(MNIL, "move", src=b.ddr(X, (8,), (1,)), dst=b.lx((8,), (1,)))
    b.add(MNIL, "fill", lx=b.lx((4,), (2,), base=8, element_bytes=4), value=2.0)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    return b


def lanes(n: int, step: int = 0) -> tuple[Bound, ...]:
    """The first `n` lanes of all entries together, or of each."""
    return (Bound(limit=n, dim=0 if step else None, dim_step=step or 1, lanes=True),)


def store(b: Build, arg: int, base: int, n: int, cores: list[int] | None = None, **more) -> Build:
    """Store `n` elements of LX from element `base` on."""
    table = None if cores is None else b.table(cores)
    d = b.ddr(arg, (1,), (64,), base=base, core_table=table, bounds=lanes(n), **{"lane_stride": 1, **more})
    size = more.get("element_bytes", 2)
    b.add(MNIS, "move", dst=d, src=b.lx((1,), (size // 2,), base=8 if size == 4 else 0, element_bytes=size))
    return b


def load(b: Build, arg: int, base: int, n: int, cores: list[int] | None = None, **more) -> Build:
    """Load `n` elements."""
    table = None if cores is None else b.table(cores)
    size = more.get("element_bytes", 2)
    d = b.ddr(arg, (1,), (64,), base=base, core_table=table, bounds=lanes(n), **{"lane_stride": 1, **more})
    b.add(MNIL, "move", src=d, dst=b.lx((1,), (size // 2,), base=32, element_bytes=size))
    return b


def index(b: Build, unit: Unit, arg: int, idx: int = IDS, cores: int = 1, size: int = 8) -> Build:
    """Gather or scatter 4 sticks of an argument."""
    table = b.table([4 * c for c in range(cores)])
    d = b.ddr(arg, (4,), (64,), lane_stride=1)
    i = b.ddr(idx, (4,), (1,), lane_stride=1, element_bytes=4, core_table=table)
    lx = b.lx((4,), (1,), base=32 if unit is MNIL else 0)
    src, dst = (d, lx) if unit is MNIL else (lx, d)
    b.add(unit, "move", src=src, dst=dst, index=i, dim=0, size=size)
    return b


def found(kind: type[faults.MachineFinding], text: str, *builds: Build) -> None:
    """The kernels raise this fault."""
    with pytest.raises(kind, match=text):
        control(program("p", ARGUMENTS, *(b.kernel() for b in builds)), DATASHEET)


def clean(*builds: Build) -> Machine:
    """The kernels raise nothing."""
    return Machine(program("p", ARGUMENTS, *(b.kernel() for b in builds)), DATASHEET)


def test_range():
    clean(store(build(), Y, 500, 12))
    found(faults.OutOfRange, "accesses bytes 1000 to 1025 of argument 'y' of 1024 bytes", store(build(), Y, 500, 13))
    found(faults.OutOfRange, "accesses bytes -2 to 19 of argument 'y'", load(store(build(), Y, 0, 12), Y, -1, 11))
    found(faults.OutOfRange, "accesses bytes 0 to 1135 of argument 'x'", load(build(), X, 0, 64, lane_stride=9))


def test_elements_of_one_stick_belong_to_several_cores():
    clean(store(build(3), Y, 0, 10, [0, 10, 20]))
    found(faults.MemoryHazard, "writes argument 'y' byte 18, which another core writes", store(build(3), Y, 0, 10, [0, 9, 20]))
    found(
        faults.MemoryHazard,
        "writes argument 'y' byte 40, which another core writes",
        store(store(build(2), Y, 0, 10, [0, 10]), Y, 0, 10, [20, 20]),
    )


def test_a_stick_descriptor_writes_whole_sticks():
    b = store(build(2), Y, 0, 10, [20, 64])
    b.add(MNIS, "move", dst=b.ddr(Y, (1,), (1,), core_table=b.table([0, 2]), bounds=lanes(10)), src=b.lx((1,), (1,)))
    clean(b)
    b = store(build(2), Y, 0, 10, [64, 20])
    b.add(MNIS, "move", dst=b.ddr(Y, (1,), (1,), core_table=b.table([0, 2]), bounds=lanes(10)), src=b.lx((1,), (1,)))
    found(faults.MemoryHazard, "writes argument 'y' byte 40, which another core writes", b)


def test_initialised_elements():
    clean(store(build(), P, 3, 10), load(Build("l", 1), P, 3, 10))
    found(faults.UninitialisedRead, "reads argument 'p' byte 26, which nothing", store(build(), P, 3, 10), load(Build("l", 1), P, 3, 11))
    found(faults.UninitialisedRead, "reads argument 'p' byte 4, which nothing", store(build(), P, 3, 10), load(Build("l", 1), P, 2, 10))
    whole = [Build("l", 1) for _ in range(2)]
    for b in whole:
        b.add(MNIL, "move", src=b.ddr(P, (1,), (1,), bounds=lanes(13)), dst=b.lx((1,), (1,), base=32))
    found(faults.UninitialisedRead, "reads argument 'p' byte 0, which nothing", store(build(), P, 3, 10), whole[0])
    clean(store(store(build(), P, 3, 10), P, 0, 3), whole[1])


def test_order_within_a_core():
    b = load(Build("k", 2), IO, 5, 3, [0, 10])
    b.add(MNIS, "move", dst=b.ddr(IO, (1,), (64,), lane_stride=1, core_table=b.table([5, 15])), src=b.lx((1,), (1,), base=32))
    found(faults.MemoryHazard, "writes argument 'io' byte 10, not ordered after", b)
    b = store(build(2), Y, 0, 10, [0, 10])
    b.sig(MNIS, MNIL)
    b.wait(MNIL, MNIS)
    clean(load(b, Y, 5, 5, [0, 10]))
    b = store(build(2), Y, 0, 10, [0, 10])
    b.sig(MNIS, MNIL)
    b.wait(MNIL, MNIS)
    found(faults.MemoryHazard, "reads argument 'y' byte 10, which another core writes", load(b, Y, 5, 5, [0, 0]))


def test_a_store_visits_an_element_once():
    b = build()
    b.add(MNIS, "move", dst=b.ddr(Y, (2,), (63,), lane_stride=1), src=b.lx((2,), (1,)))
    found(faults.IllegalProgram, "visits an element twice", b)
    b = build()
    b.add(MNIS, "move", dst=b.ddr(Y, (2,), (63,), lane_stride=1, bounds=lanes(63)), src=b.lx((2,), (1,)))
    clean(b)


def test_entries_of_f32_begin_at_any_stick():
    b = store(build(), F, 0, 64, element_bytes=4)
    b.add(MNIS, "move", dst=b.ddr(F, (1,), (2,), base=3, element_bytes=4), src=b.lx((1,), (2,), base=8, element_bytes=4))
    clean(b)


def test_addresses_are_multiples_of_their_unit():
    for unit, more in ((128, {}), (4, {"lane_stride": 1})):
        b = build()
        d = b.descriptors[b.ddr(F, (1,), (2,), element_bytes=4, **more)]
        for change in ({"base": unit // 2}, {"stride": (unit + 2,)}, {"level_step": (unit // 2, *d.level_step[1:])}):
            b.descriptors[-1] = replace(d, **change)
            found(faults.IllegalProgram, f"has addresses that are no multiples of {unit} bytes", b)


def test_gathers_need_what_other_kernels_wrote():
    clean(index(build(), MNIL, X))
    found(faults.UninitialisedRead, "reads argument 'p' byte 128, which nothing", store(build(), P, 0, 64), index(Build("l", 1), MNIL, P))
    found(faults.MemoryHazard, "gathers from argument 'y', which this kernel writes", index(store(build(), Y, 0, 64), MNIL, Y))
    found(faults.UninitialisedRead, "reads argument 'n' byte 0, which nothing", index(build(), MNIL, X, N))
    filled = store(build(), N, 0, 16, element_bytes=4)
    clean(filled, index(Build("l", 1), MNIL, X, N))


SHARED = [Argument("x", "input", 8, 2), Argument("y", "output", 16, 2), Argument("ids", "input", 2, 4)]


def shared(ids: list[int], rows: list[int], group: list[int] | None) -> Build:
    """Each core gathers four sticks of x by indices from its element of `ids` on, and of the columns from its element of `rows` on, and
    stores them behind those of the cores before it."""
    cores = len(ids)
    b = Build("k", cores)
    if group is not None:
        b.groups.append(group)
    source = b.ddr(X, (4,), (64,), lane_stride=1, core_table=b.table(rows))
    places = b.ddr(2, (4,), (1,), lane_stride=1, element_bytes=4, core_table=b.table(ids))
    word = {"src": source, "dst": b.lx((4,), (1,)), "index": places, "dim": 0, "size": 4}
    b.add(MNIL, "move", **word, group=None if group is None else 0)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", dst=b.ddr(Y, (4,), (1,), core_table=b.table([4 * core for core in range(cores)])), src=b.lx((4,), (1,)))
    return b


def test_cores_that_gather_the_same_share_a_read() -> None:
    """Bits are those of cores that read for themselves; a core fewer reads x and the indices."""
    ids, rows, group = [0, 4, 0, 4], [0, 256, 0, 256], [0, 1, 0, 1]
    x, chosen = np.arange(512, dtype=np.float32), np.array([3, 0, 2, 2, 1, 1, 0, 3], np.int32)
    y = np.concatenate([x[64 * chosen[i : i + 4, None] + row + np.arange(64)] for i, row in zip(ids, rows, strict=True)])
    given = [carrier(SHARED[0], x), np.zeros((16, 64), np.float32), carrier(SHARED[2], chosen)]
    read = []
    for members in (group, None):
        p = program("p", SHARED, shared(ids, rows, members).kernel())
        agrees(Case(p, given, [None, y, None]), 0)
        read.append(Machine(p, DATASHEET).report.kernels[0].dram_read)
    assert 2 * read[0] == read[1]


def test_members_of_a_group_read_the_same_indices() -> None:
    wrong = shared([0, 4, 4, 4], [0, 256, 0, 256], [0, 1, 0, 1])
    with pytest.raises(faults.MulticastFault, match="core 2 and its leader 0 describe different reads"):
        control(program("p", SHARED, wrong.kernel()), DATASHEET)


def test_scatters_have_their_argument_for_themselves():
    clean(index(build(), MNIS, Y))
    clean(index(index(build(), MNIS, Y), MNIS, Y))
    found(faults.MemoryHazard, "scatters to argument 'y', which 'move' of this kernel uses too", index(store(build(), Y, 0, 64), MNIS, Y))
    written = store(build(), N, 0, 16, element_bytes=4)
    found(faults.MemoryHazard, "reads indices from argument 'n', which this kernel writes", index(written, MNIS, Y, N))
    found(faults.UninitialisedRead, "reads argument 'n' byte 0, which nothing", index(build(), MNIS, Y, N))


def launched(b: Build, ids: list[int], mode: Mode) -> np.ndarray:
    """y after a launch."""
    machine = Machine(program("p", ARGUMENTS[:4], b.kernel()), DATASHEET)
    x = np.repeat(np.arange(1, 9, dtype=np.float32), 64).reshape(8, 64)
    y = np.zeros((8, 64), np.float32)
    machine.launch([x, y, None, carrier(ARGUMENTS[IDS], np.array(ids, np.int32))], mode=mode)
    return y


@pytest.mark.parametrize("mode", ["tape", "step"])
def test_two_cores_may_not_scatter_to_one_element(mode):
    y = launched(index(build(2), MNIS, Y, cores=2), [0, 1, 1, 0, 7, 6, 5, 5], mode)
    assert y[:, 0].tolist() == [4, 3, 0, 0, 0, 4, 2, 1]
    with pytest.raises(faults.MemoryHazard, match="scatters to element 64 of argument 'y', to which another core scatters"):
        launched(index(build(2), MNIS, Y, cores=2), [0, 1, 2, 3, 7, 6, 5, 1], mode)
    machine = Machine(program("p", ARGUMENTS[:4], index(build(2), MNIS, Y, cores=2).kernel()), DATASHEET)
    for _ in range(2):  # nothing stays from launch to launch
        ids = carrier(ARGUMENTS[IDS], np.arange(8, dtype=np.int32))
        machine.launch([np.ones((8, 64), np.float32), np.zeros((8, 64), np.float32), None, ids], mode=mode)


@pytest.mark.parametrize("mode", ["tape", "step"])
@pytest.mark.parametrize("bad", [8, -1, 2**31 - 1, -(2**31)])
def test_indices_in_range(mode, bad):
    for unit in (MNIL, MNIS):
        b = index(build(), unit, X if unit is MNIL else Y)
        with pytest.raises(faults.IndexFault, match=f"reads index {bad} at element 2 of argument 'ids', but expects 0 to 7"):
            launched(b, [0, 1, bad, 3], mode)
