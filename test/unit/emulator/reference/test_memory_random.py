"""Random programs of loads, sums and stores against a simulation with plain arrays: views, hazards, LX in pieces, rows per tile."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import kernel, load, same, store, tensor

from ktir.emulator.findings import TypeConfusion, Uninitialized
from ktir.emulator.reference import execute

ROWS, COLUMNS = 4, 12  # of one tile's part of the buffer
LX = 60  # elements


@dataclass
class Simulation:
    """Text of a program, and what it does to [tiles, ROWS, COLUMNS] and to the scratchpads [tiles, LX]."""

    tiles: int
    text: str = ""
    values: dict[tuple[int, int], list[tuple[str, np.ndarray]]] = field(default_factory=dict)
    names: int = 0

    def name(self) -> str:
        self.names += 1
        return f"%s{self.names}"

    def value(self, draw, shape: tuple[int, int]) -> tuple[str, np.ndarray]:
        """A value of `shape`, preferably an old one: its memory may have changed since it was loaded."""
        known = self.values.setdefault(shape, [])
        if not known or draw(st.integers(0, 4)) == 0:
            number = draw(st.integers(-8, 8))
            name = self.name()
            self.text += f"{name} = arith.constant dense<{number}.0> : {tensor(shape)}\n"
            known.append((name, np.full((self.tiles, *shape), number, np.float16)))
        return draw(st.sampled_from(known))


def box(draw, sizes: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    low = tuple(draw(st.integers(0, n - 1)) for n in sizes)
    extents = tuple(draw(st.integers(1, n - a)) for n, a in zip(sizes, low, strict=True))
    return low, extents  # type: ignore[return-value]


def place(draw, sim: Simulation, memory: np.ndarray, scratchpad: bool) -> tuple[str, dict, np.ndarray, bool]:
    """A random view and box: base, keyword arguments of load and store, the elements as a view of `memory`, whether transposed."""
    if scratchpad:
        sizes = (draw(st.integers(1, 5)), draw(st.integers(1, 10)))
        strides = (draw(st.sampled_from([sizes[1], sizes[1] + 2])), 1)
        if draw(st.booleans()):
            strides = (1, sizes[0])
        reach = (sizes[0] - 1) * strides[0] + (sizes[1] - 1) * strides[1] + 1
        offset = min(draw(st.sampled_from([0, 1, 5, LX])), LX - reach)
        base = sim.name()
        sim.text += f"{base} = arith.constant {offset} : index\n"
    else:
        sizes, strides, offset, base = (ROWS, COLUMNS), (COLUMNS, 1), 0, "%mine"
    low, extents = box(draw, sizes)
    order = (1, 0) if draw(st.integers(0, 3)) == 0 else (0, 1)
    size = memory.itemsize
    start = offset + low[0] * strides[0] + low[1] * strides[1]
    flat = memory.reshape(sim.tiles, -1)
    shape = (sim.tiles, *(extents[d] for d in order))
    steps = (flat.strides[0], *(strides[d] * size for d in order))
    elements = np.ndarray(shape, memory.dtype, flat, start * size, steps)
    given = {"sizes": sizes, "strides": strides, "index": low, "extents": extents, "order": order}
    return base, given | ({"space": "ct_local"} if scratchpad else {}), elements, order != (0, 1)


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.sampled_from([1, 3]))
def test_random_programs(data, tiles):
    draw = data.draw
    sim = Simulation(tiles)
    memory = np.random.default_rng(draw(st.integers(0, 9))).integers(-9, 9, (tiles, ROWS, COLUMNS)).astype(np.float16)
    array = memory.copy()
    pad = np.zeros((tiles, LX), np.float16)
    sim.text = "%t = ktdp.get_compute_tile_id : index\n" + f"%n = arith.constant {ROWS * COLUMNS} : index\n%o = arith.muli %t, %n : index\n"
    sim.text += "%mine = arith.addi %arg0, %o : index\n%zero = arith.constant 0 : index\n"
    sim.text += f"%clear = arith.constant dense<0.0> : {tensor((LX,))}\n" + store("%clear", "%zero", (LX,), space="ct_local")
    for _ in range(draw(st.integers(1, 14))):
        action = draw(st.sampled_from(["load", "load", "store", "store", "add"]))
        if action == "add":
            shape = draw(st.sampled_from(sorted(sim.values))) if sim.values else (1, 1)
            (a, x), (b, y) = sim.value(draw, shape), sim.value(draw, shape)
            name = sim.name()
            sim.text += f"{name} = arith.addf {a}, {b} : {tensor(shape)}\n"
            sim.values[shape].append((name, (x.astype(np.float32) + y).astype(np.float16)))
            continue
        scratchpad = draw(st.booleans())
        base, given, elements, _ = place(draw, sim, pad if scratchpad else memory, scratchpad)
        shape = elements.shape[1:]
        if action == "load":
            name = sim.name()
            sim.text += load(name, base, **given)
            sim.values.setdefault(shape, []).append((name, elements.copy()))  # type: ignore[arg-type]
        else:
            name, value = sim.value(draw, shape)  # type: ignore[arg-type]
            sim.text += store(name, base, **given)
            elements[...] = value
    sim.text += load("%end", "%zero", (LX,), space="ct_local") + f"%c = arith.constant {LX} : index\n%p = arith.muli %t, %c : index\n"
    sim.text += "%q = arith.addi %arg1, %p : index\n" + store("%end", "%q", (LX,))
    end = np.zeros_like(pad)
    execute(kernel(["%arg0", "%arg1"], sim.text, str(tiles)), args=[array, end])
    same(array + np.float16(0), memory + np.float16(0))
    same(end + np.float16(0), pad + np.float16(0))


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_scratchpad_shadow(data):
    """Types and initialisation byte by byte: random f16 and f32 stores, then a read that must be right, confused or uninitialised."""
    draw = data.draw
    held = np.zeros(64, np.int8)  # bytes per type of what is there: 0 nothing, 2, 4
    bytes_ = np.zeros(64, np.uint8)
    text = ""
    sizes = {"f16": 2, "f32": 4}
    types = {"f16": np.float16, "f32": np.float32}
    for i in range(draw(st.integers(0, 5))):
        element = draw(st.sampled_from(["f16", "f32"]))
        size = sizes[element]
        start = draw(st.integers(0, 64 // size - 1))
        count = draw(st.integers(1, 64 // size - start))
        text += f"%a{i} = arith.constant {start} : index\n%w{i} = arith.constant dense<{i + 1}.0> : {tensor((count,), element)}\n"
        text += store(f"%w{i}", f"%a{i}", (count,), element=element, space="ct_local")
        span = slice(start * size, (start + count) * size)
        held[span] = size
        bytes_[span] = np.full(count, i + 1, types[element]).view(np.uint8)
        # Half an overwritten f32 element is garbage in either type; it counts as what covers it.
        for at in range(0, 64, 4):
            if 0 < (held[at : at + 4] == 4).sum() < 4:
                held[at : at + 4][held[at : at + 4] == 4] = 9
    element = draw(st.sampled_from(["f16", "f32"]))
    size = sizes[element]
    start = draw(st.integers(0, 64 // size - 1))
    count = draw(st.integers(1, 64 // size - start))
    text += f"%r = arith.constant {start} : index\n" + load("%x", "%r", (count,), element=element, space="ct_local")
    text += store("%x", "%arg0", (count,), element=element)
    span = slice(start * size, (start + count) * size)
    y = np.zeros(count, types[element])
    if (held[span] == size).all():
        execute(kernel(["%arg0"], text), args=[y])
        np.testing.assert_array_equal(y, bytes_[span].view(types[element]))
    else:
        with pytest.raises((TypeConfusion, Uninitialized)) as caught:
            execute(kernel(["%arg0"], text), args=[y])
        if not held[span].any():
            assert caught.type is Uninitialized
