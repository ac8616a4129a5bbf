"""Causal attention with grouped heads through `torch.compile(backend="spyre")`, in float32 and float16, and the KTIR that it becomes.

python examples/attention.py [--length N] [--show]
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from collections import Counter

import torch

import ktir
import ktir.lowering.inductor  # registers the backend
from ktir.runtime.executable import recorded

HEADS, KV_HEADS, WIDTH = 6, 2, 24


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Queries (batch, heads, length, width), keys and values (batch, kv_heads, length, width) to (batch, length, heads * width)."""
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return y.transpose(1, 2).flatten(2)


def main() -> int:
    """Run the example; 1 if a result is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=57, metavar="N", help="tokens (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="print the KTIR")
    arguments = parser.parse_args()
    if arguments.length < 1:
        parser.error("--length must be at least 1")

    logging.getLogger("ktir").setLevel(logging.ERROR)  # the summary says where it runs
    generator = torch.Generator().manual_seed(0)
    exact = [torch.randn(2, heads, arguments.length, WIDTH, generator=generator) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    text = str(ktir.capture(attention, *exact))
    if arguments.show:
        print(text)
    ops = Counter(re.findall(r"(?m)^ *(?:%\w+ = )?\"?((?:ktdp|ktir|linalg|tensor)\.\w+)", text))
    print("KTIR, logical level:", ", ".join(f"{n} {op}" for op, n in ops.most_common(8)))

    good = True
    for dtype in (torch.float32, torch.float16):
        inputs = [x.to(dtype) for x in exact]
        compiled = torch.compile(attention, backend="spyre", dynamic=False, fullgraph=True)
        with torch.no_grad(), recorded() as launches:
            start = time.perf_counter()
            result = compiled(*inputs)
            first = time.perf_counter() - start
            start = time.perf_counter()
            compiled(*inputs)
            warm = time.perf_counter() - start
            reference = attention(*(x.double() for x in inputs))
            own, eager = ((r.double() - reference).abs().max().item() for r in (result, attention(*inputs)))
        limit = 1e-5 if dtype == torch.float32 else max(1.5 * eager, 5e-4)
        good &= own <= limit
        place = "the emulated chip" if launches else "the KTIR executor"  # which runs what has no instruction stream
        name = str(dtype).removeprefix("torch.")
        print(f"{name}: error {own:.1e} (eager PyTorch {eager:.1e}); ", end="")
        print(f"first {first:.1f} s with compilation, then {warm * 1e3:.1f} ms on {place}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
