"""What a program widens last is kept, and crosses kernels, in the 16 bits that it was rounded to."""

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
from ktir.mlir import ir, is_a, linalg, operations
from ktir.passes.flat import ktir_break_views
from ktir.pipeline import run_pipeline

Function = Callable[[torch.Tensor], object]


def normalised(x: torch.Tensor) -> torch.Tensor:
    """A row is read twice: for its largest number and for itself."""
    y = x.exp().float()
    return y / y.abs().amax(-1, keepdim=True)


def through_views(x: torch.Tensor) -> torch.Tensor:
    y = x.exp().float().view(-1, 2, 64).transpose(0, 1)
    return y + y.sum(0, keepdim=True)


def also_returned(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What leaves in f32 is f32."""
    y = x.exp().float()
    return y, y * y.amax(-1, keepdim=True)


def of_wide(x: torch.Tensor) -> torch.Tensor:
    """Never rounded."""
    y = x.float() * 0.3 + 1
    return y / y.abs().amax(-1, keepdim=True)


def products(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A sum of products of f32 does not become one of the array."""
    y = x.exp().float()
    return (y[:, None] * x.float()[None, :3]).sum(-1), y * y.amax()


NARROW, WIDE = [normalised, through_views], [also_returned, of_wide, products]


def argument(rows: int, dtype: torch.dtype) -> torch.Tensor:
    """With what becomes 0, 1, an infinity and no number."""
    torch.manual_seed(rows)
    x = torch.randn(rows, 128)
    x[-1, :5] = torch.tensor([float("inf"), -float("inf"), 1e-7, 0.0, float("nan")])
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 70])
@pytest.mark.parametrize("f", [f for f in (*NARROW, *WIDE) if f is not products])
def test_values(f: Function, rows: int, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against PyTorch, whose exponential may be another neighbour: a quotient of two, and a sum of two, are off by two such steps."""
    monkeypatch.setenv("KTIR_CACHE_DIR", str(tmp_path))
    x = argument(rows, dtype)
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip():
        found = torch.compile(f, backend="ktir", options={"engine": "spyre"})(x)
    torch.testing.assert_close(found, f(x), rtol=2 * torch.finfo(dtype).eps, atol=0, equal_nan=True)


def computed_in_f32(f: Function) -> int:
    """Ops that compute whole rows in f32."""
    text = ktir.capture(f, argument(70, torch.bfloat16))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, "ktir-separate-calls,cse,ktir-generalize,ktir-break-views")
        made = [ir.RankedTensorType(op.results[0].type) for op in operations(module) if is_a(op, linalg.GenericOp)]
        return sum(list(t.shape) == [70, 128] and isinstance(t.element_type, ir.F32Type) for t in made)


@pytest.mark.parametrize("f", NARROW)
def test_readers_widen(f: Function) -> None:
    with patch.object(ktir_break_views, "widen_where_read", lambda _: None):
        before = computed_in_f32(f)
    assert computed_in_f32(f) < before


@pytest.mark.parametrize("f", WIDE)
def test_what_is_f32_stays(f: Function) -> None:
    with patch.object(ktir_break_views, "widen_where_read", lambda _: None):
        before = computed_in_f32(f)
    assert computed_in_f32(f) == before
