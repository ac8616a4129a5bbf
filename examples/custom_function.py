"""A function of your own through `torch.compile(backend="spyre")`: what it computes, where its KTIR comes from, what runs.

    python examples/custom_function.py [--show]

`soft_rank` is no operator of PyTorch: a differentiable rank of each element within its row, from pairwise differences. It is plain
PyTorch, and becomes one KTIR program without any description of it for the compiler; each op carries the line of this file it is from.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time

import torch

import ktir
import ktir.lowering.inductor  # registers the backend
from ktir.runtime.executable import recorded


def soft_rank(x: torch.Tensor, temperature: float = 0.05) -> torch.Tensor:
    """Ranks from 1 in each row of x (rows, n), smoothed: the sum over j of sigmoid((x_i - x_j) / temperature), plus 1/2."""
    centered = x - x.mean(-1, keepdim=True)
    scaled = centered / (centered.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    differences = scaled.unsqueeze(-1) - scaled.unsqueeze(-2)
    return torch.sigmoid(differences / temperature).sum(-1) + 0.5


def main() -> int:
    """Run the example; 1 if a result is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print the KTIR")
    arguments = parser.parse_args()

    logging.getLogger("ktir").setLevel(logging.ERROR)  # the summary says where it runs
    x = torch.randn(9, 33, generator=torch.Generator().manual_seed(0))
    text = str(ktir.capture(soft_rank, x))
    if arguments.show:
        print(text)
    ops = len(re.findall(r"(?m)^\s*(?:%[\w:#, ]+ = )?\"?(?:ktdp|linalg|tensor)\.", text))
    print(f"KTIR, logical level: {ops} ops in {len(text.splitlines())} lines (--show prints them)")

    compiled = torch.compile(soft_rank, backend="spyre", dynamic=False, fullgraph=True)
    with torch.no_grad(), recorded() as launches:
        start = time.perf_counter()
        ranks = compiled(x)
        first = time.perf_counter() - start
        start = time.perf_counter()
        compiled(x)
        warm = time.perf_counter() - start
        difference = (ranks - soft_rank(x)).abs().max().item()
    place = "the emulated chip" if launches else "the KTIR executor"  # which runs what has no instruction stream
    print("first row: ", *(f"{v:.2f}" for v in x[0, :8].tolist()))
    print("soft ranks:", *(f"{v:.1f}" for v in ranks[0, :8].tolist()))
    print(f"largest difference from eager PyTorch: {difference:.1e}")
    print(f"first {first:.1f} s with compilation, then {warm * 1e3:.1f} ms on {place}")
    return 0 if difference < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
