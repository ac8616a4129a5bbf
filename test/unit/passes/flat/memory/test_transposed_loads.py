"""What is loaded with its dims in several orders is loaded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from chip import only_on_chip
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


def softmax(x: torch.Tensor) -> torch.Tensor:
    return F.softmax(x, 0)


def centred(x: torch.Tensor) -> torch.Tensor:
    """Three dims, of which the outer one is reduced."""
    return x - x.mean(0, keepdim=True)


def both(x: torch.Tensor) -> torch.Tensor:
    return x + x.sum(0).exp() - x.amax(1, keepdim=True)


@pytest.mark.parametrize(
    ("function", "shape"), [(softmax, (96, 200)), (softmax, (128, 128)), (centred, (5, 12, 70)), (both, (64, 64)), (both, (33, 65))]
)
def test_levels_agree(function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).half()
    x = x / 8
    given = [x.numpy(), np.zeros(shape, np.float16)]
    found = check_levels(ktir.capture(function, x), given, cores=4)[-1].arrays[-1].astype(np.float64)
    wanted = function(x.double()).numpy()
    assert np.abs(found - wanted).max() <= 2.0**-10 * max(np.abs(wanted).max(), 1.0)


def test_a_softmax_over_rows_moves_each_byte_once() -> None:
    text = ktir.capture(softmax, torch.zeros(512, 1024, dtype=torch.float16))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated(verify=False).text())
        (kernel,) = control(lower_program(module), DATASHEET).statistics
    assert (kernel.dram_read, kernel.dram_written) == (1 << 20, 1 << 20)
    assert kernel.cycles < 17_000


def columns(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = x.sum(0)
    x[1:].add_(1)
    return first, x.sum(1)


def corner(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = x.sum(0)
    x[1:, 64:].mul_(2)
    return first, x.sum(0)


def rows(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = x * 2
    x[5:].mul_(3)
    return first, x * 2


def by_index(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = x * 2
    x[2:].index_copy_(0, torch.tensor([3, 60]), y[:2])
    return first, x.t() * 2


def elsewhere(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = x * 2
    y[1:].add_(1)
    return first, x - 1, y * 2


@pytest.mark.parametrize("function", [columns, corner, rows, by_index, elsewhere])
def test_what_is_written_in_between(function: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    """Through a view that begins elsewhere than what is loaded. Small integers are exact."""
    given = [torch.randint(-3, 4, (64, 128), generator=torch.Generator().manual_seed(n)).half() for n in (1, 2)]
    own = [x.clone() for x in given]
    torch._dynamo.reset()
    with only_on_chip():
        found = torch.compile(function, backend="ktir", options={"engine": "spyre"})(*own)
    for got, wanted in zip((*found, *own), (*function(*given), *given), strict=True):
        assert torch.equal(got, wanted)


def cached(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A residual that ops read before and behind a store to another argument."""
    h = x @ w
    y.copy_(torch.relu(x + h))
    return (x + h).sum(-1), (x + h).amax(-1)


def test_loads_behind_stores_to_other_memory_are_the_same() -> None:
    """Nothing crosses kernels as a sum in f32, since all readers read the same residual."""
    given = [torch.zeros(shape).half() for shape in ((64, 128), (128, 128), (64, 128))]
    with context(), ir.Location.unknown():
        module = parse_module(ktir.capture(cached, *given))
        run_pipeline(module, ToAllocated(verify=False).text().split(",ktir-assign-layouts", 1)[0])
        loads = [line for line in str(module).splitlines() if "ktdp.load" in line and "64x128xf16" in line]
    assert len(loads) == 1
