"""Draws the pictures of the design: `python docs/pictures/draw.py` writes `levels.svg` and `machine.svg` beside this file.

Boxes bring their own colours, and what stands outside of them is grey, so that both can be read on light and on dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
GREY = "#7d8590"
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
            self.text(x + width / 2, at, line, size if i == 0 else size - 1, "#1f2328", "middle", i == 0)

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

    def svg(self) -> str:
        """The picture as text."""
        head = (
            '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
            f'<path d="M0 0 L10 5 L0 10 z" fill="{GREY}"/></marker>'
        )
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, DejaVu Sans, sans-serif" role="img">'
        return "\n".join([start, f"<title>{escape(self.title)}</title>", f"<defs>{head}</defs>", *self.parts, "</svg>", ""])


STEPS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("PyTorch graph", "ATen operators of torch.compile", PALE, ("TorchInductor", "lowering/inductor")),
    ("Region", "loop nests as plain data", PALE, ("lowering/region_to_ktir",)),
    ("Logical", "host shapes, named ops", BLUE, ("ktir-separate-calls, cse", "ktir-generalize", "ktir-break-views")),
    ("Flat", "views, loads, stores, generics", BLUE, ("ktir-split-bodies", "ktir-plan", "ktir-assign-layouts")),
    ("Laid-out", "sticks of 64 lanes", BLUE, ("ktir-form-kernels", "ktir-divide-work")),
    ("Divided", "each core has its part", BLUE, ("ktir-keep-resident", "ktir-tile")),
    ("Tiled", "blocks that fit the scratchpad", BLUE, ("ktir-allocate-scratchpad",)),
    ("Allocated", "every tensor has an address", BLUE, ("convert-ktir-to-spyre",)),
    ("Instruction stream", "words per unit; text, binary, package", GREEN, ()),
)


def levels() -> Picture:
    """The levels from top to bottom, what makes each from the one above, and who can run which."""
    top, width, height = 12, 280, 44
    starts, y = [], top
    for *_, passes in STEPS:
        starts.append(y)
        y += height + 22 + 16 * len(passes)
    picture = Picture(700, int(starts[-1]) + height + 14, "The levels of ktir")
    for (name, says, colour, passes), y in zip(STEPS, starts, strict=True):
        picture.box(12, y, width, height, colour, name, says, size=14)
        if passes:
            below = y + height + 22 + 16 * len(passes)
            picture.arrow((12 + width / 2, y + height), (12 + width / 2, below))
            for i, line in enumerate(passes):
                picture.text(12 + width / 2 + 14, y + height + 11 + 16 * (i + 0.5), line, 12)
    picture.bracket(
        380, starts[0], starts[1] + height, "the torch front end", "or KTIR written by hand,", "which enters at the logical level"
    )
    picture.bracket(
        380,
        starts[2],
        starts[7] + height,
        "every one of these is KTIR:",
        "it parses, is verified, and the",
        "KTIR executor runs it.",
        "",
        "A pass is checked by running",
        "the program before and after.",
    )
    picture.bracket(380, starts[8], starts[8] + height, "the emulated machine runs this:", "values, cycles, hazards")
    return picture


def machine() -> Picture:
    """Memory, cores and ring; one core with its units and FIFOs."""
    p = Picture(900, 560, "The machine of ktir")
    p.box(20, 16, 860, 36, AMBER, "Memory: the arguments, in sticks of 128 bytes; one channel for the whole chip")
    p.frame(20, 92, 640, 440, "core 0")
    p.box(50, 124, 130, 44, GREEN, "MNIL", "loads; ring to LX")
    p.box(230, 124, 130, 44, GREEN, "MNIS", "stores; LX to ring")
    p.arrow((115, 52), (115, 124))
    p.arrow((295, 124), (295, 52))
    p.box(50, 208, 580, 34, AMBER, "LX: scratchpad of 2 MiB, shared by both corelets")
    p.arrow((115, 168), (115, 208))
    p.arrow((295, 208), (295, 168))
    p.frame(50, 266, 580, 252, "one of two corelets")
    p.box(80, 300, 110, 44, GREEN, "LXLU", "LX to FIFOs")
    p.box(80, 380, 110, 50, BLUE, "PT", "64 × 64 products")
    p.box(280, 380, 110, 50, BLUE, "SFP", "vector unit")
    p.box(400, 300, 110, 44, GREEN, "LXSU", "FIFOs to LX")
    p.arrow((135, 242), (135, 300))
    p.arrow((455, 300), (455, 242))
    p.arrow((135, 344), (135, 380))
    p.text(144, 362, "W, A")
    p.arrow((190, 322), (335, 322), (335, 380))
    p.text(226, 310, "I0, I1, I2")
    p.arrow((190, 405), (280, 405))
    p.text(234, 393, "P: f32 sums", anchor="middle")
    p.arrow((390, 405), (455, 405), (455, 344))
    p.text(463, 376, "O, Q")
    p.text(64, 456, "FIFOs hold 16 entries and block. An entry is 64 lanes of 32 bits: one stick of f16,")
    p.text(64, 474, "two of f32 or i32. A unit runs its words in order; what must happen first on another")
    p.text(64, 492, "unit is awaited by a token: SIG posts one, WAIT takes it.")
    for i, name in enumerate(("core 1", "core 2", "…", "core 31")):
        p.box(720, 112 + 92 * i, 110, 52, PALE, name)
        p.arrow((830, 138 + 92 * i), (856, 138 + 92 * i), (856, 52), both=True)
    for i in range(3):
        p.arrow((775, 164 + 92 * i), (775, 204 + 92 * i), both=True)
    p.arrow((660, 138), (720, 138), both=True)
    p.arrow((660, 414), (720, 414), both=True)
    for i, line in enumerate(("the ring: in each direction", "a stick per cycle, from", "MNIS to MNIL")):
        p.text(775, 464 + 18 * i, line, anchor="middle")
    return p


PICTURES = {"levels.svg": levels, "machine.svg": machine}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw().svg())
