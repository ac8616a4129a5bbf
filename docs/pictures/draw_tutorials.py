"""The start page and the tutorials: schematic pictures, of what goes where."""

from __future__ import annotations

from collections.abc import Sequence

from canvas import AMBER, BLUE, GREEN, PALE, Picture


def chain(title: str, boxes: Sequence[tuple[str, str, str]], between: Sequence[str], width: int = 150) -> Picture:
    """Boxes from left to right, with words on the arrows between them."""
    gap = (720 - 20 - width * len(boxes)) / max(len(boxes) - 1, 1)
    p = Picture(720, 110, title)
    for i, (colour, name, says) in enumerate(boxes):
        p.box(10 + i * (width + gap), 40, width, 52, colour, name, says)
    for i, words in enumerate(between):
        x = 10 + width + i * (width + gap)
        p.arrow((x, 66), (x + gap, 66))
        p.text(x + gap / 2, 22, words, 12, anchor="middle")
    return p


def start() -> Picture:
    """What ktir is, in one look."""
    p = Picture(720, 300, "PyTorch models and kernels go through KTIR and an instruction stream to an emulated chip")
    p.box(10, 40, 150, 52, PALE, "PyTorch model", 'model.to("spyre")')
    p.box(10, 120, 150, 52, PALE, "your kernel", "Python on arrays")
    p.arrow((160, 66), (205, 66), (205, 96), (230, 96))
    p.arrow((160, 146), (205, 146), (205, 116), (230, 116))
    p.box(230, 60, 180, 92, BLUE, "KTIR", "six levels, each of", "which runs and is", "compared with the others")
    p.arrow((410, 106), (450, 106))
    p.box(450, 74, 110, 64, GREEN, "instructions", "one stream", "per unit")
    p.arrow((560, 106), (590, 106))
    p.frame(590, 20, 120, 172, "")
    p.text(650, 34, "emulated chip", 13, anchor="middle", bold=True)
    for i in range(32):
        p.cell(606 + 22 * (i % 4), 50 + 16 * (i // 4), 20, 14, GREEN)
    for i, (name, says) in enumerate(
        (
            ("values", "those of PyTorch"),
            ("cycles", "of each unit and line"),
            ("faults", "races, reads of nothing"),
            ("pages", "all of it, to look at"),
        )
    ):
        p.box(60 + 160 * i, 232, 140, 52, AMBER, name, says)
    p.arrow((650, 192), (650, 212), (130, 212), (130, 232))
    for i in range(1, 4):
        p.arrow((130 + 160 * i, 212), (130 + 160 * i, 232))
    return p


def first_model() -> Picture:
    """From a model to a report."""
    return chain(
        "A model becomes KTIR, a package, and runs on the emulated chip",
        (
            (PALE, "PyTorch", "model.py"),
            (BLUE, "KTIR", "model.mlir"),
            (GREEN, "package", "instructions"),
            (AMBER, "emulated chip", "values, cycles"),
        ),
        ("capture", "compile", "launch"),
        132,
    )


def device() -> Picture:
    """Host and card, and what goes between them."""
    p = Picture(720, 260, "The host has models and operators; the card has tensors and runs programs")
    p.frame(10, 20, 280, 225, "host")
    p.frame(430, 20, 280, 225, "card")
    p.box(30, 50, 240, 40, PALE, "x = torch.randn(5, 64)")
    p.box(30, 120, 240, 40, PALE, "model(x)")
    p.box(30, 190, 240, 40, PALE, "y.cpu()")
    p.box(450, 50, 240, 40, AMBER, "memory: tensors, weights")
    p.box(450, 120, 240, 40, GREEN, "32 cores: programs")
    p.box(450, 190, 240, 40, AMBER, "memory: results")
    for y, words in ((70, '.to("spyre"): a copy'), (140, "a launch per operator,"), (210, "a copy back")):
        p.text(360, y - 14, words, 12, anchor="middle")
    p.text(360, 158, "or one for all, compiled", 12, anchor="middle")
    p.arrow((270, 70), (450, 70))
    p.arrow((270, 140), (450, 140))
    p.arrow((450, 210), (270, 210))
    p.arrow((570, 90), (570, 120))
    p.arrow((570, 160), (570, 190))
    return p


def passes() -> Picture:
    """How a pass is checked."""
    p = Picture(720, 200, "A pass is checked by running the program before and after it")
    p.box(10, 66, 130, 52, BLUE, "program", "before")
    p.box(290, 66, 140, 52, AMBER, "your pass", "KTIR to KTIR")
    p.box(580, 66, 130, 52, BLUE, "program", "after")
    p.arrow((140, 92), (290, 92))
    p.arrow((430, 92), (580, 92))
    p.arrow((75, 118), (75, 164), (270, 164))
    p.arrow((645, 118), (645, 164), (450, 164))
    p.box(270, 144, 180, 44, GREEN, "the same values?", "executed, compared")
    p.text(150, 152, "runs", 12)
    p.text(560, 152, "runs", 12)
    p.text(360, 30, "ktir-opt program.mlir --your-pass --check-semantics", 13, anchor="middle")
    return p


PICTURES = {
    "start.svg": start,
    "first-model.svg": first_model,
    "device.svg": device,
    "passes.svg": passes,
}
