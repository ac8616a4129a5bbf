# ruff: noqa: E402
"""The cost model of the planner against the emulator: a hundred and fifty kernels, the rank correlation and where it is off.

    python bench/cost_model.py [--preset fitted] [--kind attention]

`planned` is what the model says of a kernel's division before there are instructions, `priced` what their price is, `cycles` what the
emulator counts. It fails below a rank correlation of 0.95.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from cost_correlation import measure, rank_correlation, table
from cost_kernels import cases

from ktir.target import PRESETS

BOUND = 0.95


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="datasheet", help="machine description")
    parser.add_argument("--kind", help="kernels of this kind only")
    options = parser.parse_args()
    start = time.process_time()
    found = [m for case in cases() if options.kind in (None, case.kind) for m in measure(case, PRESETS[options.preset])]
    print(table(found))
    print(f"{time.process_time() - start:.1f} s of CPU time")
    return int(options.kind is None and rank_correlation([m.planned for m in found], [m.cycles for m in found]) < BOUND)


if __name__ == "__main__":
    sys.exit(main())
