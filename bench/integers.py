"""Integer arithmetic on the chip against a multiplication: warm CPU time of a launch, of matrices divided by matrices.

    python bench/integers.py [--rows 512] [--columns 512] [--runs 25]

All are launched in turn in one process, so that they see the same load; milliseconds are medians, and a ratio is the median of those of one
turn. Divisors have both signs. The program ends with status 1 where a ratio is above 2, or a result is not PyTorch's.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch

BOUND = 2.0
OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a * b": lambda a, b: a * b,
    "a // b": lambda a, b: a // b,
    "div(a, b), trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "a % b": lambda a, b: a % b,
    "fmod(a, b)": torch.fmod,
}


def measure(dtype: torch.dtype, rows: int, columns: int, runs: int) -> list[tuple[str, float, float]]:
    """Per operation its name, milliseconds, and how many times those of a multiplication."""
    draws = torch.Generator().manual_seed(0)
    a = torch.randint(-(10**4), 10**4, (rows, columns), generator=draws, dtype=dtype)
    b = torch.randint(1, 1000, (rows, columns), generator=draws, dtype=dtype)
    b *= 2 * torch.randint(0, 2, (rows, columns), generator=draws, dtype=dtype) - 1
    compiled = {name: torch.compile(f, backend="spyre", dynamic=False, options={"fallback": "error"}) for name, f in OPERATIONS.items()}
    times: dict[str, list[float]] = {name: [] for name in compiled}
    for name, f in compiled.items():
        for _ in range(2):  # the second launch is the first warm one
            assert torch.equal(f(a, b), OPERATIONS[name](a, b)), f"{name} of {dtype} is not PyTorch's"
    for _ in range(runs):
        for name, f in compiled.items():
            start = time.process_time()
            f(a, b)
            times[name].append((time.process_time() - start) * 1e3)
    first = next(iter(times.values()))
    return [(name, median(t), median(x / y for x, y in zip(t, first, strict=True))) for name, t in times.items()]


def main() -> int:
    """Print a table; 1 where a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--runs", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    exceeded = False
    for dtype in (torch.int32, torch.int64):
        for name, milliseconds, ratio in measure(dtype, options.rows, options.columns, options.runs):
            exceeded |= ratio > BOUND
            print(
                f"{dtype!s:12} {name:18} {milliseconds:8.2f} ms  {ratio:5.2f} of a multiplication{'  FAILS' * (ratio > BOUND)}",
                flush=True,
            )
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main())
