"""Kernels of the language that are drawn: some of them; that all kinds of them are drawn; and that what is a little off is found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from amounts import examples
from campaign import lang_kernels
from campaign.lang_draws import draw

KINDS = (
    "+", "maximum", "/", "//", "%", "<<", "np.exp", "lang.sigmoid", "where", "sum", "min", "mean", "any", "loop", "masked", "stored",
    "scattered", "added", "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "shift", "buffer", "product",
)  # fmt: skip


def hold(seeds: range) -> None:
    verdicts = {seed: lang_kernels.judged(draw(seed), seed) for seed in seeds}
    assert not {seed: said for seed, said in verdicts.items() if said != "equal" and not said.startswith(("refused: ", "unknown: "))}
    assert sum(said == "equal" for said in verdicts.values()) >= len(verdicts) // 2


@pytest.mark.parametrize("first", [0, 20])
def test_drawn_kernels_are_near_their_meaning(first: int) -> None:
    hold(range(first, first + examples(20)))


@pytest.mark.long
@pytest.mark.parametrize("first", range(40, 2040, 100))
def test_more_drawn_kernels(first: int) -> None:
    hold(range(first, first + 100))


def test_kernels_of_every_kind_are_drawn() -> None:
    found = Counter(kind for seed in range(2000) for kind in draw(seed).kinds)
    assert not [kind for kind in KINDS if found[kind] < 4]


def test_what_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that is off by one in the last place of an exact number, in one engine."""
    whole = lang_kernels.compiled

    def off(drawn: Any, name: str) -> Any:
        kernel = whole(drawn, name)

        class Off:
            def using(self, on: str, way: str = "pin") -> Any:
                def run(*arrays: Any) -> None:
                    kernel.using(on=on)(*arrays)
                    if on == "chip":
                        arrays[-1].flat[0] = np.nextafter(arrays[-1].flat[0], arrays[-1].dtype.type(9e4))

                return run

        return Off()

    monkeypatch.setattr(lang_kernels, "compiled", off)
    seed = next(s for s in range(100) if draw(s).grid and draw(s).arrays[-1].dtype == np.float32)
    assert lang_kernels.judged(draw(seed), seed).startswith("chip: ")
