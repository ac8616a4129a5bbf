"""Ops of random programs that read or write by indices, and those along a dim: gathers, scatters, scans, sorts."""

from __future__ import annotations

from math import prod

from campaign.graph_draws import FLOATS, INTEGERS, Draws
from campaign.graph_text import Value, tensor

_MOST_PAIRS = 60_000
"""Of elements that a scan or a sort compares."""


def _rows(g: Draws, table: Value, index: str, indices: tuple[int, str]) -> tuple[str, tuple[int, int]]:
    """Rows of a table of rank 2 by an index view of so many elements of a type, as a tile and its shape."""
    count, kind = indices
    shape = (count, table.shape[1])
    view = g.view(table, table.shape, (shape[1], 1), 0)
    dims, box = g.box(shape)
    tile = g.line(
        f"ktdp.construct_indirect_access_tile intermediate_variables(%x, %y) {view}[ind({index}[%x]), (%y)] "
        f"{{variables_space_order = affine_map<({dims}) -> ({dims})>, variables_space_set = affine_set<({dims}) : ({box})>}} : "
        f"{g.memref(table.shape, table.element)}, {g.memref((count,), kind)} -> !ktdp.access_tile<{g.extents(shape)}>"
    )
    return tile, shape


def _read(g: Draws, tile: str, shape: tuple[int, int], element: str) -> None:
    g.define(f"ktdp.load {tile} : <{g.extents(shape)}> -> {tensor(shape, element)}", shape, element)


def gather(g: Draws) -> None:
    """Rows of a table by indices from memory."""
    rows, width, picked = (g.random.choice(g.sizes) for _ in range(3))
    kind = g.random.choice(INTEGERS)
    table, indices = g.buffer("input", (rows, width), g.random.choice(("f16", "f16", "i32"))), g.buffer("input", (picked,), kind)
    g.below[len(g.arguments) - 1] = rows
    tile, shape = _rows(g, table, g.view(indices, (picked,), (1,), 0), (picked, kind))
    _read(g, tile, shape, table.element)


def take(g: Draws) -> None:
    """Rows of a table by indices that the program computes."""
    value = g.pick(range(1, 2), INTEGERS)
    rows, width = g.random.choice((1, 2, 4, 16, 64)), g.random.choice(g.sizes)
    mask = [f"%m = arith.constant {rows - 1} : {value.element}", f"%r = arith.andi %i0, %m : {value.element}"]
    index = g.pointwise(value, value.element, mask)
    g.unused.pop(index.name)
    memory = g.line(f"ktir.materialize {index.name} : {index.type} -> {g.memref(index.shape, index.element)}")
    tile, shape = _rows(g, g.buffer("input", (rows, width), "f16"), memory, (index.shape[0], index.element))
    _read(g, tile, shape, "f16")


def scatter(g: Draws) -> None:
    """Rows of a value to rows of an output, each to another one."""
    value = g.pick(range(2, 3), (*FLOATS, *INTEGERS))
    rows, kind = value.shape[0] + g.random.choice((0, 1, 5)), g.random.choice(INTEGERS)
    table, indices = g.buffer("input_output", (rows, value.shape[1]), value.element), g.buffer("input", (value.shape[0],), kind)
    g.below[len(g.arguments) - 1] = rows
    g.distinct.add(len(g.arguments) - 1)
    tile, shape = _rows(g, table, g.view(indices, (value.shape[0],), (1,), 0), (value.shape[0], kind))
    g.unused.pop(value.name, None)
    g.lines.append(f"    ktdp.store {value.name}, {tile} : {value.type}, <{g.extents(shape)}>")


def _along(g: Draws, elements: tuple[str, ...]) -> tuple[Value, int] | None:
    value = g.pick(range(1, 4), elements)
    d = g.random.randrange(len(value.shape))
    return (value, d) if prod(value.shape) * value.shape[d] <= _MOST_PAIRS else None


def scan(g: Draws) -> None:
    """The sums or maxima of the elements so far."""
    found = _along(g, ("f32", "i32", "i64"))
    if found is None:
        return
    value, d = found
    if value.element == "f32":
        op = g.random.choice(("addf", "maximumf"))
    else:
        op = g.random.choice(("maxsi", "minsi"))
    g.define(
        f"ktir.scan {value.name} dimension = {d} : {value.type} -> {value.type} {{\n    ^bb0(%a: {value.element}, %b: {value.element}):\n"
        f"      %c = arith.{op} %a, %b : {value.element}\n      ktir.yield %c : {value.element}\n    }}",
        value.shape,
        value.element,
        value,
    )


def sort(g: Draws) -> None:
    """The elements along a dim in order."""
    found = _along(g, (*FLOATS, *INTEGERS))
    if found is None:
        return
    value, d = found
    way = g.random.choice(("{stable}", "{descending, stable}"))
    g.define(f"ktir.sort {value.name} dimension = {d} {way} : {value.type} -> {value.type}", value.shape, value.element, value)


OPS = {gather: 4, take: 2, scatter: 2, scan: 2, sort: 2}
"""Ops and how often they come."""
