"""Where steps of cards stand on the host's clock.

A kernel lasts its emulated time, which is far shorter than its emulation. It stands where the host gave it, or later: what ended before it
began in emulated time ends before it here. So streams, engines and events keep their order, and nothing overlaps that did not. Times are
whole nanoseconds, a nanosecond apart at least, so that they stay apart where a tool reads them into floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

from ktir.device.profiler.session import Given, Started
from ktir.runtime.time.clock import Span, Stream
from ktir.runtime.time.slices import Slice, slices
from ktir.runtime.time.steps import Step


class Placed(NamedTuple):
    """A slice of a step: `begin` in nanoseconds of the profiler's clock; `part`: the how manieth of its step, from 0."""

    number: int
    stream: Stream
    step: Step
    part: int
    slice: Slice
    begin: int


def place(done: Sequence[tuple[Given, Span]], started: Started) -> Iterator[Placed]:
    """All slices, in the order in which they begin in emulated time."""
    running: list[tuple[float, int]] = []
    latest = 0  # of what has ended in emulated time
    for given, span in sorted(done, key=lambda each: (each[1].begin, each[0].number)):
        while running and running[0][0] <= span.begin:
            latest = max(latest, heappop(running)[1])
        at = max(started.get(given.number, given.at), latest)
        for part, piece in enumerate(slices(span.step)):
            yield Placed(given.number, span.stream, span.step, part, piece, at)
            at += ceil(piece.ns) + 1
        heappush(running, (span.end, at))
