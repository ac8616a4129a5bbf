"""What pictures must be: words of a readable size that lie apart and inside of the picture."""

from __future__ import annotations

from itertools import combinations
from typing import Any
from unittest.mock import patch

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

SMALLEST = 8
"""Points."""


def words_of(figure: Any) -> list[Text]:
    """All words that are drawn: a figure has others, as ticks beyond the limits of their axes."""
    drawn: list[Text] = []
    original = Text.draw

    def draw(self: Text, *arguments: Any, **named: Any) -> None:
        drawn.append(self)
        original(self, *arguments, **named)

    with patch.object(Text, "draw", draw):
        FigureCanvasAgg(figure).draw()
    return [text for text in drawn if text.get_visible() and text.get_text().strip()]


def check(figure: Any) -> None:
    """Raises AssertionError for words that are small, outside of the picture, or on others."""
    found = words_of(figure)
    assert found
    inside = figure.bbox
    places = {text: Text.get_window_extent(text) for text in found}  # an annotation counts its arrow
    for text, box in places.items():
        assert float(text.get_fontsize()) >= SMALLEST, text.get_text()
        assert inside.x0 <= box.x0, text.get_text()
        assert box.x1 <= inside.x1, text.get_text()
        assert inside.y0 <= box.y0, text.get_text()
        assert box.y1 <= inside.y1, text.get_text()
    for (a, first), (b, second) in combinations(places.items(), 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        down = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert min(across, down) <= 0, f"'{a.get_text()}' lies on '{b.get_text()}'"
