# ruff: noqa: E402
"""What the chip's compiler takes for seven families of two-layer language models: all passes, and what comes after them.

    python bench/compile.py [--only WORD ...] [--cores 32] [--programs DIR] [--json FILE]

Programs: prefill and decode of each family at even and odd sizes, float16, static cache, as the front end captures them; with `--programs`
they are read from DIR (`*.mlir`), or left there if it has none. Seconds of CPU time in a warm process (a first program is compiled and not
counted):

    passes   logical -> allocated KTIR, at most 3.0; the three slowest passes are named
    stream   allocated KTIR -> instructions, verified
    print    text of the allocated level with locations, and the launch spec
    files    the binary and the other files of the package

The program ends with status 1 where the bound is exceeded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.lowering.compile import launch_spec, pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import Package
from ktir.pipeline import Step, run_pipeline

BOUND = 3.0


@dataclass
class Row:
    """A line of the table, in seconds of CPU time."""

    program: str
    passes: float
    stream: float
    print: float
    files: float
    each: dict[str, float]


class _Clock:
    def __init__(self) -> None:
        self.last = time.process_time()

    def lap(self) -> float:
        """Seconds since the last call."""
        now = time.process_time()
        passed, self.last = now - self.last, now
        return passed


def measure(name: str, text: str, cores: int) -> Row:
    """Compile one program all the way down."""
    each: dict[str, float] = {}
    with context(), ir.Location.unknown():
        module = parse_module(text, name)
        clock = _Clock()

        def after(step: Step, _: ir.Module) -> None:
            each[step.name] = clock.lap()

        run_pipeline(module, pipeline(cores), verify_each=False, after_each=after)
        program = lower_program(module)
        stream = clock.lap()
        spec, allocated = launch_spec(module, program), print_module(module, debuginfo=True)
        printed = clock.lap()
        Package(program, spec, {"allocated.ktir.mlir": allocated.encode()}).to_files()
        return Row(name, sum(each.values()), stream, printed, clock.lap(), each)


def captured() -> Iterator[tuple[str, str]]:
    """The programs, fresh from the front end."""
    from models.families import EVEN, FAMILIES, ODD
    from models.test_stream import program

    for family in FAMILIES:
        for size, sizes in (("even", EVEN), ("odd", ODD)):
            for decode in (False, True):
                yield f"{family}_{size}_{'decode' if decode else 'prefill'}", program(family, sizes, decode=decode)


def programs(folder: Path | None) -> Iterator[tuple[str, str]]:
    """The programs, from a folder where one is given and has them."""
    stored = sorted(folder.glob("*.mlir")) if folder is not None else []
    if stored:
        yield from ((path.stem, path.read_text()) for path in stored)
        return
    for name, text in captured():
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.mlir").write_text(text)
        yield name, text


def main() -> int:
    """Print the table; 1 if a program takes longer than the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="programs with one of these words in their name")
    parser.add_argument("--cores", type=int, default=32, help="cores to divide over")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="folder of captured programs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    chosen = [(n, t) for n, t in programs(arguments.programs) if not arguments.only or any(word in n for word in arguments.only)]
    if not chosen:
        print("no program has such a name", file=sys.stderr)
        return 1
    measure(*chosen[0], arguments.cores)
    print(f"{'program':<26}{'passes':>8}{'stream':>8}{'print':>8}{'files':>8}  slowest passes")
    rows = []
    for name, text in chosen:
        rows.append(row := measure(name, text, arguments.cores))
        slowest = sorted(row.each.items(), key=lambda e: -e[1])[:3]
        figures = "".join(f"{seconds:>8.2f}" for seconds in (row.passes, row.stream, row.print, row.files))
        named = ", ".join(f"{pass_name.removeprefix('ktir-')} {seconds:.2f}" for pass_name, seconds in slowest)
        print(f"{name:<26}{figures}  {named}", flush=True)
    worst = max(rows, key=lambda r: r.passes)
    print(f"\nslowest: {worst.program}, {worst.passes:.2f} s of passes; bound {BOUND} s")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return int(worst.passes > BOUND)


if __name__ == "__main__":
    sys.exit(main())
