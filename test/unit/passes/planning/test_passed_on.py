"""Padded images between the kernel that writes them and the one that sees them through windows: cores hand each other margins alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from chip_cycles import cycles_of
from torch.nn import functional as F

import ktir
from ktir.checking.levels import check_levels


class Shape(NamedTuple):
    """Of a convolution: channels, filters, places of a window and of an image in each direction, and its options."""

    channels: int
    filters: int
    kernel: int
    size: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.dilation * (self.kernel // 2)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        image = 1, self.channels, self.size, self.size
        return image, (self.filters, self.channels // self.groups, self.kernel, self.kernel)

    def convolve(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, stride=self.stride, padding=self.padding, dilation=self.dilation, groups=self.groups)


@pytest.mark.parametrize("shape", [Shape(64, 64, 3, 56), Shape(128, 64, 5, 14), Shape(64, 64, 3, 30, dilation=2)], ids=str)
def test_cycles(shape: Shape) -> None:
    """An image that is seen through windows is padded for half at most of what a program takes that pads it, and nothing else."""
    p = shape.padding
    padded = shape.size + 2 * p

    def valid(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, stride=shape.stride, dilation=shape.dilation, groups=shape.groups)

    pad = cycles_of(lambda x: F.pad(x, (0, 0, p, p, p, p)), (1, shape.size, shape.size, shape.channels))
    seen = cycles_of(valid, (1, shape.channels, padded, padded), shape.shapes[1])
    assert cycles_of(shape.convolve, *shape.shapes) < seen + pad / 2


SHAPES = [
    Shape(64, 64, 3, 28),
    Shape(64, 64, 3, 29, stride=2),
    Shape(128, 192, 5, 14),
    Shape(64, 64, 3, 13, dilation=3),
    Shape(64, 64, 3, 20, groups=64),
    Shape(70, 130, 3, 9),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_at_every_level(shape: Shape) -> None:
    """Small integers: all sums are exact."""
    draw = torch.Generator().manual_seed(1)
    x, w = (torch.randint(-1, 2, s, generator=draw).half() for s in shape.shapes)
    wanted = shape.convolve(x.double(), w.double()).numpy()
    assert np.abs(wanted).max() < 2048
    *levels, tape, step = check_levels(ktir.capture(shape.convolve, x, w), [x.numpy(), w.numpy(), np.zeros(wanted.shape, np.float16)])
    for ran in (*levels, tape, step):
        assert np.array_equal(ran.arrays[-1].reshape(wanted.shape).astype(np.float64), wanted)
