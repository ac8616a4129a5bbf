"""Floats of one byte: every code, and roundings from every float of 16 bits and from what lies around ties, are those of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ktir.arithmetic.floats import decode, encode, round_to

TYPES = [("f8E4M3FN", torch.float8_e4m3fn), ("f8E5M2", torch.float8_e5m2)]


def of_torch(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype).view(torch.uint8)


def same_rounding(kind: str, dtype: torch.dtype, x: torch.Tensor) -> None:
    """Codes are those of PyTorch, but that any NaN is as good as another."""
    got, want = torch.from_numpy(encode(kind, x.numpy())), of_torch(x, dtype)
    nan = x.isnan()
    assert (got[~nan] == want[~nan]).all()
    assert np.isnan(decode(kind, got[nan].numpy())).all()
    rounded = torch.from_numpy(round_to(kind, x.numpy()))
    same = (rounded == x.to(dtype).float()) & (rounded.signbit() == x.signbit())
    assert (same | nan & rounded.isnan()).all()


@pytest.mark.parametrize(("kind", "dtype"), TYPES)
def test_every_code(kind: str, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    torch.testing.assert_close(torch.from_numpy(decode(kind, codes.numpy())), codes.view(dtype).float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("kind", "dtype"), TYPES)
@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16])
def test_from_every_half(kind: str, dtype: torch.dtype, source: torch.dtype) -> None:
    """Through f32, as PyTorch converts them."""
    same_rounding(kind, dtype, torch.arange(-(2**15), 2**15).to(torch.int16).view(source).float())


@pytest.mark.parametrize(("kind", "dtype"), TYPES)
def test_around_every_tie(kind: str, dtype: torch.dtype) -> None:
    values = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    values = values[values.isfinite()].sort()[0]
    ties = torch.cat([(values[1:] + values[:-1]) / 2, values, torch.tensor([448.0, 464.0, 480.0, 57344.0, 61440.0, 65536.0, 3e38])])
    far = torch.tensor(torch.inf)
    around = torch.cat([ties, torch.nextafter(ties, far), torch.nextafter(ties, -far), torch.tensor([torch.inf, torch.nan])])
    same_rounding(kind, dtype, torch.cat([around, -around]))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "dtype"), TYPES)
def test_from_any_float(kind: str, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(5)
    for _ in range(10):
        same_rounding(
            kind, dtype, torch.randint(-(2**31), 2**31, (1_000_000,), generator=draw, dtype=torch.int64).to(torch.int32).view(torch.float32)
        )
