"""A few random compiled functions on the device, and that the comparison sees what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from campaign import device_compiled
from campaign.device_compiled_lines import LINES

from ktir.device.autoload import register

register()


@pytest.mark.parametrize("seed", range(3))
def test_functions_are_those_of_the_host(seed: int) -> None:
    assert not device_compiled.finding(seed)


def test_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(function: Any, **_: Any) -> Any:
        def other(*given: Any) -> Any:
            first, *others = function(*given)
            return first + 1, *others

        return other

    monkeypatch.setattr(torch, "compile", compiled)
    found = [device_compiled.finding(seed) for seed in range(4)]
    assert all(said.startswith("call 0") for said in found), found


def test_all_lines_are_drawn() -> None:
    programs = [device_compiled.drawn(seed) for seed in range(300)]
    text = "\n".join(program.text for program in programs)
    words = ("torch.where", "cumsum", " @ ", ".roll", "% 17", " ^ ", "index_add", "masked_fill_", "'cpu'", "graph_break")
    assert len(words) == len(LINES)
    assert all(word in text for word in words)
    assert {p.dtype for p in programs} == {torch.float16, torch.bfloat16, torch.float32}
    assert {p.dynamic for p in programs} == {p.keeps for p in programs} == {p.inference for p in programs} == {True, False}
