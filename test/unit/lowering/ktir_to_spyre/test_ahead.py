"""Which loads are ahead of their kernels: weights, not what the kernel before has computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

import ktir
from ktir.assembly import parse_module
from ktir.checking.levels import check_levels
from ktir.context import context
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.program.faults import MachineFinding
from ktir.isa.instructions import Does
from ktir.isa.program import Kernel, Program, Word
from ktir.isa.units import Unit
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.target import DATASHEET

DRAW = torch.Generator().manual_seed(3)
X = torch.randn(32, 256, generator=DRAW).half()
WEIGHTS = [(torch.randn(256, 256, generator=DRAW) / 16).half() for _ in range(3)]


def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Products with a softmax over the other dim between, each in a kernel of its own."""
    for w in weights:
        x = torch.softmax(x @ w, dim=0)
    return x


@cache
def captured() -> str:
    return ktir.capture(layers, X, *WEIGHTS)


@cache
def made(cores: int) -> Program:
    with context(), ir.Location.unknown():
        return read(compile_logical(parse_module(captured()), cores=cores)).program


def changed(p: Program, ahead: Callable[[Kernel, Word], int]) -> Program:
    """Other numbers of loads that are ahead."""

    def loads(k: Kernel) -> list[Word]:
        words = k.units[Unit.MNIL]
        return [replace(w, operands={**w.operands, "ahead": ahead(k, w)}) if w.does is Does.MOVE else w for w in words]

    return replace(p, kernels=[*p.kernels[:1], *(replace(k, units={**k.units, Unit.MNIL: loads(k)}) for k in p.kernels[1:])])


def argument(p: Program, k: Kernel, w: Word) -> str:
    return p.arguments[k.descriptors[w["src"]].arg or 0].role


def test_weights_are_ahead() -> None:
    """All kernels but the first begin with them, and take less time for it; the values are those of all levels."""
    p = made(8)
    assert len(p.kernels) > 2
    marks = {(argument(p, k, w), w["ahead"] > 0) for k in p.kernels[1:] for w in k.units[Unit.MNIL] if w.does is Does.MOVE}
    assert ("input", True) in marks
    assert ("pool", True) not in marks, "the kernel before has written it"
    apart = changed(p, lambda k, w: 0)
    now, before = (sum(s.cycles for s in control(x, DATASHEET).statistics) for x in (p, apart))
    assert now < before - 100
    assert control(p, DATASHEET).statistics[0].cycles == control(apart, DATASHEET).statistics[0].cycles
    wanted = layers(X.double(), *(w.double() for w in WEIGHTS)).numpy()
    levels = check_levels(captured(), [X.numpy(), *(w.numpy() for w in WEIGHTS), np.zeros(X.shape, np.float16)], cores=8)
    assert np.abs(levels[-1].arrays[-1].reshape(X.shape) - wanted).max() < 2.0**-8 * np.abs(wanted).max()


@pytest.mark.parametrize("cores", [1, 8, 32])
def test_a_wrong_one_is_found(cores: int) -> None:
    """What the kernel before has computed."""
    p = made(cores)
    assert any(argument(p, k, w) == "pool" for k in p.kernels[1:] for w in k.units[Unit.MNIL] if w.does is Does.MOVE)
    with pytest.raises(MachineFinding, match="argument"):
        control(changed(p, lambda k, w: w["ahead"] or argument(p, k, w) == "pool"), DATASHEET)


def test_neighbours_lie_apart() -> None:
    """No stick that a kernel uses is one of the kernel before."""

    def used(k: Kernel) -> tuple[int, int]:
        lx = [d for d in k.descriptors if d.space == "lx"]
        return min(d.base for d in lx), max(d.base + d.bytes * d.buffers for d in lx)

    for before, after in pairwise(made(8).kernels):
        (a, b), (c, d) = used(before), used(after)
        assert b <= c or d <= a
