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
from ktir.diagnostics import KtirError

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


DEQUANTISED = [
    "%f = arith.sitofp %i1 : i8 to f32",
    "%s = arith.extf %i2 : f16 to f32",
    "%p = arith.mulf %f, %s : f32",
    "%t = arith.truncf %p : f32 to f16",
]
"""A second factor of a byte and a number."""


def product(walk: tuple[int, ...], extents: tuple[int, ...], depth: int = 128) -> Draws:
    """Rows by bytes, each multiplied with a number that walks these loops first, all in the body of the product."""
    g = Draws(random=random.Random(3))
    a, b = load(g, ROWS, depth, "whole", "f16"), load(g, WIDTH, depth, "whole", "i8")
    tile = g.tile(g.buffer("input", extents, "f16"), extents, (depth, 1)[-len(extents) :], 0)
    numbers = g.define(f"ktdp.load {tile} : <{g.extents(extents)}> -> {tensor(extents, 'f16')}", extents, "f16")
    widened = ["%x = arith.extf %i0 : f16 to f32", *DEQUANTISED, "%y = arith.extf %t : f16 to f32"]
    body = [*widened, "%m = arith.mulf %x, %y : f32", "%r = arith.addf %o, %m : f32"]
    g.store(g.generic([(a, (0, 2)), (b, (1, 2)), (numbers, walk)], ((ROWS, WIDTH), "f32"), "ppr", body, "0.0"))
    return g


def test_a_product_that_computes_its_second_factor() -> None:
    """Of whole numbers, whose sums are exact in any order."""
    g = product((1,), (WIDTH,))
    arguments = [g.array(number, buffer) for number, (_, buffer) in enumerate(g.arguments)]
    rows, _, numbers, _ = arguments
    rows[:], numbers[:] = np.arange(rows.size).reshape(rows.shape) % 17 - 8, (0.5, 3, -2)
    levels = check_levels(g.module(), arguments, cores=3)
    assert np.array_equal(levels[-1].arrays[-1], graph_numpy.run(g.module(), arguments)[-1])


def test_numbers_that_differ_along_the_sum_are_refused() -> None:
    g = product((1, 2), (WIDTH, 128))
    with pytest.raises(KtirError, match="computes a factor of numbers that differ along its sum"):
        check_levels(g.module(), [g.array(number, buffer) for number, (_, buffer) in enumerate(g.arguments)], cores=3)
