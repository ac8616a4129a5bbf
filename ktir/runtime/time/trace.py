"""What the cards did when, as a Chrome trace: a process per card, a row per stream, times of the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ktir.emulator.machine.reports.timeline import naming
from ktir.runtime.time.clock import FIRST_HIGH, FIRST_HOST, Clock, Span

_COPIES = {"H2D": "HtoD", "D2H": "DtoH", "D2D": "DtoD", "Relayout": "Relayout"}


@contextmanager
def watched(clock: Clock) -> Iterator[list[Span]]:
    """What is done in a block; the host waits for all before it begins and when it ends."""
    spans: list[Span] = []
    clock.synchronize()
    clock.watchers.append(spans.append)
    try:
        yield spans
        clock.synchronize()
    finally:
        clock.watchers.pop()


def chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """A Chrome trace (JSON object format) with Kineto's categories, in microseconds."""
    streams = sorted({span.stream for span in spans})
    events = [naming("process_name", card, 0, f"spyre:{card}") for card in sorted({s.card for s in streams})]
    events += [naming("thread_name", s.card, s.number, f"stream {s.number}{_pool(s.number)}") for s in streams]
    for (card, number), step, begin, end in spans:
        copy = _COPIES.get(step.kind)
        name = f"Memcpy {copy}" if copy else step.name if step.kind == "Compute" else f"{step.kind} {step.name}"
        category = "gpu_memcpy" if copy else "kernel" if step.kind == "Compute" else "cpu_op"
        arguments = {"device": card, "stream": number} | ({"bytes": step.nbytes} if copy else {})
        times = {"ts": round(begin / 1e3, 6), "dur": round((end - begin) / 1e3, 6)}
        events.append({"ph": "X", "name": name, "cat": category, "pid": card, "tid": number, **times, "args": arguments})
    return {"schemaVersion": 1, "displayTimeUnit": "ns", "traceEvents": events}


def _pool(number: int) -> str:
    return " (default)" if not number else " (host)" if number >= FIRST_HOST else " (high priority)" if number >= FIRST_HIGH else ""
