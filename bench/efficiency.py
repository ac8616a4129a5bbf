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


def _matmul(m: int, k: int, n: int, least: float) -> Case:
    work = max(_multiplications(m * k * n), _elements(m * k + k * n + m * n))
    return Case(torch.matmul, ((m, k), (k, n)), work, least)


def _attention(heads: int, length: int, depth: int, least: float, *, window: int | None = None) -> Case:
    """A row sees itself and what lies before it, `window` keys at most; all keys without a window."""
    before = length if window is None else window
    pairs = length * length if window is None else before * length - before * (before - 1) // 2
    work = max(_multiplications(2 * heads * pairs * depth), _elements(4 * heads * length * depth))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if window is None or window >= length:
            return F.scaled_dot_product_attention(q, k, v, is_causal=window is not None)
        i, j = torch.arange(length)[:, None], torch.arange(length)[None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & (j > i - before))

    return Case(attend, ((1, heads, length, depth),) * 3, work, least)


def _convolution(channels: int, filters: int, kernel: int, size: int, least: float, *, stride: int = 1, groups: int = 1) -> Case:
    out = size // stride
    products = out * out * filters * channels // groups * kernel * kernel
    moved = channels * size * size + filters * channels // groups * kernel * kernel + filters * out * out

    def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)

    shapes = (1, channels, size, size), (filters, channels // groups, kernel, kernel)
    return Case(convolve, shapes, max(_multiplications(products), _elements(moved)), least)


def _multiplications(count: int) -> float:
    return count / (DATASHEET.cores * DATASHEET.corelets * LANES * LANES / DATASHEET.pt_row_cycles)


def _elements(count: int) -> float:
    return count * 2 / DATASHEET.dram_bytes_per_cycle


CASES = {
    "matmul 2048x2048x2048": _matmul(2048, 2048, 2048, 0.93),
    "softmax 4096x1024": Case(lambda x: F.softmax(x, -1), ((4096, 1024),), _elements(2 * 4096 * 1024), 0.90),
    "RMS norm 4096x4096": Case(lambda x, w: F.rms_norm(x, (4096,), w), ((4096, 4096), (4096,)), _elements(2 * 4096 * 4096 + 4096), 0.90),
    "matmul 1x4096x14336": _matmul(1, 4096, 14336, 0.90),
    "matmul 512x4096x4096": _matmul(512, 4096, 4096, 0.92),
    "matmul 512x4096x12800": _matmul(512, 4096, 12800, 0.92),
    "attention 32x2048x128": _attention(32, 2048, 128, 0.80),
    "attention 32x2048x128 causal": _attention(32, 2048, 128, 0.70, window=2048),
    "attention 32x2048x128 window 512": _attention(32, 2048, 128, 0.97, window=512),
    "conv 3x3 64->64 56x56": _convolution(64, 64, 3, 56, 0.48),
    "conv 7x7 stride 2 3->64 224x224": _convolution(3, 64, 7, 224, 0.32, stride=2),
    "conv 3x3 512->512 7x7": _convolution(512, 512, 3, 7, 0.85),
    "depthwise 3x3 64 56x56": _convolution(64, 64, 3, 56, 0.46, groups=64),
    "argmax 1x32000": Case(lambda x: torch.argmax(x, -1), ((1, 32000),), _elements(32000), 0.31),
    "softmax over dim 0 512x1024": Case(lambda x: F.softmax(x, 0), ((512, 1024),), _elements(2 * 512 * 1024), 0.90),
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
    print(f"{'kernel':<34}{'cycles':>10}{'bound':>10}{'reached':>9}{'wanted':>8}")
    for name, case in CASES.items():
        if names and not any(n in name for n in names):
            continue
        took = cycles(case)
        missed += (reached := case.work / took) < case.least
        print(f"{name:<34}{took:>10,}{case.work:>10,.0f}{reached:>9.1%}{case.least:>8.0%}{'' if reached >= case.least else '  missed'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
