"""Single changes of packages: of words, operands, tokens, descriptors, tables, bodies, arguments, launch specs and debug data.

Changes follow the tables of the instruction set: whatever field a word or descriptor has can change. Each is drawn by a `random.Random`.
"""

from __future__ import annotations

import random
from copy import deepcopy

from campaign.changes_of_ktir import other_program
from campaign.changes_of_tables import argument, bound, debug, descriptor, group, kernel_order, launch, table
from campaign.changes_of_words import (
    BODY,
    LOOPS,
    MOVES,
    TOKENS,
    Change,
    channel_gone,
    credits,
    doubled,
    dropped,
    moved,
    op_gone,
    operand,
    other_list,
    trips,
    twin,
)

from ktir.package import Package

VECTOR = ("v1", "v2", "v3", "vacc", "vred", "vmask", "vlive", "vconst")

CHANGES: dict[str, Change] = {
    "token dropped": dropped(TOKENS),
    "token doubled": doubled(TOKENS),
    "token moved": moved(TOKENS),
    "token operand": operand(("int", "unit"), TOKENS),
    "channel gone": channel_gone,
    "credits": credits,
    "word dropped": dropped(MOVES),
    "word doubled": doubled(MOVES),
    "word moved": moved((*MOVES, *LOOPS)),
    "word operand": operand(("int", "fifo", "group"), MOVES),
    "descriptor id": operand(("descriptor",), MOVES),
    "left out": twin,
    "loop": operand(("int",), LOOPS),
    "trips of all units": trips,
    "base": descriptor("base", "core_table", "arg"),
    "stride": descriptor("stride", "lane_stride"),
    "extent": descriptor("extent"),
    "level step": descriptor("level_step"),
    "rotation": descriptor("buffers", "rotate_levels", "rotate_step"),
    "corelet step": descriptor("corelet_step"),
    "element": descriptor("element_bytes", "lane_stride", "splat", "pad", "space"),
    "bound": bound,
    "core table": table,
    "multicast group": group,
    "body dropped": dropped(BODY),
    "body doubled": doubled(BODY),
    "body moved": moved(BODY),
    "vector kind": operand(("enum",), ("v1", "v2", "v3", "vacc", "vred")),
    "list of a body": other_list,
    "rounding": operand(("flag",), VECTOR),
    "transposition": operand(("flag",), ("push",)),
    "register": operand(("register", "accumulator"), BODY),
    "constant": operand(("lane", "int"), (*VECTOR, "fill")),
    "fifo": operand(("fifo",), ("vin", "vout", "push", "pull")),
    "op gone": op_gone,
    "other program": other_program,
    "kernels": kernel_order,
    "argument": argument,
    "launch spec": launch,
    "debug data": debug,
}
"""Kinds of change by name."""


def mutant(package: Package, r: random.Random, kind: str) -> Package | None:
    """A copy of a package with one change of a kind; None if there is nothing to change."""
    for _ in range(20):
        p = deepcopy(package)
        if CHANGES[kind](p, r) and (p != package or p.program.sources != package.program.sources):
            return p
    return None
