"""Numerics: bit equality of the f16 conversions, order of the reductions, accuracy of erf."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ktir.arithmetic import numerics as num
from ktir.arithmetic.products import matmul_block, matmul_machine


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def bits(x):
    return np.ascontiguousarray(x).view({2: np.uint16, 4: np.uint32}[x.dtype.itemsize])


def same_bits(a, b):
    """Equal bits, any NaN equal to any NaN."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    nan = np.isnan(a)
    np.testing.assert_array_equal(nan, np.isnan(b))
    np.testing.assert_array_equal(np.where(nan, 0, bits(a)), np.where(nan, 0, bits(b)))


def oracle_round(x):
    with np.errstate(all="ignore"):
        return x.astype(np.float16).astype(np.float32)


ALL_F16 = np.arange(65536, dtype=np.uint16).view(np.float16)


def interesting_f32():
    grid = oracle_round(ALL_F16.astype(np.float32))
    finite = grid[np.isfinite(grid)]
    with np.errstate(over="ignore"):
        middle = (finite[:-1].astype(np.float64) + finite[1:].astype(np.float64)) / 2
    middle = middle.astype(np.float32)
    parts = [grid, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    rng = np.random.default_rng(0)
    parts.append(rng.integers(0, 2**32, 300_000, dtype=np.uint32).view(np.float32))
    parts.append((rng.standard_normal(200_000) * 2.0 ** rng.integers(-40, 18, 200_000)).astype(np.float32))
    parts.append(np.array([0.0, -0.0, 65519.99, 65520, -65520, 65504, 1e-45, -1e-45, 2.0**-25, 2.0**-24, 3e38], np.float32))
    return np.concatenate(parts)


def test_round_f16_equals_astype():
    x = interesting_f32()
    same_bits(num.round_f16(x), oracle_round(x))
    for chunk in np.array_split(x, 977):  # other chunk positions, mixtures with and without large values
        same_bits(num.round_f16(chunk), oracle_round(chunk))


def test_round_f16_in_place_and_layouts():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((7, 300, 65)).astype(np.float32) * 1e-4
    want = oracle_round(x)
    y = x.copy()
    assert num.round_f16(y, out=y) is y
    same_bits(y, want)
    same_bits(num.round_f16(x.transpose(2, 0, 1)), want.transpose(2, 0, 1))
    same_bits(num.round_f16(x[:, ::3, 5:]), want[:, ::3, 5:])
    same_bits(num.round_f16(np.broadcast_to(x[:1], x.shape)), np.broadcast_to(want[:1], x.shape))
    out = np.zeros((7, 300, 130), np.float32)[..., ::2]
    assert num.round_f16(x, out=out) is out
    same_bits(out, want)
    scalar = np.full((), 0.1, np.float32)
    same_bits(num.round_f16(scalar), oracle_round(scalar))
    assert num.round_f16(np.zeros((3, 0), np.float32)).shape == (3, 0)


@settings(max_examples=examples(100), deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=40), elements=st.floats(width=32)))
def test_round_f16_random(x):
    same_bits(num.round_f16(x), oracle_round(x))
    same_bits(num.f32_to_f16(x), oracle_round(x).astype(np.float16))


def test_f16_conversions():
    with np.errstate(invalid="ignore"):
        wide = ALL_F16.astype(np.float32)
    same_bits(num.f16_to_f32(ALL_F16), wide)
    for part in np.array_split(ALL_F16, 91):
        with np.errstate(invalid="ignore"):
            same_bits(num.f16_to_f32(part), part.astype(np.float32))
        same_bits(num.f32_to_f16(num.f16_to_f32(part), on_grid=True), part)
    x = interesting_f32()
    with np.errstate(all="ignore"):
        same_bits(num.f32_to_f16(x), x.astype(np.float16))
    h = ALL_F16.reshape(16, 64, 64)[:, ::2].transpose(1, 0, 2)
    with np.errstate(invalid="ignore"):
        same_bits(num.f16_to_f32(h), h.astype(np.float32))
    same_bits(num.f32_to_f16(num.f16_to_f32(h)), h)
    with pytest.raises(TypeError, match="float16"):
        num.f16_to_f32(np.zeros(3, np.float32))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", sorted(num.UNARY))
def test_unary(name):
    function = {
        "neg": np.negative,
        "abs": np.abs,
        "rsqrt": lambda v: 1 / np.sqrt(v),
        "rec": lambda v: 1 / v,
        "erf": np.vectorize(math.erf),
        "mov": lambda v: v,
    }.get(name) or getattr(np, name)
    rng = np.random.default_rng(2)
    x = rng.standard_normal((13, 67)).astype(np.float32) * 3
    x[0, :7] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e38]
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64)).astype(np.float32)
    got = num.UNARY[name](x)
    np.testing.assert_allclose(got, want, rtol=6e-7, atol=1e-44)
    # The bits must not depend on position, strides or destination: executors cut arrays differently.
    same_bits(num.UNARY[name](x[:, 3:40]), got[:, 3:40])
    same_bits(num.UNARY[name](x[::2, ::3]), got[::2, ::3])
    same_bits(num.UNARY[name](x.T), got.T)
    out = np.empty_like(x)
    assert num.UNARY[name](x, out=out) is out
    same_bits(out, got)
    y = x.copy()
    num.UNARY[name](y, out=y)
    same_bits(y, got)


@pytest.mark.parametrize("name", sorted(num.BINARY))
def test_binary(name):
    rng = np.random.default_rng(3)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5, 3e38], np.float32)
    a = np.concatenate([np.repeat(special, 8), rng.standard_normal(500).astype(np.float32)])
    b = np.concatenate([np.tile(special, 8), rng.standard_normal(500).astype(np.float32)])
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}.get(name)
    if function is None:
        got = num.BINARY[name](a, b)
        pick = np.where((a > b) == (name == "max"), a, b)
        zero = (a == 0) & (b == 0)
        sign = (np.signbit(a) & np.signbit(b)) if name == "max" else (np.signbit(a) | np.signbit(b))
        want = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), np.where(zero, np.where(sign, -0.0, 0.0), pick))
        same_bits(got, want.astype(np.float32))
    else:
        with np.errstate(all="ignore"):
            same_bits(num.BINARY[name](a, b), function(a, b))
    got = num.BINARY[name](a[:, None], b)
    assert got.shape == (a.size, b.size)
    same_bits(num.BINARY[name](a[5:6], b), got[5])
    assert float(num.BINARY[name](np.float32(3), np.float32(2))) == {"add": 5, "sub": 1, "mul": 6, "div": 1.5, "max": 3, "min": 2}[name]


def loop_sum(x, axis):
    x = np.moveaxis(x, axis, 0)
    acc = x[0].copy()
    for row in x[1:]:
        acc = (acc + row).astype(np.float32)
    return acc


def tree(x):
    while x.shape[-1] > 1:
        h = x.shape[-1] // 2
        x = x[..., :h] + x[..., h:]
    return x[..., 0]


@pytest.mark.parametrize("shape", [(1,), (2,), (1000,), (300, 1), (1, 300), (300, 2), (2, 300), (40, 1, 1, 30), (5, 700, 3), (3, 129, 64)])
def test_sum_in_order(shape):
    rng = np.random.default_rng(4)
    base = (rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape)).astype(np.float32)
    for axis in range(len(shape)):
        want = loop_sum(base, axis)
        same_bits(num.sum_in_order(base, axis), want)
        same_bits(num.sum_in_order(base, axis - len(shape)), want)
        for order in (tuple(range(len(shape)))[::-1], tuple(np.roll(range(len(shape)), 1))):
            stored = np.ascontiguousarray(base.transpose(order)).transpose(np.argsort(order))
            same_bits(num.sum_in_order(stored, axis), want)
        doubled = np.repeat(base, 2, axis=-1)[..., ::2]
        same_bits(num.sum_in_order(doubled, axis), want)
        out = np.empty_like(want)
        num.sum_in_order(base, axis, out=out)
        same_bits(out, want)
    wide = np.broadcast_to(base[..., None], (*shape, 5))
    same_bits(num.sum_in_order(wide, 0), loop_sum(wide, 0))
    assert num.sum_in_order(np.zeros((3, 0, 2), np.float32), 1).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("kind", ["add", "max", "min"])
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 128, 130, 1000])
def test_reduce_machine_is_sticks_then_tree(kind, n):
    rng = np.random.default_rng(n)
    x = (rng.standard_normal((7, n)) * 10.0 ** rng.integers(-3, 3, (7, n))).astype(np.float32)
    x[1, 0] = np.nan
    x[2] = -0.0
    sticks = -(-n // 64)
    padded = np.full((7, sticks * 64), num.IDENTITY[kind], np.float32)
    padded[:, :n] = x
    physical = np.ascontiguousarray(padded.reshape(7, sticks, 64).transpose(1, 0, 2))  # [sticks, rows, lanes]
    got = num.reduce_machine(kind, x)
    via = num.lane_tree(kind, num.reduce_sticks(kind, physical, 0))[..., 0]
    same_bits(got, via)
    if kind == "add":
        with np.errstate(all="ignore"):
            same_bits(got, tree(loop_sum(physical, 0)))
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, getattr(np, kind)(x, axis=-1))
    same_bits(num.reduce_machine(kind, np.asfortranarray(x)), got)
    assert num.reduce_machine(kind, x[:, :0]).tolist() == [num.IDENTITY[kind]] * 7


def test_extreme_sign_of_zero():
    x = np.array([[-0.0, 0.0, -1.0], [-0.0, -0.0, -2.0]], np.float32)
    same_bits(num.reduce_machine("max", x), np.array([0.0, -0.0], np.float32))
    same_bits(num.reduce_machine("min", -x), np.array([-0.0, 0.0], np.float32))


def test_lane_tree_refuses_odd_lanes():
    with pytest.raises(ValueError, match="power of two"):
        num.lane_tree("add", np.zeros((2, 48), np.float32))


def oracle_matmul(a, b, acc):
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], acc.shape[:-2])
    acc = np.broadcast_to(acc, (*lead, *acc.shape[-2:])).copy()
    for start in range(0, a.shape[-1], 64):
        block = a[..., start : start + 64].astype(np.float64) @ b[..., start : start + 64, :].astype(np.float64)
        acc = acc + block.astype(np.float32)
    return acc


@pytest.mark.parametrize(
    ("lead_a", "lead_b", "m", "k", "n"),
    [
        ((), (), 1, 1, 1),
        ((), (), 5, 200, 7),
        ((), (), 1, 2000, 1),
        ((), (), 700, 130, 600),
        ((4,), (), 9, 192, 64),
        ((4,), (1,), 9, 65, 64),
        ((1, 3), (2, 1), 6, 128, 10),
        ((), (3,), 300, 130, 400),
        ((), (), 256, 330, 256),
        ((4, 3), (1, 3), 6, 150, 10),
        ((4, 3, 2), (1, 3, 1), 300, 330, 100),
    ],
)
def test_matmul_machine(lead_a, lead_b, m, k, n):
    rng = np.random.default_rng(m + k + n)
    a = num.round_f16(rng.standard_normal((*lead_a, m, k)).astype(np.float32))
    b = num.round_f16(rng.standard_normal((*lead_b, k, n)).astype(np.float32))
    both = np.broadcast_shapes(lead_a, lead_b)
    for lead in ((), both, (2, *both)):  # with an axis along which neither operand changes
        acc = rng.standard_normal((*lead, m, n)).astype(np.float32)
        kept = acc.copy()
        same_bits(matmul_machine(a, b, acc), oracle_matmul(a, b, acc))
        same_bits(acc, kept)
    block = matmul_block(a[..., :64], b[..., :64, :])
    same_bits(block, (a[..., :64].astype(np.float64) @ b[..., :64, :].astype(np.float64)).astype(np.float32))


def test_matmul_machine_k_mismatch():
    with pytest.raises(ValueError, match="same K"):
        matmul_machine(np.zeros((2, 3), np.float32), np.zeros((4, 2), np.float32), np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("kind", sorted(num.BITS))
def test_every_code_of_a_format_survives(kind):
    codes = np.arange(1 << (8 * np.dtype(num.BITS[kind]).itemsize)).astype(num.BITS[kind])
    values = num.decode(kind, codes)
    np.testing.assert_array_equal(num.encode(kind, values), codes)
    np.testing.assert_array_equal(bits(num.round_to(kind, values)), bits(values))


@pytest.mark.parametrize("kind", sorted(num.BITS))
def test_a_nan_keeps_the_first_bits_of_its_fraction(kind):
    """Where the format has them and one is set; else it is quiet, and its sign stays."""
    kept = np.arange(2048, dtype=np.uint32) << 21 & 0x7FFFFF | np.arange(2048, dtype=np.uint32) >> 2 << 12
    x = (np.concatenate([kept, kept | 0x80000000, [0x1, 0x80000001]]) | 0x7F800000).astype(np.uint32)
    x = x[x & 0x7FFFFF != 0]
    fraction = {"f16": 10, "bf16": 7, "f8E5M2": 2}.get(kind, 0)
    first = x & 0x7FFFFF & ~np.uint32((1 << 23 - fraction) - 1)
    want = x & 0xFF800000 | np.where(first, first, 0x400000)
    np.testing.assert_array_equal(bits(num.round_to(kind, x.view(np.float32))), want)
    np.testing.assert_array_equal(bits(num.decode(kind, num.encode(kind, x.view(np.float32)))), want)


@pytest.mark.parametrize("kind", sorted(num.BITS))
def test_rounding_takes_the_nearest_value(kind):
    codes = np.arange(1 << (8 * np.dtype(num.BITS[kind]).itemsize)).astype(num.BITS[kind])
    with num.quiet():
        grid = num.decode(kind, codes).astype(np.float64)
    grid = np.unique(grid[np.isfinite(grid)])
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(4000) * 2.0 ** rng.integers(-20, 8, 4000)).astype(np.float32)
    got = num.round_to(kind, x).astype(np.float64)
    at = np.clip(np.searchsorted(grid, x), 1, len(grid) - 1)
    distance = np.minimum(np.abs(grid[at] - x), np.abs(grid[at - 1] - x))
    np.testing.assert_array_equal(np.abs(got - x), distance)


def test_bfloat16_is_rounded_as_in_pytorch():
    """Every number of the format, every tie between two, and the numbers next to the ties; infinities, NaNs of all kinds."""
    bits = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16 | np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = bits.view(np.float32)
    expected = torch.from_numpy(x).bfloat16().float().numpy()
    same_bits(num.round_to("bf16", x), np.where(np.isnan(expected), np.float32(np.nan), expected))
    np.testing.assert_array_equal(num.encode("bf16", x)[~np.isnan(x)], expected.view(np.uint32)[~np.isnan(x)] >> 16)


def dl16_by_definition(x):
    """1 sign bit, 6 of exponent with bias 31, 9 of fraction; ties go up in magnitude; no subnormals: 0 up to 2^-31; NaN beyond the largest
    number. In f64, which holds all that it computes."""
    with num.quiet():
        fraction, exponent = np.frexp(np.abs(np.where(np.isfinite(x), x, 0).astype(np.float64)))
        value = np.ldexp(np.floor(np.ldexp(fraction, 10) + 0.5), exponent - 10)
        value = np.where(value <= 2.0**-31, 0.0, np.where(value > 2.0**32 * (1 + 510 / 512), np.nan, value))
        return np.where(np.isfinite(x), np.copysign(value, x), np.nan).astype(np.float32)


def test_dl16_by_its_definition():
    """All 65,536 codes, all ties between two numbers and the numbers next to these, two million others, and what lies around the ends."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    exponent, fraction = (codes >> 9 & 63).astype(np.int32), (codes & 511).astype(np.float64)
    value = np.ldexp(1 + fraction / 512, exponent - 31) * np.where(codes >> 15, -1.0, 1.0)
    value[codes & 0x7FFF == 0] *= 0
    value[codes & 0x7FFF == 0x7FFF] = np.nan
    same_bits(num.decode("dl16", codes), value.astype(np.float32))
    ties = np.ldexp(1 + (np.arange(512) + 0.5) / 512, np.arange(-33, 34)[:, None]).astype(np.float32).ravel()
    rng = np.random.default_rng(0)
    others = rng.integers(0, 1 << 32, 1 << 21, np.uint32).view(np.float32)
    ends = np.array([0.0, 2.0**-31, 2.0**-31 * (1 + 2.0**-9), 8573157376, 8577351680, np.inf, np.nan, 1e-45, 3e38], np.float32)
    near = np.concatenate([np.nextafter(ties, np.float32(0)), ties, np.nextafter(ties, np.float32(np.inf)), ends])
    x = np.concatenate([near, -near, others])
    same_bits(num.round_to("dl16", x), dl16_by_definition(x))
    held = ~np.isnan(value)
    np.testing.assert_array_equal(num.encode("dl16", num.decode("dl16", codes))[held], codes[held])


def test_fp8_overflow_saturates_or_is_infinite():
    x = np.array([449, 1e9, -np.inf, 61440], np.float32)
    assert num.round_to("f8E4M3FN", x).tolist() == [448, 448, -448, 448]
    assert num.round_to("f8E5M2", x).tolist() == [448, np.inf, -np.inf, np.inf]
