"""The chip and its data: memory, sticks, who owns what."""

from __future__ import annotations

from canvas import AMBER, BLUE, GREEN, GREY, INK, PALE, Axes, Picture

from ktir.target import DATASHEET, LANES, STICK_BYTES

LINES = ("#2f6fd0", "#c2592b", "#2f8a4c", "#8a5bc7")
"""Colours of curves, legible on light and dark pages."""


def bandwidths() -> Picture:
    """How fast data move, and how much there is room for, from memory to a core."""
    t = DATASHEET
    rows = (
        ("host link", t.host_gb_per_second, "of the computer"),
        ("memory channel", t.dram_gb_per_second, "for the whole card"),
        ("ring, per core and direction", t.ring_bytes_per_cycle * t.clock_ghz, "from core to core"),
        ("scratchpads, 32 cores", t.cores * STICK_BYTES * t.clock_ghz, "a stick per cycle each"),
    )
    p = Picture(720, 210, "What each way moves per second: host link, memory channel, ring, scratchpads")
    axes = Axes(p, 200, 20, 400, 140, (10, 10_000), (0, 4), "x")
    for tick in (10, 100, 1000, 10_000):
        p.line((axes.x(tick), 20), (axes.x(tick), 164), width=0.5)
        p.text(axes.x(tick), 178, f"{tick:,}", 12, anchor="middle")
    for i, (name, rate, what) in enumerate(rows):
        p.text(190, 38 + 34 * i, name, 13, anchor="end")
        p.cell(200, 28 + 34 * i, axes.x(rate) - 200, 20, BLUE)
        p.text(axes.x(rate) + 8, 38 + 34 * i, f"{rate:,.0f}, {what}" if i < 3 else f"{rate:,.0f}", 12)
    p.text(400, 200, "GB/s (logarithmic)", 13, anchor="middle")
    return p


def sticks() -> Picture:
    """A row of 100 numbers of f16."""
    p = Picture(720, 150, "A row of 100 numbers of f16 takes two sticks of 64 lanes; 28 lanes of the second one are padding")
    for s in range(2):
        live = min(100 - s * LANES, LANES)
        for lane in range(LANES):
            p.cell(20 + s * 350 + lane * 5.2, 50, 5.2, 44, BLUE if lane < live else PALE)
        p.text(20 + s * 350, 34, f"stick {s}: numbers {s * LANES} to {s * LANES + live - 1}", 13)
    p.text(20, 112, "lane 0", 12)
    p.text(353, 112, "lane 63", 12, anchor="end")
    p.legend(20, 138, (BLUE, "a number, 2 bytes"), (PALE, "padding: 28 lanes"), step=160)
    p.text(703, 112, "128 bytes each", 12, anchor="end")
    return p


def layout() -> Picture:
    """The order in which a tensor of 4 rows and 100 columns lies."""
    p = Picture(720, 240, "Rows of 100 numbers lie stick by stick: first the left sticks of all rows, then the right ones")
    p.text(20, 22, "as the host has it: 4 x 100, row by row", 13, bold=True)
    p.text(390, 22, "as the card has it: 2 x 4 x 64", 13, bold=True)
    for row in range(4):
        p.box(20, 40 + 40 * row, 200, 34, BLUE, f"row {row}: 0 to 63", size=12)
        p.box(222, 40 + 40 * row, 112, 34, GREEN, "64 to 99", size=12)
    for i in range(8):
        column, row = divmod(i, 4)
        p.box(390 + 165 * column, 40 + 40 * row, 150, 34, (BLUE, GREEN)[column], f"stick {i}: row {row}", size=12)
    p.text(20, 222, "A stick column is together: a core that has rows 0 and 1 reads two runs of two sticks.", 13)
    return p


def elements() -> Picture:
    """How many elements of each type a stick has."""
    p = Picture(720, 210, "What a stick of 128 bytes holds of each type")
    rows = (("f16, bf16", 64, BLUE, "64 elements: a stick is an entry"), ("f32, i32", 32, GREEN, "32 elements: an entry is two sticks"),
            ("int8, fp8", 64, AMBER, "64 places of two bytes: two rows at once"))  # fmt: skip
    for i, (name, count, colour, says) in enumerate(rows):
        y = 20 + 62 * i
        p.text(100, y + 15, name, 13, anchor="end", bold=True)
        for k in range(count):
            p.cell(112 + k * 512 / count, y, 512 / count, 30, colour)
            if name.startswith("int8"):
                p.line((112 + k * 8, y + 15), (120 + k * 8, y + 15), width=0.5)
        p.text(112, y + 44, says, 12)
    p.text(632, 35, "128 bytes", 12)
    return p


def owners() -> Picture:
    """Who has which rows of 57, on 32 cores."""
    p = Picture(720, 190, "57 rows on 32 cores: 28 cores have two rows, one has one, three have none")
    for core in range(32):
        x, y = 30 + 42 * (core % 16), 40 + 66 * (core // 16)
        rows = [r for r in (2 * core, 2 * core + 1) if r < 57]
        p.cell(x, y, 38, 34, (PALE, AMBER, GREEN)[len(rows)])
        p.text(x + 19, y + 12, f"core {core}", 10, INK, "middle")
        if rows:
            p.text(x + 19, y + 25, " ".join(map(str, rows)), 10, INK, "middle")
    p.text(30, 20, "core, and the rows that it owns", 13, bold=True)
    p.legend(30, 174, (GREEN, "two rows"), (AMBER, "the last one"), (PALE, "no work"))
    return p


def multicast() -> Picture:
    """Each byte comes from memory once."""
    p = Picture(720, 210, "Weights that all cores need are read once and handed on over the ring")
    p.box(20, 20, 680, 36, AMBER, "memory")
    for i in range(6):
        x = 40 + 112 * i
        p.box(x, 120, 84, 44, GREEN if i else BLUE, f"core {i}" if i < 5 else "core 31")
        if i:
            p.arrow((x - 28, 142), (x, 142))
    p.arrow((82, 56), (82, 120))
    p.text(92, 88, "the weights, once: 16 KiB", 13)
    p.text(360, 188, "over the ring, a stick per cycle: each core keeps a copy in its scratchpad and hands it on", 13, anchor="middle")
    return p


def cut() -> Picture:
    """A tile loop with two buffers."""
    p = Picture(720, 250, "What does not fit the scratchpad is cut into blocks; while one is computed the next one is loaded")
    p.text(20, 20, "a core's rows", 13, bold=True)
    for b in range(5):
        p.box(20, 36 + 38 * b, 130, 32, (BLUE, GREEN)[b % 2], f"block {b}", size=12)
    p.text(230, 20, "scratchpad", 13, bold=True)
    p.box(230, 60, 130, 50, BLUE, "buffer 0", "blocks 0, 2, 4")
    p.box(230, 140, 130, 50, GREEN, "buffer 1", "blocks 1, 3")
    p.arrow((150, 85), (230, 85))
    p.arrow((150, 165), (230, 165))
    p.text(420, 20, "time", 13, bold=True)
    for row, (name, at) in enumerate((("load", 0), ("compute", 1), ("store", 2))):
        p.text(472, 62 + 56 * row, name, 12, anchor="end")
        for b in range(5):
            p.box(480 + 32 * (b + at), 46 + 56 * row, 30, 32, (BLUE, GREEN)[b % 2], str(b), size=12)
    p.text(420, 224, "all three are busy at once from the third block on", 12)
    return p


def roofline() -> Picture:
    """What the chip allows at a number of operations per byte."""
    t = DATASHEET
    pt = 2 * t.pt_macs * t.corelets * t.cores * t.clock_ghz / 1e3
    sfp = 2 * LANES * t.corelets * t.cores * t.clock_ghz / 1e3
    p = Picture(720, 340, "The roofline: the memory channel limits kernels with few operations per byte, the units those with many")
    axes = Axes(p, 70, 40, 600, 240, (0.25, 4096), (0.05, 200), "xy")
    xticks = [(0.25 * 4**k, f"{0.25 * 4**k:g}") for k in range(8)]
    yticks = [(y, f"{y:g}") for y in (0.1, 1, 10, 100)]
    axes.draw(xticks, yticks, "operations per byte between memory and chip", "TFLOP/s")
    band = t.dram_gb_per_second / 1e3
    for peak, colour, words in ((pt, LINES[0], f"matrix arrays: {pt:.0f}"), (sfp, LINES[1], f"vector units: {sfp:.1f}")):
        axes.curve([(0.25, 0.25 * band), (peak / band, peak), (4096, peak)], colour)
        p.text(668, axes.y(peak) - 12, words, 12, anchor="end")
        p.dot(axes.x(peak / band), axes.y(peak), colour)
    p.text(axes.x(3), axes.y(3 * band) - 18, f"memory: {t.dram_gb_per_second:.1f} GB/s", 12, anchor="end")
    p.text(axes.x(5), axes.y(0.08), "bound by memory", 13, GREY, "middle", True)
    p.text(axes.x(1800), axes.y(30), "bound by compute", 13, GREY, "middle", True)
    return p


PICTURES = {
    "bandwidths.svg": bandwidths,
    "sticks.svg": sticks,
    "layout.svg": layout,
    "elements.svg": elements,
    "owners.svg": owners,
    "multicast.svg": multicast,
    "cut.svg": cut,
    "roofline.svg": roofline,
}
