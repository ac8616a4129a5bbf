"""Matmuls of bytes that are seen in any way: every level and both modes of the emulator have the values of NumPy."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from campaign import graph_numpy
from campaign.graph_blocks import PRODUCT
from campaign.graph_draws import Draws
from campaign.graph_text import Value, tensor
from combinations import each_once

from ktir.checking.levels import check_levels

ROWS, WIDTH = 33, 3


class Way(NamedTuple):
    """How a matrix lies in an argument: the argument's shape, the strides, and where it begins."""

    host: tuple[int, int]
    strides: tuple[int, int]
    offset: int = 0


def ways(rows: int, depth: int) -> dict[str, Way]:
    """For a matrix of these extents."""
    return {
        "whole": Way((rows, depth), (depth, 1)),
        "turned": Way((depth, rows), (1, rows)),
        "repeated rows": Way((1, depth), (0, 1)),
        "repeated columns": Way((rows, 1), (1, 0)),
        "last row first": Way((rows, depth), (-depth, 1), (rows - 1) * depth),
        "last column first": Way((rows, depth), (depth, -1), depth - 1),
        "every other row": Way((2 * rows, depth), (2 * depth, 1)),
        "a part": Way((rows, depth + 6), (depth + 6, 1), 3),
    }


def load(g: Draws, rows: int, depth: int, way: str, element: str) -> Value:
    """A load of a new argument."""
    host, strides, offset = ways(rows, depth)[way]
    tile = g.tile(g.buffer("input", host, element), (rows, depth), strides, offset)
    shape = (rows, depth)
    return g.define(f"ktdp.load {tile} : <{g.extents(shape)}> -> {tensor(shape, element)}", shape, element)


@pytest.mark.parametrize(("first", "way", "depth"), each_once(("i8", "f16"), tuple(ways(1, 1)), (128, 100)))
def test_every_level_has_the_values_of_numpy(first: str, way: str, depth: int) -> None:
    g = Draws(random=random.Random(3))
    a, b = load(g, ROWS, depth, "whole", first), load(g, WIDTH, depth, way, "i8")
    walks: tuple[tuple[int | None, ...], ...] = (0, 2), (1, 2)
    if first == "i8":
        a, b = (g.pointwise(v, "i32", ["%r = arith.extsi %i0 : i8 to i32"]) for v in (a, b))
        body = ["%m = arith.muli %i0, %i1 : i32", "%r = arith.addi %o, %m : i32"]
        sums = g.generic([(a, walks[0]), (b, walks[1])], ((ROWS, WIDTH), "i32"), "ppr", body, "0")
    else:
        b = g.pointwise(b, "f16", ["%f = arith.sitofp %i0 : i8 to f32", "%r = arith.truncf %f : f32 to f16"])
        sums = g.generic([(a, walks[0]), (b, walks[1])], ((ROWS, WIDTH), "f32"), "ppr", PRODUCT, "0.0")
    g.store(sums)
    arguments = [g.array(number, buffer) for number, (_, buffer) in enumerate(g.arguments)]
    levels = check_levels(g.module(), arguments, cores=3)
    assert np.array_equal(levels[-1].arrays[-1], graph_numpy.run(g.module(), arguments)[-1])
