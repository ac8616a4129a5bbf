"""Attention that reads keys and values in pages, by the number of each row as a server has them, against the same of dense ones, by the
emulator's cycles.

    python bench/paged.py

32 heads on 8 heads of keys of 128, 512 positions, pages of 64, in float16: a prefill of 64 tokens, and a decode step of four sequences. The
exit code is 1 where paged attention takes more than its share of the dense one: 1.6 for the prefill, 1.05 for the step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional as F

import ktir
from ktir.assembly import parse_module
from ktir.context import context
from ktir.emulator.machine import Machine
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read

HEADS, SHARED, SIZE, PAGE, LENGTH = 32, 8, 128, 64, 512


class Case(NamedTuple):
    """So many sequences and tokens of each, and the most that paged attention may take of dense attention's cycles."""

    sequences: int
    tokens: int
    most: float


CASES = {"prefill": Case(1, 64, 1.6), "decode": Case(4, 1, 1.05)}


def dense(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """`q` [sequences, tokens, heads, size], `keys` and `values` [sequences, length, shared heads, size], `positions` of tokens."""
    seen = torch.arange(keys.shape[1])[None, None, None, :] <= positions[:, None, :, None]
    q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True).transpose(1, 2)


def paged(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Of keys and values [pages, page, shared heads, size] the `rows` [sequences, length] of each sequence."""
    k, v = (c.view(-1, SHARED * SIZE).index_select(0, rows.view(-1)).view(len(rows), -1, SHARED, SIZE) for c in (keys, values))
    return dense(q, k, v, positions)


def cycles(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> int:
    """What the emulator counts."""
    with context(), ir.Location.unknown():
        package = read(compile_logical(parse_module(ktir.capture(function, *inputs))))
    return Machine(package.program, package.target).report.cycles


def inputs_of(case: Case) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Of dense and of paged attention."""
    sequences, tokens, _ = case
    q = torch.randn(sequences, tokens, HEADS, SIZE, dtype=torch.float16)
    keys, values = (torch.randn(sequences, LENGTH, SHARED, SIZE, dtype=torch.float16) for _ in range(2))
    positions = (LENGTH - tokens + torch.arange(tokens)).expand(sequences, -1).contiguous()
    count = LENGTH // PAGE
    cache = [torch.randn(2 * sequences * count, PAGE, SHARED, SIZE, dtype=torch.float16) for _ in range(2)]
    pages = torch.randperm(2 * sequences * count)[: sequences * count].view(sequences, count)
    rows = (pages[:, :, None] * PAGE + torch.arange(PAGE)).flatten(1)
    return (q, keys, values, positions), (q, *cache, positions, rows)


def main() -> int:
    """Print the table."""
    missed = 0
    print(f"{'':<10}{'paged':>10}{'dense':>10}{'ratio':>8}{'most':>8}")
    for name, case in CASES.items():
        of_dense, of_paged = inputs_of(case)
        one, other = cycles(paged, *of_paged), cycles(dense, *of_dense)
        missed += one > case.most * other
        print(f"{name:<10}{one:>10,}{other:>10,}{one / other:>8.3f}{case.most:>8}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
