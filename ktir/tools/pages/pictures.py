"""Pictures of a program on the chip, drawn with matplotlib: the roofline, and LX over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError
from ktir.emulator.machine.reports.occupancy import Life
from ktir.emulator.machine.reports.roofline import Roofline, pt_peak, sfp_peak
from ktir.target import STICK_BYTES, Target

FORMATS = (".svg", ".png", ".pdf")


def _axes(title: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise KtirError("pictures need matplotlib: pip install 'ktir[pictures]'") from None
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _save(figure: Any, place: Path) -> None:
    if place.suffix not in FORMATS:
        raise KtirError(f"'{place}': pictures are written as {', '.join(FORMATS)}")
    figure.savefig(place)


def draw_roofline(kernels: Sequence[Roofline], target: Target, place: Path) -> None:
    """Attained rate over operations per byte, one mark per kernel, below the roofs of the systolic arrays and the vector units."""
    figure, axes = _axes(f"Roofline, Spyre ({target.name})")
    inside = [k for k in kernels if k.flops and k.bytes]
    points = [k.intensity for k in inside] or [1.0]
    low, high = min(0.1, *points) / 2, max(1000.0, *points) * 2
    band = kernels[0].bandwidth if kernels else 1.0
    for peak, name in ((pt_peak(target), "systolic arrays"), (sfp_peak(target), "vector units")):
        corner = peak / band
        axes.plot([low, corner, high], [low * band, peak, peak], label=f"{name}: {peak:,.0f} GFLOP/s")
    for number, kernel in enumerate(inside, 1):
        axes.plot([kernel.intensity], [kernel.attained], "o", color="black")
        axes.annotate(f" {number} {kernel.name} ({kernel.share:.0%})", (kernel.intensity, kernel.attained), fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte of memory", ylabel=f"GFLOP/s (slope: {band:.1f} GB/s)")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(loc="lower right")
    _save(figure, place)


def draw_lx(found: Sequence[Life], target: Target, core: int, place: Path) -> None:
    """What lies in a core's LX from its write to its last read: address upwards, time to the right, a colour per KTIR op."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    figure, axes = _axes(f"LX of core {core}")
    colours = colormaps["tab20"]
    writers = {name: colours(i % 20) for i, name in enumerate(dict.fromkeys(map(_writer, found)))}
    for life in found:
        height = (life.last - life.first + 1) * STICK_BYTES / 1024
        corner = (life.begin, life.first * STICK_BYTES / 1024)
        box = Rectangle(corner, max(life.end - life.begin, 1), height, facecolor=writers[_writer(life)], edgecolor="white", linewidth=0.2)
        axes.add_patch(box)
    top = max([(life.last + 1) * STICK_BYTES / 1024 for life in found], default=1.0)
    axes.set(xlim=(0, max([life.end for life in found], default=1)), ylim=(0, top), xlabel="cycles", ylabel="KiB")
    share = top * 1024 / target.lx_planned_bytes
    axes.set_title(f"LX of core {core}: the highest address is {top:,.1f} KiB, {share:.1%} of what programs may use")
    shown = list(writers.items())[:20]
    axes.legend([Rectangle((0, 0), 1, 1, facecolor=c) for _, c in shown], [name for name, _ in shown], fontsize=6, loc="upper left")
    _save(figure, place)


def _writer(life: Life) -> str:
    """The KTIR op that wrote it and its source line, without folders."""
    return f"{life.op or 'lx'} {Path(life.location).name.rpartition(':')[0]}".rstrip()
