"""What all pictures of the pages are made of.

Boxes bring their own colours, and what stands outside of them is grey, so that both can be read on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import log10

GREY = "#757d88"
"""As far from white as from the dark page."""
INK = "#1f2328"
PALE, BLUE, GREEN, AMBER, RED = "#e8eaed", "#cfe3fb", "#d2efd5", "#fdebc4", "#f9d9d3"


@dataclass
class Picture:
    """An SVG that grows shape by shape."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, size: int = 13, colour: str = GREY, anchor: str = "start", bold: bool = False) -> None:
        """A line of text whose middle is at height y."""
        style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"' + (' font-weight="600"' if bold else "")
        self.parts.append(f'<text x="{x:g}" y="{y + size * 0.35:g}" {style}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, *lines: str, size: int = 13) -> None:
        """A box with lines of text in its middle, the first one bold."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{colour}" stroke="#8a929c"/>')
        for i, line in enumerate(lines):
            at = y + height / 2 + (i - (len(lines) - 1) / 2) * (size + 4)
            self.text(x + width / 2, at, line, size if i == 0 else size - 1, INK, "middle", i == 0)

    def frame(self, x: float, y: float, width: float, height: float, words: str) -> None:
        """An outline around other shapes, with its name in the upper right corner."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="none" stroke="{GREY}" stroke-dasharray="5 4"/>'
        )
        self.text(x + width - 10, y + 14, words, 13, GREY, "end", bold=True)

    def arrow(self, *points: tuple[float, float], both: bool = False) -> None:
        """A line through points, with a head at its end, or at both ends."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        start = ' marker-start="url(#head)"' if both else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{GREY}" stroke-width="1.5" marker-end="url(#head)"{start}/>')

    def bracket(self, x: float, top: float, bottom: float, *lines: str) -> None:
        """A bracket that opens to the left, with words behind it."""
        self.parts.append(f'<path d="M{x:g} {top:g} h8 V{bottom:g} h-8" fill="none" stroke="{GREY}" stroke-width="1.5"/>')
        for i, line in enumerate(lines):
            self.text(x + 18, (top + bottom) / 2 + (i - (len(lines) - 1) / 2) * 18, line, 13, GREY, bold=i == 0)

    def line(self, *points: tuple[float, float], colour: str = GREY, width: float = 1.5, dashed: bool = False) -> None:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="4 4"' if dashed else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dash}/>')

    def dot(self, x: float, y: float, colour: str, radius: float = 4) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>')

    def cell(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A box without words."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" stroke="#8a929c" stroke-width="0.5"/>'
        )

    def legend(self, x: float, y: float, *entries: tuple[str, str], step: float = 130) -> None:
        """Colours with their meanings, side by side."""
        for i, (colour, words) in enumerate(entries):
            self.cell(x + i * step, y - 6, 12, 12, colour)
            self.text(x + i * step + 18, y, words, 12)

    def svg(self) -> str:
        """The picture as text."""
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{GREY}"/></marker>'
        )
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img">'
        return "\n".join([start, f"<title>{escape(self.title)}</title>", f"<defs>{head}</defs>", *self.parts, "</svg>", ""])


@dataclass
class Axes:
    """A plot's area on a picture; either axis may be logarithmic."""

    picture: Picture
    left: float
    top: float
    width: float
    height: float
    xs: tuple[float, float]
    ys: tuple[float, float]
    log: str = ""
    """Which axes are logarithmic: of `xy`."""

    def x(self, value: float) -> float:
        """The place of a value on the picture."""
        return self.left + self.width * _share(value, *self.xs, "x" in self.log)

    def y(self, value: float) -> float:
        """The place of a value on the picture."""
        return self.top + self.height * (1 - _share(value, *self.ys, "y" in self.log))

    def draw(self, xticks: Sequence[tuple[float, str]], yticks: Sequence[tuple[float, str]], xlabel: str, ylabel: str) -> None:
        """Frame, ticks and names; the name of the upright axis stands above it."""
        p, bottom = self.picture, self.top + self.height
        for value, words in yticks:
            p.line((self.left, self.y(value)), (self.left + self.width, self.y(value)), width=0.4)
            p.text(self.left - 8, self.y(value), words, 12, anchor="end")
        for value, words in xticks:
            p.line((self.x(value), bottom), (self.x(value), bottom + 5))
            p.text(self.x(value), bottom + 16, words, 12, anchor="middle")
        p.line((self.left, self.top), (self.left, bottom), (self.left + self.width, bottom))
        p.text(self.left + self.width / 2, bottom + 38, xlabel, 13, anchor="middle")
        p.text(self.left - 40, self.top - 16, ylabel, 13)

    def curve(self, points: Sequence[tuple[float, float]], colour: str, dashed: bool = False, width: float = 2) -> None:
        """Values joined by a line."""
        self.picture.line(*((self.x(a), self.y(b)) for a, b in points), colour=colour, width=width, dashed=dashed)


def _share(value: float, low: float, high: float, logarithmic: bool) -> float:
    if logarithmic:
        return (log10(value) - log10(low)) / (log10(high) - log10(low))
    return (value - low) / (high - low)
