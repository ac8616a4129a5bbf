"""Trips of a loop done together: the same bits as trip after trip, in fewer calls, and never across a dependence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import (
    generic,
    kernel,
    load,
    matmul_tiled,
    pack,
    random_f16,
    same,
    softmax_allocated,
    softmax_reference,
    softmax_tiled,
    store,
    tensor,
    unpack,
)

from ktir.emulator.policy import Policy
from ktir.emulator.reference import binding, execute, executor

F16 = np.float16


def calls_and(text: str, arrays: list[np.ndarray], policy: Policy) -> int:
    """Execute; the number of calls of the tape."""
    executor._plans.clear()
    execute(text, args=arrays, policy=policy)
    (plan,) = executor._plans.values()
    return len(plan.calls)


def both(monkeypatch: Any, text: str, make: Callable[[], list[np.ndarray]], policy: Policy = Policy()) -> tuple[list[np.ndarray], int, int]:  # noqa: B008
    """Execute with and without merging, which must leave the same bits: the arrays, and the calls of each."""
    merged, plain = make(), make()
    after = calls_and(text, merged, policy)
    monkeypatch.setattr(binding, "merge_trips", lambda steps: steps)
    before = calls_and(text, plain, policy)
    monkeypatch.undo()
    for a, b in zip(merged, plain, strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return merged, after, before


def rows(body: str, trips: int, columns: int, *arguments: str, first: int = 0) -> str:
    """A loop over the rows of `arguments`, [trips, columns] each; `%i` is the row."""
    loop = f"%c0 = arith.constant {first} : index\n%n = arith.constant {trips} : index\n%c1 = arith.constant 1 : index\n"
    return kernel(list(arguments), loop + f"scf.for %i = %c0 to %n step %c1 {{\n{body}}}\n")


def row(name: str, base: str, shape: tuple[int, int], index: Any = ("%i", 0)) -> str:
    return load(name, base, shape, index=index, extents=(1, shape[1]))


def put(name: str, base: str, shape: tuple[int, int], index: Any = ("%i", 0)) -> str:
    return store(name, base, shape, index=index, extents=(1, shape[1]))


@pytest.mark.parametrize("numerics", ["machine", "peer", "fast"])
@pytest.mark.parametrize(("tiles", "block", "columns"), [(1, 1, 130), (4, 1, 64), (4, 2, 200), (32, 1, 512)])
def test_softmax_of_small_blocks(monkeypatch, numerics, tiles, block, columns):
    share = 8
    x = random_f16(tiles * share, columns, scale=3)
    rows = len(x)
    for text in (softmax_tiled(rows, columns, share, block), softmax_allocated(rows, columns, share, block)):
        (_, y), after, before = both(monkeypatch, text, lambda: [pack(x), np.zeros_like(pack(x))], Policy(numerics=numerics))
        np.testing.assert_allclose(unpack(y, columns), softmax_reference(x), atol=2e-3)
        assert after < before


@pytest.mark.parametrize("rows", [200, 199, 65])
def test_uneven_last_tile(monkeypatch, rows):
    """The last tile has fewer rows: what differs from trip to trip stays a trip of its own."""
    x = random_f16(rows, 100)
    text = softmax_tiled(rows, 100, -(-rows // 8), 1)
    (_, y), _, _ = both(monkeypatch, text, lambda: [pack(x), np.zeros_like(pack(x))])
    np.testing.assert_allclose(unpack(y, 100), softmax_reference(x), atol=2e-3)


@pytest.mark.parametrize("numerics", ["machine", "peer"])
def test_matmul_blocks(monkeypatch, numerics):
    """The loop over columns has a loop over depth inside, which carries the accumulator."""
    a, b = random_f16(33, 200), random_f16(200, 300, seed=1)
    make = lambda: [pack(a, 0), pack(b, 0), np.zeros((5, 33, 64), F16)]  # noqa: E731
    (_, _, c), after, before = both(monkeypatch, matmul_tiled(33, 200, 300, 4), make, Policy(numerics=numerics))
    np.testing.assert_allclose(unpack(c, 300), a.astype(np.float64) @ b.astype(np.float64), atol=0.1)
    assert after < before if numerics == "machine" else after == before  # peer folds contractions that are no named matmuls, one by one


def test_in_place(monkeypatch):
    """A row is replaced by twice itself: no other trip sees it."""
    shape = (40, 64)
    text = rows(row("%x", "%a", shape) + f"%y = arith.addf %x, %x : {tensor((1, 64))}\n" + put("%y", "%a", shape), 40, 64, "%a")
    (a,), after, before = both(monkeypatch, text, lambda: [random_f16(*shape)])
    same(a, random_f16(*shape) * F16(2))
    assert after < before


def test_a_trip_reads_what_the_one_before_wrote(monkeypatch):
    """Sums of all rows so far, through memory: done together they would be those of two rows."""
    shape = (40, 64)
    body = "%p = arith.subi %i, %c1 : index\n" + row("%x", "%a", shape) + row("%y", "%a", shape, ("%p", 0))
    text = rows(body + f"%z = arith.addf %x, %y : {tensor((1, 64))}\n" + put("%z", "%a", shape), 40, 64, "%a", first=1)
    (a,), after, before = both(monkeypatch, text, lambda: [np.ones(shape, F16)])
    np.testing.assert_array_equal(a, np.arange(1, 41, dtype=F16)[:, None] + np.zeros(64, F16))
    assert after == before


def test_the_last_of_two_stores_to_a_place_stays(monkeypatch):
    """Each trip stores two rows, and the next trip stores one of them again."""
    shape = (41, 64)
    body = row("%x", "%a", (40, 64)) + f"%y = arith.addf %x, %x : {tensor((1, 64))}\n%q = arith.addi %i, %c1 : index\n"
    text = rows(body + put("%x", "%b", shape) + put("%y", "%b", shape, ("%q", 0)), 40, 64, "%a", "%b")
    x = random_f16(40, 64)
    (_, b), _, _ = both(monkeypatch, text, lambda: [x.copy(), np.zeros(shape, F16)])
    same(b[:40], x)
    same(b[40:], x[39:] * F16(2))


def test_a_number_that_differs_from_trip_to_trip(monkeypatch):
    """The row number stands in the body."""
    shape = (40, 64)
    kind = tensor((1, 64), "i32")
    body = "%w = arith.index_cast %i : index to i32\n%x = arith.addi %a, %w : i32\nlinalg.yield %x : i32"
    text = load("%x", "%arg0", shape, index=("%i", 0), extents=(1, 64), element="i32") + f"%e = tensor.empty() : {kind}\n"
    text += generic("%y", [("%x", kind, "d0, d1")], ("%e", kind, "d0, d1"), "pp", body)
    text += store("%y", "%arg1", shape, index=("%i", 0), extents=(1, 64), element="i32")
    x = np.random.default_rng(0).integers(0, 99, shape).astype(np.int32)
    (_, y), _, _ = both(monkeypatch, rows(text, 40, 64, "%arg0", "%arg1"), lambda: [x.copy(), np.zeros_like(x)])
    np.testing.assert_array_equal(y, x + np.arange(40)[:, None])


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_random_rows_in_one_memory(data):
    """Loads and stores at random rows that move with the trip, all in one array."""
    count, columns, trips = 60, 8, data.draw(st.integers(2, 9))
    step = data.draw(st.integers(1, 5))
    body, values = f"%s = arith.constant {step} : index\n%r = arith.muli %i, %s : index\n", ["%l0"]
    body += row("%l0", "%a", (count, columns), ("%r", 0))
    script: list[tuple[str, int, int, int]] = []
    for n in range(1, data.draw(st.integers(2, 5))):
        at = data.draw(st.integers(0, count - 1 - step * (trips - 1)))
        body += f"%o{n} = arith.constant {at} : index\n%r{n} = arith.addi %r, %o{n} : index\n"
        if data.draw(st.booleans()):
            body += row(f"%l{n}", "%a", (count, columns), (f"%r{n}", 0))
            script.append(("load", at, 0, 0))
        else:
            a, b = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
            body += f"%l{n} = arith.addf {values[a]}, {values[b]} : {tensor((1, columns))}\n"
            body += put(f"%l{n}", "%a", (count, columns), (f"%r{n}", 0))
            script.append(("store", at, a, b))
        values.append(f"%l{n}")
    x = random_f16(count, columns)
    want = x.copy()
    for i in range(trips):
        held = [want[i * step].copy()]
        for kind, at, a, b in script:
            held.append(want[i * step + at].copy() if kind == "load" else held[a] + held[b])
            if kind == "store":
                want[i * step + at] = held[-1]
    execute(rows(body, trips, columns, "%a"), args=[x])
    same(x, want)
