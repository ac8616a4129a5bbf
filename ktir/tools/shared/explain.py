"""The report of `ktir-explain`: per kernel of an allocated module its division, loops, scratchpad, traffic and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import require_level
from ktir.analysis.attributes.residents import resident_of, residents_of
from ktir.analysis.calls import calls_of, functions_of, is_kernel, root_of, runs_of
from ktir.cost.program import KernelWork, kernel_work
from ktir.diagnostics import location_names, location_text, nodes_text, origin_text
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.structured import Generic
from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.report import KernelReport
from ktir.emulator.machine.reports.roofline import Roofline, bandwidth, pt_peak, roofline, sfp_peak
from ktir.isa.program import Kernel, Program, own_nodes
from ktir.isa.resources import Bound
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import func, ir
from ktir.passes.levels.function_rules import moves_residents
from ktir.target import Target, element_bytes

Ran = tuple[KernelReport, Bound, Roofline] | None
"""What the emulated machine says of a kernel, if it ran."""

_WIDTH = 48
"""Characters of a drawn scratchpad."""


@dataclass(frozen=True)
class Buffer:
    """A place in the scratchpad: `slots` slots of `bytes` bytes from `address` on."""

    name: str
    type: str
    address: int
    bytes: int
    slots: int

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.address + self.bytes * self.slots


def report(module: ir.Module, target: Target, *, machine: bool = True) -> str:
    """The report of a module at the allocated level. Raises KtirError for another level, or for what has no instructions.

    `machine`: also run the emulator's control plane, for the cycles that it counts.
    """
    require_level(module, "ktir-explain", Level.ALLOCATED)
    program = lower_program(module)
    functions = functions_of(module)
    ran = Machine(program, target) if machine else None
    counted: list[Ran] = [None] * len(program.kernels)
    if ran is not None:
        counted = [*zip(ran.report.kernels, ran.bottlenecks.kernels, roofline(ran.trace, target), strict=True)]
    runs = Counter(kernel.name for kernel in program.kernels)
    first = {kernel.name: kernel for kernel in reversed(program.kernels)}
    works = {name: kernel_work(first[name], target) for name in runs}
    total = sum(works[name].cost.cycles * count for name, count in runs.items())
    head = f"program '{program.name}' on {target.name}: {_count(len(runs), 'kernel')}"
    if len(program.kernels) > len(runs):
        head += f" in {len(program.kernels)} runs"
    lines = [f"{head}, {_time(total, target)} predicted"]
    if ran is not None:
        lines[0] += f", {_time(ran.report.cycles, target)} on the emulated machine"
        lines.append(str(ran.bottlenecks.program))
    lines += _functions(module)
    for name in runs:
        found = next(k for kernel, k in zip(program.kernels, counted, strict=True) if kernel.name == name)
        lines.append("")
        lines += _kernel(program, first[name], functions[name], works[name], found, target, runs[name])
    return "\n".join(lines) + "\n"


def _functions(module: ir.Module) -> Iterator[str]:
    """A line per function that the entry calls, itself or through others."""
    functions = functions_of(module)
    runs = runs_of(functions)
    for name, function in functions.items():
        if runs[name] and function != root_of(functions, module.operation.location) and not is_kernel(function):
            yield f"function '{name}': {_count(runs[name], 'run')}, each of {_count(len(calls_of(function)), 'call')}"


def _time(cycles: float, target: Target) -> str:
    return f"{target.microseconds(cycles):.2f} us"


def _kernel(
    program: Program, kernel: Kernel, function: func.FuncOp, work: KernelWork, counted: Ran, target: Target, runs: int
) -> Iterator[str]:
    times = f", {runs} times" if runs > 1 else ""
    origin = origin_text(function.location)
    yield f"kernel '{kernel.name}'{times}" + ("" if origin == "<unknown>" else f" ({origin})")
    block = function.regions[0].blocks[0]
    yield f"  grid: {kernel.cores} of {target.cores} cores; {_division(function)}"
    yield from _loops(block, 1, {s.nodes: nodes for s, nodes in own_nodes(program.sources).items()})
    yield from _scratchpad(block, target)
    yield from _residents(block.owner, target)
    yield from _traffic(program, work)
    yield "  predicted: " + work.cost.lines(target)[0]
    yield from (f"  {line}" for line in work.cost.lines(target)[1:])
    if counted is not None:
        report, bound, place = counted
        off = work.cost.cycles / report.cycles - 1
        used = f"memory {report.dram_utilisation:.0%} busy"
        yield f"  emulated: {_time(report.cycles, target)} ({report.cycles:,} cycles), {used}; the prediction is {off:+.0%} off"
        yield f"  {bound}; {bound.resource.remedy}"
    else:
        place = _predicted(work, kernel, target)
    yield f"  roofline: {place.place}"


def _division(function: func.FuncOp) -> str:
    """What each core does of a kernel."""
    if moves_residents(function.operation):
        sent = sum(op.operation.name == "ktdp.inter_tile_produce" for op in function.regions[0].blocks[0].operations)
        return f"{_count(sent, 'round')} of what stays between kernels, from core to core"
    if "ktir.work" not in function.attributes:
        return "as its author divides it"
    division = kt.WorkAttr(function.attributes["ktir.work"])
    return _parts(list(division.splits), list(division.tile), KernelFunction(function.operation).rows)


def _parts(splits: list[int], tile: list[int], rows: list[int]) -> str:
    """How the axes of a kernel are divided, batch axes first, and its columns."""
    names = ["batch"] * (len(rows) - 1) + ["row"]
    *batches, last = (
        f"{_count(parts, 'part')} of {_count(share, name)}" for parts, share, name in zip(splits[1:-1], tile[1:-1], names, strict=True)
    )
    rest = rows[-1] - (splits[-2] - 1) * tile[-2]
    if rest != tile[-2]:
        last += f" (the last one {rest})"
    columns = [f"{_count(splits[0], 'part')} of {_count(tile[0], 'stick')} of columns"] if splits[0] > 1 else []
    return ", ".join([*batches, last, *columns])


def _count(number: int, name: str) -> str:
    if number == 1:
        return f"1 {name}"
    return f"{number} {name}{'es' if name.endswith('ch') else 's'}"


def _loops(block: ir.Block, depth: int, own: Mapping[str, str]) -> Iterator[str]:
    """Loops and ops as an outline; `own`: of all nodes that went into an op those that it does itself."""
    for view in block.operations:
        op = view.operation
        if op.name == "scf.for":
            lower, upper, step = (ir.IntegerAttr(v.owner.attributes["value"]).value for v in list(op.operands)[:3])
            trips = -(-(upper - lower) // step)
            acc = ", sums in PT" if "ktir.acc" in op.attributes else ""
            yield f"{'  ' * depth}loop: {trips} trip{'s' if trips != 1 else ''} of {step}{acc}"
            yield from _loops(op.regions[0].blocks[0], depth + 1, own)
        elif op.name == "linalg.generic":
            g = Generic(op)
            kind = "matmul" if g.is_contraction else "pointwise" if g.is_pointwise else f"reduction ({g.combiner})"
            nodes = nodes_text(op.location)
            names = own.get(nodes, nodes).replace(",", ", ")
            shape = "x".join(map(str, ir.RankedTensorType(op.results[0].type).shape))
            yield f"{'  ' * depth}{kind} {shape}" + (f" of {names}" if names else f" at {location_text(op.location)}")


def buffers(block: ir.Block) -> list[Buffer]:
    """Places of the kernel's own tensors in the scratchpad, by address; views of one place are one."""
    found: dict[tuple[int, str], Buffer] = {}
    for op in _views(block):
        attributes = op.attributes
        if "ct_local" not in str(attributes["memory_space"]):
            continue
        if resident_of(op) is not None:
            continue  # listed by the kernel
        memref = ir.MemRefType(op.results[0].type)
        element = element_bytes(memref.element_type)
        size, slots = element * prod(memref.shape), 1
        if "ktir.rotate" in attributes:
            rotate = kt.RotateAttr(attributes["ktir.rotate"])
            slots = rotate.nbuf * rotate.stride // size
        names = location_names(op.location)
        shape = "x".join(map(str, (*memref.shape, memref.element_type)))
        buffer = Buffer(names[-1] if names else location_text(op.location), shape, _address(op.operands[0]) * element, size, slots)
        found.setdefault((buffer.address, shape), buffer)
    return sorted(found.values(), key=lambda b: (b.address, b.end))


def _views(block: ir.Block) -> Iterator[ir.Operation]:
    for view in block.operations:
        op = view.operation
        if op.name == "ktdp.construct_memory_view":
            yield op
        for region in op.regions if op.name == "scf.for" else ():
            yield from _views(region.blocks[0])


def _address(offset: ir.Value) -> int:
    """The constant part of an LX address."""
    op = offset.owner.operation
    if op.name == "arith.constant":
        return ir.IntegerAttr(op.attributes["value"]).value
    if op.name == "arith.addi":
        return sum(_address(v) for v in op.operands)
    return 0  # a rotating slot


def _scratchpad(block: ir.Block, target: Target) -> Iterator[str]:
    places = buffers(block)
    top = max((b.end for b in places), default=0)
    budget = target.lx_planned_bytes
    yield f"  scratchpad: {top:,} of {budget:,} bytes per core ({top / budget:.1%})"
    for b in places:
        first, last = b.address * _WIDTH // top, max(-(-b.end * _WIDTH // top), b.address * _WIDTH // top + 1)
        bar = " " * first + "#" * (last - first) + " " * (_WIDTH - last)
        slots = f"{b.slots} x " if b.slots > 1 else ""
        yield f"    {b.address:>9,} |{bar}| {slots}{b.bytes:,} bytes, {b.type}, {b.name}"


def _residents(kernel: ir.Operation, target: Target) -> Iterator[str]:
    """What stays in the scratchpad while the kernel runs, drawn over all of it: `+` where the kernel itself accesses it."""
    shown = {str(r) for view in _views(kernel.regions[0].blocks[0]) if (r := resident_of(view)) is not None}
    budget = target.lx_planned_bytes
    for r in residents_of(kernel):
        first = min(r.address * _WIDTH // budget, _WIDTH - 1)
        last = max(-(-(r.address + r.bytes) * _WIDTH // budget), first + 1)
        bar = " " * first + ("+" if str(r) in shown else "-") * (last - first) + " " * (_WIDTH - last)
        yield f"    {r.address:>9,} |{bar}| {r.bytes:,} bytes, {r.name}, stays between kernels"


def _traffic(program: Program, work: KernelWork) -> Iterator[str]:
    read, written = (sum(x.moved for x in work.transfers if x.reads is kind) for kind in (True, False))
    yield f"  traffic: {read:,} bytes read, {written:,} written"
    for x in work.transfers:
        sharing = f", each byte for {x.members} cores at once" if x.members > 1 else ""
        runs = f", {x.runs} transfers per core" if x.runs > 1 else ""
        yield f"    {'read ' if x.reads else 'write'} {program.arguments[x.argument].name}: {x.moved:,} bytes{sharing}{runs}"


def _predicted(work: KernelWork, kernel: Kernel, target: Target) -> Roofline:
    """Where a kernel stands if it takes as long as predicted."""
    peak = pt_peak(target) * work.multiplications / work.lane_products if work.multiplications else sfp_peak(target)
    return Roofline(kernel.name, work.flops, round(work.cost.dram_bytes), target.microseconds(work.cost.cycles), peak, bandwidth(target))
