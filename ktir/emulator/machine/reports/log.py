"""What a program does when, for people to read: a log of a line per executed word."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.access import Access
from ktir.isa.program import Program
from ktir.isa.units import Unit
from ktir.target import LANES


def commit_log(program: Program, trace: Trace, *, cores: Collection[int] = (0,), units: Collection[Unit] = tuple(Unit)) -> Iterator[str]:
    """A line per word that moves or computes data, in an order that is legal to execute, for each of `cores` that its kernel uses.

    `core 07 cyc 1234..1250 SFP word 12 rep i0=3 ...`: cycles from the start of the program, the word's number in its unit's program, open
    loops, addresses in bytes of the first corelet, and the KTIR op and source line that it comes from.
    """
    starts = trace.starts
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
