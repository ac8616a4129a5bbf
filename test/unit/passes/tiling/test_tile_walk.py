"""A kernel through ktir-tile: what it is, what is decided for it, what is written, one after the other and in few rooms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from types import FrameType
from typing import Any

import pytest
from divided_kernels import attention

from ktir.context import context
from ktir.mlir import ir
from ktir.passes.tiling.ktir_tile import TilePass
from ktir.pipeline import run_pipeline

STAGE = "ktir.passes.tiling."
PHASES = {
    "tile_facts": "facts",
    "epilogues": "facts",
    "tile_hints": "decision",
    "online_plan": "decision",
    "tile_plan": "decision",
    "covers": "decision",
}
"""All other rooms of the stage but that of the pass write."""
MOST_STAYS = 15
"""Rooms that a kernel stays in on its way to its plan, each visit counted."""


@contextmanager
def walked() -> Iterator[list[tuple[str, str]]]:
    """Room and function of each call inside of the stage, the first time that one function calls another. What only reads a record (a
    method of the facts or the plan, and what is generated for a dataclass) is no call."""
    found: list[tuple[str, str]] = []
    seen: set[tuple[Any, Any]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code, caller = frame.f_code, frame.f_back
        room = frame.f_globals.get("__name__", "")
        if event != "call" or caller is None or not room.startswith(STAGE) or code.co_filename == "<string>":
            return
        if code.co_qualname.startswith(("TileFacts.", "Matmul.", "TilePlan.", "Keys.", "Resident.", "<")) or (caller.f_code, code) in seen:
            return
        if caller.f_globals.get("__name__", "").startswith(STAGE) or code.co_name == "run":
            seen.add((caller.f_code, code))
            found.append((room.rpartition(".")[2], code.co_qualname))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("online", ["never", "auto", "always"])
def test_a_kernel_comes_to_its_plan_in_few_places_and_is_then_written(online: str) -> None:
    with context(), ir.Location.unknown():
        module = attention(2, 3, 64, 500, 64, (1, 1, 1))
        with walked() as calls:
            run_pipeline(module, f"{TilePass.name}{{online-softmax={online}}}")
    first = calls.index(("tile_writer", "write"))
    stays = [room for room, _ in groupby(room for room, _ in calls[:first])]
    assert stays[:2] == ["ktir_tile", "tile_facts"]
    assert len(stays) <= MOST_STAYS, stays
    phases = [PHASES.get(room, "pass" if room == "ktir_tile" else "writer") for room, _ in calls]
    helpers = {"tile_views"}  # reads views, for the facts and for the writer
    order = [phase for phase, _ in groupby(p for p, (room, _) in zip(phases, calls, strict=True) if room not in helpers)]
    assert order == ["pass", "facts", "decision", "writer"]
