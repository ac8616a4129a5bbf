"""Compiled programs on any bits: tape and step give those of the literal machine."""

from __future__ import annotations

import pytest
from campaign.graph_literal import agrees
from campaign.graphs import program

SEEDS = (5, 22, 60, 77)
"""Small ones: a gather, integers, products, reductions."""


def of_seed(seed: int) -> bool:
    """Whether the program of a seed was run."""
    return agrees(seed, *program(seed), (1, 3, 5)[seed % 3])


@pytest.mark.parametrize("seed", SEEDS)
def test_graph_on_any_bits(seed: int) -> None:
    assert of_seed(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_many_graphs_on_any_bits(first: int) -> None:
    assert sum(map(of_seed, range(first, first + 50))) > 20
