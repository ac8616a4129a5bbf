"""What small programs do on the machine: their timelines, waits, levels and prices, computed when they are drawn."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
from canvas import AMBER, BLUE, GREEN, PALE, RED, Axes, Picture
from draw_chip import LINES

from ktir import lang
from ktir.config import patch
from ktir.cost.division import candidates, solve
from ktir.cost.model import Model
from ktir.cost.problem import matmul
from ktir.target import DATASHEET

CAUSES = (("a token", "token"), ("an empty FIFO", "empty"), ("a full FIFO", "full"), ("the channel", "memory"))
"""Why a unit waits, and the word by which a trace says so."""
UNITS = ("MNIL", "LXLU", "PT", "SFP", "LXSU", "MNIS")


@lang.kernel
def linear(x: Any, w: Any, y: Any) -> None:
    """Rows times weights, and nothing below zero."""
    for rows in lang.blocks(x.shape[0], None):
        y[rows] = np.maximum(x[rows] @ w[:, :], 0)


@lang.kernel
def softmax(x: Any, y: Any) -> None:
    """Softmax of each row."""
    for rows in lang.blocks(x.shape[0], None):
        v = x[rows].astype(np.float32)
        e = np.exp(v - v.max(-1, keepdims=True))
        y[rows] = e / e.sum(-1, keepdims=True)


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    """Arrays of f16, of which only shapes count."""
    return [np.zeros(shape, np.float16) for shape in shapes]


@cache
def slices() -> tuple[int, list[tuple[str, int, int, str]]]:
    """Cycles of a softmax of 512 x 512, and who works or waits when on core 0: unit, begin, end, and why it waits."""
    given = arrays((512, 512), (512, 512))
    events = json.loads(softmax.trace(*given))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    cycles = softmax.cycles(*given)
    found, scale = [], DATASHEET.clock_ghz * 1000
    seen: dict[str, int] = {}
    for e in events:
        unit = names.get((e.get("pid"), e.get("tid")), "").split(" ")[0]
        if e.get("ph") != "X" or unit not in UNITS or seen.setdefault(unit, e["pid"]) != e["pid"]:
            continue
        waits = e["name"] if e["name"].startswith("wait") else ""
        found.append((unit, round(e["ts"] * scale), round((e["ts"] + e["dur"]) * scale), waits))
    begin = min(f[1] for f in found)
    return cycles, [(unit, a - begin, b - begin, waits) for unit, a, b, waits in found]


def timeline() -> Picture:
    """Which unit does what when, in a softmax."""
    cycles, found = slices()
    p = Picture(720, 250, "A softmax of 512 x 512 on the machine: when each unit works and when it waits")
    axes = Axes(p, 70, 20, 630, 170, (0, cycles), (0, 1))
    for row, unit in enumerate(UNITS):
        y = 22 + 28 * row
        p.text(62, y + 11, unit, 13, anchor="end")
        for name, begin, end, waits in found:
            if name == unit:
                p.cell(axes.x(begin), y, max(axes.x(end) - axes.x(begin), 0.4), 22, PALE if waits else GREEN)
    for k in range(5):
        p.text(axes.x(cycles * k / 4), 202, f"{cycles * k // 4:,}", 12, anchor="middle" if k < 4 else "end")
    p.legend(70, 236, (GREEN, "works"), (PALE, "waits"), step=90)
    p.text(385, 220, "cycles", 13, anchor="middle")
    return p


def waits() -> Picture:
    """What the units of that softmax spend the time on."""
    cycles, found = slices()
    p = Picture(720, 250, "The same softmax: shares of work and of each cause of waiting, per unit")
    kinds = (("works", GREEN), ("a token", BLUE), ("an empty FIFO", AMBER), ("a full FIFO", RED), ("the channel", PALE))
    for row, unit in enumerate(UNITS):
        y, x = 20 + 30 * row, 70.0
        p.text(62, y + 11, unit, 13, anchor="end")
        shares = dict.fromkeys((k for k, _ in kinds), 0.0)
        for name, begin, end, why in found:
            if name == unit:
                cause = next(kind for kind, word in CAUSES if word in why) if why else "works"
                shares[cause] += (end - begin) / cycles
        for kind, colour in kinds:
            p.cell(x, y, 560 * shares[kind], 22, colour)
            x += 560 * shares[kind]
        p.text(640, y + 11, f"works {shares['works']:.0%}", 12)
    p.legend(70, 226, *((colour, kind) for kind, colour in kinds), step=128)
    return p


def targets() -> Picture:
    """Cycles of one kernel on chips with other numbers of cores."""
    counts = (2, 4, 8, 16, 32)
    kernels = (
        ("linear 256 x 256 x 256", linear, arrays((256, 256), (256, 256), (256, 256))),
        ("softmax 512 x 512", softmax, arrays((512, 512), (512, 512))),
    )
    p = Picture(720, 320, "Cycles of two kernels on chips of 2 to 32 cores")
    axes = Axes(p, 80, 40, 440, 220, (2, 32), (1000, 100_000), "xy")
    axes.draw([(c, str(c)) for c in counts], [(1000, "1,000"), (10_000, "10,000"), (100_000, "100,000")], "cores", "cycles")
    for (name, kernel, given), colour in zip(kernels, LINES, strict=False):
        points = []
        for count in counts:
            with patch(cores=count):
                points.append((count, kernel.cycles(*given)))
        axes.curve(points, colour)
        for point in points:
            p.dot(axes.x(point[0]), axes.y(point[1]), colour)
        p.text(530, axes.y(points[-1][1]), name, 12)
    return p


def divisions() -> Picture:
    """The price of each way to divide a matmul."""
    problem = matmul(512, 4096, 4096)
    best = solve(problem, DATASHEET)
    p = Picture(720, 320, "What each way to divide a matmul of 512 x 4096 x 4096 over 32 cores would cost")
    model = Model(problem, DATASHEET)
    found = sorted(cost.cycles for d in candidates(problem, DATASHEET.cores) if (cost := model.cost(d)) is not None)
    axes = Axes(p, 90, 40, 600, 220, (1, len(found)), (found[0] * 0.8, found[-1] * 1.2), "xy")
    axes.draw(
        [(1, "1"), (10, "10"), (100, "100")],
        [(t, f"{t:,}") for t in (1_000_000, 10_000_000)],
        "ways to divide it, the best one first",
        "cycles",
    )
    axes.curve([(i + 1, c) for i, c in enumerate(found)], LINES[0])
    p.dot(axes.x(1), axes.y(found[0]), LINES[1], 6)
    p.text(axes.x(1) + 12, axes.y(found[0]) - 16, " ".join(f"{loop}: {parts}" for loop, parts in best.splits().items()), 12)
    return p


PICTURES = {"timeline.svg": timeline, "waits.svg": waits, "targets.svg": targets, "divisions.svg": divisions}
