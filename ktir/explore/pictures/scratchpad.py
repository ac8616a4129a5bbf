"""What lies in a core's LX when: each value from its write to its last read, and how much is needed in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ktir.emulator.machine.reports.occupancy import Life, needed
from ktir.explore.pictures.sheet import COLOURS, GREY, SIZE, Sheet, kernel_entries, kernels_above, label
from ktir.target import STICK_BYTES, Target

_APART = 0.045
"""Share of the height that two ticks are apart at least."""


def draw(found: Sequence[Life], names: Sequence[str], starts: Sequence[int], target: Target, core: int) -> Any:
    """Of one core. names, starts: of the kernels, and when they begin, with the end of the last one. Addresses that nobody uses are left
    out, and the height of a range grows with the square root of its size, so that small buffers are seen beside large ones.
    """
    from matplotlib.collections import PolyCollection

    area: Counter[str] = Counter()
    for life in found:
        area[_writer(life)] += life.sticks * (life.end - life.begin + 1)
    colours = {name: COLOURS[i] for i, (name, _) in enumerate(area.most_common(len(COLOURS)))}
    entries: list[tuple[str, str | None]] = [*colours.items()]
    entries += [("others", GREY)] if len(area) > len(colours) else []
    entries += kernel_entries(names, np.diff(starts).tolist(), len(entries))
    top = max([(life.last + 1) * STICK_BYTES for life in found], default=0)
    title = f"LX of core {core}: up to {top / 1024:,.1f} KiB, {top / target.lx_planned_bytes:.1%} of what programs may use"
    sheet = Sheet(title, 5.2, entries)
    total, lanes = sheet.axes(0.03, 0.25, foot=0.12), sheet.axes(0.3, 1.0)
    times, kib = _steps(found)
    total.fill_between(times, kib, step="post", color=COLOURS[0], alpha=0.6, linewidth=0)
    label(total, "", "KiB needed")
    total.set_ylim(0)
    total.tick_params(labelbottom=False)
    heights = _Heights(found)
    boxes = [heights.box(life) for life in found]
    drawn = PolyCollection(boxes, facecolors=[colours.get(_writer(life), GREY) for life in found], edgecolors="white", linewidths=0.15)
    lanes.add_collection(drawn)
    lanes.set_ylim(0, 1)
    lanes.set_yticks(*heights.ticks(), fontsize=SIZE)
    label(lanes, "cycles", "KiB from the begin of LX")
    kernels_above(total, starts)
    for start in starts[:-1]:
        lanes.axvline(start, color="#555555", linewidth=0.5)
    lanes.set_xlim(0, starts[-1] or 1)
    return sheet.figure


def _writer(life: Life) -> str:
    """The KTIR op that wrote it and its source line, without folders."""
    return f"{life.op or 'lx'} {Path(life.location).name.rpartition(':')[0]}".rstrip()


def _steps(found: Sequence[Life]) -> tuple[Any, Any]:
    """When how many KiB are needed."""
    times, sticks = needed(found)
    return times, sticks * STICK_BYTES / 1024


class _Heights:
    """Where addresses stand on the axis: used ones alone, by the square root of their sizes."""

    def __init__(self, found: Sequence[Life]) -> None:
        edges = sorted({e for life in found for e in (life.first, life.last + 1)}) or [0, 1]
        self.edges = np.array(edges)
        used = np.zeros(len(edges) + 1, int)
        for life in found:
            used[np.searchsorted(self.edges, life.first)] += 1
            used[np.searchsorted(self.edges, life.last + 1)] -= 1
        inside = np.cumsum(used)[: len(edges) - 1] > 0
        sizes = np.where(inside, np.sqrt(np.diff(self.edges)), 0.0)
        gaps = np.where(inside, 0.0, 0.02 * (sizes.sum() or 1.0))
        self.at = np.concatenate(([0.0], np.cumsum(sizes + gaps)))
        self.at /= self.at[-1] or 1.0

    def box(self, life: Life) -> list[tuple[float, float]]:
        """The corners of a life."""
        low, high = (float(self.at[np.searchsorted(self.edges, e)]) for e in (life.first, life.last + 1))
        end = max(life.end, life.begin + 1)
        return [(life.begin, low), (end, low), (end, high), (life.begin, high)]

    def ticks(self) -> tuple[list[float], list[str]]:
        """Edges that are far enough apart."""
        places: list[float] = []
        words = []
        for edge, at in zip(self.edges.tolist(), self.at.tolist(), strict=True):
            if not places or at - places[-1] >= _APART:
                places.append(at)
                words.append(f"{edge * STICK_BYTES / 1024:,.1f}")
        return places, words
