"""What writing the metric files of `ktir-smi` adds to calls of compiled models on the device.

    python bench/monitor.py [--only WORD ...] [--runs 60]

CPU time of all threads of the process, warm, in milliseconds. Blocks of calls of about 0.1 s are by turns with and without the monitor:

    plain     a call without
    watched   a call with it: notes at each launch, and the thread that writes
    share     what is added, the median over neighbouring blocks; at most 2 %

The program ends with status 1 where that is exceeded.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median
from typing import Any

import torch
from launches import CASES, Case

from ktir.runtime.monitor import writer

MOST = 0.02
BLOCK = 0.1


def timed(case: Case, calls: int) -> float:
    begin = time.process_time()
    for _ in range(calls):
        case.before()
        case.call()
    return (time.process_time() - begin) / calls * 1e3


def measured(case: Case, runs: int) -> tuple[float, float, float]:
    """Milliseconds of a call without and with the monitor, and the share that it adds."""
    timed(case, 4)
    calls = max(1, round(BLOCK * 1e3 / timed(case, 4)))
    cards: dict[int, Any] = writer.own.cards
    kept, off = dict(cards), dict.fromkeys(cards)
    plain, watched = [], []
    for turn in range(2 * runs):
        on = turn % 4 in (0, 3)  # a drift of the machine falls on both alike
        cards.update(kept if on else off)
        (watched if on else plain).append(timed(case, calls))
    cards.update(kept)
    return median(plain), median(watched), median(w / p for w, p in zip(watched, plain, strict=True)) - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*CASES])
    parser.add_argument("--runs", type=int, default=60)
    options = parser.parse_args()
    print(f"{'':10}{'plain':>10}{'watched':>10}{'share':>9}")
    worst = 0.0
    for name in options.only:
        with torch.no_grad():
            plain, watched, share = measured(CASES[name]("spyre"), options.runs)
        worst = max(worst, share)
        print(f"{name:10}{plain:10.3f}{watched:10.3f}{share:9.1%}", flush=True)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
