"""How near compiled kernels come to what bounds them, by the emulator's cycles on the preset `datasheet`.

    python bench/efficiency.py [name ...]

A matmul is held against the peak of all PT arrays, what memory bounds against the bandwidth: every distinct byte once. The exit code is 1
where a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET, LANES


class Case(NamedTuple):
    """A PyTorch function of f16 arguments of these shapes; `work` in cycles at the peak rate, of which `least` must be reached."""

    function: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    work: float
    least: float


def _multiplications(count: int) -> float:
    return count / (DATASHEET.cores * DATASHEET.corelets * LANES * LANES / DATASHEET.pt_row_cycles)


def _elements(count: int) -> float:
    return count * 2 / DATASHEET.dram_bytes_per_cycle


CASES = {
    "matmul 2048x2048x2048": Case(torch.matmul, ((2048, 2048), (2048, 2048)), _multiplications(2048**3), 0.85),
    "softmax 4096x1024": Case(lambda x: F.softmax(x, -1), ((4096, 1024),), _elements(2 * 4096 * 1024), 0.90),
    "RMS norm 4096x4096": Case(lambda x, w: F.rms_norm(x, (4096,), w), ((4096, 4096), (4096,)), _elements(2 * 4096 * 4096 + 4096), 0.90),
    "matmul 1x4096x14336": Case(torch.matmul, ((1, 4096), (4096, 14336)), _elements(4096 + 4096 * 14336 + 14336), 0.90),
}


def cycles(case: Case) -> int:
    """Cycles of the compiled function."""
    text = ktir.capture(case.function, *(torch.zeros(shape, dtype=torch.float16) for shape in case.shapes))
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return Machine(lower_program(module), DATASHEET).report.cycles


def main() -> int:
    """Print the table; 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"parts of names; all: {', '.join(CASES)}")
    names = parser.parse_args().names
    missed = 0
    print(f"{'kernel':<26}{'cycles':>10}{'bound':>10}{'reached':>9}{'wanted':>8}")
    for name, case in CASES.items():
        if names and not any(n in name for n in names):
            continue
        took = cycles(case)
        missed += (reached := case.work / took) < case.least
        print(f"{name:<26}{took:>10,}{case.work:>10,.0f}{reached:>9.1%}{case.least:>8.0%}{'' if reached >= case.least else '  missed'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
