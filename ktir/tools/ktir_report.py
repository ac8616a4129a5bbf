"""`ktir-report DIR`: what a package takes on the chip, as tables and pictures, without running it on values."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ktir.cost.least import Least, Views, least_of_kernel, least_of_program
from ktir.cost.program import kernel_work
from ktir.diagnostics import KtirError, close_to, some_of
from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.label import label, lines
from ktir.emulator.machine.reports.report import aligned
from ktir.emulator.machine.reports.roofline import roofline
from ktir.isa.resources import Bound, Resource
from ktir.package import Package, read
from ktir.targets import find
from ktir.tools.shared.plain import plain

_PICTURES = {
    "roofline": "the roofline",
    "lx": "what lies in LX when",
    "timeline": "what units do when",
    "division": "which core has which part of a kernel",
    "loop": "the trips of a kernel's tile loop",
}
_RESOURCES = {r.name.lower(): r for r in Resource}
_LONGEST = 10
"""Kernels of the table at the end."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("ktir-report", description="Cycles, busy units, stalls, traffic, bounds and roofline of a package.")
    made.add_argument("package", metavar="DIR", type=Path, help="folder of a package")
    made.add_argument("--target", help="the machine: datasheet, fitted, or a .toml file (default: the one that it was compiled for)")
    made.add_argument("--json", action="store_true", help="print the same as JSON")
    made.add_argument("--what-if", metavar="RESOURCE[+..],..", help="cycles if these took no time: all, or of " + ", ".join(_RESOURCES))
    made.add_argument("--tokens", action="store_true", help="print how many tokens each channel has, too")
    for name, what in _PICTURES.items():
        made.add_argument(f"--{name}", metavar="FILE", type=Path, help=f"draw {what}" + " (.svg, .png, .pdf)" * (name == "roofline"))
    made.add_argument("--layout", metavar="ARGUMENT=FILE", action="append", default=[], help="draw the sticks of an argument")
    made.add_argument("--kernel", metavar="NAME", help="of which kernel a division or loop is drawn (default: the one that takes longest)")
    made.add_argument("--core", type=int, default=0, help="whose LX (default: 0)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 0 done, 1 the package cannot be read or is wrong."""
    options = parser().parse_args(argv)
    try:
        package = read(options.package)
        machine = Machine(package.program, find(options.target) if options.target else package.target)
        places = roofline(machine.trace, machine.target)
        if not 0 <= options.core < machine.trace.cores:
            raise KtirError(f"--core expects 0 to {machine.trace.cores - 1}, the cores of the program, but got {options.core}")
        if options.kernel is not None and not (options.division or options.loop):
            raise KtirError("--kernel says of which kernel a division or loop is drawn, but neither --division nor --loop is given")
        asked = {} if options.what_if is None else _asked(options.what_if)
        changed = {name: machine.bottlenecks.without(*free) for name, free in asked.items()}
        if options.json:
            bounds = {"program": _plain(machine.bottlenecks.program), "kernels": [_plain(b) for b in machine.bottlenecks.kernels]}
            does = [{"name": k.name, "does": label(k), "source": lines(machine.program, k)} for k in machine.program.kernels]
            found = {"report": plain(machine.report), "kernels": does, "bounds": bounds, "roofline": [plain(p) for p in places]}
            print(json.dumps(found | ({"what if": changed} if changed else {}), indent=1))
        else:
            print(machine.report)
            if options.tokens:
                print("\n".join(["tokens", *(line for kernel in machine.report.kernels for line in kernel.tokens())]))
            print(
                "\n".join([*_bounds(machine, [a.host for a in package.launch_spec.args]), "roofline", *(f"  {place}" for place in places)])
            )
            if changed:
                print("\n".join(_what_if(machine, changed)))
            print("\n".join(_longest(machine)))
        _draw(options, package, machine)
    except BrokenPipeError:
        sys.stderr.close()
    except (KtirError, OSError) as error:
        print(error if isinstance(error, KtirError) else f"ktir-report: error: {error}", file=sys.stderr)
        return 1
    return 0


def _draw(options: argparse.Namespace, package: Package, machine: Machine) -> None:
    """The pictures that are asked for."""
    if not (options.layout or any(getattr(options, name) for name in _PICTURES)):
        return
    from ktir.tools.pages import pictures

    drawing = pictures.Drawing(package, machine, options.package, options.kernel, options.core)
    for name in _PICTURES:
        if place := getattr(options, name):
            pictures.save(getattr(drawing, name)(), place)
    for text in options.layout:
        name, equals, file = text.partition("=")
        if not (equals and file):
            raise KtirError(f"--layout expects ARGUMENT=FILE, but got '{text}'")
        pictures.save(drawing.layout(name), Path(file))


def _asked(text: str) -> dict[str, tuple[Resource, ...]]:
    """What `--what-if` names. Raises KtirError."""
    found = {}
    for name in (each for asked in text.split(",") for each in (_RESOURCES if asked == "all" else [asked])):
        parts = name.split("+")
        for part in parts:
            if part not in _RESOURCES:
                raise KtirError(f"--what-if expects all, or some of {', '.join(_RESOURCES)}, but got '{part}'{close_to(part, _RESOURCES)}")
        found[name] = tuple(_RESOURCES[part] for part in parts)
    return found


def _bounds(machine: Machine, views: Views) -> list[str]:
    """What bounds the program and its kernels, and what would have to change."""
    found = machine.bottlenecks
    program, target, cycles = machine.program, machine.target, machine.report.cycles
    works = [kernel_work(kernel, target) for kernel in program.kernels]
    lines = ["bounds", f"  program: {found.program}; {_at_least(least_of_program(program, works, target, views), cycles)}"]
    remedies = {}
    for kernel, bound, work in zip(machine.report.kernels, found.kernels, works, strict=True):
        lines.append(
            f"  kernel '{kernel.name}': {bound}; {_at_least(least_of_kernel(program, work, target, views), kernel.cycles + kernel.lead)}"
        )
        remedies[bound.resource] = f"  to relieve the {bound.resource.title}: {bound.resource.remedy}"
    return [*lines, *remedies.values()]


def _at_least(least: Least, cycles: int) -> str:
    return f"at least {least.cycles:,.0f} cycles, {least.share(cycles):.0%} of it"


def _longest(machine: Machine) -> list[str]:
    """The kernels that take longest: what they do, for which lines of the source, and what bounds them. Nothing of a single one."""
    both = zip(machine.program.kernels, machine.report.kernels, machine.bottlenecks.kernels, strict=True)
    found = sorted(both, key=lambda each: -each[1].cycles)
    if len(found) < 2:
        return []
    total = max(machine.report.cycles, 1)
    rows = [("kernel", "cycles", "share", "bound by", "does")]
    for kernel, report, bound in found[:_LONGEST]:
        places = [place.replace("\\", "/").rpartition("/")[2] for place in lines(machine.program, kernel)]
        what = label(kernel) + (f"  ({some_of(places)})" if places else "")
        rows.append((report.name, f"{report.cycles:,}", f"{report.cycles / total:.0%}", bound.resource.title, what))
    rest = sum(report.cycles for _, report, _ in found[_LONGEST:])
    more = [f"  and {len(found) - _LONGEST} more: {rest / total:.0%}"] if len(found) > _LONGEST else []
    return ["longest kernels", *aligned(rows), *more]


def _what_if(machine: Machine, changed: dict[str, list[int]]) -> list[str]:
    """A row per kernel, a column per question."""
    rows = [["cycles if this took no time", "as it is", *changed]]
    for number, kernel in enumerate(machine.report.kernels):
        rows.append([f"kernel '{kernel.name}'", f"{kernel.cycles:,}", *(f"{cycles[number]:,}" for cycles in changed.values())])
    rows.append(["program", f"{machine.report.cycles:,}", *(f"{sum(cycles):,}" for cycles in changed.values())])
    return aligned(rows)


def _plain(bound: Bound) -> dict[str, Any]:
    """A bound for JSON."""
    saves = {r.title: n for r, n in bound.saves.items() if r in bound.proved}
    most = {r.title: n for r, n in bound.saves.items() if r not in bound.proved}
    found = {"resource": bound.resource.title, "cycles": bound.cycles, "chain": {r.title: n for r, n in bound.chain.items() if n}}
    return {**found, "saves": saves, "saves at most": most, "remedy": bound.resource.remedy}


if __name__ == "__main__":
    sys.exit(main())
