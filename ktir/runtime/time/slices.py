"""What of a step a timeline shows: the kernels of a program, or a copy; what the host computes takes no time."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.label import label, lines
from ktir.emulator.machine.reports.report import KernelReport
from ktir.isa.units import Unit
from ktir.runtime.time.steps import Step

_COPIES = {"H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "Relayout": "Relayout"}


class Slice(NamedTuple):
    """A part of a step that has a row of a timeline to itself. `category`: Kineto's."""

    name: str
    category: str
    ns: float
    arguments: dict[str, Any]


def slices(step: Step) -> list[Slice]:
    """The parts of a step, one after the other: they last as long as it does."""
    if step.machine is not None:
        found = _kernels.get(step.machine)
        if found is None:
            found = _kernels[step.machine] = _kernels_of(step.machine)
        return found
    if (copy := _COPIES.get(step.kind)) is not None:
        program = {"program": step.name} if step.name else {}
        rate = {"memory bandwidth (GB/s)": round(step.nbytes / step.ns, 3)} if step.ns else {}
        return [Slice(f"Memcpy {copy}", "gpu_memcpy", step.ns, {"bytes": step.nbytes, **rate, **program})]
    return [Slice(f"{step.kind} {step.name}".strip(), "kernel" if step.kind == "Compute" else "cpu_op", step.ns, {})]


_kernels: WeakKeyDictionary[Machine, list[Slice]] = WeakKeyDictionary()


def _kernels_of(machine: Machine) -> list[Slice]:
    found = []
    for kernel, report, bound in zip(machine.program.kernels, machine.report.kernels, machine.bottlenecks.kernels, strict=True):
        arguments = {
            "program": machine.program.name,
            "grid": [report.cores, 1, 1],
            "block": [machine.target.corelets, 1, 1],
            "cycles": report.cycles,
            "bytes read": report.dram_read,
            "bytes written": report.dram_written,
            "PT busy": round(next((u.utilisation for u in report.units if u.unit is Unit.PT), 0.0), 4),
            "waits": _waits(report),
            "bound by": bound.resource.title,
            "fewer cycles without it": round(bound.share, 4),
            "to relieve it": bound.resource.remedy,
            "source": lines(machine.program, kernel),
        }
        found.append(Slice(f"{label(kernel)}: {kernel.name}", "kernel", report.cycles / machine.target.clock_ghz, arguments))
    return found


def _waits(report: KernelReport) -> dict[str, int]:
    """Per unit the cycles of the cause for which it waited longest."""
    worst = {u.unit.name: max(u.stalls.items(), key=lambda stall: stall[1]) for u in report.units if u.stalls}
    return {f"{unit}: {cause}": cycles for unit, (cause, cycles) in worst.items()}
