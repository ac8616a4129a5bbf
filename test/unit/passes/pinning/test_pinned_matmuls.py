"""Matmuls of kernels with a grid: the executor's bits, and near NumPy in float64, whatever the extents."""

from __future__ import annotations

import numpy as np
import pytest
from pinned import equal, package_of

from ktir.diagnostics import KtirError

ORDER = "affine_map<(r, c) -> (r, c)>"


def box(rows: int, columns: int) -> str:
    return f"affine_set<(r, c) : (r >= 0, -r + {rows - 1} >= 0, c >= 0, -c + {columns - 1} >= 0)>"


def tile(name: str, argument: str, whole: tuple[int, int], strides: tuple[int, int], part: tuple[int, int], first: str, type_: str) -> str:
    """A view of an argument and a tile of it, which begins at `first`."""
    memory = f"memref<{whole[0]}x{whole[1]}x{type_}>"
    return (
        f"%v{name} = ktdp.construct_memory_view %{argument}, sizes: {list(whole)}, strides: {list(strides)} "
        f"{{coordinate_set = {box(*whole)}, memory_space = #ktdp.memory_space<global>}} : {memory}\n"
        f"%t{name} = ktdp.construct_access_tile %v{name}[{first}] {{access_tile_set = {box(*part)}, access_tile_order = {ORDER}}} : "
        f"{memory} -> !ktdp.access_tile<{part[0]}x{part[1]}xindex>\n"
    )


def load(name: str, shape: tuple[int, int], type_: str = "f16") -> str:
    return f"%{name} = ktdp.load %t{name} : <{shape[0]}x{shape[1]}xindex> -> tensor<{shape[0]}x{shape[1]}x{type_}>\n"


def program(m: int, k: int, n: int, form: str, tiles: int = 2) -> str:
    """y = x w, a block of rows per tile. `form`: what stands around the product."""
    type_ = "f16" if form == "f16" else "f32"
    product = f"tensor<{m}x{n}x{type_}>"
    text = "%t = ktdp.get_compute_tile_id : index\n%m = arith.constant " + f"{m} : index\n%row = arith.muli %t, %m : index\n"
    text += tile("a", "x", (tiles * m, k), (k, 1), (m, k), "%row, 0", "f16") + load("a", (m, k))
    left = "%a"
    if form == "computed":
        text += f"%one = arith.constant dense<1.0> : tensor<{m}x{k}xf16>\n%a1 = arith.addf %a, %one : tensor<{m}x{k}xf16>\n"
        left = "%a1"
    if form == "transposed":
        text += tile("b", "w", (n, k), (k, 1), (n, k), "0, 0", "f16") + load("b", (n, k))
        text += f"%e = tensor.empty() : tensor<{k}x{n}xf16>\n"
        text += f"%bt = linalg.transpose ins(%b : tensor<{n}x{k}xf16>) outs(%e : tensor<{k}x{n}xf16>) permutation = [1, 0]\n"
    else:
        text += tile("b", "w", (k, n), (n, 1), (k, n), "0, 0", "f16") + load("b", (k, n))
    right = "%bt" if form == "transposed" else "%b"
    start = {"outs": f"arith.constant dense<0.75> : {product}", "f16": f"arith.constant dense<0.0> : {product}"}
    text += f"%start = {start.get(form, f'tensor.empty() : {product}')}\n"
    text += f"%z = linalg.matmul ins({left}, {right} : tensor<{m}x{k}xf16>, tensor<{k}x{n}xf16>) outs(%start : {product}) -> {product}\n"
    text += tile("y", "y", (tiles * m, n), (n, 1), (m, n), "%row, 0", type_)
    text += f"ktdp.store %z, %ty : {product}, <{m}x{n}xindex>\n"
    return f"func.func @kernel(%x: index, %w: index, %y: index) attributes {{grid = [{tiles}]}} {{\n{text}return\n}}\n"


def arrays(m: int, k: int, n: int, form: str, tiles: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, w = rng.uniform(-1, 1, (tiles * m, k)).astype(np.float16), rng.uniform(-1, 1, (k, n)).astype(np.float16)
    w = np.ascontiguousarray(w.T) if form == "transposed" else w
    return [x, w, np.zeros((tiles * m, n), np.float16 if form == "f16" else np.float32)]


@pytest.mark.parametrize("form", ["f32", "f16", "computed", "transposed", "outs"])
@pytest.mark.parametrize(("m", "k", "n"), [(8, 64, 64), (5, 100, 70), (1, 130, 64), (2, 3, 1)])
def test_matmul(m: int, k: int, n: int, form: str) -> None:
    given = arrays(m, k, n, form)
    executable = equal(program(m, k, n, form), given)
    executable(*given)
    x, w, found = given
    x = x + np.float16(1) if form == "computed" else x
    exact = x.astype(np.float64) @ (w.T if form == "transposed" else w).astype(np.float64) + (0.75 if form == "outs" else 0.0)
    assert np.allclose(found.astype(np.float64), exact, rtol=2.0**-10 if form == "f16" else 1e-6, atol=1e-4)


def test_what_is_no_matmul_of_the_array() -> None:
    text = program(4, 8, 8, "f32").replace("xf16", "xf32").replace("f16", "f32")
    with pytest.raises(KtirError, match=r"'linalg.matmul' op multiplies f32 and f32 into f32, but the array takes f16") as error:
        package_of(text)
    assert error.value.location
