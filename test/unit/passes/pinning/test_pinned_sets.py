"""Access tiles whose sets are no boxes: points that are not in the set read as zero and are not written, on the chip as NumPy has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from combinations import each_once
from pinned import equal, package_of

from ktir import lang
from ktir.diagnostics import KtirError

SETS: dict[str, tuple[str, tuple[int, int], Callable[[Any, Any], Any]]] = {
    "every other column": ("c mod 2 == 0", (6, 37), lambda r, c: c % 2 == 0),
    "every other row, from the second on": ("r mod 2 - 1 == 0", (7, 100), lambda r, c: r % 2 == 1),
    "columns in whole sticks": ("c floordiv 64 - 1 == 0", (3, 192), lambda r, c: c // 64 == 1),
    "columns that end inside of a stick": ("-(c floordiv 71) >= 0", (4, 90), lambda r, c: c <= 70),
    "columns that begin inside of a stick": ("c floordiv 3 - 2 >= 0", (5, 130), lambda r, c: c >= 6),
    "every third column of a single row": ("c mod 3 == 0", (1, 37), lambda r, c: c % 3 == 0),
    "a triangle": ("c - r >= 0", (6, 37), lambda r, c: c >= r),
    "rows in the middle": ("(r + 1) floordiv 3 - 1 == 0", (9, 64), lambda r, c: (r + 1) // 3 == 1),
}


def kernel(constraint: str, shape: tuple[int, int], loads: bool, type_: str, grid: int, order: str = "r, c") -> str:
    """Each tile copies its rows: what is loaded, or stored, is what is in the set."""
    rows, columns = shape
    memory, tile = f"{grid * rows}x{columns}", f"{rows}x{columns}" if order == "r, c" else f"{columns}x{rows}"
    sets = [f"r >= 0, -r + {rows - 1} >= 0, c >= 0, -c + {columns - 1} >= 0" for _ in range(2)]
    sets[0 if loads else 1] += f", {constraint}"
    views = "".join(
        f"%{n}v = ktdp.construct_memory_view %{n}, sizes: [{grid * rows}, {columns}], strides: [{columns}, 1] "
        f"{{coordinate_set = affine_set<(r, c) : (r >= 0, -r + {grid * rows - 1} >= 0, c >= 0, -c + {columns - 1} >= 0)>, "
        f"memory_space = #ktdp.memory_space<global>}} : memref<{memory}x{type_}>\n"
        f"%{n}t = ktdp.construct_access_tile %{n}v[%at, 0] {{access_tile_set = affine_set<(r, c) : ({own})>, "
        f"access_tile_order = affine_map<(r, c) -> ({order})>}} : memref<{memory}x{type_}> -> !ktdp.access_tile<{tile}xindex>\n"
        for n, own in zip("xy", sets, strict=True)
    )
    return (
        f"func.func @copy(%x: index, %y: index) attributes {{grid = [{grid}]}} {{\n%t = ktdp.get_compute_tile_id : index\n"
        f"%n = arith.constant {rows} : index\n%at = arith.muli %t, %n : index\n{views}"
        f"%a = ktdp.load %xt : <{tile}xindex> -> tensor<{tile}x{type_}>\n"
        f"ktdp.store %a, %yt : tensor<{tile}x{type_}>, <{tile}xindex>\nreturn\n}}\n"
    )


@pytest.mark.parametrize(("name", "loads", "type_"), each_once(SETS, [True, False], ["f16", "f32", "i32"]))
def test_points_outside_of_the_set(name: str, loads: bool, type_: str) -> None:
    constraint, (rows, columns), holds = SETS[name]
    grid = 3
    x = np.arange(1, grid * rows * columns + 1).reshape(grid * rows, columns).astype({"i32": "i4", "f16": "f2", "f32": "f4"}[type_])
    before = np.full_like(x, -7)
    executable = equal(kernel(constraint, (rows, columns), loads, type_, grid), [x, before])
    y = before.copy()
    executable(x, y)
    inside = np.tile(holds(*np.indices((rows, columns))), (grid, 1))
    assert np.array_equal(y, np.where(inside, x, 0 if loads else before))


def test_in_another_order() -> None:
    x = np.arange(1, 2 * 6 * 37 + 1).reshape(12, 37).astype(np.float16)
    equal(kernel("c mod 3 == 0", (6, 37), True, "f16", 2, "c, r"), [x, np.zeros_like(x)])


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("-1 == 0", "has a set without points"),
        ("-c * 2 + 60 >= 0", r"kernel.mlir:6:.* expects a tile of shape \[6, 31\], the extents of its set in its order, but got \[6, 37\]"),
    ],
)
def test_refused(constraint: str, message: str) -> None:
    with pytest.raises(KtirError, match=message):
        package_of(kernel(constraint, (6, 37), True, "f16", 2))


@lang.kernel
def before(x, y, z):
    """Tiles that begin before their views in rows, or in columns, or end behind them too: read and written."""
    b, zero = lang.tile_id(0), lang.tile_id(1)
    y[b, 0] = x.masked[b, zero - 2 : zero + 5]
    y[b, 1, 0:7, 0:65] = x.masked[b, 0:7, zero - 5 : zero + 60]
    y[b, 2, 0:7] = x.masked[b, 0:7, zero - 30 : zero + 40]
    z.masked[b, zero - 3 : zero + 9] = x.masked[b, zero : zero + 12]


@pytest.mark.parametrize("type_", [np.float16, np.float32, np.int32])
def test_tiles_that_begin_before_a_masked_view(type_: Any) -> None:
    x = np.arange(1, 3 * 7 * 70 + 1).reshape(3, 7, 70).astype(type_)
    arrays = [x, np.full((3, 3, 7, 70), -7, type_), np.full((3, 7, 70), -7, type_)]
    executable = equal(before[3, 1].ktir(*arrays), arrays)
    executable(*(found := [a.copy() for a in arrays]))
    wanted = [a.copy() for a in arrays]
    wanted[1][:, 0, :2], wanted[1][:, 0, 2:] = 0, x[:, :5]
    wanted[1][:, 1, :, :5], wanted[1][:, 1, :, 5:65] = 0, x[:, :, :60]
    wanted[1][:, 2, :, :30], wanted[1][:, 2, :, 30:] = 0, x[:, :, :40]
    wanted[2][:, :4], wanted[2][:, 4:] = x[:, 3:], 0
    for a, b in zip(found, wanted, strict=True):
        assert np.array_equal(a, b)
