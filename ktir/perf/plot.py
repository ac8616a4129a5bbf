"""Tables as a picture: the time of each line, and its bound inside; of several tables one beside the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError
from ktir.explore.pictures.sheet import COLOURS, FORMATS, LETTER, LINE, SIZE, Sheet, label, short
from ktir.perf.modelled import Row

_LONGEST = 66
"""Letters of a name that is not cut."""


def draw(tables: Sequence[tuple[str, Sequence[Row]]]) -> Any:
    """A figure of matplotlib. Lines of the tables, with their names; the first table's colour is the first. Raises KtirError where there is
    no line, or no matplotlib.
    """
    names = list(dict.fromkeys(row.name for _, rows in tables for row in rows))
    if not names:
        raise KtirError("there is no line to be drawn")
    entries = [(name, COLOURS[i % len(COLOURS)]) for i, (name, _) in enumerate(tables)]
    step = 1 / len(tables)
    sheet = Sheet("Modelled times", 0.6 + LINE * 1.4 * len(names) * max(1, 0.7 * len(tables)), [*entries, ("black: the bound", "#000000")])
    names_shown = [short(name, _LONGEST) for name in names]
    axes = sheet.axes(left=0.2 + LETTER * max(map(len, names_shown)))
    for number, (_, rows) in enumerate(tables):
        places = [names.index(row.name) + (number + 0.5) * step - 0.5 for row in rows]
        axes.barh(places, [row.ms for row in rows], 0.8 * step, color=COLOURS[number % len(COLOURS)])
        for place, row in zip(places, rows, strict=True):
            axes.plot([row.bound] * 2, [place - 0.4 * step, place + 0.4 * step], color="black", linewidth=1.5)
            axes.text(row.ms, place, f" {row.ms:.4g}", va="center", fontsize=SIZE)
    every = [ms for _, rows in tables for row in rows for ms in (row.ms, row.bound)]
    from matplotlib.ticker import LogLocator, NullFormatter  # it is there, since the sheet is

    axes.set(xscale="log", xlim=(min(every) / 2, max(every) * 3), ylim=(len(names) - 0.4, -0.6))
    axes.set_yticks(range(len(names)), names_shown)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    label(axes, "ms")
    return sheet.figure


def write(tables: Sequence[tuple[str, Sequence[Row]]], place: Path) -> None:
    """Draw to a file, of the kind that its name says. Raises KtirError, and OSError."""
    if place.suffix not in FORMATS:
        raise KtirError(f"expects a name that ends in {', '.join(FORMATS)}, but got '{place}'")
    draw(tables).savefig(place)
