"""Mixed radices against NumPy, at every point: affine forms, and digits matched to dims."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ktir.lowering.region_to_ktir.indices import Index, call, variable
from ktir.lowering.region_to_ktir.radix import Affine, Digit, Dim, Irregular, Loops, Match, divided, groups, matched, refined


def grids(loops: Loops) -> dict[str, npt.NDArray[np.int64]]:
    """The value of each variable at every point."""
    mesh = np.meshgrid(*(np.arange(n) for _, n in loops), indexing="ij") if loops else []
    return {v: m for (v, _), m in zip(loops, mesh, strict=True)}


def value(digit: Digit, at: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return at[digit.variable] // digit.low % digit.size


def affine_values(form: Affine, at: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    total = np.int64(form.constant) + sum(c * value(d, at) for d, c in form.terms.items())
    return np.broadcast_to(total, np.broadcast_shapes(*(a.shape for a in at.values())))


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[list[tuple[str, int]], list[int], Index]:
    """Loops, the shape of a dense buffer, and the index of a chain of views of it: reshapes, permutations, slices with steps."""
    factors = draw(st.lists(st.sampled_from([2, 3, 4, 5, 7]), min_size=1, max_size=4))
    shape = factors
    dims = [(n, s) for n, s in zip(shape, _strides(shape), strict=True)]
    names = iter(f"v{k}" for k in range(100))
    index = Index()
    current = [(next(names), n) for n, _ in dims]
    for (v, _), (_, s) in zip(current, dims, strict=True):
        index += variable(v).scaled(s)
    for _ in range(draw(st.integers(0, 4))):
        match draw(st.sampled_from(["permute", "reshape", "slice"])):
            case "permute":
                current = draw(st.permutations(current))
            case "slice":
                k = draw(st.integers(0, len(current) - 1))
                v, n = current[k]
                step = draw(st.integers(1, 2))
                low = draw(st.integers(0, n - 1))
                count = draw(st.integers(1, (n - low + step - 1) // step))
                fresh = next(names)
                index = index.substituted({v: variable(fresh).scaled(step) + Index(low)})
                current = [(fresh, count) if i == k else c for i, c in enumerate(current)]
            case _:
                total = prod(n for _, n in current)
                new = draw(st.sampled_from(_factorings(total)))
                fresh = [(next(names), n) for n in new]
                linear = Index()
                for (v, _), s in zip(fresh, _strides(new), strict=True):
                    linear += variable(v).scaled(s)
                by, rest = {}, total
                for v, n in current:
                    rest //= n
                    by[v] = linear.divided(rest).modulo(n) if n > 1 else Index()
                index = index.substituted(by)
                current = fresh
    return [(v, n) for v, n in current if n > 1], shape, index.substituted({v: Index() for v, n in current if n == 1})


def _strides(shape: list[int]) -> list[int]:
    return [prod(shape[k + 1 :]) for k in range(len(shape))]


def _factorings(total: int) -> list[list[int]]:
    found = [[total]]
    for a in range(2, total + 1):
        if total % a == 0 and a < total:
            found += [[a, total // a]] + [[a, b, total // a // b] for b in range(2, total // a) if total // a % b == 0]
    return found


@settings(max_examples=examples(300), deadline=None)
@given(reshapes())
def test_affine_forms_are_exact(case: tuple[list[tuple[str, int]], list[int], Index]) -> None:
    loops, _, index = case
    at = grids(loops)
    try:
        form, chains = refined(index, loops)
    except Irregular:
        return
    expected = np.broadcast_to(index.values(at), affine_values(form, at).shape)
    np.testing.assert_array_equal(affine_values(form, at), expected)
    assert (form.least, form.greatest) == (expected.min(), expected.max())
    for v, n in loops:
        assert prod(d.size for d in chains.digits(v)) == n


@settings(max_examples=examples(300), deadline=None)
@given(reshapes())
def test_matches_are_exact(case: tuple[list[tuple[str, int]], list[int], Index]) -> None:
    loops, shape, index = case
    at = grids(loops)
    try:
        match = matched(index, loops, [Dim(n, s) for n, s in zip(shape, _strides(shape), strict=True)])
    except Irregular:
        return
    expected = index.values(at)
    np.testing.assert_array_equal(np.broadcast_to(address(match, shape, at), expected.shape), expected)


def address(match: Match, shape: list[int], at: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """The element that a match reads at every point, found by walking its parts."""
    places, total = iter(match.places), np.int64(0)
    for (low, size), cut, stride in zip(match.boxes, match.cuts, _strides(shape), strict=True):
        assert prod(cut) == size
        inside = np.int64(0)
        for n in cut:
            place = next(places)
            coordinate = place.offset + (place.step * value(place.digit, at) if place.digit else 0)
            assert np.all((coordinate >= 0) & (coordinate < n))
            inside = inside * n + coordinate
        total = total + (low + inside) * stride
    return np.asarray(total)


v0, v1, v2 = (variable(f"v{k}") for k in range(3))


@pytest.mark.parametrize(
    ("index", "loops", "sizes", "cuts", "places"),
    [
        # heads: a dim is cut for two variables
        (v0.scaled(64) + v1.scaled(16) + v2, (16, 4, 16), (16, 64), ((16,), (4, 16)), ((0, "v0", 1), (0, "v1", 1), (0, "v2", 1))),
        # a variable crosses two dims
        (v0.scaled(64) + v1, (39, 64), (3, 13, 64), ((3,), (13,), (64,)), ((0, "v0", 1), (0, "v0", 1), (0, "v1", 1))),
        # a slice with a step, and a column
        (v0.scaled(10) + Index(23), (3,), (5, 10), ((5,), (10,)), ((2, "v0", 1), (3, None, 1))),
        (v0.scaled(2) + Index(1), (4,), (9,), ((9,),), ((1, "v0", 2),)),
        # a dim is reduced to what is walked before it is cut
        (v0.scaled(16) + v1 + Index(8), (9, 16), (168,), ((9, 16),), ((0, "v0", 1), (0, "v1", 1))),
    ],
)
def test_forms_of_matches(
    index: Index,
    loops: tuple[int, ...],
    sizes: tuple[int, ...],
    cuts: tuple[tuple[int, ...], ...],
    places: tuple[tuple[int, str, int], ...],
) -> None:
    match = matched(
        index, [(f"v{k}", n) for k, n in enumerate(loops)], [Dim(n, s) for n, s in zip(sizes, _strides(list(sizes)), strict=True)]
    )
    assert match.cuts == cuts
    assert tuple((p.offset, p.digit and p.digit.variable, p.step) for p in match.places) == places


@pytest.mark.parametrize(
    ("reason", "index", "loops", "dims"),
    [
        ("ragged-digit", v0.modulo(4), (6,), ((4, 1),)),
        ("div-carry", (v0 + Index(1)).modulo(8), (8,), ((8, 1),)),
        ("div-overlap", (v0.scaled(2) + v1.scaled(3)).modulo(12), (4, 4), ((12, 1),)),
        ("ragged-cross", v0, (6,), ((2, 5), (5, 1))),
        ("ragged-dim", v0.scaled(10) + v1.scaled(4) + v2, (3, 2, 4), ((30, 1),)),
        ("odd-stride", v0.scaled(3), (2,), ((4, 2),)),
        ("odd-offset", v0.scaled(2) + Index(1), (2,), ((4, 2),)),
        ("overlap", v0 + v1, (3, 3), ((5, 1),)),
        ("offset-carry", v0 + Index(3), (4,), ((5, 1),)),
        ("negative-offset", v0 + Index(-1), (4,), ((5, 1),)),
        ("reversed", v0.scaled(-1) + Index(3), (4,), ((4, 1),)),
        ("max", call("max", v0, v1), (4, 4), ((4, 1),)),
        ("abs", call("abs", v0 + Index(-2)), (4,), ((4, 1),)),
        ("symbolic", v0 + variable("s"), (4,), ((4, 1),)),
    ],
)
def test_reasons(reason: str, index: Index, loops: tuple[int, ...], dims: tuple[tuple[int, int], ...]) -> None:
    named = [(f"v{k}", n) for k, n in enumerate(loops)]
    with pytest.raises(Irregular) as caught:
        matched(index, named, [Dim(*d) for d in dims])
    assert caught.value.reason == reason


def test_an_index_from_data_takes_one_dim() -> None:
    dims = [Dim(10, 7), Dim(7, 1)]
    match = matched(variable("i").scaled(7) + v0, [("v0", 7)], dims, {"i": 10})
    assert [p.digit and p.digit.variable for p in match.places] == ["i", "v0"]
    for wrong in (variable("i").scaled(7) + v0.scaled(7), variable("i").scaled(14)):
        with pytest.raises(Irregular, match="index-misfit"):
            matched(wrong, [("v0", 3)], dims, {"i": 10})
    with pytest.raises(Irregular, match="index-misfit"):
        matched(variable("i").scaled(7), [], dims, {"i": 9})


def test_a_dominant_maximum_is_no_maximum() -> None:
    form, _ = refined(call("max", v0 + Index(4), v1), [("v0", 3), ("v1", 5)])
    assert form.constant == 4
    form, _ = refined(call("min", v0 + Index(4), v1), [("v0", 3), ("v1", 5)])
    assert form.terms == {Digit("v1", 1, 5): 1}


def test_quotient_and_remainder_take_a_carry() -> None:
    quotient, rest = divided(Affine(-1, {Digit("v", 1, 4): -1}), 8)
    assert (quotient.constant, quotient.terms, rest.constant) == (-1, {}, 7)


@given(st.permutations([2, 3, 4, 5]), st.integers(0, 3), st.integers(0, 3))
def test_groups(sizes: list[int], a: int, b: int) -> None:
    """Two ways to merge neighbours have a finest common grouping."""
    old, new = ([prod(sizes[: k + 1]), *sizes[k + 1 :]] for k in (a, b))
    found = groups(old, new)
    assert [d for g in found for d in g.before] == list(range(len(old)))
    assert [d for g in found for d in g.after] == list(range(len(new)))
    for g in found:
        assert prod(old[d] for d in g.before) == prod(new[d] for d in g.after)
        assert len(g.before) == 1 or len(g.after) == 1


def test_groups_of_dims_of_one_element() -> None:
    """At the ends they go with their neighbours."""
    for old, new in (((4,), (4, 1)), ((4,), (1, 4)), ((4, 1), (4,)), ((2, 3, 1, 1), (6,)), ((4,), (2, 2, 1))):
        found = groups(old, new)
        assert [d for g in found for d in g.before] == list(range(len(old)))
        assert [d for g in found for d in g.after] == list(range(len(new)))
