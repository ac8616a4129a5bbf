"""The pictures are what the scripts draw, each stands on a page, and words can be read on light and on dark pages."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs" / "pictures"))
import draw

from ktir import registry

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
LOOK = """
const seen = {};
for (const svg of document.querySelectorAll("svg")) {
  const wrong = seen[svg.id] = [], box = e => e.getBoundingClientRect(), all = box(svg);
  const texts = [...svg.querySelectorAll("text")], cells = [...svg.querySelectorAll("rect")].map(box);
  const holds = (a, b) => a.left <= b.left && a.right >= b.right && a.top <= b.top + 2 && a.bottom >= b.bottom - 2;
  texts.forEach((text, i) => {
    const own = box(text);
    if (!holds(all, own)) wrong.push(`'${text.textContent}' leaves the picture`);
    if (text.getAttribute("fill") === "INK" && !cells.some(cell => holds(cell, own))) wrong.push(`'${text.textContent}' leaves its box`);
    for (const other of texts.slice(i + 1)) {
      const its = box(other), across = Math.min(own.right, its.right) - Math.max(own.left, its.left);
      const down = Math.min(own.bottom, its.bottom) - Math.max(own.top, its.top);
      if (across > 1 && down > 4) wrong.push(`'${text.textContent}' lies over '${other.textContent}'`);
    }
  });
}
document.body.innerHTML = "<pre id=seen></pre>";
document.getElementById("seen").textContent = JSON.stringify(seen);
""".replace("INK", draw.INK)

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


def overlaps(pictures: dict[str, str], page: Path) -> dict[str, list[str]]:
    """What a browser sees wrong with the words of pictures, by name."""
    assert CHROMIUM
    svgs = "".join(text.replace("<svg ", f'<svg id="{name}" ', 1) for name, text in pictures.items())
    page.write_text(f'<meta charset="utf-8"><body>{svgs}<script>{LOOK}</script></body>')
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", "--dump-dom", page.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, re.S)
    assert found, run.stderr[-1000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.turn
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
def test_no_words_lie_over_others_or_leave_their_box(tmp_path: Path) -> None:
    seen = overlaps({name: (PICTURES / name).read_text() for name in draw.PICTURES}, tmp_path / "all.html")
    assert {name: wrong for name, wrong in seen.items() if wrong} == {}
    assert set(seen) == set(draw.PICTURES)
    bad = draw.Picture(200, 100, "bad")
    bad.text(10, 50, "one of these")
    bad.text(20, 52, "lies over the other")
    bad.box(10, 70, 20, 20, "#ffffff", "too long for its box")
    (wrong,) = overlaps({"bad": bad.svg()}, tmp_path / "bad.html").values()
    assert any(line.endswith("leaves its box") for line in wrong)
    assert any(line.endswith("leaves the picture") for line in wrong)
    assert any("lies over" in line for line in wrong)
