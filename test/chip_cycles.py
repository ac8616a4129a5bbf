"""Cycles of what PyTorch computes, as a program of the chip."""

from __future__ import annotations

from collections.abc import Callable

import torch

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET


def cycles_of(f: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]], *shapes: tuple[int, ...]) -> int:
    """Of `f` on float16 tensors of these shapes, on all cores of the datasheet's chip."""
    text = ktir.capture(f, *(torch.zeros(shape).half() for shape in shapes))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return Machine(lower_program(module), DATASHEET).report.cycles
