"""The roofline: what rate each kernel attains at its operations per byte, and what the chip allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ktir.emulator.machine.reports.report import KernelReport
from ktir.emulator.machine.reports.roofline import Roofline, bandwidth, pt_peak, sfp_peak
from ktir.explore.pictures.sheet import COLOURS, GREY, LINE, SIZE, WIDTH, Sheet, label, short
from ktir.isa.resources import Bound, Resource
from ktir.target import Target

_MOST = 26
"""Marks that are named beside the axes; of more, those whose kernels take longest."""
_MOST_BARS = 12


def draw(places: Sequence[Roofline], reports: Sequence[KernelReport], bounds: Sequence[Bound], target: Target) -> Any:
    """Of the kernels of a program. A mark has the colour of what bounds its kernel. Kernels that compute nothing or read no memory, as
    exchanges, have no place there: how long they keep the ring and the memory channel busy is drawn below.
    """
    inside = [n for n, p in enumerate(places) if p.flops and p.bytes]
    beside = sorted((n for n, p in enumerate(places) if not (p.flops and p.bytes)), key=lambda n: -reports[n].cycles)
    bars = beside[:_MOST_BARS]
    colours = {r: COLOURS[i] for i, r in enumerate(Resource)}
    used = [r for r in Resource if any(b.resource is r for b in bounds)]
    entries: list[tuple[str, str | None]] = [(f"bound by the {r.title}", colours[r]) for r in used]
    entries.append((f"full: matrix arrays {pt_peak(target):,.0f} GFLOP/s", None))
    entries.append((f"broken: vector units {sfp_peak(target):,.0f} GFLOP/s", None))
    below = 0.8 + LINE * 1.3 * len(bars) if bars else 0.0
    sheet = Sheet(f"Roofline, Spyre ({target.name})", 4.6 + below, entries, right=2.6)
    share = 4.6 / (4.6 + below)
    axes = sheet.axes(0.0, share)
    _roofs(axes, [places[n] for n in inside], target)
    alike = _alike(inside, places, bounds)
    longest = sorted(alike, key=lambda group: -sum(reports[n].cycles for n in group))[:_MOST]
    shown = sorted(longest, key=lambda group: -places[group[0]].attained)
    for n in inside:
        axes.plot([places[n].intensity], [places[n].attained], "o", markersize=5, color=colours[bounds[n].resource], zorder=3)
    _names(axes, [(_words(group, places), places[group[0]]) for group in shown], len(inside) - sum(map(len, shown)))
    if bars:
        words = f"kernels that compute nothing, or read no memory{f': {len(bars)} of {len(beside)}' if len(beside) > len(bars) else ''}"
        _busy(sheet.axes(share + 0.3 / (4.6 + below), 1.0, left=2.2), [reports[n] for n in bars], words)
    return sheet.figure


def _alike(inside: Sequence[int], places: Sequence[Roofline], bounds: Sequence[Bound]) -> list[list[int]]:
    """Kernels whose marks lie on each other, as those of equal layers: to three digits at the same place, and bound alike."""
    groups: dict[tuple[str, str, Resource], list[int]] = {}
    for n in inside:
        groups.setdefault((f"{places[n].intensity:.3g}", f"{places[n].attained:.3g}", bounds[n].resource), []).append(n)
    return [*groups.values()]


def _words(group: Sequence[int], places: Sequence[Roofline]) -> str:
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    first = places[group[0]]
    return f"{short(first.name, 18 if more else 24)}{more} {first.share:.0%}"


def _roofs(axes: Any, inside: Sequence[Roofline], target: Target) -> None:
    points = [k.intensity for k in inside] or [1.0]
    band = bandwidth(target)
    low, high = min(0.1, *points) / 2, max(2 * pt_peak(target) / band, *points) * 2
    for peak, style in ((pt_peak(target), "-"), (sfp_peak(target), "--")):
        axes.plot([low, peak / band, high], [low * band, peak, peak], style, color="#333333", linewidth=1)
    least = min([k.attained for k in inside if k.attained] or [band])
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(min(least, low * band) / 2, pt_peak(target) * 3))
    axes.grid(True, which="major", color=GREY, linewidth=0.4)
    label(axes, "operations per byte of memory", f"GFLOP/s (the slope is {band:.1f} GB/s)")


def _names(axes: Any, shown: Sequence[tuple[str, Roofline]], left_out: int) -> None:
    """Names in a column beside the axes, from the highest mark to the lowest, each with a line to its mark."""
    height = axes.get_position().height * axes.figure.get_figheight()
    step = min(LINE / height, 1 / max(len(shown) + 1, 1))
    first = 0.5 + step * len(shown) / 2
    for number, (words, place) in enumerate(shown):
        at = (1.06, first - step * number)
        line = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2, "relpos": (0, 0.5)}
        axes.annotate(words, (place.intensity, place.attained), at, textcoords="axes fraction", fontsize=SIZE, va="center", arrowprops=line)
    if left_out:
        axes.text(1.06, first - step * len(shown), f"and {left_out} shorter ones", fontsize=SIZE, va="center", transform=axes.transAxes)


def _busy(axes: Any, reports: Sequence[KernelReport], words: str) -> None:
    rows = range(len(reports))
    for offset, resource in ((-0.2, Resource.RING), (0.2, Resource.MEMORY)):
        shares = [100 * k.loads.get(resource, 0) / max(k.cycles, 1) for k in reports]
        colour = COLOURS[list(Resource).index(resource)]
        axes.barh([r + offset for r in rows], shares, height=0.38, color=colour, label=f"{resource.title} busy")
    axes.set_yticks(list(rows), [f"{short(k.name, 24)}  {k.cycles:,}" for k in reports], fontsize=SIZE)
    axes.set(xlim=(0, 100), ylim=(len(reports) - 0.4, -0.6))
    axes.set_title(words, fontsize=SIZE, loc="left")
    axes.legend(fontsize=SIZE, frameon=False, loc="center left", bbox_to_anchor=(1 + 0.1 / (axes.get_position().width * WIDTH), 0.5))
    label(axes, "% of its cycles")
