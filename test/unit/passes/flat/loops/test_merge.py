"""Rows of a matmul that are several loops become one between two matmuls."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.dialects.structured import Generic
from ktir.emulator.machine.control.control import control
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir, is_a, linalg, operations
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


def feed_forward(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Positions are added, which are the same for all of a batch."""
    x = x + p
    return F.layer_norm(F.linear(F.gelu(F.linear(x, w)), v, b) + x, b.shape)


def pooled(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Behind the last matmul positions are added up, so that it keeps both loops."""
    return feed_forward(x, p, w, v, b).sum(1)


def weighted(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Between the matmuls, what differs from position to position."""
    h = F.linear(x + p, w) * p[:, :1]
    return F.linear(h.relu(), v, b)


def transposed(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The result has its dims in another order."""
    return feed_forward(x, p, w, v, b).transpose(0, 1).contiguous()


def normalised(x: torch.Tensor, p: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What the last matmul reads is several ops, which are merged after it; they read what another one gives."""
    x = F.linear(F.silu(F.linear(F.rms_norm(x, b.shape, b), w)), v) + x
    return F.linear(F.rms_norm(x, b.shape, b), w)


Model = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def arguments(batch: int, rows: int, columns: int, inner: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(11)
    shapes = ((batch, rows, columns), (rows, columns), (inner, columns), (columns, inner), (columns,))
    return [torch.randn(s, generator=draw).div(s[-1] ** 0.25 if len(s) > 1 else 1).half() for s in shapes]


def row_loops(model: Model, given: list[torch.Tensor]) -> list[int]:
    """How many row loops the matmuls of a model have on the flat level."""
    with context(), ir.Location.unknown():
        module = parse_module(ktir.capture(model, *given))
        run_pipeline(module, "ktir-separate-calls,cse,ktir-generalize,ktir-break-views")
        generics = [Generic(op) for op in operations(module) if is_a(op, linalg.GenericOp)]
        return [len(c.rows) for g in generics if (c := g.contraction) is not None]


@pytest.mark.parametrize("model", [feed_forward, pooled, weighted, transposed, normalised])
@pytest.mark.parametrize("sizes", [(9, 3, 300, 310), (12, 2, 256, 320), (2, 5, 70, 96)])
def test_levels_agree(model: Model, sizes: tuple[int, int, int, int]) -> None:
    given = arguments(*sizes)
    wanted = model(*(t.double() for t in given))
    text = ktir.capture(model, *given)
    by_shape = {"x".join(map(str, t.shape)): t.numpy() for t in given}
    order = re.findall(r'ktir.role = "input", ktir.type = tensor<([\dx]*)xf16>', text)
    (result,) = re.findall(r'ktir.role = "output", ktir.type = tensor<([\dx]*)xf16>', text)
    arrays = [*(by_shape[shape] for shape in order), np.zeros([int(n) for n in result.split("x")], np.float16)]
    found = check_levels(text, arrays, cores=4)[-1].arrays[-1].astype(np.float64)
    assert np.abs(found.reshape(wanted.shape) - wanted.numpy()).max() <= 2.0**-7 * max(wanted.abs().max().item(), 1.0)


@pytest.mark.parametrize(
    ("model", "loops"),
    [(feed_forward, [1, 1]), (pooled, [1, 2]), (weighted, [2, 1]), (transposed, [1, 2]), (normalised, [1, 1, 1])],
)
def test_matmuls_have_one_row_loop_where_nothing_needs_two(model: Model, loops: list[int]) -> None:
    assert row_loops(model, arguments(9, 3, 300, 310)) == loops


def test_small_matmuls_keep_their_loops() -> None:
    """What loading the weights anew takes is less than a launch."""
    assert row_loops(feed_forward, arguments(2, 5, 70, 96)) == [2, 2]


def test_a_batch_takes_what_as_many_rows_take() -> None:
    """41,428 cycles where both loops stay apart."""
    text = ktir.capture(feed_forward, *arguments(8, 24, 384, 1536))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, ToAllocated(verify=False).text())
        kernels = control(lower_program(module), DATASHEET).statistics
    assert sum(k.cycles for k in kernels) < 31_000
