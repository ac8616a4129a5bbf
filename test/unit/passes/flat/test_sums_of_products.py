"""Sums of products whose second factor is no matrix: reductions, at every level, with the values of PyTorch's `einsum` in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attention_programs import _PRODUCT, _Program

from ktir.checking import check_levels

EXTENTS = {"a": 3, "b": 5, "c": 4, "d": 6, "x": 2, "k": 70}


def _agrees(program: _Program, wanted: torch.Tensor) -> None:
    levels = check_levels(program.text(), program.arrays(), cores=3)
    assert levels[-1].name == "step"
    assert np.allclose(levels[-1].arrays[-1], wanted.numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("equation", ["xk,bxck->bxc", "k,bck->bc", "xk,xbck->xbc", "abk,cdk->cadb", "xabk,xcdk->xabcd"])
def test_several_columns(equation: str) -> None:
    p = _Program(EXTENTS)
    inputs, kept = equation.split("->")
    p.output(p.op(kept, [p.load(axes) for axes in inputs.split(",")], _PRODUCT, start="0.0", reduced="k"))
    first, second = (torch.from_numpy(a).double() for a in p.arrays()[:2])
    _agrees(p, torch.einsum(equation, first, second))


@pytest.mark.parametrize("axes", ["xbk", "cxbk"])
def test_a_split_reduction_is_no_contraction(axes: str) -> None:
    """A body of four operands, one factor of which is a value in float16: it is split, and its sum stays one of the vector unit."""
    p = _Program(EXTENTS)
    body = """\
%g = arith.cmpf ogt, %p1, %p2 : f32
%z = arith.constant 0.0 : f16
%h = arith.truncf %p3 : f32 to f16
%s = arith.select %g, %h, %z : f16
%f = arith.extf %s : f16 to f32
%w = arith.extf %p0 : f16 to f32
%m = arith.mulf %f, %w : f32
%r = arith.addf %o, %m : f32"""
    p.output(p.op(axes[:-1], [p.load("xk"), *(p.load(axes, "f32") for _ in range(3))], body, start="0.0", reduced="k"))
    w, a, b, c = (torch.from_numpy(x) for x in p.arrays()[:4])
    factor = torch.where(a > b, c, 0.0).half().double()
    _agrees(p, torch.einsum(f"xk,{axes}->{axes[:-1]}", w.double(), factor))
