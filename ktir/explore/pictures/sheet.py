"""A sheet to draw on, as wide as a page, whose words stand apart: names go into a list below or beside the axes, and numbers stand for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ktir.diagnostics import KtirError

FORMATS = (".svg", ".png", ".pdf")
WIDTH = 8.0
"""Inches. On a page of 800 pixels the smallest words are 11 pixels high."""
SIZE = 8
"""Points of the smallest words."""
LINE = 0.17
"""Inches from one line of a list to the next."""
_COLUMNS = 3
LETTER = 0.068
"""Inches of a letter of that size, as wide as most."""
MOST_LISTED = 36
COLOURS = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"),
    *("#e69f00", "#117733", "#882255", "#999933", "#44aa99", "#6699cc"),
)
"""Told apart by most people (P. Tol's bright and muted schemes)."""
GREY = "#bbbbbb"


class Sheet:
    """A figure with a title; below its axes a list of entries. Raises KtirError where matplotlib is missing."""

    def __init__(self, title: str, height: float, entries: Sequence[tuple[str, str | None]] = (), *, right: float = 0.25) -> None:
        """height: inches of the axes with their labels. entries: words, and a colour for those that have one. right: inches beside the
        axes.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise KtirError("pictures need matplotlib: pip install 'ktir[pictures]'") from None
        shown = list(entries[:MOST_LISTED])
        if len(entries) > MOST_LISTED:
            shown[-1] = (f"and {len(entries) - MOST_LISTED + 1} more", None)
        rows = -(-len(shown) // _COLUMNS)
        self._below = rows * LINE + (0.15 if rows else 0)
        self._right = right
        self.height = height + self._below + 0.45
        self.figure = Figure(figsize=(WIDTH, self.height))
        self.figure.text(0.1 / WIDTH, 1 - 0.22 / self.height, title, fontsize=10, fontweight="bold", va="center")
        for number, (words, colour) in enumerate(shown):
            x = 0.1 + (WIDTH - 0.2) / _COLUMNS * (number // rows)
            y = (self._below - 0.12 - LINE * (number % rows)) / self.height
            if colour is not None:
                self.figure.text(x / WIDTH, y, "\u25a0", fontsize=SIZE, color=colour, va="center")
                x += 0.14
            room = (WIDTH - 0.2) / _COLUMNS - 0.2 - (0.14 if colour is not None else 0)
            self.figure.text(x / WIDTH, y, short(words, int(room / LETTER)), fontsize=SIZE, va="center")

    def axes(self, top: float = 0.0, bottom: float = 1.0, *, left: float = 0.75, foot: float = 0.5) -> Any:
        """Axes from `top` to `bottom`, as shares of the room. left, foot: inches for the words beside and below them."""
        room = self.height - 0.45 - self._below
        low = self._below + room * (1 - bottom) + foot
        high = self._below + room * (1 - top)
        made = self.figure.add_axes((left / WIDTH, low / self.height, (WIDTH - left - self._right) / WIDTH, (high - low) / self.height))
        made.tick_params(labelsize=SIZE)
        for side in ("top", "right"):
            made.spines[side].set_visible(False)
        return made


def short(words: str, most: int) -> str:
    """Words, without their middle where they are too long."""
    return words if len(words) <= most else f"{words[: most - most // 3 - 1]}\u2026{words[len(words) - most // 3 :]}"


def ink(colour: Any) -> str:
    """What can be read on a colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.45 else "white"


def label(axes: Any, x: str = "", y: str = "") -> None:
    """Words at the axes."""
    axes.set_xlabel(x, fontsize=SIZE)
    if x == "cycles":
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel(y, fontsize=SIZE)


def kernels_above(axes: Any, starts: Sequence[int]) -> None:
    """Lines where kernels begin, and their numbers from 1 above their middles; where there is no room for all, longer ones come first.
    starts: cycles, with the end of the last one.
    """
    end = float(starts[-1])
    inch = end / (axes.get_position().width * WIDTH)
    taken: list[tuple[float, float]] = []
    for begin in starts[:-1]:
        axes.axvline(begin, color="#555555", linewidth=0.5)
    for number, (first, last) in sorted(enumerate(pairwise(starts), 1), key=lambda k: (k[1][0] - k[1][1], k[0])):
        half, middle = (0.06 + 0.07 * len(str(number))) / 2 * inch, (first + last) / 2
        low, high = middle - half, middle + half
        if last > first and all(high <= b or e <= low for b, e in taken):
            axes.text(middle, 1.02, str(number), transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=SIZE)
            taken.append((low, high))
    axes.set_xlim(0, end or 1)


def kernel_entries(names: Sequence[str], cycles: Sequence[int], others: int) -> list[tuple[str, str | None]]:
    """Kernels by number, for a list that has so many other entries; those that take longest, if it has no room for all."""
    most = max(MOST_LISTED - others, 1)
    longest = sorted(range(len(names)), key=lambda n: -cycles[n])
    shown = sorted(longest if len(names) <= most else longest[: most - 1])
    entries: list[tuple[str, str | None]] = [(f"{n + 1}  {names[n]}  {cycles[n]:,}", None) for n in shown]
    if len(shown) < len(names):
        entries.append((f"and {len(names) - len(shown)} shorter ones  {sum(cycles) - sum(cycles[n] for n in shown):,}", None))
    return entries


def save(figure: Any, place: Path) -> None:
    """Write a picture. Raises KtirError for another format than FORMATS."""
    if place.suffix not in FORMATS:
        raise KtirError(f"'{place}': pictures are written as {', '.join(FORMATS)}")
    figure.savefig(place, dpi=160)
