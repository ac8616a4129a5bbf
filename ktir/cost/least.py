"""What no plan undercuts: the cycles that a program's bytes take, moved once, and its multiplications, at the rates of the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ktir.cost.program import KernelWork
from ktir.isa.program import Program
from ktir.target import LANES, STICK_BYTES, Target

_INSIDE = ("pool", "iota")
"""Roles of arguments that the host neither gives nor takes."""


class Least(NamedTuple):
    """Of a kernel, or of a program. `bytes`: each that is touched once; `multiplications` as executed, those on padding too."""

    bytes: int
    multiplications: int
    cycles: float

    def share(self, cycles: float) -> float:
        """Of the cycles that it takes."""
        return self.cycles / cycles if cycles else 0.0


def least_of_kernel(program: Program, work: KernelWork, target: Target) -> Least:
    """Of a kernel, whatever is between kernels included."""
    return _least(program, [work], target, inside=True)


def least_of_program(program: Program, works: Sequence[KernelWork], target: Target) -> Least:
    """Of all kernels: what they hand on to each other need not be moved."""
    return _least(program, works, target, inside=False)


def _least(program: Program, works: Sequence[KernelWork], target: Target, *, inside: bool) -> Least:
    read, written = Counter[int](), Counter[int]()
    for work in works:
        for transfer in work.transfers:
            (read if transfer.reads else written)[transfer.argument] += transfer.moved
    total = 0
    for moved in (read, written):
        for number, nbytes in moved.items():
            argument = program.arguments[number]
            if inside or argument.role not in _INSIDE:
                total += min(nbytes, argument.sticks * STICK_BYTES)
    products = sum(work.multiplications for work in works)
    lanes = sum(work.lane_products for work in works)
    rate = target.cores * target.corelets * LANES * LANES / target.pt_row_cycles * target.pt_efficiency
    return Least(total, products, max(total / target.dram_bytes_per_cycle, lanes / rate))
