"""Numbers and order: formats, sums, tokens."""

from __future__ import annotations

import numpy as np
from canvas import AMBER, BLUE, GREEN, PALE, Axes, Picture
from draw_chip import LINES

from ktir.arithmetic.numerics import reduce_machine

FORMATS = (("f32", 8, 23), ("f16", 5, 10), ("bf16", 8, 7), ("dl16", 6, 9), ("f8E4M3FN", 4, 3), ("f8E5M2", 5, 2))
"""Name, bits of exponent, bits of fraction."""


def formats() -> Picture:
    """The bits of each format."""
    p = Picture(720, 250, "Sign, exponent and fraction of the number formats")
    for row, (name, exponent, fraction) in enumerate(FORMATS):
        y = 16 + 34 * row
        p.text(92, y + 12, name, 13, anchor="end", bold=True)
        for bit in range(1 + exponent + fraction):
            p.cell(100 + 15 * bit, y, 15, 24, AMBER if bit == 0 else BLUE if bit <= exponent else GREEN)
        p.text(108 + 15 * (1 + exponent + fraction), y + 12, f"{exponent} + {fraction}", 12)
    p.legend(100, 236, (AMBER, "sign"), (BLUE, "exponent"), (GREEN, "fraction"), step=100)
    return p


def spacing() -> Picture:
    """How far neighbours are apart, relative to the number."""
    p = Picture(720, 340, "The distance between neighbouring numbers of each format, relative to the number")
    axes = Axes(p, 80, 40, 520, 230, (1e-9, 1e9), (1e-4, 1), "xy")
    xticks = [(10.0**k, f"1e{k}") for k in (-9, -6, -3, 0, 3, 6, 9)]
    yticks = [(10.0**k, f"{10.0 ** (k + 2):g} %") for k in (-4, -3, -2, -1, 0)]
    axes.draw(xticks, yticks, "size of the number", "distance to the next one")
    shown = [f for f in FORMATS if f[0] not in ("f32", "dl16")]
    for (name, exponent, fraction), colour in zip(shown, LINES, strict=True):
        bias = 2 ** (exponent - 1) - 1
        least = 2.0 ** (1 - bias - fraction)  # the smallest subnormal
        points: list[tuple[float, float]] = []
        for e in range(-29, 30):
            if least <= 2.0**e < 2.0 ** (bias + 1 + (name == "f8E4M3FN")):
                apart = max(2.0 ** (e - fraction), least)
                points += [(2.0**e, min(apart / 2.0**e, 1.0)), (1.99 * 2.0**e, min(apart / 1.99 / 2.0**e, 1.0))]
        axes.curve(points, colour)
        p.text(min(axes.x(points[-1][0]) + 6, 610), axes.y(points[-1][1]), name, 12)
    return p


def order() -> Picture:
    """In which order a row of 256 numbers is added."""
    p = Picture(720, 300, "The machine's order of a sum: 64 lanes add stick by stick, then halves are added")
    for s in range(4):
        for lane in range(8):
            p.cell(110 + 36 * lane, 30 + 24 * s, 36, 20, BLUE)
        p.text(100, 40 + 24 * s, f"stick {s}", 12, anchor="end")
    p.text(410, 40, "1. each lane adds its column,", 13)
    p.text(410, 58, "stick after stick (8 of 64 lanes drawn)", 13)
    for lane in range(8):
        p.arrow((128 + 36 * lane, 122), (128 + 36 * lane, 146))
        p.cell(110 + 36 * lane, 148, 36, 20, GREEN)
    p.text(100, 158, "64 sums", 12, anchor="end")
    p.text(410, 158, "2. lane j adds lane j + 32,", 13)
    p.text(410, 176, "then j + 16, 8, 4, 2, 1", 13)
    y = 148
    for count in (4, 2, 1):
        for lane in range(count):
            p.line((128 + 36 * lane, y + 20), (128 + 36 * lane, y + 38), width=1)
            p.line((128 + 36 * (lane + count), y + 20), (128 + 36 * lane, y + 38), width=1)
            p.cell(110 + 36 * lane, y + 38, 36, 20, AMBER)
        y += 38
    p.text(100, y + 10, "one sum", 12, anchor="end")
    p.text(410, y + 10, "3. the result is what was there, plus this", 13)
    return p


def sums() -> Picture:
    """How far sums are off, one after the other and in the machine's order."""
    rng, lengths = np.random.default_rng(0), (64, 256, 1024, 4096, 16384, 65536)
    p = Picture(720, 330, "How far a sum of n numbers in f32 is off: one after the other, and in the machine's order")
    axes = Axes(p, 90, 40, 450, 230, (64, 65536), (1e-8, 1e-4), "xy")
    axes.draw(
        [(n, f"{n:,}") for n in lengths],
        [(10.0**k, f"1e{k}") for k in (-8, -7, -6, -5, -4)],
        "numbers",
        "median relative error of 200 sums",
    )
    found: dict[str, list[tuple[float, float]]] = {"one after the other": [], "machine's order": []}
    for n in lengths:
        x = rng.random((200, n), np.float32)
        exact = x.astype(np.float64).sum(1)
        plain = np.cumsum(x, axis=1, dtype=np.float32)[:, -1]
        machine = reduce_machine("add", x)
        for name, got in zip(found, (plain, machine), strict=True):
            found[name].append((n, max(float(np.median(np.abs(got - exact) / exact)), 1e-8)))
    for (name, points), colour in zip(found.items(), (LINES[1], LINES[0]), strict=True):
        axes.curve(points, colour)
        p.text(548, axes.y(points[-1][1]), name, 12)
    return p


def blocks() -> Picture:
    """How a matmul sums."""
    p = Picture(720, 220, "A matmul takes K in blocks of 64; the sum of each block is exact and rounded once")
    p.text(20, 20, "one element of A · B, K = 256", 13, bold=True)
    for b in range(4):
        y = 40 + 42 * b
        p.box(20, y, 200, 32, BLUE, f"64 products, k = {64 * b} to {64 * b + 63}", size=12)
        p.arrow((220, y + 16), (250, y + 16))
        p.box(250, y, 180, 32, GREEN, "exact sum, one rounding", size=12)
        p.arrow((430, y + 16), (480, y + 16))
        p.box(480, y, 120, 32, AMBER, "f32 sum +", size=12)
        if b:
            p.arrow((540, y - 10), (540, y))
    p.text(610, 182, "the element", 12)
    return p


def tokens() -> Picture:
    """Who tells whom that data are there."""
    p = Picture(720, 330, "Tokens order the units: a load posts, the reader waits; a FIFO orders by its entries")
    for i, name in enumerate(("MNIL", "LXLU", "SFP", "LXSU", "MNIS")):
        x = 60 + 150 * i
        p.box(x - 45, 14, 90, 30, GREEN, name)
        p.line((x, 44), (x, 310), dashed=True)
    steps: tuple[tuple[int, int, str, int | None, str], ...] = (
        (60, 70, "move into LX", None, ""),
        (60, 102, "sig LXLU", 210, "token"),
        (210, 130, "wait, push", 360, "entries of I0"),
        (360, 166, "rep: compute", 510, "entries of O"),
        (510, 202, "pop into LX", None, ""),
        (510, 234, "sig MNIS", 660, "token"),
        (660, 268, "wait, move", None, ""),
    )
    for x, y, what, to, carries in steps:
        p.box(x - 54, y - 13, 108, 26, PALE if to is None else BLUE, what, size=12)
        if to:
            p.arrow((x + 54, y), (to, y + 10))
            p.text((x + 54 + to) / 2, y - 10, carries, 12, anchor="middle")
    p.box(156, 177, 108, 26, BLUE, "sig MNIL", size=12)
    p.arrow((156, 190), (60, 206))
    p.text(110, 182, "token", 12, anchor="middle")
    p.box(6, 210, 108, 26, PALE, "wait, move", size=12)
    p.text(60, 256, "the buffer is free:", 12, anchor="middle")
    p.text(60, 272, "the next block", 12, anchor="middle")
    return p


def fifo() -> Picture:
    """A FIFO blocks who is too fast."""
    p = Picture(760, 190, "A FIFO of 16 entries: who pushes into a full one waits, who pops from an empty one waits")
    for row, (count, left, right) in enumerate(
        ((16, "LXLU waits: full I0", "SFP works"), (5, "both work", ""), (0, "LXLU works", "SFP waits: empty I0"))
    ):
        y = 20 + 54 * row
        p.box(150, y, 80, 32, PALE if count == 16 else GREEN, "LXLU")
        p.box(520, y, 80, 32, GREEN if count else PALE, "SFP")
        for k in range(16):
            p.cell(250 + 16 * k, y + 4, 16, 24, BLUE if k >= 16 - count else "none")
        p.text(140, y + 16, left, 12, anchor="end")
        p.text(610, y + 16, right, 12)
    p.text(378, 180, "an entry is 64 lanes of 32 bits", 12, anchor="middle")
    return p


PICTURES = {
    "formats.svg": formats,
    "spacing.svg": spacing,
    "order.svg": order,
    "sums.svg": sums,
    "blocks.svg": blocks,
    "tokens.svg": tokens,
    "fifo.svg": fifo,
}
