"""Element-wise ops behind a split of columns run before it, with the matmul that makes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.emulator.machine.control.control import control
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


def heads(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *, depth: int = 32) -> torch.Tensor:
    """A projection with a bias, split into heads."""
    return F.linear(x, w, b).unflatten(-1, (-1, depth)).transpose(1, 2).contiguous()


def thirds(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return heads(x, w, b, depth=3)


def rotated(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Behind the bias, what differs from position to position and not from head to head."""
    return heads(x, w, b) * x[:, None, :, :32]


def scaled(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Behind the bias, what differs from row to row."""
    return heads(x, w, b) * x[..., :1].unsqueeze(1)


def twice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The split sums are read twice."""
    split = F.linear(x, w).unflatten(-1, (-1, 32)).transpose(1, 2)
    return ((split + b.view(-1, 1, 32)) * (split.sum(-1, keepdim=True) / 64)).contiguous()


def widened(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return heads(x, w, b).float() * 3


Model = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def run(model: Model, sizes: tuple[int, int, int, int]) -> tuple[str, list[np.ndarray], torch.Tensor]:
    """A model's program, its arguments, and what it gives in float64."""
    batch, rows, depth, columns = sizes
    draw = torch.Generator().manual_seed(5)
    shapes = ((batch, rows, depth), (columns, depth), (columns,))
    x, w, b = (torch.randn(s, generator=draw).div(depth**0.25 if len(s) > 1 else 1).half() for s in shapes)
    wanted = model(x.double(), w.double(), b.double())
    result = np.zeros(tuple(wanted.shape), np.float32 if model is widened else np.float16)
    return ktir.capture(model, x, w, b), [*(t.numpy() for t in (x, w, b)), result], wanted


@pytest.mark.parametrize("model", [heads, thirds, rotated, scaled, twice, widened])
@pytest.mark.parametrize("sizes", [(2, 5, 70, 96), (3, 7, 64, 192), (1, 9, 33, 96)])
def test_levels_agree(model: Model, sizes: tuple[int, int, int, int]) -> None:
    text, arguments, wanted = run(model, sizes)
    found = check_levels(text, arguments, cores=4)[-1].arrays[-1].astype(np.float64)
    assert np.abs(found - wanted.numpy()).max() <= 2.0**-9 * max(wanted.abs().max().item(), 1.0)


@pytest.mark.parametrize(("depth", "most"), [(32, 8_600), (64, 6_900)])
def test_a_bias_before_a_split_costs_no_kernel(depth: int, most: int) -> None:
    """Sums in f32 never leave their kernel."""

    def model(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return heads(x, w, b, depth=depth)

    shapes = ((8, 24, 384), (384, 384), (384,))
    text = ktir.capture(model, *(torch.zeros(s, dtype=torch.float16) for s in shapes))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated(verify=False).text())
        kernels = control(lower_program(module), DATASHEET).statistics
    assert sum(k.cycles for k in kernels) < most
