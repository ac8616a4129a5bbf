"""Block sums: the exact sum of the products, rounded once, against rational arithmetic, whatever the data and however rows are cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ktir.arithmetic import numerics as num
from ktir.arithmetic.block_sums import Block, largest_norm
from ktir.arithmetic.products import matmul_block, matmul_machine

FORMATS = ("f16", "bf16", "dl16", "f8E4M3FN", "f8E5M2", "f32")
LEAST = {"f16": -24, "bf16": -133, "dl16": -40, "f8E4M3FN": -9, "f8E5M2": -16, "f32": -149}


def nearest_f32(x: Fraction) -> float:
    """To nearest, ties to even, from the definition of the format; a zero is +0."""
    size = abs(x)
    if not size:
        return 0.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    value = round(size / step) * step
    if value >= Fraction(2) ** 128:
        return float("inf") if x > 0 else -float("inf")
    return float(value if x > 0 else -value) if value else 0.0


def exact(a, b):
    rows = [[Fraction(float(x)) for x in row] for row in a]
    columns = [[Fraction(float(x)) for x in column] for column in b.T]
    sums = [[nearest_f32(sum((x * y for x, y in zip(r, c, strict=True)), Fraction(0))) for c in columns] for r in rows]
    return np.array(sums, np.float32).reshape(len(rows), len(columns))


def same(got, want):
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def draw(rng, kind, element, shape):
    least = 2.0 ** LEAST[element]
    match kind:
        case "normal":
            x = rng.standard_normal(shape)
        case "wide":
            x = rng.standard_normal(shape) * 2.0 ** rng.integers(-24, 15, shape)
        case "cancelling":
            most = {"f16": 65504.0, "f8E4M3FN": 448.0, "f8E5M2": 57344.0}.get(element, 2.0**30)
            x = rng.choice([most, -most, least, -least, 1, -1, 3, 0, -0.0, least * 2.0**10], shape)
        case "least":
            x = rng.integers(-9, 10, shape) * least
        case "bits":
            x = rng.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.float32)
        case _:  # ties: 1 + 2^-24 is half way between two values of f32
            x = rng.choice([1, 2.0**-12, -(2.0**-12), 2.0**-6], shape)
    with num.quiet():
        x = num.round_to(element, x.astype(np.float32))
    return np.where(np.isfinite(x), x, np.float32(0)).astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "wide", "cancelling", "least", "bits", "ties"])
@pytest.mark.parametrize("element", FORMATS)
def test_exact_sums_rounded_once(element, kind):
    rng = np.random.default_rng(len(kind))
    for m, k, n in [(1, 1, 1), (1, 64, 5), (1, 64, 20), (12, 64, 9), (3, 2, 40), (20, 3, 2), (9, 17, 6)]:
        a, b = draw(rng, kind, element, (m, k)), draw(rng, kind, element, (k, n))
        want = exact(a, b)
        same(matmul_block(a, b), want)
        same(matmul_block(a, b, (element, element)), want)


@pytest.mark.parametrize("kind", ["normal", "wide", "cancelling", "bits"])
def test_a_known_bound_decides_on_nothing(kind):
    rng = np.random.default_rng(5)
    for element in ("f16", "bf16", "f32"):
        elements = element, element
        for m, n in [(1, 20), (2, 16), (12, 9)]:
            a, b = draw(rng, kind, element, (m, 64)), draw(rng, kind, element, (64, n))
            want = exact(a, b)
            for bound in (None, largest_norm(b, -2), 3 * largest_norm(b, -2), np.inf, np.nan):
                with num.quiet():
                    same(Block(a, b, elements).sums(bound) + np.float32(0), want)


def test_a_row_of_coarse_values_beside_fine_columns():
    """What lies between two large products that cancel tells whether f64 holds a sum."""
    elements = "f16", "f16"
    for large, low in [(7, -24), (28, -24), *((60000, k) for k in range(-24, 10))]:
        a, b = np.zeros((1, 64), np.float32), np.zeros((64, 16), np.float32)
        a[0, [0, 20, 63]] = [large, 2.0**low, large]
        b[[0, 20, 63]] = np.array([large, 2.0**-24, -large])[:, None]
        same(Block(a, b, elements).sums(2 * large), exact(a, b))
        a[0, 0] = np.inf
        with num.quiet():
            assert np.isinf(Block(a, b, elements).sums(2 * large)).all()


def test_an_infinity_does_not_hide_the_other_row():
    elements = "f16", "f16"
    a, b = np.zeros((2, 64), np.float32), np.zeros((64, 16), np.float32)
    a[1, [0, 20, 63]], b[[0, 20, 63]] = [60000, 1, 60000], np.array([60000, 2.0**-24, -60000])[:, None]
    want = exact(a[1:], b)
    a[0, 3] = np.inf
    with num.quiet():
        same(Block(a, b, elements).sums(1e5)[1:], want)


@pytest.mark.parametrize("elements", [("f16", "bf16"), ("f8E4M3FN", "f16"), ("f32", "f16")])
def test_operands_of_different_formats(elements):
    rng = np.random.default_rng(1)
    a, b = draw(rng, "wide", elements[0], (10, 64)), draw(rng, "wide", elements[1], (64, 10))
    same(matmul_block(a, b, elements), exact(a, b))


@pytest.mark.parametrize(
    ("a", "b", "sum"),
    [
        ([65504, 2.0**-12, -65504], [65504, 2.0**-12, 65504], 2.0**-24),
        ([2.0**60, 1, -(2.0**60)], [1, 1, 1], 1.0),
        ([1, 2.0**-24], [1, 1], 1.0),  # ties go to the even one
        ([1, 2.0**-24, 2.0**-60], [1, 1, 1], 1 + 2.0**-23),  # not a tie: f64 would make it one
        ([1, 2.0**-24, -(2.0**-60)], [1, 1, 1], 1.0),
        ([1 + 2.0**-23, 2.0**-24, -(2.0**-100)], [1, 1, 1], 1 + 2.0**-23),
        ([2.0**64, 2.0**64], [2.0**63, 2.0**63], np.inf),
        ([2.0**127, 2.0**103], [1, 1 - 2.0**-24], 2.0**127),
        ([2.0**127, 2.0**127, -(2.0**103)], [1, 1, 1], np.inf),
        ([2.0**127, 2.0**127, -(2.0**103), -(2.0**-60)], [1, 1, 1, 1], 2.0**128 - 2.0**104),
        ([2.0**127, 2.0**127, -(2.0**127)], [2, 2, 2], np.inf),
        ([2.0**-75, 2.0**-149], [2.0**-75, 2.0**-149], 2.0**-149),  # half of the least number, and a little
        ([2.0**-75, -(2.0**-149)], [2.0**-75, 2.0**-149], 0.0),
        ([-(2.0**-149)], [2.0**-149], 0.0),
        ([-0.0], [1], 0.0),
        ([1, -1], [1, 1], 0.0),
        ([np.inf, 1], [1, np.inf], np.inf),
        ([np.inf, 1], [1, -np.inf], np.nan),
        ([np.inf, 1], [0, 1], np.nan),
    ],
)
def test_corners(a, b, sum):
    want = np.float32(sum)
    for rows in (1, 20):
        for columns in (1, 70):
            left = np.tile(np.array(a, np.float32), (rows, 1))
            right = np.tile(np.array(b, np.float32)[:, None], (1, columns))
            got = matmul_block(left, right)
            if np.isnan(want):
                assert np.isnan(got).all()
            else:
                same(got, np.full((rows, columns), want))


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
def test_no_dependence_on_the_cut(element):
    rng = np.random.default_rng(2)
    a, b = draw(rng, "cancelling", element, (64, 64)), draw(rng, "cancelling", element, (64, 64))
    a[:7, 3:] = 0
    whole = matmul_block(a, b, (element, element))
    same(whole[::9, ::9], exact(a[::9], b[:, ::9]))
    for rows in (1, 5, 33):
        for columns in (1, 17, 64):
            for top in range(0, 64, 16):
                for left in (0, 20, 63):
                    part = matmul_block(a[top : top + rows], b[:, left : left + columns])
                    same(part, whole[top : top + rows, left : left + columns])
    stacked = matmul_block(a.reshape(16, 4, 64), b)
    same(stacked.reshape(64, 64), whole)
    same(matmul_block(b.T, a.T), whole.T.copy())


def test_infinities_do_not_touch_other_sums():
    rng = np.random.default_rng(3)
    a, b = draw(rng, "cancelling", "f16", (12, 64)), draw(rng, "cancelling", "f16", (64, 12))
    want = exact(a, b)
    a[3, 5], b[7, 2] = np.inf, np.nan
    got = matmul_block(a, b, ("f16", "f16"))
    held = np.ones((12, 12), bool)
    held[3], held[:, 2] = False, False
    same(got[held], want[held])
    assert not np.isfinite(got[~held]).any()


def test_blocks_are_added_in_sequence():
    rng = np.random.default_rng(4)
    for lead, m in (((), 5), ((), 200), ((3,), 2)):
        a, b = draw(rng, "wide", "f16", (*lead, m, 150)), draw(rng, "wide", "f16", (150, 20))
        acc = rng.standard_normal((*lead, m, 20)).astype(np.float32)
        got = matmul_machine(a, b, acc, elements=("f16", "f16"))
        for i in [0] if not lead else range(3):
            rows, want = (a[i], acc[i]) if lead else (a, acc)
            rows, want = rows[:6], want[:6]
            for k in range(0, 150, 64):
                want = want + exact(rows[:, k : k + 64], b[k : k + 64])
            same((got[i] if lead else got)[:6], want)


def test_minus_zero_does_not_survive_an_accumulation():
    zero = np.full((2, 2), -0.0, np.float32)
    same(matmul_machine(np.zeros((2, 70), np.float32), np.zeros((70, 2), np.float32), zero), np.zeros((2, 2), np.float32))
