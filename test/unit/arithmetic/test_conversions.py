"""Every conversion between number formats, on the executor, on the emulator and in transfers, against PyTorch, ml_dtypes and definitions.

Sources of 8 and 16 bits are gone through whole. Of 32 bits: each number of the target, each middle between two, their neighbours, and
others at random: some hundred thousand, and with `-m long` ten million.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from ktir import config
from ktir.arithmetic.floats import decode, encode, round_to
from ktir.layout import Layout
from ktir.runtime import metrics
from ktir.runtime.memory.transfer import OWN, from_device, to_device

F32, F16, BF16, E4M3, E5M2 = torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
I8, U8, I32 = torch.int8, torch.uint8, torch.int32
TYPES = (F32, F16, BF16, E4M3, E5M2, I8, U8, torch.int16, I32)
NAMES = {F16: "f16", BF16: "bf16", E4M3: "f8E4M3FN", E5M2: "f8E5M2"}
FEW, MANY, PIECE = 1 << 17, 10_000_000, 1 << 20


def number(dtype: torch.dtype) -> torch.dtype:
    return {1: U8, 2: torch.int16, 4: I32}[dtype.itemsize]


def codes(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of 8 or 16 bits."""
    low = -(1 << 15) if dtype.itemsize == 2 else 0
    return torch.arange(low, low + (1 << 8 * dtype.itemsize)).to(number(dtype)).view(dtype)


@functools.cache
def around(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of float32 around what a narrower type holds and around the middles, its ends and beyond."""
    held = codes(dtype).double()
    held = held[held.isfinite()].sort()[0].unique()
    middles = ((held[1:] + held[:-1]) / 2).float()
    span = float(held[-1] - held[-2])
    ends = torch.tensor([float(held[-1]) + span / 2, float(held[-1]) + span, 2.0**31, 2.0**32, 2.0**63, 3e38, torch.inf])
    points = torch.cat([held.float(), middles, ends, -ends, torch.tensor([0.0, -0.0, 1e-45, torch.nan])])
    return torch.cat([points, torch.nextafter(points, torch.tensor(torch.inf)), torch.nextafter(points, torch.tensor(-torch.inf))])


def source(dtype: torch.dtype, others: int, seed: int) -> torch.Tensor:
    if dtype.itemsize < 4:
        return codes(dtype)
    bits = torch.randint(-(2**31), 2**31, (others,), generator=torch.Generator().manual_seed(seed), dtype=torch.int64).to(I32)
    if dtype == I32:
        powers = torch.tensor([sign << k for k in range(31) for sign in (1, -1)], dtype=torch.int64)
        near = (powers[:, None] + torch.tensor([-3, -2, -1, 0, 1, 2, 3])).reshape(-1).clamp(-(2**31), 2**31 - 1).to(I32)
        small = torch.arange(-(1 << 16), 1 << 16, dtype=I32)  # all that 16 bits hold, and ties of bfloat16 and float16
        return torch.cat([near, small, small * 257, small * 2048 + 1, bits])
    return torch.cat([*(around(d) for d in NAMES), *(around(d) for d in (I8, U8, torch.int16)), bits.view(F32)])


def wanted(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """PyTorch's conversion. Of floats that an integer does not hold, which PyTorch leaves open, what its kernels for this host make: the
    least number of 32 bits, of which the low ones are taken."""
    if not x.dtype.is_floating_point or dtype.is_floating_point:
        return x.to(dtype)
    value = x.double()
    held = value.isfinite() & (value > -(2.0**31) - 1) & (value < 2.0**31)
    return torch.where(held, value.where(held, 0).to(torch.int64), -(2**31)).to(dtype)


def same(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Bits, but that any NaN is as good as another."""
    kind = number(want.dtype)
    equal = got.view(kind) == want.view(kind)
    return equal | (got.float().isnan() & want.float().isnan()) if want.dtype.is_floating_point else equal


@functools.cache
def converted(engine: str, dtype: torch.dtype) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    others = tuple(d for d in TYPES if d != dtype)
    options: dict[str, Any] = {"engine": engine, "fallback": "error"} if engine == "spyre" else {"engine": engine}
    return torch.compile(lambda x: tuple(x.to(d) for d in others), backend="ktir", dynamic=False, options=options)


def check(engine: str, dtype: torch.dtype, x: torch.Tensor) -> None:
    with torch.no_grad(), metrics.counted() as launches:
        found = converted(engine, dtype)(x)
    assert launches().torch == 0
    assert launches().chip == (engine == "spyre")
    for got in found:
        want = wanted(x, got.dtype)
        wrong = ~same(got, want)
        first = int(wrong.nonzero()[0]) if wrong.any() else 0
        assert not wrong.any(), f"{int(wrong.sum())} of {dtype} to {got.dtype}: {x[first]} gives {got[first]}, not {want[first]}"


@pytest.mark.parametrize("engine", ["ktir", "spyre"])
@pytest.mark.parametrize("dtype", TYPES)
def test_programs(engine: str, dtype: torch.dtype) -> None:
    check(engine, dtype, source(dtype, FEW, 0))


@pytest.mark.long
@pytest.mark.parametrize("engine", ["ktir", "spyre"])
@pytest.mark.parametrize("dtype", [F32, I32])
def test_programs_on_ten_million(engine: str, dtype: torch.dtype) -> None:
    for seed in range(-(-MANY // PIECE)):
        bits = torch.randint(-(2**31), 2**31, (PIECE,), generator=torch.Generator().manual_seed(seed), dtype=torch.int64).to(I32)
        check(engine, dtype, bits.view(dtype))


# Transfers: what the host packs for a program, and takes from it


def transferred(x: torch.Tensor, held: str) -> np.ndarray:
    """What is in the sticks of a layout of that type."""
    given = x.view(number(x.dtype)).numpy().view(HOST[x.dtype]) if x.dtype in HOST else x.numpy()
    return to_device(given, Layout.linear(x.numel(), held)).reshape(-1)[: x.numel()]


HOST = {BF16: OWN["bfloat16"], E4M3: OWN["float8_e4m3fn"], E5M2: OWN["float8_e5m2"]}


def dl16_by_definition(x: np.ndarray) -> np.ndarray:
    """1 sign bit, 6 of exponent with bias 31, 9 of fraction; ties go up in magnitude; no subnormals: 0 up to 2^-31; NaN beyond the largest
    number. In f64, which holds all that it computes."""
    finite = np.isfinite(x)
    fraction, exponent = np.frexp(np.abs(np.where(finite, x, 0).astype(np.float64)))
    value = np.ldexp(np.floor(np.ldexp(fraction, 10) + 0.5), exponent - 10)
    value = np.where(value <= 2.0**-31, 0.0, np.where(value > 2.0**32 * (1 + 510 / 512), np.nan, value))
    return np.where(finite, np.copysign(value, np.where(finite, x, 1)), np.nan).astype(np.float32)


def around_dl16() -> torch.Tensor:
    ties = np.ldexp(1 + (np.arange(1024) / 2) / 512, np.arange(-33, 34)[:, None]).astype(np.float32).ravel()
    points = torch.from_numpy(np.concatenate([ties, -ties]))
    return torch.cat([points, torch.nextafter(points, torch.tensor(torch.inf)), torch.nextafter(points, torch.tensor(-torch.inf))])


def floats(dtype: torch.dtype, others: int, seed: int = 0) -> torch.Tensor:
    x = source(dtype, others, seed)
    return torch.cat([x, around_dl16()]) if dtype == F32 else x


def equal(got: np.ndarray, want: np.ndarray) -> None:
    """Bits of float32, but for those of a NaN."""
    wrong = (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))
    assert not wrong.any(), (int(wrong.sum()), got[wrong][:3], want[wrong][:3])


def check_transfers(x: torch.Tensor) -> None:
    """To the layouts that hold floats."""
    wide = x.float().numpy()
    with np.errstate(all="ignore"):
        equal(transferred(x, "f32"), wide)
        equal(transferred(x, "f16"), x.float().half().float().numpy())
        equal(transferred(x, "bf16"), wide.astype(ml_dtypes.bfloat16).astype(np.float32))
        equal(transferred(x, "dl16"), dl16_by_definition(wide))


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_transfers(dtype: torch.dtype) -> None:
    check_transfers(floats(dtype, FEW))


@pytest.mark.parametrize("dtype", [F16, BF16, E4M3, E5M2])
def test_transfers_to_the_host(dtype: torch.dtype) -> None:
    """Float32 of the device in tensors of fewer bits."""
    x = floats(F32, FEW)
    layout = Layout.linear(x.numel(), "f32")
    found = torch.empty(x.numel(), dtype=dtype)
    view = found.view(number(dtype)).numpy().view(HOST.get(dtype, np.dtype(np.float16)))
    from_device(layout.pack(x.numpy()), layout, view)
    wrong = ~same(found, x.to(dtype))
    assert not wrong.any(), (x[wrong][:3], found[wrong][:3])


@pytest.mark.parametrize("kind", ["bf16", "f16", "f8E4M3FN", "f8E5M2", "dl16"])
def test_arithmetic_against_ml_dtypes(kind: str) -> None:
    """The functions that all engines share. `ml_dtypes` makes NaN of what is too large for e4m3, where PyTorch takes the largest number."""
    x = floats(F32, FEW).numpy()
    with np.errstate(all="ignore"):
        if kind == "dl16":
            want = dl16_by_definition(x)
        else:
            if kind == "f8E4M3FN":
                x = x[~(np.abs(x) > 448)]
            theirs = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}
            want = x.astype(theirs[kind]).astype(np.float32)
    equal(round_to(kind, x), want)
    equal(decode(kind, encode(kind, x)), want)


@pytest.mark.long
def test_transfers_of_ten_million() -> None:
    for seed in range(-(-MANY // PIECE)):
        bits = torch.randint(-(2**31), 2**31, (PIECE,), generator=torch.Generator().manual_seed(seed), dtype=torch.int64).to(I32)
        check_transfers(bits.view(F32))


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_device_format(dtype: torch.dtype, tmp_path: Path) -> None:
    """A target whose floats of 16 bits are DLFloat16: a result of float16 is of that, and then of float16."""
    target = tmp_path / "native.toml"
    target.write_text('name = "native"\ndl16 = "native"\n')
    x = floats(dtype, FEW)
    with config.patch(target=str(target)), torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(lambda x: x.float() * 1, backend="ktir", dynamic=False)(x)
        halves = torch.compile(lambda x: x.float().half(), backend="ktir", dynamic=False)(x)
    assert launches().chip == 2
    held = x.float().numpy() if dtype == F32 else dl16_by_definition(x.float().numpy())
    equal(found.numpy(), held)
    wrong = ~same(halves, torch.from_numpy(dl16_by_definition(held)).half())
    assert not wrong.any(), (x[wrong][:3], halves[wrong][:3])


@pytest.mark.parametrize("engine", ["ktir", "spyre"])
@pytest.mark.parametrize("half", [F16, BF16])
def test_four_bits_of_words(engine: str, half: torch.dtype) -> None:
    """Each of the eight places of words, without a sign and with one."""
    words = source(I32, FEW, 3)

    def unpacked(words: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(((words >> 4 * k) & 15).to(half) for k in range(8)) + tuple(((words << 28 - 4 * k) >> 28).to(half) for k in range(8))

    with torch.no_grad(), metrics.counted() as launches:
        found = torch.compile(unpacked, backend="ktir", dynamic=False, options={"engine": engine})(words)
    assert (launches().chip, launches().torch) == (engine == "spyre", 0)
    bits = words.long() & 0xFFFFFFFF
    for k, got in enumerate(found):
        q = bits >> 4 * (k % 8) & 15
        assert (got == (q if k < 8 else (q ^ 8) - 8)).all()
