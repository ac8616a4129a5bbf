"""How the results of a matmul leave the scratchpad: in as many stores as there are loads, and few of them when all is computed."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from chip import only_on_chip
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost import tiles
from ktir.cost.tiles import Share, last_rows
from ktir.emulator.machine import Machine
from ktir.isa.instructions import Does
from ktir.isa.units import Unit
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


def machine_of(f: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> Machine:
    text = ktir.capture(f, *(torch.zeros(shape).half() for shape in shapes))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return Machine(lower_program(module), DATASHEET)


def rows_of(machine: Machine) -> set[int]:
    """Of all blocks that the matrix arrays multiply."""
    (kernel,) = machine.program.kernels
    return {w["rows"] for w in kernel.units[Unit.PT] if w.does is Does.MULTIPLY}


@pytest.mark.parametrize("size", [768, 1024])
def test_a_cut_ends_sooner(size: int) -> None:
    """A row of results is half a cycle and more of the channel: what is left at the end of one block is several hundreds."""
    cut = machine_of(torch.matmul, (size, size), (size, size))
    with patch.object(tiles, "last_rows", lambda *_: ()):
        whole = machine_of(torch.matmul, (size, size), (size, size))
    assert len(rows_of(cut)) == 3
    assert len(rows_of(whole)) == 1
    assert cut.report.cycles < 0.96 * whole.report.cycles


@pytest.mark.parametrize(("rows", "inner", "columns", "cut"), [(2048, 512, 1024, False), (1024, 1024, 1024, True)])
def test_there_are_as_many_stores_as_loads(rows: int, inner: int, columns: int, cut: bool) -> None:
    """Against stores of many rows at once, for which loads wait."""
    some = machine_of(torch.matmul, (rows, inner), (inner, columns))
    with patch.object(tiles, "stored_rows", lambda *_: tiles.STORED_ROWS):
        many = machine_of(torch.matmul, (rows, inner), (inner, columns))
    assert (len(rows_of(some)) == 3) == cut
    assert some.report.cycles < 0.96 * many.report.cycles


def product(x: torch.Tensor, w: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return x @ w


def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ w + b)


@pytest.mark.parametrize("rows", [768, 767, 736])
@pytest.mark.parametrize("f", [product, layer])
def test_values(f: Callable[..., torch.Tensor], rows: int) -> None:
    """Of small integers, whose sums are exact: against PyTorch in float64. Rows that cores do not share equally are not cut."""
    torch.manual_seed(rows)
    x, w, b = (torch.randint(-1, 2, shape).half() for shape in ((rows, 768), (768, 832), (832,)))
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip():
        found = torch.compile(f, backend="ktir", options={"engine": "spyre"})(x, w, b)
    assert torch.equal(found.double(), f(x.double(), w.double(), b.double()))


def test_a_share_is_cut_where_memory_and_matrix_array_take_as_long() -> None:
    """By hand: 512 rows of a stick leave in 15,360 cycles; weights of the small block take 4,144 more, and each of
    its rows 257 of the array and 120 of memory, so (15,360 - 4,144) / (257 - 120) = 82 rows."""
    share = Share(1024, 2, 32, 61_440.0, 61_440.0, 61_440.0)
    assert last_rows(share, 512, 2, True, True, DATASHEET) == (432, 80)
    assert last_rows(share._replace(rows=1000), 512, 2, True, True, DATASHEET) == ()  # the second block has fewer rows
    assert last_rows(share._replace(result=6_144.0), 512, 2, True, True, DATASHEET) == ()  # less than what weights take again
    assert last_rows(share, 512, 2, False, True, DATASHEET) == ()  # rows wait in the scratchpad for their block
