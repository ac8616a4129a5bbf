"""Forms of an allocation against a model of it, an array of bytes: what was written last, in whatever form, is read in every other one."""

from __future__ import annotations

import gc
import random
from math import prod

import numpy as np
import pytest

from ktir.diagnostics import OutOfRange
from ktir.layout import Layout
from ktir.runtime.memory.allocation import Allocation
from ktir.runtime.memory.card import Card
from ktir.runtime.memory.pool import rounded
from ktir.runtime.memory.transfer import from_device, to_device
from ktir.runtime.memory.view import View, arrangement

BYTES = 3840
SEGMENT = 1 << 20
LAYOUTS = {"float16": "f16", "float32": "f32", "int64": "i32", "int32": "i32", "int8": "i32", "uint8": "i32", "bool": "i32"}
I32 = -(2**31), 2**31 - 1


def a_view(rng: random.Random) -> View:
    """Rows and columns of any type: all elements in order, transposed, or a window of them."""
    dtype = rng.choice(list(LAYOUTS))
    elements = BYTES // np.dtype(dtype).itemsize
    columns = rng.choice([d for d in (1, 3, 15, 60, 64, 96, 160) if elements % d == 0])
    rows = elements // columns
    match rng.randrange(3):
        case 0:
            return View(dtype, 0, (rows, columns), (columns, 1))
        case 1:
            return View(dtype, 0, (columns, rows), (1, columns))
    first, left = rng.randrange(rows), rng.randrange(columns)
    return View(dtype, first * columns + left, (rng.randint(1, rows - first), rng.randint(1, columns - left)), (columns, 1))


def a_layout(rng: random.Random, view: View) -> Layout:
    stick = rng.randrange(2)
    return Layout.ordered(view.size, rng.choice([(0, 1), (1, 0)]), stick, LAYOUTS[view.dtype])


def values(rng: random.Random, layout: Layout) -> np.ndarray:
    """What a program may leave in a carrier, of padding too."""
    shape = layout.entries, 64
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    match layout.dtype:
        case "f16":
            return numbers.standard_normal(shape).astype(np.float16).astype(np.float32)
        case "f32":
            return numbers.standard_normal(shape).astype(np.float32)
    return numbers.integers(-3, 4, shape).astype(np.int32).view(np.float32)


class Walk:
    """Random events on an allocation and on its model."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.card = Card(segment_bytes=SEGMENT)
        self.allocation = Allocation(self.card, BYTES)
        self.allocation.linear(write=True)[...] = 0
        self.model = np.zeros(BYTES, np.uint8)
        self.made = 0

    def step(self) -> None:
        """One event, and what it must leave behind."""
        event = self.rng.choice([self.write, self.change, self.read, self.form, self.form, self.form, self.launch, self.launch])
        event()
        forms = self.allocation.forms
        taken = sum(rounded(f.layout.sticks * 128) for f in forms.values())
        assert self.card.used == taken + rounded(BYTES) * self.allocation.is_linear
        assert self.allocation.is_linear or forms

    def write(self) -> None:
        """The host writes bytes."""
        first = self.rng.randrange(BYTES)
        data = np.frombuffer(self.rng.randbytes(self.rng.choice([1, 7, BYTES])), np.uint8)[: BYTES - first]
        self.allocation.write(data, first)
        self.model[first : first + data.size] = data

    def change(self) -> None:
        """The host writes small numbers in place."""
        view = a_view(self.rng)
        for linear in (self.allocation.linear(write=True), self.model):
            view.of(linear)[...] = 1

    def read(self) -> None:
        """The host reads."""
        np.testing.assert_array_equal(self.allocation.read(), self.model)

    def form(self) -> None:
        """A program reads."""
        view = a_view(self.rng)
        layout = a_layout(self.rng, view)
        held = view.of(self.model)
        place = arrangement(view, layout)
        if layout.dtype == "i32" and (int(held.min()) < I32[0] or int(held.max()) > I32[1]):
            with pytest.raises(OutOfRange):
                self.allocation.form(place)
            return
        with np.errstate(invalid="ignore"):
            found, wanted = self.allocation.form(place).carrier, to_device(held, layout).view(np.float32)
        np.testing.assert_array_equal(found.astype(np.float32, copy=False).view(np.int32), wanted.view(np.int32))
        self.made += 1

    def launch(self) -> None:
        """A program writes: all of the allocation, or a part."""
        view = a_view(self.rng)
        layout = a_layout(self.rng, view)
        carrier = values(self.rng, layout)
        from_device(carrier.view(layout.value_type), layout, view.of(self.model))
        place = arrangement(view, layout)
        if place.adopts and prod(view.size) * np.dtype(view.dtype).itemsize == BYTES:
            version = self.allocation.version
            self.allocation.adopt(place, carrier)
            assert not self.allocation.is_linear
            assert self.allocation.version > version
        else:
            self.allocation.put(place, carrier)
            assert self.allocation.is_linear


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(s, marks=pytest.mark.long) for s in range(12, 60))])
def test_random_events(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(250):
        walk.step()
    assert walk.made > 30
    card = walk.card
    del walk
    gc.collect()
    assert card.used == 0
