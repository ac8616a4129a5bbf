"""Which box of a stored value a load reads: against the addresses themselves."""

from __future__ import annotations

import itertools

import numpy as np
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import kernel, load, random_f16, store

import ktir
from ktir.emulator.reference.record.scratchpad import box_within
from ktir.emulator.reference.tape.values import Strided


def addresses(at: Strided) -> list[int]:
    places = itertools.product(*(range(n) for n in at.shape[1:]))
    return [at.offset + sum(i * s for i, s in zip(p, at.strides[1:], strict=True)) for p in places]


def dense(sizes: list[int], gaps: list[int], offset: int) -> Strided:
    """Dims that nest, with some elements left out behind each."""
    strides, step = [], 1
    for size, gap in zip(reversed(sizes), reversed(gaps), strict=True):
        strides.append(step)
        step = step * size + gap
    return Strided((1, *sizes), (0, *reversed(strides)), offset)


@settings(max_examples=examples(300), deadline=None, derandomize=True, database=None)
@given(st.data())
def test_a_box_has_the_addresses(data: st.DataObject) -> None:
    """Of a part of a value its box is found; what is found for any other region has its addresses."""
    draw = data.draw
    rank = draw(st.integers(1, 3))
    sizes = draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    outer = dense(sizes, draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank)), draw(st.integers(0, 9)))
    box = []
    for n in sizes:
        extent = draw(st.integers(1, n))
        box.append((draw(st.integers(0, n - extent)), extent))
    part = outer.box(tuple(box))
    found = box_within(part, outer)
    assert found is not None
    assert addresses(outer.box(found)) == addresses(part)
    other = Strided(part.shape, part.strides, part.offset + draw(st.integers(-4, 9)))
    found = box_within(other, outer)
    assert (found is not None) == (set(addresses(other)) <= set(addresses(outer)) and _is_box(other, outer))
    assert found is None or addresses(outer.box(found)) == addresses(other)


def _is_box(inner: Strided, outer: Strided) -> bool:
    firsts = itertools.product(*(range(n - m + 1) for n, m in zip(outer.shape[1:], inner.shape[1:], strict=True)))
    return any(addresses(outer.box(tuple(zip(first, inner.shape[1:], strict=True)))) == addresses(inner) for first in firsts)


def test_rows_that_are_stored_one_by_one_are_read_together() -> None:
    """And a row of what was stored as a whole, also where a part of it has been overwritten since."""
    text = "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n%c2 = arith.constant 2 : index\n"
    for i in range(3):
        text += load(f"%x{i}", "%arg0", (3, 8), index=(f"%c{i}", 0), extents=(1, 8))
        text += store(f"%x{i}", "%c0", (3, 8), index=(f"%c{i}", 0), extents=(1, 8), space="ct_local")
    text += load("%all", "%c0", (3, 8), space="ct_local") + store("%all", "%arg1", (3, 8))
    text += load("%y", "%arg0", (3, 8), index=("%c2", 0), extents=(1, 8))
    text += store("%y", "%c0", (3, 8), index=("%c1", 0), extents=(1, 8), space="ct_local")
    text += load("%now", "%c0", (3, 8), space="ct_local") + store("%now", "%arg2", (3, 8))
    text += load("%row", "%c0", (3, 8), index=("%c1", 0), extents=(1, 8), space="ct_local") + store("%row", "%arg3", (1, 8))
    x = random_f16(3, 8)
    found = [np.zeros_like(x), np.zeros_like(x), np.zeros((1, 8), np.float16)]
    ktir.execute(kernel(["%arg0", "%arg1", "%arg2", "%arg3"], text), args=[x, *found])
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], x[[0, 2, 2]])
    np.testing.assert_array_equal(found[2], x[[2]])
