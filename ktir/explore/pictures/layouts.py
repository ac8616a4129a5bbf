"""How a tensor lies in sticks: which elements each stick of 128 bytes has, in the order of memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.explore.pictures.sheet import GREY, SIZE, Sheet, ink, label
from ktir.layout import Layout, host_index
from ktir.package import LaunchArgument

_MOST = 1 << 20
"""Sticks that are looked at."""
_ALONG, _ACROSS = 4, 16
"""Sticks that are shown along the dim that lies in them, and positions of the other one."""


def draw(argument: LaunchArgument, layout: Layout) -> Any:
    """Of an argument of a program that lies so: its first elements along the dim that lies in sticks, and its first positions of the others
    together. A rectangle is 64 elements with their number in memory, from 0: a stick, half of one or, of wider elements, two. What lies
    beyond the tensor is padding.
    """
    size = layout.size
    dim = layout.digits[-1].dim
    dim = len(size) - 1 if dim is None else dim
    index = host_elements(layout)
    live = index >= 0
    inner, extent = prod(size[dim + 1 :]), size[dim] if size else 1
    along = np.where(live, index // inner % extent, -1)
    across = np.where(live, index // (inner * extent) * inner + index % inner, -1)
    upright = dim < len(size) - 1
    shape = "\u00d7".join(map(str, size)) or "1"
    title = f"Sticks of {argument.name}: {argument.dtype} [{shape}], device [{', '.join(map(str, layout.device_size))}]"
    sheet = Sheet(title, 4.2, _entries(argument, index))
    axes = sheet.axes(0.02)
    lanes = index.shape[1]
    limits = [min(extent, lanes * _ALONG), min(prod(size) // extent, _ACROSS)]
    _sticks(axes, along, across, limits, lanes, upright=upright)
    others = "the other dims, in order" if len(size) > 2 else f"dim {1 - dim}" if len(size) == 2 else ""
    names = [f"dim {dim}" if size else "", others]
    label(axes, *(reversed(names) if upright else names))
    return sheet.figure


def host_elements(layout: Layout) -> NDArray[np.int64]:
    """Per 64 lanes of a tensor their elements, -1 where there is padding."""
    return host_index(layout.size, layout.digits).reshape(-1, layout.lanes)[:_MOST]


def _sticks(axes: Any, along: NDArray[np.int64], across: NDArray[np.int64], limits: list[int], lanes: int, *, upright: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    live = along >= 0
    first = np.where(live, along, 1 << 62).min(1)
    row = np.where(live, across, 1 << 62).min(1)
    shown = np.flatnonzero((first < limits[0]) & (row < limits[1]))
    colours = colormaps["viridis"]
    most = max(len(along) - 1, 1)
    width = lanes * -(-limits[0] // lanes)
    for stick in shown.tolist():
        x, y, end = int(first[stick]), int(row[stick]), int(along[stick].max()) + 1
        filled = colours(0.25 + 0.7 * stick / most)[:3]
        pieces = [(x, end - x, filled, "white"), (end, x + lanes - end, "#eeeeee", GREY)]
        for begin, extent, colour, edge in pieces:
            if extent > 0:
                place = (y, begin, 1, extent) if upright else (begin, y, extent, 1)
                axes.add_patch(Rectangle(place[:2], place[2], place[3], facecolor=colour, edgecolor=edge, linewidth=0.6))
        middle = (y + 0.5, x + (end - x) / 2) if upright else (x + (end - x) / 2, y + 0.5)
        axes.text(*middle, str(stick), fontsize=SIZE, ha="center", va="center", rotation=90 if upright else 0, color=ink(filled))
    extent = (limits[1], width) if upright else (width, limits[1])
    axes.set(xlim=(0, extent[0]), ylim=(extent[1], 0))


def _entries(argument: LaunchArgument, index: NDArray[np.int64]) -> list[tuple[str, str | None]]:
    padding = 1 - (index >= 0).mean()
    found: list[tuple[str, str | None]] = [
        (f"{argument.sticks:,} sticks of 128 bytes", None),
        (f"padding: {padding:.1%} of their elements", "#eeeeee"),
        (f"{argument.role}, {argument.layout.device_dtype}", None),
    ]
    return found
