"""Integers as eager PyTorch has them, on both engines: every type, edge values, rows around a stick; small numbers stay on the chip.

One function computes many ops, so that a type costs one compile; PyTorch itself is the oracle, bit for bit.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

from ktir.diagnostics import OutOfRange
from ktir.runtime import metrics

Inputs = tuple[torch.Tensor, ...]
TYPES = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
WIDE = [torch.int32, torch.int64]


def compiled(f: Callable[..., object], engine: str, **options: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(f, backend="spyre", dynamic=False, options={"engine": engine, **options})


def same(f: Callable[..., object], engine: str, *inputs: torch.Tensor) -> metrics.Launches:
    """Hold a function against eager; the launches that this took."""
    want = f(*(x.clone() for x in inputs))
    with metrics.counted() as launches:
        got = compiled(f, engine)(*(x.clone() for x in inputs))
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    return launches()


def edges(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Limits, powers of two and their neighbours, small numbers; in any order."""
    limits = torch.iinfo(dtype)
    powers = (sign * ((1 << k) + d) for k in range(0, limits.bits, 3) for d in (-1, 0, 1) for sign in (1, -1))
    found = sorted({n for n in (*powers, limits.min, limits.max, 0, 5, -7, 100) if limits.min <= n <= limits.max})
    rng = torch.Generator().manual_seed(seed)
    return torch.tensor(found, dtype=dtype)[torch.randint(len(found), shape, generator=rng)]


def small(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Numbers as indices, counts and masks have them."""
    limits = torch.iinfo(dtype)
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(max(limits.min, -50), min(limits.max, 100), shape, generator=rng).to(dtype)


def ring(a: torch.Tensor, b: torch.Tensor) -> Inputs:
    return a + b, a - b, a * b, -a, ~a, a & b, a | b, a ^ b, a + 3, 5 - a, a * a


def order(a: torch.Tensor, b: torch.Tensor) -> Inputs:
    limits = torch.iinfo(a.dtype)
    most = torch.full((), limits.max, dtype=a.dtype)
    return (
        a < b, a >= b, a == b, (a + b) > a, (a * b) == b, a >= 100, a == limits.max, torch.maximum(a, b), torch.minimum(a, b),
        a.clamp(3, 100), torch.where(a > b, a, b), a.masked_fill(a > 3, 7), torch.abs(a) > 0, torch.sign(a), torch.minimum(a, most) == a,
    )  # fmt: skip


def quotients(a: torch.Tensor, b: torch.Tensor) -> Inputs:
    """Of divisors that are never 0, and never -1, by which the least number has no quotient."""
    b = torch.where((b == 0) | (b == -1), 3, b)
    return a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), a // 7, a % 7, (a // b).sum(-1, dtype=a.dtype) > 0


def shifts(a: torch.Tensor, b: torch.Tensor) -> Inputs:
    return a << 3, a >> 3, (a << 1) > a, a << (b & 3), a >> (b & 3), (a + b) >> 1


def sums(a: torch.Tensor, b: torch.Tensor) -> Inputs:
    return a.sum(-1), a.sum(0), a.cumsum(-1), a.amax(-1), a.amin(-1), a.argmax(-1), a.max(-1).indices, (a > b).sum(-1), a.any(-1)


def conversions(a: torch.Tensor, b: torch.Tensor) -> Inputs:
    types = (torch.float32, torch.float16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)
    return (*(a.to(t) for t in types), a / 3, a * 0.5, a.float() + b)


GROUPS = [ring, order, quotients, shifts, sums, conversions]


@pytest.mark.parametrize(("f", "dtype"), [(quotients, torch.int32), (order, torch.uint8), (ring, torch.int64)])
def test_edge_values_on_the_default_engine(f: Callable[..., Inputs], dtype: torch.dtype) -> None:
    same(f, "spyre", edges(dtype, (3, 65)), edges(dtype, (3, 65), 1))


@pytest.mark.long
@pytest.mark.parametrize("engine", ["spyre", "ktir"])
@pytest.mark.parametrize("shape", [(5,), (3, 65), (2, 64), (2, 3, 130)])
@pytest.mark.parametrize(("f", "dtype"), itertools.product(GROUPS, TYPES))
def test_edge_values(f: Callable[..., Inputs], dtype: torch.dtype, shape: tuple[int, ...], engine: str) -> None:
    same(f, engine, edges(dtype, shape), edges(dtype, shape, 1))


@pytest.mark.parametrize(("f", "dtype"), [(quotients, torch.int64), (quotients, torch.uint8), (sums, torch.int32), (sums, torch.uint8)])
def test_small_numbers_stay_on_the_chip(f: Callable[..., Inputs], dtype: torch.dtype) -> None:
    launches = same(f, "spyre", small(dtype, (3, 65)), small(dtype, (3, 65), 1))
    assert launches.chip
    assert not launches.executor


@pytest.mark.long
@pytest.mark.parametrize("shape", [(1, 5), (3, 64), (9, 70), (2, 3, 130)])
@pytest.mark.parametrize(("f", "dtype"), itertools.product([ring, order, quotients, shifts, sums], TYPES))
def test_small_numbers_of_all_types_stay_on_the_chip(f: Callable[..., Inputs], dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    assert not same(f, "spyre", small(dtype, shape), small(dtype, shape, 1)).executor


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_sums_in_narrow_types_wrap_around(dtype: torch.dtype, on_chip: None) -> None:
    same(lambda a: (a.sum(-1, dtype=a.dtype), a.sum(0, dtype=a.dtype), a.sum(dtype=a.dtype)), "spyre", edges(dtype, (300, 70)))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_extremes_in_narrow_types_of_numbers_on_one_side_of_zero(dtype: torch.dtype, on_chip: None) -> None:
    """No number is beyond what a least or a largest one begins from."""

    def of(a: torch.Tensor) -> Inputs:
        return a.amin(-1), a.argmin(-1), (-a).amax(0), (-a).argmax(-1), *a.min(0), (-a).sort(-1).values

    same(of, "spyre", torch.arange(3, 24).reshape(3, 7).to(dtype))


def test_what_is_chosen_for_not_being_a_number_is_no_nan(on_chip: None) -> None:
    x = torch.tensor([1.0, float("nan"), -3.0, 0.3] * 20)
    same(lambda x: (torch.where(torch.isnan(x), 0, x).tanh() * 50).long(), "spyre", x)


BEYOND = {
    "square": (lambda x: x * x, torch.full((3, 5), 2**20)),
    "sum": (lambda x: x.sum(-1), torch.full((3, 5), 2**30, dtype=torch.int32)),
    "shift": (lambda x: x << 8, torch.full((3, 5), 2**30)),
    "float": (lambda x: (x * 1e6).long(), torch.full((3, 5), 2.0**20)),
    "one": (lambda x: x + 1, torch.tensor([1, 2**40, 3])),
    "largest": (lambda x: torch.where(x > 5, x, torch.iinfo(torch.int64).max), torch.arange(9)),
    "least": (lambda x: x.masked_fill(x > 5, torch.iinfo(torch.int64).min), torch.arange(9)),
}


@pytest.mark.parametrize("case", BEYOND)
def test_what_32_bits_do_not_hold_runs_on_the_executor(case: str) -> None:
    f, x = BEYOND[case]
    launches = same(f, "spyre", x)
    assert launches.executor == 1
    assert not launches.chip


def test_a_launch_out_of_range_says_so_and_writes_nothing() -> None:
    square = compiled(lambda x: x * x, "spyre", fallback="error")
    assert torch.equal(square(torch.arange(9)), torch.arange(9) ** 2)
    with pytest.raises(OutOfRange, match="expects integers of -32768 to 32767, but has 1048576"):
        square(torch.full((9,), 2**20))
    whole = compiled(lambda x: x.to(torch.int64), "spyre", fallback="error")
    with pytest.raises(OutOfRange, match=r"but has nan \(beyond, 32 bits do not hold the integers that it makes of them\)"):
        whole(torch.tensor([1.0, float("nan")]))


def test_low_bits_need_no_range(on_chip: None) -> None:
    x = torch.arange(-5, 5) * 2**40 + 3
    same(lambda x: (x * 2654435761 + (x << 7)) & 0xFFFF, "spyre", x)


def test_an_input_that_is_written_in_parts_keeps_its_numbers() -> None:
    def write(b: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        b[i] = torch.arange(i.shape[0])
        return b

    places = torch.arange(7) * 3
    for numbers in (torch.arange(100), torch.arange(100) * 2**40):
        assert same(write, "spyre", numbers, places).chip
    assert same(lambda b, i: (write(b, i), b + 1), "spyre", torch.arange(100) * 2**40, places).executor


@pytest.fixture
def full_of_large_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory as generated code gets it holds what another one has left there."""
    guards: Any = importlib.import_module("torch._C._dynamo.guards")
    make = guards._empty_strided_cpu

    def filled(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        found = make(size, stride, dtype)
        return found if dtype.is_floating_point or dtype == torch.bool else found.fill_(torch.iinfo(dtype).max - 5)

    monkeypatch.setattr(guards, "_empty_strided_cpu", filled)


def _inverse(p: torch.Tensor) -> torch.Tensor:
    inverse = torch.empty_like(p)
    inverse[p] = torch.arange(p.shape[0])
    return inverse


@pytest.mark.parametrize(
    "routing",
    [
        _inverse,
        lambda p: (_inverse(p), p[_inverse(p)] * 2),
        lambda p: p[_inverse(p)],
        lambda p: (inverse := torch.empty_like(p), inverse[3:].copy_(p[3:]), inverse[:3].fill_(4), inverse + 1)[-1],
    ],
    ids=["given back", "read and given back", "read", "in two parts"],
)
def test_memory_that_held_large_numbers_before_does_not_matter(
    routing: Callable[[torch.Tensor], object], on_chip: None, full_of_large_numbers: None
) -> None:
    """Whether the program that fills it reads it again or not."""
    same(routing, "spyre", torch.randperm(70))


def test_memory_that_came_into_being_before_an_operator_of_pytorch_is_as_new(full_of_large_numbers: None) -> None:
    def routing(x: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inverse = torch.empty_like(p)
        q = torch.linalg.inv(x)  # ends a program
        inverse[p] = torch.arange(p.shape[0])
        return x[inverse] * 2, q

    launches = same(routing, "spyre", torch.eye(9), torch.randperm(9))
    assert launches.chip
    assert not launches.executor


def test_a_division_by_zero_is_an_error_of_the_kind_of_pytorch() -> None:
    a, b = torch.ones(3, 70, dtype=torch.int32), torch.ones(3, 70, dtype=torch.int32)
    b[1, 69] = 0
    for engine in ("spyre", "ktir"):
        with pytest.raises(RuntimeError, match=r"test_integers.py:\d+:1: error: ZeroDivisionError"):
            compiled(lambda a, b: a // b, engine)(a, b)


@pytest.mark.parametrize("divisor", [lambda b, m: b, lambda b, m: torch.where(m, 5, b), lambda b, m: torch.where(m, b, 5)])
def test_rows_that_a_core_does_not_have_divide_nothing(divisor: Callable[..., torch.Tensor], on_chip: None) -> None:
    """4 rows for 32 cores of two corelets each; what the other corelet chooses for a divisor may be a pad."""
    a, b, m = torch.arange(132, dtype=torch.uint8).reshape(4, 33), torch.full((4, 33), 3, dtype=torch.uint8), torch.arange(33) % 2 == 0
    same(lambda a, b, m: torch.div(a.masked_fill(m, 0), divisor(b, m), rounding_mode="trunc"), "spyre", a, b, m)


@pytest.mark.parametrize("engine", ["spyre", "ktir"])
@pytest.mark.parametrize("divide", [torch.remainder, torch.fmod, torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="trunc")])
def test_what_is_padded_divides_nothing_there(divide: Callable[..., torch.Tensor], engine: str) -> None:
    a, b = torch.arange(17) - 8, torch.arange(17) + 3
    launches = same(lambda a, b: torch.nn.functional.pad(divide(a, b), (2, 5)), engine, a, b)
    assert not launches.torch


def test_a_zero_that_a_select_chooses_divides() -> None:
    f = compiled(lambda a, b, m: a // torch.where(m, b, 5), "spyre")
    a, b, m = torch.ones(4, 33, dtype=torch.int32), torch.zeros(4, 33, dtype=torch.int32), torch.zeros(33, dtype=torch.bool)
    assert torch.equal(f(a, b, m), a // 5)
    m[7] = True
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        f(a, b, m)


@pytest.mark.parametrize(("engine", "dtype"), [("spyre", torch.int32), ("ktir", torch.int32), ("ktir", torch.int64)])
def test_the_least_number_divided_by_minus_one_wraps_around(engine: str, dtype: torch.dtype) -> None:
    """PyTorch's own kernel for quotients that are cut off ends the process there."""
    least = torch.iinfo(dtype).min
    a, b = torch.tensor([least, least, 5, -7, least], dtype=dtype), torch.tensor([-1, 1, -1, -1, 3], dtype=dtype)
    launches = same(lambda a, b: (a // b, a // -1, a % b, a % -1, torch.fmod(a, b)), engine, a, b)
    assert not launches.torch
    assert launches.executor == (engine == "ktir")


def compares_with_more(x: torch.Tensor) -> Inputs:
    limits = torch.iinfo(x.dtype)
    most = torch.full((), limits.max, dtype=x.dtype)
    return x == limits.max, x < 2**40, x >= limits.min, torch.minimum(x, most) + 1, (torch.maximum(x, -most) > 3) & (x != 2**33)


def test_what_no_number_of_32_bits_reaches_needs_no_more_of_them() -> None:
    """Numbers that reach it run on the executor."""
    limits = torch.iinfo(torch.int64)
    for numbers, chip in ((torch.arange(-70, 60), 1), (torch.tensor([5, 2**33, 2**40, limits.min, limits.max - 1]), 0)):
        launches = same(compares_with_more, "spyre", numbers)
        assert (launches.chip, launches.executor, launches.torch) == (chip, 1 - chip, 0)


KNOWN = {
    "alone": lambda x: (x == 2**40 + 5, x >= 2**31),
    "of a part": lambda x: (torch.cat([x[:3] < 2**40, x[3:] + 1 > 3]),),
    "of two": lambda x: (x - 2**40 < x.flip(0), torch.minimum(x, x.flip(0) + 2**40), torch.maximum(x, x - 2**40)),
    "of a float": lambda x: (x.float().to(torch.int64) < 2**40,),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_known_of_numbers_that_a_launch_has_seen(name: str) -> None:
    """A comparison whose result no longer depends on its operands, for all of which the launch has to know that they are in range."""
    x = torch.arange(-60, 70)
    assert same(KNOWN[name], "spyre", x).chip == 1
    x[:2] = torch.tensor([2**40 + 5, -(2**41)])
    assert same(KNOWN[name], "spyre", x).executor == 1


def test_conversions_of_large_integers_round_as_eager_does() -> None:
    x = torch.tensor([2**24 + 1, 2**24 + 2**16 + 1, 2**25 + 3, -(2**24) - 1, 2**31 - 1, 65519, 65520, 2049, 2051, 4098, 4099])
    for dtype, engine in itertools.product(WIDE, ("spyre", "ktir")):
        same(lambda x: (x.float(), x.half(), x.bfloat16(), x / 3, x * 1.5), engine, x.to(dtype))


def test_conversions_of_floats_beyond_the_integers_are_those_of_eager() -> None:
    numbers = [
        0.0,
        -1.5,
        2.5,
        255.5,
        300.0,
        -300.0,
        65504.0,
        3e9,
        -3e9,
        2.0**31,
        -(2.0**31),
        1e30,
        float("inf"),
        -float("inf"),
        float("nan"),
    ]
    x = torch.tensor(numbers * 5)
    for engine in ("spyre", "ktir"):
        same(lambda x: tuple(x.to(t) for t in TYPES if t != torch.int64), engine, x)
        same(lambda x: tuple(x.to(t) for t in TYPES if t != torch.int64), engine, x.half())
    same(lambda x: x.long(), "spyre", x)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("shape", [(256,), (4, 64)])
def test_bytes_that_are_no_numbers_are_seen_as_such(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Floats of one byte lie as codes, of which a launch must find those of infinity and NaN."""
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).reshape(shape)
    finite = torch.where(codes.float().isfinite(), codes.float(), 0).to(dtype)
    for device in ("cpu", "spyre"):
        assert same(lambda x: x.long(), "spyre", finite.to(device)).chip == 1
        assert same(lambda x: x.long(), "spyre", codes.to(device)).executor == 1


def test_one_number_is_read_as_int8_and_as_uint8(on_chip: None) -> None:
    x = torch.tensor([-5.0, -300, 300, 5, -0.5, 200])
    same(lambda x: torch.atan2(x.to(torch.int8), x.to(torch.uint8)) * 0 + torch.maximum(x.to(torch.int8), x.to(torch.uint8)), "spyre", x)
    same(lambda x: torch.maximum(x.short().to(torch.int8).float(), x.short().to(torch.uint8).float()), "spyre", x)


def test_a_range_that_a_program_cannot_have_is_refused() -> None:
    from ktir.package import LaunchSpec, PackageError

    layout = {"size": [64], "device_size": [1, 64], "stride_map": [64, 1], "device_dtype": "IEEE_INT32", "element_arrangement": "STANDARD"}
    host = {"arg": 0, "offset": 0, "size": [64], "strides": [1]}
    argument = {"arg_index": 0, "name": "x", "role": "input", "shape": [64], "dtype": "int32", "layout": {**layout, "pad": "zero"}}
    for range_, message in (
        ({"low": 1, "high": 0, "bits": 64}, "in order"),
        ({"low": 0, "high": 300, "bits": 8}, "within the type"),
        ({"low": 0, "high": 3, "bits": 7}, "one of 8, 16, 32, 64"),
        ({"low": 0, "high": 2**70, "bits": 64}, "integer of 64 bits"),
        ({"low": 0, "high": 3, "bits": 32, "spare": 5}, "stands for integers of 64"),
    ):
        listed = {"version": 1, "kernel_name": "f", "pool_size": 0, "args": [{**argument, "host": host, "range": range_}]}
        with pytest.raises(PackageError, match=message):
            LaunchSpec.from_json(listed)


def test_the_intervals_hold_what_numpy_computes() -> None:
    """Every op of two integers on random intervals, at all of their corners and inside."""
    from ktir.arithmetic import integers
    from ktir.passes.flat.integers.intervals import RING, SIGNED, Interval

    rng = np.random.default_rng(0)
    for name, function in {**RING, **SIGNED}.items():
        compute = integers.apply(name, "i64")
        for _ in range(200):
            (a, b), (c, d) = (sorted(int(n) for n in rng.integers(-40, 40, 2)) for _ in range(2))
            x, y = np.meshgrid(np.arange(a, b + 1), np.arange(c, d + 1))
            if "div" in name or "rem" in name:
                x, y = x[y != 0], y[y != 0]
            if name in ("arith.shli", "arith.shrsi"):
                x, y = x[y >= 0], y[y >= 0]
            found, values = function(Interval(a, b), Interval(c, d)), compute(x, y)
            assert not values.size or found.low <= values.min() <= values.max() <= found.high, (name, a, b, c, d, found)


def test_the_intervals_hold_products_of_many() -> None:
    from ktir.passes.flat.integers.intervals import Interval, repeated

    rng = np.random.default_rng(0)
    for low, high in [(-1, 1), (0, 1), (-3, 0), (-2, 5), (2, 3), (-4, -2), (0, 0)]:
        for trips in (1, 2, 3, 8, 64):
            drawn = [prod(int(n) for n in rng.integers(low, high + 1, trips)) for _ in range(200)]
            ends = [prod((low,) * k + (high,) * (trips - k)) for k in range(trips + 1)]
            found = repeated("arith.muli", Interval(-1, 2), Interval(low, high), trips)
            assert found is not None
            for product in (*drawn, *ends):
                assert all(found.low <= start * product <= found.high for start in (-1, 2)), (low, high, trips, product, found)


def test_bits_of_moved_bfloat16_are_kept() -> None:
    """All of them, signalling NaNs too."""
    bits = torch.arange(-(1 << 15), 1 << 15).short()
    torch._dynamo.reset()
    with torch.no_grad():
        moved = torch.compile(lambda x: (torch.cat([x, x]).view(torch.int16), x.flip(0).view(torch.int16)), backend="spyre", dynamic=False)
        joined, turned = moved(bits.view(torch.bfloat16))
    assert torch.equal(joined, torch.cat([bits, bits]))
    assert torch.equal(turned, bits.flip(0))


def test_long_chains_of_what_a_row_has_once() -> None:
    """Values of a row that only others of the row read give their registers back: eighteen of them, sixteen registers."""

    def f(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        for k in range(9):
            a = torch.where(a % (k + 4) < 2, a * 3 - k, a + k)
        return x + a[:, None]

    launches = same(f, "spyre", small(torch.int32, (64, 256)), small(torch.int32, (64,)))
    assert launches == metrics.Launches(chip=launches.chip)
    assert launches.chip
