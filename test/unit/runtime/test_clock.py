"""Streams and events in emulated time: orderings whose times are computed by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ktir.runtime.time.clock import Clock, Mark, Stream, host_streams
from ktir.runtime.time.steps import Kind, Step

DEFAULT, A, B, HIGH, OTHER = Stream(0, 0), Stream(0, 1), Stream(0, 2), Stream(0, 33), Stream(1, 0)


def step(ns: float, kind: Kind = "Compute", host_ns: float = 0) -> Step:
    return Step(kind, 0, ns, host_ns=host_ns)


def one_stream_is_a_queue(c: Clock) -> list[Mark]:
    c.give(A, step(100))
    first = c.record(A)
    c.give(A, step(30, "H2D"))
    c.give(A, step(50))
    return [first, c.record(A)]


def engines_of_two_streams_overlap(c: Clock) -> list[Mark]:
    for kind in ("H2D", "D2H", "D2D"):
        c.give(A, step(40, kind))
    c.give(B, step(100))
    return [c.record(A), c.record(B)]


def one_engine_computes(c: Clock) -> list[Mark]:
    c.give(A, step(100))
    c.give(B, step(70))
    c.give(A, step(10))
    return [c.record(A), c.record(B)]


def copies_of_a_kind_queue(c: Clock) -> list[Mark]:
    c.give(A, step(40, "H2D"))
    c.give(B, step(40, "H2D"))
    c.give(B, step(5, "D2D"))
    c.give(A, step(20, "Relayout"))
    return [c.record(A), c.record(B)]


def an_event_orders_two_streams(c: Clock) -> list[Mark]:
    c.give(A, step(60, "H2D"))
    c.wait(B, c.record(A))
    c.give(A, step(25, "H2D"))
    c.give(B, step(100))
    return [c.record(A), c.record(B)]


def an_event_that_is_long_reached(c: Clock) -> list[Mark]:
    c.give(A, step(10))
    early = c.record(A)
    c.give(B, step(50, "H2D"))
    c.wait(B, early)
    c.give(B, step(5, "H2D"))
    return [early, c.record(B)]


def two_streams_meet_and_part(c: Clock) -> list[Mark]:
    c.give(A, step(30, "H2D"))
    c.give(B, step(80))
    c.wait(A, c.record(B))
    c.wait(B, c.record(A))  # which waits itself for what B has done
    c.give(A, step(20))
    c.give(B, step(20, "D2H"))
    return [c.record(A), c.record(B)]


def who_is_ready_goes_first(c: Clock) -> list[Mark]:
    c.give(B, step(90, "H2D"))
    c.wait(A, c.record(B))
    c.give(A, step(10))  # given first, but ready at 90
    c.give(B, step(5, "D2H"))
    c.give(DEFAULT, step(50))
    return [c.record(A), c.record(B), c.record(DEFAULT)]


def priority_goes_first(c: Clock) -> list[Mark]:
    c.give(A, step(100))
    c.give(B, step(100))
    c.give(HIGH, step(20, "H2D"))
    c.give(HIGH, step(10))  # ready at 20, behind what computes, before what waits
    return [c.record(A), c.record(B), c.record(HIGH)]


def the_host_takes_time(c: Clock) -> list[Mark]:
    c.give(A, step(30, host_ns=50))
    first = c.record(A)
    c.give(A, step(30, host_ns=50))  # the card waits for the host
    c.give(A, step(200, host_ns=50))
    c.give(A, step(30, host_ns=50))  # the host is ahead
    return [first, c.record(A)]


def the_host_waits(c: Clock) -> list[Mark]:
    c.give(A, step(70, "D2H"), wait=True)
    c.give(B, step(10))
    middle = c.record(B)
    c.synchronize(0)
    c.give(A, step(5))
    return [middle, c.record(A)]


def two_cards(c: Clock) -> list[Mark]:
    c.give(DEFAULT, step(100))
    c.give(OTHER, step(100))
    c.wait(OTHER, c.record(DEFAULT))
    c.give(OTHER, step(15, "D2D"))
    c.synchronize(1)
    c.give(DEFAULT, step(1))
    return [c.record(DEFAULT), c.record(OTHER)]


def the_host_computes(c: Clock) -> list[Mark]:
    c.give(A, step(10))
    c.give(A, step(40, "HostCompute"))
    c.give(B, step(40, "HostCompute"))
    c.give(HIGH, step(40, "HostCompute"))  # two can: it waits behind that of A
    c.give(A, step(10))
    return [c.record(A), c.record(B), c.record(HIGH)]


ORDERINGS: dict[Callable[[Clock], list[Mark]], list[float]] = {
    one_stream_is_a_queue: [100, 180],
    engines_of_two_streams_overlap: [120, 100],
    one_engine_computes: [180, 170],
    copies_of_a_kind_queue: [60, 85],
    an_event_orders_two_streams: [85, 160],
    an_event_that_is_long_reached: [10, 55],
    two_streams_meet_and_part: [100, 100],
    who_is_ready_goes_first: [100, 95, 50],
    priority_goes_first: [100, 210, 110],
    the_host_takes_time: [80, 380],
    the_host_waits: [80, 85],
    two_cards: [116, 115],
    the_host_computes: [60, 40, 90],
}


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda f: f.__name__)
def test_times(ordering: Callable[[Clock], list[Mark]]) -> None:
    clock = Clock(hosts=2)
    marks = ordering(clock)
    assert [clock.finish(mark) for mark in marks] == ORDERINGS[ordering]
    assert clock.now == max(ORDERINGS[ordering])


def test_asking_in_vain_ends() -> None:
    clock = Clock()
    for ns in (10, 20, 30):
        clock.give(A, step(ns))
    clock.give(B, step(500, "H2D"))
    mark = clock.record(A)
    asked = 0
    while not clock.reached(mark):
        asked += 1
    assert (asked, clock.now) == (3, 60)
    assert not clock.reached(clock.record(B))
    assert clock.reached(clock.record(Stream(0, 9))), "nothing was given to it"


def test_what_comes_later_may_come_first() -> None:
    clock = Clock()
    clock.give(A, step(100, host_ns=5))
    clock.give(A, step(100))
    clock.give(HIGH, step(10, host_ns=1))
    assert clock.reached(clock.record(B)), "nothing was given to it"
    clock.give(HIGH, step(10))
    assert clock.finish(clock.record(HIGH)) == 125, "behind the one that computes"
    assert clock.finish(clock.record(A)) == 225


def test_a_stream_is_so_deep() -> None:
    clock = Clock()
    for _ in range(1024):
        clock.give(A, step(10))
    assert clock.now == 0
    clock.give(A, step(10))
    assert clock.now == 0, "the first has begun at once"
    clock.give(A, step(10))
    assert clock.now == 10, "the second begins"
    for _ in range(3000):
        clock.record(A)
    assert clock.finish(clock.record(A)) == 10260


def test_streams_of_pools() -> None:
    clock = Clock()
    low = [clock.stream(0).number for _ in range(33)]
    high = [clock.stream(0, high=True).number for _ in range(33)]
    assert (low, high) == ([*range(1, 33), 1], [*range(33, 65), 33])
    assert clock.stream(1) == Stream(1, 1)
    assert (Stream(0, 32).is_high, Stream(0, 33).is_high, Stream(0, 64).is_high, Stream(0, 65).is_high) == (False, True, True, False)


def test_streams_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS", raising=False)
    clock = Clock()
    spans = []
    clock.watchers.append(spans.append)
    for _ in range(5):
        clock.give(A, step(1, "HostCompute"))
    clock.synchronize(0)
    assert [s.stream.number for s in spans] == [65, 66, 67, 68, 65]
    monkeypatch.setenv("TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS", "")
    assert host_streams() == 4
    for wrong in ("0", "9", "many", "²"):
        monkeypatch.setenv("TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS", wrong)
        with pytest.raises(RuntimeError, match=f"TORCH_SPYRE_NUM_HOST_COMPUTE_STREAMS must be 1 to 8, but got '{wrong}'"):
            host_streams()
