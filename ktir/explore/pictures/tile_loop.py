"""How the loop over a core's tiles runs: what each unit does in which trip, one above the other."""

from __future__ import annotations

from typing import Any, NamedTuple

from ktir.diagnostics import KtirError
from ktir.emulator.machine.trace.journal import Journal
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.explore.pictures.sheet import COLOURS, GREY, SIZE, WIDTH, Sheet, ink, label
from ktir.isa.instructions import Does
from ktir.isa.units import Unit
from ktir.target import Target

_ROW = 0.45
"""Inches of a row."""
_MOST = 12
"""Trips that are shown: as many as there are colours."""
_ORDER = (Unit.MNIL, Unit.LXLU, Unit.PT, Unit.SFP, Unit.LXSU, Unit.MNIS)
"""Units as data pass them."""


def draw(trace: Trace, kernel: int, target: Target) -> Any:
    """Of a kernel: its first trips, each in a colour of its own, from the cycle in which a unit first works on it to that in which it is
    done. Where different trips lie above each other, units work ahead. trace: with journals. Raises KtirError for a kernel without a loop.
    """
    assert trace.journals is not None
    statistics, decoded = trace.statistics[kernel], trace.kernels[kernel]
    loops = [x for words in decoded.units.values() for x in words if x.does is Does.LOOP and x.trips > 1]
    if not loops:
        raise KtirError(f"kernel '{statistics.name}' has no loop of several trips")
    outer = min({x.level for x in loops})
    trips = max(x.trips for x in loops if x.level == outer)
    events = [_Event(e, _begin(e, trace.journals[kernel])) for e in trace.events if e.kernel == kernel]
    spans = {(unit, trip): span for unit in _ORDER for trip in range(min(trips, _MOST)) if (span := _span(events, unit, outer, trip))}
    shown = [(*key, *span) for key, span in spans.items()]
    limit = max(end for *_, end in shown) if trips > _MOST else statistics.cycles
    rows = [unit for unit in _ORDER if any(e.event.unit is unit for e in events)]
    title = f"Tile loop of kernel '{statistics.name}': {trips} trips, {statistics.cycles:,} cycles on {target.name}"
    entries = [(f"trip {n}", COLOURS[n]) for n in range(min(trips, _MOST))]
    entries += [(f"and {trips - _MOST} more trips", None)] if trips > _MOST else []
    entries += [("before and after the loop", GREY)]
    sheet = Sheet(title, 0.7 + _ROW * len(rows), entries)
    axes = sheet.axes(0.02)
    width = axes.get_position().width * WIDTH
    for unit in rows:
        row = rows.index(unit)
        for e, begin in (e for e in events if e.event.unit is unit and outer not in e.event.open_levels):
            axes.barh(row, e.end - begin, left=begin, height=0.3, color=GREY, linewidth=0)
        for _, trip, begin, end in (s for s in shown if s[0] is unit):
            offset = 0.2 * (trip % 2 * 2 - 1)
            axes.barh(row + offset, end - begin, left=begin, height=0.38, color=COLOURS[trip], linewidth=0)
            if (end - begin) / limit * width > 0.1 + 0.07 * len(str(trip)):
                axes.text((begin + end) / 2, row + offset, str(trip), fontsize=SIZE, ha="center", va="center", color=ink(COLOURS[trip]))
    axes.set_yticks(range(len(rows)), [unit.name for unit in rows], fontsize=SIZE)
    axes.set(xlim=(0, limit), ylim=(len(rows) - 0.5, -0.5))
    axes.tick_params(left=False)
    label(axes, "cycles" if trips <= _MOST else f"cycles of the first {_MOST} trips")
    return sheet.figure


class _Event(NamedTuple):
    """An event, and the cycle in which it begins to work: it may have waited for its first entries."""

    event: Event
    begin: int


def _begin(e: Event, journal: Journal) -> int:
    works = [s.begin for s in journal.segments if s.unit is e.unit and not s.cause and s.end > e.begin]
    return min(max(min(works, default=e.begin), e.begin), e.end)


def _span(events: list[_Event], unit: Unit, level: int, trip: int) -> tuple[int, int] | None:
    """From when to when a unit is on with a trip."""
    mine = [e for e in events if e.event.unit is unit and level in e.event.open_levels and e.event.counters[level] == trip]
    return (min(e.begin for e in mine), max(e.event.end for e in mine)) if mine else None
