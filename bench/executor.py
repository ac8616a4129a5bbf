# ruff: noqa: E402
"""The KTIR executor against plain NumPy and BLAS: time, memory, checks, growth, and what an op, a plan and a launch cost.

    python bench/executor.py [--runs 7] [--only WORD ...] [--json FILE] [--examples DIR]

One BLAS thread; CPU time of one process; executor and NumPy alternate, so that both see the same load; medians, and medians of ratios.
NumPy does the same arithmetic from and to the same arrays: f16 in, f32 inside on work arrays that exist already, one rounding to f16 at
the end. The kernels round where KTIR says so: the rows named "loop" compute every op in f16, and so do RMS norm and RoPE.

Kernels: milliseconds of a warm launch under `machine` and `fast`, and of NumPy; the ratio to NumPy with its bound; `checks`: all checks
on against all off, at most 1.3; `memory`: how far a process of its own grows beyond the arrays given while it compiles and launches
once, in MB, and how far it may: four times the arrays plus 64 MB. `fails` names the bounds that a line exceeds; the program then
ends with status 1.

With --examples DIR the kernels of torch-spyre/ktir-cpu in DIR run too (a checkout's folder `examples`; it is no part of this repository).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test" / "unit" / "emulator" / "reference")]

from programs import decoder, kernels
from programs.examples import examples
from programs.kernels import Case

from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute

CHECKS = 1.3
"""How much longer a launch with checks may take than one without."""
MEMORY = 4, 64
"""Growth allowed: so many times the arrays, plus so many MB."""


@dataclass
class Row:
    """A line of the table of kernels: how to make the case, and the largest ratios to NumPy."""

    make: Callable[[], Case]
    machine: float | None = None
    fast: float | None = None


ROWS = [
    Row(lambda: kernels.softmax_tiles(4096, 1024, 32, 32), machine=1.6),
    Row(lambda: kernels.softmax_rows(4096, 1024, 32), machine=1.6),
    Row(lambda: kernels.layer_norm(1151, 8192), machine=2),
    Row(lambda: kernels.layer_norm_rows(1151, 8192, 32), machine=2),
    Row(lambda: kernels.matmul_blocks(64, 2048, 8192, (2, 16)), machine=6, fast=1.5),
    Row(lambda: kernels.rms_norm(256, 4096, 4), machine=4),
    Row(lambda: kernels.rope(40, 4096, 128, 8), machine=1.5),
    Row(lambda: kernels.embedding(32000, 512, 4096, 32), machine=5),
    Row(lambda: kernels.paged_attention(8, 32, 4, 128, 64, 8), machine=5),
    Row(lambda: kernels.paged_attention(8, 32, 4, 128, 64, 32, page=64), machine=5),
    Row(lambda: kernels.paged_attention(8, 32, 4, 128, 256, 128), machine=5),
    Row(lambda: kernels.gather(1024, 512, 32), machine=5),
    Row(lambda: kernels.scatter(1024, 512, 32), machine=5),
    Row(lambda: decoder.chain(16, 4096, 8192), fast=1.5),
]


@dataclass
class Result:
    """What a line of the table of kernels says; times in milliseconds, memory in MB."""

    name: str
    first: float
    machine: float
    fast: float
    numpy: float
    ratio: float
    ratio_fast: float
    checks: float
    memory: float
    most_memory: float
    bounds: dict[str, float] = field(default_factory=dict)
    fails: list[str] = field(default_factory=list)


def clock(run: Callable[[], object]) -> float:
    """CPU milliseconds."""
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def launch(case: Case, policy: Policy | None = None) -> None:
    execute(case.text, args=case.arguments, policy=policy or case.policy)


def agrees(case: Case) -> bool:
    """Whether the launch has left what NumPy computes, as far as rounding goes."""
    got, want = (np.asarray(x, np.float64) for x in (case.arguments[case.result], case.plain()))
    return bool((np.abs(got - want) <= case.tolerance * (1 + np.abs(want))).all())


def alternate(functions: Iterable[Callable[[], object]], runs: int) -> list[list[float]]:
    """Times of each function, run in turn."""
    functions = list(functions)
    return [list(column) for column in zip(*([clock(f) for f in functions] for _ in range(runs)), strict=True)]


def ratio(a: list[float], b: list[float]) -> float:
    return median(x / y for x, y in zip(a, b, strict=True))


def measure(row: Row, runs: int, memory: Callable[[], tuple[float, float]] | None) -> Result:
    case = row.make()
    fast = replace(case.policy, numerics="fast")
    free = replace(case.policy, bounds=False, races=False, uninitialized=False)
    first = clock(lambda: launch(case))
    fails = [] if agrees(case) else ["values"]
    for policy in (fast, free):
        launch(case, policy)
    machine, quick, bare, plain = alternate(
        [lambda: launch(case), lambda: launch(case, fast), lambda: launch(case, free), case.plain], runs
    )
    grown, most = memory() if memory else (0.0, float("inf"))
    result = Result(
        case.name, first, median(machine), median(quick), median(plain), ratio(machine, plain), ratio(quick, plain), ratio(machine, bare),
        grown, most, {k: v for k, v in (("machine", row.machine), ("fast", row.fast)) if v}, fails,
    )  # fmt: skip
    measured = {"machine": result.ratio, "fast": result.ratio_fast}
    result.fails += [k for k, most in result.bounds.items() if measured[k] > most]
    result.fails += ["checks"] * (result.checks > CHECKS) + ["memory"] * (grown > most)
    return result


# Memory


def _status(key: str) -> float:
    """A size in MB that the kernel reports of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{key}:")[1].split()[0]) / 1024


def grow(number: int) -> None:
    """Print how many MB the process grows by one launch of a case, and how many it may."""
    launch(kernels.softmax_rows(64, 64, 2))  # loads everything that is loaded once
    case = ROWS[number].make()
    given = sum(a.nbytes for a in case.arguments if isinstance(a, np.ndarray)) / 2**20
    for array in case.arguments:
        if isinstance(array, np.ndarray):
            array[...] = array  # zeros are not resident before they are written
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    launch(case)
    print(json.dumps([_status("VmHWM") - before, MEMORY[0] * given + MEMORY[1]]))


def memory_of(number: int) -> tuple[float, float]:
    done = subprocess.run([sys.executable, __file__, "--grow", str(number)], check=True, stdout=subprocess.PIPE, text=True)
    grown, most = json.loads(done.stdout)
    return grown, most


# What grows


@dataclass
class Check:
    """A line of the other tables: what was measured, and whether it is within its bound."""

    name: str
    value: float
    unit: str
    bound: float
    note: str = ""

    @property
    def fails(self) -> bool:
        return self.value > self.bound


def growth(runs: int) -> list[Check]:
    """Time per row from 1024 to 16384 rows, and 32 tiles against one, at the same work."""
    checks: list[Check] = []
    for what, make in (
        ("1-row loop", lambda rows: kernels.softmax_rows(rows, 1024, 32)),
        ("tiled", lambda rows: kernels.softmax_tiles(rows, 1024, 32, 32)),
    ):
        cases = [make(rows) for rows in (1024, 4096, 16384)]
        for case in cases:
            launch(case)
        times = alternate([lambda case=case: launch(case) for case in cases], runs)
        rows = [median(t) * 1e3 / n for t, n in zip(times, (1024, 4096, 16384), strict=True)]
        note = f"{rows[0]:.2f}, {rows[1]:.2f}, {rows[2]:.2f} us per row at 1024, 4096, 16384 rows"
        checks.append(Check(f"softmax, {what}: time per row, most / least", max(rows) / min(rows), "", 1.5, note))
        del cases
    for block in (1, 32):
        many, one = kernels.softmax_rows(4096, 1024, 32, block), kernels.softmax_rows(4096, 1024, 1, block)
        for case in (many, one):
            launch(case)
        a, b = alternate([lambda: launch(many), lambda: launch(one)], runs)  # noqa: B023
        note = f"{median(a):.1f} and {median(b):.1f} ms"
        checks.append(Check(f"softmax 4096x1024, {block}-row loop: 32 tiles / 1 tile", ratio(a, b), "", 1.3, note))
    return checks


def overheads(runs: int) -> list[Check]:
    """What an op costs on small tensors, a plan at first, and a launch at least."""
    checks: list[Check] = []
    tiny = decoder.pointwise_chain(10, 64)
    launch(tiny)
    (times,) = alternate([lambda: launch(tiny)], 20 * runs)
    checks.append(Check("launch of 10 ops on 64 elements", median(times) * 1e3, "us", 300))
    for ops, most in ((500, 250), (5000, 2500)):
        case = decoder.pointwise_chain(ops, 64)
        first = clock(lambda: launch(case))  # noqa: B023
        (times,) = alternate([lambda: launch(case)], runs)  # noqa: B023
        warm = median(times)
        checks.append(Check(f"plan of {ops} ops", first - warm, "ms", most))
        checks.append(Check(f"each of {ops} ops on 64 elements", warm * 1e3 / ops, "us", 30))
    for sizes, most in ((decoder.Sizes(hidden=64, heads=4, keys=2, inner=128, context=16), 20.0), (decoder.Sizes(), 40.0)):
        case = decoder.decode(sizes)
        first = clock(lambda: launch(case))  # noqa: B023
        wrong = "" if agrees(case) else "; WRONG VALUES"
        times, plain = alternate([lambda: launch(case), case.plain], 5 * runs)  # noqa: B023
        report = execute(case.text, args=case.arguments)
        note = f"{report.ops} ops; first launch {first:.0f} ms; NumPy {median(plain):.2f} ms{wrong}"
        checks.append(Check(case.name, float("inf") if wrong else median(times), "ms", most, note))
    return checks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="launches of each case")
    parser.add_argument("--only", nargs="*", default=[], help="kernels whose name contains one of these words, and nothing else")
    parser.add_argument("--json", type=Path, help="write all results to this file too")
    parser.add_argument("--examples", type=Path, help="folder `examples` of a checkout of torch-spyre/ktir-cpu")
    parser.add_argument("--grow", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.grow is not None:
        grow(arguments.grow)
        return 0
    runs = arguments.runs
    rows: list[tuple[Row, int | None]] = [(row, i) for i, row in enumerate(ROWS)]
    if arguments.examples:
        rows += [(Row(make, machine, fast), None) for make, machine, fast in examples(arguments.examples)]
    print(__doc__.split("\n\n")[2] + "\n")  # type: ignore[union-attr]
    titles = ("first", "machine", "fast", "NumPy", "ratio", "bound", "fast", "bound", "checks", "memory", "most")
    widths = (8, 8, 8, 8, 6, 6, 6, 6, 6, 7, 6)
    print(f"{'kernel':44} " + " ".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)) + "  fails")
    results: list[Result] = []
    for row, number in rows:
        name = row.make().name
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        r = measure(row, runs, None if number is None else lambda n=number: memory_of(n))
        results.append(r)
        bounds = [f"{r.bounds[k]:.1f}" if k in r.bounds else "" for k in ("machine", "fast")]
        print(
            f"{r.name:44} {r.first:8.1f} {r.machine:8.2f} {r.fast:8.2f} {r.numpy:8.2f} {r.ratio:6.2f} {bounds[0]:>6} {r.ratio_fast:6.2f} "
            f"{bounds[1]:>6} {r.checks:6.2f} {r.memory:7.1f} {r.most_memory:6.0f}  {', '.join(r.fails)}",
            flush=True,
        )
    checks: list[Check] = []
    for make in () if arguments.only else (growth, overheads):
        print(f"\n{make.__doc__}\n")
        for check in make(runs):
            checks.append(check)
            print(
                f"{check.name:60} {check.value:8.2f} {check.unit:3} (at most {check.bound:g})  {check.note}{'  FAILS' * check.fails}",
                flush=True,
            )
    if arguments.json:
        found = {"kernels": [asdict(r) for r in results], "checks": [{**asdict(c), "fails": c.fails} for c in checks]}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(r.fails for r in results) or any(c.fails for c in checks))


if __name__ == "__main__":
    sys.exit(main())
