"""What a page shows of a model: gathered while it is compiled, and from the reports of the machine."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from ktir.context import context
from ktir.diagnostics import Remark, Unsupported, remarks
from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.chrome import chrome_trace
from ktir.emulator.machine.reports.label import label
from ktir.emulator.machine.reports.occupancy import lives
from ktir.emulator.machine.reports.roofline import roofline
from ktir.explore.lines import Line, Places, lines_of
from ktir.isa.assembly.text import print_program
from ktir.isa.program import Program, own_nodes
from ktir.lowering.compile import compile_logical
from ktir.lowering.region_to_ktir.emit import emit
from ktir.lowering.region_to_ktir.region import Region
from ktir.mlir import ir
from ktir.package import read

_SHOWN = ("work", "wait", "gpu_memcpy", "kernel")
"""Categories of the trace that a timeline has."""
MOST_SLICES = 200_000
"""Slices of a timeline: what is beyond is left out, and the page says so."""


@dataclass
class View:
    """A pane's content: `kind` is graph, level or assembly; of which program of the model it is."""

    name: str
    kind: str
    program: int
    lines: list[Line]


@dataclass
class Slice:
    """What a unit does from one cycle to another; `wait` where it does nothing."""

    row: str
    name: str
    begin: float
    end: float
    places: tuple[int, ...]
    wait: bool = False


@dataclass
class Run:
    """One program on the machine: its kernels, slices, and what lies in LX of core 0 (first and last stick, cycles, op)."""

    cycles: int
    clock_ghz: float
    kernels: list[dict[str, Any]]
    slices: list[Slice]
    left_out: int
    lives: list[Slice]
    sticks: int
    rows: list[str]
    """Of the timeline, from above."""


@dataclass
class Explored:
    """All of a page."""

    title: str
    target: str = ""
    places: Places = field(default_factory=Places)
    views: list[View] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    remarks: list[tuple[Remark, int, tuple[int, ...]]] = field(default_factory=list)
    """With the number of the program, and the places."""
    refused: list[Unsupported] = field(default_factory=list)
    """Why programs are left out."""

    def sources(self) -> Iterator[tuple[str, list[str], dict[int, list[int]]]]:
        """Files: name, lines, and by number of a line what comes from there."""
        files: dict[str, dict[int, list[int]]] = {}
        for (file, line, _), number in self.places.known.items():
            files.setdefault(file, {}).setdefault(line, []).append(number)
        for file in sorted(files, key=lambda f: -sum(map(len, files[f].values()))):
            lines = [line.rstrip("\n") for line in linecache.getlines(file)]
            if lines:
                yield file, lines, files[file]


def _quiet(program: str, stage: str) -> None:
    """What is done at the moment is not said."""


def of_graphs(
    title: str, graphs: Sequence[fx.GraphModule], regions: Sequence[Region], said: Callable[[str, str], None] = _quiet
) -> Explored:
    """Compile the programs that were made of graphs of ATen, and run their control planes; no value is computed. `said` hears of which
    program what has been done: a long model takes minutes.

    Programs that the chip does not take are left out. Raises Unsupported where it takes none, and KtirError.
    """
    found = Explored(title)
    for number, graph in enumerate(graphs):
        name = "graph" if len(graphs) == 1 else f"graph {number}"
        found.views.append(View(name, "graph", number, graph_lines(graph, found.places)))
    for number, region in enumerate(regions):
        try:
            _program(found, len(found.runs), region, lambda stage, at=number: said(f"program {at + 1} of {len(regions)}", stage))
        except Unsupported as error:
            found.refused.append(error)
    if found.refused and not found.runs:
        raise found.refused[0]
    for view in found.views[: len(graphs)]:
        view.program = min(view.program, len(found.runs) - 1)
    return found


def _program(found: Explored, number: int, region: Region, said: Callable[[str], None]) -> None:
    views: list[View] = []
    with context(), ir.Location.unknown(), remarks() as told:
        module = emit(region)

        def watch(name: str, m: ir.Module) -> None:
            said(name)
            lines = lines_of(m, found.places)
            if not views or views[-1].lines != lines:  # a pass that changes nothing is no level
                views.append(View(name, "level", number, lines))

        package = read(compile_logical(module, observe=watch))
    found.views += views
    found.remarks += [(r, number, found.places.of(_quoted(r.location))) for r in told]
    program = package.program
    found.views.append(View("assembly", "assembly", number, assembly_lines(program, found.places)))
    said("the machine's timeline")
    machine = Machine(program, package.target)
    found.target = machine.target.name
    found.runs.append(run_of(machine, found.places))


def graph_lines(graph: fx.GraphModule, places: Places) -> list[Line]:
    """A line per node, with the line of the source that it comes from."""
    found = []
    for name, module in graph.named_modules():
        if isinstance(module, fx.GraphModule):
            found += [Line(f"graph {name}:")] if name else []
            found += [Line(node.format_node() or str(node), _of_node(node, places)) for node in module.graph.nodes]
    return found


def _of_node(node: fx.Node, places: Places) -> tuple[int, ...]:
    frames = [f for f in str(node.meta.get("stack_trace") or "").splitlines() if f.lstrip().startswith("File ")]
    if not frames:
        return ()
    _, file, rest = frames[-1].split('"', 2)
    line = int("".join(c for c in rest.split(",")[1] if c.isdigit()))
    return (places.number((file, line, node.name)),)


def assembly_lines(program: Program, places: Places) -> list[Line]:
    """The text of a program; a word comes from where its source does."""
    nodes = own_nodes(program.sources)
    locations = [places.of_source(s.location, nodes[s]) for s in program.sources]
    found = []
    for line in print_program(program).splitlines():
        code, _, comment = line.partition("//")
        word = code.rstrip().rpartition(" @")[2] if " @" in code else ""
        found.append(Line(code.rstrip() if comment and word.isdigit() else line, locations[int(word)] if word.isdigit() else ()))
    return found


def _quoted(location: str | None) -> str:
    """`file:line:col` as MLIR writes it."""
    file, _, rest = (location or "").rpartition(":")
    file, _, line = file.rpartition(":")
    return f'"{file}":{line}:{rest}' if line.isdigit() and rest.isdigit() else ""


def run_of(machine: Machine, places: Places) -> Run:
    """What a machine reports of its program."""
    trace, target = machine.trace, machine.target
    us = 1 / target.clock_ghz / 1000
    events = chrome_trace(machine.program, trace, target)["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    slices = [
        _slice(e, rows, us, places) for e in events if e.get("ph") == "X" and e.get("cat") in ("work", "wait", "gpu_memcpy", "kernel")
    ]
    kernels = [
        {
            "name": k.name,
            "does": label(machine.program.kernels[number]),
            "cycles": k.cycles,
            "us": round(k.microseconds, 3),
            "cores": k.cores,
            "share": round(r.share, 4),
        }
        | {"bound": b.resource.title, "saves": round(b.share, 4), "remedy": b.resource.remedy}
        | {"read": k.dram_read, "written": k.dram_written, "busy": {u.unit.name: round(u.utilisation, 4) for u in k.units}}
        | {"intensity": r.intensity if r.bytes else 0, "attained": r.attained, "peak": r.peak, "bandwidth": r.bandwidth}
        | {"places": _of_kernel(machine.program, number, places)}
        for number, (k, r, b) in enumerate(zip(machine.report.kernels, roofline(trace, target), machine.bottlenecks.kernels, strict=True))
    ]
    found = lives(machine.program, trace)
    held = [Slice(f"{v.first},{v.last}", v.op, v.begin, v.end, places.of_source(v.location, v.nodes)) for v in found]
    cycles = sum(k.cycles for k in machine.report.kernels)
    left_out = max(len(slices) - MOST_SLICES, 0)
    named = [rows[row] for row in sorted(rows)]  # of the chip, of a core, of a corelet
    return Run(cycles, target.clock_ghz, kernels, slices[:MOST_SLICES], left_out, held, trace.lx_sticks, named)


def _of_kernel(program: Program, number: int, places: Places) -> list[int]:
    """The places that the words of a kernel come from."""
    used = {w.source for words in program.kernels[number].units.values() for w in words}
    nodes = own_nodes(program.sources)
    return sorted({p for n in used for p in places.of_source(program.sources[n].location, nodes[program.sources[n]])})


def _slice(event: dict[str, Any], rows: dict[tuple[int, int], str], us: float, places: Places) -> Slice:
    arguments = event.get("args", {})
    begin, end = round(event["ts"] / us), round((event["ts"] + event["dur"]) / us)
    name = event["name"] if event["cat"] in ("wait", "kernel") else f"{event['name']} {arguments.get('op', '')}".rstrip()
    row = rows.get((event["pid"], event["tid"]), str(event["tid"]))
    return Slice(row, name, begin, end, places.of_source(arguments.get("source", ""), arguments.get("nodes", "")), event["cat"] == "wait")
