"""The pictures of `ktir-report`: which figures of a package each of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError, close_to
from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports.occupancy import lives
from ktir.emulator.machine.reports.roofline import roofline
from ktir.emulator.machine.trace.trace import Trace
from ktir.explore.pictures import division, layouts, scratchpad, tile_loop, timeline
from ktir.explore.pictures import roofline as rooflines
from ktir.explore.pictures.sheet import save
from ktir.package import Package
from ktir.runtime.memory.slot import layout_of

__all__ = ["Drawing", "save"]


class Drawing:
    """Of a package in a folder that a machine runs. Each method gives a figure of matplotlib, and raises KtirError where there is nothing
    to draw. kernel: the name of one, or None for the one that takes longest; core: whose LX.
    """

    def __init__(self, package: Package, machine: Machine, folder: Path, kernel: str | None, core: int) -> None:
        self.package, self.machine, self.folder, self.core = package, machine, folder, core
        self._kernel = kernel

    def roofline(self) -> Any:
        """The roofline."""
        places = roofline(self.machine.trace, self.machine.target)
        return rooflines.draw(places, self.machine.report.kernels, self.machine.bottlenecks.kernels, self.machine.target)

    def lx(self) -> Any:
        """LX over time."""
        trace = self.machine.trace
        found = lives(self.machine.program, trace, self.core)
        return scratchpad.draw(found, [k.name for k in self.machine.report.kernels], trace.starts, self.machine.target, self.core)

    def timeline(self) -> Any:
        """What units do when."""
        return timeline.draw(self.machine.program.name, self._journals, self.machine.target)

    def loop(self) -> Any:
        """The tile loop of the kernel."""
        names = [k.name for k in self.machine.report.kernels]
        return tile_loop.draw(self._journals, names.index(self._chosen(names)), self.machine.target)

    def division(self) -> Any:
        """The division of the kernel, as its KTIR says it."""
        from ktir.analysis.attributes.kernel import KernelFunction
        from ktir.analysis.calls import functions_of
        from ktir.assembly import parse_module
        from ktir.context import context
        from ktir.mlir import ir

        place = self.folder / "allocated.ktir.mlir"
        with context(), ir.Location.unknown():
            module = parse_module(place.read_text(), str(place))  # functions live as long as it does
            functions = functions_of(module)
            divided = {name: KernelFunction(f.operation) for name, f in functions.items() if "ktir.work" in f.attributes}
            if self._kernel in functions and self._kernel not in divided:
                said = "its author, or an exchange, says what each core does"
                raise KtirError(f"--division: kernel '{self._kernel}' is not divided by the compiler: {said}")
            if not divided:
                raise KtirError("--division: no kernel of the program is divided by the compiler")
            name = self._chosen([k.name for k in self.machine.report.kernels if k.name in divided])
            kernel = divided[name]
            return division.draw(name, kernel.work, kernel.rows, kernel.cores)

    def layout(self, name: str) -> Any:
        """The sticks of an argument."""
        arguments = {a.name: a for a in self.package.launch_spec.args}
        if name not in arguments:
            raise KtirError(f"--layout: the program has no argument '{name}'{close_to(name, arguments)}; it has {', '.join(arguments)}")
        return layouts.draw(arguments[name], layout_of(arguments[name]))

    @cached_property
    def _journals(self) -> Trace:
        return control(self.machine.program, self.machine.target, checks=False, journal=True)

    def _chosen(self, names: Sequence[str]) -> str:
        """The kernel that is asked for, of these."""
        if self._kernel is None:
            return max((k for k in self.machine.report.kernels if k.name in names), key=lambda k: k.cycles).name
        if self._kernel not in names:
            known = f"{close_to(self._kernel, names)}; it has {', '.join(names)}"
            raise KtirError(f"--kernel: the program has no kernel '{self._kernel}'{known}")
        return self._kernel
