"""The pictures are what the scripts draw, each stands on a page, and words can be read on light and on dark pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs" / "pictures"))
import draw

from ktir import registry

PICTURES = draw.HERE
BACKGROUNDS = ("#ffffff", "#131416")
"""Of the pages, light and dark."""


@pytest.mark.parametrize("name", draw.PICTURES)
def test_a_picture_is_what_the_script_draws(name: str) -> None:
    assert (PICTURES / name).read_text() == draw.PICTURES[name]().svg(), f"python docs/pictures/draw.py {name} writes it"


def test_every_picture_stands_on_a_page_and_is_drawn() -> None:
    text = "".join(p.read_text() for p in PICTURES.parent.rglob("*.md"))
    shown = set(re.findall(r"pictures/([\w.-]+\.svg)\)", text))
    assert shown == {p.name for p in PICTURES.glob("*.svg")} == set(draw.PICTURES)
    assert len(shown) >= 25
    assert not re.findall(r"!\[\]\(", text), "a picture says what it shows"


def test_the_levels_name_passes() -> None:
    passes = {p for *_, names in draw.draw_design.STEPS for line in names for p in line.split(", ") if "/" not in p and p.islower()}
    assert passes - set(registry.pass_modules()) == {"cse"}


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(
        w * (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4) for w, c in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
    )


def contrast(a: str, b: str) -> float:
    """1 to 21, as WCAG defines it."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", draw.PICTURES)
def test_words_can_be_read(name: str) -> None:
    text = (PICTURES / name).read_text()
    colours = set(re.findall(r'<text [^>]*fill="(#\w+)"', text))
    inside = {c for c in colours if luminance(c) < 0.05}
    assert all(contrast(c, page) >= 4 for c in colours - inside for page in BACKGROUNDS)
    boxes = set(re.findall(r'<rect [^>]*fill="(#\w+)"', text))
    assert all(contrast(c, box) >= 7 for c in inside for box in boxes)
    curves = set(re.findall(r'<polyline [^>]*stroke="(#\w+)"', text))
    assert all(contrast(c, page) >= 3 for c in curves for page in BACKGROUNDS)
    assert int(re.findall(r'viewBox="0 0 (\d+)', text)[0]) <= 900
    assert min(map(int, re.findall(r'font-size="(\d+)"', text))) >= 10
