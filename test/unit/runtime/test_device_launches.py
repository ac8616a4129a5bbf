"""Launches on tensors of a card: the bits of launches on the host, no packing where a form is there, nothing written by one that fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from logical_programs import gated, linear
from streams import through

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError, OutOfRange
from ktir.emulator.machine import Machine
from ktir.emulator.machine.machine import Mode
from ktir.isa.binary import words
from ktir.isa.program import Word
from ktir.layout import Layout
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.package.manifest import PROGRAM
from ktir.runtime.device import DeviceTensor
from ktir.runtime.executable import Executable
from ktir.runtime.jobplan import Correction
from ktir.runtime.memory import allocation
from ktir.runtime.memory.allocation import Allocation
from ktir.runtime.memory.card import Card, DeviceOutOfMemory
from ktir.runtime.memory.view import View
from ktir.runtime.time.steps import Kind, Step
from ktir.tools.ktir_launch import main as ktir_launch

SEGMENT = 1 << 24


def put(card: Card, array: np.ndarray, before: int = 0) -> DeviceTensor:
    """An array on a card, `before` elements behind the beginning of its allocation, with its strides."""
    item = array.itemsize
    strides = tuple(s // item for s in array.strides)
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    allocation = Allocation(card, (before + reach) * item)
    tensor = DeviceTensor(allocation, View(array.dtype.name, before, array.shape, strides))
    tensor.array(write=True)[...] = array
    return tensor


def moves(card: Card, kind: Kind = "Relayout") -> int:
    """Steps of a kind so far."""
    return card.statistics.moves[kind][0]


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """x [40, 96] times the transpose of w [70, 96], plus a bias."""
    with context(), ir.Location.unknown():
        return compile_logical(parse_module(linear(40, 96, 70, transposed=True).text()), cores=4)


@pytest.fixture
def layer(files: dict[str, bytes]) -> Executable:
    """The program of `files`."""
    return Executable(read(files))


def test_the_bits_of_ktir_launch(files: dict[str, bytes], layer: Executable, tmp_path: Path) -> None:
    arrays = linear(40, 96, 70, transposed=True).arrays()
    (folder := tmp_path / "package").mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    given = []
    for k, array in enumerate(arrays[:3]):
        np.save(tmp_path / f"{k}.npy", array)
        given += ["-i", str(tmp_path / f"{k}.npy")]
    assert ktir_launch([str(folder), *given, "-o", str(tmp_path / "y.npy")]) == 0
    card = Card(segment_bytes=SEGMENT)
    tensors = [put(card, a) for a in arrays]
    layer(*tensors)
    np.testing.assert_array_equal(tensors[3].array().view(np.uint16), np.load(tmp_path / "y.npy").view(np.uint16))


def test_a_steady_launch_arranges_nothing(layer: Executable) -> None:
    card = Card(segment_bytes=SEGMENT)
    x, w, b, y = (put(card, a) for a in linear(40, 96, 70, transposed=True).arrays())
    layer(x, w, b, y)
    first, used = moves(card), card.used
    for _ in range(3):
        layer(x, w, b, y)
    assert (first, moves(card), card.used) == (3, 3, used)
    assert not y.allocation.is_linear
    assert [form.size for form in w.allocation.forms.values()] == [2 * 96 * 128]  # a row of x meets 70 columns, in two sticks
    assert not w.allocation.is_linear


def test_a_program_that_was_read_is_checked_and_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words are packed by whoever checks or encodes them: once when they are written, and not again once they were read."""
    packed: list[object] = []
    plain = words.pack

    def noted(body: list[Word]) -> words.WordArray:
        packed.append(body)
        return plain(body)

    monkeypatch.setattr(words, "pack", noted)
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(linear(40, 96, 70, transposed=True).text()), cores=4)
    assert len(packed) == len({id(body) for body in packed}) > 0
    packed.clear()
    card = Card(segment_bytes=SEGMENT)
    run = Executable.load(files)
    run(*(put(card, a) for a in linear(40, 96, 70, transposed=True).arrays()))
    assert not packed
    plan = run.plan(card)
    head = card.bytes(plan._at or 0, plan._size)
    assert files[PROGRAM] in head.tobytes()
    Executable(read(files))  # of a package that somebody may have changed
    assert packed


def test_one_program_reads_what_another_has_written() -> None:
    program = gated(32, 64, 128)
    with context(), ir.Location.unknown():
        run = Executable(read(compile_logical(parse_module(program.text()), cores=2)))
    arrays = program.arrays()
    host = [a.copy() for a in arrays]
    card = Card(segment_bytes=SEGMENT)
    tensors = [put(card, a) for a in arrays]
    seen = []
    for _ in range(4):
        before = moves(card)
        run(*host)
        run(*tensors)
        host[0], host[-1] = host[-1], host[0]  # the result is what the next launch reads
        tensors[0], tensors[-1] = tensors[-1], tensors[0]
        np.testing.assert_array_equal(host[0], tensors[0].array())
        seen.append(moves(card) - before)
    assert seen == [4, 0, 0, 0]


@pytest.mark.parametrize("which", ["a window", "other strides", "host"])
def test_odd_tensors(layer: Executable, which: str) -> None:
    arrays = linear(40, 96, 70, transposed=True).arrays()
    host = [a.copy() for a in arrays]
    layer(*host)
    card = Card(segment_bytes=SEGMENT)
    if which == "a window":
        tensors = [put(card, a, before=3) for a in arrays]
    elif which == "other strides":
        tensors = [put(card, np.asfortranarray(a)) for a in arrays]
    else:
        tensors = [put(card, arrays[0]), arrays[1], put(card, arrays[2]), arrays[3]]
    for _ in range(2):
        layer(*tensors)
    result = tensors[3] if isinstance(tensors[3], np.ndarray) else tensors[3].array()
    np.testing.assert_array_equal(result, host[3])
    if which == "a window":
        assert isinstance(tensors[3], DeviceTensor)
        assert (tensors[3].allocation.read(0, 6) == 0).all()


@pytest.mark.parametrize(
    ("number", "wrong", "message"),
    [
        (0, np.zeros((96, 40), np.float16), r"argument '\w+' expects shape \[40, 96\], but got \[96, 40\]"),
        (1, np.zeros((70, 96), np.float32), "expects element type float16, but got float32"),
    ],
)
def test_wrong_tensors(layer: Executable, number: int, wrong: np.ndarray, message: str) -> None:
    card = Card(segment_bytes=SEGMENT)
    tensors = [put(card, a) for a in linear(40, 96, 70, transposed=True).arrays()]
    tensors[number] = put(card, wrong)
    with pytest.raises(KtirError, match=message):
        layer(*tensors)


@pytest.mark.parametrize("role", ["input", "input_output"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "bool"])
def test_integers(dtype: str, role: str) -> None:
    layout = Layout.rows(3, 100, "i32")
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (3, 100)).astype(dtype)
    card = Card(segment_bytes=SEGMENT)
    source, target = put(card, x), put(card, np.zeros_like(x))
    copy = through(layout, layout, role)
    for _ in range(2):
        copy(source, target)
        np.testing.assert_array_equal(target.array(), x)
        np.testing.assert_array_equal(source.array(), x)


def test_integers_that_the_chip_does_not_hold() -> None:
    layout = Layout.rows(3, 100, "i32")
    x = np.full((3, 100), 2**40)
    card = Card(segment_bytes=SEGMENT)
    source, target = put(card, x), put(card, np.ones_like(x))
    with pytest.raises(OutOfRange, match="argument 'x' expects integers of -2147483648 to 2147483647, but has 1099511627776"):
        through(layout, layout)(source, target)
    np.testing.assert_array_equal(source.array(), x)
    np.testing.assert_array_equal(target.array(), 1)


def test_a_launch_that_fails_has_written_nothing(layer: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(segment_bytes=SEGMENT)
    tensors = [put(card, a) for a in linear(40, 96, 70, transposed=True).arrays()]
    layer(*tensors)
    before = tensors[3].array().copy()
    run = Machine.launch

    def half(machine: Machine, *arguments: object, **options: object) -> None:
        run(machine, *arguments, **options)  # type: ignore[arg-type]
        raise KtirError("the run ends here")

    monkeypatch.setattr(Machine, "launch", half)
    tensors[0].array(write=True)[...] = 1
    with pytest.raises(KtirError, match="the run ends here"):
        layer(*tensors)
    np.testing.assert_array_equal(tensors[3].array(), before)


def test_steps_have_prices(files: dict[str, bytes], layer: Executable) -> None:
    card, seen = Card(segment_bytes=SEGMENT), list[Step]()
    arrays = linear(40, 96, 70, transposed=True).arrays()
    tensors = [put(card, a) for a in arrays]
    tensors[1].allocation.write(arrays[1])
    card.observers.append(seen.append)
    layer(*tensors)
    layer(*tensors)
    target = layer.machine.target
    bound = ["HostCompute", "H2D"]
    assert [s.kind for s in seen] == ["Relayout"] * 3 + ["H2D", *bound, "Compute", "Compute"]
    assert seen[-1].ns == layer.machine.report.cycles / target.clock_ghz
    x = tensors[0].allocation
    sticks = sum(f.size for f in x.forms.values())
    assert seen[0] == Step("Relayout", x.nbytes + sticks, (x.nbytes + sticks) / target.dram_gb_per_second)
    tensors[3].allocation.read()
    assert seen[-1] == Step("D2H", 40 * 70 * 2, 40 * 70 * 2 / target.host_gb_per_second)
    assert seen[3].nbytes == len(files[PROGRAM])
    assert card.statistics.moves["H2D"] == (3, arrays[1].nbytes + len(files[PROGRAM]) + 128 + 4)


def test_the_block_of_addresses() -> None:
    addresses = [k * 128 << 20 for k in range(11)]
    correction = Correction(len(addresses))
    block = correction.block(addresses)
    assert (correction.flits, correction.size, block.size) == (2, 264, 264)  # flits of 128 bytes, and a word for each
    for k, address in enumerate(addresses):
        assert int.from_bytes(block[k * 16 : k * 16 + 4].tobytes(), "little") == address >> 7
    assert correction.addresses(block) == addresses
    assert [Correction(n).size for n in (256, 512)] == [4224, 8448]  # those of the published examples


def test_addresses_are_bound_at_a_launch(layer: Executable) -> None:
    card = Card(segment_bytes=SEGMENT)
    arrays = linear(40, 96, 70, transposed=True).arrays()
    x, w, b, y = (put(card, a) for a in arrays)
    plan = layer.plan(card)
    for other in (y, put(card, arrays[3]), y):
        layer(x, w, b, other)
        bound = plan._bound
        (there,) = other.allocation.forms.values()
        assert there.address in bound
        assert all(next(iter(t.allocation.forms.values())).address in bound for t in (x, w, b))
    assert len(set(bound)) == len(bound)
    before = x.array().copy()
    copy = through(Layout.rows(40, 96, "i32"), Layout.rows(40, 96, "i32"))
    numbers = put(card, np.arange(40 * 96, dtype=np.int32).reshape(40, 96))
    copy(numbers, numbers)  # reads and writes one tensor: its form is written to another place
    np.testing.assert_array_equal(numbers.array(), np.arange(40 * 96).reshape(40, 96))
    np.testing.assert_array_equal(x.array(), before)


def test_programs_leave_the_card() -> None:
    card = Card(segment_bytes=SEGMENT)
    copy = through(Layout.rows(3, 100, "i32"), Layout.rows(3, 100, "i32"))
    x = np.ones((3, 100), np.int32)
    source, target = put(card, x), put(card, x)
    copy(source, target)
    copy(source, x)
    assert card.used == 2 * 1536  # 3 rows of 2 times 64 numbers of 4 bytes; the program is elsewhere
    with pytest.raises(DeviceOutOfMemory, match=f"of {SEGMENT} bytes for programs"):
        card.take(SEGMENT, program=True)
    del copy
    assert card.take(SEGMENT, program=True) == 7 * SEGMENT


def test_tensors_of_two_cards() -> None:
    copy = through(Layout.rows(3, 100, "i32"), Layout.rows(3, 100, "i32"))
    x = np.ones((3, 100), np.int32)
    one, other = (put(Card(k, segment_bytes=SEGMENT), x) for k in (0, 1))
    with pytest.raises(KtirError, match=r"'through' expects tensors of one card, but got some of \[0, 1\]"):
        copy(one, other)


@pytest.mark.parametrize("mode", ["tape", "step"])
@pytest.mark.parametrize("odd", [None, np.inf, np.nan, 6e-8])
def test_halves_that_stay_halves(files: dict[str, bytes], odd: float | None, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = linear(40, 96, 70, transposed=True).arrays()
    if odd is not None:
        arrays[1][3, 5] = odd
    wide, halved = arrays[3].copy(), arrays[3].copy()
    Executable(read(files))(*arrays[:3], wide, mode=mode)
    monkeypatch.setattr(allocation, "_MANY", 1)
    card = Card(segment_bytes=SEGMENT)
    tensors = [put(card, a) for a in arrays]
    Executable(read(files))(*arrays[:3], halved, mode=mode)
    Executable(read(files))(*tensors, mode=mode)
    assert [form.carrier.dtype for form in tensors[1].allocation.forms.values()] == [np.float16]
    np.testing.assert_array_equal(halved, wide)
    np.testing.assert_array_equal(tensors[3].array(), wide)


@pytest.mark.parametrize("mode", ["tape", "step"])
@pytest.mark.parametrize(
    ("dtype", "waits"), [("bool", np.uint8), ("int8", np.int8), ("uint8", np.int16), ("int16", np.int16), ("int32", np.float32)]
)
def test_integers_that_wait_in_fewer_bytes(dtype: str, waits: type, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the device have four bytes; where a program only reads what fits into fewer, the host has as many as that takes."""
    monkeypatch.setattr(allocation, "_MANY", 1)
    card = Card(segment_bytes=SEGMENT)
    copy, draw = through(Layout.rows(3, 100, "i32"), Layout.rows(3, 100, "i32")), np.random.default_rng(3)
    x = draw.integers(0, 2, (3, 100)).astype(bool) if dtype == "bool" else draw.integers(-(1 << 30), 1 << 30, (3, 100)).astype(dtype)
    given, made = (put(card, a) for a in (x, np.zeros((3, 100), np.int32)))
    copy(given, made, mode=mode)
    assert [form.carrier.dtype for form in given.allocation.forms.values()] == [waits]
    np.testing.assert_array_equal(made.array(), x)
    np.testing.assert_array_equal(given.array(), x)
