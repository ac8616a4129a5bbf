"""Tiles whose rows a table has the places of: gathered and scattered as the executor does, or refused by op and place."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from pinned import equal, package_of

from ktir.diagnostics import KtirError
from ktir.runtime.executable import Executable

GLOBAL = "memory_space = #ktdp.memory_space<global>"


def box(shape: tuple[int, ...]) -> str:
    names = [f"d{k}" for k in range(len(shape))]
    return f"affine_set<({', '.join(names)}) : ({', '.join(f'{n} >= 0, -{n} + {m - 1} >= 0' for n, m in zip(names, shape, strict=True))})>"


def memref(shape: tuple[int, ...], element: str = "f16") -> str:
    return f"memref<{'x'.join(map(str, shape))}x{element}>"


def view(name: str, base: str, shape: tuple[int, ...], element: str = "f16") -> str:
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    return (
        f"%{name} = ktdp.construct_memory_view %{base}, sizes: {list(shape)}, strides: {strides} "
        f"{{coordinate_set = {box(shape)}, {GLOBAL}}} : {memref(shape, element)}\n"
    )


def kernel(
    subscripts: str,
    base: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    order: tuple[int, ...] | None = None,
    tiles: int = 4,
    store: bool = False,
    table: tuple[tuple[int, ...], str] = ((64,), "i32"),
) -> str:
    """Each tile doubles `%x[subscripts]`, of variables of `shape`, into its own rows of `%y`; `store`: the other way."""
    names = ", ".join(f"%d{k}" for k in range(len(shape)))
    order = order or tuple(range(len(shape)))
    out = tuple(shape[v] for v in order)
    whole = (tiles * out[0], *out[1:])
    type_, tile = f"tensor<{'x'.join(map(str, out))}xf16>", f"!ktdp.access_tile<{'x'.join(map(str, out))}xindex>"
    maps = [f"affine_map<({', '.join(f'd{k}' for k in range(len(shape)))}) -> ({', '.join(f'd{v}' for v in o)})>"
            for o in (order, range(len(shape)))]  # fmt: skip
    source, target = ("own", "looked") if store else ("looked", "own")
    return (
        f"func.func @kernel(%a: index, %i: index, %b: index) attributes {{grid = [{tiles}]}} {{\n"
        f"%c0 = arith.constant 0 : index\n%n = arith.constant {out[0]} : index\n%t = ktdp.get_compute_tile_id : index\n"
        "%first = arith.muli %t, %n : index\n" + view("x", "a", base) + view("z", "i", *table) + view("y", "b", whole) +
        f"%looked = ktdp.construct_indirect_access_tile intermediate_variables({names}) %x[{subscripts}] "
        f"{{variables_space_set = {box(shape)}, variables_space_order = {maps[0]}}} : {memref(base)}, {memref(*table)} -> {tile}\n"
        f"%own = ktdp.construct_access_tile %y[%first{', %c0' * (len(shape) - 1)}] "
        f"{{access_tile_set = {box(out)}, access_tile_order = {maps[1]}}} : {memref(whole)} -> {tile}\n"
        f"%v = ktdp.load %{source} : {tile} -> {type_}\n%s = arith.addf %v, %v : {type_}\n"
        f"ktdp.store %s, %{target} : {type_}, {tile}\nreturn\n}}\n"
    )  # fmt: skip


def arrays(
    base: tuple[int, ...], out: tuple[int, ...], table: tuple[int, ...] = (64,), below: int = 64, wide: bool = False
) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    places = rng.permutation(below)[: prod(table)] if prod(table) <= below else rng.integers(0, below, prod(table))
    x, y = (rng.standard_normal(s).astype(np.float16) for s in (base, out))
    return [x, places.reshape(table).astype(np.int64 if wide else np.int32), y]


@pytest.mark.parametrize(
    ("subscripts", "base", "shape", "order", "tiles"),
    [
        pytest.param("ind(%z[%t + %d0]), (%d1)", (64, 128), (10, 100), None, 4, id="rows"),
        pytest.param("ind(%z[3 * %t + %d0]), (%d1)", (64, 64), (7, 64), None, 3, id="odd-rows"),
        pytest.param("ind(%z[%t]), (%d0 + %d1)", (64, 128), (10, 100), None, 4, id="one-row-for-all"),
        pytest.param("(%d0), ind(%z[%t + %d1])", (16, 64), (10, 60), None, 4, id="columns"),
        pytest.param("ind(%z[%t + %d0]), (%d1)", (64, 64), (10, 30), (1, 0), 4, id="transposed"),
        pytest.param("ind(%z[%t + %d0]), (%t + %d1), (%d2)", (64, 8, 96), (2, 4, 96), None, 4, id="pages"),
        pytest.param("ind(%z[%t + %d0]), (%d1), (%d2)", (64, 8, 64), (1, 8, 64), None, 40, id="pages-in-turns"),
        pytest.param("ind(%z[%d0]), (%d1)", (64, 64), (4, 64), None, 35, id="rows-in-turns"),
    ],
)
def test_rows_are_gathered(
    subscripts: str, base: tuple[int, ...], shape: tuple[int, ...], order: tuple[int, ...] | None, tiles: int
) -> None:
    out = tuple(shape[v] for v in order or range(len(shape)))
    data = arrays(base, (tiles * out[0], *out[1:]), below=max(base) if subscripts.startswith("(") else base[0])
    equal(kernel(subscripts, base, shape, order=order, tiles=tiles), data)


def test_a_table_of_two_dims_is_read_along_both() -> None:
    data = arrays((64, 64), (24, 64), (8, 6))
    equal(
        kernel("ind(%z[%t + %d0, %d1]), (%d2)", (64, 64), (3, 6, 64), tiles=4, table=((8, 6), "i32")),
        [*data[:2], np.zeros((12, 6, 64), "f2")],
    )


@pytest.mark.parametrize(
    ("subscripts", "base", "shape"),
    [
        pytest.param("ind(%z[10 * %t + %d0]), (%d1)", (64, 128), (10, 100), id="rows"),
        pytest.param("ind(%z[%t + %d0]), (%d1), (%d2)", (64, 8, 64), (1, 5, 64), id="pages"),
    ],
)
def test_rows_are_scattered(subscripts: str, base: tuple[int, ...], shape: tuple[int, ...]) -> None:
    equal(kernel(subscripts, base, shape, store=True), arrays(base, (4 * shape[0], *shape[1:])))


def test_places_of_64_bits_are_narrowed_and_checked() -> None:
    text = kernel("ind(%z[%t + %d0]), (%d1)", (64, 64), (4, 64), table=((64,), "i64"))
    data = arrays((64, 64), (16, 64), wide=True)
    executable = equal(text, data)
    data[1][60] = 1 << 32  # read by nobody, and still no number of the device
    with pytest.raises(KtirError, match="4294967296"):
        executable(*(a.reshape(h.size) for a, h in zip(data, executable.spec.hosts, strict=True)))


def test_a_place_beyond_the_memory_is_an_error() -> None:
    data = arrays((64, 64), (16, 64))
    executable = Executable(package_of(kernel("ind(%z[%t + %d0]), (%d1)", (64, 64), (4, 64))))
    for wrong in (64, -1):
        data[1][2] = wrong
        for mode in ("tape", "step"):
            with pytest.raises(KtirError, match=str(wrong)):
                executable(*(a.reshape(h.size) for a, h in zip(data, executable.spec.hosts, strict=True)), mode=mode)


@pytest.mark.parametrize(
    ("subscripts", "shape"),
    [
        pytest.param("ind(%z[%t + %d0]), ind(%z[%d1])", (4, 10), id="elements"),
        pytest.param("ind(%z[2 * %t + %d0]), ind(%z[%t + %d0]), (%d1)", (5, 30), id="rows-of-two"),
        pytest.param("ind(%z[%t]), ind(%z[%t + %d0]), (%d1)", (5, 100), id="one-and-rows"),
        pytest.param("ind(%z[%t + %d0]), (%d1), ind(%z[%t]), (%d2)", (2, 4, 64), id="pages-of-two"),
    ],
)
def test_two_look_ups(subscripts: str, shape: tuple[int, ...]) -> None:
    """Their places are computed by a kernel before."""
    base = {2: (64, 64), 3: (64, 64, 100), 4: (64, 6, 64, 64)}[subscripts.count("),") + 1]
    text = kernel(subscripts, base, shape)
    text = text.replace(f"{memref(base)}, memref<64xi32> ->", f"{memref(base)}, memref<64xi32>, memref<64xi32> ->")
    executable = equal(text, arrays(base, (4 * shape[0], *shape[1:]), below=64))
    assert [a.role for a in executable.spec.args].count("pool") == 1
    assert len(executable.machine.program.kernels) == 2


def test_other_tables_are_refused() -> None:
    with pytest.raises(KtirError, match="looks rows of several dims up") as error:
        package_of(kernel("ind(%z[%d0 + %d1]), (%d1)", (64, 64), (4, 30)))
    assert (error.value.location or "").startswith("kernel.mlir:9:")
