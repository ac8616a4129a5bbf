"""Work division of the matmuls of seven published models: the choice, what bounds it, and how far the published rules are from it.

    python bench/division.py [--preset fitted] [--rows 1 512]

`roofline` is the share of the predicted time that no division can beat: all bytes once at the full memory rate, or all multiplications on
all cores. `divisors` is what the best division into equal shares would take, as the published planner has it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from ktir.cost.division import describe, solve
from ktir.cost.model import roofline_cycles
from ktir.cost.problem import matmul
from ktir.target import PRESETS

MODELS = Path(__file__).parent / "models.json"
ROWS = (1, 4, 8, 16, 32, 64, 128, 512, 2048)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="datasheet", help="machine description")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="rows of the first operand")
    arguments = parser.parse_args()
    target = PRESETS[arguments.preset]
    models: dict[str, dict[str, list[int]]] = json.loads(MODELS.read_text())

    problems = [
        (model, matmul(m, k, n, name=f"{name} {m}x{k}x{n}", layouts="free"))
        for model, shapes in models.items()
        for name, (k, n) in shapes.items()
        for m in arguments.rows
    ]
    start = time.process_time()
    plans = [solve(problem, target) for _, problem in problems]
    seconds = time.process_time() - start

    print(f"{'model':<20}{'matmul':<26}{'division':<58}{'us':>10} {'bound':<16}{'roofline':>9}{'divisors':>9}")
    gains = []
    for (model, problem), plan in zip(problems, plans, strict=True):
        exact = solve(problem, target, tails="exact")
        gain = exact.cost.cycles / plan.cost.cycles
        gains.append(gain)
        roofline = roofline_cycles(problem, target) / plan.cost.cycles
        division = describe(problem, plan.division)
        bound = plan.cost.bound.resource.title
        print(f"{model:<20}{problem.name:<26}{division:<58}{plan.microseconds:>10.2f} {bound:<16}{roofline:>9.0%}{gain:>8.2f}x")
    print(f"{len(plans)} matmuls solved in {seconds:.2f} s")
    print(f"uneven shares gain {statistics.mean(gains):.3f}x on average, {max(gains):.2f}x at most")
    headline = solve(matmul(8192, 32768, 4096, name="8192x32768x4096", layouts="free"), target)
    print(headline.explain())


if __name__ == "__main__":
    main()
