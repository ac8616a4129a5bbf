"""Kernels and copies of the cards in the Chrome trace that torch's profiler has written: a process per card, a row per stream."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ktir.device.profiler.events import CALLS
from ktir.device.profiler.placing import Placed, place
from ktir.device.profiler.session import Session, number_of
from ktir.emulator.machine.reports.events import naming
from ktir.runtime.memory.card import card
from ktir.runtime.time.trace import row_name

_FIRST = 5_000_000
"""Where Kineto sorts devices, behind the threads of the host."""
_FLOW = {"cat": "ac2g", "name": "ac2g"}
"""From a call of the host to what a device did for it."""
_OPERATORS = ("cpu_op", "user_annotation")

Event = dict[str, Any]


def add_device(path: str, session: Session) -> None:
    """Add what was recorded to the trace in a file."""
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    # names of processes without events stand for nothing
    used = {e.get("pid") for e in trace["traceEvents"] if e.get("ph") != "M"}
    events: list[Event] = [e for e in trace["traceEvents"] if e.get("ph") != "M" or e.get("pid") in used]
    base = trace.get("baseTimeNanoseconds", 0)
    givers = {number: e for e in events if e.get("ph") == "X" and (number := number_of(e["name"])) is not None}
    started = {number: base + round(e["ts"] * 1000) for number, e in givers.items()}
    operators = _operators(events, givers.values())
    seen: set[tuple[int, int]] = set()
    for placed in place(session.done, started):
        giver = givers.get(placed.number)
        external = operators.get(placed.number, 0)
        seen.add(placed.stream)
        events.append(device := _slice(placed, base, external))
        if giver is not None and not placed.part:
            giver |= {"name": CALLS[placed.slice.category], "cat": "privateuse1_runtime"}
            giver["args"] = {"External id": external, "correlation": placed.number}
            flow = {"id": placed.number, **_FLOW}
            events.append({"ph": "s", **flow, **{k: giver[k] for k in ("pid", "tid", "ts")}})
            events.append({"ph": "f", **flow, **{k: device[k] for k in ("pid", "tid", "ts")}, "bp": "e"})
    trace["traceEvents"] = [*_names(seen), *events]
    trace["deviceProperties"] = [*trace.get("deviceProperties", ()), *map(_properties, sorted({index for index, _ in seen}))]
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file, separators=(",", ":"))


def _slice(placed: Placed, base: int, external: int) -> Event:
    (index, stream), piece = placed.stream, placed.slice
    ids = {"External id": external, "correlation": placed.number, "device": index, "stream": stream}
    times = {"ts": (placed.begin - base) / 1000, "dur": piece.ns / 1000}
    return {"ph": "X", "cat": piece.category, "name": piece.name, "pid": index, "tid": stream, **times, "args": ids | piece.arguments}


def _operators(events: Sequence[Event], givers: Iterable[Event]) -> dict[int, int]:
    """Number of a step -> id of the innermost operator that gave it."""
    threads = defaultdict(list)
    for e in events:
        if e.get("ph") == "X" and (e.get("cat") in _OPERATORS):
            threads[e["pid"], e["tid"]].append(e)
    found: dict[int, int] = {}
    for thread in {(e["pid"], e["tid"]) for e in givers}:
        open_: list[Event] = []
        for e in sorted(threads[thread], key=lambda e: (e["ts"], -e["dur"])):
            while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= e["ts"]:
                open_.pop()
            number = number_of(e["name"])
            if number is None:
                open_.append(e)
            else:
                found[number] = next((i for o in reversed(open_) if (i := o.get("args", {}).get("External id"))), 0)
    return found


def _names(seen: Iterable[tuple[int, int]]) -> list[Event]:
    found = []
    for index in sorted({index for index, _ in seen}):
        found.append(naming("process_name", index, 0, f"spyre:{index}"))
        found.append({"ph": "M", "name": "process_labels", "pid": index, "tid": 0, "args": {"labels": f"Spyre {index}"}})
        found.append({"ph": "M", "name": "process_sort_index", "pid": index, "tid": 0, "args": {"sort_index": _FIRST + index}})
    for index, stream in sorted(seen):
        found.append(naming("thread_name", index, stream, row_name(stream)))
        found.append({"ph": "M", "name": "thread_sort_index", "pid": index, "tid": stream, "args": {"sort_index": stream}})
    return found


def _properties(index: int) -> Event:
    each = card(index)
    return {"id": index, "name": f"Spyre ({each.target.name})", "totalGlobalMem": each.capacity, "numSms": each.target.cores}
