"""Index trees, boxes, groupings and routes: pure integers, compared with NumPy point by point."""

import json
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktir.lowering.inductor.access import Box, Group, NotStrided, box_of, groups, route
from ktir.lowering.inductor.indices import Index, variable

VI, VJ = variable("i"), variable("j")


def test_index_arithmetic() -> None:
    index = VI.scaled(64) + VJ + Index(3) + VI.scaled(-60)
    assert index == Index(3, ((4, "i"), (1, "j")))
    assert (VI + VI.scaled(-1)) == Index()
    assert index.variables == {"i", "j"}
    assert (VI + VJ).divided(3).modulo(5).variables == {"i", "j"}
    assert not VI.divided(2).is_affine
    assert VI.divided(1) == VI
    assert Index(7).divided(2) == Index(3)
    assert Index(7).modulo(4) == Index(3)
    assert str(VI.divided(57) + VJ.modulo(3).scaled(2) + Index(1)) == "((i) // 57) + 2*((j) % 3) + 1"


def test_index_to_json_and_back() -> None:
    index = (VI.scaled(2) + VJ.divided(57) + VJ.modulo(57).scaled(64) + Index(5)).modulo(1000)
    assert Index.from_json(json.loads(json.dumps(index.to_json()))) == index


@given(st.integers(1, 9), st.integers(1, 9), st.integers(-5, 5), st.integers(1, 7))
def test_index_values(n: int, m: int, constant: int, divisor: int) -> None:
    index = (VI.scaled(3) + VJ + Index(constant)).divided(divisor) + VJ.modulo(divisor).scaled(2)
    i, j = np.ogrid[:n, :m]
    expected = (3 * i + j + constant) // divisor + 2 * (j % divisor)
    assert np.array_equal(index.values({"i": i, "j": j}), expected)


def test_affine_box() -> None:
    box = box_of(VI.scaled(65) + VJ + Index(130), [("i", 10), ("k", 3), ("j", 57)])
    assert box == Box(130, ((10, 65), (3, 0), (57, 1)))


def test_reshape_of_a_transpose_is_a_box() -> None:
    index = VI.scaled(2) + VJ.divided(57) + VJ.modulo(57).scaled(64)
    assert box_of(index, [("i", 32), ("j", 114)]) == Box(0, ((32, 2), (2, 1), (57, 64)))


@pytest.mark.parametrize(
    ("index", "reason"),
    [(VI.scaled(-1) + Index(9), "backwards"), ((VI + Index(3)).modulo(10), "regular"), (VI.divided(3) + VI, "regular")],
    ids=str,
)
def test_what_is_no_box(index: Index, reason: str) -> None:
    with pytest.raises(NotStrided, match=reason):
        box_of(index, [("i", 10)])


def test_too_many_points() -> None:
    with pytest.raises(NotStrided, match="too many"):
        box_of(VI.divided(3) + VJ, [("i", 1 << 15), ("j", 1 << 15)])


shapes = st.lists(st.sampled_from([2, 3, 4, 5, 6, 10]), min_size=1, max_size=4)


@given(shapes, st.randoms(use_true_random=False))
def test_reshapes_of_transposes_are_boxes(shape: list[int], random: object) -> None:
    """memory.reshape(shape).transpose(order).reshape(other): the index read by loops over `other` is found as a box."""
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    memory = np.arange(prod(shape)).reshape(shape)
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    flat = Index()
    inner = 1
    for d in reversed(order):  # the element at place n of the transposed tensor: a sum over its digits
        flat += variable("n").divided(inner).modulo(shape[d]).scaled(strides[d])
        inner *= shape[d]
    box = box_of(flat, [("n", memory.size)])
    walked = sum(
        (np.arange(n).reshape([-1 if e == d else 1 for e in range(len(box.digits))]) * s for d, (n, s) in enumerate(box.digits)),
        np.zeros([1] * len(box.digits), dtype=int),
    )
    assert np.array_equal(walked.reshape(-1), memory.transpose(order).reshape(-1))


def test_groups() -> None:
    assert groups([3, 13, 64], [39, 64]) == [Group((0, 1), (0,)), Group((2,), (1,))]
    assert groups([4, 6], [3, 8]) == [Group((0, 1), (0, 1))]
    assert groups([], []) == []
    assert groups([5], [5]) == [Group((0,), (0,))]


@given(shapes, shapes)
def test_groups_keep_products(a: list[int], b: list[int]) -> None:
    old, new = [*a, *b], [prod(a), *b]
    found = groups(old, new)
    assert [d for g in found for d in g.before] == list(range(len(old)))
    assert [d for g in found for d in g.after] == list(range(len(new)))
    for g in found:
        assert prod(old[d] for d in g.before) == prod(new[d] for d in g.after)


def test_routes() -> None:
    rows = ((10, 65), (65, 1))
    assert route(rows, Box(0, rows)).in_order
    assert route(rows, Box(0, rows[::-1])).order == (1, 0)
    assert route(((3, 130), (2, 65), (65, 1)), Box(0, ((6, 65), (65, 1)))).in_order  # merges dims
    assert route(((6, 65), (65, 1)), Box(0, ((3, 130), (2, 65), (65, 1)))).in_order  # splits a dim
    assert route(((4, 6), (6, 1)), Box(0, ((3, 8), (8, 1)))).in_order  # ragged, but all in memory order
    assert route(((5, 64), (3, 320), (64, 1)), Box(0, ((5, 64), (3, 320), (64, 1)))).in_order  # a permuted intermediate
    assert route(((5, 3), (3, 1)), Box(0, ((3, 1), (5, 3)))).order == (1, 0)
    assert route((), Box(0, ())).in_order


@pytest.mark.parametrize(
    "box", [Box(65, ((9, 65), (65, 1))), Box(0, ((9, 65), (65, 1))), Box(0, ((10, 65), (64, 1))), Box(0, ((10, 65), (2, 0), (65, 1)))]
)
def test_parts_of_intermediates_have_no_route(box: Box) -> None:
    with pytest.raises(NotStrided, match="only a part"):
        route(((10, 65), (65, 1)), box)


def test_ragged_after_a_transpose_has_no_route() -> None:
    with pytest.raises(NotStrided, match="transpose"):
        route(((6, 1), (4, 6)), Box(0, ((3, 8), (8, 1))))
