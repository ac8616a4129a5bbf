# ruff: noqa: E402
"""Times of the instruction emulator, and its bounds against the KTIR executor.

First the programs of its tests, at sizes of real layers: words of the program, events of the trace, milliseconds to verify, to run the
control plane, to build the tape and for one warm launch in each mode, microseconds per event, and what plain float32 NumPy takes for the
same mathematics. Then compiled models (`bench/programs/models.py`), each by a process of its own: a warm launch on the emulator, on one
whose control run made no checks, and of the KTIR executor on the allocated level, by machine numerics too; the ratio of the first to the
last, at most 3, and to the second, at most 1.3: the cached control run has made the checks. Launches alternate; CPU time, one BLAS thread;
exit 1 where a bound is exceeded.

    python bench/emulator.py [name ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "test" / "unit" / "emulator" / "machine")]

from machine_builds import Case
from machine_programs import Work, elementwise, matmul, reduction, softmax

from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET

EXECUTOR = 3.0
"""How much longer than the executor's a launch may take."""
CHECKS = 1.3
"""How much longer a launch may take than one of a program that was not checked."""
MODEL = "--model"

CASES: dict[str, tuple[Callable[[], Case], Callable[[], Callable[[], object]]]] = {}


def _case(name: str, case: Callable[[], Case], plain: Callable[[], Callable[[], object]]) -> None:
    CASES[name] = case, plain


def _elementwise(p: int, n: int) -> Callable[[], object]:
    x, c, r = np.ones((p, n), np.float32), np.ones((p, 1), np.float32), np.ones(n, np.float32)
    return lambda: np.exp(-np.abs(x * c + r))


def _sum(p: int, n: int) -> Callable[[], object]:
    x = np.ones((p, n), np.float32)
    return lambda: x.sum(1)


def _softmax(p: int, n: int) -> Callable[[], object]:
    x = np.random.default_rng(0).standard_normal((p, n)).astype(np.float32)

    def run() -> object:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return run


def _matmul(p: int, k: int, n: int) -> Callable[[], object]:
    a, b, bias = np.ones((p, k), np.float32), np.ones((k, n), np.float32), np.ones(n, np.float32)
    return lambda: np.maximum(a @ b + bias, 0)


_case("elementwise 57x192, 29 cores", lambda: elementwise(Work(57, 2, 2), 3), lambda: _elementwise(57, 192))
_case("elementwise 4096x1024, 32 cores, 8-row tiles", lambda: elementwise(Work(4096, 128, 8), 16), lambda: _elementwise(4096, 1024))
_case("elementwise 3999x1024, 32 cores, 8-row tiles", lambda: elementwise(Work(3999, 125, 8), 16), lambda: _elementwise(3999, 1024))
_case("sum 4096x1000", lambda: reduction(Work(4096, 128, 8), 1000), lambda: _sum(4096, 1000))
_case("softmax 57x192, 29 cores", lambda: softmax(Work(57, 2, 2), 3), lambda: _softmax(57, 192))
_case("softmax 4096x1024, 8-row tiles", lambda: softmax(Work(4096, 128, 8), 16), lambda: _softmax(4096, 1024))
_case("softmax 4096x1024, 2-row tiles", lambda: softmax(Work(4096, 128, 2), 16), lambda: _softmax(4096, 1024))
_case("matmul 512x1024x256", lambda: matmul(Work(512, 16, 16), 1024, 256), lambda: _matmul(512, 1024, 256))
_case("matmul 512x2048x2048", lambda: matmul(Work(512, 16, 16), 2048, 2048), lambda: _matmul(512, 2048, 2048))


def cpu_ms(run: Callable[[], object], repeat: int = 5) -> float:
    """Median CPU milliseconds of warm runs."""
    run()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return median(times) * 1000


def measure(case: Case, plain: Callable[[], object]) -> list[float]:
    """A row of the table."""
    program = case.program
    machine = Machine(program, DATASHEET)
    args = case.fresh()
    words = sum(len(w) for k in program.kernels for w in k.units.values())
    events = len(machine.trace.events)
    tape = cpu_ms(lambda: machine.launch(args))
    return [
        words,
        events,
        cpu_ms(lambda: verify(program, DATASHEET), 2),
        cpu_ms(lambda: control(program, DATASHEET), 2),
        cpu_ms(lambda: Tape(Builder(program, machine.trace, machine.target.corelets).build()), 1),
        tape,
        tape * 1000 / events,
        cpu_ms(lambda: machine.launch(args, "step"), 2),
        cpu_ms(plain),
    ]


def against_executor(name: str) -> int:
    """A line of the second table; 1 where a bound is exceeded."""
    from programs.models import compiled

    model = compiled(name)
    program, target = model.machine.program, model.machine.target
    unchecked = Tape(Builder(program, control(program, target, checks=False), target.corelets).build())
    functions = (lambda: model.machine.launch(model.carriers), lambda: unchecked.run(model.carriers), model.execute)
    times: list[list[float]] = [[], [], []]
    for repeat in range(8):
        for function, mine in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            if repeat:  # the first one compiles
                mine.append(time.process_time() - start)
    launch, plain, executor = (median(t) for t in times)
    ratio, checks = (median(a / b for a, b in zip(times[0], other, strict=True)) for other in (times[2], times[1]))
    wrong = [
        w for w, failed in ((f"executor above {EXECUTOR:g}", ratio > EXECUTOR), (f"checks above {CHECKS:g}", checks > CHECKS)) if failed
    ]
    row = "".join(f"{x:9.2f}" for x in (launch * 1e3, plain * 1e3, executor * 1e3, ratio, checks))
    print(f"{name:46}{row}  {', '.join(wrong)}", flush=True)
    return bool(wrong)


def main(names: list[str]) -> int:
    """Print the tables."""
    from programs.models import MODELS

    columns = ("words", "events", "verify", "control", "build", "tape", "us/event", "step", "plain")
    print(f"{'program':46}" + "".join(f"{c:>9}" for c in columns))
    for name, (make, plain) in CASES.items():
        if names and not any(n in name for n in names):
            continue
        row = measure(make(), plain())
        print(f"{name:46}" + "".join(f"{x:9}" if isinstance(x, int) else f"{x:9.2f}" for x in row))
    print(f"\n{'model':46}" + "".join(f"{c:>9}" for c in ("launch", "no check", "executor", "ratio", "checks")), flush=True)
    chosen = [name for name in MODELS if not names or any(n in name for n in names)]
    return max((subprocess.run([sys.executable, __file__, MODEL, name], check=False).returncode for name in chosen), default=0)


if __name__ == "__main__":
    sys.exit(against_executor(sys.argv[2]) if sys.argv[1:2] == [MODEL] else main(sys.argv[1:]))
