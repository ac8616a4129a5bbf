"""The emulator against the literal machine: every kind of the vector unit on any bits, every sample, descriptors at odd places."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_runs import differing, literal
from machine_builds import LXLU, LXSU, MNIL, MNIS, PT, Build, on_halves, program, v1, v2, v3, vacc, vin, vout, vred

import ktir.checking.literal
from ktir.arithmetic.numerics import round_to
from ktir.checking.literal import arithmetic, elementary
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.step.step import Step
from ktir.isa.descriptor import Bound
from ktir.isa.kinds import KINDS, REDUCTIONS
from ktir.isa.program import Argument, Program
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET, HALVES, NARROW, PAIRS

WORDS: tuple[Callable[..., tuple[str, dict]], ...] = (v1, v2, v3)
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-45,
    -1e-40,
    65504.0,
    65519.9,
    65520.0,
    2.0**24,
    3e9,
    3.4e38,
    np.inf,
    -np.inf,
    np.nan,
]
INTEGERS = [0, 1, 2, 31, 32, 33, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2, 65520, 2**24 + 1]


def agrees(p: Program, given: list[np.ndarray]) -> list[np.ndarray]:
    """Tape, step and the literal machine give the same bits."""
    assert not verify(p, DATASHEET)
    trace, found = control(p, DATASHEET), literal(p, given, 1)
    for executor in (Tape(Builder(p, trace, 2).build()), Step(p, trace, 2)):
        got = [a.copy() for a in given]
        executor.run(got)
        difference = differing(p, found, got)
        assert difference is None, f"{type(executor).__name__}: {difference}"
    return found


def test_it_shares_nothing() -> None:
    """Nothing of the package but itself is used, and no NumPy."""
    folder = Path(str(ktir.checking.literal.__file__)).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, file
                names = [node.module or ""] if not node.level else []
            assert not [n for n in names if n.split(".")[0] in ("ktir", "numpy", "torch", "ml_dtypes")], file


def bits(rng: np.random.Generator, letter: str, n: int) -> np.ndarray:
    """Lanes for an operand, as f32: special values, any bits, numbers near each other."""
    if letter == "m":
        return rng.integers(0, 2, n).astype(np.int32).view(np.float32)
    special = np.array(SPECIAL, np.float32).view(np.uint32) if letter != "i" else np.array(INTEGERS, np.uint32)
    out = np.where(rng.random(n) < 0.4, rng.choice(special, n), rng.integers(0, 2**32, n, np.uint32))
    near = rng.integers(0, 40, n, np.uint32) if letter == "i" else (rng.standard_normal(n) * 4).astype(np.float32).view(np.uint32)
    return np.where(rng.random(n) < 0.3, near, out).astype(np.uint32).view(np.float32)


def kinds_program(names: list[str], entries: int, width: int = 2) -> tuple[Program, list[np.ndarray]]:
    """Each kind on entries of its own, of f32 or i32, rounded too where it may be; `width` is that of the results."""
    b, rng = Build("kinds", 1), np.random.default_rng(entries)
    runs = [(name, rounds) for name in names for rounds in (False, True) if (not rounds or KINDS[name].rounds) and (rounds or width == 2)]
    columns = [np.concatenate([bits(rng, (KINDS[n].takes + "fff")[i], entries * 64) for n, _ in runs]) for i in range(3)]
    size = len(runs) * entries
    arguments = [Argument(x, "input", 2 * size, 4) for x in "abc"] + [Argument("y", "output", width * size, 2 * width)]
    held = [b.take(2 * size) for _ in range(3)] + [b.take(2 * width * size)]  # the second corelet computes the same, elsewhere
    for i in range(3):
        b.add(MNIL, "move", src=b.ddr(i, (size,), (2,), element_bytes=4), dst=b.lx((size,), (2,), base=held[i], element_bytes=4))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    for k, (name, rounds) in enumerate(runs):
        count = len(KINDS[name].takes)
        if count > 1:
            b.add(LXLU, "par", streams=count)
        for i in range(count):
            lx = b.lx((entries,), (2,), base=held[i] + 2 * entries * k, element_bytes=4)
            b.add(LXLU, "push", lx=lx, fifo=f"I{i}")
        op = WORDS[count - 1](name, 5, *range(count), rounds)
        b.rep(entries, 1, *(vin(i, f"I{i}") for i in range(count)), op, vout(5, "O"))
        lx = b.lx((entries,), (width,), base=held[3] + width * entries * k, corelet_step=width * size, element_bytes=2 * width)
        b.add(LXSU, "pull", lx=lx, fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    lx = b.lx((size,), (width,), base=held[3], element_bytes=2 * width)
    b.add(MNIS, "move", dst=b.ddr(3, (size,), (width,), element_bytes=2 * width), src=lx)
    data = [c.reshape(-1, 64) for c in columns] + [np.zeros(carrier_shape(arguments[3]), np.float32)]
    return program("kinds", arguments, b.kernel()), data


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_kind_on_any_bits(count: int) -> None:
    agrees(*kinds_program([n for n, k in KINDS.items() if len(k.takes) == count], 2))


@pytest.mark.parametrize("half", HALVES)
def test_every_kind_that_rounds_into_halves(half: str) -> None:
    p, given = kinds_program([n for n, k in KINDS.items() if k.gives == "f"], 1, width=1)
    agrees(on_halves(p, half), given)


@pytest.mark.parametrize("half", HALVES)
def test_rounding_keeps_of_a_nan_what_the_format_has(half: str) -> None:
    """Bit for bit, unlike what computes."""
    p, given = kinds_program(["mov", "toe4m3", "toe5m2"], 40, width=1)
    p = on_halves(p, half)
    fraction = np.arange(given[0].size // 2, dtype=np.uint32) * 0x9E3779B1 >> 9
    given[0] = (np.concatenate([fraction, fraction | 0x80000000]) | 0x7F800000).astype(np.uint32).view(np.float32).reshape(given[0].shape)
    trace, found = control(p, DATASHEET), literal(p, given, 1)
    assert np.isnan(found[3]).sum() > found[3].size * 0.9
    for executor in (Tape(Builder(p, trace, 2).build()), Step(p, trace, 2)):
        got = [a.copy() for a in given]
        executor.run(got)
        np.testing.assert_array_equal(got[3].view(np.uint32), found[3].view(np.uint32))


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_kind_on_many_bits(count: int) -> None:
    names = [n for n, k in KINDS.items() if len(k.takes) == count]
    for entries in range(8, 12):
        for name in names:
            agrees(*kinds_program([name], entries))


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_every_reduction_on_any_bits(kind: str) -> None:
    """Accumulators over groups of 1, 2 and 5 sticks, and the tree over lanes; zeros of both signs among the operands."""
    letter = KINDS[kind].takes[0]
    for sticks in (1, 2, 5):
        b, rng, groups = Build("sum", 1), np.random.default_rng(sticks), 4
        n = groups * sticks
        x = bits(rng, letter, 64 * n).reshape(n, 64)
        x[:sticks] = np.float32(-0.0)
        arguments = [Argument("x", "input", 2 * n, 4), Argument("y", "output", 4 * groups, 4)]
        top, out = b.take(2 * n), b.take(8 * groups)
        b.add(MNIL, "move", src=b.ddr(0, (n,), (2,), element_bytes=4), dst=b.lx((n,), (2,), base=top, element_bytes=4))
        b.sig(MNIL, LXLU)
        b.wait(LXLU, MNIL)
        b.add(LXLU, "push", lx=b.lx((n,), (2,), base=top, element_bytes=4), fifo="I0")
        ends = [vacc(kind, 16, 0), vred(kind, 1, 16, "end"), vout(16, "O", "end"), vout(1, "Q", "end")]
        b.rep(groups, sticks, vin(0, "I0"), *ends)
        b.add(LXSU, "par", streams=2)
        for i, fifo in enumerate("OQ"):
            lx = b.lx((groups,), (2,), base=out + 2 * groups * i, corelet_step=4 * groups, element_bytes=4)
            b.add(LXSU, "pull", lx=lx, fifo=fifo)
        b.sig(LXSU, MNIS)
        b.wait(MNIS, LXSU)
        b.add(MNIS, "move", dst=b.ddr(1, (2 * groups,), (2,), element_bytes=4), src=b.lx((2 * groups,), (2,), base=out, element_bytes=4))
        agrees(program("sum", arguments, b.kernel()), [x, np.zeros((2 * groups, 64), np.float32)])


@pytest.mark.parametrize("live", [64, 40, 33])
def test_entries_of_f32_begin_at_any_stick(live: int) -> None:
    """In memory and in LX, where they are read one stick off from where they were written; with `live` lanes of some of them."""
    b, rng = Build("odd", 2), np.random.default_rng(live)
    arguments = [Argument("x", "input", 31, 4), Argument("y", "output", 45, 4)]
    clips = {"bounds": (Bound(live, dim=0, dim_step=0, lanes=True),)} if live < 64 else {}
    size = {"element_bytes": 4}
    b.add(
        MNIL, "move", src=b.ddr(0, (4,), (3,), base=1, core_table=b.table([0, 17]), **clips, **size), dst=b.lx((4,), (2,), base=3, **size)
    )
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((3,), (2,), base=4, **size), fifo="I0")
    b.rep(3, 1, vin(0, "I0"), v1("neg", 1, 0), vout(1, "O"))
    b.add(LXSU, "pull", lx=b.lx((3,), (2,), base=20, corelet_step=9, **clips, **size), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    table = b.table([0, 22])
    for k in range(2):
        lx, base = b.lx((3,), (2,), base=20 + 9 * k, **clips, **size), 1 + 10 * k
        b.add(MNIS, "move", dst=b.ddr(1, (3,), (3,), base=base, core_table=table, **clips, **size), src=lx)
    x = bits(rng, "f", 64 * 16).reshape(16, 64)
    x[15, 32:] = 0
    found = agrees(program("odd", arguments, b.kernel()), [x, np.zeros((23, 64), np.float32)])
    assert (found[1] != 0).any()


def test_coefficients_are_those_of_the_page() -> None:
    """What the literal machine computes with stands on the page, and so does all that an executor computes with."""
    page = (Path(__file__).parents[4] / "docs/spec/elementary.md").read_text()
    listed = {n: tuple(map(float.fromhex, text.split())) for n, text in re.findall(r"`(\w+)`:\n\n```text\n(.*?)```", page, re.S)}
    assert listed == elementary.SERIES
    assert hex(int(elementary.TWO_OVER_PI * 2**320))[2:] in page


@pytest.mark.parametrize("half", PAIRS)
def test_products_of_pairs(half: str) -> None:
    """Of any bytes; the array takes two of them from each lane, along K."""
    b, rng, rows = Build("pairs", 1), np.random.default_rng(5), 3
    w, a, y = b.take(64), b.take(rows), b.take(4 * rows)
    for i, (base, n) in enumerate(((w, 64), (a, rows))):
        b.add(MNIL, "move", src=b.ddr(i, (n,), (1,)), dst=b.lx((n,), (1,), base=base))
    b.sig(MNIL, LXLU)
    b.wait(LXLU, MNIL)
    b.add(LXLU, "push", lx=b.lx((64,), (1,), base=w), fifo="W")
    b.add(LXLU, "push", lx=b.lx((rows,), (1,), base=a), fifo="A")
    b.add(PT, "ldw")
    b.add(PT, "mm", rows=rows)
    b.add(PT, "pto")
    b.rep(1, rows, vin(0, "P"), vout(0, "O"))
    b.add(LXSU, "pull", lx=b.lx((rows,), (2,), base=y, corelet_step=2 * rows, element_bytes=4), fifo="O")
    b.sig(LXSU, MNIS)
    b.wait(MNIS, LXSU)
    b.add(MNIS, "move", dst=b.ddr(2, (rows,), (2,), element_bytes=4), src=b.lx((rows,), (2,), base=y, element_bytes=4))
    arguments = [Argument("w", "input", 64, 2), Argument("a", "input", rows, 2), Argument("y", "output", 2 * rows, 4)]
    lanes = [rng.integers(0, 2**16, (n, 64)).astype(np.uint32).view(np.float32) for n in (64, rows)]
    lanes[1][0] = np.uint32(0x7F7F if half == "e4m3x2" else 0x7C03).view(np.float32) if half != "i8x2" else lanes[1][0]  # NaN, infinity
    agrees(on_halves(program("pairs", arguments, b.kernel()), half), [*lanes, np.zeros(carrier_shape(arguments[2]), np.float32)])


@pytest.mark.parametrize("one", NARROW)
@pytest.mark.parametrize("live", [64, 37])
def test_moves_widen_bytes_and_round_to_them(one: str, live: int) -> None:
    """Any f16 into memory of bytes, and from there back; rows that begin anywhere, the last one cut."""
    b, rng, n = Build("bytes", 1), np.random.default_rng(live), 8
    x = round_to("f16", bits(rng, "f", 64 * n)).reshape(n, 64)
    x[0, :8] = [464, 465, 448, -480, 57344, 61440, 2.0**-10, -np.inf]
    clips = {"bounds": (Bound(live, dim=0, dim_step=0, lanes=True),)} if live < 64 else {}
    held = b.lx((n,), (1,), base=0)
    b.add(MNIL, "move", src=b.ddr(0, (n,), (1,)), dst=held)
    b.sig(MNIL, MNIS)
    b.wait(MNIS, MNIL)
    b.add(MNIS, "move", dst=b.ddr(1, (n,), (67,), base=3, lane_stride=1, element_bytes=1, half=one, **clips), src=b.lx((n,), (1,)))
    back = Build("back", 1)
    source = back.ddr(1, (n,), (66,), base=5, lane_stride=1, element_bytes=1, half=one, **clips)
    back.add(MNIL, "move", src=source, dst=back.lx((n,), (1,), base=0))
    back.sig(MNIL, MNIS)
    back.wait(MNIS, MNIL)
    back.add(MNIS, "move", dst=back.ddr(2, (n,), (1,)), src=back.lx((n,), (1,)))
    arguments = [Argument("x", "input", n, 2), Argument("y", "input_output", 5, 1, one), Argument("z", "output", n, 2)]
    p = program("bytes", arguments, b.kernel(), back.kernel())
    found = agrees(p, [x, np.zeros(carrier_shape(arguments[1]), np.float32), np.zeros((n, 64), np.float32)])
    dtype = getattr(ml_dtypes, {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[one])
    rounded = (np.clip(x, -448, 448) if one == "e4m3" else x).astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(np.stack([found[1].reshape(-1)[3 + 67 * i :][:live] for i in range(n)]), rounded[:, :live])


SINGLE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=examples(200), deadline=None, database=None)
@given(st.lists(st.tuples(SINGLE, SINGLE), min_size=1, max_size=64))
def test_sums_of_products_are_exact(pairs: list[tuple[float, float]]) -> None:
    """Rounded once: no f32 is nearer, and of two as near the even one is taken."""
    found = arithmetic.number(arithmetic.dot(*zip(*pairs, strict=True)))
    exact = sum(Fraction(x) * Fraction(y) for x, y in pairs)
    if abs(exact) >= 2**128 - 2**103:
        assert found == (np.inf if exact > 0 else -np.inf)
        return
    assert np.isfinite(found)
    here = abs(Fraction(found) - exact)
    for other in (np.nextafter(np.float32(found), np.float32(s)) for s in (-np.inf, np.inf)):
        if np.isfinite(other):
            there = abs(Fraction(float(other)) - exact)
            assert here < there or (here == there and int(np.float32(found).view(np.int32)) % 2 == 0)
