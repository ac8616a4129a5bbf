"""What the cards did when, as a Chrome trace: a process per card, a row per stream, times of the clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ktir.emulator.machine.reports.events import naming
from ktir.runtime.time.clock import FIRST_HIGH, FIRST_HOST, Clock, Span
from ktir.runtime.time.slices import slices


@contextmanager
def watched(clock: Clock) -> Iterator[list[Span]]:
    """What is done in a block; the host waits for all before it begins and when it ends."""
    spans: list[Span] = []
    clock.synchronize()
    clock.watchers.append(spans.append)
    try:
        yield spans
    finally:
        clock.synchronize()
        clock.watchers.pop()


def chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """A Chrome trace (JSON object format) with Kineto's categories, in microseconds."""
    streams = sorted({span.stream for span in spans})
    events = [naming("process_name", card, 0, f"spyre:{card}") for card in sorted({s.card for s in streams})]
    events += [naming("thread_name", s.card, s.number, row_name(s.number)) for s in streams]
    for (card, number), step, begin, _ in spans:
        at = begin
        for piece in slices(step):
            times = {"ts": round(at / 1e3, 6), "dur": round(piece.ns / 1e3, 6)}
            arguments = {"device": card, "stream": number, **piece.arguments}
            events.append({"ph": "X", "name": piece.name, "cat": piece.category, "pid": card, "tid": number, **times, "args": arguments})
            at += piece.ns
    return {"schemaVersion": 1, "displayTimeUnit": "ns", "traceEvents": events}


def row_name(stream: int) -> str:
    """What the row of a stream is called."""
    pool = " (default)" if not stream else " (host)" if stream >= FIRST_HOST else " (high priority)" if stream >= FIRST_HIGH else ""
    return f"stream {stream}{pool}"
