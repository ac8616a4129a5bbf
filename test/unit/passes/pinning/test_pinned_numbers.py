"""Numbers of the text as data: integers, the bits of floats; what is none is refused by what it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pinned import equal, package_of

from ktir.diagnostics import KtirError
from ktir.runtime.executable import Executable


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
    "body",
    [
        "%m = arith.subi %t, %c4 : index\n%n = arith.index_cast %m : index to i32\n%w = tensor.splat %n : tensor<4x64xi32>\n",
        "%m = tensor.splat %t : tensor<4x64xindex>\n%w = arith.index_cast %m : tensor<4x64xindex> to tensor<4x64xi32>\n",
        "%n = arith.cmpi eq, %t, %c0 : index\n%z = arith.constant dense<7> : tensor<4x64xi32>\n"
        "%w = arith.select %n, %v, %z : tensor<4x64xi32>\n",
    ],
)
def test_what_differs_by_tile_is_data(body: str) -> None:
    """A number below zero, indices, and a truth."""
    x = np.arange(512, dtype=np.int32).reshape(8, 64)
    found = equal(kernel("i32", body + "%s = arith.muli %v, %w : tensor<4x64xi32>\n"), [x, np.zeros_like(x)])
    assert [a.role for a in found.spec.args].count("iota") == 1


def test_what_differs_by_trip_is_data() -> None:
    body = (
        (
            "%one = arith.constant 1 : index\n%s = scf.for %i = %t to %c4 step %one iter_args(%a = %v) -> (tensor<4x64xf32>) {\n"
            "%f = arith.sitofp %ic : i32 to f32\n%w = tensor.splat %f : tensor<4x64xf32>\n%b = arith.addf %a, %w : tensor<4x64xf32>\n"
            "scf.yield %b : tensor<4x64xf32>\n}\n"
        )
        .replace("%f =", "%ic = arith.index_cast %i : index to i32\n%f =")
        .replace("scf.for %i = %t", "scf.for %i = %c0")
    )
    x = np.linspace(-5, 5, 512, dtype=np.float32).reshape(8, 64)
    equal(kernel("f32", body), [x, np.zeros_like(x)])


def positions(element: str, ops: str, result: str = "%q") -> str:
    """`ops` makes %q of %p, the element, and of %r and %c, where it is."""
    maps = "affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>"
    body = f'%s = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}} ins(%v : tensor<4x64x{element}>) '
    body += f"outs(%v : tensor<4x64x{element}>) {{\n^bb0(%p: {element}, %o: {element}):\n%r = linalg.index 0 : index\n"
    body += f"%c = linalg.index 1 : index\n{ops}linalg.yield {result} : {element}\n}} -> tensor<4x64x{element}>\n"
    return kernel(element, body)


@pytest.mark.parametrize(
    "ops",
    [
        "%a = arith.divui %c, %c4 : index\n%b = arith.addi %a, %r : index\n%d = arith.addi %b, %first : index\n"
        "%q = arith.index_cast %d : index to i32\n",
        "%n = arith.extsi %p : i32 to i64\n%m = arith.index_cast %c : index to i64\n%e = arith.cmpi eq, %n, %m : i64\n"
        "%q = arith.extui %e : i1 to i32\n",
        "%n = arith.constant 20 : index\n%e = arith.cmpi uge, %c, %n : index\n%f = arith.cmpi sgt, %r, %c0 : index\n"
        "%g = arith.andi %e, %f : i1\n%q = arith.select %g, %p, %o : i32\n",
    ],
)
def test_positions_are_data(ops: str) -> None:
    """Along both dims, with numbers of the tile; in 64 bits, where those are known to fit; as other conditions than masks of lanes."""
    x = np.random.default_rng(0).integers(0, 64, (8, 64)).astype(np.int32)
    equal(positions("i32", ops.replace("%o ", "%p ")), [x, np.zeros_like(x)])


def test_wide_integers_that_may_not_fit_are_named() -> None:
    ops = "%n = arith.extsi %p : i32 to i64\n%m = arith.addi %n, %n : i64\n%q = arith.trunci %m : i64 to i32\n"
    message = "'arith.addi' op gives an 'i64' that is not known to fit into 32 bits"
    with pytest.raises(KtirError, match=message) as error:
        package_of(positions("i32", ops))
    assert (error.value.location or "").startswith("kernel.mlir:")


def masked(loop: int, predicate: str = "ult") -> str:
    """Elements from position 3 on are 2."""
    maps = "affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>"
    body = f'%s = linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]}} ins(%v : tensor<4x64xf16>) '
    body += f"outs(%v : tensor<4x64xf16>) {{\n^bb0(%p: f16, %o: f16):\n%i = linalg.index {loop} : index\n%n = arith.constant 3 : index\n"
    body += f"%c = arith.cmpi {predicate}, %i, %n : index\n%w = arith.constant 2.0 : f16\n%q = arith.select %c, %p, %w : f16\n"
    return kernel("f16", body + "linalg.yield %q : f16\n} -> tensor<4x64xf16>\n")


def test_positions_decide() -> None:
    """Along either dim; what no mask of lanes says is read from memory."""
    x = np.linspace(-5, 5, 512).astype(np.float16).reshape(8, 64)
    found = equal(masked(1), [x, np.zeros_like(x)])
    assert all(a.role != "iota" for a in found.spec.args)
    equal(masked(0), [x, np.zeros_like(x)])
    equal(masked(1, "eq"), [x, np.zeros_like(x)])
    equal(masked(0, "sge"), [x, np.zeros_like(x)])


def test_memory_without_elements() -> None:
    """A masked view whose size is 0 reads nothing but zeros; the device's memory has an element, which stays as it is."""
    path = Path(__file__).parents[4] / "conformance" / "cases" / "C119_masked_size_zero.mlir"
    executable = Executable(package_of(path.read_text(), ("1=0",)))
    x, y = np.full(1, 7, np.float16), np.full(2, 7, np.float16)
    executable(x, y)
    assert x.tolist() == [7]
    assert y.tolist() == [0, 0]
