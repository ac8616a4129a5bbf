"""Subscripts and trips that data decides: places are computed by a kernel before, trips that the author does not make leave nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pinned import equal, package_of
from test_pinned_indirect import box, memref, view

from ktir import lang
from ktir.diagnostics import KtirError
from ktir.runtime.executable import Executable

RNG = np.random.default_rng(0)


@lang.kernel
def subscripts(x, i, j, y):
    b = lang.tile_id()
    y[b] = x[i[b], j[b]] * 2


def windows() -> str:
    """Rows from a place on."""
    tile = "{{access_tile_set = {}, access_tile_order = affine_map<{}>}} : {} -> !ktdp.access_tile<{}xindex>"
    rows, same = "4x64", "(r, c) -> (r, c)"
    return (
        "func.func @windows(%a: index, %i: index, %b: index) attributes {grid = [4]} {\n%t = ktdp.get_compute_tile_id : index\n"
        "%c0 = arith.constant 0 : index\n%c4 = arith.constant 4 : index\n%own = arith.muli %t, %c4 : index\n"
        f"{view('x', 'a', (9, 64))}{view('z', 'i', (4,), 'i32')}{view('y', 'b', (16, 64))}"
        f"%zt = ktdp.construct_access_tile %z[%t] {tile.format(box((1,)), '(d) -> (d)', memref((4,), 'i32'), '1')}\n"
        "%l = ktdp.load %zt : <1xindex> -> tensor<1xi32>\n%e = tensor.extract %l[%c0] : tensor<1xi32>\n"
        "%k = arith.index_cast %e : i32 to index\n"
        f"%xt = ktdp.construct_access_tile %x[%k, %c0] {tile.format(box((4, 64)), same, memref((9, 64)), rows)}\n"
        f"%v = ktdp.load %xt : <{rows}xindex> -> tensor<{rows}xf16>\n"
        f"%yt = ktdp.construct_access_tile %y[%own, %c0] {tile.format(box((4, 64)), same, memref((16, 64)), rows)}\n"
        f"ktdp.store %v, %yt : tensor<{rows}xf16>, <{rows}xindex>\nreturn\n}}\n"
    )


def branches(condition: str) -> str:
    """A row or another one, twice, by %k, which is loaded, or by the tile; `condition` is %c."""
    tile = "{{access_tile_set = {}, access_tile_order = affine_map<{}>}} : {} -> !ktdp.access_tile<{}xindex>"
    row, same = tile.format(box((1, 64)), "(r, c) -> (r, c)", memref((4, 64)), "1x64"), "tensor<1x64xf16>"

    def load(name: str, at: str) -> str:
        return f"%{name}t = ktdp.construct_access_tile %x[{at}, %c0] {row}\n%{name}v = ktdp.load %{name}t : <1x64xindex> -> {same}\n"

    return (
        "func.func @branches(%a: index, %i: index, %b: index) attributes {grid = [4]} {\n%t = ktdp.get_compute_tile_id : index\n"
        "%c0 = arith.constant 0 : index\n%c2 = arith.constant 2 : index\n"
        f"{view('x', 'a', (4, 64))}{view('z', 'i', (4,), 'i32')}{view('y', 'b', (4, 64))}"
        f"%zt = ktdp.construct_access_tile %z[%t] {tile.format(box((1,)), '(d) -> (d)', memref((4,), 'i32'), '1')}\n"
        "%l = ktdp.load %zt : <1xindex> -> tensor<1xi32>\n%e = tensor.extract %l[%c0] : tensor<1xi32>\n"
        f"%k = arith.index_cast %e : i32 to index\n{condition}\n%r = scf.if %c -> ({same}) {{\n{load('p', '%c0')}"
        f"%q = arith.addf %pv, %pv : {same}\nscf.yield %q : {same}\n}} else {{\n{load('o', '%t')}scf.yield %ov : {same}\n}}\n"
        f"%yt = ktdp.construct_access_tile %y[%t, %c0] {row}\nktdp.store %r, %yt : {same}, <1x64xindex>\nreturn\n}}\n"
    )


@lang.kernel
def chained(x, i, j, y):
    """A place that was looked up at a place that was looked up."""
    b = lang.tile_id()
    y[b] = x[j[i[b]]] + x[i[b]]


@lang.kernel
def computed(x, i, y):
    b = lang.tile_id()
    y[b] = x[(i[b] * 3 + 1) % 8]


@lang.kernel
def scattered(x, i, y):
    b = lang.tile_id()
    y[i[b]] = x[b] * 2


def at_numbers(*addresses: int) -> str:
    """`windows` on memory at numbers."""
    text = windows().replace("%a: index, %i: index, %b: index", "")
    made = "".join(f"%{n} = arith.constant {at} : index\n" for n, at in zip("aib", addresses, strict=True))
    return text.replace("%c0 =", f"{made}%c0 =", 1)


def test_tables_and_stores_at_numbers() -> None:
    """Memory at two numbers is two, so that a store to one leaves places that are read from the other; the same number of two types too."""
    arrays = [half(9, 64), numbers(5, 0, 2, 2), half(16, 64)]
    equal(at_numbers(1024, 8192, 40960), arrays, addresses=(1024, 8192, 40960))
    package_of(at_numbers(1024, 16384, 16384))
    with pytest.raises(KtirError, match="stores to memory from which places are computed"):
        package_of(at_numbers(1024, 16384, 16384).replace("xf16", "xi32"))


def test_a_tile_that_no_scratchpad_holds() -> None:
    text = windows().replace("4x64", "20000x64").replace("9x64", "30000x64").replace("[9, 64]", "[30000, 64]")
    text = text.replace("-d0 + 3 >= 0, d1", "-d0 + 19999 >= 0, d1").replace("-d0 + 8 >= 0, d1", "-d0 + 29999 >= 0, d1")
    with pytest.raises(KtirError, match=r"kernel.mlir:.* op is of 2560000 bytes, but the scratchpad has"):
        package_of(text)


@lang.kernel
def trips(x, table, n, y):
    """As many rows as data says, of places that a table has; a loop in it."""
    b = lang.tile_id()
    total = lang.zeros(x.shape[1])
    for i in lang.range(n[b]):
        for j in lang.range(2):
            total += x[table[b, i]] * (i + j)
    y[b] = total


def given(kernel: Any, tiles: int = 4, **values: np.ndarray) -> tuple[str, list[np.ndarray]]:
    arrays = [a.copy() for a in values.values()]
    return kernel[tiles].ktir(*arrays), arrays


def half(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def numbers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


CASES = {
    "subscripts": given(subscripts, x=half(8, 4, 100), i=numbers(7, 0, 3, 3), j=numbers(0, 3, 1, 2), y=half(4, 100)),
    "windows": (windows(), [half(9, 64), numbers(5, 0, 2, 2), half(16, 64)]),
    "chained": given(chained, x=half(8, 100), i=numbers(3, 1, 0, 2), j=numbers(7, 4, 2, 0), y=half(4, 100)),
    "computed": given(computed, x=half(8, 100), i=numbers(3, 1, 0, 2), y=half(4, 100)),
    "scattered": given(scattered, x=half(4, 100), i=numbers(7, 1, 0, 2), y=half(8, 100)),
    "in turns": given(computed, 40, x=half(8, 100), i=RNG.integers(0, 9, 40).astype(np.int32), y=half(40, 100)),
    "trips": given(
        trips,
        x=half(8, 64).astype(np.float32),
        table=numbers([3, 1, -5], [0, 99, 99], [99, 7, 7], [4, 5, 6]),
        n=numbers(2, 1, 0, 3),
        y=half(4, 64).astype(np.float32),
    ),
}
"""With what nobody reads in tables: no places."""
TABLES = {"chained": (3, 3), "trips": (2, 1)}
"""Kernels of the stream and tables where there are not two and one: those that are not looked up again take the first one's place."""


@pytest.mark.parametrize("name", CASES)
def test_places_that_data_decides(name: str) -> None:
    text, arrays = CASES[name]
    executable = equal(text, arrays)
    kernels, tables = TABLES.get(name, (2, 1))
    assert len(executable.machine.program.kernels) == kernels
    assert [a.role for a in executable.spec.args].count("pool") == tables


@pytest.mark.parametrize(("name", "array", "wrong"), [("subscripts", 2, 4), ("windows", 1, 6), ("windows", 1, -1), ("scattered", 1, 8)])
def test_a_place_outside_stops_the_run(name: str, array: int, wrong: int) -> None:
    """Each subscript by itself: the row behind the last one of a plane is none of the next plane."""
    text, arrays = CASES[name]
    executable = Executable(package_of(text))
    data = [a.copy() for a in arrays]
    data[array][2] = wrong
    for mode in ("tape", "step"):
        with pytest.raises(KtirError, match="-1"):
            executable(*(a.reshape(h.size) for a, h in zip(data, executable.spec.hosts, strict=True)), mode=mode)


@lang.kernel
def ragged(x, y):
    """Trips that only some tiles make leave what is carried as it is; the last one's rows are cut."""
    b = lang.tile_id()
    total = lang.zeros((4, x.shape[1]))
    for i in lang.range(0, (b + 1) * 4, 4):
        total[...] = total * 0.5 + x.masked[i : i + 4]
    y[b] = total


@lang.kernel
def slabs(x, y):
    """Rows of two dims that are no one dim in memory, loaded and stored; both are cut."""
    b = lang.tile_id()
    y.masked[b * 2 : b * 2 + 2, 0:3, 0:70] = x.masked[b * 2 : b * 2 + 2, 1:4, 10:80] * 2


@lang.kernel
def turned(x, w, y):
    """Columns as rows, both cut inside of a stick, times a number of each: rows along a dim that what is loaded lacks."""
    for rows, columns in lang.blocks(x.shape, (16, 16)):
        y[columns, rows] = (x[rows, columns] * w[columns]).T


@lang.kernel
def dealt(x, ids, y):
    for row in lang.blocks(y.shape[0], 1):
        y[row] = x[ids[row]]


@lang.kernel
def flipped(x):
    """Writes what it has read elsewhere."""
    b = lang.tile_id()
    x[b * 8 : b * 8 + 8] = x[b * 8 : b * 8 + 8].T * 2


@lang.kernel
def doubled(x):
    b = lang.tile_id()
    x[b] = x[b] * 2


def test_a_table_is_not_read_beyond_its_end() -> None:
    """By tiles that have no row in the last trip."""
    text, arrays = given(dealt, 31, x=half(8, 64), ids=RNG.integers(0, 8, 32).astype(np.int32), y=half(32, 64))
    equal(text, arrays)


@pytest.mark.parametrize("of", ["%t", "%k"])
def test_branches_that_give_values(of: str) -> None:
    """By the tile, or by data."""
    equal(branches(f"%c = arith.cmpi ult, {of}, %c2 : index"), [half(4, 64), numbers(5, 1, 2, 0), half(4, 64)])


@pytest.mark.parametrize(("kernel", "kernels"), [(flipped, 2), (doubled, 1)])
def test_memory_that_is_read_and_written(kernel: Any, kernels: int) -> None:
    """What does not lie in place is stored by a kernel behind."""
    text, arrays = given(kernel, x=half(32, 8))
    assert len(equal(text, arrays).machine.program.kernels) == kernels


@lang.kernel
def wide(x, y):
    b = lang.tile_id()
    y[b] = np.maximum(x[b], x[3 - b])


def test_trips_that_only_some_tiles_make() -> None:
    text, arrays = given(ragged, x=half(15, 100).astype(np.float32), y=half(4, 4, 100).astype(np.float32))
    equal(text, arrays)


def test_rows_of_two_dims() -> None:
    text, arrays = given(slabs, x=half(7, 5, 100), y=half(7, 4, 90))
    equal(text, arrays)
    text, arrays = given(turned, x=half(20, 25), w=half(25), y=half(25, 20))
    equal(text, arrays)


def test_memory_of_64_bits_is_narrowed_and_checked() -> None:
    values = RNG.integers(-(2**31), 2**31, (4, 70))
    text, arrays = given(wide, x=values, y=np.zeros_like(values))
    executable = equal(text, arrays)
    arrays[0][1, 2] = 1 << 40
    with pytest.raises(KtirError, match=str(1 << 40)):
        executable(*(a.reshape(h.size) for a, h in zip(arrays, executable.spec.hosts, strict=True)))


@lang.kernel
def stores(x, n, y):
    b = lang.tile_id()
    for i in lang.range(n[b]):
        y[b] = x[i]


@lang.kernel
def endless(x, n, y):
    b = lang.tile_id()
    total = lang.zeros(x.shape[1])
    for _ in lang.range(n[b]):
        total += x[b]
    y[b] = total


@lang.kernel
def own(x, i, y):
    b = lang.tile_id()
    i[b] = x[b]
    y[b] = x[i[b]]


@lang.kernel
def elsewhere(x, i, y):
    b = lang.tile_id()
    i[b] = x[b]
    y[b] = x[i[b + 4]]


def test_a_place_that_the_same_tile_has_stored() -> None:
    """It is what was stored, so that nothing is read back."""
    given = [numbers(*range(8)), numbers(1, 2, 3, 4), numbers(0, 0, 0, 0)]
    executable = equal(own[4].ktir(*given), given)
    executable(*given)
    assert [a.tolist() for a in given[1:]] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("kernel", "arrays", "message"),
    [
        (stores, [half(8, 64), numbers(1, 2, 3, 4), half(4, 64)], "'ktdp.store' op stands where data decides whether it runs"),
        (
            endless,
            [half(8, 64), numbers(1, 2, 3, 4), half(4, 64)],
            "'scf.for' op makes a number of trips that is read from memory, and no load",
        ),
        (
            elsewhere,
            [numbers(*range(8)), numbers(*range(8)), numbers(*range(4))],
            "'ktdp.store' op stores to memory from which places are computed",
        ),
    ],
)
def test_what_is_refused(kernel: Any, arrays: list[np.ndarray], message: str) -> None:
    with pytest.raises(KtirError, match=message) as error:
        package_of(kernel[4].ktir(*arrays))
    assert error.value.location
