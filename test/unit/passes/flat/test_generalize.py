"""What ktir-generalize may change: the last places of matmuls of f32, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.flat.ktir_generalize import GeneralizePass
from ktir.runtime.executable import Executable

PROGRAM = """
module attributes {{ktir.level = "logical"}} {{
  func.func @f(%a: tensor<5x70x{0}>, %b: tensor<70x3x{0}>, %c: tensor<5x3xf32>) -> tensor<5x3xf32> {{
    %r = linalg.matmul ins(%a, %b : tensor<5x70x{0}>, tensor<70x3x{0}>) outs(%c : tensor<5x3xf32>) -> tensor<5x3xf32>
    return %r : tensor<5x3xf32>
  }}
}}
"""


@pytest.mark.parametrize(("dtype", "allowed"), [("f16", 0.0), ("f32", 2.0**-10)])
def test_what_it_may_change(dtype: str, allowed: float) -> None:
    with context(), ir.Location.unknown():
        module = parse_module(PROGRAM.format(dtype))
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
