"""Random programs of any rank through every level down to the stream: each level has the values of the one before, the first NumPy's."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import pytest
from campaign.graph_draws import ANY
from campaign.graphs import ALL, LAYERS, check, drawn, each

from ktir.passes.scratchpad import spans

SOME, EVERY = 12, 2000
LAYERED = 6
IN_A_ROW = (0, 1, 2, 3, 4, 6, 54)
"""Seeds of programs of many kernels; in the last one a kernel would store the same rows twice, and not in their order."""
CUT = (90016, 90020, 90042, 90093)
"""Seeds of programs with transfers that reach further than a near target's addresses."""


def test_programs_are_of_every_kind() -> None:
    found = Counter(kind for seed in range(300) for kind in set(drawn(seed, random.Random(seed).choice((2, 5, 9))).drawn))
    views = ("whole", "permuted", "sliced", "repeated", "spread", "backwards")
    few = [kind for kind in (*views, *ANY, *(op.__name__ for op in ALL)) if found[kind] < 5]
    assert not few


def test_layers_are_of_every_kind() -> None:
    found = Counter(kind for seed in range(200) for kind in set(drawn(seed, random.Random(seed).choice((1, 2, 4)), of="layers").drawn))
    assert not [op.__name__ for op in LAYERS if found[op.__name__] < 5]


@pytest.mark.parametrize("seed", range(LAYERED))
def test_layers(seed: int) -> None:
    check(seed, of="layers")


@pytest.mark.long
@pytest.mark.parametrize("first", range(LAYERED, EVERY, 50))
def test_more_layers(first: int) -> None:
    each(range(first, min(first + 50, EVERY)), partial(check, of="layers"))


@pytest.mark.parametrize("seed", IN_A_ROW)
def test_kernels_in_a_row(seed: int) -> None:
    check(seed, of="kernels")


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, EVERY, 50))
def test_more_kernels_in_a_row(first: int) -> None:
    each(range(first, min(first + 50, EVERY)), partial(check, of="kernels"))


@pytest.mark.parametrize("seed", CUT)
def test_transfers_are_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along rows into even numbers of them, since each corelet has a half; and what is loaded lies side by side."""
    part, cut = spans._part, list[Any]()

    def counted(*arguments: Any) -> Any:
        cut.append(arguments)
        return part(*arguments)

    monkeypatch.setattr(spans, "_part", counted)
    check(seed, near=True)
    assert cut


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, EVERY, 50))
def test_more_programs_on_a_near_target(first: int) -> None:
    each(range(first, min(first + 50, EVERY)), partial(check, near=True))


@pytest.mark.parametrize("seed", range(SOME))
def test_graph(seed: int) -> None:
    check(seed)


def test_what_another_kernel_left_in_scratchpad_is_no_value() -> None:
    """Words of f16 pass over sticks that an earlier kernel filled with f32, and nothing depends on them."""
    check(791)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SOME, EVERY, 50))
def test_more_graphs(first: int) -> None:
    each(range(first, min(first + 50, EVERY)), check)
