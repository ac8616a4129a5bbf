"""Views of several parts, at fixed addresses, and dims that are joined: as the executor has them, or refused by op and place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pinned import equal, loops, package_of

from ktir.diagnostics import KtirError

GLOBAL = "memory_space = #ktdp.memory_space<global>"


def box(*dims: tuple[int, int]) -> str:
    """The set of these first and last positions."""
    names = [f"d{i}" for i in range(len(dims))]
    bounds = ", ".join(f"{n} - {low} >= 0, -{n} + {high} >= 0" for n, (low, high) in zip(names, dims, strict=True))
    return f"affine_set<({', '.join(names)}) : ({bounds})>"


Shape = tuple[int, ...]


def text_of(shape: Shape) -> str:
    return "x".join(map(str, shape))


def view(name: str, base: str, sizes: Shape, strides: Shape, low: Shape = ()) -> str:
    owned = box(*((a, a + n - 1) for a, n in zip(low or (0,) * len(sizes), sizes, strict=True)))
    return (
        f"%{name} = ktdp.construct_memory_view {base}, sizes: {list(sizes)}, strides: {list(strides)} "
        f"{{coordinate_set = {owned}, {GLOBAL}}} : memref<{text_of(sizes)}xf16>\n"
    )


def joined(name: str, parts: list[tuple[str, tuple[int, int]]], rows: int, columns: int) -> str:
    types = ", ".join(f"memref<{r}x{c}xf16>" for _, (r, c) in parts)
    return f"%{name} = ktdp.construct_distributed_memory_view({', '.join(p for p, _ in parts)} : {types}) : memref<{rows}x{columns}xf16>\n"


def tile(name: str, base: str, at: str, memory: Shape, shape: Shape) -> str:
    dims = ", ".join("rcde"[: len(shape)])
    return (
        f"%{name} = ktdp.construct_access_tile {base}[{at}] {{access_tile_set = {box(*((0, n - 1) for n in shape))}, "
        f"access_tile_order = affine_map<({dims}) -> ({dims})>}} : memref<{text_of(memory)}xf16> -> "
        f"!ktdp.access_tile<{text_of(shape)}xindex>\n"
    )


def copy(number: str, source: str, target: str, at: str, memory: tuple[int, int], shape: tuple[int, int]) -> str:
    """Load a tile, double it, store it."""
    moved = f"<{shape[0]}x{shape[1]}xindex>"
    type_ = f"tensor<{shape[0]}x{shape[1]}xf16>"
    return (
        tile(f"a{number}", source, at, memory, shape)
        + tile(f"b{number}", target, at, memory, shape)
        + f"%l{number} = ktdp.load %a{number} : {moved} -> {type_}\n%s{number} = arith.addf %l{number}, %l{number} : {type_}\n"
        + f"ktdp.store %s{number}, %b{number} : {type_}, {moved}\n"
    )


def function(body: str, arguments: tuple[str, ...] = ("x", "y", "z"), grid: tuple[int, ...] = (1,)) -> str:
    numbers = "".join(f"%c{n} = arith.constant {n} : index\n" for n in (0, 1, 2, 3, 4, 6, 8, 10, 16, 64, 128))
    given = ", ".join(f"%{a}: index" for a in arguments)
    return f"func.func @kernel({given}) attributes {{grid = {list(grid)}}} {{\n{numbers}{body}return\n}}\n"


def arrays(*shapes: Shape) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float16) for s in shapes]


def by_rows(first: int, second: int, columns: int, body: str, grid: tuple[int, ...] = (1,), gap: int = 0) -> str:
    """x and y hold the rows of one view %v, with a gap between them, z is a plain one, %w."""
    parts, rows = [("%p", (first, columns)), ("%q", (second, columns))], first + gap + second
    text = view("p", "%x", (first, columns), (columns, 1)) + view("q", "%y", (second, columns), (columns, 1), (first + gap, 0))
    text += joined("v", parts, rows, columns) + view("w", "%z", (rows, columns), (columns, 1))
    return function(text + body, grid=grid)


def test_parts_that_are_one_piece_of_memory() -> None:
    """Columns of one argument: one view, so tiles may lie anywhere in it and loops stay."""
    text = "".join(
        f"%{n}2 = arith.addi %{n}, %c64 : index\n"
        + view(f"{n}p", f"%{n}", (8, 64), (128, 1))
        + view(f"{n}q", f"%{n}2", (8, 64), (128, 1), (0, 64))
        + joined(f"{n}v", [(f"%{n}p", (8, 64)), (f"%{n}q", (8, 64))], 8, 128)
        for n in "xy"
    )
    text += (
        "%t = ktdp.get_compute_tile_id : index\nscf.for %r = %t to %c8 step %c2 {\n"
        + copy("", "%xv", "%yv", "%r, %c0", (8, 128), (1, 128))
        + "}\n"
    )
    made = equal(function(text, ("x", "y"), (2,)), arrays((8, 128), (8, 128)))
    assert loops(made) == {(4,)}


def test_parts_by_the_tile() -> None:
    """Each tile has parts of its own, one behind the other."""
    text = "%t = ktdp.get_compute_tile_id : index\n%size = arith.constant 384 : index\n%off = arith.muli %t, %size : index\n"
    for n in "xy":
        text += f"%{n}1 = arith.addi %{n}, %off : index\n%{n}2 = arith.addi %{n}1, %c128 : index\n"
        text += view(f"{n}p", f"%{n}1", (2, 64), (64, 1)) + view(f"{n}q", f"%{n}2", (4, 64), (64, 1), (2, 0))
        text += joined(f"{n}v", [(f"%{n}p", (2, 64)), (f"%{n}q", (4, 64))], 6, 64)
    equal(function(text + copy("", "%xv", "%yv", "%c0, %c0", (6, 64), (6, 64)), ("x", "y"), (3,)), arrays((18, 64), (18, 64)))


@pytest.mark.parametrize(("first", "second", "columns"), [(4, 6, 64), (4, 5, 100), (6, 4, 7), (3, 6, 64), (5, 2, 100)])
def test_tiles_over_parts(first: int, second: int, columns: int) -> None:
    """All rows of both at once: each part is moved by itself, into its rows of one tensor and out of them."""
    rows = first + second
    there = by_rows(first, second, columns, copy("", "%v", "%w", "%c0, %c0", (rows, columns), (rows, columns)))
    back = by_rows(first, second, columns, copy("", "%w", "%v", "%c0, %c0", (rows, columns), (rows, columns)))
    for text in (there, back):
        equal(text, arrays((first, columns), (second, columns), (rows, columns)))


def test_parts_by_the_trip() -> None:
    """A loop that walks from part to part is written out, one that does not stays."""
    outer = "scf.for %r = %c0 to %c10 step %c2 {\n"
    text = by_rows(4, 6, 128, f"{outer}{copy('', '%v', '%w', '%r, %c0', (10, 128), (2, 128))}}}\n")
    assert loops(equal(text, arrays((4, 128), (6, 128), (10, 128)))) == set()
    inner = "scf.for %c = %c0 to %c128 step %c64 {\n"
    text = by_rows(4, 6, 128, f"{inner}{copy('', '%v', '%w', '%c2, %c', (10, 128), (6, 64))}}}\n")
    assert loops(equal(text, arrays((4, 128), (6, 128), (10, 128)))) == {(2,)}


def test_parts_along_sticks() -> None:
    """Columns of two arguments that meet at a stick; inside of one, where they lie in the rows."""
    for width in (64, 32, 7):
        parts = [("%p", (4, width)), ("%q", (4, 36))]
        text = view("p", "%x", (4, width), (width, 1)) + view("q", "%y", (4, 36), (36, 1), (0, width)) + joined("v", parts, 4, width + 36)
        text += view("w", "%z", (4, width + 36), (width + 36, 1))
        for source, target in (("%v", "%w"), ("%w", "%v")):
            moved = copy("", source, target, "%c0, %c0", (4, width + 36), (4, width + 36))
            equal(function(text + moved), arrays((4, width), (4, 36), (4, width + 36)))


def test_memory_at_fixed_addresses() -> None:
    """Addresses that the author has as numbers: what lies there is given behind the arguments, in the order of the addresses."""
    base = "%ax = arith.constant 4096 : index\n%half = arith.constant 512 : index\n%ay = arith.muli %half, %c2 : index\n"
    text = base + view("p", "%ax", (8, 64), (64, 1)) + view("q", "%ay", (8, 64), (64, 1)) + "%t = ktdp.get_compute_tile_id : index\n"
    text += "%r = arith.muli %t, %c2 : index\n" + copy("", "%p", "%q", "%r, %c0", (8, 64), (2, 64))
    equal(function(text, (), (4,)), arrays((8, 64), (8, 64)), addresses=(1024, 4096))


def test_dims_that_are_joined() -> None:
    """Rows of a tile that are one dim, element by element, until they are two again."""
    text = view("p", "%x", (4, 100), (100, 1)) + view("q", "%y", (4, 100), (100, 1)) + tile("a", "%p", "%c0, %c0", (4, 100), (4, 100))
    text += tile("b", "%q", "%c0, %c0", (4, 100), (4, 100)) + "%l = ktdp.load %a : <4x100xindex> -> tensor<4x100xf16>\n"
    text += "%f = tensor.collapse_shape %l [[0, 1]] : tensor<4x100xf16> into tensor<400xf16>\n"
    text += "%h = arith.constant dense<0.5> : tensor<400xf16>\n"
    text += "%e = tensor.empty() : tensor<400xf16>\n%m = arith.mulf %f, %h : tensor<400xf16>\n"
    text += "%s = linalg.add ins(%m, %f : tensor<400xf16>, tensor<400xf16>) outs(%e : tensor<400xf16>) -> tensor<400xf16>\n"
    text += "%o = tensor.expand_shape %s [[0, 1]] output_shape [SHAPE] : tensor<400xf16> into tensor<SIZESxf16>\n"
    end = "ktdp.store %o, %b : tensor<4x100xf16>, <4x100xindex>\n"
    equal(function(text.replace("SHAPE", "4, 100").replace("SIZES", "4x100") + end, ("x", "y")), arrays((4, 100), (4, 100)))
    split = view("v", "%y", (100, 4), (4, 1)) + tile("d", "%v", "%c0, %c0", (100, 4), (100, 4))
    split += "ktdp.store %o, %d : tensor<100x4xf16>, <100x4xindex>\n"
    equal(function(text.replace("SHAPE", "100, 4").replace("SIZES", "100x4") + split, ("x", "y")), arrays((4, 100), (4, 100)))


def test_dims_that_are_joined_and_split_stay_where_they_lie() -> None:
    """What is joined meets what is not, is reduced, carried and split: rows follow each other as they did."""
    text = view("p", "%x", (2, 4, 70), (280, 70, 1)) + view("q", "%y", (2, 4, 70), (280, 70, 1)) + view("r", "%z", (8, 70), (70, 1))
    text += tile("a", "%p", "%c0, %c0, %c0", (2, 4, 70), (2, 4, 70)) + tile("b", "%q", "%c0, %c0, %c0", (2, 4, 70), (2, 4, 70))
    text += tile("d", "%r", "%c0, %c0", (8, 70), (8, 70)) + "%l = ktdp.load %a : <2x4x70xindex> -> tensor<2x4x70xf16>\n"
    text += "%g = ktdp.load %d : <8x70xindex> -> tensor<8x70xf16>\n"
    text += "%f = tensor.collapse_shape %l [[0, 1], [2]] : tensor<2x4x70xf16> into tensor<8x70xf16>\n"
    text += "%s = arith.addf %f, %g : tensor<8x70xf16>\n%e = tensor.empty() : tensor<8xf16>\n"
    text += "%m = linalg.reduce {arith.addf} ins(%f : tensor<8x70xf16>) outs(%e : tensor<8xf16>) dimensions = [1]\n"
    text += "%w = tensor.empty() : tensor<8x70xf16>\n"
    text += "%n = linalg.broadcast ins(%m : tensor<8xf16>) outs(%w : tensor<8x70xf16>) dimensions = [1]\n"
    text += "%k = scf.for %i = %c0 to %c2 step %c1 iter_args(%h = %f) -> (tensor<8x70xf16>) {\n"
    text += "%j = arith.addf %h, %s : tensor<8x70xf16>\n%t = arith.addf %j, %n : tensor<8x70xf16>\nscf.yield %t : tensor<8x70xf16>\n}\n"
    text += "%o = tensor.expand_shape %k [[0, 1], [2]] output_shape [2, 4, 70] : tensor<8x70xf16> into tensor<2x4x70xf16>\n"
    text += "ktdp.store %o, %b : tensor<2x4x70xf16>, <2x4x70xindex>\n"
    equal(function(text, ("x", "z", "y")), arrays((2, 4, 70), (8, 70), (2, 4, 70)))


FIXED = "".join(f"%f{n} = arith.constant {n} : index\n" for n in (100, 200))
REFUSED = {
    "uses memory at the addresses 100 of f16 and 200 of f16, which lie over each other": function(
        FIXED
        + view("p", "%f100", (8, 64), (64, 1))
        + view("q", "%f200", (8, 64), (64, 1))
        + copy("", "%p", "%q", "%c0, %c0", (8, 64), (8, 64)),
        (),
    ),
    "lies in other parts of a distributed view, or in more of one, on some tiles": by_rows(
        4, 6, 64, "%t = ktdp.get_compute_tile_id : index\n" + copy("", "%v", "%w", "%t, %c0", (10, 64), (2, 64)), (8,)
    ),
    "has coordinates that no part of its distributed view owns": by_rows(
        4, 4, 64, copy("", "%v", "%w", "%c2, %c0", (10, 64), (8, 64)), gap=2
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(KtirError, match=re.escape(message)) as error:
        package_of(REFUSED[message])
    assert re.fullmatch(r"kernel.mlir:\d+:\d+", error.value.location or "")


def reversed_rows(base: str) -> str:
    """Four rows, the last one first, from an address on."""
    text = "func.func @main(%x: index, %y: index) attributes {grid = [1]} {\n%c0 = arith.constant 0 : index\n"
    text += (
        "%c192 = arith.constant 192 : index\n%last = arith.addi %x, %c192 : index\n"
        + view("xv", base, (4, 64), (-64, 1))
        + view("yv", "%y", (4, 64), (64, 1))
    )
    text += tile("xt", "%xv", "%c0, %c0", (4, 64), (4, 64)) + tile("yt", "%yv", "%c0, %c0", (4, 64), (4, 64))
    text += "%v = ktdp.load %xt : !ktdp.access_tile<4x64xindex> -> tensor<4x64xf16>\n"
    return text + "ktdp.store %v, %yt : tensor<4x64xf16>, !ktdp.access_tile<4x64xindex>\nreturn\n}\n"


def test_a_negative_stride() -> None:
    """Within memory it is as any other; what would begin before it is refused when it is compiled."""
    equal(reversed_rows("%last"), [np.arange(256, dtype=np.float16).reshape(4, 64), np.zeros((4, 64), np.float16)])
    with pytest.raises(
        KtirError, match=r"^kernel\.mlir:9:\d+: error: 'ktdp.load' op reads elements from -192 on of memory that begins at 0$"
    ):
        package_of(reversed_rows("%x"))
