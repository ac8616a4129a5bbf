"""What `torch.profiler` adds to calls of compiled models on the device.

    python bench/profiler.py [--only WORD ...] [--runs 40]

CPU time of the process, warm, in milliseconds, medians of calls that are by turns outside and inside of a profile of host and device:

    plain     a call outside
    profiled  a call inside, without the end of the profile, where its events are put together
    share     what is added; at most 5 %

The program ends with status 1 where that is exceeded.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

import torch
from launches import CASES, Case
from torch.profiler import ProfilerActivity, profile

MOST = 0.05


def timed(case: Case) -> float:
    case.before()
    begin = time.process_time()
    case.call()
    return (time.process_time() - begin) * 1e3


def measured(case: Case, runs: int) -> tuple[float, float]:
    """Milliseconds of a call outside and inside of a profile."""
    for _ in range(4):
        timed(case)
    plain, profiled = [], []
    for _ in range(runs):
        timed(case)
        plain.append(timed(case))
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]):
            timed(case)
            profiled.append(timed(case))
    return median(plain), median(profiled)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*CASES])
    parser.add_argument("--runs", type=int, default=40)
    options = parser.parse_args()
    print(f"{'':10}{'plain':>10}{'profiled':>10}{'share':>9}")
    worst = 0.0
    for name in options.only:
        with torch.no_grad():
            plain, profiled = measured(CASES[name]("spyre"), options.runs)
        worst = max(worst, share := profiled / plain - 1)
        print(f"{name:10}{plain:10.3f}{profiled:10.3f}{share:9.1%}", flush=True)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
