"""What is loaded with its dims in several orders is loaded once."""

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
