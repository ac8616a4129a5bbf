"""Memory of a card: handles, linear bytes, forms."""

from __future__ import annotations

import gc
import mmap
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ktir import config
from ktir.diagnostics import KtirError
from ktir.layout import Layout
from ktir.runtime.memory.allocation import Allocation, find
from ktir.runtime.memory.card import MOST_CARDS, SEGMENT_BYTES, SEGMENTS, Card, DeviceOutOfMemory, card
from ktir.runtime.memory.transfer import to_device
from ktir.runtime.memory.view import View, arrangement
from ktir.target import DATASHEET, FITTED

SMALL = 1 << 20  # bytes of a segment


def test_linear_bytes() -> None:
    allocation = Allocation(Card(segment_bytes=SMALL), 300)
    data = np.arange(300, dtype=np.int16).view(np.uint8)[:300]
    allocation.write(data)
    np.testing.assert_array_equal(allocation.read(), data)
    allocation.write(np.array([7, 8], np.uint8), 17)
    assert allocation.read(16, 4).tolist() == [data[16], 7, 8, data[19]]


def test_a_form_and_back() -> None:
    values = np.arange(5 * 70).reshape(5, 70).astype(np.float16)
    allocation = Allocation(Card(segment_bytes=SMALL), values.nbytes)
    allocation.write(values)
    layout = Layout.rows(70, 5)
    place = arrangement(View("float16", 0, (70, 5), (1, 70)), layout)
    form = allocation.form(place)
    np.testing.assert_array_equal(form.carrier, to_device(values.T, layout))
    assert allocation.form(place) is form
    allocation.adopt(place, form.carrier + 1)
    np.testing.assert_array_equal(allocation.read().view(np.float16).reshape(5, 70), values + 1)


def test_handles_are_apart_and_found() -> None:
    card = Card(segment_bytes=SMALL)
    some = [Allocation(card, n) for n in (0, 1, 128, 5000)]
    reach = [(a.handle, a.handle + a.nbytes) for a in some]
    assert all(end < start for (_, end), (start, _) in pairwise(reach))
    assert [find(a.handle) for a in some] == some
    handle = some.pop().handle
    with pytest.raises(KtirError, match="expects the handle of an allocation"):
        find(handle)


def test_out_of_memory_has_the_numbers() -> None:
    card = Card(segment_bytes=SMALL)
    kept = [Allocation(card, SMALL - 128) for _ in range(7)]
    with pytest.raises(DeviceOutOfMemory) as raised:
        Allocation(card, 129)
    error = raised.value
    assert (error.requested, error.capacity, error.used, error.largest) == (256, 7 * SMALL, 7 * (SMALL - 128), 128)
    assert card.statistics.nested()["num_ooms"] == 1
    kept.pop()
    assert Allocation(card, SMALL).nbytes == SMALL


def resident() -> int:
    """Bytes of the process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_eight_whole_cards_cost_what_is_written() -> None:
    before = resident()
    cards = [Card(k) for k in range(MOST_CARDS)]
    full = [Allocation(card, SEGMENT_BYTES) for card in cards for _ in range(SEGMENTS - 1)]
    for allocation in full:
        allocation.write(np.array([1, 2, 3], np.uint8), SEGMENT_BYTES - 3)
    assert resident() - before < 64 << 20
    assert [card.used for card in cards] == [112 << 30] * MOST_CARDS
    with pytest.raises(DeviceOutOfMemory):
        Allocation(cards[3], 1)
    assert all(a.read(SEGMENT_BYTES - 4).tolist() == [0, 1, 2, 3] for a in full)


def test_pages_go_back() -> None:
    card = Card()
    allocation = Allocation(card, 128 << 20)
    allocation.linear(write=True)[...] = 1
    held = resident()
    del allocation
    assert card.used == 0
    assert held - resident() > 100 << 20


@pytest.mark.parametrize(("before", "size"), [(128, 3 << 20), (0, (3 << 20) + 128), (mmap.PAGESIZE, 2 << 20), (640, 256)])
def test_what_is_cleared_is_zero_and_nothing_else(before: int, size: int) -> None:
    card = Card()
    data = card.bytes(0, before + size + 128)
    data[...] = 1
    card.clear(before, size)
    assert np.flatnonzero(data).tolist() == [*range(before), *range(before + size, data.size)]


def test_zeros_take_memory_of_the_host_where_they_are_written() -> None:
    before, allocation = resident(), Allocation(Card(), SEGMENT_BYTES)
    allocation.clear()
    allocation.write(np.array([5], np.uint8), 1 << 30)
    assert allocation.read(1 << 30, 2).tolist() == [5, 0]
    assert resident() - before < 64 << 20
    allocation.clear()
    assert allocation.read(1 << 30, 2).tolist() == [0, 0]


def test_a_form_in_the_place_of_linear_bytes_is_there_once() -> None:
    """Of float16 the host has 2 bytes per element, at the address too that the linear bytes had."""
    values = np.ones((4096, 8192), np.float16)
    allocation = Allocation(Card(), values.nbytes)
    place = arrangement(View("float16", 0, values.shape, (8192, 1)), Layout.rows(*values.shape))
    allocation.write(values)
    held = resident()
    shape = allocation.form(place).carrier.shape
    assert not allocation.is_linear
    assert resident() - held < 10 << 20
    allocation.write(values)
    held = resident()
    allocation.adopt(place, np.ones(shape, np.float32))
    assert resident() - held < values.nbytes + (10 << 20)
    np.testing.assert_array_equal(allocation.read().view(np.float16).reshape(values.shape), values)


def test_linear_bytes_and_the_form_in_their_place_exchange_a_range() -> None:
    """Where both are of one size, which those of a single number are, too."""
    cases = [("float16", (3, 64), "f16"), ("float16", (1,), "f16"), ("int64", (1,), "i32"), ("float32", (2, 64), "f32")]
    for dtype, size, kind in cases:
        view, layout = View(dtype, 0, size, (64, 1)[-len(size) :]), Layout.rows(size[:-1], size[-1], kind)
        card = Card()
        values = np.ones(size, dtype)
        allocation, used = Allocation(card, values.nbytes), card.used
        place = arrangement(view, layout)
        found = set()
        for k in range(4):
            allocation.write(values * (k + 1))
            assert allocation.is_linear
            found.add(allocation.form(place).address)
            assert not allocation.is_linear
            assert card.used == used
            np.testing.assert_array_equal(allocation.read().view(dtype).reshape(size), values * (k + 1))
        assert len(found) == 1


def test_what_is_given_back_in_the_midst_of_anything() -> None:
    """Finalizers run wherever Python collects garbage, also while the card's books are open."""
    card = Card(segment_bytes=SMALL)

    class Circle:
        def __init__(self) -> None:
            self.me, self.held = self, Allocation(card, 1000)

    gc.collect()
    gc.set_threshold(1)
    try:
        for _ in range(300):
            Circle()
    finally:
        gc.set_threshold(700, 10, 10)
    gc.collect()
    assert card.used == 0
    counts = card.statistics.nested()
    assert counts["allocation"]["all"] == {"current": 0, "peak": counts["allocation"]["all"]["peak"], "allocated": 300, "freed": 300}
    assert counts["requested_bytes"]["small_pool"]["current"] == 0


def test_threads() -> None:
    card = Card(segment_bytes=SMALL)

    def work(seed: int) -> None:
        rng, kept = random.Random(seed), list[tuple[Allocation, int]]()
        for _ in range(300):
            if kept and rng.random() < 0.5:
                allocation, value = kept.pop(rng.randrange(len(kept)))
                assert (allocation.read() == value).all()
            allocation = Allocation(card, rng.randint(1, 5000))
            allocation.linear(write=True)[...] = seed
            kept = [*kept[-20:], (allocation, seed)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    gc.collect()
    assert card.used == 0
    requested = card.statistics.nested()["requested_bytes"]["all"]
    assert requested["current"] == 0
    assert requested["allocated"] == requested["freed"] > 0


def test_a_card_has_the_figures_of_the_target_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ktir.runtime.memory.card._cards", {})
    with config.patch(target="fitted"):
        assert card(3).target is FITTED
    assert card(3).target is FITTED
    assert card(4).target is DATASHEET
