"""What tiles send each other, against NumPy: every delivery, in several groups, of several types, with and without dependencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sweep
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import tensor
from sweep import FLOATS, Program

Array = np.ndarray
Draw = Callable[..., Any]
KINDS = ("consume", "reduce", "gather", "scatter", "reduce_scatter", "all_to_all")


def check(kind: str, draw: Draw) -> None:
    """Groups of consecutive tiles. In each the producers send a tensor, and every member receives."""
    groups, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    element = draw(st.sampled_from(["f16", "f32", "bf16", "i32", "i8"]))
    tiles, random = groups * size, np.random.default_rng(draw(sweep.seeds))
    shape = tuple(draw(st.sampled_from([1, 2, 3, 65])) for _ in range(draw(st.integers(1, 2))))
    axis, other = draw(st.integers(0, len(shape) - 1)), draw(st.integers(0, len(shape) - 1))
    if kind in ("scatter", "reduce_scatter", "all_to_all"):  # cut into a share for each member
        shape = tuple(n * size if d == axis else n for d, n in enumerate(shape))
    x = sweep.random_values(element, (tiles, *shape), random)
    mine = f"(i)[g] : (i - {size} * g >= 0, -i + {size} * g + {size - 1} >= 0)"
    everyone = f"affine_set<{mine}>"
    number = f"affine_set<(g) : (g >= 0, -g + {groups - 1} >= 0)>"
    role = tensor(shape, element)
    future = f"<({role}), groups = {number}>"
    by_group = x.reshape(groups, size, *shape)
    dependency, senders = "", [list(range(size)) for _ in range(size)]
    producers = everyone
    if kind == "consume":
        # The member at the mirrored place.
        dependency = f", producer_dependency_per_consumer = affine_set<(p)[c, g] : (p + c - {2 * size} * g - {size - 1} == 0)>"
        senders = [[size - 1 - m] for m in range(size)]
    elif kind == "scatter":
        first = draw(st.integers(0, size - 1))
        producers = f"affine_set<(i)[g] : (i - {size} * g - {first} == 0)>"
        senders = [[first]] * size
    elif kind == "reduce" and draw(st.booleans()):
        # Those up to its own place.
        dependency = f", producer_dependency_per_consumer = affine_set<(p)[c, g] : (p - {size} * g >= 0, c - p >= 0)>"
        senders = [list(range(m + 1)) for m in range(size)]
    program = Program(tiles)
    a = program.load(x, element)
    program.body += f"%f = ktdp.inter_tile_produce producer_tiles_per_group = {producers} -> {future} {{\n^bb0(%gid: index):\n"
    program.body += f"ktdp.yield_partial {a} : {role}\n}}\n"
    op = "addf" if element in FLOATS else "addi"
    zero = "0.0" if element in FLOATS else "0"
    combine = f"{{\n^bb0(%l: {role}, %r: {role}):\n%s = arith.{op} %l, %r : {role}\nktdp.yield_reduced %s : {role}\n}}"

    def folded(values: Array, members: list[int]) -> Array:
        total = values[members[0]]
        for m in members[1:]:
            with np.errstate(all="ignore"):
                total = sweep.finished(element, total + values[m])
        return total

    result = list(shape)
    attributes, tail = dependency, ""
    if kind in ("reduce", "reduce_scatter"):
        program.body += f"%zero = arith.constant dense<{zero}> : {role}\n"
        tail = " " + combine
    share = shape[axis] // size
    if kind == "consume":
        want = by_group[:, [s[0] for s in senders]]
    elif kind == "reduce":
        want = np.stack([np.stack([folded(g, s) for s in senders]) for g in by_group])
    elif kind == "gather":
        result[axis] *= size
        attributes += f", gather_dimensions = [{axis}]"
        want = np.stack([np.stack([np.concatenate(list(g), axis)] * size) for g in by_group])
    elif kind == "all_to_all":
        result[axis] = share
        result[other] = shape[other] * size if other != axis else shape[axis]
        attributes += f", split_dimensions = [{axis}], concat_dimensions = [{other}]"
        cut = [[np.split(v, size, axis) for v in g] for g in by_group]
        want = np.stack([np.stack([np.concatenate([v[m] for v in g], other) for m in range(size)]) for g in cut])
    else:
        result[axis] = share
        attributes += f", scatter_dimensions = [{axis}]"
        whole = [folded(g, senders[0]) for g in by_group]
        want = np.stack([np.stack(np.split(v, size, axis)) for v in whole])
    if tail:
        attributes += f", identity(%zero : {role})"
    out = tensor(result, element)
    program.body += f"%y = ktdp.inter_tile_{kind}(%f) consumer_tiles_per_group = {everyone}{attributes} : {future} -> {out}{tail}\n"
    program.store("%y", result, element)
    (got,) = program.run()
    sweep.check_same(element, got, want.reshape(tiles, *result), 0, [got], f"{kind} of {element}{shape} in {groups} groups of {size}")


@pytest.mark.parametrize("kind", KINDS)
def test_random(kind):
    @sweep.covers("ktdp.inter_tile_produce", f"ktdp.inter_tile_{kind}")
    @settings(sweep.FEW, max_examples=20)
    @given(st.data())
    def run(data):
        check(kind, data.draw)

    run()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@sweep.MANY
@given(st.data())
def test_random_many(kind, data):
    check(kind, data.draw)


COVERED = {"ktdp.inter_tile_produce", *(f"ktdp.inter_tile_{kind}" for kind in KINDS)}
