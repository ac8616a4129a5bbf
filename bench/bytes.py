"""How near linears of bytes come to what bounds them, 4096 to 14336, by the emulator's cycles on the preset `datasheet`.

    python bench/bytes.py [1 2048 ...]
    python bench/bytes.py blocks

For each number of rows: weights of one byte with activations of two, and products of bytes, which the array multiplies twice as fast, of
given activations and of such that the program quantises. The bound is the larger one of its products at the peak rate and of every distinct
byte once. The exit code is 1 where a bound is missed.

`blocks`: whole blocks of a language model whose activations are quantised in front of each linear; they should take less than in bfloat16,
unless they are so small that steps between products matter more than these.
"""

from __future__ import annotations

import sys
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
from ktir.target import DATASHEET, LANES

K, N = 4096, 14336
GROUP = 128
"""Weights of four bits that share a scale."""
PEAK = DATASHEET.cores * DATASHEET.corelets * LANES * LANES / DATASHEET.pt_row_cycles
"""Products of floats of 16 bits per cycle."""
E4M3 = torch.float8_e4m3fn


def _fp8(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._scaled_mm(a, w.t(), s, t, out_dtype=torch.float16)


def _int8(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return (torch.ops.aten._int_mm(a, w.t()).float() * s * t).half()


def _made_fp8(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Each row quantised by its largest number."""
    own = a.float().abs().amax(-1, keepdim=True) / 448
    return torch.ops.aten._scaled_mm((a.float() / own).to(E4M3), w.t(), own, t, out_dtype=torch.float16)


def _made_int8(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    own = a.float().abs().amax(-1, keepdim=True) / 127
    small = (a.float() / own).round().clamp(-127, 127).to(torch.int8)
    return (torch.ops.aten._int_mm(small, w.t()).float() * own * t).half()


def _weights(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, w.t().half())


def _scaled(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Dequantised in front of the product."""
    return torch.nn.functional.linear(a, w.half() * t.half().t())


def _words(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Weights of four bits, eight in a word along K, with a scale per column and group."""
    places = torch.arange(0, 32, 4, dtype=torch.int32)
    weights = ((w[:, None] >> places[None, :, None]) & 15).reshape(K, N)
    return torch.mm(a, (weights.to(a.dtype) - 8) * s.repeat_interleave(GROUP, 0))


def _nibbles(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Two weights in a byte along K, with a scale per row and group."""
    weights = torch.stack((w & 15, w >> 4), -1).flatten(1)
    return torch.nn.functional.linear(a, ((weights.to(a.dtype) - 8).unflatten(1, (s.shape[1], -1)) * s[:, :, None]).flatten(1))


def _packed(a: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """As PyTorch packs them for the host, with pairs of scales and zeros per group."""
    return torch.ops.aten._weight_int4pack_mm_for_cpu(a, w, GROUP, s)


CASES: dict[str, tuple[Callable[..., torch.Tensor], torch.dtype, torch.dtype, int]] = {
    "float16": (_weights, torch.float16, torch.float16, 1),
    "fp8 weights": (_weights, torch.float16, E4M3, 1),
    "int8 weights": (_weights, torch.float16, torch.int8, 1),
    "fp8 scaled": (_scaled, torch.float16, E4M3, 1),
    "int8 scaled": (_scaled, torch.float16, torch.int8, 1),
    "fp8 x fp8": (_fp8, E4M3, E4M3, 2),
    "int8 x int8": (_int8, torch.int8, torch.int8, 2),
    "made fp8 x fp8": (_made_fp8, torch.float16, E4M3, 2),
    "made i8 x int8": (_made_int8, torch.float16, torch.int8, 2),
}
"""What is computed, the types of activations and weights, and how many products the array does in the time of one."""

INT4: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor]] = {
    "int4 in words": (_words, torch.zeros(K // 8, N, dtype=torch.int32), torch.ones(K // GROUP, N).half()),
    "int4 in bytes": (_nibbles, torch.zeros(N, K // 2, dtype=torch.uint8), torch.ones(N, K // GROUP).half()),
    "int4 of ATen": (_packed, torch.zeros(N, K // 2, dtype=torch.uint8), torch.ones(K // GROUP, N, 2).half()),
}
MADE = 0.75
"""Of the bound of many rows that are quantised: the program writes and reads them once more, which the bound does not have."""
MOST_OF_INT4 = 128
"""Rows with which weights of four bits are timed."""


BLOCKS = [(256, 256), (512, 1024), (128, 2048)]
"""Rows and hidden size; four times as wide inside, heads of 64."""
SMALL = 256
"""Hidden size up to which what lies between the products is most of it."""


def _linear(x: torch.Tensor, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """By weights of the type of the activations, or of a byte."""
    if w.dtype == x.dtype:
        return x @ w.t()
    own = x.float().abs().amax(-1, keepdim=True) / (127 if w.dtype == torch.int8 else 448)
    scaled = x.float() / own
    if w.dtype == E4M3:
        return torch.ops.aten._scaled_mm(scaled.to(E4M3), w.t(), own, t, out_dtype=x.dtype)
    return (torch.ops.aten._int_mm(scaled.round().clamp(-127, 127).to(torch.int8), w.t()).float() * own * t).to(x.dtype)


def _block(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    """Attention and a gated network, each behind a norm and in front of a sum."""
    functional = torch.nn.functional
    q, k, v, o, gate, up, down = zip(weights[::2], weights[1::2], strict=True)
    hidden = x.shape[-1]
    h = functional.rms_norm(x, (hidden,))
    queries, keys, values = (_linear(h, *w).view(len(x), hidden // 64, 64).transpose(0, 1)[None] for w in (q, k, v))
    x = x + _linear(functional.scaled_dot_product_attention(queries, keys, values)[0].transpose(0, 1).flatten(1), *o)
    h = functional.rms_norm(x, (hidden,))
    return x + _linear(functional.silu(_linear(h, *gate)) * _linear(h, *up), *down)


def blocks() -> int:
    """Print the table of whole blocks; 1 where one takes more than in bfloat16."""
    missed = False
    print(f"{'rows':>5} {'hidden':>6} {'bfloat16':>10} {'int8':>10} {'fp8':>10}")
    for rows, hidden in BLOCKS:
        shapes = [(hidden, hidden)] * 4 + [(4 * hidden, hidden)] * 2 + [(hidden, 4 * hidden)]
        x = torch.ones(rows, hidden).bfloat16()
        plain, *small = [
            cycles(_block, x, *(t for n, k in shapes for t in (torch.zeros(n, k, dtype=dtype), torch.ones(1, n))))
            for dtype in (torch.bfloat16, torch.int8, E4M3)
        ]
        print(f"{rows:5} {hidden:6} {plain:10,} {small[0]:10,} {small[1]:10,}", flush=True)
        missed |= max(small) > plain and hidden > SMALL
    return int(missed)


def cycles(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """Cycles of the compiled function."""
    with torch.no_grad():
        text = ktir.capture(function, *inputs)
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return Machine(lower_program(module), DATASHEET).report.cycles


def main() -> int:
    """Print the table; 1 where a bound is missed."""
    if sys.argv[1:] == ["blocks"]:
        return blocks()
    missed = False
    print(f"{'':14} {'rows':>5} {'cycles':>10} {'products':>10} {'memory':>10} reached")
    for rows in map(int, sys.argv[1:] or ["1", "2048"]):
        for name, (function, first, second, at_once) in CASES.items():
            inputs = [torch.zeros(rows, K, dtype=first), torch.zeros(N, K, dtype=second), torch.ones(rows, 1), torch.ones(1, N)]
            products = rows * K * N / (PEAK * at_once)
            scales = inputs[2:] if at_once == 2 else []
            memory = (sum(t.nbytes for t in (*inputs[:2], *scales)) + 2 * rows * N) / DATASHEET.dram_bytes_per_cycle
            found = cycles(function, *inputs)
            missed |= _told(name, rows, found, products, memory, 0.9 if rows == 1 else MADE if name.startswith("made") else 0.8)
        if rows > MOST_OF_INT4:
            continue
        for name, (function, packed, scales) in INT4.items():
            inputs = [torch.zeros(rows, K).half(), packed, scales]
            memory = (sum(t.nbytes for t in inputs) + 2 * rows * N) / DATASHEET.dram_bytes_per_cycle
            missed |= _told(name, rows, cycles(function, *inputs), rows * K * N / PEAK, memory, 0.85 if rows == 1 else 0.0)
    return int(missed)


def _told(name: str, rows: int, found: int, products: float, memory: float, least: float) -> bool:
    """Print a row; whether the bound is missed."""
    reached = max(products, memory) / found
    print(f"{name:14} {rows:5} {found:10,} {products:10,.0f} {memory:10,.0f} {reached:.1%} of {least:.0%}", flush=True)
    return reached < least


if __name__ == "__main__":
    sys.exit(main())
