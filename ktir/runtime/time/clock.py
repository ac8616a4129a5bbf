"""When things happen on the cards, in emulated time: streams of steps, the engines that do them, and a host that gives and waits.

Values are computed in program order, at once. A clock says when each step would have been done: a stream does its steps one after the
other; an engine of a card does one at a time, and of those that wait for it takes the one of high priority, else the one that was given
first. So steps are placed in the order in which they begin, and no sooner than somebody wants to know, since a step given later may come
first.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from ktir.config import whole_number
from ktir.diagnostics import KtirError
from ktir.runtime.time.steps import Kind, Step

POOL = 32
FIRST_LOW, FIRST_HIGH, FIRST_HOST = 1, 33, 65
"""Numbers of streams, as published: 0 is a card's default one; then two pools, and from 65 on those that compute on the host."""
_HOSTS, _MOST_HOSTS = "TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS", 8
_DEEP = 1024
"""Steps that a stream takes; who gives it more waits until the first has begun."""
_BATCH = 256
"""Steps that are queued together: what is done at each launch takes several times as long as what is done in a loop."""
_ENGINES: dict[Kind, str] = {"Compute": "Compute", "H2D": "H2D", "D2H": "D2H", "D2D": "D2D", "Relayout": "D2D"}
"""What does steps of a kind; steps of the host are done by their stream."""


class Stream(NamedTuple):
    """A queue of steps of a card."""

    card: int
    number: int

    @property
    def is_high(self) -> bool:
        """Whether its steps come first."""
        return FIRST_HIGH <= self.number < FIRST_HOST


@dataclass(slots=True, eq=False)
class Mark:
    """A point in a stream. `ns`: when it is reached, as far as that is known."""

    ns: float | None = None


class Span(NamedTuple):
    """A step and when it was done, in nanoseconds."""

    stream: Stream
    step: Step
    begin: float
    end: float


class _Entry(NamedTuple):
    """What a stream has been given at a time of the host: a step, or something to wait for, or a mark to set."""

    given: float
    order: int
    step: Step | None = None
    awaited: Mark | None = None
    mark: Mark | None = None


class Clock:
    """The time of a host and its cards. May be used by several threads, which count as one host."""

    def __init__(self, hosts: int | None = None) -> None:
        """hosts: streams that compute on the host; by default those that the environment asks for."""
        self.watchers: list[Callable[[Span], None]] = []
        """Told of each step when its place in time is known."""
        self._hosts = hosts
        self._now = 0.0
        self._given: deque[tuple[Stream, Step]] = deque()
        """What the host has given and nobody has asked about, in order."""
        self._order = 0
        self._queues: dict[Stream, deque[_Entry]] = {}
        self._done: dict[Stream, float] = {}
        self._free: dict[tuple[int, str], float] = {}
        self._made: dict[tuple[int, bool], int] = {}
        self._computed = 0
        self._lock = threading.RLock()

    def stream(self, card: int, *, high: bool = False) -> Stream:
        """The next stream of a pool, in turn."""
        with self._lock:
            made = self._made[card, high] = self._made.get((card, high), -1) + 1
        return Stream(card, (FIRST_HIGH if high else FIRST_LOW) + made % POOL)

    def give(self, stream: Stream, *steps: Step, wait: bool = False) -> None:
        """The host gives steps. wait: until they are done."""
        given = self._given
        for step in steps:
            given.append((stream, step))
        if wait:
            self.finish(self.record(stream))
        elif len(given) >= _BATCH:
            with self._lock:
                self._queue_given()

    @property
    def now(self) -> float:
        """Nanoseconds of the host."""
        with self._lock:
            self._queue_given()
            return self._now

    def record(self, stream: Stream) -> Mark:
        """The point behind all that a stream was given so far."""
        with self._lock:
            self._queue_given()
            mark = Mark()
            self._put(stream, mark=mark)
            return mark

    def wait(self, stream: Stream, mark: Mark) -> None:
        """What the stream is given from now on begins after the mark."""
        with self._lock:
            self._queue_given()
            self._put(stream, awaited=mark)

    def finish(self, mark: Mark) -> float:
        """The host waits for a mark; when it was reached."""
        with self._lock:
            self._queue_given()
            self._pass()
            while mark.ns is None:
                if self._place() is None:
                    raise KtirError("a mark is waited for that no stream reaches")
            self._now = max(self._now, mark.ns)
            return mark.ns

    def synchronize(self, card: int | None = None) -> None:
        """The host waits for all streams of a card, or of all cards."""
        with self._lock:
            self._queue_given()
            for mark in [self.record(s) for s in self._queues if card in (None, s.card)]:
                self.finish(mark)

    def reached(self, mark: Mark) -> bool:
        """Whether a mark is reached. To ask in vain takes the host until the next step is done, so that asking again and again ends."""
        with self._lock:
            self._queue_given()
            self._pass()
            while mark.ns is None and self._place(before=self._now):
                pass
            if mark.ns is not None and mark.ns <= self._now:
                return True
            if mark.ns is not None:
                self._now = mark.ns
            elif (span := self._place()) is not None:
                self._now = max(self._now, span.end)
            return False

    def _queue_given(self) -> None:
        """Give the streams what they have not been given yet. The lock is held."""
        while self._given:
            stream, step = self._given.popleft()
            self._now += step.host_ns
            if step.kind == "HostCompute":
                self._compute_on_host(stream, step)
            else:
                self._put(stream, step)

    def _compute_on_host(self, stream: Stream, step: Step) -> None:
        """One of the streams that compute on the host does it, between what comes before and after."""
        self._hosts = self._hosts or host_streams()
        worker = Stream(stream.card, FIRST_HOST + self._computed % self._hosts)
        self._computed += 1
        before, after = Mark(), Mark()
        self._put(stream, mark=before)
        self._put(worker, awaited=before)
        self._put(worker, step=step)
        self._put(worker, mark=after)
        self._put(stream, awaited=after)

    def _put(self, stream: Stream, step: Step | None = None, awaited: Mark | None = None, mark: Mark | None = None) -> None:
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
        queue.append(_Entry(self._now, self._order, step, awaited, mark))
        self._order += 1
        if len(queue) > _DEEP:
            self._pass()
        while len(queue) > _DEEP and (span := self._place()) is not None:
            self._now = max(self._now, span.begin)

    def _pass(self) -> None:
        """Set marks, and go on behind those that are reached, as far as the streams have come."""
        again = True
        while again:
            again = False
            for stream, queue in self._queues.items():
                while queue and queue[0].step is None:
                    given, _, _, awaited, mark = queue[0]
                    if awaited is not None and awaited.ns is None:
                        break
                    queue.popleft()
                    done = self._done[stream] = max(self._done.get(stream, 0.0), given, awaited.ns or 0.0 if awaited else 0.0)
                    if mark is not None:
                        mark.ns, again = done, True

    def _place(self, before: float = inf) -> Span | None:
        """Place the step that begins next, if it does so before a time, and set the marks behind it."""
        heads = [(*self._first(s, q[0]), s, q) for s, q in self._queues.items() if q and q[0].step is not None]
        begin, _, _, stream, queue = min(heads) if heads else (inf, False, 0, None, None)
        if stream is None or queue is None or begin >= before:
            return None
        step = queue.popleft().step
        assert step is not None
        span = Span(stream, step, begin, begin + step.ns)
        self._done[stream] = span.end
        if (engine := _engine(step)) is not None:
            self._free[stream.card, engine] = span.end
        for watcher in self.watchers:
            watcher(span)
        if queue and queue[0].step is None:
            self._pass()
        return span

    def _first(self, stream: Stream, entry: _Entry) -> tuple[float, bool, int]:
        """When a stream's next step can begin, and what decides between several."""
        assert entry.step is not None
        free = self._free.get((stream.card, _engine(entry.step) or ""), 0.0)
        return max(self._done.get(stream, 0.0), entry.given, free), not stream.is_high, entry.order


def _engine(step: Step) -> str | None:
    """What of a card does a step. What a program is told, which is short, does not wait for data."""
    return "Program" if step.kind == "H2D" and step.name else _ENGINES.get(step.kind)


def host_streams() -> int:
    """How many streams of a card compute on the host. Raises RuntimeError for a number that there cannot be."""
    return whole_number(_HOSTS, os.environ.get(_HOSTS) or "4", 1, _MOST_HOSTS)


clock = Clock()
"""The clock of this process."""


class _Current(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}


_current = _Current()
_defaults: dict[int, Stream] = {}
"""The default stream of each card."""
_others = False
"""Whether some thread has ever asked for another one: until then no thread is asked, which takes time at each launch."""


def current(card: int) -> Stream:
    """The stream of a card that this thread gives its steps to."""
    found = _current.streams.get(card) if _others else None
    return found or _defaults.get(card) or _defaults.setdefault(card, Stream(card, 0))


def use(stream: Stream) -> None:
    """Give the steps of this thread to another stream of the card."""
    global _others
    _others = True
    _current.streams[stream.card] = stream
