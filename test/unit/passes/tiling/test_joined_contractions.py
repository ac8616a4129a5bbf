"""Contractions whose results one op takes together: a stick of each is computed after the other, and rows stay for all of them."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
import torch
from chip import only_on_chip
from chip_cycles import cycles_of
from torch.nn import functional as F

import ktir
from ktir.checking import check_levels
from ktir.passes.tiling.plan import tile_facts

Function = Callable[..., torch.Tensor]


def gated(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ w) * (x @ v)


def of_two(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Along other sums: y has some columns of x."""
    return F.relu(x @ w) + (y @ v[: y.shape[-1]])


def of_three(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ w) * (x @ v) - (x @ (w + v))


def of_four(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return gated(x, y, w, v) + gated(x, y, v, w)


def scaled(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """More tensors than one op reads: each product is scaled by an op of its own, and a third one takes both."""
    return F.relu((x @ w) * y[..., :1] * w[0]) * ((x @ v) * y[..., :1] * v[0])


def scaled_apart(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Of one product three ops, one behind the other."""
    return ((x @ w) * y[..., :1] + w[0]) * v[0] - w[1] * v[1] + y[..., 1:2] * v[2]


def read_twice(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The sum over a row of the first one needs all of it."""
    first = x @ w
    return first * (x @ v) + first.sum(-1, keepdim=True)


def shifted(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The first one is taken at other columns than the second one."""
    return (x @ w).flip(-1) * (x @ v)


def in_place(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """What the first one reads is written before the second one is there."""
    gate = F.relu(x @ w)
    w += v
    return gate * (x @ v)


FUNCTIONS = [gated, of_two, of_three, of_four, scaled, scaled_apart, read_twice, shifted, in_place]


def arguments(rows: tuple[int, ...], inner: int, columns: int) -> list[torch.Tensor]:
    """Small integers, whose sums and products are exact."""
    torch.manual_seed(inner + columns)
    shapes = (*rows, inner), (*rows, inner // 2), (inner, columns), (inner, columns)
    return [(torch.randint(-1, 2, shape) * (torch.rand(shape) < 0.2)).half() for shape in shapes]


@pytest.mark.parametrize(("rows", "inner", "columns"), [((96,), 256, 192), ((1,), 192, 320), ((700,), 130, 70), ((3, 50), 128, 128)])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_values(f: Function, rows: tuple[int, ...], inner: int, columns: int) -> None:
    """Against PyTorch in float64."""
    given = arguments(rows, inner, columns)
    exact = [a.double() for a in given]
    torch._dynamo.reset()
    with torch.no_grad(), only_on_chip():
        found = torch.compile(f, backend="ktir", options={"engine": "spyre"})(*given)
    assert torch.equal(found.double(), f(*exact))
    assert all(torch.equal(a.double(), b) for a, b in zip(given, exact, strict=True))


@pytest.mark.parametrize("f", [gated, of_three, of_four, scaled])
def test_levels_agree(f: Function) -> None:
    """All levels, in more than one block of rows, and both modes of the machine."""
    given = arguments((530,), 128, 192)
    text = ktir.capture(f, *given)
    arrays = [given[i].numpy() for i in ((0, 2, 1, 3) if f is scaled else (0, 2, 3))]  # as they are read first; else nothing takes y
    check_levels(text, [*arrays, np.zeros((530, 192), np.float16)], cores=1)


@pytest.mark.parametrize("f", [gated, scaled])
def test_rows_are_loaded_once_for_both(f: Function) -> None:
    """A share of rows fits the scratchpad whole, but not beside all of the first result."""
    shapes = (512, 4096), (512, 1), (4096, 14336), (4096, 14336)
    together = cycles_of(f, *shapes)
    with patch.object(tile_facts, "joined_contractions", lambda *_: {}):
        apart = cycles_of(f, *shapes)
    assert together < 0.65 * apart


@pytest.mark.parametrize("swapped", [False, True])
def test_one_row_for_each_matrix_beside_rows_for_one(swapped: bool) -> None:
    """Vectors of which each has a matrix of its own have no rows: what multiplies the same vectors as rows is another kernel."""
    torch.manual_seed(0)
    x, w, v = (torch.randint(-1, 2, shape).half() for shape in ((3, 1, 130), (130, 70), (3, 130, 70)))
    torch._dynamo.reset()

    def both(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return x @ v - x @ w if swapped else x @ w - x @ v

    with torch.no_grad(), only_on_chip():
        found = torch.compile(both, backend="ktir", options={"engine": "spyre"})(x, w, v)
    assert torch.equal(found.double(), both(x.double(), w.double(), v.double()))
