"""What a program does when, for people to look at: a Chrome trace that Perfetto and HTA open, and a log of a line per executed word."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.access import Access
from ktir.isa.program import Program
from ktir.isa.units import Unit
from ktir.target import LANES, STICK_BYTES, Target

_COPIES = {Unit.MNIL: "DRAM -> LX", Unit.MNIS: "LX -> DRAM"}
"""Units whose words are copies; HTA knows those by the word Memcpy."""
KERNELS = 7
"""Stream (thread) number of the row of whole kernels: the one that HTA reads. Kineto numbers a device's first stream so."""
_FIRST_UNIT = 20
_DEVICE = 0
_HOST = 4000
"""Process id of the host's rows: the Chrome format asks for numbers, and the device has 0."""


def chrome_trace(program: Program, trace: Trace, target: Target) -> dict[str, Any]:
    """The program's run as a Chrome trace (JSON object format) with Kineto's categories; times in microseconds of the chip's clock.

    Process 0 is the chip: a row of kernels, and below it a row per unit with its words, which all cores run alike. The host's process has
    a launch per kernel, tied to it by its `correlation`, inside one profiler step.
    """
    us = 1.0 / target.clock_ghz / 1000
    starts = _kernel_starts(trace)
    events: list[dict[str, Any]] = [
        naming("process_name", _DEVICE, 0, f"spyre:0, {trace.cores} cores alike"),
        naming("process_name", _HOST, 0, "host"),
        naming("thread_name", _DEVICE, KERNELS, f"stream {KERNELS}: kernels"),
    ]
    units = sorted({e.unit for e in trace.events})
    events += [naming("thread_name", _DEVICE, _FIRST_UNIT + int(u), u.name) for u in units]
    total = starts[-1] * us
    events.append(_slice("ProfilerStep#0", "user_annotation", _HOST, 1, 0.0, total))
    for k, (statistics, start) in enumerate(zip(trace.statistics, starts, strict=False)):
        length = statistics.cycles * us
        ids = {"correlation": k + 1, "External id": k + 1}
        events.append(_slice(f"spyre::{statistics.name}", "cpu_op", _HOST, 1, start * us, length, ids))
        events.append(_slice("cudaLaunchKernel", "cuda_runtime", _HOST, 1, start * us, length, ids))
        shape = {"device": _DEVICE, "stream": KERNELS, "grid": [statistics.cores, 1, 1], "block": [target.corelets, 1, 1]}
        moved = {"cycles": statistics.cycles, "bytes read": statistics.dram_read, "bytes written": statistics.dram_written}
        events.append(_slice(statistics.name, "kernel", _DEVICE, KERNELS, start * us, length, ids | shape | moved))
    for e in trace.events:
        begin = starts[e.kernel] + e.begin
        copies = _COPIES.get(e.unit)
        arguments: dict[str, Any] = {"word": e.instruction.index, "loops": {f"i{level}": n for level, n in e.loops}}
        source = program.source_of(e.instruction.word)
        arguments |= {k: v for k, v in (("op", source.op), ("source", source.location)) if v}
        if copies:
            arguments |= {"device": _DEVICE, "stream": _FIRST_UNIT + int(e.unit), "correlation": 0, "bytes": _bytes(e)}
        name, category = (f"Memcpy {copies} ({e.op})", "gpu_memcpy") if copies else (e.op, "unit")
        events.append(_slice(name, category, _DEVICE, _FIRST_UNIT + int(e.unit), begin * us, (e.end - e.begin) * us, arguments))
    properties = [{"id": _DEVICE, "name": f"Spyre ({target.name})", "numSms": target.cores}]
    return {
        "schemaVersion": 1,
        "deviceProperties": properties,
        "distributedInfo": {"backend": "none", "rank": 0, "world_size": 1},
        "displayTimeUnit": "ns",
        "traceEvents": events,
    }


def commit_log(program: Program, trace: Trace, *, cores: Collection[int] = (0,), units: Collection[Unit] = tuple(Unit)) -> Iterator[str]:
    """A line per word that moves or computes data, in an order that is legal to execute, for each of `cores` that its kernel uses.

    `core 07 cyc 1234..1250 SFP word 12 rep i0=3 ...`: cycles from the start of the program, the word's number in its unit's program, open
    loops, addresses in bytes of the first corelet, and the KTIR op and source line that it comes from.
    """
    starts = _kernel_starts(trace)
    for e in trace.events:
        if e.unit not in units:
            continue
        kernel = trace.kernels[e.kernel].kernel
        begin, end = starts[e.kernel] + e.begin, starts[e.kernel] + e.end
        source = program.source_of(e.instruction.word)
        origin = "".join(f"  {text}" for text in (f"[{source.op}]" if source.op else "", source.location) if text)
        loops = "".join(f" i{level}={n}" for level, n in e.loops)
        for core in cores:
            if core < kernel.cores:
                places = "".join(f" {text}" for text in _places(program, e, core))
                head = f"core {core:02d} cyc {begin}..{end} {e.unit.name} word {e.instruction.index} {e.op}"
                yield f"{head}{loops}{places}{origin}"


def _kernel_starts(trace: Trace) -> list[int]:
    """Cycle at which each kernel starts, and the end of the last one."""
    starts = [0]
    for s in trace.statistics:
        starts.append(starts[-1] + s.cycles)
    return starts


def _places(program: Program, e: Event, core: int) -> Iterator[str]:
    x = e.instruction
    if x.ddr:
        d = x.ddr.descriptor
        name = program.arguments[d.arg].name if d.arg is not None else "ddr"
        yield f"{name}[{_extent(x.ddr, e, core)}]"
    if x.lx:
        yield f"lx[{_extent(x.lx, e, core)}]"
    if x.fifo:
        yield f"{x.fifo} x{x.count or (x.lx.entries if x.lx else 0)}"


def _extent(access: Access, e: Event, core: int) -> str:
    """First address, length, and, where a bound clips it, the live lanes of an access, in bytes."""
    addresses = access.addresses(e.counters)
    at = addresses[min(core, len(addresses) - 1)]
    low, high = int(at.min(initial=at[0])), int(at.max(initial=at[0]))
    reach = (LANES - 1) * access.descriptor.lane_step
    low, high = low + min(reach, 0), high + max(reach, 0)
    text = f"{low}+{high - low + access.descriptor.element_bytes}"
    lanes = access.lanes(e.counters)
    if lanes is None:
        return text
    live = lanes[min(core, len(lanes) - 1)]
    return f"{text}, {int(live.sum())} of {live.size * LANES} lanes"


def _bytes(e: Event) -> int:
    ddr = e.instruction.ddr
    return ddr.entries * ddr.width * STICK_BYTES if ddr else 0


def naming(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    """The event of a Chrome trace that names a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(
    name: str, category: str, process: int, thread: int, start: float, length: float, arguments: Mapping[str, Any] | Sequence[Any] = ()
) -> dict[str, Any]:
    times = {"ts": round(start, 6), "dur": round(length, 6)}
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, **times, "args": dict(arguments)}
