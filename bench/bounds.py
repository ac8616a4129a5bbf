"""How far the kernels of a model are from what no plan undercuts, and what is in the way.

    python bench/bounds.py SCRIPT.py:FUNCTION ... [--target fitted]

Each function takes no arguments and returns a model and its example inputs, as for `ktir-capture`; without one it is
`examples/capture.py:softmax`. Per kernel, those that lose most first: cycles, the least for bytes that are moved once and for
multiplications, what is lost, what bounds it and how many cycles fewer it takes without that.
"""

from __future__ import annotations

import argparse
import sys

from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost.least import least_of_kernel, least_of_program
from ktir.cost.program import kernel_work
from ktir.emulator.machine import Machine
from ktir.lowering.compile import compile_logical
from ktir.lowering.inductor.capture import capture
from ktir.mlir import ir
from ktir.package import read
from ktir.target import Target
from ktir.targets import find
from ktir.tools.shared.script import model_of


def show(name: str, text: str, target: Target | None) -> None:
    """Print the table of a captured program."""
    with context(), ir.Location.unknown():
        package = read(compile_logical(parse_module(text)))
    program = package.program
    machine = Machine(program, target or package.target)
    works = [kernel_work(kernel, machine.target) for kernel in program.kernels]
    least = least_of_program(program, works, machine.target)
    print(f"{name}: {machine.report.cycles:,} cycles, at least {least.cycles:,.0f} for {least.bytes:,} bytes and {least.multiplications:,}")
    print(f"products, {least.share(machine.report.cycles):.1%} of it; {machine.bottlenecks.program}")
    rows = []
    for kernel, work, bound in zip(machine.report.kernels, works, machine.bottlenecks.kernels, strict=True):
        own = least_of_kernel(program, work, machine.target)
        rows.append((kernel.cycles - own.cycles, kernel, own, bound))
    print(f"{'kernel':<36}{'cycles':>10}{'least':>10}{'lost':>10}  bound by")
    for lost, kernel, own, bound in sorted(rows, key=lambda row: -row[0]):
        print(f"{kernel.name:<36}{kernel.cycles:>10,}{own.cycles:>10,.0f}{lost:>10,.0f}  {bound.resource.title}, {bound.share:.0%} without")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["examples/capture.py:softmax"])
    parser.add_argument("--target")
    options = parser.parse_args()
    for name in options.models:
        model, inputs = model_of(name)
        show(name, capture(model, *inputs), find(options.target) if options.target else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
