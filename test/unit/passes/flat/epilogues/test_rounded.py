"""Sums of a matmul of which all readers round their part first cross kernels in the type that they are rounded to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from chip import only_on_chip

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.dialects import ktdp
from ktir.mlir import ir, is_a, operations
from ktir.passes.flat import ktir_break_views
from ktir.pipeline import run_pipeline

Function = Callable[[torch.Tensor, torch.Tensor], object]
HEADS, WIDTH = 3, 128


def heads(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).view(*x.shape[:-1], HEADS, WIDTH).transpose(0, 1)


def rotated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Each head, and its halves for a rotation."""
    q = heads(x, w)
    half = torch.cat([-q[..., WIDTH // 2 :], q[..., : WIDTH // 2]], -1)
    return q * 2 + half


def halves(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Nobody reads the columns between."""
    y = x @ w
    return y[:, :128].relu(), y[:, 256:].cos()


def returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The product itself leaves, too."""
    q = heads(x, w)
    return q[..., :64].neg(), x @ w


def in_other_types(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One reader takes the sums as they are."""
    y = x.float() @ w.float()
    return y[:, :128].to(x.dtype) + 1, y[:, 128:] * 2


def columns_again(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Heads of a product of heads are columns again, and read twice."""
    q = heads(x, w)
    y = (q @ q.transpose(-1, -2) @ q).transpose(0, 1).flatten(1)
    return y.abs().amax(-1), y * 2


FUNCTIONS = [rotated, halves, returned, in_other_types, columns_again]


def arguments(rows: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Small integers, whose sums and products are exact."""
    torch.manual_seed(rows)
    x, w = ((torch.randint(-1, 2, s) * (torch.rand(s) < 0.2)).to(dtype) for s in ((rows, 192), (192, HEADS * WIDTH)))
    return x, w


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 70, 128])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_values(f: Function, rows: int, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against PyTorch, whose product is rounded, too."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    x, w = arguments(rows, dtype)
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip():
        found = torch.compile(f, backend="ktir", options={"engine": "spyre"})(x, w)
    torch.testing.assert_close(found, f(x, w), rtol=0.01 if f is halves else 0, atol=0)  # cosines are rounded


def wide_stores(f: Function) -> int:
    """Stores of f32 on the flat level."""
    text = ktir.capture(f, *arguments(70, torch.float16))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, "ktir-separate-calls,cse,ktir-generalize,ktir-break-views")
        return sum("f32" in str(op.operands[0].type) for op in operations(module) if is_a(op, ktdp.StoreOp))


@pytest.mark.parametrize("f", [rotated, halves, columns_again])
def test_nothing_wide_crosses_kernels(f: Function) -> None:
    with patch.object(ktir_break_views, "round_once", lambda _: None):
        assert wide_stores(f)
    assert not wide_stores(f)


def test_what_is_read_as_it_is_stays() -> None:
    assert wide_stores(in_other_types)
