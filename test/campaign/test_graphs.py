"""Random programs of any rank through every level down to the stream: each level has the values of the one before."""

from __future__ import annotations

import random

import pytest
from campaign.graphs import each, graph

from ktir import config
from ktir.checking import check_levels

SOME, ALL = 12, 2000


def check(seed: int) -> None:
    """Raises Mismatch where a level changes values, KtirError where one refuses the program."""
    text, arguments = graph(seed, ops=random.Random(seed).choice((2, 5, 9)))
    with config.patch(verify_each=True):
        check_levels(text, arguments, cores=(32, 3, 1)[seed % 3], source=f"graph-{seed}.mlir")


@pytest.mark.parametrize("seed", range(SOME))
def test_graph(seed: int) -> None:
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SOME, ALL, 50))
def test_more_graphs(first: int) -> None:
    each(range(first, min(first + 50, ALL)), check)
