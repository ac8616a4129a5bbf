"""Kernels and copies of the cards as events of torch's profiler: rows of its tables, time of the operators that gave them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any
from weakref import WeakKeyDictionary

from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from ktir.device.profiler.placing import Placed, place
from ktir.device.profiler.session import Session, number_of
from ktir.emulator.machine import Machine
from ktir.emulator.machine.reports.roofline import roofline

CALLS = {"kernel": "spyreLaunchKernel", "gpu_memcpy": "spyreMemcpyAsync"}
"""What the host calls to have such things done, as events of the host are named."""


def add_device(events: list[FunctionEvent], session: Session, begin: int, *, flops: bool) -> list[FunctionEvent]:
    """The events of a profile that began at so many nanoseconds, with those of the cards, in order of time. Those of the host by which
    steps were given get names and what these took. flops: whether kernels have counts of operations.
    """
    givers = {number: event for event in events if (number := number_of(event.name)) is not None}
    operators = _operators(events, givers)
    started = {number: begin + round(event.time_range.start * 1000) for number, event in givers.items()}
    found = list(events)
    for placed in place(session.done, started):
        giver = givers.get(placed.number)
        piece = placed.slice
        if giver is not None:
            giver.name = giver.trace_name = CALLS[piece.category]
            # as of other devices, the time is the operator's, not that of the call
            operators.get(placed.number, giver).append_kernel(piece.name, placed.stream.card, piece.ns / 1000)
            giver.stack = [*dropwhile(_is_own, giver.stack)]
        found.append(_event(placed, giver, begin, _flops(placed) if flops else 0))
    found.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    return found


def _operators(events: Sequence[FunctionEvent], givers: Mapping[int, FunctionEvent]) -> dict[int, FunctionEvent]:
    """Number of a step -> the innermost operator of the host that it was given in; outside of operators, the innermost event."""
    threads: dict[int, list[FunctionEvent]] = defaultdict(list)
    for event in events:
        if event.device_type == DeviceType.CPU and not (event.is_async or event.is_python_function):
            threads[event.thread].append(event)
    found: dict[int, FunctionEvent] = {}
    for thread in {giver.thread for giver in givers.values()}:
        open_: list[FunctionEvent] = []
        for event in sorted(threads[thread], key=lambda event: (event.time_range.start, -event.time_range.end)):
            while open_ and open_[-1].time_range.end <= event.time_range.start:
                open_.pop()
            if (number := number_of(event.name)) is None:
                open_.append(event)
            elif open_:  # what Inductor records of a graph that an operator became is no operator
                found[number] = next((each for each in reversed(open_) if "::" in each.name), open_[-1])
    return found


def _event(placed: Placed, giver: FunctionEvent | None, begin: int, flops: int) -> FunctionEvent:
    start = (placed.begin - begin) / 1000
    (card, stream), piece = placed.stream, placed.slice
    metadata = {"device": card, "stream": stream, "correlation": placed.number, **piece.arguments}
    return FunctionEvent(
        id=giver.id if giver is not None else placed.number,
        name=piece.name,
        trace_name=piece.name,
        overload_name="",
        thread=stream,
        start_us=start,
        end_us=start + piece.ns / 1000,
        use_device="spyre",
        device_type=DeviceType.PrivateUse1,
        device_index=card,
        device_resource_id=stream,
        input_shapes=[],
        stack=[],  # the operator has it: what sums times by stacks counts both
        flops=flops,
        activity_type=piece.category,
        metadata_json=json.dumps(metadata)[1:-1],
        extra_meta={key: json.dumps(value) for key, value in metadata.items()},
        linked_correlation_id=giver.id if giver is not None else 0,
    )


def _is_own(frame: str) -> bool:
    """Whether a frame of a stack is the device's own: what torch calls comes behind."""
    return frame.startswith("ktir/") or "/ktir/" in frame


_counted: WeakKeyDictionary[Machine, list[int]] = WeakKeyDictionary()


def _flops(placed: Placed) -> int:
    """Operations of a kernel, as executed."""
    machine: Any = placed.step.machine
    if machine is None:
        return 0
    if machine not in _counted:
        _counted[machine] = [each.flops for each in roofline(machine.trace, machine.target)]
    return _counted[machine][placed.part]
