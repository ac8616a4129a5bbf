"""A program over time: for each unit of a core which share of the time it works, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.reports.counters import shares
from ktir.emulator.machine.trace.trace import Trace
from ktir.explore.pictures.sheet import COLOURS, SIZE, Sheet, kernel_entries, kernels_above, label
from ktir.isa.units import Unit
from ktir.target import Target

_PIECES = 600
"""Of the time; each has one bar."""
_ROW = 0.42
"""Inches of a row."""
_WAITS = {
    "token": ("waits for a token of another unit", COLOURS[3]),
    "empty": ("waits for an entry of a FIFO", COLOURS[4]),
    "full": ("waits for room in a FIFO", COLOURS[11]),
    "memory": ("waits for the memory channel", COLOURS[1]),
    "ring": ("waits for the ring", COLOURS[5]),
}
_WORK = ("works", COLOURS[2])


class _Part(NamedTuple):
    """Cycles of a row that have one colour."""

    colour: str
    spans: Sequence[tuple[int, int]]


def draw(name: str, trace: Trace, target: Target) -> Any:
    """Of a program of this name. trace: with journals."""
    assert trace.journals is not None
    starts = trace.starts
    journals = [*zip(trace.journals, starts, strict=False)]
    rows: dict[str, list[_Part]] = {
        "memory channel": [_Part(_WORK[1], [(start + t.begin, start + t.end) for j, start in journals for t in j.memory])],
        "ring": [_Part(_WORK[1], [(start + t.begin, start + t.end) for j, start in journals for t in j.ring])],
    }
    segments = [(s, start) for journal, start in journals for s in journal.segments]
    causes = {cause.split()[0] for s, _ in segments if (cause := s.cause)}
    for unit in Unit:
        mine = [(s.begin + start, s.end + start, s.cause.partition(" ")[0]) for s, start in segments if s.unit is unit]
        kinds = [("", _WORK[1]), *((cause, colour) for cause, (_, colour) in _WAITS.items())]
        parts = [_Part(colour, [(b, e) for b, e, cause in mine if cause == kind]) for kind, colour in kinds]
        if mine:
            rows[unit.name] = parts
    names, cycles = [s.name for s in trace.statistics], [s.cycles for s in trace.statistics]
    entries: list[tuple[str, str | None]] = [_WORK, *(about for cause, about in _WAITS.items() if cause in causes)]
    title = (
        f"Program '{name}' on {trace.cores} cores, Spyre ({target.name}): {starts[-1]:,} cycles, {target.microseconds(starts[-1]):,.1f} us"
    )
    sheet = Sheet(title, 0.8 + _ROW * len(rows), entries + kernel_entries(names, cycles, len(entries)))
    axes = sheet.axes(0.25 / (0.8 + _ROW * len(rows)), left=1.15)
    edges = np.linspace(0, max(starts[-1], 1), _PIECES + 1)
    for number, parts in enumerate(rows.values()):
        _row(axes, number, parts, edges)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=SIZE)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(left=False)
    kernels_above(axes, starts)
    label(axes, "cycles")
    return sheet.figure


def _row(axes: Any, number: int, parts: Sequence[_Part], edges: NDArray[np.float64]) -> None:
    """Stacked bars from the floor of the row: how much of each piece of the time a part has."""
    floor = np.full(len(edges), number + 0.4)
    for part in parts:
        if not part.spans:
            continue
        share = shares(part.spans, [end - begin for begin, end in part.spans], edges) / np.diff(edges)
        top = floor - 0.8 * np.append(share, share[-1])
        axes.fill_between(edges, floor, top, step="post", color=part.colour, linewidth=0)
        floor = top
