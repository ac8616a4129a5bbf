"""Ops of random programs on memory, those that make values from nothing, and named ones that move elements."""

from __future__ import annotations

from math import prod

from campaign.graph_draws import FLOATS, INTEGERS, Draws
from campaign.graph_text import Value


def _pitches(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _load(g: Draws, buffer: Value, shape: tuple[int, ...], offset: int) -> Value:
    tile = g.tile(buffer, shape, _pitches(buffer.shape), offset)
    value = Value("", shape, buffer.element)
    return g.define(f"ktdp.load {tile} : <{g.extents(shape)}> -> {value.type}", shape, buffer.element)


def _store(g: Draws, value: Value, buffer: Value, offset: int) -> None:
    tile = g.tile(buffer, value.shape, _pitches(buffer.shape), offset)
    g.unused.pop(value.name, None)
    g.lines.append(f"    ktdp.store {value.name}, {tile} : {value.type}, <{g.extents(value.shape)}>")


def positions(g: Draws) -> None:
    """Numbers that follow from where an element lies, of no operand."""
    shape = g.shape(g.random.choice((1, 2, 3)))
    d = g.random.randrange(len(shape))
    body = [f"%x = linalg.index {d} : index", "%p = arith.index_cast %x : index to i64", "%w = arith.sitofp %p : i64 to f32"]
    body += ["%c = arith.constant 0.03125 : f32", "%s = arith.mulf %w, %c : f32", "%r = arith.truncf %s : f32 to f16"]
    g.generic([], (shape, "f16"), "p" * len(shape), body)


def constant(g: Draws) -> None:
    """A value that is one number everywhere."""
    shape, element = g.shape(g.random.choice((1, 2, 3))), g.random.choice(FLOATS)
    name = g.filled(shape, element, g.random.choice(("0.0", "1.5", "-2.0")))
    value = Value(name, shape, element)
    g.values.append(value)
    g.unused[name] = value


def written_in_parts(g: Draws) -> None:
    """A value and a new one side by side in one output."""
    value = g.pick(elements=("f16",))
    d, extent = g.random.randrange(len(value.shape)), g.random.choice(g.sizes)
    if prod(value.shape) // value.shape[d] * (value.shape[d] + extent) > g.largest:
        return
    other = g.load((*value.shape[:d], extent, *value.shape[d + 1 :]))
    shape = (*value.shape[:d], value.shape[d] + extent, *value.shape[d + 1 :])
    buffer = g.buffer("output", shape, "f16")
    _store(g, value, buffer, 0)
    _store(g, other, buffer, value.shape[d] * _pitches(shape)[d])


def updated(g: Draws) -> None:
    """Part of a buffer is overwritten, as in a cache, perhaps with what was there; then the whole of it is read."""
    value = g.pick(range(1, 4), ("f16",))
    d, before, after = g.random.randrange(len(value.shape)), g.random.choice((0, 1, 64)), g.random.choice((0, 0, 3))
    shape = tuple(n + before + after if i == d else n for i, n in enumerate(value.shape))
    if prod(shape) > g.largest:
        return
    buffer, offset = g.buffer("input_output", shape, "f16"), before * _pitches(shape)[d]
    if g.random.random() < 0.5:
        old = _load(g, buffer, value.shape, offset)
        own = tuple(range(len(value.shape)))
        value = g.generic([(value, own), (old, own)], (value.shape, "f16"), "p" * len(own), ["%r = arith.addf %i0, %i1 : f16"])
    _store(g, value, buffer, offset)
    if g.random.random() < 0.7:
        _load(g, buffer, shape, 0)


def windows(g: Draws) -> None:
    """Overlapping windows of an input: two dims walk the same elements."""
    count, inner = g.random.choice(g.sizes[:12]), g.random.choice(g.sizes)
    width, step = g.random.choice((1, 2, 3, 5)), g.random.choice((1, 2))
    host = ((count - 1) * step + width, inner)
    if prod(host) * width > g.largest:
        return
    shape = (count, width, inner)
    tile = g.tile(g.buffer("input", host, "f16"), shape, (step * inner, inner, 1))
    g.define(f"ktdp.load {tile} : <{g.extents(shape)}> -> {Value('', shape).type}", shape, "f16")


def rearranged(g: Draws) -> None:
    """A named transpose, or a named broadcast to one dim more."""
    value = g.pick(range(1, 4), (*FLOATS, *INTEGERS))
    order = list(range(len(value.shape)))
    if g.random.random() < 0.5:
        g.random.shuffle(order)
        name, shape, how = "transpose", tuple(value.shape[d] for d in order), f"permutation = {order}"
    else:
        d = g.random.randint(0, len(order))
        shape = (*value.shape[:d], g.random.choice((1, 2, 5)), *value.shape[d:])
        name, how = "broadcast", f"dimensions = [{d}]"
        if prod(shape) > g.largest:
            return
    out = g.filled(shape, value.element, None)
    result = Value("", shape, value.element).type
    g.define(f"linalg.{name} ins({value.name} : {value.type}) outs({out} : {result}) {how}", shape, value.element, value)


OPS = {windows: 1, rearranged: 2, positions: 2, constant: 1, written_in_parts: 2, updated: 2}
"""Ops and how often they come."""
