"""Some random convolutions and poolings, as the campaign draws them, and what one takes."""

from __future__ import annotations

import pytest
import torch
from campaign import convolutions
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


def test_an_input_is_loaded_once() -> None:
    """3x3 over 64 channels of 56x56: 9 loads of the input by memory alone take 26,460 cycles."""
    x, w = (torch.zeros(shape, dtype=torch.float16) for shape in ((1, 64, 56, 56), (64, 64, 3, 3)))
    text = ktir.capture(lambda x, w: F.conv2d(x, w, padding=1), x, w)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        assert Machine(lower_program(module), DATASHEET).report.cycles < 22_000
