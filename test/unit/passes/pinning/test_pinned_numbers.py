"""Numbers of the text as data: integers, the bits of floats; what is none is refused by what it is."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pinned import equal, package_of

from ktir.diagnostics import KtirError


def kernel(element: str, body: str) -> str:
    """`body` makes %s of %v, 4x64 elements of each of two tiles."""
    whole = f"memref<8x64x{element}>"
    views = "".join(
        f"%{name}v = ktdp.construct_memory_view %{name}, sizes: [8, 64], strides: [64, 1] {{coordinate_set = "
        "affine_set<(r, c) : (r >= 0, -r + 7 >= 0, c >= 0, -c + 63 >= 0)>, memory_space = #ktdp.memory_space<global>} : "
        f"{whole}\n%{name}t = ktdp.construct_access_tile %{name}v[%first, %c0] {{access_tile_set = "
        "affine_set<(r, c) : (r >= 0, -r + 3 >= 0, c >= 0, -c + 63 >= 0)>, access_tile_order = affine_map<(r, c) -> (r, c)>} : "
        f"{whole} -> !ktdp.access_tile<4x64xindex>\n"
        for name in "xy"
    )
    type_ = f"tensor<4x64x{element}>"
    return (
        "func.func @kernel(%x: index, %y: index) attributes {grid = [2]} {\n%c0 = arith.constant 0 : index\n"
        "%c4 = arith.constant 4 : index\n%t = ktdp.get_compute_tile_id : index\n%first = arith.muli %t, %c4 : index\n"
        f"{views}%v = ktdp.load %xt : !ktdp.access_tile<4x64xindex> -> {type_}\n{body}"
        f"ktdp.store %s, %yt : {type_}, !ktdp.access_tile<4x64xindex>\nreturn\n}}\n"
    )


def test_integers_of_the_text_are_data() -> None:
    body = (
        "%a = arith.constant 3 : i32\n%b = arith.index_cast %c4 : index to i32\n%n = arith.addi %a, %b : i32\n"
        "%w = tensor.splat %n : tensor<4x64xi32>\n%s = arith.addi %v, %w : tensor<4x64xi32>\n"
    )
    x = np.arange(512, dtype=np.int32).reshape(8, 64)
    equal(kernel("i32", body), [x, np.zeros_like(x)])


def test_bits_of_a_constant_are_a_float() -> None:
    body = (
        "%a = arith.constant 0xC0200000 : i32\n%n = arith.bitcast %a : i32 to f32\n"
        "%w = tensor.splat %n : tensor<4x64xf32>\n%s = arith.maximumf %v, %w : tensor<4x64xf32>\n"
    )
    x = np.linspace(-5, 5, 512, dtype=np.float32).reshape(8, 64)
    y = np.zeros_like(x)
    equal(kernel("f32", body), [x, y])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%w = tensor.splat %t : tensor<4x64xindex>\n", "makes data of a value of type 'index'"),
        (
            "%n = arith.index_cast %t : index to i32\n%w = tensor.splat %n : tensor<4x64xi32>\n",
            "makes data of an 'i32' that is not the same on every tile and in every trip",
        ),
    ],
)
def test_what_differs_by_tile_is_named(body: str, message: str) -> None:
    with pytest.raises(KtirError, match=re.escape(f"'tensor.splat' op {message}")) as error:
        package_of(kernel("i32", body + "%s = arith.addi %v, %v : tensor<4x64xi32>\n"))
    assert (error.value.location or "").startswith("kernel.mlir:")


def masked(loop: int, predicate: str = "ult") -> str:
    """Elements from position 3 on are 2."""
    maps = "affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>"
    body = f'%s = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}} ins(%v : tensor<4x64xf16>) '
    body += f"outs(%v : tensor<4x64xf16>) {{\n^bb0(%p: f16, %o: f16):\n%i = linalg.index {loop} : index\n%n = arith.constant 3 : index\n"
    body += f"%c = arith.cmpi {predicate}, %i, %n : index\n%w = arith.constant 2.0 : f16\n%q = arith.select %c, %p, %w : f16\n"
    return kernel("f16", body + "linalg.yield %q : f16\n} -> tensor<4x64xf16>\n")


def test_positions_decide() -> None:
    """Along either dim, which then lies in the sticks; what no mask of lanes says is refused by place."""
    x = np.linspace(-5, 5, 512).astype(np.float16).reshape(8, 64)
    equal(masked(1), [x, np.zeros_like(x)])
    equal(masked(0), [x, np.zeros_like(x)])
    with pytest.raises(KtirError, match=r"'linalg.index' op is supported only in a mask of pad lanes|'arith.cmpi' op") as error:
        package_of(masked(1, "eq"))
    assert (error.value.location or "").startswith("kernel.mlir:")
