"""KTIR's text against MLIR's own generic form: parsing and printing of 5,000 ktdp ops, start-up of ktir-opt, and 100 lit tests.

    python bench/text.py [--runs 7] [--ops 5000] [--lit 100]

A quarter of the ops each are views, tiles, loads and stores; every other op has operands and attributes of its own. Parsing includes all
verifiers, on both sides: the ratio is that of the pretty text to MLIR's parser and printer on the same module in generic form. Times are
the medians of runs that alternate.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.mlir import ir

TOOLS = Path(sys.executable).parent


def program(ops: int) -> str:
    """A kernel of `ops` ktdp ops, in equal parts views, tiles, loads and stores."""
    lines = ["#id = affine_map<(d0, d1) -> (d0, d1)>", "#view = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1023 >= 0, d1 >= 0, -d1 + 63 >= 0)>"]
    lines += ["#box = affine_set<(d0, d1) : (d0 >= 0, -d0 + 1 >= 0, d1 >= 0, -d1 + 63 >= 0)>", "#space = #ktdp.memory_space<global>"]
    lines += ["func.func @kernel(%x: index, %i: index) attributes {grid = [32]} {"]
    for n in range(ops // 4):
        lines += [
            f"  %v{n} = ktdp.construct_memory_view %x, sizes: [1024, 64], strides: [{64 + n % 7 * 64}, 1]"
            " {coordinate_set = #view, memory_space = #space} : memref<1024x64xf16>",
            f"  %t{n} = ktdp.construct_access_tile %v{n}[%i + {n % 97}, 0] {{access_tile_order = #id, access_tile_set = #box}}"
            " : memref<1024x64xf16> -> !ktdp.access_tile<2x64xindex>",
            f"  %l{n} = ktdp.load %t{n} : <2x64xindex> -> tensor<2x64xf16>",
            f"  ktdp.store %l{n}, %t{n} : tensor<2x64xf16>, <2x64xindex>",
        ]
    return "\n".join([*lines, "  return", "}", ""])


def clock(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def medians(runs: int, *jobs: Callable[[], object]) -> list[float]:
    """Seconds of each job; the jobs alternate."""
    for job in jobs:
        job()
    rows = [[clock(job) for job in jobs] for _ in range(runs)]
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def text(ops: int, runs: int) -> None:
    pretty = program(ops)
    with context(), ir.Location.unknown():
        module = parse_module(pretty)
        generic = module.operation.get_asm(print_generic_op_form=True)
        ours, mlir = medians(runs, lambda: parse_module(pretty), lambda: ir.Module.parse(generic))
        row("parse", ops, ours, mlir)
        ours, mlir = medians(
            runs,
            lambda: print_module(module),
            lambda: module.operation.get_asm(print_generic_op_form=True, assume_verified=True),
        )
        row("print", ops, ours, mlir)


def row(what: str, ops: int, ours: float, mlir: float) -> None:
    rate = f"{ours * 1e3:.0f} ms, {ops / ours:.0f} ops/s"
    print(f"{what} {ops} ops: {rate}; MLIR's generic form {mlir * 1e3:.0f} ms; ratio {ours / mlir:.2f}")


def start_up(runs: int) -> None:
    small = Path(tempfile.mkdtemp()) / "small.mlir"
    small.write_text(program(4))
    tool = str(TOOLS / "ktir-opt")
    ours, python = medians(
        runs,
        lambda: subprocess.run([tool, str(small), "-o", os.devnull], check=True),
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    )
    print(f"ktir-opt on 4 ktdp ops: {ours * 1e3:.0f} ms, of which Python alone {python * 1e3:.0f} ms")


LIT_CONFIG = """import os, lit.formats
config.name = "bench"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir"]
config.test_exec_root = os.path.join(os.path.dirname(__file__), "out")
config.environment["PATH"] = os.pathsep.join([{tools!r}, config.environment["PATH"]])
"""


def lit_tests(count: int) -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "lit.cfg.py").write_text(LIT_CONFIG.format(tools=str(TOOLS)))
    for n in range(count):
        (folder / f"{n}.mlir").write_text("// RUN: ktir-opt %s | filecheck %s\n// CHECK: ktdp.load\n" + program(8))
    seconds = clock(lambda: subprocess.run([TOOLS / "lit", "-q", folder], check=True))
    print(f"{count} lit tests of ktir-opt and filecheck, {os.cpu_count()} workers: {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ops", type=int, default=5000)
    parser.add_argument("--lit", type=int, default=100)
    options = parser.parse_args()
    text(options.ops, options.runs)
    start_up(options.runs)
    lit_tests(options.lit)


if __name__ == "__main__":
    main()
