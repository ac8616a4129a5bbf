"""tensor, op by op, against NumPy: random shapes, types, tiles, and offsets that may differ from tile to tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sweep
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import tensor
from sweep import FLOATS, INTEGERS, Program

Array = np.ndarray
Draw = Callable[..., Any]


def drawn(draw: Draw, shape: tuple[int, ...] | None = None) -> tuple[Program, str, Array]:
    """A program on some tiles, an element type, and values of a shape of at least one dim."""
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    if shape is None:
        shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 64, 65]), min_size=1, max_size=3)))
    tiles = draw(sweep.tile_counts)
    return Program(tiles), element, sweep.random_values(element, (tiles, *shape), np.random.default_rng(draw(sweep.seeds)))


def finish(program: Program, element: str, shapes: list[tuple[str, Array]], what: str) -> None:
    """Stores the named values, runs, and compares each with what it should be."""
    for name, want in shapes:
        program.store(name, want.shape[1:], element)
    for (name, want), got in zip(shapes, program.run(), strict=True):
        sweep.check_same(element, got, want, 0, [want], f"{what}, {name}")


def place(draw: Draw, program: Program, limit: int) -> tuple[str, Array]:
    """A coordinate from 0 to `limit`: a number, or as many tiles in as the tile's own number. Text, and its value per tile."""
    if draw(st.booleans()):
        n = draw(st.integers(0, limit))
        return (str(n) if draw(st.booleans()) else program.index(n)), np.full(program.tiles, n)
    name, most = program.name(), program.index(limit)
    program.body += f"{name} = arith.minui %tile, {most} : index\n"
    return name, np.minimum(np.arange(program.tiles), limit)


def uniform(draw: Draw, program: Program, limit: int) -> tuple[str, int]:
    n = draw(st.integers(0, limit))
    return (str(n) if draw(st.booleans()) else program.index(n)), n


def check_reshapes(draw: Draw) -> None:
    """expand, collapse, cast to a dynamic shape and back, reshape, dim and rank."""
    program, element, x = drawn(draw)
    shape = x.shape[1:]
    groups, wide = [], []
    for n in shape:
        parts = draw(st.sampled_from([p for p in ((n,), (1, n), (n, 1), (5, 13), (2, 32), (8, 8)) if np.prod(p) == n]))
        groups.append(list(range(len(wide), len(wide) + len(parts))))
        wide.extend(parts)
    a, t, w = program.load(x, element), tensor(shape, element), tensor(wide, element)
    program.body += f"%e = tensor.expand_shape {a} {groups} output_shape {wide} : {t} into {w}\n"
    program.body += f"%c = tensor.collapse_shape %e {groups} : {w} into {t}\n"
    dynamic = f"tensor<{'?x' * len(shape)}{element}>"
    program.body += f"%d = tensor.cast %c : {t} to {dynamic}\n%b = tensor.cast %d : {dynamic} to {t}\n"
    flat = tensor((int(np.prod(shape)),), element)
    n = program.index(int(np.prod(shape)))
    program.body += f"%s = tensor.from_elements {n} : tensor<1xindex>\n%r = tensor.reshape {a}(%s) : ({t}, tensor<1xindex>) -> {flat}\n"
    axis = draw(st.integers(0, len(shape) - 1))
    k = program.index(axis)
    program.body += (
        f"%n = tensor.dim %d, {k} : {dynamic}\n%m = tensor.rank %d : {dynamic}\n%q = tensor.from_elements %n, %m : tensor<2xindex>\n"
    )
    for name, want, kind in (
        ("%e", x.reshape(-1, *wide), element),
        ("%b", x, element),
        ("%r", x.reshape(program.tiles, -1), element),
        ("%q", np.array([[shape[axis], len(shape)]] * program.tiles, object), "index"),
    ):
        program.store(name, want.shape[1:], kind)
    e, b, r, q = program.run()
    for got, want in ((e, x.reshape(-1, *wide)), (b, x), (r, x.reshape(program.tiles, -1))):
        sweep.check_same(element, got, want, 0, [want], f"{shape} as {wide}")
    assert (q == np.array([shape[axis], len(shape)], object)).all()


def check_slices(draw: Draw) -> None:
    """extract_slice with strides and dropped dims, insert_slice back at another place."""
    program, element, x = drawn(draw)
    shape = x.shape[1:]
    sizes, strides, offsets, texts = [], [], [], []
    for n in shape:
        stride = draw(st.sampled_from([1, 1, 2, 3]))
        size = draw(st.integers(1, (n - 1) // stride + 1))
        text, low = uniform(draw, program, n - 1 - (size - 1) * stride)
        for column, value in zip((sizes, strides, offsets, texts), (size, stride, low, text), strict=True):
            column.append(value)
    dropped = [d for d, n in enumerate(sizes) if n == 1 and draw(st.booleans())] if draw(st.booleans()) else []
    small = tuple(n for d, n in enumerate(sizes) if d not in dropped)
    a, t, s = program.load(x, element), tensor(shape, element), tensor(small, element)
    program.body += f"%s = tensor.extract_slice {a}[{', '.join(texts)}] {sizes} {strides} : {t} to {s}\n"
    part = x[(slice(None), *(slice(o, o + (n - 1) * k + 1, k) for o, n, k in zip(offsets, sizes, strides, strict=True)))]
    others = [uniform(draw, program, n - size) for n, size in zip(shape, sizes, strict=True)]
    ones = [1] * len(shape)
    program.body += f"%i = tensor.insert_slice %s into {a}[{', '.join(o for o, _ in others)}] {sizes} {ones} : {s} into {t}\n"
    want = x.copy()
    want[(slice(None), *(slice(o, o + n) for (_, o), n in zip(others, sizes, strict=True)))] = part
    finish(program, element, [("%s", part.reshape(-1, *small)), ("%i", want)], f"{shape}[{offsets}][{sizes}][{strides}]")


def check_elements(draw: Draw) -> None:
    """extract and insert at coordinates of each tile, splat, from_elements."""
    program, element, x = drawn(draw)
    shape = x.shape[1:]
    a, t = program.load(x, element), tensor(shape, element)
    at, to = ([place(draw, program, n - 1) for n in shape] for _ in range(2))

    def named(places: list[tuple[str, Array]]) -> str:
        return ", ".join(program.index(int(p)) if p.isdigit() else p for p, _ in places)

    source, target = named(at), named(to)
    program.body += f"%v = tensor.extract {a}[{source}] : {t}\n%i = tensor.insert %v into {a}[{target}] : {t}\n"
    wide = tuple(draw(st.lists(st.sampled_from([1, 2, 65]), max_size=2)))
    w = tensor(wide, element)
    program.body += f"%s = tensor.splat %v : {w}\n%f = tensor.from_elements %v, %v : {tensor((2,), element)}\n"
    each = np.arange(program.tiles)
    values = x[(each, *(p for _, p in at))]
    want = x.copy()
    want[(each, *(p for _, p in to))] = values
    splat = np.broadcast_to(values.reshape(-1, *(1 for _ in wide)), (program.tiles, *wide))
    finish(program, element, [("%i", want), ("%s", splat), ("%f", np.stack([values, values], 1))], f"{shape}")


def check_pad_and_concat(draw: Draw) -> None:
    program, element, x = drawn(draw)
    shape = x.shape[1:]
    low, high = ([draw(st.integers(0, 3)) for _ in shape] for _ in range(2))
    wide = tuple(a + n + b for a, n, b in zip(low, shape, high, strict=True))
    fill = draw(st.sampled_from(list(sweep.edges(element))))
    a, t, w = program.load(x, element), tensor(shape, element), tensor(wide, element)
    names = ", ".join(f"%i{d}: index" for d in range(len(shape)))
    program.body += f"%z = arith.constant {sweep.literal(element, fill)}\n%p = tensor.pad {a} low{low} high{high} {{\n^bb0({names}):\n"
    program.body += f"tensor.yield %z : {element}\n}} : {t} to {w}\n"
    padded = np.full((program.tiles, *wide), fill, x.dtype)
    padded[(slice(None), *(slice(o, o + n) for o, n in zip(low, shape, strict=True)))] = x
    axis = draw(st.integers(0, len(shape) - 1))
    pieces = draw(st.integers(1, 3))
    joined = np.concatenate([x] * pieces, 1 + axis)
    types = ", ".join([t] * pieces)
    program.body += f"%c = tensor.concat dim({axis}) {', '.join([a] * pieces)} : ({types}) -> {tensor(joined.shape[1:], element)}\n"
    finish(program, element, [("%p", padded), ("%c", joined)], f"{shape} low {low} high {high}")


def check_generate(draw: Draw) -> None:
    """Each element from its coordinates and the number of the tile."""
    program = Program(draw(sweep.tile_counts))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 65]), min_size=1, max_size=3)))
    names = ", ".join(f"%i{d}: index" for d in range(len(shape)))
    program.body += f"%g = tensor.generate {{\n^bb0({names}):\n%s0 = arith.addi %i0, %tile : index\n"
    want = np.arange(program.tiles).reshape(-1, *(1 for _ in shape)) + np.indices(shape)[0]
    for d in range(1, len(shape)):
        program.body += f"%m{d} = arith.muli %s{d - 1}, %i{d} : index\n%s{d} = arith.subi %m{d}, %i{d} : index\n"
        want = want * np.indices(shape)[d] - np.indices(shape)[d]
    program.body += f"tensor.yield %s{len(shape) - 1} : index\n}} : {tensor(shape, 'index')}\n"
    finish(program, "index", [("%g", want.astype(object))], f"{shape}")


CHECKS: dict[str, tuple[Callable[[Draw], None], tuple[str, ...]]] = {
    "reshapes": (check_reshapes, ("expand_shape", "collapse_shape", "cast", "reshape", "dim", "rank")),
    "slices": (check_slices, ("extract_slice", "insert_slice")),
    "elements": (check_elements, ("extract", "insert", "splat", "from_elements")),
    "pad and concat": (check_pad_and_concat, ("pad", "concat")),
    "generate": (check_generate, ("generate",)),
}


@pytest.mark.parametrize("name", list(CHECKS))
def test_random(name):
    check, ops = CHECKS[name]

    @sweep.covers(*(f"tensor.{op}" for op in ops))
    @settings(sweep.FEW, max_examples=25)
    @given(st.data())
    def run(data):
        check(data.draw)

    run()


@pytest.mark.long
@pytest.mark.parametrize("name", list(CHECKS))
@sweep.MANY
@given(st.data())
def test_random_many(name, data):
    CHECKS[name][0](data.draw)


@sweep.covers("tensor.empty")
def test_empty_has_a_shape_only():
    """What it holds is nothing; a tensor inserted over all of it is all that is read."""
    program = Program(2)
    x = sweep.random_values("f16", (2, 3), np.random.default_rng(0))
    a = program.load(x, "f16")
    program.body += (
        f"%e = tensor.empty() : tensor<3xf16>\n%y = tensor.insert_slice {a} into %e[0] [3] [1] : tensor<3xf16> into tensor<3xf16>\n"
    )
    finish(program, "f16", [("%y", x)], "over an empty one")


COVERED = {f"tensor.{op}" for _, ops in CHECKS.values() for op in ops}
