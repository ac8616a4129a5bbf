"""Events of the Chrome trace format."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]


def naming(what: str, process: int, thread: int, name: str) -> Event:
    """Names a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def sorting(what: str, process: int, thread: int, index: int) -> Event:
    """Says where a process or a thread stands among others."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"sort_index": index}}


def slice_of(name: str, category: str, process: int, thread: int, begin: float, end: float, arguments: Event) -> Event:
    """Something that lasts, in microseconds. One that begins where another one ends does not begin before that, neither as it is written
    nor for a tool that adds floats, for which it may be a picosecond short.
    """
    at, until = round(begin, 6), round(end, 6)
    lasts = round(until - at, 6)
    if at + lasts > until:
        lasts = round(lasts - 1e-6, 6)
    times = {"ts": at, "dur": max(lasts, 0.0)}
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, **times, "args": arguments}


def arrow(phase: str, number: int, category: str, name: str, process: int, thread: int, us: float) -> Event:
    """The begin `s` or the end `f` of an arrow, which belongs to the slice around it."""
    place = {"pid": process, "tid": thread, "ts": round(us, 6)}
    return {"ph": phase, "id": number, "cat": category, "name": name, **place, **({"bp": "e"} if phase == "f" else {})}


def counter(name: str, process: int, us: float, value: float) -> Event:
    """The value of a counter from then on."""
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": round(us, 6), "args": {"value": round(value, 4)}}
