"""What ktir-generalize may change, the last places of matmuls of f32 and of sums that begin from something; constants; accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ktir import lang
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.flat.ktir_generalize import GeneralizePass
from ktir.runtime import metrics
from ktir.runtime.executable import Executable

Array = NDArray[Any]
PROGRAM = """
module attributes {{ktir.level = "logical"}} {{
  func.func @f(%a: tensor<5x70x{0}>, %b: tensor<70x3x{0}>, %c: tensor<5x3xf32>) -> tensor<5x3xf32> {{
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<5x3xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<5x3xf32>) -> tensor<5x3xf32>
    %r = linalg.matmul ins(%a, %b : tensor<5x70x{0}>, tensor<70x3x{0}>) outs({1} : tensor<5x3xf32>) -> tensor<5x3xf32>
    return %r : tensor<5x3xf32>
  }}
}}
"""


@pytest.mark.parametrize(
    ("dtype", "begins", "allowed"),
    [("f16", "%zeros", 0.0), ("f16", "%c", 2.0**-10), ("f32", "%zeros", 2.0**-10), ("f32", "%c", 2.0**-10)],
)
def test_what_it_may_change(dtype: str, begins: str, allowed: float) -> None:
    with context(), ir.Location.unknown():
        module = parse_module(PROGRAM.format(dtype, begins))
        step = GeneralizePass()
        step.run(module)
        assert step.allowed(module) == allowed


CONSTANT = """
#s = affine_set<(d0, d1) : (d0 >= 0, -d0 + 3 >= 0, d1 >= 0, -d1 + 63 >= 0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @f(%x: index, %y: index) {{
  %c0 = arith.constant 0 : index
  %c = arith.constant dense<{0}> : tensor<4x64xi32>
  %xv = ktdp.construct_memory_view %x, sizes: [4, 64], strides: [64, 1]
    {{coordinate_set = #s, memory_space = #ktdp.memory_space<global>}} : memref<4x64xi32>
  %yv = ktdp.construct_memory_view %y, sizes: [4, 64], strides: [64, 1]
    {{coordinate_set = #s, memory_space = #ktdp.memory_space<global>}} : memref<4x64xi32>
  %xt = ktdp.construct_access_tile %xv[%c0, %c0] {{access_tile_order = #id, access_tile_set = #s}}
    : memref<4x64xi32> -> !ktdp.access_tile<4x64xindex>
  %v = ktdp.load %xt : <4x64xindex> -> tensor<4x64xi32>
  %z = arith.addi %v, %c : tensor<4x64xi32>
  %yt = ktdp.construct_access_tile %yv[%c0, %c0] {{access_tile_order = #id, access_tile_set = #s}}
    : memref<4x64xi32> -> !ktdp.access_tile<4x64xindex>
  ktdp.store %z, %yt : tensor<4x64xi32>, <4x64xindex>
  return
}}
"""


def test_constant_tensors() -> None:
    """One number is a fill; different ones are refused at the constant."""
    x = np.arange(256, dtype=np.int32).reshape(4, 64)
    with context(), ir.Location.unknown():
        executable = Executable(read(compile_logical(parse_module(CONSTANT.format(5)))))
        y = np.zeros_like(x)
        executable(x, y)
        np.testing.assert_array_equal(y, x + 5)
        with pytest.raises(KtirError, match=r"'arith\.constant' op holds different elements"):
            compile_logical(parse_module(CONSTANT.format([[1] * 63 + [2]] * 4)))


@lang.kernel
def products(a: Array, b: Array, c: Array, y: Array) -> None:
    """Each product begins from what another op has made: an argument, numbers, the product before."""
    first = lang.dot(a[:], b[:], c[:].astype(np.float32))
    second = lang.dot(a[:], b[:], np.full(y.shape, 2.5, np.float32))
    y[:] = lang.dot(a[:], b[:], lang.dot(a[:], b[:], first + np.exp(second * np.float32(0.001))))


@pytest.mark.parametrize("shape", [(40, 96, 72), (1, 64, 65), (130, 200, 64)])
def test_products_that_begin_from_something(shape: tuple[int, int, int]) -> None:
    """What a contraction begins from is in its result, without a grid as with one; against NumPy's float64."""
    m, k, n = shape
    random = np.random.default_rng(m)
    a, b, c = (random.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n), (m, n)))
    c *= 100
    one = a.astype(np.float64) @ b.astype(np.float64)
    wanted = 3 * one + c + np.exp((one + 2.5) * 0.001)
    for kernel in (products, products[1]):
        y = np.zeros((m, n), np.float32)
        with metrics.counted() as launches:
            kernel.using(on="chip")(a, b, c, y)
        assert (launches().chip, launches().executor) == (1, 0)
        assert np.abs(y - wanted).max() <= 2.0**-20 * (3 * abs(a).astype(np.float64) @ abs(b) + abs(c) + 2).max()


REDUCED = """
#b = affine_set<(d0, d1) : (d0 >= 0, -d0 + 15 >= 0, d1 >= 0, -d1 + 69 >= 0)>
#r = affine_set<(d0) : (d0 >= 0, -d0 + 15 >= 0)>
#m2 = affine_map<(d0, d1) -> (d0, d1)>
#m1 = affine_map<(d0, d1) -> (d0)>
#i1 = affine_map<(d0) -> (d0)>
module attributes {{ktir.level = "logical"}} {{
  func.func @root(%x: index {{ktir.name = "x", ktir.role = "input", ktir.type = tensor<16x70xf32>}},
                  %z: index {{ktir.name = "z", ktir.role = "input", ktir.type = tensor<16xf32>}},
                  %y: index {{ktir.name = "y", ktir.role = "output", ktir.type = tensor<16xf32>}}) {{
    %0 = ktdp.construct_memory_view %x, sizes: [16, 70], strides: [70, 1]
      {{coordinate_set = #b, memory_space = #ktdp.memory_space<global>}} : memref<16x70xf32>
    %1 = ktdp.construct_access_tile %0[0, 0] {{access_tile_order = #m2, access_tile_set = #b}}
      : memref<16x70xf32> -> !ktdp.access_tile<16x70xindex>
    %2 = ktdp.load %1 : <16x70xindex> -> tensor<16x70xf32>
    %z0 = ktdp.construct_memory_view %z, sizes: [16], strides: [1]
      {{coordinate_set = #r, memory_space = #ktdp.memory_space<global>}} : memref<16xf32>
    %z1 = ktdp.construct_access_tile %z0[0] {{access_tile_order = #i1, access_tile_set = #r}}
      : memref<16xf32> -> !ktdp.access_tile<16xindex>
    %z2 = ktdp.load %z1 : <16xindex> -> tensor<16xf32>
    %4 = linalg.generic {{indexing_maps = [#m2, #m1], iterator_types = ["parallel", "reduction"]}} ins(%2
      : tensor<16x70xf32>) outs(%z2 : tensor<16xf32>) {{
    ^bb0(%in: f32, %out: f32):
      %7 = {combiner} %out, %in : f32
      linalg.yield %7 : f32
    }} -> tensor<16xf32>
    %5 = ktdp.construct_memory_view %y, sizes: [16], strides: [1]
      {{coordinate_set = #r, memory_space = #ktdp.memory_space<global>}} : memref<16xf32>
    %6 = ktdp.construct_access_tile %5[0] {{access_tile_order = #i1, access_tile_set = #r}}
      : memref<16xf32> -> !ktdp.access_tile<16xindex>
    ktdp.store %4, %6 : tensor<16xf32>, <16xindex>
    return
  }}
}}
"""


@pytest.mark.parametrize("combiner", ["arith.addf", "arith.maximumf", "arith.minimumf"])
def test_reductions_that_begin_from_something(combiner: str) -> None:
    """The same numbers at every level and on the machine; whole numbers, of which sums are exact."""
    x = np.random.default_rng(0).integers(-9, 9, (16, 70)).astype(np.float32)
    z = np.arange(-8, 8, dtype=np.float32) * 3
    fold = {"arith.addf": np.add, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum}[combiner]
    wanted = fold(fold.reduce(x.astype(np.float64), 1), z)
    for level in check_levels(REDUCED.format(combiner=combiner), [x, z, np.zeros(16, np.float32)], cores=2):
        np.testing.assert_array_equal(level.arrays[2], wanted, err_msg=level.name)


def test_sums_in_half_precision() -> None:
    """Each step of them is rounded, so that what they begin from cannot come last."""
    text = REDUCED.format(combiner="arith.addf").replace("f32", "f16")
    with context(), ir.Location.unknown(), pytest.raises(KtirError, match="begins from a value and sums in f16, which is not supported"):
        compile_logical(parse_module(text))
