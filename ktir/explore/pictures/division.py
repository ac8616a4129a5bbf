"""How a kernel is divided: which part of its rows and columns each core has."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

from ktir.analysis.attributes.kernel import Division
from ktir.explore.pictures.sheet import COLOURS, SIZE, Sheet, label

_ROW = 0.2
"""Inches of a row of parts."""


class Part(NamedTuple):
    """What a core has: sticks of columns [first, end), and of each row loop, outer to inner, the positions [first, end)."""

    core: int
    columns: tuple[int, int]
    rows: tuple[tuple[int, int], ...]


def parts(work: Division, rows: Sequence[int], cores: int) -> list[Part]:
    """The part of each core of a kernel whose row loops have these extents. Cores that share a sum, which are neighbours, have the same
    one; groups of them count columns first, then row loops from the inner one to the outer.
    """
    counts = (*work.row_parts, work.column_parts)
    together = max(cores // prod(counts), 1)
    found = []
    for core in range(cores):
        number, place = core // together, []
        for count in reversed(counts):
            place.append(number % count)
            number //= count
        column, *at = place
        spans = [(i * share, min((i + 1) * share, extent)) for i, share, extent in zip(reversed(at), work.row_shares, rows, strict=True)]
        found.append(Part(core, (column * work.sticks, (column + 1) * work.sticks), tuple(spans)))
    return found


def draw(name: str, work: Division, rows: Sequence[int], cores: int) -> Any:
    """Of a kernel of this name: a box per part, with the cores that have it; one above the other along row loops, beside each other along
    columns.
    """
    found = parts(work, rows, cores)
    down = list(dict.fromkeys(p.rows for p in found))
    across = list(dict.fromkeys(p.columns for p in found))
    height = 0.9 + _ROW * max(len(down), 3)
    loops = [f"b{n}" for n in range(len(rows) - 1)] + ["rows"]
    entries: list[tuple[str, str | None]] = [
        (f"{loop}: {extent} in {count} part{'s' * (count > 1)} of {share}", None)
        for loop, extent, count, share in zip(loops, rows, work.row_parts, work.row_shares, strict=True)
    ]
    several = work.column_parts > 1
    if several:
        entries.append((f"columns in {work.column_parts} parts of {work.sticks} stick{'s' * (work.sticks > 1)}", None))
    sheet = Sheet(f"Division of kernel '{name}': {cores} cores", height, entries)
    axes = sheet.axes(0.02, left=0.3 + 0.9 * len(rows))
    for (at, columns), group in groupby(found, key=lambda p: (p.rows, p.columns)):
        _box(axes, across.index(columns), down.index(at), [p.core for p in group], len(across))
    axes.set(xlim=(0, len(across)), ylim=(len(down), 0))
    axes.set_yticks([n + 0.5 for n in range(len(down))], [_spans(loops, at) for at in down], fontsize=SIZE)
    step = -(-len(across) // 8)
    words = [f"{first}:{end}" for first, end in across[::step]]
    axes.set_xticks([n * step + 0.5 for n in range(len(words))] if several else [], words if several else [], fontsize=SIZE)
    axes.tick_params(left=False, bottom=False)
    label(axes, "sticks of columns" if several else "all columns")
    return sheet.figure


def _box(axes: Any, column: int, row: int, cores: Sequence[int], columns: int) -> None:
    from matplotlib.patches import Rectangle

    colour = COLOURS[row % 2 * 4] if (row + column) % 2 else "#dddddd"
    axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white", alpha=0.7))
    words = f"{cores[0]}" if len(cores) == 1 else f"{cores[0]}\u2013{cores[-1]}"
    if columns <= 4:
        words = ("core " if len(cores) == 1 else "cores ") + words
    axes.text(column + 0.5, row + 0.5, words, fontsize=SIZE, ha="center", va="center")


def _spans(loops: Sequence[str], at: Sequence[tuple[int, int]]) -> str:
    return "  ".join(f"{loop} {first}:{end}" for loop, (first, end) in zip(loops, at, strict=True))
