"""The cost model of the planner against the cycles of the emulator, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from cost_kernels import CostCase

from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost.program import kernel_work
from ktir.emulator.machine.control.control import control
from ktir.hints import Hint
from ktir.isa.instructions import Does
from ktir.isa.program import Kernel
from ktir.isa.units import Unit
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import func, ir
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.ktir_divide_work import DivideWorkPass
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.passes.planning.kernel_price import kernel_price
from ktir.passes.planning.plan_search import STEPS, search
from ktir.passes.planning.planner import Draft, Wishes
from ktir.pipeline import run_pipeline
from ktir.target import Target

DIVIDE = "ktir-divide-work"


@dataclass(frozen=True)
class Measured:
    """One kernel of a program in cycles: as the planner prices its division, as its instructions are priced, and on the emulator."""

    kind: str
    name: str
    division: str
    planned: float
    priced: float
    cycles: int

    @property
    def ratio(self) -> float:
        """Of the planner's price to the emulator's cycles."""
        return self.planned / self.cycles


def measure(case: CostCase, target: Target) -> Iterator[Measured]:
    """Compile a program and price its kernels."""
    head, rest = ToAllocated(cores=target.cores).text().split(",ktir-plan", 1)
    before, after = f"ktir-plan{rest}".split(f",{DIVIDE}")
    option = f"work_div={case.work_div}" if case.work_div else ""
    with context(), ir.Location.unknown():
        module = parse_module(case.text, case.name)
        run_pipeline(module, head)
        (function,) = (op for op in module.body.operations if isinstance(op, func.FuncOp))
        planned = search(Draft.first(function, Wishes(target, "", Hint())), STEPS).draft.facts
        run_pipeline(module, before)
        kernels = [op for op in module.body.operations if isinstance(op, func.FuncOp) and "ktir.rows" in op.attributes]
        division = DivideWorkPass(cores=target.cores, work_div=case.work_div).division
        works = [division(kernel, KernelFacts.of_kernel(kernel, target)) for kernel in kernels]
        rest = after[after.index("}") + 1 :] if after.startswith("{") else after
        run_pipeline(module, f"{DIVIDE}{{cores={target.cores} {option}}}{rest}")
        program = lower_program(module)
    trace = control(replace(program, kernels=[_alone(kernel) for kernel in program.kernels]), target, checks=False)
    for facts, work, kernel, found in zip(planned, works, program.kernels, trace.statistics, strict=True):
        assert facts.name == kernel.name
        price = kernel_price(facts, work, target)
        yield Measured(case.kind, case.name, case.work_div, price.cycles, kernel_work(kernel, target).cost.cycles, found.cycles)


def _alone(kernel: Kernel) -> Kernel:
    """A kernel whose loads wait until it begins, as prices have it."""
    loads = [replace(w, operands={**w.operands, "ahead": 0}) if w.does is Does.MOVE else w for w in kernel.units[Unit.MNIL]]
    return replace(kernel, units={**kernel.units, Unit.MNIL: loads})


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's coefficient; equal numbers share their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    x = np.array(values)
    return (x[:, None] > x).sum(1) + 0.5 * (x[:, None] == x).sum(1)


def of_divisions(found: Iterable[Measured]) -> dict[str, float]:
    """Per program that was divided in several ways, how much longer than the fastest division the one takes that the planner likes best."""
    programs: dict[str, list[Measured]] = {}
    for m in found:
        if m.division:
            programs.setdefault(f"{m.kind} {m.name}", []).append(m)
    return {name: min(ms, key=lambda m: m.planned).cycles / min(m.cycles for m in ms) - 1 for name, ms in programs.items()}


def table(found: Sequence[Measured], worst: int = 12) -> str:
    """Per kind the ratio of the planner's price to the emulator's cycles, and the kernels where it is worst."""
    lines = [f"{'kind':<20}{'kernels':>8}{'lowest':>9}{'median':>9}{'highest':>9}   planner's price / emulator's cycles"]
    for kind in dict.fromkeys(m.kind for m in found):
        ratios = sorted(m.ratio for m in found if m.kind == kind)
        lines.append(f"{kind:<20}{len(ratios):>8}{ratios[0]:>9.2f}{median(ratios):>9.2f}{ratios[-1]:>9.2f}")
    lines.append(f"worst{'':<47}{'planned':>10}{'priced':>10}{'cycles':>10}{'ratio':>8}")
    for m in sorted(found, key=lambda m: -abs(np.log(m.ratio)))[:worst]:
        lines.append(f"{m.kind:<20}{m.name:<22}{m.division:<10}{m.planned:>10.0f}{m.priced:>10.0f}{m.cycles:>10}{m.ratio:>8.2f}")
    lines += [
        f"{name}: the division that the planner likes best is {lost:.1%} slower" for name, lost in of_divisions(found).items() if lost
    ]
    cycles = [m.cycles for m in found]
    lines.append(f"rank correlation over {len(found)} kernels: planner {rank_correlation([m.planned for m in found], cycles):.4f}, ")
    lines[-1] += f"price of the instructions {rank_correlation([m.priced for m in found], cycles):.4f}"
    return "\n".join(lines)
