# ruff: noqa: E402
"""Times of the instruction emulator on the programs of its tests, at sizes of real layers.

Columns: words of the program, events of the trace, milliseconds to verify, to run the control plane, to build the tape and for one warm
launch in each mode, microseconds per event, and what plain float32 NumPy takes for the same mathematics. CPU time, one BLAS thread.

    OPENBLAS_NUM_THREADS=1 python bench/emulator.py [name ...]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test" / "unit" / "emulator" / "machine")]

from machine_programs import Case, Work, elementwise, matmul, reduction, softmax

from ktir.emulator.machine import Machine
from ktir.emulator.machine.control import control
from ktir.emulator.machine.tape import Tape
from ktir.isa.verify import verify

CASES: dict[str, tuple[Callable[[], Case], Callable[[], object]]] = {}


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
    machine = Machine(program)
    args = case.fresh()
    words = sum(len(w) for k in program.kernels for w in k.units.values())
    events = len(machine.trace.events)
    tape = cpu_ms(lambda: machine.launch(args))
    return [
        words,
        events,
        cpu_ms(lambda: verify(program), 2),
        cpu_ms(lambda: control(program), 2),
        cpu_ms(lambda: Tape(program, machine.trace, machine.target.corelets), 1),
        tape,
        tape * 1000 / events,
        cpu_ms(lambda: machine.launch(args, "step"), 2),
        cpu_ms(plain),
    ]


def main(names: list[str]) -> None:
    """Print the table."""
    columns = ("words", "events", "verify", "control", "build", "tape", "us/event", "step", "plain")
    print(f"{'program':46}" + "".join(f"{c:>9}" for c in columns))
    for name, (make, plain) in CASES.items():
        if names and not any(n in name for n in names):
            continue
        row = measure(make(), plain())
        print(f"{name:46}" + "".join(f"{x:9}" if isinstance(x, int) else f"{x:9.2f}" for x in row))


if __name__ == "__main__":
    main(sys.argv[1:])
