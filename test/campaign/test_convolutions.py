"""Some random convolutions and poolings, as the campaign draws them, and what one takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from campaign import convolutions
from torch import nn
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


@pytest.mark.parametrize("seed", [5, 13, 28, 103])
def test_every_level_has_the_values_of_pytorch(seed: int) -> None:
    convolutions.check(seed)


def _cycles(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> int:
    text = ktir.capture(function, *(torch.zeros(shape, dtype=torch.float16) for shape in shapes))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return Machine(lower_program(module), DATASHEET).report.cycles


def test_an_input_is_loaded_once() -> None:
    """3x3 over 64 channels of 56x56: 9 loads of the input by memory alone take 26,460 cycles."""
    assert _cycles(lambda x, w: F.conv2d(x, w, padding=1), (1, 64, 56, 56), (64, 64, 3, 3)) < 18_000


def test_filters_per_channel_and_pooling_load_an_input_once() -> None:
    assert _cycles(lambda x, w: F.conv2d(x, w, padding=1, groups=64), (1, 64, 56, 56), (64, 1, 3, 3)) < 14_000
    assert _cycles(lambda x: F.max_pool2d(x, 3, 1), (1, 64, 58, 58)) < 14_000


WINDOWS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "filters of parts of a row": (nn.Conv1d(33, 33, 4, padding=3, groups=33), (1, 33, 63), 4),
    "filters over uneven sticks that are dealt out": (nn.Conv2d(130, 130, 3, padding=1, groups=130), (2, 130, 5, 15), 9),
    "dilated filters": (nn.Conv2d(40, 40, 3, stride=(1, 2), padding=2, dilation=(2, 1), groups=40), (1, 40, 7, 9), 9),
    "a maximum that hangs over": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 65, 8, 9), 9),
    "an average of what is inside": (nn.AvgPool2d((3, 2), (2, 1), (1, 1), count_include_pad=False), (1, 64, 6, 5), 6),
    "a window as large as the input": (nn.Conv1d(32, 32, 3), (1, 32, 3), 96),
    "an average over three dims": (nn.AvgPool3d((4, 3, 3), (2, 2, 2), (0, 1, 0)), (2, 8, 6, 5, 5), 36),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_channels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, shape, sums = WINDOWS[name]
    program = convolutions.Drawn(convolutions.Model(layer, ""), shape, torch.float16, name, "", sums)
    monkeypatch.setattr(convolutions, "drawn", lambda seed: program)
    convolutions.check(0)
