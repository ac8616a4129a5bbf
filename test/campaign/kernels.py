"""Kernels with a grid as somebody may write them, drawn by a seed: on the stream they have the executor's bits, and near a sum in float64.

python test/campaign/kernels.py --programs 500 --seed 0
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from campaign.kernel_draws import Drawn, draw

from ktir.assembly import parse_module
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime.executable import Executable

NOTHING = 7
"""What outputs hold before: what no tile stores stays so."""


def judged(drawn: Drawn) -> str:
    """`equal`, `refused: ...`, or what is wrong."""
    given = [*drawn.inputs, drawn.before]
    executed = [a.copy() for a in given]
    with context(), ir.Location.unknown():
        try:
            execute(drawn.text, None, executed)
        except KtirError as error:
            return f"not executed: {error}"
        wrong = drawn.wrong(executed[-1])
        if wrong:
            return f"executor: {wrong}"
        try:
            package = read(compile_logical(parse_module(drawn.text, "kernel.mlir")))
        except KtirError as error:
            return f"refused: {error.message}" if error.location else f"refused without a place: {error}"
    executable = Executable(package)
    problems = check_package(package, executable.machine.trace)
    if problems:
        return f"stream: {problems[0]}"
    for mode in ("tape", "step"):
        arrays = [a.copy().reshape(h.size) for a, h in zip(given, executable.spec.hosts, strict=True)]
        executable(*arrays, mode=mode)
        if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, executed, strict=True)):
            return f"{mode}: other bits than the executor"
    return "equal"


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge as many kernels as asked for; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the texts of kernels that are wrong")
    options = parser.parse_args(arguments)
    found: Counter[str] = Counter()
    wrong = 0
    for seed in range(options.seed, options.seed + options.programs):
        drawn = draw(seed)
        try:
            verdict = judged(drawn)
        except Exception as error:  # a crash is a finding
            verdict = f"crash: {type(error).__name__}: {error}"
        found[verdict.partition(";")[0][:110]] += 1
        if verdict != "equal" and not verdict.startswith("refused: "):
            wrong += 1
            print(f"seed {seed}: {verdict}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{seed}.mlir").write_text(drawn.text)
    for verdict, count in found.most_common():
        print(f"{count:6} {verdict}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
