"""Memory of a card: handles, linear bytes, forms."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ktir.diagnostics import KtirError
from ktir.layout import Layout
from ktir.runtime.memory.allocation import Allocation, find
from ktir.runtime.memory.card import Card, DeviceOutOfMemory
from ktir.runtime.memory.transfer import to_device
from ktir.runtime.memory.view import View, arrangement

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
