"""The machine and the levels: the pictures of the design."""

from __future__ import annotations

from canvas import AMBER, BLUE, GREEN, PALE, Picture

STEPS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("PyTorch graph", "ATen operators of torch.compile", PALE, ("TorchInductor", "lowering/inductor")),
    ("Region", "loop nests as plain data", PALE, ("lowering/region_to_ktir",)),
    (
        "Logical",
        "host shapes, named ops",
        BLUE,
        ("ktir-outline-repeats", "ktir-separate-calls, cse", "ktir-generalize", "ktir-break-views"),
    ),
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
