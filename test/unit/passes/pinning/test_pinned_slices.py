"""Reductions of slices of 8 elements, on the chip as NumPy folds them, one element after the other, rounded at each step."""

from __future__ import annotations

import numpy as np
import pytest
from combinations import each_once
from pinned import equal, package_of

from ktir.diagnostics import KtirError

GRID = 2


def kernel(rows: int, columns: int, kind: str, scope: str, type_: str, made: str = "arith.addf %a, %a") -> str:
    """What is loaded, twice, reduced by slices; one added to it."""
    memory, tile = f"{GRID * rows}x{columns}x{type_}", f"{rows}x{columns}"

    def box(n: int) -> str:
        return f"affine_set<(r, c) : (r >= 0, -r + {n - 1} >= 0, c >= 0, -c + {columns - 1} >= 0)>"

    views = "".join(
        f"%{n}v = ktdp.construct_memory_view %{n}, sizes: [{GRID * rows}, {columns}], strides: [{columns}, 1] "
        f"{{coordinate_set = {box(GRID * rows)}, memory_space = #ktdp.memory_space<global>}} : memref<{memory}>\n"
        f"%{n}t = ktdp.construct_access_tile %{n}v[%at, 0] {{access_tile_set = {box(rows)}, "
        f"access_tile_order = affine_map<(r, c) -> (r, c)>}} : memref<{memory}> -> !ktdp.access_tile<{tile}xindex>\n"
        for n in "xy"
    )
    type_ = f"tensor<{tile}x{type_}>"
    return (
        f"func.func @slices(%x: index, %y: index) attributes {{grid = [{GRID}]}} {{\n%t = ktdp.get_compute_tile_id : index\n"
        f"%n = arith.constant {rows} : index\n%at = arith.muli %t, %n : index\n{views}"
        f"%a = ktdp.load %xt : <{tile}xindex> -> {type_}\n%b = {made} : {type_}\n"
        f"%c = spyreop.slice_reduction %b {{reduction_kind = #spyreop.reduction_kind<{kind}>, "
        f"reduction_scope = #spyreop.reduction_scope<{scope}>}} : {type_} -> {type_}\n%one = arith.constant dense<1.0> : {type_}\n"
        f"%d = arith.addf %c, %one : {type_}\nktdp.store %d, %yt : {type_}, <{tile}xindex>\nreturn\n}}\n"
    )


FOLDS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "abs_max": np.maximum}


@pytest.mark.parametrize(
    ("kind", "scope", "type_", "shape"),
    each_once(FOLDS, ["in_slice", "across_slice"], ["f16", "f32"], [(1, 64), (3, 64), (4, 128), (5, 8)]),
)
def test_slices(kind: str, scope: str, type_: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((GRID * shape[0], shape[1])).astype({"f16": "f2", "f32": "f4"}[type_])
    x[0, 3], x[-1, 2] = np.nan, -0.0
    executable = equal(kernel(*shape, kind, scope, type_), [x, np.zeros_like(x)])
    y = np.zeros_like(x)
    executable(x, y)
    wanted = (x + x).reshape(len(x), -1, 8)
    folded = np.moveaxis(np.abs(wanted) if kind == "abs_max" else wanted, 2 if scope == "in_slice" else 1, 0)
    total = folded[0]
    for element in folded[1:]:
        total = FOLDS[kind](total, element)
    wanted[(..., 0) if scope == "in_slice" else (slice(None), 0)] = total
    assert np.array_equal(y, wanted.reshape(x.shape) + x.dtype.type(1), equal_nan=True)


def test_refused() -> None:
    with pytest.raises(KtirError, match=r"kernel.mlir:11:6: .*'spyreop.slice_reduction' op folds 65 slices, more than 64"):
        package_of(kernel(1, 520, "add", "across_slice", "f16"))
    with pytest.raises(KtirError, match="expects floats whose last dim is a multiple of 8"):
        package_of(kernel(1, 60, "add", "in_slice", "f16"))
