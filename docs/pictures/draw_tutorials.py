"""The start page and the tutorials: schematic pictures, of what goes where."""

from __future__ import annotations

from collections.abc import Sequence

from canvas import AMBER, BLUE, GREEN, PALE, RED, Picture


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


def language() -> Picture:
    """One kernel, three places to run it."""
    p = Picture(720, 210, "One Python function runs on NumPy, on the KTIR executor and on the chip")
    p.box(10, 76, 150, 56, PALE, "@lang.kernel", "a Python function")
    p.box(260, 76, 130, 56, BLUE, "KTIR", "kernel.ktir(x, y)")
    p.box(500, 10, 210, 48, AMBER, "NumPy", "print and pdb see values")
    p.box(500, 80, 210, 48, GREEN, "KTIR executor", "finds races, reads of nothing")
    p.box(500, 150, 210, 48, GREEN, "emulated chip", "cycles of every unit")
    p.arrow((160, 104), (260, 104))
    p.text(210, 92, "traced", 12, anchor="middle")
    p.arrow((85, 76), (85, 34), (500, 34))
    p.arrow((390, 104), (500, 104))
    p.arrow((325, 132), (325, 174), (500, 174))
    p.text(290, 22, 'on="numpy": the function itself', 12, anchor="middle")
    p.text(445, 92, 'on="executor"', 12, anchor="middle")
    p.text(412, 162, 'on="chip", compiled', 12, anchor="middle")
    return p


def operator() -> Picture:
    """A kernel in a compiled graph is part of its program."""
    p = Picture(720, 190, "A kernel in a compiled graph is a part of its program, without a launch of its own")
    for x, title, launches in ((10, "uncompiled: three launches", 3), (380, "torch.compile: one launch", 1)):
        p.text(x + 4, 16, title, 13, bold=True)
        if launches == 1:
            p.frame(x, 34, 330, 130, "one program")
        for i, (name, colour) in enumerate((("x + 1", BLUE), ("your kernel", GREEN), ("relu", BLUE))):
            if launches == 3:
                p.frame(x + i * 112, 34, 106, 130, "")
                p.text(x + i * 112 + 53, 178, "program", 12, anchor="middle")
            p.box(x + i * 112 + 8, 72, 90, 48, colour, name)
            if i:
                p.arrow((x + i * 112 - 14, 96), (x + i * 112 + 8, 96))
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


def debugging() -> Picture:
    """Where a value first differs."""
    p = Picture(720, 190, "A wrong value is looked for from the result back to its first cause")
    names = ("source", "logical", "laid-out", "tiled", "allocated", "stream")
    for i, name in enumerate(names):
        wrong = i >= 3
        p.box(10 + 120 * i, 60, 100, 48, RED if wrong else GREEN, name, "differs" if wrong else "equal")
        if i:
            p.arrow((120 * i - 10, 84), (120 * i + 10, 84))
    p.arrow((360, 150), (360, 84))
    p.text(360, 164, "the pass between these two: --check-semantics names it", 13, anchor="middle")
    p.text(10, 28, "the same inputs, every level runs: which is the first one that differs?", 13)
    return p


def profile() -> Picture:
    """What a profile shows."""
    p = Picture(720, 190, "A profile has the operators of the host and, linked to them, kernels and copies of the card")
    p.text(10, 30, "host", 13, bold=True)
    p.text(10, 124, "card", 13, bold=True)
    for x, width, name in ((70, 200, "aten::linear"), (290, 160, "aten::gelu"), (470, 200, "aten::linear")):
        p.box(x, 12, width, 34, PALE, name)
        p.box(x + 20, 52, width - 40, 28, BLUE, "launch", size=12)
    for x, width, name, colour in ((110, 130, "matmul, add", GREEN), (320, 110, "erf, mul, add", GREEN), (520, 130, "matmul, add", GREEN)):
        p.box(x, 108, width, 34, colour, name)
        p.arrow((x + width / 2, 80), (x + width / 2, 108))
    p.text(70, 166, "arrows: who asked for what; a kernel lasts as long as the machine's report says", 12)
    return p


PICTURES = {
    "start.svg": start,
    "first-model.svg": first_model,
    "device.svg": device,
    "language.svg": language,
    "operator.svg": operator,
    "passes.svg": passes,
    "debugging.svg": debugging,
    "profile.svg": profile,
}
