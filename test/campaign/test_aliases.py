"""A few programs of views and writes in place."""

from __future__ import annotations

import torch
from campaign import aliases


def test_writes_reach_what_they_reach_in_eager() -> None:
    launched = 0
    for seed in range(10):
        said, chip = aliases.finding(seed)
        assert not said, f"{said}\n{aliases.drawn(seed)[0]}"
        launched += chip
    assert launched >= 5  # views of inputs that share memory do not


def test_what_is_drawn_is_legal_and_of_all_kinds() -> None:
    kinds: set[object] = set()
    for seed in range(200):
        text, program = aliases.drawn(seed)
        env = {"torch": torch}
        exec(text, env)
        env["f"](*program.arguments()[0])  # type: ignore[operator]
        kinds |= {program.dtype, program.lying}
    assert kinds == {*aliases.DTYPES, *aliases.LYING}
