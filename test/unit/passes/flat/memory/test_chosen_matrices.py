"""Rows times matrices that indices choose: all rows with all matrices, then a choice, where there are more rows than matrices."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels, storage
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine.control.control import control
from ktir.emulator.reference import execute
from ktir.lowering.compile import launch_arguments
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

Function = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def matrices_first(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.bmm(w[i], x.unsqueeze(-1)).squeeze(-1)


def rows_first(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    chosen = w[i]
    return torch.bmm(x.unsqueeze(1), chosen).squeeze(1)


def several_experts(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Each row with three matrices, as the experts of a model have it."""
    chosen = w[i]
    return torch.bmm(chosen, x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, x.shape[-1], 1)).squeeze(-1)


def looked_up_behind(w: torch.Tensor, i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The matrices are a dim of the middle."""
    return torch.bmm(w[:, i].transpose(0, 1), x.unsqueeze(-1)).squeeze(-1)


CASES = [
    (matrices_first, (3, 70, 72), 60, (60, 72)),
    (matrices_first, (2, 64, 128), 64, (64, 128)),
    (rows_first, (3, 72, 100), 60, (60, 72)),
    (several_experts, (3, 70, 72), 60, (20, 72)),
    (looked_up_behind, (70, 3, 72), 60, (60, 72)),
]


def _given(function: Function, w: tuple[int, ...], rows: int, x: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    drawn, matrices = torch.Generator().manual_seed(7), w[1 if function is looked_up_behind else 0]
    index = torch.randint(-matrices, matrices, (rows,), generator=drawn)
    return torch.randn(w, generator=drawn).half(), index, torch.randn(x, generator=drawn).half()


def _output(text: str) -> np.ndarray:
    """An array for the output of a captured program."""
    found = re.search(r'ktir.role = "output", ktir.type = tensor<([0-9x]*)xf16>', text)
    assert found is not None
    return np.zeros([int(n) for n in found.group(1).split("x")], np.float16)


def _read(function: Function, *given: torch.Tensor) -> int:
    """Bytes that the chip reads."""
    with context(), ir.Location.unknown():
        module = parse_module(ktir.capture(function, *given))
        run_pipeline(module, ToAllocated(verify=False).text())
        return sum(kernel.dram_read for kernel in control(lower_program(module), DATASHEET).statistics)


@pytest.mark.parametrize(("function", "w", "rows", "x"), CASES)
def test_each_matrix_is_loaded_once(function: Function, w: tuple[int, ...], rows: int, x: tuple[int, ...]) -> None:
    given = _given(function, w, rows, x)
    of_each_row = given[0].nbytes * rows // w[1 if function is looked_up_behind else 0]
    assert _read(function, *given) < of_each_row // 4


def test_few_rows_load_their_matrices() -> None:
    given = _given(matrices_first, (5, 70, 72), 2, (2, 72))
    assert _read(matrices_first, *given) < given[0].nbytes


def _layout(function: Function, *given: torch.Tensor) -> str:
    """How the matrices lie on the card."""
    text = ktir.capture(function, *given, stage="laid-out")
    (found,) = re.findall(r"ktir.host = #ktir.host_view<arg = 0, [^>]*>, ktir.layout = #ktir.layout<[^>]*>", text)
    return str(found)


@pytest.mark.parametrize(("function", "x"), [(matrices_first, 1), (several_experts, 3)])
def test_matrices_lie_alike_for_few_rows_and_for_many(function: Function, x: int) -> None:
    shape = (4, 256, 64)
    few, many = (_layout(function, *_given(function, shape, rows, (rows // x, 64))) for rows in (3, 96))
    assert few == many


@pytest.mark.parametrize("function", [matrices_first, several_experts])
def test_levels_agree_on_few_rows(function: Function) -> None:
    _check_levels(function, (5, 70, 72), 3, (3 if function is matrices_first else 1, 72))


@pytest.mark.parametrize(("function", "w", "rows", "x"), CASES)
def test_levels_agree(function: Function, w: tuple[int, ...], rows: int, x: tuple[int, ...]) -> None:
    _check_levels(function, w, rows, x)


def _check_levels(function: Function, w: tuple[int, ...], rows: int, x: tuple[int, ...]) -> None:
    given = _given(function, w, rows, x)
    wanted = function(given[0].double(), given[1], given[2].double()).numpy()
    text = ktir.capture(function, *given)
    found = check_levels(text, [*(g.numpy() for g in given), _output(text)], cores=4)[-1].arrays[-1].astype(np.float64)
    assert np.abs(found.reshape(wanted.shape) - wanted).max() <= 2.0**-10 * np.abs(wanted).max()


def test_an_index_that_is_no_matrix_is_an_error() -> None:
    """Where results are chosen as where matrices are."""
    w, index, x = _given(*CASES[0])
    text = ktir.capture(matrices_first, w, index, x)
    index[7] = 3
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated(verify=False).text())
        hosts = [*(g.numpy() for g in (w, index, x)), _output(text)]
        device = [storage(argument, hosts) for argument in launch_arguments(module)]
        with pytest.raises(KtirError, match="3"):
            execute(module, None, device)
