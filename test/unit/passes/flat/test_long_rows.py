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


def searched(kind: str) -> torch.Tensor:
    """A row in which extremes are hard to tell apart."""
    x = row()
    if kind == "all the same":
        x[:] = 2.0
    elif kind == "zeros of both signs":
        x = -x.abs()
        x[0, [31_000, 7_000, 7_001, 14_000]] = torch.tensor([0.0, -0.0, 0.0, -0.0]).half()
    elif kind == "infinities alone":
        x[:] = -torch.inf
    elif kind == "a part of them":
        x[0, 1280:2560] = -torch.inf
    elif kind == "not a number":
        x[0, [1_279, 1_280, 31_999]] = torch.nan
    return x


@pytest.mark.parametrize("kind", ["all the same", "zeros of both signs", "infinities alone", "a part of them", "not a number"])
def test_parts_are_searched_for_their_own_extremes(kind: str) -> None:
    x = searched(kind)
    assert run(lambda x: x.argmax(-1), x).tolist() == x.float().argmax(-1).tolist()


def test_what_asks_more_of_an_extreme_is_no_search() -> None:
    """What is chosen depends on the number itself, which no part knows."""

    def places(x: torch.Tensor) -> torch.Tensor:
        most = x.amax(-1, keepdim=True)
        return torch.where(x == most, most * 2 - x.abs().exp(), 60_000.0).amin(-1)

    x = row() / 2
    x[0, 2_000] = 4.25
    wanted = (x.double().amax() * 2 - x.double().amax().exp()).item()
    assert run(places, x).item() == pytest.approx(wanted, abs=2.0**-4)


@pytest.mark.parametrize("size", [SIZE, 50_257])
def test_what_is_chosen_may_be_anything_of_an_element(size: int) -> None:
    """Numbers are told by equality alone, as NaN is not equal to itself."""

    def places(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(x == x.amax(-1, keepdim=True), y.exp(), 50.0).amin(-1)

    x, y = row(size), row(size).flip(-1) / 8
    wanted = torch.where(x == x.amax(-1, keepdim=True), y.double().exp(), 50.0).amin(-1)
    results = check_levels(ktir.capture(places, x, y), [x.numpy(), y.numpy(), np.zeros(1, np.float16)])
    assert results[-1].arrays[-1] == pytest.approx(wanted.numpy(), rel=2.0**-9)


def test_a_search_reads_its_row_once() -> None:
    """One kernel for the parts, and one for what they come to, in which nothing is left of a start that changes nothing."""
    with context(), ir.Location.unknown():
        module = parse_module(ktir.capture(lambda x: x.argmax(-1), row()))
        run_pipeline(module, "ktir-generalize,ktir-break-views")
        text = str(module)
    assert "arith.minsi" not in text
    assert text.count("tensor<25x1280xf16>)") == 1
    assert text.count("arith.select") == 2
    assert len(kernels(lambda x: x.argmax(-1), row())) == 2


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
    """argmax of 32,000 elements took 11,824 cycles on one core, and 2,849 where all waited for the greatest element of the row."""
    found = kernels(lambda x: x.argmax(-1), row())
    assert max(cores for cores, _ in found) == 25
    assert sum(cycles for _, cycles in found) < 1_500


def test_a_short_row_is_that_of_one_core() -> None:
    assert kernels(lambda x: torch.rms_norm(x, (4096,)), row(4096))[0][0] == 1
