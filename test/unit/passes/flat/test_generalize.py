"""What ktir-generalize may change: the last places of matmuls of f32, and nothing else."""

from __future__ import annotations

import pytest

from ktir.assembly import parse_module
from ktir.context import context
from ktir.mlir import ir
from ktir.passes.flat.ktir_generalize import GeneralizePass

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
