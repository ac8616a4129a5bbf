"""Views and accesses against NumPy: strides, orders, sets with holes, masked and distributed views, indirect tiles, memref ops."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
import sweep
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_texts import access, box, function, indirect, memref, module, row_major, tensor, tile, view
from sweep import FLOATS, INTEGERS, Program

Array = np.ndarray
Draw = Callable[..., Any]
EXTENTS = st.sampled_from([1, 2, 3, 5, 65])


def zero(element: str) -> Any:
    return 0.0 if element in FLOATS else 0


def seen(flat: Array, offset: int, sizes: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of [tiles, elements] as an index array into the elements: writing through it is possible too."""
    index = np.full(tuple(sizes), offset)
    for d, (n, s) in enumerate(zip(sizes, strides, strict=True)):
        index = index + (np.arange(n) * s).reshape([n if i == d else 1 for i in range(len(sizes))])
    return index


def holed(draw: Draw, extents: Sequence[int]) -> tuple[str, Array]:
    """A set in the box of `extents`, all of it or with holes, and which points it has."""
    dims = ", ".join(f"d{i}" for i in range(len(extents)))
    bounds = [f"d{i} >= 0, -d{i} + {n - 1} >= 0" for i, n in enumerate(extents)]
    points = np.indices(tuple(extents)) if extents else np.zeros((0,), int)
    mask = np.ones(tuple(extents), np.bool_)
    kind = draw(st.sampled_from(["box", "box", "even", "triangle"])) if len(extents) > 1 else "box"
    if kind == "even":
        bounds.append("(d0 + d1) mod 2 == 0")
        mask = (points[0] + points[1]) % 2 == 0
    if kind == "triangle":
        bounds.append(f"d0 - d1 + {extents[1] - 1} >= 0")
        mask = points[0] - points[1] + extents[1] - 1 >= 0
    return f"affine_set<({dims}) : ({', '.join(bounds) or '0 == 0'})>", mask


def check_direct(draw: Draw) -> None:
    """A box of a strided view to a box of another, each with its order, set and, where a size is known at run time only, clipping."""
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    extents = tuple(draw(st.lists(EXTENTS, max_size=4 if draw(st.booleans()) else 2)))
    if prod(extents) > 4000:
        extents = extents[:2]
    rank = len(extents)
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    program = Program(tiles)
    anchor = [draw(st.integers(0, 2)) for _ in extents]
    sizes = [n + a + draw(st.integers(0, 2)) for n, a in zip(extents, anchor, strict=True)]
    permutation = list(draw(st.permutations(range(rank))))
    strides = [0] * rank
    step = draw(st.sampled_from([1, 1, 2]))
    for d in permutation:  # any nesting of the dims, with gaps
        strides[d] = step
        step *= sizes[d] + draw(st.sampled_from([0, 0, 1]))
    if rank and draw(st.integers(0, 4)) == 0:
        strides[draw(st.integers(0, rank - 1))] = 0  # the view repeats
    offset = draw(st.integers(0, 3))
    reach = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
    flat = sweep.random_values(element, (tiles, reach), random)
    source = program.base(sweep.to_host(element, flat))
    order = list(draw(st.permutations(range(rank))))
    masked = [draw(st.integers(0, 3)) == 0 for _ in range(rank)]
    known = [draw(st.integers(0, n + 1)) if m else n for n, m in zip(sizes, masked, strict=True)]
    known = [min(k, n) for k, n in zip(known, sizes, strict=True)]
    names: list[Any] = [program.index(k) if m else n for k, n, m in zip(known, sizes, masked, strict=True)]
    at = program.name()
    moved = program.index(offset)
    program.body += f"{at} = arith.addi {source}, {moved} : index\n" + view("%a", at, names, strides, element)
    index_names = [program.index(a) if draw(st.booleans()) else a for a in anchor]
    text = tile("%ta", "%a", index_names, extents, names, element, order)
    set_text, mask = holed(draw, extents)
    shape = tuple(extents[d] for d in order)
    program.body += text.replace(box(extents) + "}", set_text + "}")
    program.body += f"%x = ktdp.load %ta : {access(shape)} -> {tensor(shape, element)}\n"
    places = seen(flat, offset, sizes, strides)[tuple(slice(a, a + n) for a, n in zip(anchor, extents, strict=True))]
    inside = np.ones(extents, np.bool_)
    for d, (a, n, k) in enumerate(zip(anchor, extents, known, strict=True)):
        inside = inside & (np.arange(a, a + n) < k).reshape([n if i == d else 1 for i in range(rank)])
    value = np.where(inside, flat[:, places], zero(element)).astype(flat.dtype)
    value, there = value.transpose(0, *(1 + d for d in order)), mask.transpose(order)
    # Stored through another order over a plain view that held something else.
    back = list(draw(st.permutations(range(rank))))
    target = [0] * rank
    for k, d in enumerate(back):
        target[d] = shape[k]
    before = sweep.random_values(element, (tiles, *target), random)
    array = sweep.to_host(element, before)
    number = len(program.arrays)
    base = program.base(array)
    program.body += view("%b", base, target, row_major(target), element)
    stored = np.zeros(tuple(target), np.bool_)
    # Points that the load's set leaves out hold nothing; the store's set leaves out the same ones.
    stored_text = tile("%tb", "%b", [0] * rank, target, target, element, back)
    if not mask.all():
        dims = {d: f"d{back[order.index(d)]}" for d in range(rank)}
        renamed = "".join(dims[int(p[1:])] if p[:1] == "d" and p[1:].isdigit() else p for p in _words(set_text.split(" : ", 1)[1]))
        stored_text = stored_text.replace(box(target) + "}", set_text.split(" : ", 1)[0] + " : " + renamed + "}")
    program.body += stored_text + f"ktdp.store %x, %tb : {tensor(shape, element)}, {access(shape)}\n"
    inverse = [back.index(d) for d in range(rank)]
    stored = there.transpose(inverse)
    want = np.where(stored, value.transpose(0, *(1 + d for d in inverse)), before).astype(before.dtype)
    program.outputs.append((number, element))
    (got,) = program.run()
    sweep.check_same(element, got, want, 0, [want], f"{element} {extents} of {sizes}:{strides} order {order}, back {back}, {set_text}")


def _words(text: str) -> list[str]:
    return re.findall(r"d\d+|.", text)


def check_indirect(draw: Draw) -> None:
    """Rows gathered by an index tensor, and scattered by another; each tile has its own indices."""
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    kind = draw(st.sampled_from(["i32", "i64", "index"]))
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    program = Program(tiles)
    rows, columns = draw(st.integers(1, 9)), draw(st.sampled_from([1, 3, 64, 65]))
    first, second = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    table = sweep.random_values(element, (tiles, rows, columns), random)
    chosen = random.integers(0, rows, (tiles, first, second)).astype(object)
    number = first * second
    spots = np.stack([random.permutation(number + 2)[:number] for _ in range(tiles)]).reshape(tiles, first, second).astype(object)
    add_view(program, "%t", table, element)
    for name, values in (("%i", chosen), ("%o", spots)):
        add_view(program, name, values, kind)
    extents = (first, second, columns)
    shift = draw(st.booleans())
    last = f"(-%v2 + {columns - 1})" if shift else "(%v2)"
    before = sweep.random_values(element, (tiles, number + 2, columns), random)
    place = len(program.arrays)
    add_view(program, "%y", before, element)
    memrefs = f"{memref((rows, columns), element)}, {memref((first, second), kind)}"
    targets = f"{memref((number + 2, columns), element)}, {memref((first, second), kind)}"
    program.body += indirect("%g", "%t", f"ind(%i[%v0, %v1]), {last}", extents, memrefs)
    program.body += f"%x = ktdp.load %g : {access(extents)} -> {tensor(extents, element)}\n"
    program.body += indirect("%s", "%y", "ind(%o[%v0, %v1]), (%v2)", extents, targets)
    program.body += f"ktdp.store %x, %s : {tensor(extents, element)}, {access(extents)}\n"
    want = before.copy()
    for t in range(tiles):
        read = table[t][chosen[t].astype(int)]
        want[t][spots[t].astype(int)] = read[..., ::-1] if shift else read
    program.outputs.append((place, element))
    (got,) = program.run()
    sweep.check_same(element, got, want, 0, [want], f"{element} by {kind}: {extents}")


def add_view(program: Program, name: str, values: Array, element: str) -> None:
    """A plain view of a new argument."""
    shape = values.shape[1:]
    base = program.base(sweep.to_host(element, values))
    program.body += view(name, base, shape, row_major(shape), element)


def check_distributed(draw: Draw) -> None:
    """A tensor in parts of several buffers, cut along one dim: a box across them is read and another one written."""
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    program = Program(tiles)
    shape = [draw(st.sampled_from([1, 2, 5, 64])) for _ in range(2)]
    axis = draw(st.integers(0, 1))
    parts = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(1, 3)))]
    shape[axis] = sum(parts)
    names, types, numbers, pieces = [], [], [], []
    low = 0
    for k, n in enumerate(parts):
        part = list(shape)
        part[axis] = n
        values = sweep.random_values(element, (tiles, *part), random)
        numbers.append(len(program.arrays))
        pieces.append(values)
        base = program.base(sweep.to_host(element, values))
        text = view(f"%p{k}", base, part, row_major(part), element)
        owned = ", ".join(
            f"d{d} - {low if d == axis else 0} >= 0, -d{d} + {(low if d == axis else 0) + m - 1} >= 0" for d, m in enumerate(part)
        )
        program.body += text.replace(box(part), f"affine_set<(d0, d1) : ({owned})>")
        names.append(f"%p{k}")
        types.append(memref(part, element))
        low += n
    whole = np.concatenate(pieces, 1 + axis)
    program.body += f"%d = ktdp.construct_distributed_memory_view({', '.join(names)} : {', '.join(types)}) : {memref(shape, element)}\n"
    extents = [draw(st.integers(1, n)) for n in shape]
    source, target = ([draw(st.integers(0, n - m)) for n, m in zip(shape, extents, strict=True)] for _ in range(2))
    program.body += tile("%ta", "%d", source, extents, shape, element) + tile("%tb", "%d", target, extents, shape, element)
    program.body += f"%x = ktdp.load %ta : {access(extents)} -> {tensor(extents, element)}\n"
    program.body += f"ktdp.store %x, %tb : {tensor(extents, element)}, {access(extents)}\n"
    want = whole.copy()
    box_of = [(slice(None), *(slice(a, a + n) for a, n in zip(at, extents, strict=True))) for at in (source, target)]
    want[box_of[1]] = whole[box_of[0]]
    program.outputs.extend((k, element) for k in numbers)
    got = np.concatenate(program.run(), 1 + axis)
    sweep.check_same(element, got, want, 0, [want], f"{shape} in {parts} along {axis}: {extents} from {source} to {target}")


def check_memref(draw: Draw) -> None:
    """A subview with strides, of it a transpose, casts; what dim says."""
    element = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    tiles, random = draw(sweep.tile_counts), np.random.default_rng(draw(sweep.seeds))
    program = Program(tiles)
    shape = [draw(st.sampled_from([2, 3, 7, 65])) for _ in range(2)]
    values = sweep.random_values(element, (tiles, *shape), random)
    add_view(program, "%whole", values, element)
    origin = program.index(0)
    program.body += f"memref.prefetch %whole[{origin}, {origin}], read, locality<3>, data : {memref(shape, element)}\n"
    program.body += f"%a = memref.assume_alignment %whole, 16 : {memref(shape, element)}\n"  # both are hints: they change nothing
    strides = [draw(st.integers(1, 2)) for _ in shape]
    sizes = [draw(st.integers(1, (n - 1) // s + 1)) for n, s in zip(shape, strides, strict=True)]
    low = [draw(st.integers(0, n - 1 - (m - 1) * s)) for n, m, s in zip(shape, sizes, strides, strict=True)]
    rows = [shape[1] * strides[0], strides[1]]
    offset = low[0] * shape[1] + low[1]
    small = f"memref<{sizes[0]}x{sizes[1]}x{element}, strided<[{rows[0]}, {rows[1]}], offset: {offset}>>"
    turned = f"memref<{sizes[1]}x{sizes[0]}x{element}, strided<[{rows[1]}, {rows[0]}], offset: {offset}>>"
    loose = f"memref<?x?x{element}, strided<[?, ?], offset: ?>>"
    program.body += f"%s = memref.subview %a[{low[0]}, {low[1]}] {sizes} {strides} : {memref(shape, element)} to {small}\n"
    program.body += f"%t = memref.transpose %s (i, j) -> (j, i) : {small} to {turned}\n%l = memref.cast %t : {turned} to {loose}\n"
    program.body += f"%m = memref.memory_space_cast %t : {turned} to {turned}\n"
    k = program.index(1)
    program.body += f"%n = memref.dim %l, {k} : {loose}\n%q = tensor.from_elements %n : tensor<1xindex>\n"
    back = sizes[::-1]
    dims = "affine_map<(d0, d1) -> (d0, d1)>"
    program.body += (
        f"%ta = ktdp.construct_access_tile %m[0, 0] {{access_tile_order = {dims}, access_tile_set = {box(back)}}} : "
        f"{turned} -> !ktdp.access_tile{access(back)}\n%x = ktdp.load %ta : {access(back)} -> {tensor(back, element)}\n"
    )
    program.store("%x", back, element)
    program.store("%q", (1,), "index")
    got, extent = program.run()
    part = values[(slice(None), *(slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(low, sizes, strides, strict=True)))]
    sweep.check_same(element, got, part.transpose(0, 2, 1), 0, [got], f"{shape}[{low}][{sizes}][{strides}]")
    assert (extent == sizes[0]).all()


DIRECT = ("get_compute_tile_id", "construct_memory_view", "construct_access_tile", "load", "store")
MEMREF = tuple(f"memref.{op}" for op in ("subview", "transpose", "cast", "dim", "memory_space_cast", "assume_alignment", "prefetch"))
CHECKS: dict[str, tuple[Callable[[Draw], None], tuple[str, ...], int]] = {
    "direct": (check_direct, tuple(f"ktdp.{op}" for op in DIRECT), 80),
    "indirect": (check_indirect, ("ktdp.construct_indirect_access_tile",), 25),
    "distributed": (check_distributed, ("ktdp.construct_distributed_memory_view",), 40),
    "memref": (check_memref, MEMREF, 20),
}


@pytest.mark.parametrize("name", list(CHECKS))
def test_random(name):
    check, ops, examples = CHECKS[name]

    @sweep.covers(*ops)
    @settings(sweep.FEW, max_examples=examples)
    @given(st.data())
    def run(data):
        check(data.draw)

    run()


@pytest.mark.long
@pytest.mark.parametrize("name", list(CHECKS))
@settings(sweep.MANY, max_examples=600)
@given(st.data())
def test_random_many(name, data):
    CHECKS[name][0](data.draw)


@sweep.covers("func.call", "ktdp.runtime_arg_extract")
def test_runtime_arguments_and_calls():
    """Value, granularity and upper bound of a runtime argument, stored by a kernel that an entry function calls."""
    type_ = "!ktdp.runtime_arg<index, granularity = 4, upperbound = 64>"
    body = "".join(f"%{k} = ktdp.runtime_arg_extract {k} from %n : {type_} -> index\n" for k in ("value", "granularity", "upperbound"))
    program = Program(1)
    program.body += body + "%x = tensor.from_elements %value, %granularity, %upperbound : tensor<3xindex>\n"
    program.store("%x", (3,), "index")
    kernel_text = function("kernel", ["%arg0", f"%n: {type_}"], program.body, "attributes {grid = [1]}")
    call = f"func.call @kernel(%x, %n) : (index, {type_}) -> ()\n"
    sweep.run(module(kernel_text, function("main", ["%x", f"%n: {type_}"], call)), [program.arrays[0], 12])
    np.testing.assert_array_equal(program.arrays[0][0], [12, 4, 64])


COVERED = {op for _, ops, _ in CHECKS.values() for op in ops}
