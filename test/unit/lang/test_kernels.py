"""Kernels of the language give PyTorch's values in float64: on NumPy, on the KTIR executor, and on the chip."""

# ruff: noqa: B023  (the body of a condition runs at once)

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from near import close, wide

from ktir import lang
from ktir.diagnostics import KtirError

PLACES = ["numpy", "executor"]
rng = np.random.default_rng(17)


@lang.kernel
def softmax(x, y, *, block=None):
    for rows in lang.blocks(x.shape[0], block):
        v = x[rows].astype(np.float32)
        e = np.exp(v - v.max(-1, keepdims=True))
        y[rows] = e / e.sum(-1, keepdims=True)


GRIDS = [(None, None), (4, None), (4, 5), ((2, 3), 7)]


@pytest.mark.parametrize(("on", "grid", "block"), [(on, *g) for on in PLACES for g in GRIDS] + [("chip", None, None)])
def test_softmax(on: Any, grid: Any, block: int | None) -> None:
    x = rng.standard_normal((57, 100)).astype(np.float16)
    y = np.zeros_like(x)
    softmax.using(grid=grid, on=on)(x, y, block=block)
    close(y, torch.softmax(wide(x), -1), 2**-11)


@lang.kernel
def clipped_sum(x, y, z, *, live):
    for r, c in lang.blocks(z.shape, (8, 32)):
        s = np.where(c.positions < live, x[r, c] * 2 + y[c], 0)
        z[r, c] = np.maximum(s, -1.5)


@pytest.mark.parametrize("on", PLACES)
@pytest.mark.parametrize("grid", [None, 1, 3])
def test_elementwise_with_masks_and_promotion(on: Any, grid: Any) -> None:
    x = rng.standard_normal((20, 70)).astype(np.float32)
    y = rng.standard_normal(70).astype(np.float16)
    z = np.full((20, 70), 9, np.float32)
    clipped_sum.using(grid=grid, on=on)(x, y, z, live=50)
    s = wide(x) * 2 + wide(y)
    s[:, 50:] = 0
    close(z, s.clamp(min=-1.5), 2**-22)


# Loops, conditions, buffers


@lang.kernel
def running(x, y):
    slots = lang.buffer(x.shape[1], np.float32, slots=2)
    total = lang.zeros(x.shape[1])
    slots[0] = x[0]
    for i in lang.range(x.shape[0]):

        @lang.when(i + 1 < x.shape[0])
        def _():
            slots[(i + 1) % 2] = x[i + 1]

        total += slots[i % 2]

        @lang.when(i > 2)
        def _():
            total[...] = total * 0.5

        y[i] = total


@pytest.mark.parametrize("on", PLACES)
def test_what_outlives_a_trip_is_changed_in_place(on: Any) -> None:
    x = rng.standard_normal((9, 24)).astype(np.float32)
    y = np.zeros_like(x)
    running[1].using(on=on)(x, y)
    total, expected = torch.zeros(24, dtype=torch.float64), []
    for i, row in enumerate(wide(x)):
        total = (total + row) * (0.5 if i > 2 else 1)
        expected.append(total)
    close(y, torch.stack(expected), 2**-20)


@lang.kernel
def first(x, n, y):
    for i in lang.range(n):
        y[i] = x[i] * n + np.minimum(i, 3)


@pytest.mark.parametrize("on", PLACES)
def test_numbers_of_a_call(on: Any) -> None:
    x = rng.standard_normal((9, 24)).astype(np.float32)
    for n in (5, 7):
        y = np.zeros_like(x)
        first[1].using(on=on)(x, n, y)
        close(y[:n], wide(x)[:n] * n + torch.tensor([min(i, 3) for i in range(n)])[:, None], 2**-22)
        assert not y[n:].any()


# Gathers, and addition to named elements


@lang.kernel
def embed(table, ids, y):
    for rows in lang.blocks(ids.shape[0], 4):
        y[rows] = table[ids[rows]]


@lang.kernel
def scatter_add(x, ids, y):
    np.add.at(y, ids[:], x[:])


@pytest.mark.parametrize("on", [*PLACES, "chip"])
def test_gather_and_addition(on: Any) -> None:
    table = rng.standard_normal((16, 24)).astype(np.float32)
    ids = rng.integers(0, 16, 12).astype(np.int32)
    y = np.zeros((12, 24), np.float32)
    embed.using(grid=None if on == "chip" else 3, on=on)(table, ids, y)
    assert np.array_equal(y, torch.nn.functional.embedding(torch.from_numpy(ids).long(), torch.from_numpy(table)).numpy())
    z = np.zeros_like(table)
    scatter_add.using(on=on)(y, ids, z)
    close(z, torch.zeros(16, 24, dtype=torch.float64).index_add_(0, torch.from_numpy(ids).long(), wide(y)), 2**-21)


# What a trace depends on

FACTOR = 2.0


@lang.kernel
def scaled(x, y):
    y[:] = x[:] * FACTOR


def test_a_kernel_is_traced_again_where_what_it_reads_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    scaled(x, y)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    scaled(x, y)
    assert y.tolist() == [3.0] * 8


def test_explanation_names_lines_and_the_chip() -> None:
    x = np.zeros((57, 100), np.float16)
    text = softmax.explain(x, x.copy())
    assert "x: input" in text
    assert f"{__file__}:{softmax.function.__code__.co_firstlineno + 3}:13: 11,400 bytes read" in text
    assert "cycles" in text


@lang.kernel
def positions(x, y, z, *, start, step):
    n = np.arange(start, start + step * x.shape[1], step, dtype=np.int32)
    y[:] = np.where((n < 70) & (n[:, None].T > 5), x[:], -1)
    z[:] = n


@pytest.mark.parametrize("on", ["executor", "chip"])
@pytest.mark.parametrize(("start", "step"), [(0, 1), (5, 3), (300, -2)])
def test_positions_are_counted_not_listed(on: str, start: int, step: int) -> None:
    x, z = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32), np.zeros(100, np.int32)
    y = np.zeros_like(x)
    positions.using(on=on)(x, y, z, start=start, step=step)
    n = start + step * np.arange(100)
    assert np.array_equal(z, n)
    assert np.array_equal(y, np.where((n < 70) & (n > 5), x, -1))
    assert "dense<[" not in positions.ktir(x[:, :65], y[:, :65], z[:65], start=9, step=step)


@lang.kernel
def before(x, ids, n, y, *, what):
    t = lang.tile_id()
    for i in lang.range(1):
        if what == "masked":
            y[t : t + 4] = x.masked[t - 3 : t + 1] * (i + 1)
        elif what == "typed":
            s = x[0] * (t + 1) + np.where(x[0] > 0, t, x[0])
            y[t] = s * (lang.full(64, 2**-24) + 1 - 1 == 0)
        else:
            keys = {
                "id": t - 1,
                "slice": slice(t - 3, t - 1),
                "loaded": ids[0],
                "given": n,
                "least": np.minimum(t, 1) - 1,
                "loop": i * 2 - 1,
            }
            y[t] = x[keys[what]]


def test_numbers_of_the_device_do_not_count_from_the_end() -> None:
    x = rng.standard_normal((9, 64)).astype(np.float32)

    def run(what: str, on: Any) -> np.ndarray | str:
        try:
            before.using(grid=1, on=on)(x, np.full(2, -1, np.int32), -1, y := np.ones((9, 64), np.float32), what=what)
        except KtirError as error:
            return str(error).split(": ")[0].rpartition(":")[0]  # the file and line
        return y

    for what in ("id", "slice", "loaded", "given", "least", "loop"):
        found = run(what, "numpy")
        assert isinstance(found, str), what
        assert found == run(what, "executor"), what
    masked = run("masked", "numpy")
    assert not isinstance(masked, str)
    assert not masked[:3].any()
    assert np.array_equal(masked[3], x[0])
    for what in ("masked", "typed"):
        assert np.array_equal(run(what, "numpy"), run(what, "executor")), what


@lang.kernel
def shifted(x, ids, y, *, what):
    t = lang.tile_id()
    for i in lang.range(3):
        if what == "load":
            y[t] = x[t - 1] * (ids[t] + i)
        elif what == "store":
            y[t + i * 3 + 1] = x[ids[t]]
        else:
            y[t, 0:64] = x[ids[t + i]]


def test_what_lies_outside_is_refused_alike_on_the_chip() -> None:
    x, ids = rng.standard_normal((9, 64)).astype(np.float32), np.zeros(3, np.int32)
    for what in ("load", "store", "table"):
        said = []
        for on in ("executor", "chip"):
            with pytest.raises(KtirError) as error:
                shifted.using(grid=3, on=on)(x, ids, np.zeros((9, 64), np.float32), what=what)
            said.append(str(error.value).split(" (")[0])
        assert said[0] == said[1]
        assert "coordinates" in said[0]


@lang.kernel
def table(x, places, y):
    for r in lang.blocks(places.shape[0], 1):
        for i in lang.range(places.shape[1]):
            y[r.start, i] = x[places[r.start, i]]


def test_a_wrong_number_in_a_table_is_told_without_names_of_ours() -> None:
    x, places = np.ones((9, 64), np.float32), np.array([[0, -1, 2]], np.int32)
    with pytest.raises(KtirError, match=r"test_kernels.py:\d+:\d+: error: .*index -1 .* of the places that a kernel before has computed"):
        table.using(grid=1, on="chip")(x, places, np.zeros((1, 3, 64), np.float32))


@pytest.mark.parametrize(("tiles", "rows", "inner"), [(2, 3, 3), (4, 5, 2)])
def test_a_table_in_blocks_that_only_some_tiles_have(tiles: int, rows: int, inner: int) -> None:
    x, places = rng.standard_normal((9, 64)).astype(np.float32), rng.integers(0, 9, (rows, inner)).astype(np.int32)
    table.using(grid=tiles, on="chip")(x, places, y := np.zeros((rows, inner, 64), np.float32))
    assert np.array_equal(y, x[places])


@lang.kernel
def numbered(x, y, *, dtype, wide):
    t = lang.tile_id()
    v = x[t] * np.arange(5, -59, -1) if wide else x[t] + np.arange(5, -59, -1).astype(dtype) * (t + 1)
    y[t] = v


def test_floats_in_whole_steps_are_counted_and_float64_is_explained() -> None:
    for dtype in (np.float32, np.float16):
        x = rng.integers(-9, 9, (3, 64)).astype(dtype)
        for on in ("executor", "chip"):
            numbered.using(grid=3, on=on)(x, y := np.zeros_like(x), dtype=dtype, wide=False)
            assert np.array_equal(y, x + np.arange(5, -59, -1) * np.arange(1, 4)[:, None]), (dtype, on)
    x = x.astype(np.float32)
    with pytest.raises(KtirError, match=r"NumPy makes float64 of float32 and int32 or int64.*; '.astype"):
        numbered.using(grid=3, on="chip")(x, np.zeros_like(x), dtype=np.float32, wide=True)


@lang.kernel
def partly(x, n, other, y):
    y[lang.tile_id()] = x[lang.tile_id()] * 2


def test_arguments_that_no_tile_touches() -> None:
    x, other = rng.standard_normal((3, 64)).astype(np.float32), np.ones(5, np.float32)
    for on in (*PLACES, "chip"):
        partly.using(grid=3, on=on)(x, 7, other, y := np.zeros_like(x))
        assert np.array_equal(y, x * 2), on


@pytest.mark.parametrize(("columns", "dtype"), [(65, np.float32), (16, np.float16), (100, np.int32)])
def test_slots_of_any_width(columns: int, dtype: Any) -> None:
    """Rows of a buffer begin at sticks where the author gives no address."""

    @lang.kernel
    def through(x, y):
        own = lang.buffer(columns, dtype, slots=3)
        for i in lang.range(5):
            own[i % 3] = x[i] * 2
            y[i] = own[i % 3] + own[i % 3]

    x = np.arange(5 * columns, dtype=dtype).reshape(5, columns)
    for on in ("numpy", "executor", "chip"):
        through.using(grid=1, on=on)(x, y := np.zeros_like(x))
        np.testing.assert_array_equal(y, x * 4)


@lang.kernel
def one_slot(x, y, *, slots):
    own = lang.buffer(64, np.float32, slots=slots)
    for i in lang.range(x.shape[0]):
        own[i % slots] = x[i] * 2
        y[i // slots] = own[i % slots]


def test_a_single_slot_in_turns() -> None:
    x = rng.standard_normal((3, 64)).astype(np.float32)
    for on in (*PLACES, "chip"):
        one_slot.using(grid=1, on=on)(x, y := np.zeros_like(x), slots=1)
        assert np.array_equal(y, x * 2), on


@lang.kernel
def counted(x, n, y):
    for r in lang.range(n):
        y[r] = x[r + 1] * n


@lang.kernel
def chosen(x, n, y):
    y[0] = np.where(np.arange(64) < n, x[n], n)


@pytest.mark.parametrize("grid", [1, None])
def test_numbers_of_a_call_on_the_chip(grid: Any) -> None:
    """Each number is a program of its own there; what lies outside is refused."""
    x = rng.standard_normal((8, 64)).astype(np.float32)
    for n in (3, 5, 3):
        if grid is not None:
            counted.using(grid=grid, on="chip")(x, n, y := np.zeros_like(x))
            assert np.array_equal(y, np.concatenate([x[1 : n + 1] * n, np.zeros_like(x[n:])]))
        chosen.using(grid=grid, on="chip")(x, n, y := np.zeros_like(x))
        assert np.array_equal(y[0], np.where(np.arange(64) < n, x[n], np.float32(n)))
    for n in (8, -1):
        with pytest.raises(KtirError, match=r"reach beyond dim 0 of 8|coordinates (8|-1) to (8|-1) in dim 0"):
            chosen.using(grid=grid, on="chip")(x, n, np.zeros_like(x))


def test_traces_that_nobody_asks_for_again_are_let_go() -> None:
    """A kernel keeps those of its last calls, whatever its parameters have been."""

    @lang.kernel
    def scaled(x, y, *, by):
        y[:] = x[:] * by

    x = np.ones(4, np.float32)
    first = weakref.ref(scaled.traced(x, x, by=-1.0))
    assert scaled.traced(x, x, by=-1.0) is first()
    for by in range(300):
        scaled.traced(x, x, by=float(by))
    gc.collect()
    assert first() is None
    assert scaled.traced(x, x, by=299.0) is scaled.traced(x, x, by=299.0)


@pytest.mark.parametrize("on", [*PLACES, "chip"])
def test_loops_without_a_grid(on: Any) -> None:
    """They run on one tile; numbers may leave nothing to do."""
    x = rng.standard_normal((9, 24)).astype(np.float32)
    y = np.zeros_like(x)
    states.using(on=on)(x, y)
    total, expected = torch.zeros(24, dtype=torch.float64), []
    for row in wide(x):
        total = total * 0.5 + row
        expected.append(total)
    expected[1::2] = [torch.zeros(24)] * 4
    close(y, torch.stack(expected), 2**-20)
    for grid in (None, 1):
        for n in (0, 4):
            first.using(on=on, grid=grid)(x, n, y := np.zeros_like(x))
            assert np.array_equal(y[n:], np.zeros_like(x[n:]))
            expected = wide(x)[:n] * n + torch.tensor([min(i, 3) for i in range(n)], dtype=torch.float64)[:, None]
            assert np.abs(y[:n] - expected.numpy()).max(initial=0) <= 2**-22 * 40


@lang.kernel
def states(x, y):
    total = lang.zeros(x.shape[1])
    for i in lang.range(x.shape[0]):
        total[...] = total * 0.5 + x[i]

        @lang.when(i % 2 == 0)
        def _():
            y[i] = total


def test_an_explanation_is_the_same_each_time() -> None:
    x = np.ones((16, 64), np.float16)
    softmax.cycles(x, x)
    one = softmax.explain(x, x)
    assert one == softmax.explain(x, x)
    assert "remark: [ktir-plan]" in one
    assert "fewer cycles without it" in softmax[4].explain(x, x)
    assert "bytes per tile" not in softmax[4].explain(x, x)


@lang.kernel
def looped(x, y):
    for i in lang.range(x.shape[0]):
        y[i] = x[i] * 2


@lang.kernel
def in_blocks(x, y):
    for r, c in lang.blocks(x.shape):
        y[r, c] = np.where(c.positions < 3, x[r, c], 0)


@pytest.mark.parametrize("on", [*PLACES, "chip"])
@pytest.mark.parametrize("grid", [None, 1, 4])
def test_arrays_without_elements(on: Any, grid: Any) -> None:
    """There is no block of a dim without elements, and nothing to do."""
    for kernel, shape in ((softmax, (0, 64)), (in_blocks, (0, 64)), (in_blocks, (8, 0)), (in_blocks, (0, 0)), (looped, (0, 64))):
        kernel.using(on=on, grid=grid)(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
    with pytest.raises(KtirError, match=r"dim 1 has no elements to take; 'lang\.blocks' gives no block"):
        doubled_whole.using(on=on, grid=grid)(np.zeros((8, 0), np.float32), np.zeros((8, 0), np.float32))


@lang.kernel
def doubled_whole(x, y):
    y[...] = x[...] * 2


@lang.kernel
def first_rows(x, y, *, rows, block):
    for r in lang.blocks(rows, block):
        y[r] = x[r] * 2


@pytest.mark.parametrize("block", [2, 57])
def test_blocks_of_a_part_of_an_argument(block: int) -> None:
    """The last block hangs over the part, not over the argument."""
    x = rng.standard_normal((8, 64)).astype(np.float32)
    for on in (*PLACES, "chip"):
        first_rows.using(grid=4, on=on)(x, y := np.zeros_like(x), rows=5, block=block)
        assert np.array_equal(y, np.concatenate([x[:5] * 2, np.zeros_like(x[5:])])), on


def test_a_copy_of_a_kernel_is_one() -> None:
    scaled(np.ones(8, np.float32), np.zeros(8, np.float32))
    again, y = copy.deepcopy(scaled), np.zeros(8, np.float32)
    again(np.ones(8, np.float32), y)
    assert y.tolist() == [FACTOR] * 8
