"""Reductions of one long row: many cores take parts of it, and values are those of PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

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

Row = Callable[[torch.Tensor], torch.Tensor]
SIZE = 32_000


def row(size: int = SIZE) -> torch.Tensor:
    """Some largest and least elements several times, the first of them neither at the begin nor at the end."""
    x = torch.randn(1, size, generator=torch.Generator().manual_seed(3)).half()
    x[0, [size // 3, size // 2, size - 1]] = 9.0
    x[0, [size // 5, size // 4, size - 2]] = -9.0
    return x


def run(function: Row, x: torch.Tensor, cores: int = 32) -> np.ndarray:
    """The result on the machine, which all levels agree on."""
    wanted = function(x)
    results = check_levels(ktir.capture(function, x), [x.numpy(), np.zeros(wanted.shape, wanted.numpy().dtype)], cores=cores)
    return results[-1].arrays[-1]


@pytest.mark.parametrize("size", [SIZE, 50_257])
@pytest.mark.parametrize("function", [lambda x: x.argmax(-1), lambda x: x.argmin(-1), lambda x: (-x.abs()).exp().argmin(-1)])
def test_places_are_those_of_eager(function: Row, size: int) -> None:
    x = row(size)
    assert run(function, x).tolist() == function(x.float()).tolist()


def test_a_nan_is_the_largest() -> None:
    x = row()
    x[0, [12_345, 20_000]] = torch.nan
    assert run(lambda x: x.argmax(-1), x).tolist() == [12_345]


def test_sums_and_extremes() -> None:
    """A sum of f32 is within the bound of sums in any order: an ulp for each level of a tree of lanes, sticks and parts."""
    x = row()
    wide = x.double()
    assert run(lambda x: torch.erf(torch.exp(x.float())).amax(-1), x) == pytest.approx(torch.erf(wide.exp()).amax(-1).numpy(), rel=2.0**-22)
    wanted = torch.sin(wide.exp()).sum(-1).numpy()
    most = torch.sin(wide.exp()).abs().sum(-1).numpy()
    error = np.abs(run(lambda x: torch.sin(torch.exp(x.float())).sum(-1), x) - wanted)
    assert (error <= most * (SIZE / 64 + 6 + 32) * 2.0**-24 + SIZE * 2.0**-20).all()


def kernels(function: Row, x: torch.Tensor) -> list[tuple[int, int]]:
    """Cores and cycles of each kernel."""
    with context(), ir.Location.unknown():
        module = parse_module(ktir.capture(function, x))
        run_pipeline(module, ToAllocated(verify=False).text())
        program = lower_program(module)
        found = control(program, DATASHEET).statistics
    return [(k.cores, s.cycles) for k, s in zip(program.kernels, found, strict=True)]


def test_cores_share_what_takes_long() -> None:
    """argmax of 32,000 elements took 11,824 cycles on one core."""
    found = kernels(lambda x: x.argmax(-1), row())
    assert max(cores for cores, _ in found) == 25
    assert sum(cycles for _, cycles in found) < 2_900


def test_a_short_row_is_that_of_one_core() -> None:
    assert kernels(lambda x: torch.rms_norm(x, (4096,)), row(4096))[0][0] == 1
